package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

type object = map[string]any

func check(t testing.TB, schema, value any) []kahn.Violation {
	t.Helper()
	c, err := Compiler{}.Compile(schema)
	require.NoError(t, err)
	return c.Check(value)
}

// paths returns the paths of violations.
func paths(list []kahn.Violation) (places []string) {
	for _, v := range list {
		places = append(places, v.Path)
	}
	return places
}

type order struct {
	ID    int64   `json:"id"`
	Items []item  `json:"items"`
	Note  *string `json:"note,omitempty"`
}

type item struct {
	Name string  `json:"a/b"`
	Cost float64 `json:"cost"`
}

func TestValuesByTheirJSON(t *testing.T) {
	schema := object{
		"type": "object", "required": []string{"id", "items"},
		"properties": object{
			"id": object{"type": "integer", "minimum": int64(9007199254740993)},
			"items": object{"type": "array", "minItems": 1, "items": object{"type": "object",
				"properties": object{"a/b": object{"type": "string", "pattern": "^[a-z]+$"}, "cost": object{"exclusiveMinimum": 0}}}},
			"note": object{"type": "string"},
		},
		"additionalProperties": false,
	}
	for _, c := range []struct {
		name  string
		value any
		want  []string
	}{
		{"a struct", order{ID: 9007199254740993, Items: []item{{"x", 1}}}, nil},
		{"a pointer", &order{ID: math.MaxInt64, Items: []item{{"x", 1}}}, nil},
		{"a map", object{"id": uint64(math.MaxUint64), "items": []object{{"a/b": "x"}}, "note": "n"}, nil},
		{"a typed map", map[string]json.RawMessage{"id": json.RawMessage("9007199254740993"), "items": json.RawMessage("[{}]")}, nil},
		{"one below 2^53+1", order{ID: 9007199254740992, Items: []item{{"x", 1}}}, []string{"/id"}},
		{"json.Number", object{"id": json.Number("90071992547409930000000000"), "items": []any{object{}}}, nil},
		{"json.Number below", object{"id": json.Number("9007199254740992"), "items": []any{object{}}}, []string{"/id"}},
		{"an integer by value", object{"id": json.Number("9007199254740994.0"), "items": []any{object{}}}, nil},
		{"several", order{ID: 1, Items: []item{{"x", 1}, {"X", -1}}}, []string{"/id", "/items/1/a~1b", "/items/1/cost"}},
		{"missing", object{"id": int64(math.MaxInt64)}, []string{"/items"}},
		{"unknown", object{"id": int64(math.MaxInt64), "items": []any{1}, "x": 1}, []string{"/items/0", "/x"}},
		{"null", nil, []string{""}},
		{"nil pointer", (*order)(nil), []string{""}},
		{"NaN", object{"id": math.NaN()}, []string{""}},
		{"no JSON", object{"id": func() {}}, []string{""}},
		{"huge exponent", object{"id": json.Number("1e1000000000"), "items": []any{object{}}}, []string{"/id"}},
		{"tiny exponent", object{"id": 1, "items": []any{json.Number("1e-99999999999999999999")}}, []string{"/items/0"}},
		{"many digits", object{"id": json.Number(strings.Repeat("9", 5000))}, []string{"/id"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := check(t, schema, c.value)
			require.Equal(t, c.want, paths(got), "%v", got)
			for _, v := range got {
				require.NotEmpty(t, v.Message)
			}
		})
	}
	require.Contains(t, check(t, schema, object{"id": int64(math.MaxInt64)})[0].String(), "items")
}

func TestSpellings(t *testing.T) {
	for _, schema := range []any{`{"type": "string"}`, []byte(`{"type": "string"}`), json.RawMessage(` {"type": "string"} `), object{"type": "string"},
		map[string]string{"type": "string"}, struct {
			Type string `json:"type"`
		}{"string"}} {
		require.Empty(t, check(t, schema, "x"))
		require.Len(t, check(t, schema, 1), 1)
	}
	require.Empty(t, check(t, true, 1))
	require.Len(t, check(t, false, 1), 1)
	draft4 := `{"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": true}`
	require.Len(t, check(t, draft4, 3), 1)
	require.Empty(t, check(t, draft4, 4))
}

