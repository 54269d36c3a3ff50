package yaml

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn/definition"
)

// A mistake is a common reason why a text is not YAML. The method `explain` recognizes it by the parser's message and by
// the text.
type mistake struct {
	// The field said is a part of the parser's message. If it is empty, any message matches.
	said string
	// The field at says where to look for the mistake: at the place of the error, at the beginning of the broken value, or
	// in the line before the error.
	at origin
	// The field above is true if the whole line is misplaced. The problem then gets the path of the preceding line.
	above bool
	// The pattern line must match the text of the line; the mistake begins where the group of the pattern matches. If line is nil, any
	// line matches.
	line *regexp.Regexp
	// The pattern before must match the part of the line before the mistake. If before is nil, any text matches.
	before *regexp.Regexp
	// If inText is true, the line must follow a text in block style, and must be indented too little to belong to this text.
	inText bool
	// message says what to do.
	message func(f found) (message, suggestion string)
}

type origin uint8

const (
	atError origin = iota
	atBegin
	atPrevious
)

// The type found is a mistake that was found in a text.
type found struct {
	// The field rest is the value with the mistake, as valueOf returns it. It is "?" if the value is empty. If the mistake has a pattern
	// (mistake.line), the value begins where the group of the pattern matches. Otherwise it begins at the place that mistake.at selects.
	rest   string
	header int // if mistake.inText is true: the number of the line with the | or > that begins the text in block style
	le     *yaml.LoadError
}

const before = `^(?:[^#"']*?(?::|-|,|\[)[ ]+)` // the part of a line before a plain value

const noKey = "mapping values are not allowed"

