package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// hostile is user code of one kind: a graph or options in which the user code calls hit.
type hostile struct {
	name   string
	build  func(hit func()) (*kahn.Graph, []kahn.Option)
	panics string         // the expected statuses if hit panics
	cause  kahn.CauseKind // of X if hit panics; CauseNone means any cause
	goexit string         // the expected statuses if hit calls runtime.Goexit
	fine   string         // the expected statuses if hit returns
}

type hitLabels struct{ hit func() }

func (h hitLabels) BranchLabels() []string { h.hit(); return []string{"yes"} }

type hitJSON struct{ hit func() }

func (h hitJSON) MarshalJSON() ([]byte, error) { h.hit(); return []byte("{}"), nil }

// hitError is an error that calls hit in one of its methods.
type hitError struct {
	method string
	hit    func()
}

func (e *hitError) on(method string) {
	if e.method == method {
		e.hit()
	}
}

func (e *hitError) Error() string   { e.on("Error"); return "hit" }
func (e *hitError) Unwrap() error   { e.on("Unwrap"); return nil }
func (e *hitError) Is(error) bool   { e.on("Is"); return false }
func (e *hitError) As(any) bool     { e.on("As"); return false }
func (e *hitError) Timeout() bool   { e.on("Timeout"); return false }
func (e *hitError) Temporary() bool { return false }

func hitModerator(hit func()) func(context.Context, event.Phase, *kahn.Step, any) error {
	return func(context.Context, event.Phase, *kahn.Step, any) error { hit(); return nil }
}

