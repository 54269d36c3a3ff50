package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// refuses returns an option whose moderator refuses one phase.
func refuses(phase event.Phase) kahn.Option {
	return kahn.Moderate(func(_ context.Context, p event.Phase, _ *kahn.Step, _ any) error {
		if p == phase {
			return fmt.Errorf("for a reason: %w", kahn.Flag("violence", "spam"))
		}
		return nil
	})
}

func TestModeration(t *testing.T) {
	all := []kahn.CauseKind{kahn.CauseTimeout, kahn.CauseStepError, kahn.CauseRateLimit, kahn.CauseContractOutput, kahn.CausePanic}
	always3 := kahn.Retry{MaxAttempts: 3, RetryOn: all}

	bothModes(t, "who is asked what, and in which order", func(t *testing.T, mode kahn.Mode) {
		var mu sync.Mutex
		var asked []string
		note := func(format string, args ...any) {
			mu.Lock()
			asked = append(asked, fmt.Sprintf(format, args...))
			mu.Unlock()
		}
		contract := func(phase string) kahn.Contract {
			return shape{func(any) []kahn.Violation { note("%s contract", phase); return nil }}
		}
		m := func(ctx context.Context, p event.Phase, s *kahn.Step, value any) error {
			if ctx != context.Context(s) {
				t.Error("the context is not the attempt's")
			}
			note("%s %s %v", s.ID(), p, value)
			return nil
		}
		g := graph(kahn.Node{ID: "none"},
			kahn.Node{ID: "in", After: []string{"none"}, Params: map[string]any{"x": 1}, Moderation: kahn.ModerateInput},
			kahn.Node{ID: "out", After: []string{"in"}, Params: map[string]any{"x": 1}, Moderation: kahn.ModerateOutput},
			kahn.Node{ID: "both", After: []string{"out"}, Params: map[string]any{"x": 1}, Moderation: kahn.ModerateBoth,
				InputSchema: contract("input"), OutputSchema: contract("output")})
		r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			note("step %s", s.ID())
			return "<" + s.ID() + ">", nil
		},
			mode, kahn.Moderate(m))
		r.expect("none:ok in:ok out:ok both:ok", "completed")
		want := []string{"step none", "in input map[x:1]", "step in", "step out", "out output <out>",
			"input contract", "both input map[x:1]", "step both", "both output <both>", "output contract"}
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("asked\n%q, expected\n%q", asked, want)
		}
	})

	bothModes(t, "flagged inputs", func(t *testing.T, mode kahn.Mode) {
		r := try(t, graph(kahn.Node{ID: "A", Moderation: kahn.ModerateBoth, Retry: always3}, after("B", "A")), neverStep(t), mode, refuses(event.PhaseInput))
		r.expect("A:F B:X", "failed")
		r.cause("A", kahn.CauseModeration)
		r.order("node.queued A", "moderation.flagged A", "node.failed A")
		r.count(event.NodeStarted, "A", 0)
		want := event.Refusal{Phase: event.PhaseInput, Errors: []string{"violence", "spam"}}
		if p := r.find(event.ModerationFlagged, "A")[0].Payload; !reflect.DeepEqual(p, want) {
			t.Errorf("event %+v", p)
		}
		var flagged *kahn.ModerationError
		if !errors.As(r.err, &flagged) || flagged.Err != nil || !reflect.DeepEqual(flagged.Reasons, want.Errors) ||
			!strings.Contains(r.err.Error(), "input flagged: violence; spam") {
			t.Errorf("error %v", r.err)
		}
	})

	bothModes(t, "flagged output is not retried", func(t *testing.T, mode kahn.Mode) {
		var c calls
		r := try(t, graph(kahn.Node{ID: "A", Moderation: kahn.ModerateBoth, Retry: always3}, after("B", "A")), c.count(nop), mode, refuses(event.PhaseOutput))
		r.expect("A:F B:X", "failed")
		r.cause("A", kahn.CauseModeration)
		r.order("node.started A", "moderation.flagged A", "node.failed A")
		r.count(event.ModerationFlagged, "A", 1)
		if c.of("A") != 1 || r.node("A").Output != nil {
			t.Errorf("%d calls, %+v", c.of("A"), r.node("A"))
		}
	})

	for phase, choice := range map[event.Phase]kahn.Moderation{event.PhaseInput: kahn.ModerateInput, event.PhaseOutput: kahn.ModerateOutput} {
		for name, say := range map[string]func() error{
			"an error":               func() error { return errHost },
			"a panic":                func() error { panic(errHost) },
			"its own idea of a skip": func() error { return errors.Join(kahn.Skip("x"), errHost) },
		} {
			bothModes(t, fmt.Sprintf("%s of the moderator lets no %v pass", name, phase), func(t *testing.T, mode kahn.Mode) {
				var c calls
				asked := 0
				r := try(t, graph(kahn.Node{ID: "A", Moderation: choice, Retry: always3}), c.count(nop), mode,
					kahn.Moderate(func(context.Context, event.Phase, *kahn.Step, any) error { asked++; return say() }))
				r.expect("A:F", "failed")
				r.cause("A", kahn.CauseModeration)
				r.count(event.ModerationFlagged, "A", 0)
				var e *kahn.ModerationError
				if !errors.As(r.err, &e) || !errors.Is(e.Err, errHost) || e.Phase != phase || asked != 1 || c.of("A") != int(phase) {
					t.Errorf("error %v, asked %d times, %d calls", r.err, asked, c.of("A"))
				}
			})
		}

		patient := kahn.Moderate(func(ctx context.Context, _ event.Phase, _ *kahn.Step, _ any) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		bothModes(t, fmt.Sprintf("%v: the attempt's timeout is the moderator's, and final before the start", phase), func(t *testing.T, mode kahn.Mode) {
			r := try(t, graph(kahn.Node{ID: "A", Moderation: choice, Timeout: ms, Retry: kahn.Retry{MaxAttempts: 2, Jitter: kahn.JitterNone}}), nop, mode, patient)
			r.expect("A:F", "failed")
			r.cause("A", kahn.CauseTimeout)
			attempts := []int{0, 2}[phase]
			r.count(event.NodeStarted, "A", attempts)
			r.count(event.NodeRetried, "A", attempts/2)
			if !errors.Is(r.err, kahn.ErrTimeout) || r.node("A").Attempts != attempts {
				t.Errorf("error %v, %+v", r.err, r.node("A"))
			}
		})
		for name, c := range map[string]struct {
			stop     func(*kahn.Run)
			want     string
			run      string
			option   kahn.Option
			nodeKind kahn.CauseKind
		}{
			"Cancel":     {func(r *kahn.Run) { r.Cancel() }, "A:C B:C", "cancelled", kahn.Interrupt, kahn.CauseCancelRun},
			"AbortAll":   {func(r *kahn.Run) { r.AbortAll(errHost) }, "A:X B:X", "failed", kahn.Interrupt, kahn.CauseAbortAll},
			"CancelNode": {func(r *kahn.Run) { _ = r.CancelNode("A") }, "A:C B:X", "cancelled", kahn.Interrupt, kahn.CauseCancelNode},
			"timeout":    {func(*kahn.Run) {}, "A:X B:X", "failed", kahn.Timeout(2 * ms), kahn.CauseRunTimeout},
		} {
			inBubble(t, fmt.Sprintf("%v: %s stops the moderator", phase, name), func(t *testing.T) {
				r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Moderation: choice}, after("B", "A")), nop, func(run *kahn.Run) {
					time.Sleep(ms)
					c.stop(run)
				}, patient, c.option)
				r.expect(c.want, c.run)
				r.cause("A", c.nodeKind)
			})
		}
	}

	inBubble(t, "draining, what has not started does not start", func(t *testing.T) {
		slow := kahn.Moderate(func(ctx context.Context, _ event.Phase, _ *kahn.Step, _ any) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Error("nobody told the moderator")
			}
			return nil
		})
		g := graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput, Do: neverStep(t)}, kahn.Node{ID: "B", Do: takes(5 * ms)},
			kahn.Node{ID: "C", Do: fails(ms)})
		r := try(t, g, nil, slow, kahn.StopScheduling)
		r.expect("A:X B:ok C:F", "failed")
		r.cause("A", kahn.CauseFailFast)
	})

	inBubble(t, "a member of a group that is drained does not start either", func(t *testing.T) {
		slow := kahn.Moderate(func(ctx context.Context, _ event.Phase, _ *kahn.Step, _ any) error {
			<-ctx.Done()
			return nil
		})
		g := graph(kahn.Node{ID: "A", Groups: []string{"g"}, Moderation: kahn.ModerateInput, Do: neverStep(t)},
			kahn.Node{ID: "B", Groups: []string{"g"}, Do: takes(5 * ms)}, kahn.Node{ID: "C", Groups: []string{"g"}, Do: fails(ms)})
		g.Groups = []kahn.Group{{Name: "g", CancelOnFailure: true}}
		r := try(t, g, nil, slow, kahn.Drain)
		r.expect("A:X B:ok C:F", "failed")
		r.cause("A", kahn.CauseSiblingFailure)
	})

	inBubble(t, "a moderator that ignores its context is left behind", func(t *testing.T) {
		release := make(chan struct{})
		stuck := kahn.Moderate(func(context.Context, event.Phase, *kahn.Step, any) error { <-release; return nil })
		r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput}), neverStep(t), func(run *kahn.Run) {
			time.Sleep(ms)
			run.Cancel()
		}, stuck, kahn.CancelGrace(10*ms))
		r.expect("A:C", "cancelled")
		if len(r.Abandoned) != 1 || !r.node("A").Abandoned || r.node("A").Attempts != 0 {
			t.Errorf("abandoned %v, %+v", r.Abandoned, r.node("A"))
		}
		close(release)
		synctest.Wait()
	})

	inBubble(t, "what a moderator publishes", func(t *testing.T) {
		talks := kahn.Moderate(func(_ context.Context, _ event.Phase, s *kahn.Step, _ any) error {
			s.Log(0, "looking")
			s.Emit("no output before the start")
			return nil
		})
		r := try(t, graph(kahn.Node{ID: "A", Moderation: kahn.ModerateInput}), nop, talks)
		r.expect("A:ok", "completed")
		r.order("node.log A", "node.started A")
		if log := r.find(event.NodeLog, "A")[0]; log.Attempt != 0 {
			t.Errorf("%v is of attempt %d, which has not begun", log, log.Attempt)
		}
		r.count(event.NodeDelta, "A", 0)
	})

	inBubble(t, "a skipped node has nothing to judge", func(t *testing.T) {
		asked := kahn.Moderate(func(_ context.Context, p event.Phase, _ *kahn.Step, _ any) error {
			if p == event.PhaseOutput {
				t.Error("asked about the output")
			}
			return nil
		})
		try(t, graph(kahn.Node{ID: "A", Moderation: kahn.ModerateBoth, OutputSchema: wants(1)}), always(kahn.Skip("no")), asked).
			expect("A:S/self", "completed")
	})
}

