package expression

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// look runs a graph A -> B in which A has the given output, and calls f with B's View.
func look(t testing.TB, output any, f func(kahn.View), opts ...kahn.Option) {
	t.Helper()
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { return output, nil }},
		kahn.Node{ID: "my-id", Do: func(context.Context, *kahn.Step) (any, error) { return map[string]any{"a b": 1}, nil }},
		kahn.Node{ID: "bad", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("the step broke") }},
		kahn.Node{ID: "stranger", Do: func(context.Context, *kahn.Step) (any, error) { return 1, nil }},
		kahn.Node{ID: "B", After: []string{"A", "my-id", "bad"}, Config: config{Limit: 3, private: 4, Inner: &inner{Deep: "x"}},
			Test: func(v kahn.View) (any, error) { f(v); return nil, nil }},
	)
	inputs := kahn.Inputs(map[string]any{"n": 7, "null": nil})
	res, err := kahn.Execute(t.Context(), &g, nil, append(opts, inputs)...)
	if err != nil {
		t.Fatalf("%v, %v", res, err)
	}
}

type inner struct{ Deep string }

type config struct {
	Limit   int `json:"limit"`
	Hidden  int `json:"-"`
	private int
	*inner
	Inner *inner
}

// evaluate parses and evaluates one text.
func evaluate(t testing.TB, text string, output any) (value any, err error) {
	t.Helper()
	e, err := Evaluator{}.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	look(t, output, func(v kahn.View) { value, err = e.Evaluate(t.Context(), v) })
	return value, err
}

