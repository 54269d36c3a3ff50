package conformance_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// nosy is user code that, in each call, reads and changes the plan, the run and the Runner. This is allowed: user code is never called under a
// lock.
type nosy struct {
	t      *testing.T
	run    atomic.Pointer[kahn.Run]
	plan   *kahn.Plan
	runner *kahn.Runner
	busy   atomic.Bool
	calls  atomic.Int64
}

func (n *nosy) look() {
	if !n.busy.CompareAndSwap(false, true) { // the methods that it calls may call it again
		return
	}
	defer n.busy.Store(false)
	n.calls.Add(1)
	done := make(chan struct{})
	go func() { // on a goroutine, so that the test detects a deadlock
		defer close(done)
		if n.plan != nil {
			_, _ = n.plan.Prune("T", kahn.PruneForward)
			n.plan.Warnings()
		}
		if n.runner != nil {
			n.runner.Run("")
			for range n.runner.Runs() {
				break
			}
		}
		if run := n.run.Load(); run != nil {
			run.Status()
			run.NodeStatus("A")
			run.Waiting()
			_ = run.CancelNode("nobody")
			run.EventRange()
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		n.t.Error("user code is called under a lock")
	}
}

// nosyContext is a context that calls look in one of its methods.
type nosyContext struct {
	context.Context
	*nosy
	method string
}

func (c *nosyContext) on(method string) {
	if c.method == method {
		c.look()
	}
}

func (c *nosyContext) Done() <-chan struct{} { c.on("Done"); return c.Context.Done() }
func (c *nosyContext) Err() error            { c.on("Err"); return c.Context.Err() }
func (c *nosyContext) Value(key any) any     { c.on("Value"); return c.Context.Value(key) }
func (c *nosyContext) Deadline() (deadline time.Time, ok bool) {
	c.on("Deadline")
	return c.Context.Deadline()
}

// nosyParent is a nosyContext on which package context registers an AfterFunc. It calls look when the AfterFunc is stopped.
type nosyParent struct{ *nosyContext }

func (c nosyParent) Value(any) any { return nil } // otherwise package context finds the wrapped context

func (c nosyParent) AfterFunc(f func()) func() bool {
	c.on("AfterFunc")
	stop := context.AfterFunc(c.Context, f)
	return func() bool { c.on("stop"); return stop() }
}

// nosyTexts is an evaluator whose Parse calls look, and nosyShapes is a schema compiler whose Compile calls look.
type nosyTexts struct{ *nosy }

func (x nosyTexts) Parse(string) (kahn.Expression, error) {
	x.look()
	return nosyText(x), nil
}

type nosyText struct{ *nosy }

func (x nosyText) Evaluate(context.Context, kahn.View) (any, error) { x.look(); return true, nil }

type nosyShapes struct{ *nosy }

func (x nosyShapes) Compile(any) (kahn.Contract, error) {
	x.look()
	return shape{func(any) []kahn.Violation { x.look(); return nil }}, nil
}

// nosyConfig is a Config that calls look when it is hashed.
type nosyConfig struct{ *nosy }

func (x nosyConfig) MarshalJSON() ([]byte, error) { x.look(); return json.Marshal("config") }

func TestNosyContext(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Done", "Err", "Value", "Deadline", "AfterFunc", "stop"} {
		for _, end := range []bool{false, true} {
			for _, pending := range []bool{false, true} {
				t.Run(method, func(t *testing.T) {
					t.Parallel()
					base, cancel := context.WithCancel(t.Context())
					defer cancel()
					n := &nosy{t: t, runner: &kahn.Runner{MaxRuns: 1}}
					var ctx context.Context = &nosyContext{base, n, method}
					if method == "AfterFunc" || method == "stop" {
						ctx = nosyParent{ctx.(*nosyContext)}
					}
					first := make(chan struct{})
					var blocker *kahn.Run
					if pending {
						var err error
						blocker, err = n.runner.Start(t.Context(), graph(after("A")), func(context.Context, *kahn.Step) (any, error) {
							<-first
							return nil, nil
						})
						if err != nil {
							t.Fatal(err)
						}
					}
					begun := make(chan struct{})
					run, err := n.runner.Start(ctx, graph(after("A"), after("B", "A")), func(_ context.Context, s *kahn.Step) (any, error) {
						if s.ID() == "A" {
							begun <- struct{}{}
							s.Deadline()
							<-begun
						}
						return nil, s.Err()
					}, kahn.Retain(0))
					if err != nil {
						t.Fatal(err)
					}
					n.run.Store(run)
					if pending && end {
						cancel()
						<-run.Done()
						close(first)
						<-blocker.Done()
						return
					}
					close(first)
					<-begun
					if end {
						cancel()
					}
					begun <- struct{}{}
					<-run.Done()
					if want := map[bool]kahn.RunStatus{false: kahn.RunCompleted, true: kahn.RunCancelled}[end]; run.Status() != want {
						t.Errorf("the run is %v, expected %v", run.Status(), want)
					}
					if n.calls.Load() == 0 && !(method == "stop" && end) { // an AfterFunc that has run cannot be stopped
						t.Error("nobody has looked")
					}
				})
			}
		}
	}
}

func TestNosyCompilers(t *testing.T) {
	t.Parallel()
	n := &nosy{t: t}
	g := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger},
		kahn.Node{ID: "A", After: []string{"T"}, WhenExpr: "x", InputSchema: "y", OutputSchema: "z", Config: nosyConfig{n}})
	g.Evaluator, g.Schemas = nosyTexts{n}, nosyShapes{n}
	p, err := g.Compile()
	if err != nil {
		t.Fatal(err)
	}
	n.plan = p
	q, err := p.Prune("T", kahn.PruneForward)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := p.Prune("T", kahn.PruneForward); again != q {
		t.Error("there are two plans")
	}
	before := n.calls.Load()
	if before == 0 {
		t.Error("nobody has looked")
	}
	run, err := p.Start(t.Context(), nothing, kahn.Fire("T", 1))
	if err != nil {
		t.Fatal(err)
	}
	n.run.Store(run)
	if _, err := run.Wait(); err != nil {
		t.Error(err)
	}
	if s := run.Snapshot(); s == nil || n.calls.Load() == before {
		t.Error("nobody has looked at the run")
	}
}
