package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slippedTemplates lists templates that the library refuses, with the place of the mistake and the expected advice.
var slippedTemplates = []struct {
	text string
	at   int
	mend string
}{
	{`x {{input "a"`, 2, "braces that begin with {{ end with }}"},
	{`x {{input "a"} y`, 13, "braces that begin with {{ end with }}"},
	{`{{/* x`, 0, "a comment ends with */}}"},
	{`{{/* x }} {{/* y */ }}`, 0, "a comment ends with */}}"},
	{`{{(input "a"}}`, 0, "a ( is not closed"},
	{`{{input "a")}}`, 0, "a ) closes nothing"},
	{`{{()}}`, 0, "the parentheses hold nothing"},
	{`{{template x}}`, 0, "followed by a name in double quotes"},
	{`{{if 1}}{{else x}}{{end}}`, 0, "stand alone in their braces"},
	{`{{range 3}}{{break x}}{{end}}`, 0, "stand alone in their braces"},
	{`{{x = 1}}`, 4, "{{$x := ...}} sets a variable"},
	{`{{input "a" + 1}}`, 0, "{{eq a b}}"},
	{`{{input "a" > 1}}`, 12, "{{lt a b}}"},
	{`{{a&&b}}`, 3, "{{and a b}}"},
	{`{{a || b}}`, 4, "{{or a b}}"},
	{`{{a?b}}`, 3, "a template has no operators"},
	{`{{a;b}}`, 3, `unexpected ";"; a text is in double quotes`},
	{"{{a \u202e}}", 0, "delete it"},
	{`{{input 'name'}}`, 8, "a text is in double quotes"},
	{`{{input 'n}}`, 0, "a text is in double quotes"},
	{`{{-input "a"}}`, 0, "{{- with a space behind it"},
	{`{{input 1a}}`, 0, "a text is in double quotes"},
	{`{{input "a}}`, 0, "no closing quote"},
	{"{{input `a}}", 0, "no closing quote"},
	{`{{input "\q"}}`, 0, `a backslash is \\`},
	{"a\n{{if input \"x\"}}b\nc", 20, "has no {{end}}"},
	{"a\nb {{end}}", 6, "delete it, or write what it belongs to"},
	{`{{break}}`, 2, "stands in a {{range}} only"},
	{`{{if 1}}{{else}}{{else}}{{end}}`, 0, "an {{else}} is followed by an {{end}}"},
	{`{{}}`, 0, "a value is missing between the braces"},
	{"a\nb {{if}}c{{end}}", 6, `{{if}} needs a value, as in {{if param "name"}}`},
	{`{{input "a" | "b"}}`, 0, "a | is followed by a function"},
	{`{{range $a, $b, $c := 1}}{{end}}`, 0, "{{range $key, $value := ...}}"},
	{`{{"a".b}}`, 0, `{{(param "name").member}}`},
	{`{{$x}}`, 2, "{{$x := ...}} sets it before"},
	{`{{` + strings.Repeat("(", 20000) + `}}`, 0, "too many parentheses"},
	{`{{define "a"}}x{{end}}{{define "a"}}y{{end}}`, 10, "give one of them another name"},
	{`{{input if}}`, 8, "{{if}} begins braces of its own"},
	{`{{input("a")}}`, 7, `with spaces between: {{input "name"}}`},
	{`{{input "a", "b"}}`, 11, `with spaces between: {{input "name"}}`},
}

// Errors of the template library are replaced by this program's messages, with advice. Each entry of templateSayings matches one of the texts.
func TestSayingsOfTemplates(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, row := range slippedTemplates {
		_, err := callsIn(row.text)
		require.Error(t, err, row.text)
		message, at := describeTemplate(row.text, err)
		assert.Contains(t, message, row.mend, "%.60s", row.text)
		assert.Equal(t, row.at, at, "%.60s", row.text)
		said := templateError.FindStringSubmatch(err.Error())[2]
		assert.NotContains(t, message, noTemplate, "%.60s", row.text)
		for _, s := range templateSayings {
			if s.said.MatchString(said) {
				used[s.said.String()] = true
				break
			}
		}
	}
	for _, s := range templateSayings {
		assert.True(t, used[s.said.String()], "no text for %s", s.said)
	}
	message, _ := say(templateSayings, noTemplate, "something new")
	require.Equal(t, "the template cannot be read: something new", message)
}

// Errors of the jq library are replaced by this program's messages, with advice.
func TestSayingsOfPrograms(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, row := range []struct {
		query string
		at    int
		mend  string
	}{
		{`.a | (`, 6, "a bracket or a quote is not closed, or an operand is missing"},
		{`"abc`, 4, "a bracket or a quote is not closed"},
		{`. | foo(1)`, 4, "there is no function foo/1"},
		{`. | $x`, 4, "... as $x | sets it"},
		{`import "a" as x; .`, 7, "a program stands on its own"},
		{``, -1, ". is its input"},
		{`break $x`, 6, "label $x | sets it before the break"},
		{`.a == 'x'`, 6, "a text is in double quotes"},
		{`.a && .b`, 3, "and, or and not join"},
		{`"\q"`, 1, `a backslash is \\`},
		{`.a b`, 3, "an operator such as | is missing before it"},
		{`map(.a))`, 7, `unexpected ")"`},
	} {
		_, err := compileQuery(row.query)
		require.Error(t, err, row.query)
		message, at := programError(row.query, err)
		assert.Contains(t, message, row.mend, row.query)
		assert.Equal(t, row.at, at, row.query)
		for _, s := range programSayings {
			used[s.said.String()] = used[s.said.String()] || s.said.MatchString(err.Error())
		}
	}
	for _, s := range programSayings {
		assert.True(t, used[s.said.String()], "no program for %s", s.said)
	}
	_, err := compileQuery(strings.Repeat("[", 520_000)) // would exceed the stack
	require.ErrorIs(t, err, errLongProgram)
	message, at := programError("", err)
	require.Contains(t, message, "take it apart")
	require.Zero(t, at)
	message, _ = say(programSayings, noProgram, "something new")
	require.Equal(t, "the program cannot be read: something new", message)
}
