package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// sleeper returns a step that sleeps twice for an hour, and calls the function "note" with the values with which the step was resumed.
func sleeper(note func(string, ...any)) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		value, resumed := s.Resumed()
		note("%s attempt %d, state %v, resumed %v %v", s.ID(), s.Attempt(), s.SavedState(), value, resumed)
		n := 0
		switch v := s.SavedState().(type) {
		case int:
			n = v
		case float64:
			n = int(v)
		}
		if s.ID() == "s" && n < 2 {
			return nil, kahn.SuspendUntil(time.Now().Add(time.Hour), n+1)
		}
		return n, nil
	}
}

// A sleeping step is called again when its time comes, in the same attempt. It holds no slot while it sleeps, and Execute waits for it.
func TestSuspendUntil(t *testing.T) {
	t.Parallel()
	g := func() *kahn.Graph {
		return flow("w", kahn.Node{ID: "s"}, kahn.Node{ID: "b", After: []string{"s"}}, kahn.Node{ID: "other"})
	}
	said := []string{"s attempt 1, state <nil>, resumed <nil> false", "other attempt 1, state <nil>, resumed <nil> false", "s attempt 1, state 1, resumed <nil> false",
		"s attempt 1, state 2, resumed <nil> false", "b attempt 1, state <nil>, resumed <nil> false"}
	for name, opts := range map[string][]kahn.Option{"eager": {kahn.Limit(1)}, "waves": {kahn.Waves, kahn.Limit(1)}, "stopping at waits": {kahn.SuspendStop, kahn.Limit(1)}} {
		inBubble(t, "in memory, "+name, func(t *testing.T) {
			s, begin := new(served), time.Now()
			r := try(t, g(), sleeper(s.note), opts...)
			r.expect("s:ok b:ok other:ok", "completed")
			require.Equal(t, said, s.take())
			require.Equal(t, 2*time.Hour, time.Since(begin))
			require.Equal(t, 1, r.node("s").Attempts)
			require.Equal(t, 2, r.node("s").Output)
		})
	}
	inBubble(t, "a slot, the reason, and an early end", func(t *testing.T) {
		s := new(served)
		run, err := kahn.Start(t.Context(), g(), sleeper(s.note), kahn.Limit(1))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, kahn.RunRunning, run.Status())
		why, err := run.Why("s")
		require.NoError(t, err)
		require.Equal(t, kahn.WhyBackoff, why.Kind)
		require.Equal(t, 59*time.Minute, time.Until(why.Until))
		require.Contains(t, why.String(), "it sleeps until")
		require.Error(t, run.Signal(t.Context(), "s", 1), "there is no signal to wait for")
		require.NoError(t, run.RetryNow("s"))
		time.Sleep(time.Minute)
		require.Len(t, s.take(), 3)
		require.NoError(t, run.Cancel())
		res, err := run.Wait()
		require.ErrorIs(t, err, kahn.ErrCancelled)
		kahntest.RequireStatuses(t, res, "s:C b:C other:ok")
	})
	inBubble(t, "past, and zero", func(t *testing.T) {
		n := 0
		res, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "s"}), func(_ context.Context, s *kahn.Step) (any, error) {
			if n++; n < 3 {
				return nil, kahn.SuspendUntil(time.Time{}, nil)
			}
			return s.Attempt(), nil
		})
		require.NoError(t, err)
		require.Equal(t, 1, res.Output())
	})
	inBubble(t, "Timeout begins anew, OverallTimeout goes on", func(t *testing.T) {
		s := new(served)
		x := flow("w", kahn.Node{ID: "s", Timeout: time.Minute})
		_, err := kahn.Execute(t.Context(), x, sleeper(s.note))
		require.NoError(t, err)
		x = flow("w", kahn.Node{ID: "s", OverallTimeout: 90 * time.Minute})
		begin := time.Now()
		_, err = kahn.Execute(t.Context(), x, sleeper(s.note))
		require.ErrorIs(t, err, kahn.ErrTimeout)
		require.Equal(t, 90*time.Minute, time.Since(begin))
	})
	inBubble(t, "a retry after a sleep is another attempt", func(t *testing.T) {
		var said []string
		x := graph(kahn.Node{ID: "s", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second}})
		_, err := kahn.Execute(t.Context(), x, func(_ context.Context, s *kahn.Step) (any, error) {
			said = append(said, fmt.Sprint(s.Attempt(), s.SavedState()))
			if s.SavedState() == nil {
				return nil, kahn.SuspendUntil(time.Now().Add(time.Hour), s.Attempt())
			}
			return nil, errors.New("busy")
		})
		require.Error(t, err)
		require.Equal(t, []string{"1 <nil>", "1 1", "2 1"}, said)
	})
	inBubble(t, "the end node, and a node that is to stop", func(t *testing.T) {
		sleeps := func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.SuspendUntil(time.Now().Add(time.Hour), nil)
		}
		res, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "end", Kind: kahn.KindEnd}), sleeps)
		require.Error(t, err)
		require.Equal(t, kahn.Failed, status(res, "end"))
	})
	inBubble(t, "lives, as a file and over a store", func(t *testing.T) {
		s := new(served)
		run, err := kahn.Start(t.Context(), g(), sleeper(s.note), kahn.Limit(1))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		require.True(t, res.Left)
		text, err := json.Marshal(res.Snapshot())
		require.NoError(t, err)
		var read kahn.Snapshot
		require.NoError(t, json.Unmarshal(text, &read))
		time.Sleep(9 * time.Minute)
		begin := time.Now()
		r := try2(t, g(), sleeper(s.note), kahn.Resume(&read))
		r.expect("s:ok b:ok other:ok", "completed")
		require.Equal(t, said, s.take())
		require.Equal(t, 50*time.Minute+time.Hour, time.Since(begin))
	})
	inBubble(t, "served, and inside of composites", func(t *testing.T) {
		inner := graph(kahn.Node{ID: "s"})
		for name, x := range map[string]*kahn.Graph{
			"plain": g(), "sub": flow("w", kahn.Node{ID: "S", Sub: inner}), "items": flow("w", kahn.Node{ID: "M", Sub: inner, Map: &kahn.Map{Over: "l"}, Params: map[string]any{"l": []int{1, 2}}}),
			"loop": flow("w", kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 1, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}}),
		} {
			s := new(served)
			s.create(t, x, time.Time{}, "r")
			v := s.service(x)
			v.Workflows[0].Step = sleeper(s.note)
			begin := time.Now()
			end := serve(t, &kahn.Runner{MaxRuns: 1}, v)
			for hour := range 2 {
				time.Sleep(time.Until(begin.Add(time.Duration(hour)*time.Hour + time.Minute)))
				require.Equal(t, kahn.RunSuspended, s.status(t, "r"), name)
				require.Zero(t, s.held(t), name)
			}
			time.Sleep(time.Hour)
			require.Equal(t, kahn.RunCompleted, s.status(t, "r"), name)
			for _, line := range s.take() {
				require.Contains(t, line, "attempt 1,", name)
			}
			end()
		}
	})
}

