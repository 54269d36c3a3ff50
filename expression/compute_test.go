package expression

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

func TestComputing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		output any
		want   any
	}{
		{"1 + 2 * 3 - 4", nil, int64(3)},
		{"(1 + 2) * 3", nil, int64(9)},
		{"$nodes.A.output + 0.5", 2, 2.5},
		{"$nodes.A.output-1", 2, int64(1)},
		{"6 / 3", nil, int64(2)},
		{"7 / 2", nil, 3.5},
		{"-7 % 3", nil, int64(-1)},
		{"7 % -1", nil, int64(0)},
		{"9223372036854775807 + 0", nil, int64(math.MaxInt64)},
		{"9223372036854775807 + 1", nil, 9223372036854775808.0},
		{"-9223372036854775807 - 1", nil, int64(math.MinInt64)},
		{"$nodes.A.output - 1", int64(math.MinInt64), -9223372036854775809.0},
		{"$nodes.A.output + -1", int64(math.MinInt64), -9223372036854775809.0},
		{"$nodes.A.output * -1", int64(math.MinInt64), 9223372036854775808.0},
		{"$nodes.A.output / -1", int64(math.MinInt64), 9223372036854775808.0},
		{"$nodes.A.output % -1", int64(math.MinInt64), int64(0)},
		{"4611686018427387904 * -2", nil, int64(math.MinInt64)},
		{"4611686018427387904 * 2", nil, 9223372036854775808.0},
		{"3037000500 * 3037000500", nil, 3037000500.0 * 3037000500.0},
		{"$nodes.A.output + 1", uint64(math.MaxUint64), 18446744073709551616.0},
		{`"a" + "b"`, nil, "ab"},
		{`"n: " + string(3)`, nil, "n: 3"},

		{"$nodes.A.output.n ?? 7", map[string]any{"n": 1}, 1},
		{"$nodes.A.output.m ?? 7", map[string]any{"n": 1}, int64(7)},
		{"$nodes.A.output.n ?? 7", map[string]any{"n": nil}, int64(7)},
		{"$nodes.bad.status == 'failed' ? ($nodes.bad.output ?? 'none') : 1", nil, "none"},
		{`{"total": 1 + 1, n: [$nodes.A.output]}`, "x", map[string]any{"total": int64(2), "n": []any{"x"}}},

		{`{"a": {"a": 1}}`, nil, map[string]any{"a": map[string]any{"a": int64(1)}}},
		{`{"a":{}}`, nil, map[string]any{"a": map[string]any{}}},
		{`{"x":[{"y":{"z":2}}]}`, nil, map[string]any{"x": []any{map[string]any{"y": map[string]any{"z": int64(2)}}}}},
		{`{"x":{{$nodes.A.output}}}`, 3, map[string]any{"x": 3}},
		{`{{ {"a":{"b":{}}} }}`, nil, map[string]any{"a": map[string]any{"b": map[string]any{}}}},
		{"{{ 1 // (it's\n + /* }} \" */ 2 }}", nil, int64(3)},
		{"4 / 2", nil, int64(2)},
		{`{{{"a":{{1}}}}}`, nil, map[string]any{"a": int64(1)}},
		{`{"}}":{'{{':"\"}}"}}`, nil, map[string]any{"}}": map[string]any{"{{": `"}}`}}},

		{`contains("kahn", "ah")`, nil, true},
		{`contains($nodes.A.output, 2)`, []int{1, 2}, true},
		{`contains($nodes.A.output, "b")`, map[string]int{"a": 1}, false},
		{`not contains ("kahn", "x") and contains("kahn", "k")`, nil, true},
		{`$nodes.A.output contains ("b")`, "abc", true},
		{`"contains(" contains "contains("`, nil, true},
		{`['a'] contains ('a')`, nil, true},
		{`(true ? "abc" : "") contains ("b")`, nil, true},
		{`startsWith("kahn", "ka") && !endsWith("kahn", "ka")`, nil, true},
		{`"kahn" startsWith "ka" && "kahn" endsWith ("hn")`, nil, true},
		{`{{ startsWith("kahn", "ka") }}`, nil, true},
		{"'ä' == 'ä' && contains\n\t(\"kahn\", 'ah') and\r\nendsWith\t('kahn', 'n')", nil, true},
		{`upper("ä") + lower("B")`, nil, "Äb"},
		{`trim("  a ") + trim("--a-", "-") + trim("é-日a日b-é", "日é-")`, nil, "aaa日b"},
		{`split("a,b,,c", ",")`, nil, []any{"a", "b", "", "c"}},
		{`join(split("a b", " "), "-")`, nil, "a-b"},
		{`join($nodes.A.output)`, []any{"x", 1, 2.5, true}, "x12.5true"},
		{`replace("a.b.c", ".", "/")`, nil, "a/b/c"},
		{`"a b" | upper() | split(" ")`, nil, []any{"A", "B"}},
		{"string(1e21)", nil, "1000000000000000000000"},
		{"string(false)", nil, "false"},
		{`int(" 12 ") + int(3.9) + int(-3.9)`, nil, int64(12)},
		{`float("1.5")`, nil, 1.5},
		{"float(2)", nil, 2.0},
		{"[abs(-3), abs(3), abs(-2.5)]", nil, []any{int64(3), int64(3), 2.5}},
		{"[floor(-1.5), ceil(-1.5), round(1.5), floor(1e300), round(3)]", nil, []any{int64(-2), int64(-1), int64(2), 1e300, int64(3)}},
		{"[min(3, 1.5, 2), max($nodes.A.output), min('b', 'a')]", []int{1, 3, 2}, []any{1.5, 3, "a"}},
		{"len(split($nodes.A.output, ''))", "äbc", int64(3)},
	} {
		got, err := evaluate(t, c.text, c.output)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got, c.text)
	}
}