func TestValues(t *testing.T) {
	type text string
	type level int8
	five, flag := 5, true
	self := map[string]any{}
	self["self"] = self
	for _, c := range []struct {
		text   string
		output any
		want   any
	}{
		{"1", nil, int64(1)},
		{"-2.5", nil, -2.5},
		{`"te\"xt"`, nil, `te"xt`},
		{"true && !false", nil, true},
		{"null == nil", nil, true},
		{"not (1 == 2) and 1 in [1, 2]", nil, true},
		{"1 not in [1, 2]", nil, false},
		{"1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3 && 1 != 2", nil, true},
		{"1 < $nodes.A.output < 9", 5, true},
		{`"a" < "b"`, nil, true},
		{`$nodes.A.output > 3 ? "high" : "low"`, 4, "high"},
		{`$nodes.A.output > 3 ? "high" : "low"`, 2, "low"},

		// paths
		{"$nodes.A.output", "x", "x"},
		{"nodes.A.output.a.b", map[string]any{"a": map[string]int{"b": 3}}, 3},
		{`$nodes["my-id"].output["a b"]`, nil, 1},
		{"$nodes.A.output[1].n", []map[string]int{{"n": 1}, {"n": 2}}, 2},
		{"$nodes.A.output[len($nodes.A.output)]", map[int]string{1: "one"}, "one"},
		{`$nodes.A.output["a"]`, map[text]int{"a": 1}, 1},
		{`$nodes.A.output.a`, map[any]any{"a": 1}, 1},
		{`$nodes.A.output[3]`, map[any]any{3: 1}, 1},
		{"$nodes.A.output.a", kahn.Outputs{"a": 1}, 1},
		{"$nodes.A.output.a.b", json.RawMessage(`{"a": {"b": 12345678901234567890123}}`), json.Number("12345678901234567890123")},
		{"$nodes.A.output.list[0] == 1", map[string]any{"list": json.RawMessage(`[1]`)}, true},
		{"$nodes.A.status", nil, "completed"},
		{"$nodes.bad.status", nil, "failed"},
		{`$nodes.bad.error`, nil, `node "bad": step_error: the step broke`},
		{"$nodes.A.error", nil, nil},
		{"$config.limit", nil, 3},
		{"config.Inner.deep", nil, "x"},
		{"$inputs.n", nil, 7},
		{"$inputs.null", nil, nil},
		{"inputs['n'] == 7", nil, true},
		{`["a", "b"][1]`, nil, "b"},

		// templates
		{"{{ nodes.A.output.needsPr }}", map[string]any{"needsPr": true}, true},
		{"{{nodes.A.output.n}} > 3 && {{ $inputs.n }} == 7", map[string]any{"n": 4}, true},
		{`{{ nodes.A.output }} == "{{ x }}"`, "{{ x }}", true},

		// existence: null is a value
		{"exists($nodes.A.output.a)", map[string]any{"a": nil}, true},
		{"exists($nodes.A.output.b)", map[string]any{"a": nil}, false},
		{"exists($nodes.A.output.a.b)", map[string]any{"a": nil}, false},
		{"exists($nodes.A.output[9])", []int{1}, false},
		{"exists($nodes.A.output[-1])", []int{1}, false},
		{"exists($nodes.A.output.a)", "text", false},
		{"exists($nodes.bad.output)", nil, false},
		{"exists($nodes.stranger.output)", nil, false},
		{"exists($nodes.nobody.status)", nil, false},
		{"exists($trigger)", nil, false},
		{"exists($inputs.x) || exists($config.Hidden) || exists($config.private) || exists($config.Deep)", nil, false},
		{"exists($nodes.A.output.x) && $nodes.A.output.x", map[string]any{}, false},

		// numbers
		{"$nodes.A.output == 5.0", 5, true},
		{"$nodes.A.output == 5", level(5), true},
		{"$nodes.A.output == 5", &five, true},
		{"$nodes.A.output == 5", json.Number("5"), true},
		{"$nodes.A.output == 5", json.Number("5.0"), true},
		{"$nodes.A.output == 0.1", json.Number("0.1"), true},
		{"$nodes.A.output == 9007199254740993", int64(1<<53 + 1), true},
		{"$nodes.A.output == 9007199254740992", int64(1<<53 + 1), false},
		{"$nodes.A.output == 9007199254740993", float64(1 << 53), false},
		{"$nodes.A.output < 9007199254740993", float64(1 << 53), true},
		{"$nodes.A.output > 9223372036854775807", uint64(math.MaxUint64), true},
		{"$nodes.A.output == 9223372036854775807", json.Number("9223372036854775807"), true},
		{"$nodes.A.output == 9223372036854775807", json.Number("9223372036854775806"), false},
		{"$nodes.A.output > 1", math.Inf(1), true},
		{"$nodes.A.output == $nodes.A.output || $nodes.A.output < 1 || $nodes.A.output >= 1", math.NaN(), false},
		{"-$nodes.A.output < -1", uint8(2), true},
		{"$nodes.A.output > 1", json.Number("1e999"), true},

		// kinds are not mixed
		{`$nodes.A.output == "5"`, 5, false},
		{`$nodes.A.output == "true"`, true, false},
		{"$nodes.A.output == true", &flag, true},
		{"$nodes.A.output == null", (*int)(nil), true},
		{"$nodes.A.output == null", []int(nil), true},
		{"$nodes.A.output == null", "", false},
		{`$nodes.A.output == "a"`, text("a"), true},
		{"$nodes.A.output == [1, 2]", []float64{1, 2}, true},
		{"$nodes.A.output == [1, 2]", []int{1, 3}, false},
		{"$nodes.A.output.x == $nodes.A.output.y", map[string]any{"x": map[string]any{"a": 1}, "y": map[text]int64{"a": 1}}, true},
		{"$nodes.A.output.x == $nodes.A.output.y", map[string]any{"x": map[string]any{"a": 1}, "y": map[string]int{"b": 1}}, false},
		{"$nodes.A.output == null", struct{}{}, false},

		// membership
		{`"x" in $nodes.A.output`, []string{"y", "x"}, true},
		{`"x" in $nodes.A.output`, map[string]any{"x": nil}, true},
		{`"limit" in $config`, nil, true},
		{`5 in $nodes.A.output`, []any{"5", nil, 5.0}, true},

		// len
		{"len($nodes.A.output)", "héé", int64(3)},
		{"len($nodes.A.output)", []int{1, 2}, int64(2)},
		{"len($nodes.A.output) == 1", map[string]int{"a": 1}, true},

		// truth
		{"!$nodes.A.output", "false", true},
		{"$nodes.A.output || false", []int{}, false},
		{"$nodes.A.output && true", 0, false},
		{"$nodes.A.output ? 1 : 2", "", int64(2)},

		{"exists($nodes.A.output.self.self.self)", self, true},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := evaluate(t, c.text, c.output)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// The error for a missing path names the path, in a form that can be copied into an expression.
func TestMissingPathIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nodes.A.output.m > 5":                    "no value: no such path: nodes.A.output.m",
		"{{ $nodes.A.output.a.b[3] }}":            "no value: no such path: $nodes.A.output.a.b[3]",
		`$nodes["A"].output["my key"].x`:          `no value: no such path: $nodes.A.output["my key"].x`,
		`$nodes.A.output["a\u202eb"]`:             `no value: no such path: $nodes.A.output["a\u202eb"]`,
		`$nodes.A.output[$nodes.A.status] == "x"`: "no value: no such path: $nodes.A.output[…]",
		`["a"][7] == "x"`:                         "no value: no such path",
	} {
		_, err := evaluate(t, text, map[string]any{"n": 3})
		require.EqualError(t, err, want, text)
	}
	_, err := evaluate(t, "exists($nodes.A.output.m)", map[string]any{"n": 3})
	require.NoError(t, err)
}