// hostiles lists every kind of function that a host can pass to the engine. X is the node that calls the function. Y follows X, and Z is
// independent of X.
func hostiles() []hostile {
	only := func(x kahn.Node) *kahn.Graph {
		x.ID = "X"
		return graph(x, after("Y", "X"), after("Z"))
	}
	routing := func(x kahn.Node) *kahn.Graph { // labels are computed only for nodes with labelled edges
		x.ID, x.Routes = "X", x.Test == nil
		return graph(x, kahn.Node{ID: "Y", In: []kahn.Edge{{From: "X", Label: "yes"}}}, after("Z"))
	}
	merging := func(strategy string, value any) *kahn.Graph {
		return graph(kahn.Node{ID: "A", Do: yields(0, value)}, kahn.Node{ID: "B", Do: yields(0, value)},
			kahn.Node{ID: "X", In: into("A", "B"), Merge: strategy}, after("Y", "X"), after("Z"))
	}
	const lost, ok = "X:F Y:X Z:ok", "X:ok Y:ok Z:ok"
	const lostMerge, okMerge = "A:ok B:ok X:F Y:X Z:ok", "A:ok B:ok X:ok Y:ok Z:ok"
	return []hostile{
		{"Do", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: func(context.Context, *kahn.Step) (any, error) { hit(); return nil, nil }}), nil
		}, lost, kahn.CausePanic, lost, ok},
		{"Do of a condition", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Kind: kahn.KindCondition, Do: func(context.Context, *kahn.Step) (any, error) { hit(); return nil, nil }}), nil
		}, lost, kahn.CauseNone, lost, ok},
		{"Test", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Test: func(kahn.View) (any, error) { hit(); return nil, nil }}), nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"When", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{GuardErrors: kahn.GuardAllow, When: func(kahn.View) (bool, error) { hit(); return true, nil }}), nil
		}, ok, kahn.CauseNone, lost, ok},
		{"strict When", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{GuardErrors: kahn.GuardFail, When: func(kahn.View) (bool, error) { hit(); return true, nil }}), nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"WhenExpr", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := only(kahn.Node{GuardErrors: kahn.GuardFail, WhenExpr: "hit"})
			g.Evaluator = &phrases{"hit": func(context.Context, kahn.View) (any, error) { hit(); return true, nil }}
			return g, nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"TestExpr", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := only(kahn.Node{TestExpr: "hit"})
			g.Evaluator = &phrases{"hit": func(context.Context, kahn.View) (any, error) { hit(); return true, nil }}
			return g, nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"Contract of inputs", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{InputSchema: shape{func(any) []kahn.Violation { hit(); return nil }}}), nil
		}, lost, kahn.CausePanic, lost, ok},
		{"Contract of inputs, retried", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{InputSchema: shape{func(any) []kahn.Violation { hit(); return nil }},
				Retry: kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{kahn.CausePanic}}}), nil
		}, lost, kahn.CausePanic, lost, ok},
		{"Contract of an output", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{OutputSchema: shape{func(any) []kahn.Violation { hit(); return nil }}}), nil
		}, lost, kahn.CausePanic, lost, ok},
		{"Contract of a Fallback", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{OutputSchema: shape{func(any) []kahn.Violation { hit(); return nil }}, Do: always(errStep),
				Fallback: func(context.Context, error) (any, error) { return nil, nil }}), nil
		}, lost, kahn.CausePanic, lost, ok},
		{"Moderator of inputs", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Moderation: kahn.ModerateInput}), []kahn.Option{kahn.Moderate(hitModerator(hit))}
		}, lost, kahn.CauseModeration, lost, ok},
		{"Moderator of an output", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Moderation: kahn.ModerateOutput}), []kahn.Option{kahn.Moderate(hitModerator(hit))}
		}, lost, kahn.CauseModeration, lost, ok},
		{"Moderator of a Fallback", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Moderation: kahn.ModerateOutput, Do: always(errStep),
				Fallback: func(context.Context, error) (any, error) { return nil, nil }}), []kahn.Option{kahn.Moderate(hitModerator(hit))}
		}, lost, kahn.CauseModeration, lost, ok},
		{"Middleware", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: nop}), []kahn.Option{kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
				return func(ctx context.Context, s *kahn.Step) (any, error) {
					if s.ID() == "X" {
						hit()
					}
					return next(ctx, s)
				}
			})}
		}, lost, kahn.CausePanic, lost, ok},
		{"MergeFunc", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := merging("m", 1)
			g.RegisterMerge("m", func([]kahn.Contribution) (any, error) { hit(); return nil, nil })
			return g, nil
		}, lostMerge, kahn.CauseMergeError, lostMerge, okMerge},
		{"Marshaler in concat", func(hit func()) (*kahn.Graph, []kahn.Option) { return merging(kahn.MergeConcat, hitJSON{hit}), nil },
			lostMerge, kahn.CauseMergeError, lostMerge, okMerge},
		{"Marshaler in array", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := graph(kahn.Node{ID: "A", Do: yields(0, hitJSON{hit})}, kahn.Node{ID: "B", Do: yields(0, 1)},
				kahn.Node{ID: "X", In: into("A", "B"), Merge: kahn.MergeArray, MergeJSON: true}, after("Y", "X"), after("Z"))
			return g, nil
		}, lostMerge, kahn.CauseMergeError, lostMerge, okMerge},
		{"Fallback", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: always(errStep), Fallback: func(context.Context, error) (any, error) { hit(); return nil, nil }}), nil
		}, lost, kahn.CauseStepError, lost, ok},
		{"Labeler", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return routing(kahn.Node{Do: yields(0, hitLabels{hit})}), nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"Labeler of a Test", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return routing(kahn.Node{Test: func(kahn.View) (any, error) { return hitLabels{hit}, nil }}), nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"Labeler of a Fallback", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return routing(kahn.Node{Do: always(errStep),
				Fallback: func(context.Context, error) (any, error) { return hitLabels{hit}, nil }}), nil
		}, lost, kahn.CauseConditionError, lost, ok},
		{"Random", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := only(kahn.Node{Retry: kahn.RetryJittered(3), Do: script(errStep)})
			return g, []kahn.Option{kahn.Random(func() float64 { hit(); return 0 })}
		}, lost, kahn.CausePanic, lost, ok},
		{"Random after a timeout", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := only(kahn.Node{Retry: kahn.RetryJittered(3), Timeout: ms, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Attempt() == 1 {
					return untilStopped(ctx, s)
				}
				return nil, nil
			}})
			return g, []kahn.Option{kahn.Random(func() float64 { hit(); return 0 })}
		}, "", kahn.CauseNone, "", ok}, // the delay may be chosen without a call of Random; the run must end
		{"CloneInputs", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := only(kahn.Node{Params: map[string]any{"p": 1}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				v, _ := s.Param("p")
				return v, nil
			}})
			return g, []kahn.Option{kahn.CloneInputs(func(v any) any { hit(); return v })}
		}, lost, kahn.CausePanic, lost, ok},
		{"OnNode", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{}), []kahn.Option{kahn.OnNode(func(kahn.NodeResult) { hit() })}
		}, ok, kahn.CauseNone, ok, ok},
		{"OnEvent", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{}), []kahn.Option{kahn.OnEvent(func(kahn.Event) { hit() })}
		}, ok, kahn.CauseNone, ok, ok},
	}
}