func TestModerateOption(t *testing.T) {
	g := graph(kahn.Node{ID: "A", Moderation: kahn.ModerateOutput})
	res, err := kahn.Execute(t.Context(), g, neverStep(t))
	require.Nil(t, res)
	require.ErrorIs(t, err, kahn.ErrNoModerator)
	require.ErrorContains(t, err, `"A"`)
	_, err = kahn.Execute(t.Context(), g, neverStep(t), kahn.Moderate(nil))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	_, err = graph(kahn.Node{ID: "A", Moderation: 99}).Compile()
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

// In test mode a run needs no moderator if mocks replace every node with moderation, also inside composites. Otherwise Execute returns an error
// before the run starts. Conditions and composites are not mocked even if all steps are.
func TestNoModeratorForMocks(t *testing.T) {
	test := kahn.If("test", func(kahn.View) (bool, error) { return true, nil })
	test.Moderation = kahn.ModerateBoth
	g := graph(subgraph("S", graph(kahn.Node{ID: "x", Moderation: kahn.ModerateBoth, Do: succeeds(1)})))
	whole := subgraph("S", graph(kahn.Node{ID: "x", Do: succeeds(1)}))
	whole.Moderation = kahn.ModerateOutput
	items := mapped("M", numbers(2), kahn.Map{})
	items.Sub = graph(kahn.Node{ID: "x", Moderation: kahn.ModerateBoth, Do: succeeds(1)})
	for _, row := range []struct {
		g    *kahn.Graph
		test kahn.TestMode
		want error
	}{
		{g, kahn.TestMode{}, kahn.ErrNoModerator},
		{g, kahn.TestMode{Mocks: mocks{"S/x": {}}}, nil},
		{g, kahn.TestMode{OnMissing: kahn.MissingStub}, nil},
		{g, kahn.TestMode{OnMissing: kahn.MissingStub, Unmock: []string{"S/x"}}, kahn.ErrNoModerator},
		{graph(whole), kahn.TestMode{Mocks: mocks{"S/x": {}}}, kahn.ErrNoModerator},
		{graph(whole), kahn.TestMode{Mocks: mocks{"S": {}}}, nil},
		{graph(items), kahn.TestMode{Mocks: mocks{"M/x": {}}}, nil},
		{graph(items), kahn.TestMode{Mocks: mocks{"M[]": {}}}, nil},
		{graph(items), kahn.TestMode{}, kahn.ErrNoModerator},
		{graph(subgraph("S", graph(test))), kahn.TestMode{OnMissing: kahn.MissingStub}, kahn.ErrNoModerator},
	} {
		res, err := kahn.Execute(t.Context(), row.g, nil, row.test)
		require.ErrorIs(t, err, row.want, "%+v", row.test)
		require.Equal(t, row.want == nil, res != nil, "a run without a moderator does not begin: %+v", row.test)
	}
}
