package definition

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/definition/internal/source"
)

// parser reads JSON, exactly as RFC 8259 defines it, into a tree. It stops at the first problem.
//
// Package encoding/json cannot be used here, because it replaces invalid Unicode, keeps the last of several equal keys, and does not
// report the places of values.
type parser struct {
	report
	limits Limits
	text   string
	pos    int
	values int
	cursor source.Cursor // at pos or before it
}

// parse returns the tree of a JSON text. The limits must be resolved.
func parse(data []byte, limits Limits) (*Value, error) {
	p := parser{limits: limits, text: string(data), cursor: source.Start}
	var root Value
	if offset, problem := source.Invalid(p.text); problem != "" {
		p.pos = offset
		p.fail(ErrEncoding, "%s", problem)
		return nil, p.result()
	}
	p.space()
	if p.value(&root, 1) {
		if p.space(); p.pos < len(p.text) {
			p.fail(ErrSyntax, "text follows the end of the document")
		}
	}
	return &root, p.result()
}

// The method `fail` reports a problem at the current position. It returns false.
func (p *parser) fail(kind ErrorKind, format string, args ...any) bool {
	p.stop(p.at(), kind, format, args...)
	return false
}

func (p *parser) at() Position {
	p.cursor.Advance(p.text, p.pos)
	return Position(p.cursor)
}

func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// The method `next` returns the byte at the current position, or 0 at the end. It also returns 0 for a NUL byte. The
// parser need not tell the two apart: each is a syntax error there, because JSON allows no NUL byte.
func (p *parser) next() byte {
	if p.pos == len(p.text) {
		return 0
	}
	return p.text[p.pos]
}

// The method `found` describes the text at the current position.
func (p *parser) found() string {
	if p.pos == len(p.text) {
		return "the end of the text"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	switch r {
	case '/', '#':
		return fmt.Sprintf("%q: JSON has no comments", r)
	case '\'':
		return fmt.Sprintf("%q: texts stand in double quotes", r)
	}
	return fmt.Sprintf("%q", r)
}

// The method `word` returns the letters at the current position, at most 60 bytes of them, or "" if no letter is there.
func (p *parser) word() string {
	rest := p.text[p.pos:]
	end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(rest)
	}
	return rest[:min(end, 60)]
}

// value parses a value. The parameter `depth` is 1 plus the number of lists and objects around the value.
func (p *parser) value(v *Value, depth int) bool {
	v.At = p.at()
	if p.values++; p.values > p.limits.Values {
		return p.fail(ErrLimit, "more than %d values", p.limits.Values)
	}
	switch c := p.next(); {
	case c == '{' || c == '[':
		if depth > p.limits.Depth {
			return p.fail(ErrLimit, "nested deeper than %d levels", p.limits.Depth)
		}
		if c == '{' {
			return p.object(v, depth)
		}
		return p.list(v, depth)
	case c == '"':
		v.Type = Text
		return p.string(&v.Text)
	case c == '-' || '0' <= c && c <= '9':
		n := numberLength(p.text[p.pos:])
		if n == 0 {
			return p.fail(ErrSyntax, "malformed number")
		}
		v.Type, v.Text = Number, p.text[p.pos:p.pos+n]
		p.pos += n
		return true
	}
	for _, word := range []struct {
		text string
		typ  Type
	}{{"null", Null}, {"true", Bool}, {"false", Bool}} {
		if strings.HasPrefix(p.text[p.pos:], word.text) {
			v.Type = word.typ
			if word.typ == Bool {
				v.Text = word.text
			}
			p.pos += len(word.text)
			return true
		}
	}
	if word := p.word(); word != "" {
		p.fail(ErrSyntax, "expected a value, got the word %s without quotes", word)
		if meant := cmp.Or(plainBool[strings.ToLower(word)], noValue[word]); meant != "" {
			p.err.Problems[len(p.err.Problems)-1].suggest(meant)
		}
		return false
	}
	return p.fail(ErrSyntax, "expected a value, got %s", p.found())
}

// noValue has the words that other languages use for null.
var noValue = map[string]string{"None": "null", "nil": "null", "undefined": "null", "NULL": "null", "Null": "null"}