// hostileMethods lists the methods of errors and values that user code returns. In these tests hit does not panic, since the host would call the
// methods again. It calls Goexit, and checks that no lock is held.
func hostileMethods() []hostile {
	only := func(x kahn.Node) *kahn.Graph {
		x.ID = "X"
		return graph(x, after("Y", "X"), after("Z"))
	}
	const lost, ok = "X:F Y:X Z:ok", "X:ok Y:ok Z:ok"
	const lostMerge = "A:ok B:ok X:F Y:X Z:ok"
	return []hostile{
		{"Unwrap of an error", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: always(&hitError{"Unwrap", hit})}), nil
		}, lost, kahn.CauseStepError, lost, lost},
		{"Unwrap of a panic", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: func(context.Context, *kahn.Step) (any, error) { panic(&hitError{"Unwrap", hit}) }}), nil
		}, lost, kahn.CausePanic, lost, lost},
		{"Unwrap of a guard's error", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{GuardErrors: kahn.GuardAllow, When: func(kahn.View) (bool, error) { return false, &hitError{"Unwrap", hit} }}), nil
		}, ok, kahn.CauseNone, lost, ok},
		{"Error of a guard's error", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{GuardErrors: kahn.GuardAllow, When: func(kahn.View) (bool, error) { return false, &hitError{"Error", hit} }}), nil
		}, ok, kahn.CauseNone, lost, ok},
		{"Unwrap of a merge's error", func(hit func()) (*kahn.Graph, []kahn.Option) {
			g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B"}, kahn.Node{ID: "X", In: into("A", "B"), Merge: "m"}, after("Y", "X"), after("Z"))
			g.RegisterMerge("m", func([]kahn.Contribution) (any, error) { return nil, &hitError{"Unwrap", hit} })
			return g, nil
		}, lostMerge, kahn.CauseMergeError, lostMerge, lostMerge},
		{"Unwrap of a Fallback's error", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: always(errStep), Fallback: func(context.Context, error) (any, error) { return nil, &hitError{"Unwrap", hit} }}), nil
		}, lost, kahn.CauseStepError, lost, lost},
		{"Marshaler of an output", func(hit func()) (*kahn.Graph, []kahn.Option) {
			return only(kahn.Node{Do: yields(0, hitJSON{hit})}), []kahn.Option{kahn.Encoding(kahn.Types{"hit": hitJSON{}})}
		}, lost, kahn.CauseStoreError, lost, ""},
	}
}

// runHostile runs hostile code under several limits and in both modes, with and without a sink.
func runHostile(t *testing.T, h hostile, hit func(), want string) (runs []trial) {
	t.Helper()
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		for limit := range 2 {
			g, opts := h.build(hit)
			opts = append(opts, mode, kahn.Limit(limit))
			r := try(t, g, nop, opts...)
			run := "completed"
			if strings.Contains(want, ":F") {
				run = "failed"
			}
			if want != "" {
				r.expect(want, run)
			}
			runs = append(runs, r)

			res, err := kahn.Execute(t.Context(), g, nop, opts...)
			if res.Status != r.Status || (err == nil) != (r.err == nil) {
				t.Errorf("without a listener: %v, %v", res.Status, err)
			}
			for n := range res.Nodes() {
				if shortStatus(n) != shortStatus(r.node(n.ID)) {
					t.Errorf("without a listener %s is %s", n.ID, shortStatus(n))
				}
			}
		}
	}
	return runs
}

func TestPanicEverywhere(t *testing.T) {
	for _, h := range hostiles() {
		inBubble(t, h.name, func(t *testing.T) {
			for _, r := range runHostile(t, h, func() { panic("in " + h.name) }, h.panics) {
				var p *kahn.PanicError
				switch {
				case h.panics == "":
				case h.name == "OnEvent" || h.name == "OnNode":
					if len(r.Warnings) != 1 || !errors.As(r.Warnings[0], &p) || p.Value != "in "+h.name {
						t.Errorf("warnings %v", r.Warnings)
					}
				case h.name == "When":
					if !errors.As(r.node("X").GuardErr, &p) {
						t.Errorf("the guard's error is %v", r.node("X").GuardErr)
					}
				default:
					if h.cause != kahn.CauseNone {
						r.cause("X", h.cause)
					}
					if !errors.As(r.err, &p) || p.Value != "in "+h.name || !strings.Contains(string(p.Stack), "robust_code_test.go") {
						t.Errorf("the error is %v", r.err)
					}
				}
			}
		})
	}
}

