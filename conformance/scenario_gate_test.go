package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestScenarioGates(t *testing.T) {
	inBubble(t, "212 a gate suspends the run", func(t *testing.T) {
		r := pause(t, graph(gate("G"), after("B", "G")), neverStep(t))
		r.expect("G:suspended B:waiting", "suspended")
		if r.Waiting[0].Token != "G" || !r.Waiting[0].Deadline.IsZero() {
			t.Errorf("waiting %+v", r.Waiting)
		}
		r.order("run.started", "node.suspended G", "run.status.changed")
		r.count(event.NodeQueued, "G", 0)
		r.count(event.NodeStarted, "G", 0)
	})

	inBubble(t, "213 a live run goes on with the signal", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(gate("G"), after("B", "G")), func(_ context.Context, s *kahn.Step) (any, error) {
			v, _ := s.Upstream("G")
			return v, nil
		}, func(run *kahn.Run) {
			synctest.Wait()
			if run.Status() != kahn.RunSuspended {
				t.Errorf("the run is %v", run.Status())
			}
			if err := run.Signal(context.Background(), "G", map[string]any{"ok": 1}); err != nil {
				t.Error(err)
			}
			if err := run.Signal(context.Background(), "G", 2); !errors.Is(err, kahn.ErrAnswered) && !errors.Is(err, kahn.ErrFinished) {
				t.Errorf("the second answer: %v", err)
			}
		})
		r.expect("G:ok B:ok", "completed")
		if got := fmt.Sprint(r.node("B").Output); got != "map[ok:1]" {
			t.Errorf("B got %s", got)
		}
		r.order("node.suspended G", "run.status.changed", "run.status.changed", "node.completed G", "node.started B", "run.completed")
	})

	for _, row := range []struct {
		value any
		want  string
	}{
		{false, "G:ok P:S/br R:ok"}, {true, "G:ok P:ok R:S/br"}, {"Approved", "G:ok P:ok R:S/br"}, {"no", "G:ok P:S/br R:ok"},
		{map[string]any{"branch": "reject"}, "G:ok P:S/br R:ok"}, {" Yes ", "G:ok P:ok R:S/br"},
	} {
		inBubble(t, fmt.Sprintf("214 the answer %v routes", row.value), func(t *testing.T) {
			g := graph(gate("G"), branch("P", "G", "approve"), branch("R", "G", "reject"))
			for _, early := range []bool{false, true} {
				r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) {
					if !early {
						synctest.Wait()
					}
					if err := run.Signal(context.Background(), "G", row.value); err != nil {
						t.Error(err)
					}
				})
				r.expect(row.want, "completed")
			}
		})
	}

	inBubble(t, "216 stop mode starts nothing new", func(t *testing.T) {
		r := pause(t, graph(gate("G"), after("B", "G"), kahn.Node{ID: "A", Do: takes(10 * ms)}, after("C", "A")), neverStep(t), kahn.SuspendStop)
		r.expect("G:suspended B:waiting A:ok C:ready", "suspended")
	})

	inBubble(t, "216 waves stop by default", func(t *testing.T) {
		r := pause(t, graph(gate("G"), after("B", "G"), kahn.Node{ID: "A", Do: takes(10 * ms)}, after("C", "A")), neverStep(t), kahn.Waves)
		r.expect("G:suspended B:waiting A:ok C:waiting", "suspended")
	})

	for _, mode := range []kahn.SuspendMode{kahn.SuspendDrain, kahn.SuspendStop} {
		inBubble(t, "217 a retry timer is activity, "+mode.String(), func(t *testing.T) {
			r := pause(t, graph(gate("G"), after("B", "G"), kahn.Node{ID: "A", Retry: kahn.RetryStandard()}), script(errStep, nil), mode)
			r.expect("G:suspended B:waiting A:ok", "suspended")
			if r.Duration != time.Second {
				t.Errorf("returned after %v", r.Duration)
			}
		})
	}

	inBubble(t, "218 suspended outranks failed", func(t *testing.T) {
		g := graph(gate("G"), after("B", "G"), kahn.Node{ID: "A", Do: fails(0)}, kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: neverStep(t)})
		r := pause(t, g, neverStep(t))
		r.expect("G:suspended B:waiting A:F Z:waiting", "suspended")
	})

	inBubble(t, "218 a fail-fast mode aborts the gate", func(t *testing.T) {
		r := try(t, graph(gate("G"), after("B", "G"), kahn.Node{ID: "A", Do: fails(ms)}, kahn.Node{ID: "Z", Kind: kahn.KindEnd, Do: takes(0)}),
			neverStep(t), kahn.AbortRunning)
		r.expect("G:X B:X A:F Z:ok", "failed")
	})

	inBubble(t, "221 an unknown gate", func(t *testing.T) {
		run, err := startRun(t, t.Context(), graph(gate("G"), after("A"), subgraph("S", graph(gate("S[0]")))), takes(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, name := range []string{"X", "", "A", "S[0]"} { // S is not a map
			if err := run.Signal(context.Background(), name, 1); !errors.Is(err, kahn.ErrUnknownGate) {
				t.Errorf("Signal(%q) = %v", name, err)
			}
		}
		for _, name := range []string{"G", "S/S[0]"} {
			if err := run.Signal(context.Background(), name, 1); err != nil {
				t.Error(err)
			}
		}
		if _, err := run.Wait(); err != nil {
			t.Error(err)
		}
		if err := run.Signal(context.Background(), "G", 1); !errors.Is(err, kahn.ErrAnswered) && !errors.Is(err, kahn.ErrFinished) {
			t.Errorf("after the end: %v", err)
		}
	})

	inBubble(t, "a signal after the end, whatever waited", func(t *testing.T) {
		waits := func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("token", nil, nil) }
		g := graph(after("A"), gate("G"), subgraph("S", graph(after("x"), gate("y"))))
		for _, end := range []struct {
			end  func(*kahn.Run)
			want error
		}{{func(r *kahn.Run) { r.Cancel() }, kahn.ErrFinished}, {(*kahn.Run).Leave, kahn.ErrAtRest}} { // without a store the answer cannot be posted
			run, err := startRun(t, t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Path() == "A" {
					return waits(ctx, s)
				}
				return nil, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			end.end(run)
			_, _ = run.Wait()
			for _, name := range []string{"A", "token", "G", "S/y", "S/x", "S", "nobody"} {
				if err := run.Signal(context.Background(), name, 1); !errors.Is(err, end.want) {
					t.Errorf("a run that is %v answers a signal for %s with %v", run.Status(), name, err)
				}
			}
		}
	})

	for _, row := range []struct {
		on   kahn.GateTimeout
		want string
		run  string
	}{{kahn.GateFail, "G:F T:X H:ok", "completed+d"}, {kahn.GateLabel, "G:ok T:ok H:S/br", "completed"}} {
		inBubble(t, "224 a deadline passes in a live run, "+row.on.String(), func(t *testing.T) {
			g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: row.on}},
				branch("T", "G", "timeout"), kahn.Node{ID: "H", In: []kahn.Edge{{From: "G", On: kahn.OnFailure}}})
			r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) {
				synctest.Wait()
				if w := run.Waiting(); len(w) != 1 || w[0].Deadline.Sub(w[0].Since) != time.Hour {
					t.Errorf("waiting %+v", w)
				}
			})
			r.expect(strings.ReplaceAll(row.want, "T:X", "T:S/br"), row.run)
			if r.Duration != time.Hour {
				t.Errorf("took %v", r.Duration)
			}
			if row.on == kahn.GateFail {
				r.cause("G", kahn.CauseGateTimeout)
			}
		})
	}

	inBubble(t, "232 a suspended run is cancelled", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(gate("G"), after("B", "G")), neverStep(t), func(run *kahn.Run) {
			synctest.Wait()
			run.Cancel()
		})
		r.expect("G:C B:C", "cancelled")
		r.order("run.status.changed", "run.status.changed", "node.cancelled G", "run.cancelled")
	})

	inBubble(t, "a step suspends itself and is entered again", func(t *testing.T) {
		var c calls
		ask := c.count(func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() != 1 {
				t.Errorf("attempt %d", s.Attempt())
			}
			if v, ok := s.Resumed(); ok {
				return fmt.Sprint(v, s.SavedState()), nil
			}
			return nil, kahn.Suspend("ticket-7", "who?", 41)
		})
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Do: ask}, after("B", "A")), takes(0), func(run *kahn.Run) {
			synctest.Wait()
			if w := run.Waiting(); len(w) != 1 || w[0].Token != "ticket-7" || w[0].Info != "who?" || w[0].Node != "A" {
				t.Errorf("waiting %+v", w)
			}
			if err := run.Signal(context.Background(), "ticket-7", "yes "); err != nil {
				t.Error(err)
			}
			if err := run.Signal(context.Background(), "ticket-7", "no"); !errors.Is(err, kahn.ErrUnknownGate) && !errors.Is(err, kahn.ErrFinished) {
				t.Errorf("the second answer: %v", err)
			}
			if err := run.Signal(context.Background(), "A", "no"); !errors.Is(err, kahn.ErrAnswered) && !errors.Is(err, kahn.ErrFinished) {
				t.Errorf("the second answer, by id: %v", err)
			}
		})
		r.expect("A:ok B:ok", "completed")
		if n := r.node("A"); n.Output != "yes 41" || n.Attempts != 1 || c.of("A") != 2 {
			t.Errorf("output %v after %d attempts, %d calls", n.Output, n.Attempts, c.of("A"))
		}
	})

	inBubble(t, "a token that is another node's is refused", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(
			kahn.Node{ID: "A", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("B", nil, nil) }},
			kahn.Node{ID: "B", Do: takes(0)},
			kahn.Node{ID: "C", Kind: kahn.KindEnd, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("", nil, nil) }},
		), nil, nil)
		r.expect("A:F B:ok C:F", "failed")
		if err := r.node("A").Err; !errors.Is(err, kahn.ErrDuplicateGate) {
			t.Error(err)
		}
	})

	inBubble(t, "a token that is the id of a node in another graph", func(t *testing.T) {
		asks := func(token string) kahn.StepFunc {
			return func(_ context.Context, s *kahn.Step) (any, error) {
				if answer, ok := s.Resumed(); ok {
					return answer, nil
				}
				return nil, kahn.Suspend(token, nil, nil)
			}
		}
		g := graph(subgraph("S", graph(kahn.Node{ID: "ask", Do: asks("")})), subgraph("T", graph(kahn.Node{ID: "x", Do: asks("ask")})))
		r := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
			for _, name := range []string{"S/ask", "ask"} {
				synctest.Wait()
				if err := run.Signal(context.Background(), name, "for "+name); err != nil {
					t.Error(err)
				}
			}
		})
		r.expect("S:ok T:ok", "completed")
		if s, x := r.node("S").Output, r.node("T").Output; s != "for S/ask" || x != "for ask" {
			t.Errorf("outputs %v, %v", s, x)
		}
	})

	inBubble(t, "a step that is stopped cannot wait", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return nil, kahn.Suspend("", nil, nil)
		}}), nil, func(run *kahn.Run) { run.Cancel() })
		r.expect("A:C", "cancelled")
	})

	inBubble(t, "a run is left", func(t *testing.T) {
		run, err := startRun(t, t.Context(), graph(kahn.Node{ID: "A", Do: takes(500 * ms)}, after("B", "A"),
			kahn.Node{ID: "C", Retry: kahn.RetryStandard(), Do: fails(0)}), takes(0))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		r := trial{res, t, err, nil}
		r.expect("A:ok B:ready C:retrying", "suspended")
		if err != nil || res.Duration != 500*ms {
			t.Errorf("left after %v with %v", res.Duration, err)
		}
		if err := run.Signal(context.Background(), "A", 1); err == nil {
			t.Error("a run that was left takes signals")
		}
	})
}