// mistakes are in the order in which `explain` looks for them. It reports the first mistake that it finds in the text.
var mistakes = []mistake{
	{line: regexp.MustCompile(`^ *(\t)`), above: true, message: says("the line is indented by a tab; YAML is indented by spaces")},
	{line: regexp.MustCompile(before + `(\{\{.*)`), message: quotedAs("begins with {{")},
	{said: "expected ':'", at: atBegin, inText: true, above: true, message: belongsToText},
	{said: "expected", inText: true, above: true, message: belongsToText},
	{said: "expected ':'", at: atBegin, message: says("a line among keys has a colon and a space behind its key; the further lines of a text are indented deeper than its key")},
	{said: noKey, line: regexp.MustCompile(before + `([^ "'{\[|>&*!%@#].*: .*)`), message: quotedAs("contains a colon and a space")},
	{said: noKey, at: atPrevious, line: regexp.MustCompile(`^[ -]*([A-Za-z_$][A-Za-z0-9_$]*:[^\s/].*)`), message: func(f found) (string, string) {
		key, value, _ := strings.Cut(strings.TrimRight(f.rest, "\r"), ":")
		return fmt.Sprintf("a colon and a space separate a key from its value: %.80s", key+": "+value), short(key + ": " + value)
	}},
	{said: noKey, above: true, message: says("no key can stand here: indent the line as the key in the line before it, or begin that line with a dash if it is an item of a list")},
	{said: "cannot start any token", line: regexp.MustCompile(before + "([%@`].*)"), message: func(f found) (string, string) {
		return quoted("begins with "+f.rest[:1], f.rest)
	}},
	{said: "cannot start any token", message: func(f found) (string, string) {
		return fmt.Sprintf("no value begins with %.1q; put it in quotes", f.rest), ""
	}},
	{said: "unknown anchor", line: regexp.MustCompile(before + `(\*.*)`), message: func(f found) (string, string) {
		message, suggestion := quoted("begins with *", f.rest)
		return message + "; without quotes it is an alias, and there is no anchor of this name", suggestion
	}},
	{said: "unknown anchor", message: says("an * begins an alias, and there is no anchor of this name; put the value in quotes")},
	{said: "while scanning an a", at: atBegin, message: func(f found) (string, string) { return quoted("begins with "+f.rest[:1], f.rest) }},
	{said: "tag", line: regexp.MustCompile(before + `(!.*)`), message: func(f found) (string, string) {
		message, suggestion := quoted("begins with !", f.rest)
		return message + "; without quotes it is a tag, and tags are not allowed", suggestion
	}},
	{said: "directive", message: says("a line that begins with % is a directive, and directives are not allowed")},
	{said: "unexpected end of stream while scanning a quoted scalar", at: atBegin, message: noQuote},
	{said: "unexpected document indicator", at: atBegin, message: noQuote},
	{said: "unknown escape character", message: noEscape},
	{said: "expected hexadecimal number", message: noEscape},
	{said: "invalid Unicode character escape code", message: noEscape},
	{said: "block sequence entries are not allowed", message: says("a list cannot begin behind a key: begin each item in a line of its own, write the list in brackets, or put the value in quotes")},
	{said: "mapping keys are not allowed", message: func(f found) (string, string) { return quoted("begins with ? and a space", f.rest) }},
	{said: "indentation indicator equal to 0", message: says("a number behind | or > is how deep the text is indented, from 1 on; leave it out")},
	{said: "expected comment or line break while scanning a block scalar", at: atBegin, message: func(f found) (string, string) {
		return fmt.Sprintf("the text of %.1s begins in the next line, indented deeper; a value that begins with %.1s must be in quotes", f.rest, f.rest), ""
	}},
	{said: "comment without preceding whitespace", message: says("a space is missing before the # of a comment; a # that belongs to the value stands in quotes with it")},
	{said: "expected '-' indicator", above: true, line: regexp.MustCompile(`^ *(- .*|-\r?$)`), message: func(f found) (string, string) {
		return fmt.Sprintf("the item is not indented as the others of its list: %s, as in line %d", spaces(f.le.ContextMark.Column-1), f.le.ContextMark.Line), ""
	}},
	{said: "expected '-' indicator", above: true, message: func(f found) (string, string) {
		at := f.le.ContextMark
		return fmt.Sprintf("the line belongs to no item of the list that begins in line %d: indent it by %s to be a member of the last item", at.Line, spaces(at.Column+1)), ""
	}},
	{said: "expected key while", before: regexp.MustCompile(`'$`), message: says("a quote in a text in single quotes is written twice: ''")},
	{said: "expected key while", before: regexp.MustCompile(`"$`), message: says(`a quote in a text in double quotes is written \"`)},
	{said: "expected key while", before: regexp.MustCompile(`["'] +$`), message: says("text follows the closing quote of the value: put all of it in quotes")},
	{said: "expected key while", before: regexp.MustCompile(`[\]}] *$`), message: says("text follows the closing bracket of the value: put all of it in quotes")},
	{said: "expected key while", message: func(f found) (string, string) {
		at := f.le.ContextMark
		if strings.HasPrefix(f.rest, "- ") {
			return "an item of a list cannot stand here: indent it at least as far as the key of its list", ""
		}
		return fmt.Sprintf("expected a key that is indented as others are: by %s as the keys from line %d on, or as the keys of an object within", spaces(at.Column-1), at.Line), ""
	}},
	{said: "expected ',' or '}'", message: func(f found) (string, string) {
		return fmt.Sprintf("expected a comma or a }; the { stands in line %d, column %d", f.le.ContextMark.Line, f.le.ContextMark.Column), ""
	}},
	{said: "expected ',' or ']'", message: func(f found) (string, string) {
		return fmt.Sprintf("expected a comma or a ]; the [ stands in line %d, column %d", f.le.ContextMark.Line, f.le.ContextMark.Column), ""
	}},
	{said: "expected node content while parsing a flow node", message: says("expected a value: a comma is too many here, or a bracket is not closed")},
	{said: "expected node content", message: func(f found) (string, string) { return quoted(fmt.Sprintf("begins with %.1s", f.rest), f.rest) }},
	{said: "expected <document start>", above: true, message: says("the document has ended before this line: indent it as the lines before it, or delete it")},
	{said: "after document-end marker", message: says("the document ends with ...; delete what follows")},
}

