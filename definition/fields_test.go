package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// structs are the structs whose fields a document must be able to express.
var structs = []any{
	kahn.Graph{}, kahn.Defaults{}, kahn.Input{}, kahn.Group{}, kahn.Node{}, kahn.Edge{}, kahn.Map{}, kahn.Loop{}, kahn.Gate{}, kahn.CompensateBy{}, kahn.Port{}, kahn.Retry{}, kahn.Rate{},
}

// The exceptions, by struct. Some fields are code, which Encode rejects. Some belong to the host, like its step function. Others are empty in a
// graph's own nodes, since all edges are in one list.
var (
	code = map[string][]string{"Node": {"Do", "Test", "When", "Fallback", "Compensate", "MemoKey"}, "Loop": {"While", "Until"}, "Map": {"Key", "Estimate"}, "Gate": {"Check"}}
	host = map[string][]string{"Graph": {"Evaluator", "Schemas"}}
	list = map[string][]string{"Node": {"After", "In"}}
)

// dataFields returns the names of the fields of a struct that are data.
func dataFields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.IsExported() && !slices.Contains(code[t.Name()], f.Name) && !slices.Contains(host[t.Name()], f.Name) &&
			!slices.Contains(list[t.Name()], f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// fill sets all data fields to non-zero values. A field of an unknown kind fails the test.
func fill(t *testing.T, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Duration:
		*x = 90 * time.Second
		return
	case *kahn.Join:
		*x = kahn.AtLeast(2)
		return
	case **kahn.Graph:
		*x = new(kahn.Graph)
		(*x).Name = "inner"
		(*x).Add(kahn.Node{ID: "b"}, kahn.Node{ID: "c", After: []string{"b"}})
		return
	case *any:
		*x = map[string]any{"a": []any{int64(1), 1.5, "x", nil, true}}
		return
	case *map[string]any:
		*x = map[string]any{"n": int64(9007199254740993), "f": 2.0, "none": nil}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("b")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(3)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for _, name := range dataFields(v.Type()) {
			fill(t, v.FieldByName(name))
		}
	default:
		t.Fatalf("fill does not know %v", v.Type())
	}
}

// same compares the parts of two graphs.
func same(t *testing.T, want, got *kahn.Graph) {
	t.Helper()
	for _, name := range dataFields(reflect.TypeFor[kahn.Graph]()) {
		require.Equal(t, reflect.ValueOf(want).Elem().FieldByName(name).Interface(),
			reflect.ValueOf(got).Elem().FieldByName(name).Interface(), name)
	}
	require.Equal(t, len(want.Nodes()), len(got.Nodes()))
	for i, n := range want.Nodes() {
		m := got.Nodes()[i]
		require.Equal(t, n.Sub == nil, m.Sub == nil)
		if n.Sub != nil {
			same(t, n.Sub, m.Sub)
		}
		n.Sub, m.Sub = nil, nil
		require.Equal(t, n, m)
	}
	require.Equal(t, want.Edges(), got.Edges())
}

// Encode and Decode keep every field of a graph.
func TestEveryFieldSurvives(t *testing.T) {
	var g kahn.Graph
	fill(t, reflect.ValueOf(&g).Elem())
	var n kahn.Node
	fill(t, reflect.ValueOf(&n).Elem())
	var e kahn.Edge
	fill(t, reflect.ValueOf(&e).Elem())
	e.From, e.To = "a", "b"
	for _, s := range []any{g.Defaults, g.Groups[0], n, e, *n.Map, *n.Loop, *n.Gate, n.Ports[0], n.Retry} {
		for _, name := range dataFields(reflect.TypeOf(s)) {
			require.False(t, reflect.ValueOf(s).FieldByName(name).IsZero(), "%T.%s is not filled", s, name)
		}
	}
	back := e // this edge leads to an earlier node, so Encode writes it in the list "edges"
	back.From, back.To = "b", "a"
	g.Add(kahn.Node{ID: "a"}, n).Connect(e, back)

	text, err := Encode(&g)
	require.NoError(t, err)
	again, err := Decode(text, Limits{})
	require.NoError(t, err)
	same(t, &g, again)
}