// A function with an impossible argument returns a type error that names the function.
func TestComputingWrongTypes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 / 0":                           "1 / 0 is not a number",
		"0 / 0":                           "0 / 0 is not a number",
		"1 % 0":                           "division by zero",
		"1.5 % 2":                         "integers",
		"1e308 * 10":                      "not a number",
		`"a" + 1`:                         "string(x)",
		`1 - "a"`:                         "number - text",
		`null + 1`:                        "null + number",
		`upper(1)`:                        "upper: ",
		`contains("a", 1)`:                "text contains texts",
		`contains(1, 1)`:                  "nothing is in number",
		`join("a")`:                       "join takes a list, not text",
		`join([[1]])`:                     "list as text",
		`join(["a"], 1)`:                  "separator",
		`int("1.5")`:                      "not an integer",
		`int("99999999999999999999")`:     "64 bits",
		`int(1e300)`:                      "1e+300 is not an integer of 64 bits",
		`int(-9223372036854775808.0 * 2)`: "64 bits",
		`float("x")`:                      "not a number",
		`float("inf")`:                    "not a number",
		`abs("x")`:                        "abs: ",
		`round("x")`:                      "round: ",
		`min([])`:                         "empty list",
		`max(1, "a")`:                     "no order",
		`{(1): 2}`:                        "key of a map",
	} {
		_, err := evaluate(t, text, 1)
		require.ErrorIs(t, err, kahn.ErrType, text)
		require.ErrorContains(t, err, want, text)
	}
	for text, want := range map[string]string{
		"split('a')":   "split takes 2 arguments",
		"trim()":       "trim takes 1 or 2 arguments",
		"min()":        "min takes one argument or more",
		"Upper('a')":   `there is no function "Upper"; did you mean "upper"?`,
		"contain('a')": `did you mean "contains"?`,
		"Contains('a', 'b') && contains('a', 'b')": `1:1: there is no function "Contains"; did you mean "contains"?`,
		"'é' == 'é' && StartsWith('a', 'b')":       `1:15: there is no function "StartsWith"; did you mean "startsWith"?`,
		"nodes.my-id.x":                            `$nodes["my-id"]`,
	} {
		_, err := Evaluator{}.Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

// Making texts and lists costs steps, so a short expression cannot fill the memory.
func TestCostOfTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ab", 500_000)
	for _, text := range []string{
		"upper($nodes.A.output) + lower($nodes.A.output)",
		"split($nodes.A.output, 'b')",
		"join(split($nodes.A.output, 'b'))",
		"replace($nodes.A.output, 'a', $nodes.A.output)",
		"replace($nodes.A.output, '', 'x')",
		"$nodes.A.output + $nodes.A.output",
		strings.Repeat("contains($nodes.A.output, 'c') || ", 3) + "false",
		"len($nodes.A.output) + len($nodes.A.output)",
		`startsWith($nodes.A.output, "a") && int($nodes.A.output) > 0`,
		`startsWith($nodes.A.output, "a") && float($nodes.A.output) > 0`,
		"min($nodes.A.output, $nodes.A.output)",
		"max([$nodes.A.output, $nodes.A.output])",
	} {
		_, err := evaluate(t, text, long)
		require.ErrorIs(t, err, ErrLimit, text)
	}
	got, err := evaluate(t, "upper($nodes.A.output) == $nodes.A.output", long[:len(long)/2])
	require.NoError(t, err)
	require.Equal(t, false, got)

	doubled := `"0123456789abcdef"`
	for range 4 {
		doubled = "replace(" + doubled + `, "0", "0000000000000000000000000000000000000000000000000000000000000000")`
	}
	_, err = evaluate(t, doubled, nil)
	require.ErrorIs(t, err, ErrLimit)
}

