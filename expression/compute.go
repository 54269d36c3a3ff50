package expression

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// The map `arithmetic` has the operators that compute a number or join two texts.
var arithmetic = map[string]func(e *evaluation, a, b any) (any, error){
	"+": func(e *evaluation, a, b any) (any, error) {
		s, isText := text(a)
		t, both := text(b)
		if isText && both {
			return e.made(s + t)
		}
		if isText || both {
			return nil, mismatch("%s + %s; string(x) makes a text of a number", kind(a), kind(b))
		}
		return compute("+", a, b, func(x, y int64) (int64, bool) { return x + y, (x+y > x) == (y > 0) },
			func(x, y float64) float64 { return x + y })
	},
	"-": func(_ *evaluation, a, b any) (any, error) {
		return compute("-", a, b, func(x, y int64) (int64, bool) { return x - y, (x-y < x) == (y > 0) },
			func(x, y float64) float64 { return x - y })
	},
	"*": func(_ *evaluation, a, b any) (any, error) {
		return compute("*", a, b, multiply, func(x, y float64) float64 { return x * y })
	},
	"/": func(_ *evaluation, a, b any) (any, error) {
		return compute("/", a, b, func(x, y int64) (int64, bool) {
			if y == 0 || x%y != 0 || x == math.MinInt64 && y == -1 {
				return 0, false
			}
			return x / y, true
		}, func(x, y float64) float64 { return x / y })
	},
	"%": func(_ *evaluation, a, b any) (any, error) {
		x, okX := integer(a)
		y, okY := integer(b)
		switch {
		case !okX || !okY:
			return nil, mismatch("%s %% %s: both must be integers", kind(a), kind(b))
		case y == 0:
			return nil, mismatch("a division by zero")
		case y == -1: // the division overflows for the least integer
			return int64(0), nil
		}
		return x % y, nil
	},
}

// The function `compute` computes with integers if both operands are int64 and the exact result fits an int64. Otherwise it computes with
// floating-point numbers. It returns an error if an operand is not a number, or the result is infinite or not a number.
func compute(op string, a, b any, ints func(x, y int64) (int64, bool), floats func(x, y float64) float64) (any, error) {
	m, okM := number(a)
	n, okN := number(b)
	if !okM || !okN {
		return nil, mismatch("%s %s %s", kind(a), op, kind(b))
	}
	x, isInt := m.(int64)
	y, both := n.(int64)
	if isInt && both {
		if result, ok := ints(x, y); ok {
			return result, nil
		}
	}
	result := floats(float(m), float(n))
	if math.IsNaN(result) || math.IsInf(result, 0) {
		return nil, mismatch("%v %s %v is not a number", m, op, n)
	}
	return result, nil
}