// TestProblems: an expression without a value returns the right kind of error, and the guard's policy for errors applies.
func TestProblems(t *testing.T) {
	self := []any{nil}
	self[0] = self
	deep := any(1)
	for range 200 {
		deep = []any{deep}
	}
	long := make([]any, maxSteps)
	for _, c := range []struct {
		text   string
		output any
		want   error
	}{
		{"$nodes.A.output.flag", map[string]any{}, kahn.ErrNoValue},
		{"$nodes.A.output.flag", nil, kahn.ErrNoValue},
		{"$nodes.A.output.flag.x", 5, kahn.ErrNoValue},
		{"$nodes.bad.output", nil, kahn.ErrUnreadFailure},
		{"len($nodes.bad.output) > 3", nil, kahn.ErrUnreadFailure},
		{"false && $nodes.bad.output.n > 3", nil, kahn.ErrUnreadFailure},
		{"true || $nodes.bad.output", nil, kahn.ErrUnreadFailure},
		{"$nodes.bad.output ?? 7", nil, kahn.ErrUnreadFailure},
		{"$nodes.bad.output && $nodes.A.status == 'failed'", nil, kahn.ErrUnreadFailure},
		{"$nodes.bad.output || $nodes.bad.status == 'failed'", nil, kahn.ErrNoValue},
		{"$inputs.x", nil, kahn.ErrNoValue},
		{"$trigger.x", nil, kahn.ErrNoValue},
		{"$config.private", nil, kahn.ErrNoValue},
		{"$nodes.A.output.x || true", nil, kahn.ErrNoValue},
		{"1 < $nodes.A.output", "2", kahn.ErrType},
		{"null < 1", nil, kahn.ErrType},
		{"1 in $nodes.A.output", "123", kahn.ErrType},
		{"len($nodes.A.output)", 5, kahn.ErrType},
		{"len(null)", nil, kahn.ErrType},
		{`-"x"`, nil, kahn.ErrType},
		{"$config == $config", nil, kahn.ErrType},
		{"$nodes.A.output == $nodes.A.output", func() {}, kahn.ErrType},
		{"$nodes.A.output.a", map[float64]int{}, kahn.ErrType},
		{"$nodes.A.output.a", json.RawMessage("{"), kahn.ErrType},
		{"$nodes.A.output == $nodes.A.output", self, ErrLimit},
		{"$nodes.A.output == $nodes.A.output", deep, ErrLimit},
		{"1 in $nodes.A.output", long, ErrLimit},
		{"$nodes.A.output", json.RawMessage(strings.Repeat(" ", 17*maxSteps) + "1"), ErrLimit},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := evaluate(t, c.text, c.output)
			require.ErrorIs(t, err, c.want)
		})
	}
}

