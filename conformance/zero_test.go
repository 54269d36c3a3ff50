package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// Zero values of exported types are usable, or are refused with an error.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		&kahn.Result{}, &kahn.NodeResult{}, &kahn.Snapshot{}, &kahn.Graph{}, &kahn.Event{}, &kahn.Runner{}, &kahn.Cause{}, &event.SkipReason{},
		&kahn.IdempotencyStore{}, &kahn.NodeError{}, &kahn.RunError{}, &kahn.UpstreamError{}, &kahn.PanicError{}, &kahn.GraphError{},
		&machine.TransitionError{}, &kahn.MapError{}, &kahn.ContractError{}, &kahn.ModerationError{}, &event.GapError{},
		&kahn.Assertion{}, &kahn.TestSummary{}, &reactive.Scope{}, kahn.Retry{}, kahn.Join(0), kahn.Violation{},
		&kahn.GraphError{Problems: []error{nil}}, &kahn.RunError{Errs: []error{nil}}, &kahn.MapError{Errs: []error{nil}},
	} {
		rv := reflect.ValueOf(v)
		for i := range rv.NumMethod() {
			switch rv.Type().String() + "." + rv.Type().Method(i).Name {
			case "*kahn.Result.EdgeVisits", "*kahn.Runner.Rings", "*kahn.Runner.Watchers", "*kahn.Runner.Shared", "*kahn.Runner.SharedSteps": // for tests
				continue
			}
			callWithZeros(t, rv, i)
		}
	}
}

// The methods of a nil pointer that was returned with an error behave as for the zero value.
func TestNilPointers(t *testing.T) {
	t.Parallel()
	const forStates = "*kahn.Plan.Edge *kahn.Plan.ID *kahn.Plan.Node *kahn.Plan.Tier *kahn.Plan.Sub *kahn.Plan.Route *kahn.Plan.SkipReason " +
		"*kahn.Plan.Check *kahn.Plan.Inputs *kahn.Plan.Evaluate *kahn.Plan.Conclude *kahn.Plan.RunStatus *kahn.Plan.View "
	const ofTests = "*kahn.Result.EdgeVisits *kahn.Plan.AncestrySteps *kahn.Plan.IsAncestor *kahn.Plan.ParamSteps *kahn.Plan.SideSteps " +
		"*kahn.Plan.Standings *kahn.Plan.Within "
	outOfRange := strings.Fields(forStates + ofTests)
	for _, zero := range []any{new(kahn.Result), compiled(t, new(kahn.Graph)), new(kahn.Snapshot), new(kahn.TestSummary)} {
		rv, none := reflect.ValueOf(zero), reflect.Zero(reflect.TypeOf(zero))
		for i := range rv.NumMethod() {
			name := rv.Type().String() + "." + rv.Type().Method(i).Name
			if slices.Contains(outOfRange, name) {
				continue // any Ref is out of range for a plan without nodes
			}
			want, got := callWithZeros(t, rv, i), callWithZeros(t, none, i)
			for j := range min(len(want), len(got)) {
				w, g := want[j].Interface(), got[j].Interface()
				if werr, is := w.(error); is {
					w, g = werr.Error(), fmt.Sprint(g)
				}
				if want[j].Kind() != reflect.Func && name != "*kahn.Snapshot.UnmarshalJSON" && !reflect.DeepEqual(w, g) {
					t.Errorf("%s of nil returns %v, of the zero value %v", name, g, w)
				}
			}
		}
	}
	var none *kahn.Result
	if _, err := kahn.Output[int](none, "A"); !errors.Is(err, kahn.ErrUnknownNode) {
		t.Errorf("Output of a nil Result: %v", err)
	}
	if none.Plan() != nil || none.Snapshot() != nil || none.Len() != 0 {
		t.Error("a nil Result has nodes")
	}
	if got := kahntest.Statuses(none); got != "" {
		t.Errorf("Statuses of a nil Result: %q", got)
	}
	if err := new(kahn.Snapshot).UnmarshalJSON([]byte(`{"version":1}`)); err != nil {
		t.Error(err)
	}
	if err := (*kahn.Snapshot)(nil).UnmarshalJSON([]byte(`{"version":1}`)); !errors.Is(err, kahn.ErrBadValue) {
		t.Errorf("a nil Snapshot that is decoded: %v", err)
	}
}

// callWithZeros calls a method with the zero values of its parameters, and ranges over the returned sequences. The method must not panic.
func callWithZeros(t *testing.T, rv reflect.Value, i int) (out []reflect.Value) {
	t.Helper()
	name, method := rv.Type().String()+"."+rv.Type().Method(i).Name, rv.Method(i).Type()
	var args []reflect.Value
	for j := range method.NumIn() {
		if arg := reflect.Zero(method.In(j)); !method.IsVariadic() || j < method.NumIn()-1 {
			args = append(args, arg)
		}
	}
	out = survives(t, name, rv.Method(i), args)
	for _, x := range out { // the code of a sequence runs when it is ranged over
		if x.Kind() == reflect.Func && x.Type().NumIn() == 1 && x.Type().NumOut() == 0 {
			yield := reflect.MakeFunc(x.Type().In(0), func([]reflect.Value) []reflect.Value { return []reflect.Value{reflect.ValueOf(false)} })
			survives(t, name+" ranged over", x, []reflect.Value{yield})
		}
	}
	return out
}

func survives(t *testing.T, name string, f reflect.Value, args []reflect.Value) []reflect.Value {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s panics: %v", name, p)
		}
	}()
	return f.Call(args)
}