// If a text cannot be parsed, the message names its mistake: a bracket without its partner, or the unexpected token.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`(1 + 2`:               `1:1: "(" is not closed`,
		`{{ $nodes.A.output`:   `1:1: "{{" is not closed`,
		`{{ $nodes.A.output }`: `1:20: expected "}}" before "}", to close the "{{" at 1:1`,
		"[1,\n (2]]":           `2:4: expected ")" before "]", to close the "(" at 2:2`,
		`1 }}`:                 `1:3: "}" closes nothing`,
		`"ä" + f(1`:            `1:8: "(" is not closed`,
		`1 +`:                  `1:3: unexpected end of the text; an operand or a name is missing`,
		`1 + {{ }}`:            `1:9: unexpected "}}"; an operand is missing before it`,
		`1 {{ 2 }}`:            `1:3: unexpected "{{"; an operator such as == or && is missing before it`,
		`a b (`:                `1:3: unexpected "b"; an operator such as == or && is missing before it`,
		`( )`:                  `1:3: unexpected ")"; an operand is missing before it`,
	} {
		_, err := Evaluator{}.Parse(text)
		require.EqualError(t, err, want, text)
		var at *SyntaxError
		require.ErrorAs(t, err, &at)
	}
}

// For an operator of another language, or a word that cannot begin a path, the message says what to write instead.
func TestMends(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`$inputs.a = 1`:                     `1:11: unexpected "="; did you mean "=="?`,
		`($inputs.a = 1)`:                   `1:12: unexpected "="; did you mean "=="?`,
		"true &&\n $inputs.a= 1":            `2:11: unexpected "="; did you mean "=="?`,
		`"ä" == $inputs.a && $inputs.b = 1`: `1:31: unexpected "="; did you mean "=="?`,
		`$inputs.a == "=" = true`:           `1:18: unexpected "="; did you mean "=="?`,
		`{{ inputs.a }} = 1`:                `1:16: unexpected "="; did you mean "=="?`,
		`$inputs.a === 1`:                   `1:11: unexpected "==="; did you mean "=="?`,
		`$inputs.a !== 1`:                   `1:11: unexpected "!=="; did you mean "!="?`,
		`$inputs.a <> 1`:                    `1:11: unexpected "<>"; did you mean "!="?`,
		`$inputs.a =< 1`:                    `1:11: unexpected "=<"; did you mean "<="?`,
		`$inputs.a => 1`:                    `1:11: unexpected "=>"; did you mean ">="?`,
		`$inputs.a := 1`:                    `1:11: unexpected ":="; did you mean "=="?`,
		`$inputs.a ≠ 1`:                     `1:11: unexpected "≠"; did you mean "!="?`,
		`$inputs.a ≥ 1`:                     `1:11: unexpected "≥"; did you mean ">="?`,
		`$inputs.a & $inputs.b`:             `1:11: unexpected "&"; did you mean "&&"?`,
		`$inputs.a AND $inputs.b`:           `1:11: unexpected "AND"; did you mean "and"?`,
		`$inputs.a Or $inputs.b`:            `1:11: unexpected "Or"; did you mean "or"?`,
		`NOT $inputs.a`:                     `1:1: unexpected "NOT"; did you mean "not"?`,
		`true && Not $inputs.a`:             `1:9: unexpected "Not"; did you mean "not"?`,
		`$inputs.a is null`:                 `1:11: unexpected "is"; did you mean "=="?`,
		`$inputs.a eq 1`:                    `1:11: unexpected "eq"; did you mean "=="?`,
		`$inputs.a == “x”`:                  `1:14: unexpected "“"; a text is in "double" or 'single' quotes`,
		`$inputs.a == 'it's'`:               `1:18: unexpected "s"; a quote in a quoted text is written \'`,
		`$inputs.NOT b`:                     `1:13: unexpected "b"; an operator such as == or && is missing before it`,
		`$inputs.a == "is" b`:               `1:19: unexpected "b"; an operator such as == or && is missing before it`,
		`$inputs.a +=`:                      `1:12: unexpected "="; an operand is missing before it`,
		`$inputs.a ~ 1`:                     `1:11: unexpected "~"; a text is in quotes`,
		`$inputs.a == True`:                 `1:14: there is no "True"; did you mean "true"?`,
		`$inputs.a == Null`:                 `1:14: there is no "Null"; did you mean "null"?`,
		`$inputs.a == None`:                 `1:14: there is no "None"; paths begin with $config, $inputs, $nodes, $trigger; a text is in quotes`,
		`$nodes.A.status == completed`:      `1:20: there is no "completed"; paths begin with $config, $inputs, $nodes, $trigger; a text is in quotes`,
		`$node.A.status`:                    `1:1: there is no "$node"; did you mean "$nodes"?; paths begin with $config, $inputs, $nodes, $trigger`,
	} {
		_, err := Evaluator{}.Parse(text)
		require.EqualError(t, err, want, text)
	}
}

