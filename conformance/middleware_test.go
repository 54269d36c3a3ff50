package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

func TestMiddleware(t *testing.T) {
	type key struct{}
	type other struct{}

	inBubble(t, "what it hands on is the Step", func(t *testing.T) {
		errOwn := errors.New("of the middleware")
		hand := func(f func(ctx context.Context) context.Context) kahn.Option {
			return kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
				return func(ctx context.Context, s *kahn.Step) (any, error) { return next(f(ctx), s) }
			})
		}
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.Value(key{}) != "outer" || s.Value(other{}) != "inner" || ctx.Value(key{}) != "outer" {
				t.Errorf("values %v, %v, %v", s.Value(key{}), s.Value(other{}), ctx.Value(key{}))
			}
			if d, ok := s.Deadline(); !ok || time.Until(d) != time.Second {
				t.Errorf("the deadline is %v, %v", d, ok)
			}
			s.Emit("piece")
			s.Log(slog.LevelInfo, "word")
			s.Tokens(1, 2)
			<-s.Done()
			if s.Err() != ctx.Err() || context.Cause(s) != context.Cause(ctx) {
				t.Errorf("%v and %v, %v and %v", s.Err(), ctx.Err(), context.Cause(s), context.Cause(ctx))
			}
			if s.ID() == "B" {
				return nil, s.Err()
			}
			return context.Cause(s).Error(), nil
		}
		opts := []kahn.Option{
			hand(func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, "outer") }),
			hand(func(ctx context.Context) context.Context { return ctx }),
			hand(func(ctx context.Context) context.Context {
				ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, other{}, "inner"), time.Second, errOwn)
				_ = cancel // the context ends at its deadline
				return ctx
			}),
		}
		r := try(t, graph(after("A")), step, opts...)
		r.expect("A:ok", "completed")
		if r.node("A").Output != errOwn.Error() || r.Duration != time.Second {
			t.Errorf("%v after %v", r.node("A").Output, r.Duration)
		}
		r.count(event.NodeDelta, "A", 1)
		r.count(event.NodeLog, "A", 1)
		if p := r.find(event.NodeCompleted, "A")[0].Payload.(event.Completion); p.InputTokens != 1 || p.OutputTokens != 2 {
			t.Errorf("tokens %d, %d", p.InputTokens, p.OutputTokens)
		}
		// A stop of the run reaches the context that the middleware derived.
		stopped := tryControlled(t, t.Context(), graph(after("B")), step, func(run *kahn.Run) { time.AfterFunc(ms, func() { run.Cancel() }) }, opts...)
		stopped.expect("B:C", "cancelled")
		if stopped.Duration != ms {
			t.Errorf("stopped after %v", stopped.Duration)
		}
	})

	inBubble(t, "around every attempt, the first outermost, made once", func(t *testing.T) {
		var mu sync.Mutex
		var trace []string
		note := func(format string, args ...any) {
			mu.Lock()
			trace = append(trace, fmt.Sprintf(format, args...))
			mu.Unlock()
		}
		named := func(name string) func(kahn.StepFunc) kahn.StepFunc {
			note("make %s", name)
			return func(next kahn.StepFunc) kahn.StepFunc {
				note("wrap %s", name)
				return func(ctx context.Context, s *kahn.Step) (any, error) {
					note("%s before %s#%d", name, s.ID(), s.Attempt())
					path, _ := ctx.Value(key{}).(string)
					v, err := next(context.WithValue(ctx, key{}, path+name), s)
					note("%s after %v, %v", name, v, err)
					return v, err
				}
			}
		}
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "A" && s.Attempt() == 1 {
				return nil, errStep
			}
			return ctx.Value(key{}), nil
		}
		g := graph(kahn.Node{ID: "A", Retry: kahn.RetryStandard()}, kahn.Node{ID: "B", After: []string{"A"}, Do: step},
			kahn.Node{ID: "C", After: []string{"B"}, Test: func(kahn.View) (any, error) { return "yes", nil }})
		r := try(t, g, step, kahn.Use(named("x"), named("y")), kahn.Use(named("z")))
		r.expect("A:ok B:ok C:ok", "completed")
		if r.node("A").Output != "xyz" || r.node("B").Output != "xyz" {
			t.Errorf("outputs %v, %v", r.node("A").Output, r.node("B").Output)
		}
		want := []string{"make x", "make y", "make z", "wrap z", "wrap y", "wrap x",
			"x before A#1", "y before A#1", "z before A#1", "z after <nil>, the step broke", "y after <nil>, the step broke", "x after <nil>, the step broke",
			"x before A#2", "y before A#2", "z before A#2", "z after xyz, <nil>", "y after xyz, <nil>", "x after xyz, <nil>",
			"x before B#1", "y before B#1", "z before B#1", "z after xyz, <nil>", "y after xyz, <nil>", "x after xyz, <nil>"}
		if !slices.Equal(trace, want) {
			t.Errorf("got\n%s\nexpected\n%s", strings.Join(trace, "\n"), strings.Join(want, "\n"))
		}
	})

	inBubble(t, "it decides what the attempt comes to", func(t *testing.T) {
		shield := func(next kahn.StepFunc) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				switch s.ID() {
				case "cached":
					return "from the cache", nil
				case "skipped":
					return nil, kahn.Skip("not today")
				case "refused":
					return nil, kahn.Permanent(errHost)
				}
				v, err := next(ctx, s)
				return fmt.Sprint(v, "!"), err
			}
		}
		g := graph(after("cached"), after("skipped"), after("refused"), kahn.Node{ID: "shouted", OutputSchema: wants("done!")})
		r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() != "shouted" {
				t.Errorf("%s was called", s.ID())
			}
			return "done", nil
		}, kahn.Use(shield), kahn.RetryStandard())
		r.expect("cached:ok skipped:S/self refused:F shouted:ok", "failed")
	})

	inBubble(t, "a derived context ends with the attempt", func(t *testing.T) {
		derive := func(next kahn.StepFunc) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				return next(ctx, s)
			}
		}
		r := try(t, graph(kahn.Node{ID: "A", Timeout: ms}), untilStopped, kahn.Use(derive))
		r.expect("A:F", "failed")
		r.cause("A", kahn.CauseTimeout)
	})

	inBubble(t, "judged inputs, then the middleware", func(t *testing.T) {
		never := func(kahn.StepFunc) kahn.StepFunc { return neverStep(t) }
		try(t, graph(kahn.Node{ID: "A", InputSchema: wants(1)}), nop, kahn.Use(never)).expect("A:F", "failed")
	})
}

