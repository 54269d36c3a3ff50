package progress

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// undone returns a graph whose last step fails, so that its steps are undone. Undoing ship and pack succeeds in the second attempt,
// and undoing charge never succeeds.
func undone() *kahn.Graph {
	nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	retry := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}
	undo := func(_ context.Context, s *kahn.Step) error {
		time.Sleep(2 * time.Second)
		if s.ID() == "charge" || s.Attempt() == 1 {
			return errors.New("bank closed")
		}
		return nil
	}
	inner := new(kahn.Graph).Add(kahn.Node{ID: "x", Do: nothing, Compensate: undo, CompensateRetry: retry})
	return new(kahn.Graph).Add(
		kahn.Node{ID: "charge", Do: nothing, Compensate: undo, CompensateRetry: retry},
		kahn.Node{ID: "pack", Sub: inner, After: []string{"charge"}},
		kahn.Node{ID: "ship", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no truck") }, Compensate: undo, CompensateRetry: retry, After: []string{"pack"}},
	)
}

func TestPlainLogOfCompensations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := New(&out, Plain)
		sink, checked := watched(t, undone(), p.Event)
		res, err := kahn.Execute(t.Context(), undone(), nil, kahn.OnEvent(sink))
		if !errors.Is(err, kahn.ErrCompensation) {
			t.Error(err)
		}
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		golden(t, "testdata/undo.txt", out.String())
	})
}

// Nodes that are being undone are shown like running steps. Nodes that could not be undone stay on the screen.
func TestScreenOfCompensations(t *testing.T) {
	v := onTerminal(t, 60, 9, []time.Duration{500 * time.Millisecond, 4500 * time.Millisecond, 12 * time.Second}, func(t *testing.T, v *terminal) {
		p := New(v.tty, Auto)
		sink, checked := watched(t, undone(), p.Event)
		res, err := kahn.Execute(t.Context(), undone(), nil, kahn.OnEvent(sink))
		if err == nil {
			t.Error("the run has not failed")
		}
		checked(res)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for at, want := range map[string]string{
		"500ms": "[3/3] 1 failed 1 compensating 00:00\nFAILED ship: step_error: no truck\n<= ship                                                 0.5s\n",
		"4.5s":  "[3/3] 1 failed 1 compensating 00:04\nFAILED ship: step_error: no truck\n<= ship (attempt 2)                                     1.5s\n",
		"12s":   "[3/3] 1 failed 1 compensating 2 compensated 00:12\nFAILED ship: step_error: no truck\n<= charge                                               2.0s\n",
	} {
		if got := v.snapshots[at]; got != want {
			t.Errorf("%s:\n%s\nexpected\n%s", at, got, want)
		}
	}
	want := "[3/3] run failed: 1 failed 1 compensation failed 2 co… 00:15\nFAILED ship: step_error: no truck\nCOMPENSATION FAILED charge: bank closed\n"
	if got := v.String(); got != want {
		t.Errorf("at the end:\n%s\nexpected\n%s", got, want)
	}
}