// The golden file has every field.
func TestGoldenFileIsComplete(t *testing.T) {
	text, err := os.ReadFile("testdata/full.json")
	require.NoError(t, err)
	root, err := Parse(text, Limits{})
	require.NoError(t, err)
	doc, err := NewDocument(root, Limits{})
	require.NoError(t, err)
	g := doc.Graph
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Schedule]()) {
		require.True(t, f.Name == "Every" || !reflect.ValueOf(doc.Schedule).Elem().FieldByIndex(f.Index).IsZero(), "testdata/full.json does not show Schedule.%s", f.Name)
	}
	shown := map[string]bool{}
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if g, ok := v.Interface().(*kahn.Graph); ok && g != nil {
				look(reflect.ValueOf(g.Nodes()))
				look(reflect.ValueOf(g.Edges()))
			}
			if !v.IsNil() {
				look(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				look(v.Index(i))
			}
		case reflect.Struct:
			for _, name := range dataFields(v.Type()) {
				if f := v.FieldByName(name); !f.IsZero() {
					shown[v.Type().Name()+"."+name] = true
					look(f)
				}
			}
		}
	}
	look(reflect.ValueOf(g))
	for _, s := range structs {
		for _, name := range dataFields(reflect.TypeOf(s)) {
			full := reflect.TypeOf(s).Name() + "." + name
			require.True(t, shown[full], "testdata/full.json does not show %s", full)
		}
	}
}

// Encode rejects code, and names the node and the field.
func TestEncodeRefusesCode(t *testing.T) {
	refused := func(of reflect.Value, n *kahn.Node, name, path string) {
		f := of.FieldByName(name)
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
		var g kahn.Graph
		_, err := Encode(g.Add(kahn.Node{ID: "m"}, *n))
		require.ErrorIs(t, err, ErrNotData)
		var p *Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, []string{"n", name, path}, []string{p.Node, p.Field, p.Path})
	}
	for _, name := range code["Node"] {
		n := kahn.Node{ID: "n"}
		refused(reflect.ValueOf(&n).Elem(), &n, name, "$.nodes[1]")
	}
	for _, name := range code["Loop"] {
		n := kahn.Node{ID: "n", Loop: new(kahn.Loop)}
		refused(reflect.ValueOf(n.Loop).Elem(), &n, name, "$.nodes[1].loop")
	}
	for _, s := range structs { // no other field holds code
		typ := reflect.TypeOf(s)
		for _, name := range dataFields(typ) {
			f, _ := typ.FieldByName(name)
			require.NotEqual(t, reflect.Func, f.Type.Kind(), "%v.%s", typ, name)
		}
	}
}

// jsonSchema is the part of the schema that the tests below read.
type jsonSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Additional *bool                      `json:"additionalProperties"`
	Const      any                        `json:"const"`
	Text       string                     `json:"description"`
	OneOf      []jsonSchema               `json:"oneOf"`
	AnyOf      []jsonSchema               `json:"anyOf"`
	Defs       map[string]jsonSchema      `json:"$defs"`
}

// values returns the alternatives that are single values, with a description.
func (s jsonSchema) values() (list []string) {
	for _, x := range append(s.OneOf, s.AnyOf...) {
		if value, ok := x.Const.(string); ok && x.Text != "" {
			list = append(list, value)
		}
	}
	return list
}

func readSchema(t *testing.T) jsonSchema {
	var s jsonSchema
	require.NoError(t, json.Unmarshal(Schema(), &s))
	return s
}

