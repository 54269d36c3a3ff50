package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// A saying replaces a library's message about a text. The regular expression `said` matches the message. The text `says` is the replacement; in it,
// $1 and $2 stand for the groups of `said`. The text of the first group that is not empty also occurs in the template or program, at the mistake.
type saying struct {
	said *regexp.Regexp
	says string
}

func said(pattern, says string) saying {
	return saying{regexp.MustCompile(`^(?:` + pattern + `)`), says}
}

// say returns the replacement for a message, and the text of the saying's first group that is not empty. If no saying matches, the replacement is
// the text `otherwise`, a colon and the first 200 characters of the message.
func say(sayings []saying, otherwise, message string) (text, subject string) {
	for _, s := range sayings {
		found := s.said.FindStringSubmatch(message)
		if found == nil {
			continue
		}
		text = s.says
		for i, group := range found[1:] {
			text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i+1), group)
		}
		for _, group := range found[1:] {
			subject = cmp.Or(subject, group)
		}
		return text, subject
	}
	return fmt.Sprintf("%s: %.200s", otherwise, message), ""
}

const (
	noTemplate = "the template cannot be read"
	noProgram  = "the program cannot be read"
)

// The text `arguments` is a hint on how to call a function in a template.
const arguments = `a function has its arguments behind it, with spaces between: {{input "name"}}`

// The text `operators` is a hint on what templates have instead of operators.
const operators = "a template has no operators; {{eq a b}}, {{ne a b}}, {{lt a b}}, {{and a b}} and {{or a b}} compare and join"

// templateSayings replace the messages of package text/template/parse.
var templateSayings = []saying{
	said(`unclosed action|unexpected "(\})" in `, "braces that begin with {{ end with }}"),
	said(`unclosed comment|comment ends before closing delimiter`, "a comment ends with */}}"),
	said(`unclosed left paren`, "a ( is not closed before the }}"),
	said(`unexpected right paren`, "a ) closes nothing"),
	said(`missing value for parenthesized`, "the parentheses hold nothing"),
	said(`unexpected .* in (?:template|define|block) clause`, "{{define}}, {{template}} and {{block}} are followed by a name in double quotes"),
	said(`unexpected .* in (?:else|end|\{\{break\}\}|\{\{continue\}\})`, "{{else}}, {{end}}, {{break}} and {{continue}} stand alone in their braces"),
	said(`unexpected "(=)" in |expected :=`, "{{$x := ...}} sets a variable, and {{eq a b}} compares"),
	said(`unexpected "([-+*/%<>!&?:|])" in |(?:unrecognized|bad) character(?: in action:)? U\+[0-9A-F]+ '([-+*/%<>!&?|])'|illegal number syntax: "[-+]"`, operators),
	said(`(?:unrecognized|bad) character(?: in action:)? U\+[0-9A-F]+ '(.+)'`, `unexpected "$1"; a text is in double quotes or in backquotes`),
	said(`(?:unrecognized|bad) character(?: in action:)? U\+[0-9A-F]+`, "a character that cannot be seen stands in the braces; delete it"),
	said(`unterminated character constant|malformed character constant: (.+)`, "a text is in double quotes or in backquotes, and not in single quotes"),
	said(`bad number syntax: "-[A-Za-z]`, "a - before a word is not a number; {{- with a space behind it removes the space before the braces"),
	said(`bad number syntax|illegal number syntax|integer overflow`, "a number is malformed or too large; a text is in double quotes"),
	said(`unterminated (?:raw )?quoted string`, "the quoted text has no closing quote"),
	said(`invalid syntax`, `a quoted text has no such escape sequence; a backslash is \\, and a text in backquotes has none`),
	said(`unexpected EOF`, "an {{if}}, {{range}}, {{with}}, {{define}} or {{block}} has no {{end}}"),
	said(`unexpected \{\{(end|else|break|continue)`, "this {{$1}} belongs to no {{if}}, {{range}} or {{with}}; delete it, or write what it belongs to"),
	said(`\{\{(break|continue)\}\} outside \{\{range\}\}`, "{{$1}} stands in a {{range}} only"),
	said(`expected end; found `, "an {{else}} is followed by an {{end}}"),
	said(`missing value for command`, "a value is missing between the braces; {{`{{`}} puts braces into the text"),
	said(`missing value for (\w+)`, `{{$1}} needs a value, as in {{$1 param "name"}}`),
	said(`non executable command in pipeline`, "a | is followed by a function, which is given what stands before it"),
	said(`range can only initialize variables|too many declarations in`, "a {{range}} sets two variables at most: {{range $key, $value := ...}}"),
	said(`unexpected \. after term`, `a text, a number and a dot have no members; the members of what a function returns follow brackets: {{(param "name").member}}`),
	said(`undefined variable "(.*)"`, `there is no variable $1; {{$1 := ...}} sets it before, and the output of a node is {{param "name"}}`),
	said(`max expression depth exceeded`, "too many parentheses stand in one another"),
	said(`template: multiple definition of template "(.*)"`, "the template $1 is defined twice; give one of them another name"),
	said(`unexpected <(\w+)> in `, "{{$1}} begins braces of its own"),
	said(`unexpected "(.*)" in `, `unexpected "$1"; `+arguments),
}

