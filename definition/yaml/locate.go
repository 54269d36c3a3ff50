package yaml

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/definition"
)

// locate fills in the offsets of problems, of which the parser knows lines and columns only.
func locate(text string, err error) {
	var e *definition.Error
	if !errors.As(err, &e) {
		return
	}
	lines := []int{0} // where they begin
	for i := strings.IndexByte(text, '\n'); i >= 0; {
		lines = append(lines, lines[len(lines)-1]+i+1)
		i = strings.IndexByte(text[lines[len(lines)-1]:], '\n')
	}
	for _, p := range e.Problems {
		if p.Position.Line < 1 || p.Position.Line > len(lines) {
			continue
		}
		offset := lines[p.Position.Line-1]
		for range p.Position.Column - 1 {
			_, size := utf8.DecodeRuneInString(text[offset:])
			offset += size
		}
		p.Position.Offset = offset
	}
}