func TestNothingAtAll(t *testing.T) {
	t.Parallel()
	ctx, g := t.Context(), graph(after("A"))
	var none context.Context // a variable, since linters refuse a literal nil
	run := func(opts ...kahn.Option) func() error {
		return func() error {
			_, err := kahn.Execute(ctx, g, nop, opts...)
			return err
		}
	}
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"no graph":                   {func() error { _, err := (*kahn.Graph)(nil).Compile(); return err }, kahn.ErrNoGraph},
		"zero Plan":                  {func() error { _, err := new(kahn.Plan).Execute(ctx, nop); return err }, kahn.ErrNoGraph},
		"zero Plan of a State":       {func() error { _, err := kahn.NewState(&kahn.Plan{}); return err }, kahn.ErrNoGraph},
		"estimates of nothing":       {run(kahn.Estimates(nil)), nil},
		"zero Result as an estimate": {run(kahn.Estimates(&kahn.Result{})), nil},
		"zero Snapshot":              {run(kahn.Resume(&kahn.Snapshot{})), kahn.ErrGraphChanged},
		"no Snapshot":                {run(kahn.Resume(nil)), kahn.ErrBadOption},
		"zero Memo":                  {run(&kahn.Memo{}), nil},
		"zero Test":                  {run(kahn.TestMode{}), nil},
		"no middleware":              {run(kahn.Use()), nil},
		"no functions":               {run(kahn.Random(nil), kahn.CloneInputs(nil), kahn.Inputs(nil), kahn.EarlySignals(nil)), nil},
		"Output of nothing":          {func() error { _, err := kahn.Output[int](&kahn.Result{}, "A"); return err }, kahn.ErrUnknownNode},
		"Shutdown without a context": {func() error {
			var rn kahn.Runner
			if _, err := rn.Start(ctx, graph(kahn.Node{ID: "A", Do: nop}), nil); err != nil {
				return err
			}
			err := rn.Shutdown(none)
			return errors.Join(err, rn.Shutdown(ctx))
		}, kahn.ErrNoContext},
		"WaitFor without a context": {func() error {
			r, err := kahn.Start(ctx, g, nop)
			if err != nil {
				return err
			}
			_, err = r.WaitFor(none, "A")
			for id, status := range r.Watch(none) {
				t.Errorf("%s is %v", id, status)
			}
			<-r.Done()
			return err
		}, kahn.ErrNoContext},
		"no logger": {func() error { event.LogTo(nil)(kahn.Event{Type: event.NodeQueued}); return nil }, nil}, // the log record is not enabled
	} {
		var err error
		if out := survives(t, name, reflect.ValueOf(c.call), nil); out != nil {
			err, _ = out[0].Interface().(error)
		}
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, expected %v", name, err, c.want)
		}
	}
}

// With CloneInputs, user code of the graph may change all its arguments, since each call gets its own copies.
func TestCloneInputs(t *testing.T) {
	type box struct{ n int }
	fresh := func(v any) any {
		if b, ok := v.(*box); ok {
			return &box{b.n}
		}
		return v
	}
	// spoil expects a box that no other code has changed, and then changes it.
	spoil := func(t *testing.T, from string, v any) {
		t.Helper()
		b, ok := v.(*box)
		if !ok || b.n != 1 {
			t.Errorf("%s: %+v", from, v)
			return
		}
		b.n = -1
	}
	inBubble(t, "", func(t *testing.T) {
		g := graph(
			kahn.Node{ID: "T", Kind: kahn.KindTrigger},
			kahn.Node{ID: "A", After: []string{"T"}, Do: func(context.Context, *kahn.Step) (any, error) { return &box{1}, nil }},
			kahn.Node{ID: "G", After: []string{"A"}, Kind: kahn.KindGate},
			kahn.Node{ID: "M", Merge: "mine", In: []kahn.Edge{{From: "A", Param: "p"}, {From: "G", Param: "p"}}},
			kahn.Node{ID: "S", After: []string{"M"}, In: []kahn.Edge{{From: "A", Param: "a"}},
				When: func(v kahn.View) (bool, error) {
					spoil(t, "output, in a guard", v.Output("A"))
					root, _ := v.Root("root")
					spoil(t, "root input, in a guard", root)
					payload, _ := v.Trigger()
					spoil(t, "payload, in a guard", payload)
					return true, nil
				}},
		)
		g.RegisterMerge("mine", func(in []kahn.Contribution) (any, error) {
			for _, c := range in {
				spoil(t, "contribution of "+c.From, c.Value)
			}
			return nil, nil
		})
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() != "S" {
				return nil, nil
			}
			signal, resumed := s.Resumed()
			if !resumed {
				return nil, kahn.Suspend("again", nil, &box{1})
			}
			for range 2 {
				spoil(t, "signal", signal)
				signal, _ = s.Resumed()
				spoil(t, "saved state", s.SavedState())
				spoil(t, "output, in a step", s.View().Output("A"))
				spoil(t, "parameter", s.Params()["a"])
				up, _ := s.Upstream("A")
				spoil(t, "upstream", up)
				root, _ := s.Root("root")
				spoil(t, "root input", root)
			}
			return nil, nil
		}
		signal := &box{1}
		r := tryControlled(t, t.Context(), g, step, func(run *kahn.Run) {
			go func() {
				for _, gate := range []string{"G", "again"} {
					for e, err := range run.Events(t.Context(), 0) {
						if p, ok := e.Payload.(event.Suspension); ok && p.Token == gate || err != nil {
							break
						}
					}
					if err := run.Signal(context.Background(), gate, signal); err != nil {
						t.Errorf("signal for %s: %v", gate, err)
					}
				}
			}()
		}, kahn.CloneInputs(fresh), kahn.Inputs(map[string]any{"root": &box{1}}), kahn.Fire("T", &box{1}))
		r.expect("T:ok A:ok G:ok M:ok S:ok", "completed")
		if signal.n != 1 {
			t.Error("the host's own signal was changed")
		}
	})
}