func TestBadSchemas(t *testing.T) {
	var deep any = true
	for range 300 {
		deep = object{"not": deep}
	}
	bottomless := object{}
	bottomless["not"] = bottomless
	wide := object{}
	for i := range maxSchemaParts {
		wide[fmt.Sprint(i)] = true
	}
	laughs := object{"z": true}
	for i := range 40 {
		next := "#/$defs/z"
		if i < 39 {
			next = fmt.Sprintf("#/$defs/%d", i+1)
		}
		laughs[fmt.Sprint(i)] = object{"anyOf": []object{{"$ref": next}, {"$ref": next}}}
	}
	chain := object{"200": true}
	for i := range 200 {
		chain[fmt.Sprint(i)] = object{"$ref": fmt.Sprintf("#/$defs/%d", i+1)}
	}
	var invalid *Error
	for _, c := range []struct {
		name   string
		schema any
		want   func(error) bool
	}{
		{"wrong type", object{"properties": object{"a": object{"type": "strin"}}}, func(err error) bool {
			return errors.As(err, &invalid) && invalid.Violations[0].Path == "/properties/a/type"
		}},
		{"not a schema", 7, func(err error) bool { return errors.As(err, &invalid) }},
		{"bad pattern", object{"pattern": "("}, func(err error) bool { return errors.As(err, &invalid) }},
		{"look-ahead", object{"pattern": "(?=x)"}, func(err error) bool { return errors.As(err, &invalid) }},
		{"unknown anchor", object{"$ref": "#/$defs/none"}, func(err error) bool { return errors.As(err, &invalid) }},
		{"remote", object{"$ref": "https://example.com/schema.json"}, func(err error) bool { return errors.Is(err, ErrRemote) }},
		{"file", object{"$ref": "file:///etc/passwd"}, func(err error) bool { return errors.Is(err, ErrRemote) }},
		{"relative", object{"$ref": "other.json"}, func(err error) bool { return errors.Is(err, ErrRemote) }},
		{"dialect", object{"$schema": "https://example.com/dialect"}, func(err error) bool { return errors.Is(err, ErrRemote) }},
		{"moved base", object{"$id": "https://example.com/", "$ref": "x"}, func(err error) bool { return errors.Is(err, ErrRemote) }},
		{"deep", deep, func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"deep text", strings.Repeat(`{"not":`, 9000) + "true" + strings.Repeat("}", 9000), func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"deeper text", strings.Repeat(`{"not":`, 100_000), func(err error) bool { return err != nil }},
		{"contains itself", bottomless, func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"wide", object{"properties": wide}, func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"long pattern", object{"pattern": strings.Repeat("a", 2000)}, func(err error) bool { return errors.As(err, &invalid) }},
		{"exploding pattern", object{"pattern": "((((a{99}){99}){99}){99})"}, func(err error) bool { return err != nil }},
		{"billion laughs", object{"$defs": laughs, "$ref": "#/$defs/0"}, func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"long chain", object{"$defs": chain, "$ref": "#/$defs/0"}, func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"number", `{"minimum": 1e999999999}`, func(err error) bool { return errors.Is(err, ErrLimit) }},
		{"no JSON", func() {}, func(err error) bool { return err != nil }},
		{"broken text", `{"type":`, func(err error) bool { return err != nil }},
		{"two texts", `{} {}`, func(err error) bool { return err != nil }},
		{"empty text", ``, func(err error) bool { return err != nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			contract, err := Compiler{}.Compile(c.schema)
			if contract != nil || err == nil || !c.want(err) || time.Since(start) > 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			if err != nil && (strings.Contains(err.Error(), "root:") || len(err.Error()) > 2000) {
				t.Errorf("error %.3000v", err)
			}

			var g kahn.Graph
			g.Schemas = Compiler{}
			g.Add(kahn.Node{ID: "store", OutputSchema: c.schema})
			_, err = g.Compile()
			require.ErrorIs(t, err, kahn.ErrBadSchema)
			require.ErrorContains(t, err, `"store"`)
		})
	}
}