func TestGoexitEverywhere(t *testing.T) {
	for _, h := range append(hostiles(), hostileMethods()...) {
		inBubble(t, h.name, func(t *testing.T) {
			for _, r := range runHostile(t, h, runtime.Goexit, h.goexit) {
				switch {
				case h.goexit == "":
				case h.name == "OnEvent" || h.name == "OnNode":
					if len(r.Warnings) != 1 || !errors.Is(r.Warnings[0], kahn.ErrGoexit) {
						t.Errorf("warnings %v", r.Warnings)
					}
				default:
					if strings.Contains(h.name, "When") {
						r.cause("X", kahn.CauseConditionError)
					} else {
						r.cause("X", kahn.CauseGoexit)
					}
					if !errors.Is(r.err, kahn.ErrGoexit) {
						t.Errorf("the error is %v", r.err)
					}
				}
			}
		})
	}
}

// If hit returns normally, nodes have the expected statuses. So in the tests above, nodes fail only because hit panics or calls Goexit.
func TestHostilesAtPeace(t *testing.T) {
	for _, h := range hostiles() {
		inBubble(t, h.name, func(t *testing.T) {
			called := false
			runHostile(t, h, func() { called = true }, h.fine)
			if !called {
				t.Error("it is not called")
			}
		})
	}
}

// All user code may call methods of its own run, since no lock is held while user code runs. Only Wait is forbidden there: the run would wait
// for itself.
func TestRunMethodsFromUserCode(t *testing.T) {
	for _, h := range append(hostiles(), hostileMethods()...) {
		for name, request := range map[string]func(*kahn.Run){
			"Cancel":     func(r *kahn.Run) { r.Cancel() },
			"AbortAll":   func(run *kahn.Run) { run.AbortAll(errHost) },
			"CancelNode": func(run *kahn.Run) { _ = run.CancelNode("X") },
			"status": func(run *kahn.Run) {
				run.Status()
				run.NodeStatus("X")
				run.ID()
				run.Done()
			},
		} {
			inBubble(t, h.name+" calls "+name, func(t *testing.T) {
				var run *kahn.Run
				started := make(chan struct{})
				hit := func() {
					<-started
					request(run)
				}
				g, opts := h.build(hit)
				r := tryControlled(t, t.Context(), g, takes(ms), func(self *kahn.Run) {
					run = self
					close(started)
				}, opts...)
				if name == "status" && h.fine != "" {
					run := "completed"
					if strings.Contains(h.fine, ":F") {
						run = "failed"
					}
					r.expect(h.fine, run)
				}
			})
		}
	}
}