// This package replaces the parser's messages by its own, which say how to fix the text. Each replacement is needed.
func TestSayings(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for text, want := range map[string]string{
		`1 +`:                      `1:3: unexpected end of the text; an operand or a name is missing`,
		`$nodes.A.`:                `1:9: unexpected end of the text; an operand or a name is missing`,
		`"abc`:                     `1:5: the quoted text has no closing quote`,
		`1 /* x`:                   `1:7: the comment has no end; write */`,
		`"a\q"`:                    `1:4: a quoted text has no such escape sequence; a backslash is \\, and a text in backquotes has none`,
		`12abc`:                    `1:3: malformed number "12a"; a name begins with a letter, and a text is in quotes`,
		`99999999999999999999`:     `1:20: the number is beyond the integers of 64 bits; write it with a point or as a text`,
		`0xffffffffffffffffff`:     `1:20: the number is beyond the integers of 64 bits; write it with a point or as a text`,
		`1e999`:                    `1:5: the number is beyond the floating-point numbers of 64 bits; write it as a text`,
		`@a`:                       `1:1: unexpected "@"; a text is in quotes`,
		"1 \u202e":                 `1:3: unexpected U+202E, which cannot be seen; delete it, or put it in quotes`,
		`all()`:                    `1:5: ` + noPredicates,
		`map([1], #; 2)`:           `1:11: ` + noPredicates,
		`$config."a"`:              `1:11: a dot is followed by a name; a member by its position or by another key stands in brackets, as in [0] or ["a key"]`,
		`{[1]: 2}`:                 `1:2: expected a key of a map, which is a name, a number, a text in quotes, or an expression in parentheses`,
		`$inputs.a $inputs.b`:      `1:11: unexpected "$inputs"; an operator such as == or && is missing before it`,
		`$inputs.a, $inputs.b`:     `1:10: unexpected ","; a comma separates arguments and the items of a list, and && joins conditions`,
		`$inputs.a : 1`:            `1:11: unexpected ":"; the branches of a condition are a ? b : c`,
		`$inputs.a !`:              `1:11: unexpected "!"; it stands before what it negates`,
		`$inputs.a && && true`:     `1:14: unexpected "&&"; an operand is missing before it`,
		`$inputs.a.0`:              `1:10: unexpected ".0"; a member by its position stands in brackets, as in [0]`,
		`'it''s'`:                  `1:5: unexpected "s"; a quote in a quoted text is written \'`,
		`true not false`:           `1:10: unexpected "false"; check what stands before it`,
		`$inputs.a | $inputs.b`:    `1:11: unexpected "|"; did you mean "||"?`,
		`$inputs.a ? 1`:            `1:11: unexpected end of the text; the branches of a condition are a ? b : c`,
		`1; 2`:                     `1:1: several expressions in one text are not supported; && joins conditions`,
		`let x = 1; x`:             `1:5: let is not supported: there are no variables; a node of kind expression before this one may compute the value`,
		`$inputs.a?.b`:             `1:12: ?. is not supported; a ?? b is b if a does not exist, and exists(a) asks for it`,
		`$inputs.a[1:2]`:           `1:10: a slice is not supported; take members by their position, as in [0]`,
		`b"x"`:                     `1:1: a text of bytes is not supported; write it without the letter before the quote`,
		`$inputs.a matches "x"`:    `1:11: operator matches is not supported; contains, startsWith and endsWith look for a text`,
		`1 in 1..3`:                `1:7: operator .. is not supported; write the list out, as in [1, 2, 3]`,
		`length($inputs.a)`:        `1:1: there is no function "length"; did you mean "len"?`,
		`filter($inputs.a, # > 1)`: `1:1: there is no function "filter": ` + noPredicates,
		`$config.Do(1)`:            `1:9: there are no methods; a function is called as in len(x)`,
	} {
		_, err := Evaluator{}.Parse(text)
		assert.EqualError(t, err, want, text)
		for _, s := range sayings {
			used[s.says] = used[s.says] || strings.HasSuffix(want, s.says) || strings.Contains(s.says, "$1")
		}
	}
	const unreached = "compilation failed: expression exceeds maximum allowed nodes" // a text of maxText bytes has fewer nodes
	for _, s := range sayings {
		require.True(t, used[s.says] || s.said.MatchString(unreached), "no text for %s", s.says)
	}
	require.EqualError(t, refusal("a", nil, &SyntaxError{1, 1, unreached}), "1:1: the text has too many parts; take it apart into several nodes")
	require.EqualError(t, refusal("a", nil, &SyntaxError{1, 1, "something new"}), "1:1: the text cannot be read from here on: something new")
}

// trim scans the characters to trim only once, since a context cannot interrupt a single call.
func TestCostOfTrim(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("é", 350_000)
	others := strings.Repeat("日", 230_000) + "é"
	begin := time.Now()
	got, err := evaluate(t, "trim($nodes.A.output.text, $nodes.A.output.others)", map[string]string{"text": text, "others": others})
	require.NoError(t, err)
	require.Equal(t, "", got)
	require.Less(t, time.Since(begin), 20*time.Second)
}