// A wait with a deadline ends at the signal or at the deadline, whichever comes first.
func TestSuspendFor(t *testing.T) {
	t.Parallel()
	g := flow("w", kahn.Node{ID: "s"}, kahn.Node{ID: "b", After: []string{"s"}})
	waits := func(note func(string, ...any)) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() != "s" {
				return nil, nil
			}
			value, resumed := s.Resumed()
			note("attempt %d, state %v, resumed %v %v", s.Attempt(), s.SavedState(), value, resumed)
			if s.SavedState() == nil {
				return nil, kahn.SuspendFor("tok", "info", "state", time.Now().Add(time.Hour))
			}
			return nil, nil
		}
	}
	first := "attempt 1, state <nil>, resumed <nil> false"
	for _, signalled := range []bool{false, true} {
		last := fmt.Sprintf("attempt 1, state state, resumed %v %v", map[bool]any{false: nil, true: 7}[signalled], signalled)
		inBubble(t, fmt.Sprint("in memory, signalled ", signalled), func(t *testing.T) {
			s := new(served)
			run, err := kahn.Start(t.Context(), g, waits(s.note))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			list := run.Waiting()
			require.Len(t, list, 1)
			require.Equal(t, 59*time.Minute, time.Until(list[0].Deadline))
			if signalled {
				require.NoError(t, run.Signal(t.Context(), "tok", 7))
			}
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			require.Equal(t, []string{first, last}, s.take())
		})
		inBubble(t, fmt.Sprint("at rest in a file, signalled ", signalled), func(t *testing.T) {
			s := new(served)
			rests, err := kahn.Execute(t.Context(), g, waits(s.note))
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, rests.Status)
			snap := reload(t, rests.Snapshot())
			opts := []kahn.Option{kahn.Resume(snap)}
			if signalled {
				opts = append(opts, kahn.EarlySignals(map[string]any{"tok": 7}))
			} else {
				time.Sleep(2 * time.Hour)
			}
			res, err := kahn.Execute(t.Context(), g, waits(s.note), opts...)
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			require.Equal(t, []string{first, last}, s.take())
		})
		inBubble(t, fmt.Sprint("served, signalled ", signalled), func(t *testing.T) {
			s := new(served)
			s.create(t, g, time.Time{}, "r")
			v := s.service(g)
			v.Workflows[0].Step = waits(s.note)
			end := serve(t, &kahn.Runner{MaxRuns: 1}, v)
			time.Sleep(time.Minute)
			require.Zero(t, s.held(t))
			if signalled {
				q, err := kahn.PrepareSignal("tok", 7)
				require.NoError(t, err)
				_, err = s.Post(t.Context(), "r", q)
				require.NoError(t, err)
			} else {
				time.Sleep(time.Hour)
			}
			time.Sleep(time.Minute)
			require.Equal(t, kahn.RunCompleted, s.status(t, "r"))
			require.Equal(t, []string{first, last}, s.take())
			end()
		})
	}
	inBubble(t, "a signal that comes too late", func(t *testing.T) {
		s := new(served)
		rests, err := kahn.Execute(t.Context(), g, waits(s.note))
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		res, err := kahn.Execute(t.Context(), g, waits(s.note), kahn.Resume(reload(t, rests.Snapshot())), kahn.EarlySignals(map[string]any{"tok": 7}))
		require.NoError(t, err)
		require.Equal(t, []string{first, "attempt 1, state state, resumed <nil> false"}, s.take())
		require.Len(t, res.Warnings, 1)
		require.ErrorIs(t, res.Warnings[0], kahn.ErrAnswered)
	})
}

