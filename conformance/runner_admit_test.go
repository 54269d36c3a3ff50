package conformance_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// Serve calls Admit before it begins a run. If Admit refuses the run, the run ends as cancelled and calls no step.
func TestAdmit(t *testing.T) {
	t.Parallel()
	inBubble(t, "a run is refused, and one is not", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "a"}, kahn.Node{ID: "clean", Cleanup: true, After: []string{"a"}}, kahn.Node{ID: "end", Kind: kahn.KindEnd})
		n, err := kahn.Prepare(g, kahn.RunID("refused"), kahn.Inputs(map[string]any{"x": "1"}), kahn.Describe(store.Spec{Labels: map[string]string{"l": "1"}}))
		require.NoError(t, err)
		_, _, err = s.Create(t.Context(), n)
		require.NoError(t, err)
		s.create(t, g, time.Time{}, "admitted")
		x := s.service(g)
		x.Workflows[0].Options = append(x.Workflows[0].Options, kahn.StoreEvents())
		x.Admit = func(ctx context.Context, r *store.Run) (*kahn.Request, error) {
			owner, until, err := s.ReadLease(ctx, r.ID)
			require.NoError(t, err)
			deadline, ok := ctx.Deadline()
			require.True(t, ok && owner != "" && !until.After(deadline), "the lease is held until %v, and the context ends at %v", until, deadline)
			s.note("ask %s %v %s", r.ID, r.Labels, r.Inputs)
			r.Labels = maps.Clone(r.Labels)
			if r.Labels == nil {
				r.Labels = map[string]string{}
			}
			r.Labels["asked"] = "yes"
			if r.ID == "refused" {
				return &kahn.Request{Actor: "admission", Reason: "too late"}, nil
			}
			return nil, nil
		}
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Minute)
		require.ElementsMatch(t, []string{`ask refused map[l:1] {"x":"1"}`, "ask admitted map[] ", "admitted a", "admitted clean", "admitted end"}, s.take())
		end()
		for id, labels := range map[string]map[string]string{"refused": {"l": "1", "asked": "yes"}, "admitted": {"asked": "yes"}} {
			r, err := s.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, labels, r.Labels)
		}
		res, err := kahn.ReadResult(t.Context(), g, s, "refused")
		require.ErrorIs(t, err, kahn.ErrCancelled)
		require.Equal(t, kahn.RunCancelled, res.Status)
		require.True(t, res.CancelRequested)
		for n := range res.Nodes() {
			require.Equal(t, kahn.Cancelled, n.Status, n.ID)
		}
		events := storedEvents(t, s, "refused")
		over := events[len(events)-1]
		require.Equal(t, "run.cancelled", string(over.Type))
		require.Equal(t, "too late", over.Payload.(event.RunEnd).Request.Reason)
	})
	inBubble(t, "an error, and a panic, are no answer", func(t *testing.T) {
		s, g, asked := new(served), flow("w", kahn.Node{ID: "a"}, kahn.Node{ID: "wait", Do: func(_ context.Context, step *kahn.Step) (any, error) {
			if _, resumed := step.Resumed(); !resumed {
				return nil, kahn.SuspendFor("", nil, nil, time.Now().Add(time.Hour))
			}
			return nil, nil
		}}), 0
		s.create(t, g, time.Time{}, "r")
		x := s.service(g)
		broken := errors.New("no answer")
		x.Admit = func(context.Context, *store.Run) (*kahn.Request, error) {
			switch asked++; asked {
			case 1:
				return nil, broken
			case 2:
				panic("no answer")
			}
			return nil, nil
		}
		var errs []error
		x.OnError = func(_ string, _ store.Queue, err error) { errs = append(errs, err) }
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"r a"}, s.take())
		require.Len(t, errs, 2)
		require.ErrorIs(t, errs[0], broken)
		require.ErrorContains(t, errs[1], "panic")
		time.Sleep(2 * time.Hour)
		require.Equal(t, 3, asked, "a run that goes on is not asked about")
		end()
	})
}

// ahead is a store whose clock is ahead of the process's clock.
type ahead struct {
	*served
	by time.Duration
}

func (s ahead) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := s.served.Due(ctx, q)
	if err != nil || len(page.Runs) > 0 {
		return page, err
	}
	list, err := s.List(ctx, store.Query{Filter: store.Filter{Statuses: []kahn.RunStatus{kahn.RunPending}}})
	for _, r := range list.Runs {
		if time.Until(r.WakeAt) <= s.by {
			page.Runs = append(page.Runs, r)
		}
	}
	return page, err
}

// A run begins when it is due by the store's clock, even if the process's clock is behind. If the run was postponed meanwhile, it does not begin.
func TestDueByTheClockOfTheStore(t *testing.T) {
	t.Parallel()
	inBubble(t, "an hour ahead", func(t *testing.T) {
		s, g := ahead{new(served), time.Hour}, flow("w", kahn.Node{ID: "a"})
		s.create(t, g, time.Now().Add(time.Hour+time.Minute), "r")
		x := s.service(g)
		x.Store = s
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Minute - ms)
		require.Empty(t, s.take())
		time.Sleep(time.Second)
		require.Equal(t, []string{"r a"}, s.take())
		end()
	})
	inBubble(t, "put off", func(t *testing.T) {
		s, g := ahead{new(served), 0}, flow("w", kahn.Node{ID: "a"})
		s.create(t, g, time.Now().Add(-time.Minute), "r")
		x, once := s.service(g), false
		x.Store = putOff{s, func() {
			if n, err := kahn.Prepare(g, kahn.RunID("r")); err == nil && !once {
				once, n.IfExists, n.NotBefore = true, store.Replace, time.Now().Add(time.Hour)
				_, _, err = s.Create(t.Context(), n)
				require.NoError(t, err)
			}
		}}
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(59 * time.Minute)
		require.Empty(t, s.take())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"r a"}, s.take())
		end()
	})
}

// putOff is a store that calls a function after it has listed due runs.
type putOff struct {
	ahead
	listed func()
}

func (s putOff) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := s.ahead.Due(ctx, q)
	if len(page.Runs) > 0 {
		s.listed()
	}
	return page, err
}