func TestRunMethodsFromSteps(t *testing.T) {
	// own runs a graph whose steps get their run.
	own := func(t *testing.T, g *kahn.Graph, step func(run *kahn.Run, ctx context.Context, s *kahn.Step) (any, error), opts ...kahn.Option) trial {
		var run *kahn.Run
		started := make(chan struct{})
		return tryControlled(t, t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
			<-started
			return step(run, ctx, s)
		}, func(self *kahn.Run) {
			run = self
			close(started)
		}, opts...)
	}
	inBubble(t, "Cancel", func(t *testing.T) {
		own(t, graph(after("A"), after("B", "A")), func(run *kahn.Run, ctx context.Context, s *kahn.Step) (any, error) {
			run.Cancel()
			return untilStopped(ctx, s)
		}).expect("A:C B:C", "cancelled")
	})
	inBubble(t, "Cancel and success", func(t *testing.T) {
		own(t, graph(after("A"), after("B", "A")), func(run *kahn.Run, _ context.Context, _ *kahn.Step) (any, error) {
			run.Cancel()
			return nil, nil
		}).expect("A:ok B:C", "cancelled")
	})
	inBubble(t, "AbortAll", func(t *testing.T) {
		r := own(t, graph(after("A"), after("B", "A")), func(run *kahn.Run, ctx context.Context, s *kahn.Step) (any, error) {
			run.AbortAll(errHost)
			run.AbortAll(errStep) // the cause of the first AbortAll remains
			run.Cancel()
			return untilStopped(ctx, s)
		})
		r.expect("A:X B:X", "failed")
		if !errors.Is(r.err, errHost) || errors.Is(r.err, errStep) || !r.CancelRequested {
			t.Errorf("error %v, requested %v", r.err, r.CancelRequested)
		}
	})
	inBubble(t, "CancelNode of itself", func(t *testing.T) {
		r := own(t, graph(after("A"), after("B", "A"), after("C")), func(run *kahn.Run, ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "C" {
				return nil, nil
			}
			for range 2 { // a second request is allowed while the node runs
				if err := run.CancelNode("A"); err != nil {
					t.Errorf("CancelNode: %v", err)
				}
			}
			return untilStopped(ctx, s)
		})
		r.expect("A:C B:X C:ok", "cancelled")
		r.cause("A", kahn.CauseCancelNode)
		r.cause("B", kahn.CauseUpstreamCancelled)
		if !errors.Is(r.err, kahn.ErrNodeStopped) {
			t.Errorf("error %v", r.err)
		}
	})
	inBubble(t, "CancelNode of others", func(t *testing.T) {
		r := own(t, graph(after("A"), after("B", "A"), after("C"), after("D", "C"), kahn.Node{ID: "off", Disabled: true}),
			func(run *kahn.Run, ctx context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "C" {
					return untilStopped(ctx, s)
				}
				time.Sleep(ms)
				for _, id := range []string{"B", "C"} { // B has not started, C runs
					if err := run.CancelNode(id); err != nil {
						t.Errorf("CancelNode(%s): %v", id, err)
					}
				}
				for _, id := range []string{"B", "off"} {
					if err := run.CancelNode(id); !errors.Is(err, kahn.ErrTransition) {
						t.Errorf("CancelNode(%s), which is over: %v", id, err)
					}
				}
				if status, _ := run.NodeStatus("B"); status != kahn.Cancelled {
					t.Errorf("B is %v", status)
				}
				if run.Status() != kahn.RunRunning {
					t.Errorf("the run is %v", run.Status())
				}
				return nil, nil
			})
		r.expect("A:ok B:C C:C D:X off:S/ann", "cancelled")
	})
	inBubble(t, "nested runs, one slot each", func(t *testing.T) {
		g := graph(after("A"), after("B", "A")) // the same graph on every level
		var nested func(depth int) kahn.StepFunc
		nested = func(depth int) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				if depth == 5 || s.ID() == "B" {
					time.Sleep(ms)
					return depth, nil
				}
				res, err := kahn.Execute(ctx, g, nested(depth+1), kahn.Limit(1))
				if err != nil {
					return nil, err
				}
				return res.Output(), nil
			}
		}
		r := try(t, g, nested(0), kahn.Limit(1))
		r.expect("A:ok B:ok", "completed")
		if v, err := kahn.Output[int](r.Result, "A"); v != 1 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
	})
	inBubble(t, "a nested run is cancelled with its step", func(t *testing.T) {
		r := own(t, graph(after("A")), func(run *kahn.Run, ctx context.Context, _ *kahn.Step) (any, error) {
			res, err := kahn.Execute(ctx, graph(after("inner")), func(ctx context.Context, s *kahn.Step) (any, error) {
				run.Cancel()
				return untilStopped(ctx, s)
			})
			if res == nil || res.Status != kahn.RunCancelled || !errors.Is(err, kahn.ErrCancelled) {
				t.Errorf("the nested run: %v", err)
			}
			return nil, err
		})
		r.expect("A:C", "cancelled")
	})
}

func TestLateStep(t *testing.T) {
	inBubble(t, "what it emits is dropped", func(t *testing.T) {
		var kept atomic.Pointer[kahn.Step]
		ended := make(chan struct{}) // closed when A completes; until then a goroutine of its step may emit
		r := try(t, graph(after("A"), after("B", "A")), func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				close(ended)
				kept.Load().Emit("late")
				kept.Load().Log(slog.LevelError, "late")
				return takes(ms)(s, s)
			}
			kept.Store(s)
			s.Emit("in time")
			go func() {
				<-s.Done()
				<-ended
				s.Emit("later")
			}()
			return nil, nil
		})
		r.expect("A:ok B:ok", "completed")
		r.count(event.NodeDelta, "A", 1)
		r.count(event.NodeLog, "A", 0)
		s := kept.Load()
		s.Emit("after the end of the run")
		if s.ID() != "A" || s.Attempt() != 1 || s.LastErr() != nil || s.View().Status("A") != kahn.Idle || s.Err() == nil || len(s.Params()) != 0 {
			t.Errorf("%v", s)
		}
	})
}