// A run can be stored even if a step sleeps until a time that JSON cannot represent. A time after the year 9999 is replaced by the latest
// possible time, and a time before the year 1 counts as passed.
func TestSuspendBeyondCalendars(t *testing.T) {
	t.Parallel()
	west, odd := time.FixedZone("west", -5*60*60), time.FixedZone("east", 14*60*60)
	for name, c := range map[string]struct {
		at     time.Time
		passed bool
	}{
		"the year 10000":               {time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), false},
		"the year 200000":              {time.Date(200000, 1, 1, 0, 0, 0, 0, west), false},
		"10000 in UTC only":            {time.Date(9999, 12, 31, 23, 0, 0, 0, west), false},
		"10000 in its zone only":       {time.Date(10000, 1, 1, 1, 0, 0, 0, odd), false},
		"before the common era":        {time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), true},
		"the first moment, west of it": {time.Time{}.In(west).Add(time.Second), true},
	} {
		for _, sleeps := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, sleeps %v", name, sleeps), func(t *testing.T) {
				calls := 0
				step := func(_ context.Context, s *kahn.Step) (any, error) {
					switch calls++; {
					case s.SavedState() != nil:
						return "again", nil
					case sleeps:
						return nil, kahn.SuspendUntil(c.at, "state")
					}
					return nil, kahn.SuspendFor("tok", nil, "state", c.at)
				}
				_, err := step(t.Context(), kahn.NewStep(t.Context(), kahn.Call{}, nil))
				data, jsonErr := json.Marshal(kahn.Reply{Err: err})
				require.NoError(t, jsonErr)
				require.NoError(t, new(kahn.Reply).UnmarshalJSON(data))
				if c.at.Year() < 0 {
					require.Contains(t, string(data), `"0001-01-01T00:00:01Z"`)
				}
				calls = 0
				db := new(store.Memory)
				opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(db), kahn.StoreEvents()}
				for life := range 3 {
					ctx, end := context.WithTimeout(t.Context(), time.Minute)
					res, err := kahn.Execute(ctx, graph(kahn.Node{ID: "s"}), step, opts...)
					end()
					require.NotErrorIs(t, err, kahn.ErrStore)
					if c.passed {
						require.NoError(t, err)
						require.Equal(t, "again", res.Output())
						require.Equal(t, 2, calls)
						return
					}
					require.Equal(t, kahn.RunSuspended, res.Status)
					require.Equal(t, 1, calls, "life %d", life)
					reload(t, res.Snapshot())
					if !sleeps {
						require.Len(t, res.Waiting, 1)
						require.Equal(t, 9999, res.Waiting[0].Deadline.UTC().Year())
					}
				}
			})
		}
	}
}

