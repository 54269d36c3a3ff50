package yaml

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn/definition"
)

// A mistake is a common reason for which a line is no YAML.
type mistake struct {
	// said is a part of the message of the parser. Empty: any.
	said string
	// above: the line is where it should not be, so that the path is that of the line before.
	above bool
	// line matches the line; the first group is where the mistake begins. Nil: any line, and the place of the parser.
	line *regexp.Regexp
	// message says what to do, given the text from the first group on and what the parser said.
	message func(rest string, le *yaml.LoadError) (message, suggestion string)
}

const before = `^(?:[^#"']*?(?::|-|,|\[)[ ]+)` // what stands in a line before a plain value

var mistakes = []mistake{
	{"", true, regexp.MustCompile(`^ *(\t)`), says("the line is indented by a tab; YAML is indented by spaces")},
	{"", false, regexp.MustCompile(before + `(\{\{.*)`), func(rest string, _ *yaml.LoadError) (string, string) { return quoted("begins with {{", rest) }},
	{"mapping values are not allowed", false, regexp.MustCompile(before + `([^ "'{\[|>&*!%@#].*: .*)`),
		func(rest string, _ *yaml.LoadError) (string, string) {
			return quoted("contains a colon and a space", rest)
		}},
	{"mapping values are not allowed", true, nil, says("no key can stand here: check the indentation of the line and of the one before it")},
	{"cannot start any token", false, regexp.MustCompile(before + "([%@`].*)"), func(rest string, _ *yaml.LoadError) (string, string) {
		return quoted("begins with "+rest[:1], rest)
	}},
	{"unknown anchor", false, regexp.MustCompile(before + `(\*.*)`), func(rest string, _ *yaml.LoadError) (string, string) {
		message, suggestion := quoted("begins with *", rest)
		return message + "; without quotes it is an alias, and there is no anchor of this name", suggestion
	}},
	{"unexpected end of stream while scanning a quoted scalar", false, nil, func(_ string, le *yaml.LoadError) (string, string) {
		return fmt.Sprintf("the text that begins in line %d has no closing quote", le.ContextMark.Line), ""
	}},
	{"expected '-' indicator", true, nil, says("the line is indented neither as the items of the list before it nor as a member of the last item")},
	{"expected key while parsing a block mapping", false, nil, says("expected a key: check the indentation, and that a value ends where its quotes or brackets do")},
	{"expected ',' or '}'", false, nil, func(_ string, le *yaml.LoadError) (string, string) {
		return fmt.Sprintf("expected a comma or a }; the { stands in line %d, column %d", le.ContextMark.Line, le.ContextMark.Column), ""
	}},
	{"expected ',' or ']'", false, nil, func(_ string, le *yaml.LoadError) (string, string) {
		return fmt.Sprintf("expected a comma or a ]; the [ stands in line %d, column %d", le.ContextMark.Line, le.ContextMark.Column), ""
	}},
}

func says(message string) func(string, *yaml.LoadError) (string, string) {
	return func(string, *yaml.LoadError) (string, string) { return message, "" }
}

// quoted says that a value must stand in quotes, and how it looks then.
func quoted(reason, value string) (message, suggestion string) {
	value = strings.TrimRight(value, " ,\r\n")
	if suggestion = "'" + value + "'"; strings.Contains(value, "'") {
		suggestion = fmt.Sprintf("%q", value)
	}
	message = fmt.Sprintf("a value that %s must be in quotes: %.80s", reason, suggestion)
	if len(suggestion) > longest {
		suggestion = ""
	}
	return message, suggestion
}

const longest = 256 // of a suggestion

// valueOf cuts from the rest of a line what follows a value in a list or a mapping in brackets, given what stands before the value.
func valueOf(before, rest string) string {
	if strings.Count(before, "[")+strings.Count(before, "{") <= strings.Count(before, "]")+strings.Count(before, "}") {
		return rest // it ends with the line
	}
	depth := 0 // of brackets inside the value
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

// explain puts a message for people, the place of the mistake, and its path into a problem of syntax.
func (l *lines) explain(p *definition.Problem, le *yaml.LoadError) {
	line := min(p.Position.Line, len(l.begins)) // the parser may point behind the text
	text, _, _ := strings.Cut(l.text[l.begins[line-1]:], "\n")
	for _, m := range mistakes {
		if !strings.Contains(le.Message+" "+le.ContextMsg, m.said) {
			continue
		}
		rest := ""
		if m.line != nil {
			at := m.line.FindStringSubmatchIndex(text)
			if at == nil {
				continue
			}
			rest = valueOf(text[:at[2]], text[at[2]:])
			p.Position = l.at(line, utf8.RuneCountInString(text[:at[2]])+1)
		}
		p.Message, p.Suggestion = m.message(rest, le)
		if m.above {
			line--
		}
		break
	}
	p.Path = l.pathAt(line)
}

// level is a key or an item on the way to a line, by indentation.
type level struct {
	indent int
	key    string // "" for an item
	item   int
}

var blockKey = regexp.MustCompile(`^([A-Za-z_$][A-Za-z0-9_$]*):(?: |$)`)

// pathAt returns the path of the innermost value in block style that is begun in a line or before it, as far as indentation tells.
func (l *lines) pathAt(line int) string {
	var path []level
	for n := range line {
		text, _, _ := strings.Cut(l.text[l.begins[n]:], "\n")
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

// enter pops the levels indented at least as far as next, and pushes next. A list may be indented as its key is.
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