func multiply(x, y int64) (int64, bool) {
	high, low := bits.Mul64(magnitude(x), magnitude(y))
	longest := uint64(math.MaxInt64)
	if x < 0 != (y < 0) {
		longest++
	}
	return x * y, high == 0 && low <= longest
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

func float(n any) float64 {
	switch n := n.(type) {
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	}
	return n.(float64)
}

// The method `made` returns a new text, and charges the evaluation one step for each 16 bytes of this text.
func (e *evaluation) made(s string) (any, error) {
	return s, e.reads(s)
}

// The method `reads` charges the evaluation one step for each 16 bytes of a text. Any other value costs nothing.
func (e *evaluation) reads(v any) error {
	s, _ := text(v)
	return e.spend(len(s) / 16)
}

// The type `function` describes a function of the expression language. The function `exists` is not of this type: the compiler translates calls of
// `exists` itself.
type function struct {
	least, most int // the least and the greatest number of arguments
	call        func(e *evaluation, args []any) (any, error)
}

var functions = map[string]function{
	"len": {1, 1, func(e *evaluation, args []any) (any, error) {
		if err := e.reads(args[0]); err != nil {
			return nil, err
		}
		if s, ok := text(args[0]); ok {
			return int64(utf8.RuneCountInString(s)), nil
		}
		return length(args[0])
	}},
	"contains":   {2, 2, contains},
	"startsWith": {2, 2, onTexts(func(_ *evaluation, s []string) (any, error) { return strings.HasPrefix(s[0], s[1]), nil })},
	"endsWith":   {2, 2, onTexts(func(_ *evaluation, s []string) (any, error) { return strings.HasSuffix(s[0], s[1]), nil })},
	"lower":      {1, 1, onTexts(func(e *evaluation, s []string) (any, error) { return e.made(strings.ToLower(s[0])) })},
	"upper":      {1, 1, onTexts(func(e *evaluation, s []string) (any, error) { return e.made(strings.ToUpper(s[0])) })},
	"trim": {1, 2, onTexts(func(_ *evaluation, s []string) (any, error) {
		if len(s) == 1 {
			return strings.TrimSpace(s[0]), nil
		}
		set := map[rune]bool{} // a set, since strings.Trim scans all of s[1] for each character of s[0]
		for _, r := range s[1] {
			set[r] = true
		}
		return strings.TrimFunc(s[0], func(r rune) bool { return set[r] }), nil
	})},
	"split":   {2, 2, onTexts(split)},
	"join":    {1, 2, join},
	"replace": {3, 3, onTexts(replace)},
	"string": {1, 1, func(e *evaluation, args []any) (any, error) {
		s, err := render(args[0])
		if err != nil {
			return nil, err
		}
		return e.made(s)
	}},
	"int":   {1, 1, func(e *evaluation, args []any) (any, error) { return whole(e, args[0]) }},
	"float": {1, 1, func(e *evaluation, args []any) (any, error) { return fraction(e, args[0]) }},
	"abs": {1, 1, func(_ *evaluation, args []any) (any, error) {
		if c, ordered, err := order(args[0], int64(0)); err != nil || !ordered || c >= 0 {
			n, _ := number(args[0])
			return n, err
		}
		return negate(args[0])
	}},
	"floor": {1, 1, rounding(math.Floor)},
	"ceil":  {1, 1, rounding(math.Ceil)},
	"round": {1, 1, rounding(math.Round)},
	"min":   {1, maxParts, extreme(func(c int) bool { return c < 0 })},
	"max":   {1, maxParts, extreme(func(c int) bool { return c > 0 })},
}

// The map `results` has the functions that always return the same kind of value, each with this kind.
var results = map[string]string{
	"len": "number", "int": "number", "float": "number", "abs": "number", "floor": "number", "ceil": "number", "round": "number",
	"contains": "bool", "startsWith": "bool", "endsWith": "bool", "split": "list",
	"lower": "text", "upper": "text", "trim": "text", "join": "text", "replace": "text", "string": "text",
}

// onTexts returns a function that checks that all arguments are texts, charges one step for each 16 bytes of them, and calls f.
func onTexts(f func(e *evaluation, s []string) (any, error)) func(*evaluation, []any) (any, error) {
	return func(e *evaluation, args []any) (any, error) {
		texts := make([]string, len(args))
		for i, arg := range args {
			s, ok := text(arg)
			if !ok {
				return nil, mismatch("argument %d must be text, not %s", i+1, kind(arg))
			}
			if err := e.reads(s); err != nil {
				return nil, err
			}
			texts[i] = s
		}
		return f(e, texts)
	}
}

// The function `contains` reports whether the first argument contains the second: as part of a text, as a member of a list, as a key of a map, or
// as the name of a field of a struct.
func contains(e *evaluation, args []any) (any, error) {
	if s, ok := text(args[0]); ok {
		part, ok := text(args[1])
		if !ok {
			return nil, mismatch("a text contains texts, not %s", kind(args[1]))
		}
		return strings.Contains(s, part), e.reads(s)
	}
	return e.in(args[1], args[0])
}

func split(e *evaluation, s []string) (any, error) {
	n := strings.Count(s[0], s[1]) + 1
	if err := e.spend(n); err != nil {
		return nil, err
	}
	parts := make([]any, 0, n)
	for part := range strings.SplitSeq(s[0], s[1]) {
		parts = append(parts, part)
	}
	return parts, nil
}

// The function `join` joins the members of a list, which must be texts, numbers or booleans.
func join(e *evaluation, args []any) (any, error) {
	separator := ""
	if len(args) == 2 {
		var ok bool
		if separator, ok = text(args[1]); !ok {
			return nil, mismatch("the separator must be text, not %s", kind(args[1]))
		}
	}
	list := plain(args[0])
	if kindOf(list) != "list" {
		return nil, mismatch("join takes a list, not %s", kindOf(list))
	}
	var b strings.Builder
	for i := range list.Len() {
		member, err := inside(list.Index(i))
		if err != nil {
			return nil, err
		}
		s, err := render(member)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			s = separator + s
		}
		if err := e.spend(1 + len(s)/16); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func replace(e *evaluation, s []string) (any, error) {
	n := strings.Count(s[0], s[1])
	if err := e.spend(n + n*len(s[2])/16); err != nil { // charged first, so that a result beyond the limit takes no memory
		return nil, err
	}
	return strings.ReplaceAll(s[0], s[1], s[2]), nil
}

// The function `render` returns a text, a number or a boolean as a text.
func render(v any) (string, error) {
	if s, ok := text(v); ok {
		return s, nil
	}
	n, isNumber := number(v)
	switch n := n.(type) {
	case int64:
		return strconv.FormatInt(n, 10), nil
	case uint64:
		return strconv.FormatUint(n, 10), nil
	case float64:
		return strconv.FormatFloat(n, 'f', -1, 64), nil
	}
	if r := plain(v); !isNumber && kindOf(r) == "bool" {
		return strconv.FormatBool(r.Bool()), nil
	}
	return "", mismatch("%s as text", kind(v))
}

// The function `whole` returns a number without its fraction, or parses a text as an integer.
func whole(e *evaluation, v any) (any, error) {
	if err := e.reads(v); err != nil {
		return nil, err
	}
	if s, ok := text(v); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil {
			return nil, mismatch("%.40q is not an integer of 64 bits", s)
		}
		return n, nil
	}
	n, err := rounding(math.Trunc)(nil, []any{v})
	if f, ok := n.(float64); ok {
		return nil, mismatch("%v is not an integer of 64 bits", f)
	}
	return n, err
}

func fraction(e *evaluation, v any) (any, error) {
	if err := e.reads(v); err != nil {
		return nil, err
	}
	if s, ok := text(v); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, mismatch("%.40q is not a number", s)
		}
		return f, nil
	}
	n, ok := number(v)
	if !ok {
		return nil, mismatch("%s as a number", kind(v))
	}
	return float(n), nil
}