func TestQueuedWhenStopped(t *testing.T) {
	inBubble(t, "ctx ends while a node waits for its slot", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := tryControlled(t, ctx, graph(after("A"), kahn.Node{ID: "B", Do: neverStep(t)}), func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(20 * ms)
			return nil, nil
		}, soon(func(run *kahn.Run) {
			if status, _ := run.NodeStatus("B"); status != kahn.Ready {
				t.Errorf("B is %v", status)
			}
			cancel()
			synctest.Wait()
			if status, _ := run.NodeStatus("B"); status != kahn.Cancelled {
				t.Errorf("B is %v", status)
			}
		}), kahn.Limit(1))
		r.expect("A:ok B:C", "cancelled")
		if at := r.at(event.NodeCancelled, "B"); at != 10*ms {
			t.Errorf("B was cancelled at %v", at)
		}
	})
	inBubble(t, "CancelNode while a node waits for its slot", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A"), kahn.Node{ID: "B", Do: neverStep(t)}, after("C")), takes(20*ms), soon(func(run *kahn.Run) {
			if err := run.CancelNode("B"); err != nil {
				t.Error(err)
			}
		}), kahn.Limit(1))
		r.expect("A:ok B:C C:ok", "cancelled")
	})
}

// A sink may be slow or never return. The run does not wait for the sink, and Execute waits only for a limited time.
func TestStuckSink(t *testing.T) {
	inBubble(t, "slow", func(t *testing.T) {
		var seen []kahn.Event
		r := try(t, graph(after("A"), after("B", "A")), takes(ms), kahn.OnEvent(func(e kahn.Event) {
			time.Sleep(100 * ms)
			seen = append(seen, e)
		}))
		r.expect("A:ok B:ok", "completed")
		if len(seen) != len(r.events) || r.Duration != 2*ms || len(r.Warnings) > 0 {
			t.Errorf("%d of %d events seen, %v, warnings %v", len(seen), len(r.events), r.Duration, r.Warnings)
		}
	})
	inBubble(t, "stuck", func(t *testing.T) {
		for range 20 { // repeated, because a sink that keeps up must never be reported
			release := make(chan struct{})
			stuck := kahn.OnEvent(func(kahn.Event) { <-release })
			begin := time.Now()
			r := try(t, graph(after("A")), takes(ms), stuck, stuck, kahn.CancelGrace(time.Second))
			r.expect("A:ok", "completed")
			if took := time.Since(begin); took != time.Second+ms || len(r.Warnings) != 2 || r.Duration != ms {
				t.Errorf("Execute took %v, the run %v, %d warnings: %v", took, r.Duration, len(r.Warnings), r.Warnings)
			}
			close(release)
		}
	})
}

func TestOddPanics(t *testing.T) {
	for name, row := range map[string]struct {
		value any
		text  string
	}{
		"nil":                   {nil, "nil"},
		"error":                 {errStep, errStep.Error()},
		"uncomparable error":    {sliceError{"a", "b"}, "a, b"},
		"uncomparable value":    {[]int{1, 2}, ""},
		"function":              {func() {}, ""},
		"error that wraps self": {&selfError{}, "wraps itself"},
		"ten megabytes":         {strings.Repeat("x", 10<<20), "xxx"},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := try(t, graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic(row.value) })
			r.expect("A:F", "failed")
			r.cause("A", kahn.CausePanic)
			text := r.err.Error()
			if len(text) > 20_000 || !strings.Contains(text, row.text) {
				t.Errorf("the error is %.300q", text)
			}
		})
	}
	inBubble(t, "an error keeps its identity", func(t *testing.T) {
		r := try(t, graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic(fmt.Errorf("call: %w", errStep)) })
		if !errors.Is(r.err, errStep) {
			t.Errorf("the error is %v", r.err)
		}
	})
	inBubble(t, "nil under GODEBUG=panicnil=1", func(t *testing.T) {
		t.Setenv("GODEBUG", "panicnil=1")
		r := try(t, graph(after("A"), after("B", "A"), kahn.Node{ID: "C", GuardErrors: kahn.GuardFail, When: func(kahn.View) (bool, error) { panic(nil) }}),
			func(context.Context, *kahn.Step) (any, error) { panic(nil) })
		r.expect("A:F B:X C:F", "failed")
	})
}

