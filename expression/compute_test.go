package expression

import (
	"math"
	"strings"
	"testing"
	"time"

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

// What cannot be computed is an error of type, and names the function.
func TestComputingWrongTypes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 / 0":                           "1 / 0 is no number",
		"0 / 0":                           "0 / 0 is no number",
		"1 % 0":                           "division by zero",
		"1.5 % 2":                         "integers",
		"1e308 * 10":                      "no number",
		`"a" + 1`:                         "string(x)",
		`1 - "a"`:                         "number - text",
		`null + 1`:                        "null + number",
		`upper(1)`:                        "upper: ",
		`contains("a", 1)`:                "text contains texts",
		`contains(1, 1)`:                  "nothing is in number",
		`join("a")`:                       "join takes a list, not text",
		`join([[1]])`:                     "list as text",
		`join(["a"], 1)`:                  "separator",
		`int("1.5")`:                      "no integer",
		`int("99999999999999999999")`:     "64 bits",
		`int(1e300)`:                      "1e+300 is no integer of 64 bits",
		`int(-9223372036854775808.0 * 2)`: "64 bits",
		`float("x")`:                      "no number",
		`float("inf")`:                    "no number",
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

// Texts and lists that are made cost steps, so that a short expression cannot fill the memory.
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

// A text that cannot be read is refused in terms of what stands in it: a bracket without its partner, or what was not expected.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`(1 + 2`:               `1:1: "(" is not closed`,
		`{{ $nodes.A.output`:   `1:1: "{{" is not closed`,
		`{{ $nodes.A.output }`: `1:20: expected "}}" before "}", to close the "{{" at 1:1`,
		"[1,\n (2]]":           `2:4: expected ")" before "]", to close the "(" at 2:2`,
		`1 }}`:                 `1:3: "}" closes nothing`,
		`"ä" + f(1`:            `1:8: "(" is not closed`,
		`1 +`:                  `1:3: unexpected end of the text`,
		`1 + {{ }}`:            `1:9: unexpected "}}"`,
		`1 {{ 2 }}`:            `1:3: unexpected "{{"`,
		`a b (`:                `1:3: unexpected "b"`,
		`( )`:                  `1:3: unexpected ")"`,
	} {
		_, err := Evaluator{}.Parse(text)
		require.EqualError(t, err, want, text)
		var at *SyntaxError
		require.ErrorAs(t, err, &at)
	}
}

// An operator of another language, and a word that is no path, are refused with what stands for them here.
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
		`$inputs.a == 'it's'`:               `1:18: unexpected "s"`,
		`$inputs.NOT b`:                     `1:13: unexpected "b"`,
		`$inputs.a == "is" b`:               `1:19: unexpected "b"`,
		`$inputs.a +=`:                      `1:12: unexpected "="`,
		`$inputs.a ~ 1`:                     `1:11: unrecognized character: U+007E '~'`,
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

// The characters to trim are looked through once, however many there are: no context interrupts a single call.
func TestCostOfTrim(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("é", 350_000)
	others := strings.Repeat("日", 230_000) + "é"
	begin := time.Now()
	got, err := evaluate(t, "trim($nodes.A.output.text, $nodes.A.output.others)", map[string]string{"text": text, "others": others})
	require.NoError(t, err)
	require.Equal(t, "", got)
	require.Less(t, time.Since(begin), 3*time.Second)
}