// The function `rounding` returns a function that leaves integers as they are and rounds other numbers. A rounded number becomes an int64 if it
// fits into one.
func rounding(round func(float64) float64) func(*evaluation, []any) (any, error) {
	return func(_ *evaluation, args []any) (any, error) {
		n, ok := number(args[0])
		if !ok {
			return nil, mismatch("%s as a number", kind(args[0]))
		}
		f, ok := n.(float64)
		if !ok {
			return n, nil
		}
		if f = round(f); f >= -1<<63 && f < 1<<63 {
			return int64(f), nil
		}
		return f, nil
	}
}

// The function `extreme` returns a function that finds the least or the greatest of its arguments. If its only argument is a list, the function
// searches the members of the list. It compares each value with the best value so far. From the result of this comparison, "before" finds out
// whether the new value is better.
func extreme(before func(c int) bool) func(*evaluation, []any) (any, error) {
	return func(e *evaluation, args []any) (any, error) {
		if r := plain(args[0]); len(args) == 1 && kindOf(r) == "list" {
			if err := e.spend(r.Len()); err != nil {
				return nil, err
			}
			args = make([]any, r.Len())
			for i := range args {
				var err error
				if args[i], err = inside(r.Index(i)); err != nil {
					return nil, err
				}
			}
		}
		if len(args) == 0 {
			return nil, mismatch("an empty list has neither a least nor a greatest member")
		}
		best := args[0]
		for _, arg := range args {
			if err := e.reads(arg); err != nil {
				return nil, err
			}
			c, ordered, err := order(arg, best)
			if err != nil {
				return nil, err
			}
			if ordered && before(c) {
				best = arg
			}
		}
		return best, nil
	}
}