func says(message string) func(found) (string, string) {
	return func(found) (string, string) { return message, "" }
}

func quotedAs(reason string) func(found) (string, string) {
	return func(f found) (string, string) { return quoted(reason, f.rest) }
}

func belongsToText(f found) (string, string) {
	return fmt.Sprintf("the line is indented too little for the text that begins after line %d: indent it deeper than the key there, or write a colon and a space behind it if it is a key", f.header), ""
}

func noQuote(found) (string, string) { return "the text that begins here has no closing quote", "" }

func noEscape(found) (string, string) {
	return `a backslash in double quotes begins an escape sequence, and this is none: write \\, or put the text in single quotes`, ""
}

// The function `spaces` returns a phrase such as "2 spaces".
func spaces(n int) string {
	switch n {
	case 0:
		return "no spaces"
	case 1:
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// The function `quoted` returns the message that a value must be in quotes, and suggests the quoted value.
func quoted(reason, value string) (message, suggestion string) {
	value = strings.TrimRight(value, " ,\r\n")
	if suggestion = "'" + value + "'"; strings.Contains(value, "'") {
		suggestion = fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf("a value that %s must be in quotes: %.80s", reason, suggestion), short(suggestion)
}

// The function `short` returns the suggestion, or "" if the suggestion is longer than 256 bytes.
func short(suggestion string) string {
	const longest = 256
	if len(suggestion) > longest {
		return ""
	}
	return suggestion
}

// valueOf returns the value at the beginning of the text "rest". The parameter "before" is the part of the line before the value. If the value is
// within brackets, it ends at a comma or a closing bracket. Otherwise it ends with the line.
func valueOf(before, rest string) string {
	if strings.Count(before, "[")+strings.Count(before, "{") <= strings.Count(before, "]")+strings.Count(before, "}") {
		return rest // the value ends with the line
	}
	depth := 0 // the depth of brackets inside the value
	for i, c := range rest {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return rest[:i]
			}
		case ',':
			if depth == 0 {
				return rest[:i]
			}
		}
	}
	return rest
}

// The method `explain` sets the path of a problem. If it recognizes a mistake, it also sets the problem's message, suggestion and place. Otherwise
// it adds an introduction to the parser's message.
func (l *lines) explain(p *definition.Problem, le *yaml.LoadError) {
	p.Message = "the text is not YAML from here on: " + p.Message
	line := min(p.Position.Line, len(l.begins)) // at most the last line, since the parser may point past the text
	for _, m := range mistakes {
		if !strings.Contains(le.Message+" "+le.ContextMsg, m.said) {
			continue
		}
		f, at, ok := l.find(&m, le)
		if !ok {
			continue
		}
		p.Position = at
		line = min(at.Line, len(l.begins))
		p.Message, p.Suggestion = m.message(f)
		if m.above {
			line--
		}
		break
	}
	p.Path = l.pathAt(line)
}

// The method `find` looks for a mistake at the place that m.at says. If the mistake is there, find returns the position at which it begins.
func (l *lines) find(m *mistake, le *yaml.LoadError) (f found, at definition.Position, ok bool) {
	f.le = le
	line, column := le.Mark.Line, le.Mark.Column
	switch {
	case m.at == atBegin && le.ContextMark.Line > 0:
		line, column = le.ContextMark.Line, le.ContextMark.Column
	case m.at == atPrevious:
		line, column = l.previous(min(line, len(l.begins))), 1
	}
	if line < 1 {
		return f, at, false
	}
	at = l.at(line, column)
	text := l.line(min(line, len(l.begins)))
	begins := min(at.Offset-l.begins[min(line, len(l.begins))-1], len(text))
	if m.before != nil && (begins < 0 || !m.before.MatchString(text[:begins])) {
		return f, at, false
	}
	if m.inText {
		if f.header = l.header(min(line, len(l.begins))); f.header == 0 {
			return f, at, false
		}
	}
	if m.line != nil {
		group := m.line.FindStringSubmatchIndex(text)
		if group == nil {
			return f, at, false
		}
		begins = group[2]
		at = l.at(line, utf8.RuneCountInString(text[:begins])+1)
	}
	if f.rest = valueOf(text[:max(begins, 0)], text[max(begins, 0):]); f.rest == "" {
		f.rest = "?" // the value is empty
	}
	return f, at, true
}

// The method `line` returns a line without its line break. Lines count from 1.
func (l *lines) line(n int) string {
	text, _, _ := strings.Cut(l.text[l.begins[n-1]:], "\n")
	return text
}

// The method `previous` skips empty lines and comments, and returns the number of the nearest other line above the given line. It returns 0 if there
// is no such line.
func (l *lines) previous(line int) int {
	for line--; line > 0; line-- {
		if text := strings.TrimSpace(l.line(line)); text != "" && text[0] != '#' {
			return line
		}
	}
	return 0
}

var textHeader = regexp.MustCompile(`(?:^|[:-] )[ ]*[|>][-+0-9]*[ ]*(?:#.*)?$`)

// The method `header` looks above the given line for a text in block style that the author may have wanted to continue in this line. It returns the
// number of the line with the | or > that begins this text, or 0 if there is no such text. Every line between these two lines is empty, or is a
// comment, or is indented deeper than the given line.
func (l *lines) header(line int) int {
	indent := func(text string) int { return len(text) - len(strings.TrimLeft(text, " ")) }
	own := indent(l.line(line))
	if n := l.previous(line); n > 0 && textHeader.MatchString(strings.TrimRight(l.line(n), " \r")) {
		return n // line is the first line of the text
	}
	for n := line - 1; n > 0; n-- {
		text := strings.TrimRight(l.line(n), " \r")
		if text == "" || indent(text) > own {
			continue
		}
		if textHeader.MatchString(text) {
			return n
		}
		return 0
	}
	return 0
}

// A level is a key or an item on the path to a line, found by indentation.
type level struct {
	indent int
	key    string // "" for an item
	item   int
}

var blockKey = regexp.MustCompile(`^([A-Za-z_$][A-Za-z0-9_$]*):(?: |$)`)

// pathAt returns the path of the last key or item in block style that begins in the line or above it. It finds the path by indentation alone.
func (l *lines) pathAt(line int) string {
	var path []level
	for n := range line {
		text := l.line(n + 1)
		indent := 0
		for {
			trimmed := strings.TrimLeft(text, " \t")
			indent += len(text) - len(trimmed)
			text = trimmed
			if text != "-" && !strings.HasPrefix(text, "- ") {
				break
			}
			path = enter(path, level{indent: indent, item: -1})
			indent, text = indent+1, text[1:]
		}
		if key := blockKey.FindStringSubmatch(text); key != nil {
			path = enter(path, level{indent: indent, key: key[1]})
		}
	}
	var b strings.Builder
	b.WriteByte('$')
	for _, x := range path {
		if x.key != "" {
			b.WriteString("." + x.key)
		} else {
			fmt.Fprintf(&b, "[%d]", x.item)
		}
	}
	return b.String()
}

// enter pops the levels that are indented at least as far as the level "next", and then pushes "next". It does not pop a key with the same
// indentation as the item "next", because a list may be indented like its key.
func enter(path []level, next level) []level {
	for len(path) > 0 {
		last := path[len(path)-1]
		if last.indent < next.indent || last.indent == next.indent && last.key != "" && next.key == "" {
			break
		}
		path = path[:len(path)-1]
		if last.indent == next.indent && last.key == "" && next.key == "" {
			next.item = last.item
			break
		}
	}
	if next.key == "" {
		next.item++
	}
	return append(path, next)
}
