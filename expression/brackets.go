package expression

import (
	"fmt"
	"strings"
)

// A bracket is an opening bracket in a text.
type bracket struct {
	text string // "(", "[", "{" or "{{"
	at   int    // the bracket's offset in bytes
}

var closing = map[string]string{"(": ")", "[": "]", "{": "}", "{{": "}}"}

// unbrace replaces each double brace by a parenthesis and a space, so that positions do not change. It changes neither quoted text nor comments, nor
// a "}}" that closes two nested maps. The error names a bracket without a partner. It is nil if each bracket has a partner.
func unbrace(text string) (string, *SyntaxError) {
	b := []byte(text)
	var open []bracket
	var unpaired *SyntaxError
	for i := 0; i < len(b); i++ {
		last := bracket{}
		if len(open) > 0 {
			last = open[len(open)-1]
		}
		switch c := b[i]; c {
		case '"', '\'', '`':
			i = endOfQuote(text, i)
		case '/':
			i = endOfComment(text, i)
		case '(', '[':
			open = append(open, bracket{text[i : i+1], i})
		case '{':
			if !strings.HasPrefix(text[i:], "{{") { // {{ never opens two maps, since a map's key never begins with a brace
				open = append(open, bracket{"{", i})
				continue
			}
			open = append(open, bracket{"{{", i})
			b[i], b[i+1] = '(', ' '
			i++
		case ')', ']', '}':
			end := closing[last.text]
			switch {
			case end == "" || !strings.HasPrefix(text[i:], end):
				if unpaired == nil {
					unpaired = unpairedAt(text, i, last)
				}
				continue
			case end == "}}":
				b[i], b[i+1] = ' ', ')'
				i++
			}
			open = open[:len(open)-1]
		}
	}
	if unpaired == nil && len(open) > 0 {
		last := open[len(open)-1]
		unpaired = errorAt(text, last.at, fmt.Sprintf("%q is not closed", last.text))
	}
	return string(b), unpaired
}

// endOfQuote returns the offset of the last byte of the quoted text that begins at i. If the closing quote is missing, the offset is beyond the text.
func endOfQuote(text string, i int) int {
	quote := text[i]
	for i++; i < len(text) && text[i] != quote; i++ {
		if text[i] == '\\' && quote != '`' {
			i++
		}
	}
	return i
}

// endOfComment returns the offset of the last byte of the comment that begins at i. If the comment does not end, the offset is beyond the text. If
// no comment begins at i, endOfComment returns i.
func endOfComment(text string, i int) int {
	for begin, end := range map[string]string{"//": "\n", "/*": "*/"} {
		if !strings.HasPrefix(text[i:], begin) {
			continue
		}
		length := strings.Index(text[i+len(begin):], end)
		if length < 0 {
			return len(text)
		}
		return i + len(begin) + length + len(end) - 1
	}
	return i
}

// unpairedAt returns the error for the closing bracket at i, which does not match `last`, the last open bracket. If none is open, `last` is zero.
func unpairedAt(text string, i int, last bracket) *SyntaxError {
	if last.text == "" {
		return errorAt(text, i, fmt.Sprintf("%q closes nothing", text[i:i+1]))
	}
	from := errorAt(text, last.at, "")
	return errorAt(text, i, fmt.Sprintf("expected %q before %q, to close the %q at %d:%d", closing[last.text], text[i:i+1], last.text, from.Line, from.Column))
}

// errorAt returns an error with the line and column of an offset in the text.
func errorAt(text string, offset int, message string) *SyntaxError {
	before := text[:offset]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return &SyntaxError{strings.Count(before, "\n") + 1, len([]rune(line)) + 1, message}
}