// templateError matches an error of package text/template/parse. Its groups are the number of the line and the message.
var templateError = regexp.MustCompile(`^template: [^:]*:(\d+): (?s:(.*))$`)

// programSayings replace gojq's messages about programs that do not compile.
var programSayings = []saying{
	said(`function not defined: ([^/]+)/(\d+)`, "there is no function $1/$2: a function called $1 with as many arguments"),
	said(`variable not defined: (.+)`, "there is no variable $1; ... as $1 | sets it"),
	said(`(?:cannot load module|module not found): (.+)`, "there is no module $1: a program stands on its own"),
	said(`missing query`, "the program is empty; . is its input"),
	said(`label not defined: (.+)`, "there is no label $1; label $1 | sets it before the break"),
}

// programError describes an error of gojq. The result `at` is the offset of the error in the program, or -1 if the offset is unknown.
func programError(query string, err error) (message string, at int) {
	var bad *gojq.ParseError
	switch {
	case errors.Is(err, errLongProgram):
		return err.Error(), 0
	case !errors.As(err, &bad):
		message, subject := say(programSayings, noProgram, err.Error())
		if at = -1; subject != "" {
			at = strings.Index(query, subject)
		}
		return message, at
	}
	at = max(bad.Offset-len(bad.Token), 0)
	switch text := bad.Error(); {
	case bad.Token == "":
		message = "the program ends too early: a bracket or a quote is not closed, or an operand is missing"
	case strings.HasPrefix(text, "unterminated string"):
		message = "the quoted text has no closing quote"
	case strings.HasPrefix(text, "invalid escape sequence"):
		message = fmt.Sprintf(`a text in quotes has no escape sequence %s; a backslash is \\`, bad.Token)
	case bad.Token == "'":
		message = "a text is in double quotes, and not in single quotes"
	case bad.Token == "=" || bad.Token == "!" || bad.Token == "&" || bad.Token == "&&" || bad.Token == "||":
		message = fmt.Sprintf("unexpected %q; == and != compare, and, or and not join", bad.Token)
	default:
		message = fmt.Sprintf("unexpected %q: an operator such as | is missing before it, or an operand", bad.Token)
	}
	return message, at
}

// templateNames lists the names of all functions of templates, including the functions of package text/template.
var templateNames = func() []string {
	names := []string{
		"and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "print", "printf", "println", "slice", "urlquery",
	}
	for name := range templateFunctions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// foreignNames maps names to messages. Templates do not have these names; most of them exist in expressions. The message says what to write instead,
// or that only expressions have the name.
var foreignNames = map[string]string{
	"nodes":   `the output of a node comes by an edge with a param, and is {{param "name"}}; {{status "id"}} and {{error "id"}} are the status and the error of an ancestor`,
	"inputs":  `an input is {{input "name"}}`,
	"params":  `a parameter is {{param "name"}}`,
	"trigger": "only expressions see the payload of a trigger",
	"config":  "only expressions see the config of a node",
	"item":    `the item of a map is {{param "item"}} in its node, and {{input "item"}} in a node of its graph`,
	"env":     "the environment of the process is not part of a run; give the value as an input",
}