func TestUseOption(t *testing.T) {
	identity := func(next kahn.StepFunc) kahn.StepFunc { return next }
	for name, mw := range map[string]func(kahn.StepFunc) kahn.StepFunc{
		"nil":         nil,
		"returns nil": func(kahn.StepFunc) kahn.StepFunc { return nil },
		"panics":      func(kahn.StepFunc) kahn.StepFunc { panic(errHost) },
	} {
		_, err := kahn.Execute(t.Context(), graph(after("A")), nop, kahn.Use(identity, mw))
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
	}
	_, err := kahn.Execute(t.Context(), graph(after("A")), nil, kahn.Use(identity))
	require.ErrorIs(t, err, kahn.ErrNoStep)
	_, err = kahn.Execute(t.Context(), graph(kahn.Node{ID: "A", Do: nop}), nil, kahn.Use(identity), kahn.Use())
	require.NoError(t, err)
}

// TestOnNode: OnNode reports every node once, with the data of the Result, except for origins that were still unknown.
func TestOnNode(t *testing.T) {
	bothModes(t, "every kind of end", func(t *testing.T, mode kahn.Mode) {
		g := graph(
			kahn.Node{ID: "ok", Retry: kahn.RetryStandard(), Do: script(errStep)},
			kahn.Node{ID: "bad", Do: always(errStep)}, after("victim", "bad"), after("victim2", "victim"),
			kahn.Node{ID: "off", Disabled: true}, after("unused", "off"),
			kahn.Node{ID: "guarded", When: func(kahn.View) (bool, error) { return true, errHost }},
			kahn.Node{ID: "self", Do: always(kahn.Skip("words"))},
			kahn.Node{ID: "refused", InputSchema: wants(1)},
			kahn.Node{ID: "late", Do: takes(10 * ms), Timeout: ms},
			kahn.Node{ID: "gone", Do: always(kahn.ErrCallAborted)},
			kahn.Node{ID: "soft", Do: always(errStep), ContinueOnFail: true},
			kahn.Node{ID: "saved", Do: always(errStep), Fallback: func(context.Context, error) (any, error) { return 1, nil }},
			kahn.Node{ID: "Z", Kind: kahn.KindEnd},
		)
		var seen []kahn.NodeResult
		r := try(t, g, nop, mode, kahn.OnNode(func(n kahn.NodeResult) { seen = append(seen, n) }))
		if len(seen) != r.Len() {
			t.Fatalf("%d observed", len(seen))
		}
		var order, ended []string
		for _, n := range seen {
			order = append(order, n.ID)
			want := r.node(n.ID)
			if fmt.Sprint(n.Err) != fmt.Sprint(want.Err) || errors.Is(n.Err, errStep) != errors.Is(want.Err, errStep) {
				t.Errorf("error of %s: %v, expected %v", n.ID, n.Err, want.Err)
			}
			if (n.Cause.Err == nil) != (want.Cause.Err == nil) {
				t.Errorf("cause of %s: %v, expected %v", n.ID, n.Cause, want.Cause)
			}
			if n.RunID != r.ID() {
				t.Errorf("run %s of %s, expected %s", n.RunID, n.ID, r.ID())
			}
			n.Err, want.Err, n.Cause.Err, want.Cause.Err, n.RunID = nil, nil, nil, nil, ""
			if !reflect.DeepEqual(n, want) {
				t.Errorf("observed\n%+v, the result is\n%+v", n, want)
			}
		}
		for _, e := range r.events {
			if nodeTerminal[e.Type] != kahn.Idle {
				ended = append(ended, e.Node)
			}
		}
		if !slices.Equal(order, ended) {
			t.Errorf("in the order %v, expected %v", order, ended)
		}
	})

	inBubble(t, "stopped", func(t *testing.T) {
		var seen []kahn.NodeResult
		r := tryControlled(t, t.Context(), graph(after("A"), after("B", "A")), untilStopped, func(r *kahn.Run) { r.Cancel() },
			kahn.OnNode(func(n kahn.NodeResult) { seen = append(seen, n) }))
		r.expect("A:C B:C", "cancelled")
		for _, n := range seen {
			if n.Status != kahn.Cancelled || n.Cause.Kind != kahn.CauseCancelRun || len(n.Cause.Origins) > 0 || !errors.Is(n.Err, kahn.ErrCancelled) {
				t.Errorf("observed %+v", n)
			}
		}
		if len(seen) != 2 {
			t.Errorf("observed %v", seen)
		}
	})

	// Middleware, contracts, moderation and observers apply inside a composite as in the outermost graph.
	bothModes(t, "nested", func(t *testing.T, mode kahn.Mode) {
		inner := graph(
			kahn.Node{ID: "A", Params: map[string]any{"x": 1}, InputSchema: wants(map[string]any{"x": 1}), OutputSchema: wants("A!"), Moderation: kahn.ModerateBoth},
			kahn.Node{ID: "B", After: []string{"A"}, Moderation: kahn.ModerateInput, Params: map[string]any{"bad": true}}, after("C", "B"))
		g := graph(kahn.Node{ID: "A", Sub: inner}, after("D", "A"))
		var seen []string
		r := try(t, g, takes(ms), mode,
			kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
				return func(ctx context.Context, s *kahn.Step) (any, error) {
					v, err := next(ctx, s)
					return fmt.Sprint(v, "!"), err
				}
			}),
			kahn.Moderate(func(_ context.Context, _ event.Phase, _ *kahn.Step, value any) error {
				if m, ok := value.(map[string]any); ok && m["bad"] == true {
					return kahn.Flag("bad")
				}
				return nil
			}),
			kahn.OnNode(func(n kahn.NodeResult) {
				seen = append(seen, fmt.Sprint(n.ID, " ", n.Status, " ", n.Cause.Kind, " ", n.Cause.Origins, " ", n.Output))
			}))
		r.expect("A:F D:X", "failed")
		want := []string{"A/A completed  [] A!", "A/B failed moderation [B] <nil>", "A/C aborted upstream_failure [B] <nil>",
			"A failed subrun [A] <nil>", "D aborted upstream_failure [A] <nil>"}
		if !slices.Equal(seen, want) {
			t.Errorf("observed\n%s\nexpected\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
		}
	})

	_, err := kahn.Execute(t.Context(), graph(after("A")), nop, kahn.OnNode(nil))
	require.ErrorIs(t, err, kahn.ErrBadOption)

	var alone []string // the run has no other listener
	_, err = kahn.Execute(t.Context(), graph(after("A")), nop, kahn.OnNode(func(n kahn.NodeResult) { alone = append(alone, n.ID) }))
	require.NoError(t, err)
	require.Equal(t, []string{"A"}, alone)
}