// fmt cannot print a value that contains itself: it overflows the stack, which recover does not catch. So the test uses another process.
func TestCyclicPanicValue(t *testing.T) {
	if os.Getenv("KAHN_CYCLIC_PANIC") != "" {
		list, dict := []any{nil}, map[string]any{}
		list[0], dict["self"] = list, dict
		for _, v := range []any{list, dict, &list, struct{ V any }{dict}} {
			_, err := kahn.Execute(t.Context(), graph(after("A")), func(context.Context, *kahn.Step) (any, error) { panic(v) })
			if text := err.Error(); !strings.Contains(text, "panic") || len(text) > 20_000 {
				t.Errorf("the error is %.300q", text)
			}
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCyclicPanicValue$")
	cmd.Env = append(os.Environ(), "KAHN_CYCLIC_PANIC=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%.500s", err, out)
	}
}

// A random source that returns numbers outside [0, 1) must not make a delay negative or endless.
func TestOddRandom(t *testing.T) {
	for _, u := range []float64{-1e300, -1, 1, 1.5, 1e300, math.NaN(), math.Inf(1)} {
		for _, jitter := range []kahn.Jitter{kahn.JitterHalf, kahn.JitterFull} {
			inBubble(t, fmt.Sprint(u, jitter), func(t *testing.T) {
				policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, Jitter: jitter}
				r := try(t, graph(kahn.Node{ID: "A", Retry: policy}), script(errStep, errStep), random(u))
				r.expect("A:ok", "completed")
				for _, d := range r.delays("A") {
					if d < 0 || d > 2*time.Second {
						t.Errorf("a delay of %v", d)
					}
				}
			})
		}
	}
}

// If a condition's output is a pointer to itself, the search for its label ends without a label.
func TestEndlessPointer(t *testing.T) {
	type pointer *pointer
	var p pointer
	p = &p
	within(t, func() {
		r := try(t, graph(kahn.Node{ID: "A", Routes: true, Do: yields(0, p)}, kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Label: "default"}}}), nop)
		r.expect("A:ok B:ok", "completed")
	})
}

// A value that cannot be encoded as JSON fails the merge and does not end the process.
func TestUnrenderableMerge(t *testing.T) {
	dict := map[string]any{}
	dict["self"] = dict
	for name, value := range map[string]any{"cyclic": dict, "function": func() {}, "channel": make(chan int), "not a number": math.NaN()} {
		for _, strategy := range []string{kahn.MergeConcat, kahn.MergeArray, kahn.MergeObject} {
			inBubble(t, name+" "+strategy, func(t *testing.T) {
				r := try(t, graph(kahn.Node{ID: "A", Do: yields(0, value)}, kahn.Node{ID: "B", Do: yields(0, 1)},
					kahn.Node{ID: "J", In: into("A", "B"), Merge: strategy, MergeJSON: true, Do: neverStep(t)}), nil)
				r.expect("A:ok B:ok J:F", "failed")
				r.cause("J", kahn.CauseMergeError)
			})
		}
	}
}

// crashing is the middleware of docs/testing.md: a panic of a step ends the process with a message that contains the step's stack.
func crashing(next kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		defer func() {
			if v := recover(); v != nil {
				go panic(fmt.Sprintf("step %s: %v\n\n%s", s.Path(), v, debug.Stack())) // on a goroutine that has no recover
				select {}
			}
		}()
		return next(ctx, s)
	}
}

func stepThatPanics(context.Context, *kahn.Step) (any, error) { panic("no such account") }

func TestCrashingMiddleware(t *testing.T) {
	const child = "KAHN_TEST_CRASH"
	if os.Getenv(child) != "" {
		_, err := kahn.Execute(t.Context(), graph(after("pay")), stepThatPanics, kahn.Use(crashing))
		t.Fatalf("the process survived: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashingMiddleware$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"panic: step pay: no such account", "stepThatPanics"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
}
