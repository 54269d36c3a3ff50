package expression

import (
	"fmt"
	"regexp"
	"strings"
)

// bracket is a bracket of a text that is open.
type bracket struct {
	text string // "(", "[", "{" or "{{"
	at   int    // its offset in bytes
}

var closing = map[string]string{"(": ")", "[": "]", "{": "}", "{{": "}}"}

// unbrace turns double braces into parentheses of the same width, so that positions do not change. It does not change quoted text, nor
// braces that close two maps, one inside of the other. The error is that of the first bracket without its partner, or nil.
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
			if !strings.HasPrefix(text[i:], "{{") { // no key of a map begins with a brace
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

// endOfQuote returns the offset of the end of the quoted text that begins at i, or of the last byte.
func endOfQuote(text string, i int) int {
	quote := text[i]
	for i++; i < len(text) && text[i] != quote; i++ {
		if text[i] == '\\' && quote != '`' {
			i++
		}
	}
	return i
}

// endOfComment returns the offset of the last byte of the comment that begins at i, or i if none does.
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

// unpairedAt is the error for a bracket that closes another one than the last that is open.
func unpairedAt(text string, i int, last bracket) *SyntaxError {
	if last.text == "" {
		return errorAt(text, i, fmt.Sprintf("%q closes nothing", text[i:i+1]))
	}
	from := errorAt(text, last.at, "")
	return errorAt(text, i, fmt.Sprintf("expected %q before %q, to close the %q at %d:%d", closing[last.text], text[i:i+1], last.text, from.Line, from.Column))
}

// errorAt is an error at an offset.
func errorAt(text string, offset int, message string) *SyntaxError {
	before := text[:offset]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return &SyntaxError{strings.Count(before, "\n") + 1, len([]rune(line)) + 1, message}
}

// token is a token in an error of the parser.
var token = regexp.MustCompile(`unexpected token (?:EOF|\w+\(("(?:[^"\\]|\\.)*")\))`)

// refusal is the error for a text that the parser has refused at a place: the bracket without its partner, if that is there or before, else
// the error of the parser in words that name what stands in the text.
func refusal(text string, unpaired, refused *SyntaxError) *SyntaxError {
	if unpaired != nil && (unpaired.Line < refused.Line || unpaired.Line == refused.Line && unpaired.Column <= refused.Column) {
		return unpaired
	}
	if refused.isForeign(text) {
		return refused
	}
	refused.Message = token.ReplaceAllStringFunc(refused.Message, func(found string) string {
		name := token.FindStringSubmatch(found)[1]
		switch {
		case name == "":
			return "unexpected end of the text"
		case name == `")"` && refused.follows(text, "}}"):
			name = `"}}"`
		case name == `"("` && refused.follows(text, "{{"):
			name = `"{{"`
		}
		return "unexpected " + name
	})
	return refused
}

// follows reports whether the braces stand at the place of the error, which may be that of the second one.
func (e *SyntaxError) follows(text, braces string) bool {
	lines := strings.Split(text, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return false
	}
	line := []rune(lines[e.Line-1])
	from, to := max(e.Column-2, 0), min(e.Column+1, len(line))
	return from < to && strings.Contains(string(line[from:to]), braces)
}
