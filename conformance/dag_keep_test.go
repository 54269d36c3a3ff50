package conformance_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestGraphKeepsEveryField declares, for each field of a Node and of an Edge, a node or an edge with only this field. Graphs store common
// and rare fields separately, so a field that is forgotten there would be lost.
func TestGraphKeepsEveryField(t *testing.T) {
	t.Parallel()
	each := func(of any, without ...string) (all []reflect.Value) {
		typ := reflect.TypeOf(of)
		for i := range typ.NumField() {
			if slices.Contains(without, typ.Field(i).Name) {
				continue
			}
			v := reflect.New(typ).Elem()
			something(t, v.Field(i))
			require.False(t, v.IsZero(), typ.Field(i).Name)
			all = append(all, v)
		}
		return append(all, reflect.New(typ).Elem())
	}
	// Functions are compared by identity, see sameParts.
	for _, v := range each(kahn.Node{}, "After", "In") {
		n := v.Interface().(kahn.Node)
		got := new(kahn.Graph).Add(kahn.Node{ID: "other"}, n, kahn.Node{ID: "third"}).Nodes()
		require.Len(t, got, 3)
		sameParts(t, v, reflect.ValueOf(got[1]))
		require.True(t, reflect.DeepEqual(kahn.Node{ID: "third"}, got[2]))
	}
	for _, v := range each(kahn.Edge{}) {
		e := v.Interface().(kahn.Edge)
		require.Equal(t, []kahn.Edge{{From: "a"}, e, {To: "b"}}, new(kahn.Graph).Connect(kahn.Edge{From: "a"}, e, kahn.Edge{To: "b"}).Edges())
		e.To = "n"
		require.Equal(t, []kahn.Edge{{From: "a", To: "n"}, e, {From: "c", To: "n"}},
			new(kahn.Graph).Add(kahn.Node{ID: "n", After: []string{"a"}, In: []kahn.Edge{e, {From: "c"}}}).Edges())
	}
}

// something returns a non-zero value of v's type.
func something(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
	case reflect.Struct:
		something(t, v.Field(0))
	case reflect.Interface:
		v.Set(reflect.ValueOf("x"))
	default:
		t.Fatalf("a field of kind %v", v.Kind())
	}
}

// sameParts compares structs that contain functions.
func sameParts(t *testing.T, want, got reflect.Value) {
	for i := range want.NumField() {
		name := want.Type().Field(i).Name
		if want.Field(i).Kind() == reflect.Func {
			require.Equal(t, want.Field(i).Pointer(), got.Field(i).Pointer(), name)
			continue
		}
		require.Equal(t, want.Field(i).Interface(), got.Field(i).Interface(), name)
	}
}

// TestPlanResolvesNodesOfItsOwn: the Defaults of a graph change the nodes of the plan, but not the nodes of the graph. Another graph of the same
// nodes can have other defaults.
func TestPlanResolvesNodesOfItsOwn(t *testing.T) {
	t.Parallel()
	build := func(d kahn.Defaults) (*kahn.Graph, *kahn.Plan) {
		g := &kahn.Graph{Defaults: d}
		g.Add(kahn.Node{ID: "plain"}, kahn.Node{ID: "second"}, kahn.Node{ID: "own", Timeout: time.Second, Retry: kahn.Retry{MaxAttempts: 2}},
			kahn.Node{ID: "other", Memo: "1"}, kahn.Node{ID: "none", Timeout: kahn.NoTimeout})
		p, err := g.Compile()
		require.NoError(t, err)
		return g, p
	}
	node := func(p *kahn.Plan, id string) kahn.Node {
		ref, ok := p.Ref(id)
		require.True(t, ok)
		return p.Node(ref)
	}
	g, p := build(kahn.Defaults{Timeout: time.Minute, Retry: kahn.Retry{MaxAttempts: 5}, GuardErrors: kahn.GuardFail})
	for id, want := range map[string]struct {
		timeout  time.Duration
		attempts int
	}{"plain": {time.Minute, 5}, "second": {time.Minute, 5}, "own": {time.Second, 2}, "other": {time.Minute, 5}, "none": {kahn.NoTimeout, 5}} {
		n := node(p, id)
		require.Equal(t, want.timeout, n.Timeout, id)
		require.Equal(t, want.attempts, n.Retry.MaxAttempts, id)
		require.Equal(t, kahn.GuardFail, n.GuardErrors, id)
	}
	require.Equal(t, "1", node(p, "other").Memo)
	require.Empty(t, node(p, "plain").Memo)
	for _, n := range g.Nodes() {
		require.Zero(t, n.GuardErrors)
		require.Equal(t, n.ID == "own", n.Retry.MaxAttempts != 0)
	}
	g.Defaults = kahn.Defaults{}
	q, err := g.Compile()
	require.NoError(t, err)
	require.Zero(t, node(q, "plain").Timeout)
	require.Zero(t, node(q, "plain").Retry.MaxAttempts)
	require.Equal(t, kahn.GuardAllow, node(q, "plain").GuardErrors)
	require.Equal(t, time.Minute, node(p, "plain").Timeout, "the first plan")
	_, err = p.Execute(context.Background(), func(context.Context, *kahn.Step) (any, error) { return nil, nil })
	require.NoError(t, err)
}

// If any field of the default policy changes, the next plan contains the change.
func TestChangedDefaultPolicyIsCompiled(t *testing.T) {
	t.Parallel()
	g := graph(after("a"))
	for _, change := range []func(r *kahn.Retry){
		func(r *kahn.Retry) { r.MaxAttempts = 2 },
		func(r *kahn.Retry) { r.InitialDelay = time.Second },
		func(r *kahn.Retry) { r.Multiplier = 3 },
		func(r *kahn.Retry) { r.MaxDelay = time.Minute },
		func(r *kahn.Retry) { r.Jitter = kahn.JitterNone },
		func(r *kahn.Retry) { r.MaxRetryAfter = time.Hour },
		func(r *kahn.Retry) { r.RetryOn = []kahn.CauseKind{} },
		func(r *kahn.Retry) { r.RetryOn = []kahn.CauseKind{kahn.CauseTimeout} },
	} {
		change(&g.Defaults.Retry)
		p, err := g.Compile()
		require.NoError(t, err)
		fresh := graph(after("a"))
		fresh.Defaults = g.Defaults
		require.Equal(t, compiled(t, fresh).Node(0).Retry, p.Node(0).Retry)
	}
}
