package yaml

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn/definition"
)

// refused are texts that the parser rejects. Each has the expected place of the problem, and the fix that the message must name.
var refused = []struct{ text, place, mend, suggestion string }{
	{"a: b\n\tc: d\n", "2:1", `YAML is indented by spaces`, ""},
	{"a: {{ x }} y\n", "1:4", `must be in quotes: '{{ x }} y'`, `'{{ x }} y'`},
	{"a:\n  b: |\n  text here\n  more\nc: 1\n", "3:3", `begins after line 2: indent it deeper`, ""},
	{"a:\n  b: |\n    one\n  two\nc: 1\n", "4:3", `begins after line 2: indent it deeper`, ""},
	{"x: |\n  a\n b: c\n", "3:2", `begins after line 1: indent it deeper`, ""},
	{"- >-\n    a\n  b\n c\n- d\n", "3:3", `begins after line 1: indent it deeper`, ""},
	{"a:\n  b:\n    c: |\n  text here\n\n  more\nd: 1\n", "4:3", `begins after line 3: indent it deeper`, ""},
	{"a: 1\nb\nc: 2\n", "2:1", `a colon and a space behind its key`, ""},
	{"a: b: c\n", "1:4", `must be in quotes: 'b: c'`, `'b: c'`},
	{"a:b\nc: 1\n", "1:1", `a colon and a space separate a key from its value: a: b`, `a: b`},
	{"a: 1\n b: 2\n", "2:3", `indent the line as the key in the line before it`, ""},
	{"a: @b\n", "1:4", `must be in quotes: '@b'`, `'@b'`},
	{"@a: b\n", "1:1", `put it in quotes`, ""},
	{"a: *x\n", "1:4", `must be in quotes: '*x'`, `'*x'`},
	{"*x : a\n", "1:1", `put the value in quotes`, ""},
	{"a: & b\n", "1:4", `must be in quotes: '& b'`, `'& b'`},
	{"a: * b\n", "1:4", `must be in quotes: '* b'`, `'* b'`},
	{"a: !<foo bar\n", "1:4", `must be in quotes: '!<foo bar'`, `'!<foo bar'`},
	{"a: !e!foo bar\n", "1:4", `must be in quotes: '!e!foo bar'`, `'!e!foo bar'`},
	{"a: !%zz b\n", "1:4", `must be in quotes: '!%zz b'`, `'!%zz b'`},
	{"a: 1\n%TAG x\n", "2:6", `directives are not allowed`, ""},
	{"a: 1\nb: \"c\nd: e\n", "2:4", `no closing quote`, ""},
	{"a: 'b\n---\n", "1:4", `no closing quote`, ""},
	{"a: \"\\d+\"\n", "1:5", `write \\, or put the text in single quotes`, ""},
	{"a: \"\\x1\"\n", "1:7", `write \\, or put the text in single quotes`, ""},
	{"a: \"\\ud800\"\n", "1:7", `write \\, or put the text in single quotes`, ""},
	{"a: - b\n", "1:4", `begin each item in a line of its own`, ""},
	{"a: ? b\n", "1:4", `must be in quotes: '? b'`, `'? b'`},
	{"a: |0\n  x\n", "1:5", `leave it out`, ""},
	{"a: | text\n", "1:4", `begins in the next line, indented deeper`, ""},
	{"a: >-x\n  b\n", "1:4", `begins in the next line, indented deeper`, ""},
	{"a: \"x\"#y\n", "1:7", `a space is missing before the #`, ""},
	{"a:\n  - b: 1\n   - b: 2\n", "3:4", `2 spaces, as in line 2`, ""},
	{"a:\n    - b: 1\n  - b: 2\n", "3:3", `indent it at least as far as the key of its list`, ""},
	{"a:\n  - b: 1\n   c: 2\n", "3:4", `indent it by 4 spaces`, ""},
	{"- a\nb: 1\n", "2:1", `indent it by 2 spaces`, ""},
	{"a: 'it's'\n", "1:8", `written twice: ''`, ""},
	{"a: \"say \"x\"\"\n", "1:10", `is written \"`, ""},
	{"a: \"b\" == c\n", "1:8", `put all of it in quotes`, ""},
	{"a: [b] c\n", "1:8", `put all of it in quotes`, ""},
	{"a:\n  b: 1\n c: 2\n", "3:2", `by no spaces as the keys from line 1 on`, ""},
	{"a: 1\n- b\n", "2:1", `indent it at least as far as the key of its list`, ""},
	{"a: {b: 1\nc: 1\n", "2:2", `expected a comma or a }; the { stands in line 1, column 4`, ""},
	{"a: [b\nc: 1\n", "2:2", `expected a comma or a ]; the [ stands in line 1, column 4`, ""},
	{"a: [1,, 2]\n", "1:7", `a comma is too many here`, ""},
	{"a: [\n", "2:1", `a bracket is not closed`, ""},
	{"a: , b\n", "1:4", `must be in quotes: ', b'`, `', b'`},
	{"a: }\n", "1:4", `must be in quotes: '}'`, `'}'`},
	{" a: 1\nb: 2\n", "2:1", `indent it as the lines before it`, ""},
	{"a: 1\n... x\n", "2:5", `delete what follows`, ""},
}

// This package replaces the parser's messages by its own, which say how to fix the text. Each entry of the variable mistakes matches at least
// one text.
func TestMistakes(t *testing.T) {
	t.Parallel()
	used := make([]bool, len(mistakes))
	for _, row := range refused {
		root, err := Parse([]byte(row.text), definition.Limits{})
		require.NoError(t, err)
		p := root.Problem
		if !assert.NotNil(t, p, "%q", row.text) {
			continue
		}
		require.Equal(t, definition.ErrSyntax, p.Kind)
		assert.Equal(t, row.place, fmt.Sprintf("%d:%d", p.Position.Line, p.Position.Column), "%q", row.text)
		assert.Contains(t, p.Message, row.mend, "%q", row.text)
		assert.Equal(t, row.suggestion, p.Suggestion, "%q", row.text)

		le := loadError(t, row.text)
		assert.NotContains(t, p.Message, le.Message, "the words of the parser")
		l := linesOf(row.text)
		for i := range mistakes {
			if !strings.Contains(le.Message+" "+le.ContextMsg, mistakes[i].said) {
				continue
			}
			if _, _, ok := l.find(&mistakes[i], le); ok {
				used[i] = true
				break
			}
		}
	}
	for i := range used {
		assert.True(t, used[i], "no text for the mistake %d: %q", i, mistakes[i].said)
	}
}

func loadError(t *testing.T, text string) *yaml.LoadError {
	t.Helper()
	var node yaml.Node
	loader, err := yaml.NewLoader(strings.NewReader(text), yaml.WithV4Defaults())
	if err == nil {
		err = loader.Load(&node)
	}
	var le *yaml.LoadError
	require.True(t, errors.As(err, &le), "%q: %v", text, err)
	return le
}

// If no entry of mistakes matches, the parser's message is appended to words of this package.
func TestUnknownMistake(t *testing.T) {
	t.Parallel()
	l := linesOf("a: 1\nb: 2\n")
	p := &definition.Problem{Message: "something new", Position: l.at(2, 1)}
	l.explain(p, &yaml.LoadError{Message: "something new", Mark: yaml.Mark{Line: 2, Column: 1}})
	require.Equal(t, "the text is not YAML from here on: something new", p.Message)
	require.Equal(t, 2, p.Position.Line)
	require.Equal(t, "$.b", p.Path)
}
