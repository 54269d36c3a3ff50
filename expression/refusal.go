package expression

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// A saying replaces each message of the parser that matches the pattern `said` by the message `says`. In `says`, $1 stands for the text that
// the first group of the pattern matches.
type saying struct {
	said *regexp.Regexp
	says string
}

func said(pattern, says string) saying {
	return saying{regexp.MustCompile(`^(?:` + pattern + `)`), says}
}

// The variable `sayings` covers the known messages of the parser except one: the method `unexpected` handles the message about an unexpected token.
var sayings = []saying{
	said(`unexpected end of expression|unexpected token EOF`, "unexpected end of the text; an operand or a name is missing"),
	said(`literal not terminated`, "the quoted text has no closing quote"),
	said(`unclosed comment`, "the comment has no end; write */"),
	said(`invalid char escape|unable to unescape`, "a quoted text has no such escape sequence; a backslash is \\\\, and a text in backquotes has none"),
	said(`bad number syntax: ("(?:[^"\\]|\\.)*")`, "malformed number $1; a name begins with a letter, and a text is in quotes"),
	said(`invalid (?:integer|hex|binary|octal) literal|integer literal is too large`, "the number is beyond the integers of 64 bits; write it with a point or as a text"),
	said(`invalid float literal|float literal is too large`, "the number is beyond the floating-point numbers of 64 bits; write it as a text"),
	said(`unrecognized character: U\+[0-9A-F]+ '(.+)'`, `unexpected "$1"; a text is in quotes`),
	said(`unrecognized character: (U\+[0-9A-F]+)`, `unexpected $1, which cannot be seen; delete it, or put it in quotes`),
	said(`expected at least \d+ arguments|wrap predicate with brackets`, noPredicates),
	said(`expected name`, `a dot is followed by a name; a member by its position or by another key stands in brackets, as in [0] or ["a key"]`),
	said(`a map key must be`, "expected a key of a map, which is a name, a number, a text in quotes, or an expression in parentheses"),
	said(`compilation failed: expression exceeds maximum allowed nodes`, "the text has too many parts; take it apart into several nodes"),
}

const noPredicates = "functions that evaluate an expression for each member are not supported; a node with a map performs a graph for each item"

// The pattern `token` matches the parser's message about an unexpected token. Its groups are the token's kind and the token's text.
var token = regexp.MustCompile(`^unexpected token (\w+)\("((?:[^"\\]|\\.)*)"\)`)

// The function `refusal` returns the error for a text that the parser rejected with the error `refused`. If a bracket without a partner is at that
// error's place or before it, refusal returns `unpaired`, the error about the bracket. Otherwise it replaces the parser's message in `refused` by a
// message of this package. If this package does not know the parser's message, refusal only puts a phrase before that message.
func refusal(text string, unpaired, refused *SyntaxError) *SyntaxError {
	if unpaired != nil && (unpaired.Line < refused.Line || unpaired.Line == refused.Line && unpaired.Column <= refused.Column) {
		return unpaired
	}
	if refused.isForeign(text) || refused.isUnfinished(text) {
		return refused
	}
	if found := token.FindStringSubmatch(refused.Message); found != nil {
		refused.Message = refused.unexpected(text, found[1], found[2])
		return refused
	}
	for _, s := range sayings {
		if found := s.said.FindStringSubmatch(refused.Message); found != nil {
			refused.Message = s.says
			if len(found) > 1 {
				refused.Message = strings.ReplaceAll(s.says, "$1", found[1])
			}
			return refused
		}
	}
	refused.Message = fmt.Sprintf("the text cannot be read from here on: %.200s", refused.Message)
	return refused
}

// The method `unexpected` returns the message for an unexpected token. If possible, the message says what is missing or what to write instead.
func (e *SyntaxError) unexpected(text, kind, name string) string {
	before, _ := e.around(text)
	switch {
	case name == ")" && e.follows(text, "}}"):
		name, before = "}}", strings.TrimSuffix(before, "}")
	case name == "(" && e.follows(text, "{{"):
		name = "{{"
	}
	operand := afterOperand(before)
	isWord := kind == "Identifier" || kind == "Number" || kind == "String" || kind == "Bytes"
	mend := ""
	switch {
	case strings.HasPrefix(name, ".") && operand:
		mend = "; a member by its position stands in brackets, as in [0]"
	case isWord && before != "" && strings.ContainsRune(`"'`, rune(before[len(before)-1])):
		mend = fmt.Sprintf(`; a quote in a quoted text is written \%s`, before[len(before)-1:])
	case isWord && operand, operand && strings.ContainsAny(name, "([{"):
		mend = "; an operator such as == or && is missing before it"
	case name == "," && operand:
		mend = "; a comma separates arguments and the items of a list, and && joins conditions"
	case name == ":" && operand:
		mend = "; the branches of a condition are a ? b : c"
	case name == "!" && operand:
		mend = "; it stands before what it negates"
	case !isWord && !operand:
		mend = "; an operand is missing before it"
	case isWord:
		mend = "; check what stands before it"
	}
	return fmt.Sprintf(`unexpected "%s"%s`, name, mend)
}

// The method `around` splits the text at the error's place.
func (e *SyntaxError) around(text string) (before, after string) {
	lines := strings.SplitAfter(text, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return text, ""
	}
	line := []rune(lines[e.Line-1])
	at := min(max(e.Column-1, 0), len(line))
	return strings.Join(lines[:e.Line-1], "") + string(line[:at]), string(line[at:])
}

// isUnfinished reports whether the text has a single bar instead of "||", or a question mark without a second branch. If so, isUnfinished changes the
// error to describe that operator.
func (e *SyntaxError) isUnfinished(text string) bool {
	before, after := e.around(text)
	word := strings.TrimLeftFunc(after, isWord)
	before += after[:len(after)-len(word)]
	bar := strings.LastIndexByte(before, '|')
	mark := strings.LastIndexByte(text, '?')
	switch {
	case bar > 0 && before[bar-1] != '|' && strings.Trim(before[bar+1:], " \t\r\n") != "" && strings.TrimLeftFunc(before[bar+1:], isWordOrSpace) == "":
		*e = *errorAt(text, bar, `unexpected "|"; did you mean "||"?`)
	case mark > 0 && text[mark-1] != '?' && strings.HasPrefix(e.Message, "unexpected token EOF") && afterOperand(text):
		*e = *errorAt(text, mark, "unexpected end of the text; the branches of a condition are a ? b : c")
	default:
		return false
	}
	return true
}

func isWordOrSpace(r rune) bool { return isWord(r) || unicode.IsSpace(r) }

// The method `follows` reports whether the two braces are at the error's place. This place may be the first or the second brace.
func (e *SyntaxError) follows(text, braces string) bool {
	lines := strings.Split(text, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return false
	}
	line := []rune(lines[e.Line-1])
	from, to := max(e.Column-2, 0), min(e.Column+1, len(line))
	return from < to && strings.Contains(string(line[from:to]), braces)
}