func fieldNames[T any](r *record[T]) (names []string) {
	for _, f := range r.fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// The published schema has exactly the fields that Decode accepts.
func TestSchemaHasEveryField(t *testing.T) {
	s := readSchema(t)
	defs := s.Defs
	check := func(name string, s jsonSchema, names, required []string) {
		t.Helper()
		require.Equal(t, names, slices.Sorted(maps.Keys(s.Properties)), name)
		require.ElementsMatch(t, required, s.Required, name)
		require.True(t, s.Additional != nil && !*s.Additional, name)
	}
	check("schedule", defs["schedule"], fieldNames(&scheduleRecord), scheduleRecord.required)
	check("document", s, fieldNames(&documentRecord), documentRecord.required)
	check("graph", defs["graph"], fieldNames(&graphRecord), graphRecord.required)
	check("defaults", defs["defaults"], fieldNames(&defaultsRecord), defaultsRecord.required)
	check("input", defs["input"], fieldNames(&inputRecord), inputRecord.required)
	check("group", defs["group"], fieldNames(&groupRecord), groupRecord.required)
	check("node", defs["node"], fieldNames(&nodeRecord), nodeRecord.required)
	check("map", defs["map"], fieldNames(&mapRecord), mapRecord.required)
	check("loop", defs["loop"], fieldNames(&loopRecord), loopRecord.required)
	check("gate", defs["gate"], fieldNames(&gateRecord), gateRecord.required)
	check("rate", defs["rate"], fieldNames(&rateRecord), rateRecord.required)
	check("port", defs["port"], fieldNames(&portRecord), portRecord.required)
	check("retry", defs["retry"], fieldNames(&retryRecord), retryRecord.required)
	check("edge", defs["edge"], fieldNames(&edgeRecord), edgeRecord.required)
	check("after", defs["after_item"].OneOf[1], fieldNames(afterRecord), afterRecord.required)
	check("next", defs["next_item"].OneOf[1], fieldNames(nextRecord), nextRecord.required)
	check("branches", defs["branch_item"].OneOf[1], fieldNames(branchRecord), branchRecord.required)
}

// The published schema has exactly the enum values that Decode accepts.
func TestSchemaHasEveryValue(t *testing.T) {
	s := readSchema(t)
	property := func(def, name string) jsonSchema {
		var p jsonSchema
		require.NoError(t, json.Unmarshal(s.Defs[def].Properties[name], &p))
		return p
	}
	for name, row := range map[string]struct{ want, got []string }{
		"missed":              {[]string{"latest", "none", "all"}, property("schedule", "missed").values()},
		"overlap":             {[]string{"skip", "allow"}, property("schedule", "overlap").values()},
		"skip_mode":           {spellings[machine.SkipMode](), s.Defs["skip_mode"].values()},
		"on_upstream_failure": {spellings[machine.UpstreamPolicy](), s.Defs["on_upstream_failure"].values()},
		"guard_errors":        {spellings[kahn.GuardPolicy](), s.Defs["guard_errors"].values()},
		"cause":               {append(spellings[kahn.CauseKind](), "provider_error", "contract_violated"), s.Defs["cause"].values()},
		"handling":            {spellings[kahn.Handling](), property("node", "handling").values()},
		"jitter":              {spellings[kahn.Jitter](), property("retry", "jitter").values()},
		"no_match":            {spellings[kahn.NoMatch](), property("node", "no_match").values()},
		"moderation":          {spellings[kahn.Moderation](), property("node", "moderation").values()},
		"on_timeout":          {spellings[kahn.GateTimeout](), property("gate", "on_timeout").values()},
		"on_limit":            {spellings[kahn.LoopLimit](), property("loop", "on_limit").values()},
		"outcome":             {spellings[kahn.On](), property("edge", "outcome").values()},
		"join":                {spellings[kahn.Join](), slices.Insert(property("node", "join").values(), 2, "at_least(k)")},
	} {
		require.Equal(t, row.want, row.got, name)
	}
}

// Encode reports each Go value that is not data, with its place.
func TestEncodeRefusesWhatIsNotData(t *testing.T) {
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	for name, row := range map[string]struct {
		node kahn.Node
		kind ErrorKind
		path string
	}{
		"struct":             {kahn.Node{ID: "n", Config: struct{ A int }{1}}, ErrNotData, "$.nodes[0].config"},
		"channel inside":     {kahn.Node{ID: "n", Params: map[string]any{"x": []any{1, make(chan int)}}}, ErrNotData, "$.nodes[0].params.x[1]"},
		"bytes":              {kahn.Node{ID: "n", Default: []byte("x")}, ErrNotData, "$.nodes[0].default"},
		"keys of numbers":    {kahn.Node{ID: "n", Config: map[int]string{1: "x"}}, ErrNotData, "$.nodes[0].config"},
		"not a number":       {kahn.Node{ID: "n", Config: nan}, ErrValue, "$.nodes[0].config"},
		"no json.Number":     {kahn.Node{ID: "n", Config: json.Number("01")}, ErrValue, "$.nodes[0].config"},
		"contract":           {kahn.Node{ID: "n", InputSchema: noContract{}}, ErrNotData, "$.nodes[0].input_schema"},
		"no schema":          {kahn.Node{ID: "n", OutputSchema: "object"}, ErrType, "$.nodes[0].output_schema"},
		"no id":              {kahn.Node{}, ErrMissing, "$.nodes[0]"},
		"control character":  {kahn.Node{ID: "a\x00b"}, ErrValue, "$.nodes[0].id"},
		"markup":             {kahn.Node{ID: "<b>"}, ErrValue, "$.nodes[0].id"},
		"broken text":        {kahn.Node{ID: "n", Label: "\xff"}, ErrEncoding, "$.nodes[0].label"},
		"broken text inside": {kahn.Node{ID: "n", Config: map[string]any{"\xff": 1}}, ErrEncoding, `$.nodes[0].config["\xff"]`},
		"no such value":      {kahn.Node{ID: "n", Join: 99}, ErrValue, "$.nodes[0].join"},
		"negative duration":  {kahn.Node{ID: "n", Timeout: -2}, ErrValue, "$.nodes[0].timeout"},
		"negative count":     {kahn.Node{ID: "n", Retry: kahn.Retry{MaxAttempts: -1}}, ErrValue, "$.nodes[0].retry.max_attempts"},
		"cause that is none": {kahn.Node{ID: "n", Retry: kahn.Retry{RetryOn: []kahn.CauseKind{0}}}, ErrValue, "$.nodes[0].retry.retry_on"},
		"unknown node":       {kahn.Node{ID: "n", After: []string{"m"}}, ErrReference, "$.nodes[0].after[0].from"},
	} {
		t.Run(name, func(t *testing.T) {
			var g kahn.Graph
			_, err := Encode(g.Add(row.node))
			require.ErrorIs(t, err, row.kind)
			var p *Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, row.path, p.Path)
			require.Equal(t, row.node.ID, p.Node)
		})
	}
	t.Run("what contains itself", func(t *testing.T) {
		var g kahn.Graph
		_, err := Encode(g.Add(kahn.Node{ID: "n", Config: cyclic}))
		require.ErrorIs(t, err, ErrNotData)
		require.Less(t, len(err.Error()), 1000)
	})
	t.Run("a sub-graph that contains itself", func(t *testing.T) {
		var g kahn.Graph
		g.Add(kahn.Node{ID: "n", Sub: &g}, kahn.Node{ID: "m", Sub: &g})
		_, err := Encode(&g)
		require.ErrorIs(t, err, ErrNotData)
		require.Less(t, len(err.Error()), 10_000)
	})
	t.Run("code in a sub-graph", func(t *testing.T) {
		var g, sub kahn.Graph
		sub.Add(kahn.Node{ID: "m", When: func(kahn.View) (bool, error) { return true, nil }})
		_, err := Encode(g.Add(kahn.Node{ID: "n", Sub: &sub}))
		require.ErrorIs(t, err, ErrNotData)
		var p *Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, []string{"n/m", "When", "$.nodes[0].graph.nodes[0]"}, []string{p.Node, p.Field, p.Path})
	})
	t.Run("merge strategy", func(t *testing.T) {
		var g kahn.Graph
		g.RegisterMerge("mine", func([]kahn.Contribution) (any, error) { return nil, nil })
		_, err := Encode(&g)
		require.ErrorIs(t, err, ErrNotData)
		require.ErrorContains(t, err, `"mine"`)
	})
	t.Run("an id twice", func(t *testing.T) {
		var g kahn.Graph
		_, err := Encode(g.Add(kahn.Node{ID: "n"}, kahn.Node{ID: "n"}))
		require.ErrorIs(t, err, ErrDuplicate)
	})
}