// TestSyntax: Parse rejects text outside the language, and the error has its place.
func TestSyntax(t *testing.T) {
	for text, place := range map[string]string{
		"(((":                           "1:",
		"":                              "1:",
		"1 +":                           "1:",
		"true\n&& $nodes":               "2:4",
		"$nodes.A":                      "1:1",
		"$nodes.A.outputs":              "1:1",
		"$nodes[$inputs.x].output":      "1:",
		"$nodes[1].output":              "1:",
		"nodes.my-id.output":            `$nodes["my-id"]`,
		"$inputs":                       "1:1",
		"$env":                          "$nodes",
		"foo":                           "$nodes",
		"foo.bar":                       "$nodes",
		"print(1)":                      "print",
		"now()":                         "now",
		"len(1, 2)":                     "one argument",
		"exists(1 == 1)":                "path",
		"all([1], {# > 0})":             "all",
		"map(1..1000000, 1)":            "map",
		"1..1000000000":                 "..",
		"2 ** 9999":                     "**",
		`"a" matches "(a+)+"`:           "matches",
		"$config.Method()":              "method",
		"$nodes.A.output?.x":            "not supported",
		"$nodes.A.output[1:2]":          "a slice is not supported",
		"let x = 1; x":                  "not supported",
		"1; 2":                          "not supported",
		`b"bytes"`:                      "bytes is not supported",
		"9223372036854775808":           "1:",
		"'it''":                         "1:",
		"{{ nodes.A.output }":           "1:",
		"\x00":                          "1:",
		"$nodes.A.output\u202e.x":       "1:",
		"import(\"os\")":                "import",
		"$nodes.__proto__.output.x(1)":  "method",
		"true ? 1":                      "1:",
		"if true { 1 } else { foo }":    "$nodes",
		"$nodes.A.output | map(1)":      "map",
		"$nodes.A.output startsWith 'a": "1:",
		"\xff":                          "1:1: the byte 0xff is not UTF-8",
		"true &&\n 'é\ufffd\x9d":        "2:5: the byte 0x9d is not UTF-8",
	} {
		_, err := Evaluator{}.Parse(text)
		var at *SyntaxError
		if !errors.As(err, &at) || at.Line < 1 || at.Column < 1 {
			t.Errorf("%q: %v", text, err)
			continue
		}
		require.ErrorContains(t, err, place, text)
		require.NotContains(t, err.Error(), "panics", text)
	}
}

// TestLimits: malicious texts are rejected, or evaluated quickly and with little memory.
func TestLimits(t *testing.T) {
	nested := "1"
	for range 40 { // each level evaluates its middle operand twice, which makes 2^40 comparisons
		nested = "1 < (" + nested + ") < 1"
	}
	for name, text := range map[string]string{
		"long":        strings.Repeat(" ", maxText) + "1",
		"parts":       "[" + strings.Repeat("1,", maxParts) + "1]",
		"exponential": nested,
		"members":     "$config" + strings.Repeat(".a", maxParts),
	} {
		_, err := Evaluator{}.Parse(text)
		require.ErrorIs(t, err, ErrLimit, name)
	}
	for name, text := range map[string]string{
		"parentheses": strings.Repeat("(", maxText),
		"brackets":    strings.Repeat("[", maxText),
		"braces":      strings.Repeat("{", maxText),
		"not":         strings.Repeat("!", maxText),
		"minus":       strings.Repeat("-", maxText),
		"calls":       strings.Repeat("len(", maxText/4),
		"ternary":     strings.Repeat("1?", maxText/2),
	} {
		_, err := Evaluator{}.Parse(text)
		require.Error(t, err, name)
	}
	e, err := Evaluator{}.Parse(strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000))
	require.NoError(t, err)
	require.NotNil(t, e)
}