func (p *parser) list(v *Value, depth int) bool {
	v.Type = List
	p.pos++
	p.space()
	for p.next() != ']' || len(v.Items) > 0 {
		if p.next() == ']' {
			return p.fail(ErrSyntax, "no comma may follow the last item of a list")
		}
		v.Items = append(v.Items, Value{})
		p.push("", len(v.Items)-1)
		if !p.value(&v.Items[len(v.Items)-1], depth+1) {
			return false
		}
		p.pop()
		if done, ok := p.comma(']'); done || !ok {
			return ok
		}
	}
	p.pos++
	return true
}

func (p *parser) object(v *Value, depth int) bool {
	v.Type = Object
	p.pos++
	p.space()
	for p.next() != '}' || len(v.Items) > 0 {
		item := Value{KeyAt: p.at()}
		if p.next() == '}' {
			return p.fail(ErrSyntax, "no comma may follow the last member of an object")
		}
		if p.next() != '"' {
			return p.fail(ErrSyntax, "expected a key in double quotes, got %s", p.found())
		}
		if !p.string(&item.Key) {
			return false
		}
		p.push(item.Key, -1)
		p.space()
		if p.next() != ':' {
			return p.fail(ErrSyntax, "expected a colon after the key, got %s", p.found())
		}
		p.pos++
		p.space()
		if !p.value(&item, depth+1) {
			return false
		}
		p.pop()
		v.Items = append(v.Items, item)
		if done, ok := p.comma('}'); done || !ok {
			return ok
		}
	}
	p.pos++
	return true
}

// The method `comma` parses what follows an item: a comma, or the end of the list or object.
func (p *parser) comma(end byte) (done, ok bool) {
	p.space()
	switch p.next() {
	case end:
		p.pos++
		return true, true
	case ',':
		p.pos++
		p.space()
		return false, true
	}
	return false, p.fail(ErrSyntax, "expected a comma or %q, got %s", end, p.found())
}

// The method `string` parses a text in quotes.
func (p *parser) string(to *string) bool {
	p.pos++
	start := p.pos
	for p.pos < len(p.text) && p.text[p.pos] != '"' && p.text[p.pos] != '\\' && p.text[p.pos] >= ' ' {
		p.pos++
	}
	if p.next() == '"' { // nothing to unescape, as in most texts
		*to = p.text[start:p.pos]
		p.pos++
		return true
	}
	b := []byte(p.text[start:p.pos])
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			*to = string(b)
			p.pos++
			return true
		case c < ' ':
			return p.fail(ErrSyntax, "%q must be escaped in a text", rune(c))
		case c != '\\':
			b = append(b, c)
			p.pos++
		default:
			r, ok := p.escape()
			if !ok {
				return false
			}
			b = utf8.AppendRune(b, r)
		}
	}
	return p.fail(ErrSyntax, "the text has no end")
}

// escape parses an escape sequence. It rejects half a surrogate pair.
func (p *parser) escape() (rune, bool) {
	if p.pos+1 < len(p.text) {
		if i := strings.IndexByte(`"\/bfnrt`, p.text[p.pos+1]); i >= 0 {
			p.pos += 2
			return rune("\"\\/\b\f\n\r\t"[i]), true
		}
	}
	r, ok := hex4(p.text[p.pos:])
	if !ok {
		return 0, p.fail(ErrSyntax, "malformed escape sequence")
	}
	if utf16.IsSurrogate(r) {
		low, _ := hex4(p.text[p.pos+6:])
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return 0, p.fail(ErrEncoding, "lone surrogate")
		}
		p.pos += 6
	}
	p.pos += 6
	return r, true
}

// hex4 reads an escape such as \u00e4.
func hex4(s string) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for i := 2; i < 6; i++ {
		c := s[i]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// numberLength returns the length of the JSON number at the beginning of s, or 0 if there is none.
func numberLength(s string) int {
	i := 0
	digits := func() bool {
		start := i
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
		return i > start
	}
	if strings.HasPrefix(s, "-") {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return 0
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}