// TestRecursion: a schema may refer to itself. Validation ends where the value ends, and stops if the schema would apply to the same value
// without end.
func TestRecursion(t *testing.T) {
	tree := object{"type": "object", "properties": object{"left": object{"$ref": "#"}, "right": object{"$ref": "#"}}, "additionalProperties": false}
	require.Empty(t, check(t, tree, object{"left": object{"right": object{}}}))
	require.Equal(t, []string{"/left/right/x"}, paths(check(t, tree, object{"left": object{"right": object{"x": 1}}})))
	require.NotEmpty(t, check(t, object{"$ref": "#"}, 1))
	require.NotEmpty(t, check(t, object{"$defs": object{"a": object{"$ref": "#/$defs/b"}, "b": object{"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1))
}

// TestHostileValues: a value that is too large or contains itself is a violation.
func TestHostileValues(t *testing.T) {
	var deep any
	for range 100_000 {
		deep = []any{deep}
	}
	type list struct{ Next *list }
	var chain *list
	for range 1_000_000 {
		chain = &list{chain}
	}
	loop := &list{}
	loop.Next = loop
	self := object{}
	self["self"] = self
	shared := any(1)
	for range 60 {
		shared = []any{shared, shared}
	}
	for name, value := range map[string]any{"deep": deep, "chain": chain, "loop": loop, "self": self, "shared": shared,
		"raw": json.RawMessage(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))} {
		require.Len(t, check(t, true, value), 1, name)
	}

	// Every level applies the schema to the next level twice.
	twice := object{"properties": object{"x": object{"allOf": []object{{"$ref": "#"}, {"$ref": "#"}}}}}
	value := object{}
	for range 100 {
		value = object{"x": value}
	}
	start := time.Now()
	got := check(t, twice, value)
	require.Len(t, got, 1)
	require.Contains(t, got[0].Message, "applications")
	require.Less(t, time.Since(start), 30*time.Second)

	// These schemas and values have the maximum depth.
	defs := object{"49": object{"properties": object{"x": object{"$ref": "#"}}}}
	for i := range 49 {
		defs[fmt.Sprint(i)] = object{"$ref": fmt.Sprintf("#/$defs/%d", i+1)}
	}
	value = object{}
	for range maxDepth/2 - 1 {
		value = object{"x": value}
	}
	delete(defs, "0")
	require.Empty(t, check(t, object{"$defs": defs, "$ref": "#/$defs/3"}, value))
}

// TestConcurrentUse: a contract may be used by many goroutines.
func TestConcurrentUse(t *testing.T) {
	c, err := Compiler{}.Compile(object{"type": "array", "items": object{"type": "integer"}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				got := c.Check([]any{1, i, "x"})
				if len(got) != 1 || got[0].Path != "/2" {
					t.Errorf("got %v", got)
				}
			}
		})
	}
	wg.Wait()
}

// TestOrder: violations are sorted by place, not by map iteration order, and their number is bounded.
func TestOrder(t *testing.T) {
	value := object{}
	for i := range 300 {
		value[fmt.Sprintf("%03d", i)] = i
	}
	got := check(t, object{"additionalProperties": object{"type": "string"}}, value)
	require.Len(t, got, maxViolations+1)
	require.Equal(t, "/000", got[0].Path)
	require.Equal(t, "/099", got[99].Path)
	require.Equal(t, "and 200 more", got[100].Message)
}

func TestInARun(t *testing.T) {
	var g kahn.Graph
	g.Schemas = Compiler{}
	g.Add(
		kahn.Node{ID: "A", OutputSchema: object{"type": "integer", "maximum": 1}, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: -1, RetryOn: []kahn.CauseKind{kahn.CauseContractOutput}}},
		kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Param: "n"}}, InputSchema: object{"properties": object{"n": object{"minimum": 2}}}},
	)
	var events []string
	res, err := kahn.Execute(t.Context(), &g, func(_ context.Context, s *kahn.Step) (any, error) { return 4 - s.Attempt()*2 + s.Attempt()/2, nil },
		kahn.OnEvent(func(e kahn.Event) {
			if e.Type == event.ContractViolated {
				events = append(events, e.String())
			}
		}))
	var violated *kahn.ContractError
	require.ErrorAs(t, err, &violated)
	require.Equal(t, event.PhaseInput, violated.Phase)
	require.Equal(t, "/n", violated.Violations[0].Path)
	a, _ := res.Node("A")
	require.Equal(t, 2, a.Attempts)
	require.Len(t, events, 2, "%v", events)
}

func FuzzSchema(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type": "object", "required": ["a"]}`, `{"a": 1}`}, {`{"$ref": "#"}`, `[]`}, {`{"pattern": "^(a+)+$"}`, `"aaaaaaaaaaaaaaaaaaaa!"`},
		{`{"$dynamicRef": "#x", "$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}}`, `[[[1]]]`}, {`{"multipleOf": 0.01}`, `1e300`},
		{`{"unevaluatedProperties": false, "if": true, "then": {"properties": {"a": true}}}`, `{"a": null, "b": {}}`},
		{`{"uniqueItems": true, "contains": {"const": 1.0}, "maxContains": 1}`, `[1, 1.0, "1"]`}, {`false`, `null`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		if len(schema) > 10_000 || len(value) > 10_000 {
			return
		}
		c, err := Compiler{}.Compile(schema)
		if err != nil {
			return
		}
		first, again := c.Check(json.RawMessage(value)), c.Check(json.RawMessage(value))
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Errorf("%v, then %v", first, again)
		}
	})
}