type noContract struct{}

func (noContract) Check(any) []kahn.Violation { return nil }

var nan = func() float64 { z := 0.0; return z / z }()

// Encode writes Go values of any type that has a JSON form. Decode returns them with the Go types of JSON values.
func TestEncodeGoValues(t *testing.T) {
	type name string
	var g kahn.Graph
	g.Add(kahn.Node{ID: "n", Config: map[name]any{
		"int8": int8(-3), "uint": uint64(1 << 63), "float32": float32(0.5), "named": name("x"), "strings": []string{"a", "b"},
		"map": map[string]int{"z": 1, "a": 2}, "array": [2]bool{true, false}, "number": json.Number("12"), "nil map": map[string]any(nil),
		"decimal": json.Number("1.50"), "duration": time.Second, "nothing": nil,
	}})
	text, err := Encode(&g)
	require.NoError(t, err)
	again, err := Decode(text, Limits{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"int8": int64(-3), "uint": json.Number("9223372036854775808"), "float32": 0.5, "named": "x", "strings": []any{"a", "b"},
		"map": map[string]any{"z": int64(1), "a": int64(2)}, "array": []any{true, false}, "number": int64(12), "nil map": map[string]any{},
		"decimal": 1.5, "duration": int64(time.Second), "nothing": nil,
	}, again.Nodes()[0].Config)
	twice, err := Encode(again)
	require.NoError(t, err)
	require.Equal(t, string(text), string(twice))
}

// An Error lists at most 100 problems, and counts the others.
func TestManyProblems(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"version": 1, "nodes": [`)
	for i := range 150 {
		fmt.Fprintf(&b, `{"id": "n%d", "x": 1},`, i)
	}
	b.WriteString(`{"id": "last"}]}`)
	_, err := Decode([]byte(b.String()), Limits{})
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Problems, 100)
	require.Equal(t, 50, e.More)
	require.True(t, strings.HasSuffix(err.Error(), "and 50 more"))
	require.True(t, errors.Is(err, ErrUnknownField))
}
