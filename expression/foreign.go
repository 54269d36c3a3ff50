package expression

import (
	"fmt"
	"strings"
	"unicode"
)

// The variable `foreign` maps operators and words of other languages to their equivalents in this language.
var foreign = map[string]string{
	"=": "==", "===": "==", ":=": "==", "!==": "!=", "<>": "!=", "=<": "<=", "=>": ">=", "≠": "!=", "≤": "<=", "≥": ">=", "&": "&&",
	"is": "==", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}

// foreignFunctions maps the lower-case name of another language's function to the function to call instead. The value is "" for a function that
// evaluates an expression for each member of a list, since this language has no such function.
var foreignFunctions = map[string]string{
	"length": "len", "size": "len", "count": "len", "includes": "contains", "has": "contains", "haskey": "contains", "hasprefix": "startsWith", "hassuffix": "endsWith",
	"tolower": "lower", "tolowercase": "lower", "toupper": "upper", "touppercase": "upper", "strip": "trim", "str": "string", "tostring": "string",
	"toint": "int", "parseint": "int", "tofloat": "float", "parsefloat": "float", "number": "float", "tonumber": "float", "defined": "exists", "isset": "exists",
	"all": "", "any": "", "none": "", "one": "", "filter": "", "map": "", "find": "", "reduce": "", "sortby": "", "groupby": "", "sum": "",
}

// The variable `own` has the words of this language that other languages, such as SQL, write in capitals.
var own = map[string]bool{"and": true, "or": true, "not": true, "in": true}

// isForeign reports whether an operator, a word or a quote of another language is at the error's place, or such a word is just before it. If so,
// isForeign changes the error to name what it has found, and what to write instead.
func (e *SyntaxError) isForeign(text string) bool {
	lines := strings.Split(text, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return false
	}
	line := []rune(lines[e.Line-1])
	at := e.Column - 1
	if at < 0 || at >= len(line) {
		return false
	}
	if strings.ContainsRune("“”„‘’«»", line[at]) {
		e.Message = fmt.Sprintf(`unexpected "%c"; a text is in "double" or 'single' quotes`, line[at])
		return true
	}
	before := at - 1
	for before >= 0 && unicode.IsSpace(line[before]) {
		before--
	}
	return e.names(line, at, foreignWord) || before >= 0 && before < at-1 && e.names(line, before, ownWord)
}

// The method `names` finds the operator or word at a place of the line, and passes it to the function `instead`. If `instead` returns a replacement,
// the method puts the word and the replacement into the error, and returns true.
func (e *SyntaxError) names(line []rune, at int, instead func(string) string) bool {
	of := unicode.IsLetter
	if isOperator(line[at]) {
		of = isOperator
	}
	from, to := at, at
	for from > 0 && of(line[from-1]) {
		from--
	}
	for to < len(line) && of(line[to]) {
		to++
	}
	if to > from && from > 0 && strings.ContainsRune(".$_", line[from-1]) { // part of a path
		return false
	}
	for word := string(line[from:to]); word != ""; word = word[:len(word)-1] {
		if meant := instead(word); meant != "" {
			e.Column, e.Message = from+1, fmt.Sprintf("unexpected %q; did you mean %q?", word, meant)
			return true
		}
		// A "-" or "!" at the end belongs to the next operand, so the loop looks up the operator without it.
		if !strings.HasSuffix(word, "-") && !strings.HasSuffix(word, "!") {
			return false
		}
	}
	return false
}

func isOperator(r rune) bool { return strings.ContainsRune("=!<>&|:≠≤≥+-*/%^~?", r) }

// foreignWord returns this language's equivalent of another language's operator or word, or "".
func foreignWord(word string) string {
	if meant := foreign[word]; meant != "" {
		return meant
	}
	return ownWord(word)
}

// ownWord returns the lower-case form of a word of this language that is written in capitals, such as AND. For any other word it returns "".
func ownWord(word string) string {
	if lower := strings.ToLower(word); lower != word && own[lower] {
		return lower
	}
	return ""
}