// A suspension can also be encoded as data. A Coordinator resumes the step by its own clock.
func TestSuspendUntilElsewhere(t *testing.T) {
	t.Parallel()
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	for _, err := range []error{kahn.SuspendUntil(at, 3.5), kahn.SuspendFor("tok", "info", 3.5, at), kahn.Suspend("tok", "info", 3.5)} {
		data, failed := json.Marshal(kahn.Reply{Err: err})
		require.NoError(t, failed)
		var back kahn.Reply
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, err, back.Err)
	}
	for stored, date := range map[string]time.Time{ // the years 1 to 9999 can be stored
		"0001-01-01T00:00:01Z": time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC),
		"0001-06-01T00:00:00Z": time.Date(1, 6, 1, 0, 0, 0, 0, time.UTC),
		"9999-06-01T00:00:00Z": time.Date(9999, 6, 1, 0, 0, 0, 0, time.UTC),
		"9999-12-31T23:59:59Z": time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		data, err := json.Marshal(kahn.Reply{Err: kahn.SuspendFor("tok", nil, nil, date)})
		require.NoError(t, err)
		require.Contains(t, string(data), stored)
	}
	now := at
	c, err := kahn.NewCoordinator(compiled(t, graph(kahn.Node{ID: "s"})), now)
	require.NoError(t, err)
	s, ok := c.Next()
	require.True(t, ok)
	require.NoError(t, c.Return(s, nil, kahn.SuspendUntil(now.Add(time.Hour), "state")))
	_, ok = c.Next()
	require.False(t, ok)
	due, ok := c.Due()
	require.True(t, ok)
	require.True(t, due.Equal(now.Add(time.Hour)))
	c.Advance(due)
	s, ok = c.Next()
	require.True(t, ok)
	require.Equal(t, "state", s.SavedState())
	require.Equal(t, 1, s.Attempt())
	require.NoError(t, c.Return(s, 1, nil))
	res, err := c.Result()
	require.NoError(t, err)
	require.Equal(t, 1, res.Output())
}

// The process dies at each write in turn. The sleep still ends at its time, in the same attempt and with its saved state.
func TestSuspendUntilCrashes(t *testing.T) {
	t.Parallel()
	inBubble(t, "crashes", func(t *testing.T) {
		g := func() *kahn.Graph {
			return graph(kahn.Node{ID: "a"}, kahn.Node{ID: "s", After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"s"}})
		}
		crashes, err := kahntest.CheckCrashes(t.Context(), func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return g(), func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "s" && s.SavedState() == nil {
					return nil, kahn.SuspendUntil(time.Now().Add(time.Hour), "slept")
				}
				p.Effect(s.IdempotencyKey(), s.Path())
				return fmt.Sprint(s.ID(), s.SavedState()), nil
			}
		})
		require.NoError(t, err)
		require.Greater(t, crashes, 4)
	})
}
