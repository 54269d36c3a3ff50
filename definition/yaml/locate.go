package yaml

import (
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn/definition"
)

// The type lines finds the offset of a line and column, because the parser reports no offsets.
type lines struct {
	text   string
	begins []int               // the offsets of the lines
	last   definition.Position // the last result: most lookups are for a place shortly after it, and begin there
}

func linesOf(text string) lines {
	l := lines{text: text, begins: []int{0}}
	for i := range len(text) {
		if text[i] == '\n' {
			l.begins = append(l.begins, i+1)
		}
	}
	return l
}

// The method `at` returns the position of a line and a column, both counted from 1.
func (l *lines) at(line, column int) definition.Position {
	if line < 1 || line > len(l.begins) {
		return definition.Position{Line: line, Column: column}
	}
	at := definition.Position{Line: line, Column: 1, Offset: l.begins[line-1]}
	if l.last.Line == line && l.last.Column <= column {
		at = l.last
	}
	for ; at.Column < column; at.Column++ {
		_, size := utf8.DecodeRuneInString(l.text[at.Offset:])
		at.Offset += size
	}
	l.last = at
	return at
}

func (l *lines) position(n *yaml.Node) definition.Position { return l.at(n.Line, n.Column) }

func (l *lines) problem(n *yaml.Node, kind definition.ErrorKind, format string, args ...any) *definition.Problem {
	return &definition.Problem{Kind: kind, Position: l.position(n), Message: fmt.Sprintf(format, args...)}
}