// wordOperators are functions that the parser treats as operators.
var wordOperators = []string{"contains", "startsWith", "endsWith"}

// asCalls finds word operators that are written as calls, such as contains(x, y). It capitalizes their first letters, so that the parser
// does not take them for operators. Positions do not change. The map "words" has the original names, by their positions in characters.
func asCalls(s string) (changed string, words map[int]string) {
	b := []byte(s)
	words = map[int]string{}
	for i := range b {
		for _, name := range wordOperators {
			rest, is := strings.CutPrefix(s[i:], name)
			if is && strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), "(") && !afterOperand(s[:i]) {
				b[i] -= 'a' - 'A'
				words[utf8.RuneCountInString(s[:i])] = name
			}
		}
	}
	return string(b), words
}

// afterOperand reports whether the text ends with an operand, or inside a word or a quoted text.
func afterOperand(s string) bool {
	trimmed := strings.TrimRight(s, " \t\r\n")
	if trimmed == "" {
		return false
	}
	word := trimmed[strings.LastIndexFunc(trimmed, func(r rune) bool { return !isWord(r) })+1:]
	switch word {
	case "and", "or", "not", "in":
		return len(trimmed) == len(s)
	case "":
		return strings.HasSuffix(trimmed, ")") || strings.HasSuffix(trimmed, "]") || strings.HasSuffix(trimmed, "}") || quoted(trimmed)
	}
	return true
}

func isWord(r rune) bool {
	return r == '_' || r == '$' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// The function `quoted` reports whether the text ends with a quoted text, or inside one.
func quoted(s string) bool {
	var quote, last byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0 && c == quote:
			quote, last = 0, c
		case quote == 0 && (c == '"' || c == '\'' || c == '`'):
			quote = c
		}
	}
	return quote != 0 || last != 0 && s[len(s)-1] == last
}

// The method `apply` translates a function call.
func (c *compiler) apply(n ast.Node, name string, args []ast.Node) (part, error) {
	f := functions[name]
	if len(args) < f.least || len(args) > f.most {
		return nil, c.errorf(n, "%s takes %s", name, f.arguments())
	}
	parts := make([]part, len(args))
	for i, arg := range args {
		var err error
		if parts[i], err = c.compile(arg); err != nil {
			return nil, err
		}
	}
	c.checkOperands(n, name, func(values []any) error {
		_, err := f.call(&evaluation{ctx: context.Background()}, values)
		return err
	}, args...)
	c.kinds[n] = results[name]
	return func(e *evaluation) (any, error) {
		values := make([]any, len(parts))
		for i, p := range parts {
			var err error
			if values[i], err = p(e); err != nil {
				return nil, err
			}
		}
		v, err := f.call(e, values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return v, nil
	}, nil
}

func (f function) arguments() string {
	switch {
	case f.least == 1 && f.most == 1:
		return "one argument"
	case f.least == f.most:
		return strconv.Itoa(f.least) + " arguments"
	case f.most == maxParts:
		return "one argument or more"
	}
	return strconv.Itoa(f.least) + " or " + strconv.Itoa(f.most) + " arguments"
}