// TestDeadline: an evaluation stops soon after its context has ended.
func TestDeadline(t *testing.T) {
	e, err := Evaluator{}.Parse("1 in $nodes.A.output")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	look(t, []int{2, 3}, func(v kahn.View) {
		_, err := e.Evaluate(ctx, v)
		require.ErrorIs(t, err, context.Canceled)
	})
	ctx = &dying{Context: t.Context(), left: 3}
	look(t, make([]any, 2000), func(v kahn.View) {
		_, err := e.Evaluate(ctx, v)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// dying is a context that ends after a few checks.
type dying struct {
	context.Context
	left int
}

func (d *dying) Err() error {
	if d.left--; d.left < 0 {
		return context.Canceled
	}
	return nil
}

// hostileValue has methods that must not be called.
type hostileValue struct{ N int }

func (hostileValue) String() string               { panic("String") }
func (hostileValue) Error() string                { panic("Error") }
func (hostileValue) MarshalJSON() ([]byte, error) { panic("MarshalJSON") }
func (hostileValue) MarshalText() ([]byte, error) { panic("MarshalText") }
func (hostileValue) Method() int                  { panic("Method") }

func TestNoMethodIsCalled(t *testing.T) {
	for _, text := range []string{"$nodes.A.output.n == 1", "exists($nodes.A.output.Method)", "$nodes.A.output == null", "!$nodes.A.output"} {
		_, err := evaluate(t, text, hostileValue{1})
		require.NoError(t, err, text)
	}
}

// TestScenarios runs the scenarios of the conformance list with texts as guards.
func TestScenarios(t *testing.T) {
	for _, row := range []struct {
		name   string
		when   string
		policy kahn.GuardPolicy
		output any
		want   kahn.Status
		err    error
	}{
		{"206 flag absent", "nodes.A.output.flag", 0, map[string]any{}, kahn.Completed, kahn.ErrNoValue},
		{"206 template, flag absent", "{{ nodes.A.output.flag }}", 0, map[string]any{}, kahn.Completed, kahn.ErrNoValue},
		{"207 null is a value", "nodes.A.output.flag", 0, map[string]any{"flag": nil}, kahn.Skipped, nil},
		{"207 true", "{{ nodes.A.output.flag }}", 0, map[string]any{"flag": true}, kahn.Completed, nil},
		{"207 the text false", "nodes.A.output.flag", 0, map[string]any{"flag": "false"}, kahn.Skipped, nil},
		{"208 malformed", "(((", 0, nil, kahn.Completed, kahn.ErrBadExpression},
		{"209 malformed, GuardErrors fail", "(((", kahn.GuardFail, nil, kahn.Failed, kahn.ErrBadExpression},
		{"209 mismatch, GuardErrors skip", "nodes.A.output < 1", kahn.GuardSkip, "x", kahn.Skipped, kahn.ErrType},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g kahn.Graph
				g.Evaluator = Evaluator{}
				g.Add(kahn.Node{ID: "A"}, kahn.Node{ID: "B", After: []string{"A"}, WhenExpr: row.when, GuardErrors: row.policy})
				var logs []string
				res, _ := kahn.Execute(t.Context(), &g, func(_ context.Context, s *kahn.Step) (any, error) { return row.output, nil },
					kahn.OnEvent(func(e kahn.Event) {
						if l, ok := e.Payload.(event.LogRecord); ok {
							logs = append(logs, fmt.Sprint(e.Node, " ", l.Level))
						}
					}))
				b, _ := res.Node("B")
				require.Equal(t, row.want, b.Status)
				require.ErrorIs(t, b.GuardErr, row.err)
				require.Equal(t, row.err == nil, b.GuardErr == nil)
				if row.err != nil {
					require.Equal(t, []string{"B WARN"}, logs)
				} else {
					require.Empty(t, logs)
				}
				g.StrictGuards = true
				_, err := g.Compile()
				require.Equal(t, row.when == "(((", errors.Is(err, kahn.ErrBadExpression))
			})
		})
	}
}

func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		"", "(((", "{{ nodes.A.output.flag }}", `$nodes["my-id"].output["a b"] in [1, 2.5, "x"]`, "1 < (1 < (1 < 2) < 3) < 4",
		"len($nodes.A.output) >= 9007199254740993 && !exists($trigger.x.y[0])", "$config.inner.deep == null ? $inputs.n : -1",
		"$nodes.A.output == $nodes.A.output", "\"\\u0000\" < '\\xff'", "1e308 < 0x7fffffffffffffff", "a.b.c(1)[::]", "{{{{", "}}'{{'",
	} {
		f.Add(text)
	}
	self := map[string]any{"flag": "false", "list": []any{1, uint64(math.MaxUint64), json.Number("1e400"), nil}, "raw": json.RawMessage(`{"a":[1]}`)}
	self["self"] = self
	var view kahn.View
	look(f, self, func(v kahn.View) { view = v })
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Evaluator{}.Parse(text)
		if err != nil {
			var at *SyntaxError
			if !errors.As(err, &at) && !errors.Is(err, ErrLimit) {
				t.Errorf("%q: %v", text, err)
			}
			if at != nil && strings.Contains(at.Message, "panics") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		value, err := e.Evaluate(t.Context(), view)
		if err != nil && !errors.Is(err, kahn.ErrNoValue) && !errors.Is(err, kahn.ErrType) && !errors.Is(err, ErrLimit) {
			t.Errorf("%q: %v", text, err)
		}
		again, errAgain := e.Evaluate(t.Context(), view)
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || kahn.Truthy(value) != kahn.Truthy(again) {
			t.Errorf("%q: %v, %v, then %v, %v", text, value, err, again, errAgain)
		}
	})
}
