package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// Serve performs due runs, the oldest first. A run that becomes due later is performed when it is due.
func TestServe(t *testing.T) {
	t.Parallel()
	inBubble(t, "what is due, and later what becomes due", func(t *testing.T) {
		s, g := new(served), flow("w")
		begin := time.Now()
		s.create(t, g, begin.Add(time.Hour), "in an hour")
		s.create(t, g, time.Time{}, "r1", "r2", "r3")
		s.create(t, g, begin.Add(-time.Minute), "r0")
		end := serve(t, &kahn.Runner{MaxRuns: 1}, s.service(g))
		time.Sleep(time.Second)
		require.Equal(t, []string{"r0 a", "r1 a", "r2 a", "r3 a"}, s.take())
		s.create(t, g, time.Time{}, "r4")
		time.Sleep(time.Second)
		require.Equal(t, []string{"r4 a"}, s.take())
		time.Sleep(time.Until(begin.Add(time.Hour)) - ms)
		require.Empty(t, s.take())
		time.Sleep(2 * ms)
		require.Equal(t, []string{"in an hour a"}, s.take())
		end()
		require.Equal(t, kahn.RunCompleted, s.status(t, "r0"))
		s.create(t, g, time.Time{}, "r5")
		time.Sleep(time.Hour)
		require.Empty(t, s.take(), "after Shutdown")
	})
	inBubble(t, "gates, and their deadlines", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}}, kahn.Node{ID: "late", In: []kahn.Edge{{From: "g", On: kahn.OnFailure}}},
			kahn.Node{ID: "b", After: []string{"g"}})
		s.create(t, g, time.Time{}, "answered", "left alone")
		begin, rn := time.Now(), &kahn.Runner{History: -1}
		end := serve(t, rn, s.service(g))
		time.Sleep(time.Minute)
		require.Equal(t, kahn.RunSuspended, s.status(t, "answered"))
		for range rn.Runs() {
			t.Error("a run that rests is kept in memory")
		}
		_, err := kahn.Execute(t.Context(), g, s.step, kahn.RunID("answered"), kahn.Durable(s), kahn.EarlySignals(map[string]any{"g": "yes"}))
		require.NoError(t, err, "any process may answer")
		require.Equal(t, []string{"answered b"}, s.take())
		time.Sleep(time.Until(begin.Add(time.Hour - time.Second)))
		require.Empty(t, s.take())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"left alone late"}, s.take())
		end()
	})
	inBubble(t, "MaxRuns, and Shutdown leaves runs", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
		s.create(t, g, time.Time{}, "r1", "r2", "r3")
		most, now := 0, 0
		slow := func(ctx context.Context, step *kahn.Step) (any, error) {
			s.mu.Lock()
			now++
			most = max(most, now)
			s.mu.Unlock()
			time.Sleep(time.Minute)
			s.mu.Lock()
			now--
			s.mu.Unlock()
			return s.step(ctx, step)
		}
		x := s.service(g)
		x.Workflows[0].Step = slow
		end := serve(t, &kahn.Runner{MaxRuns: 2}, x)
		time.Sleep(time.Second)
		lease, _, err := s.Memory.Acquire(t.Context(), "r3", "another process", time.Second)
		require.NoError(t, err, "a run that has to wait for its turn is not leased")
		require.NoError(t, s.Release(t.Context(), lease))
		time.Sleep(time.Second)
		end()
		require.Equal(t, 2, most)
		require.ElementsMatch(t, []string{"r1 a", "r2 a"}, s.take())
		end = serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(time.Second)
		require.ElementsMatch(t, []string{"r1 b", "r2 b", "r3 a", "r3 b"}, s.take())
		end()
	})
	inBubble(t, "MaxRuns of a workflow leaves places to others", func(t *testing.T) {
		s := new(served)
		noisy, other := flow("noisy", kahn.Node{ID: "a", Do: takes(time.Minute)}), flow("other", kahn.Node{ID: "a", Do: takes(time.Second)})
		for i := range 150 { // more than one page of the store's list
			s.create(t, noisy, time.Time{}, fmt.Sprintf("n%03d", i))
		}
		time.Sleep(time.Second)
		s.create(t, other, time.Time{}, "o1", "o2", "o3")
		begun := time.Now()
		x := s.service(noisy, other)
		x.Workflows[0].MaxRuns = 2
		rn := &kahn.Runner{MaxRuns: 3}
		end := serve(t, rn, x)
		time.Sleep(4 * time.Second)
		for _, id := range []string{"o1", "o2", "o3"} {
			require.Equal(t, kahn.RunCompleted, s.status(t, id))
		}
		for at := time.Minute; at <= 3*time.Minute; at += time.Minute { // one run at a time, as places become free
			time.Sleep(time.Until(begun.Add(at - time.Second)))
			atWork := 0
			for run := range rn.Runs() {
				if status := run.Status(); status == kahn.RunRunning {
					atWork++
				}
			}
			require.Equal(t, 2, atWork, at)
		}
		end()
	})
	inBubble(t, "a context that ends", func(t *testing.T) {
		s, g := new(served), flow("w", kahn.Node{ID: "a", Do: takes(time.Minute)})
		s.create(t, g, time.Time{}, "r")
		ctx, cancel := context.WithCancelCause(t.Context())
		rn, why := new(kahn.Runner), errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(why) })
		require.ErrorIs(t, rn.Serve(ctx, s.service(g)), why)
		run, ok := rn.Run("r")
		require.True(t, ok)
		res, err := run.Wait()
		require.NoError(t, err, "the run goes on")
		var events []kahn.Event
		for e, err := range run.Events(t.Context(), 0) {
			require.NoError(t, err)
			events = append(events, e)
		}
		require.NoError(t, kahntest.CheckEvents(g, res, events))
		require.NoError(t, rn.Shutdown(t.Context()))
		require.NoError(t, rn.Serve(t.Context(), s.service(g)), "after Shutdown")
	})
}

// If Serve performs a run in several lives, the events of all lives form one stream.
func TestServeEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, "lives", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "a"}, kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}, After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"g"}})
		s.create(t, g, time.Time{}, "r")
		rec := newRecorder()
		end := serve(t, &kahn.Runner{Options: []kahn.Option{kahn.OnEvent(rec.add)}}, s.service(g))
		time.Sleep(2 * time.Hour)
		end()
		require.Equal(t, []string{"r a", "r b"}, s.take())
		res, err := kahn.ReadResult(t.Context(), g, s, "r")
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.all()))
	})
}

// Any process may post a request. A run at rest continues at once to take the request, and a running run takes the request, too.
func TestServeRequests(t *testing.T) {
	t.Parallel()
	inBubble(t, "requests", func(t *testing.T) {
		s := new(served)
		slow := kahn.Node{ID: "slow", After: []string{"g"}, Do: func(ctx context.Context, step *kahn.Step) (any, error) { return takes(time.Hour)(ctx, step) }}
		g := flow("w", kahn.Node{ID: "g", Kind: kahn.KindGate}, slow, kahn.Node{ID: "b", After: []string{"slow"}}, kahn.Node{ID: "k", Cleanup: true, After: []string{"b"}})
		s.create(t, g, time.Time{}, "answered", "cancelled", "cancelled at work")
		x := s.service(g)
		x.Poll = time.Minute
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Second)
		post := func(id string, q store.Request, err error) {
			require.NoError(t, err)
			_, err = s.Post(t.Context(), id, q)
			require.NoError(t, err)
			time.Sleep(10 * ms)
		}
		yes, err := kahn.PrepareSignal("g", "yes")
		post("answered", yes, err)
		require.Equal(t, kahn.RunRunning, s.status(t, "answered"))
		post("cancelled", store.Request{ID: "q", Kind: store.KindCancel}, nil)
		require.Equal(t, kahn.RunCancelled, s.status(t, "cancelled"))
		post("cancelled at work", yes, nil)
		post("cancelled at work", store.Request{ID: "q", Kind: store.KindCancel}, nil)
		require.Equal(t, kahn.RunCancelled, s.status(t, "cancelled at work"))
		time.Sleep(time.Hour)
		require.Equal(t, kahn.RunCompleted, s.status(t, "answered"))
		require.Equal(t, []string{"cancelled k", "cancelled at work k", "answered b", "answered k"}, s.take())
		end()
	})
}

// Serve performs runs of different graph versions at the same time. It leaves and reports runs whose version no process has.
func TestServeVersions(t *testing.T) {
	t.Parallel()
	inBubble(t, "versions", func(t *testing.T) {
		s := new(served)
		v1, v2, v3, other := flow("w"), flow("w", kahn.Node{ID: "b"}), flow("w", kahn.Node{ID: "c"}), flow("other")
		s.create(t, v1, time.Time{}, "one")
		s.create(t, v2, time.Time{}, "two")
		s.create(t, v3, time.Time{}, "three")
		s.create(t, other, time.Time{}, "four")
		_, _, err := s.Create(t.Context(), store.NewRun{ID: "five", Spec: store.Spec{Workflow: "w"}})
		require.NoError(t, err)
		end := serve(t, new(kahn.Runner), s.service(v2, v1))
		time.Sleep(time.Second)
		got := s.take()
		slices.Sort(got)
		require.Equal(t, []string{"five b", "one a", "told other: no live process performs its runs", "told w: no live process performs its runs", "two b"}, got)
		require.Equal(t, kahn.RunPending, s.status(t, "three"))
		list, err := store.Unclaimable(t.Context(), s)
		require.NoError(t, err)
		require.Len(t, list, 2)

		endToo := serve(t, new(kahn.Runner), s.service(v3, other))
		time.Sleep(time.Second)
		got = s.take()
		slices.Sort(got)
		require.Equal(t, []string{"four a", "three c"}, got, "another process performs them")
		time.Sleep(10 * time.Minute)
		endToo()
		require.Empty(t, s.take(), "and reports nothing")
		s.create(t, v3, time.Time{}, "late")
		list, err = store.Unclaimable(t.Context(), s)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Less(t, time.Since(list[0].Served), time.Second, "since it has ended")
		time.Sleep(61 * time.Second)
		require.Equal(t, []string{"told w: no live process performs its runs"}, s.take())
		end()
	})
	inBubble(t, "a run that was fired", func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "hook", Kind: kahn.KindTrigger}, kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}, After: []string{"hook"}},
			kahn.Node{ID: "b", After: []string{"g"}}, kahn.Node{ID: "mail", Kind: kahn.KindTrigger}, kahn.Node{ID: "c", After: []string{"mail"}})
		_, err := kahn.Execute(t.Context(), g, s.step, kahn.Fire("hook", 1), kahn.RunID("r"), kahn.Durable(s))
		require.NoError(t, err)
		end := serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(2 * time.Hour)
		end()
		require.Equal(t, []string{"r b"}, s.take())
	})
}

// A run that cannot begin does not delay other runs. Serve tries it again after pauses that grow.
func TestServeFailures(t *testing.T) {
	t.Parallel()
	inBubble(t, "a run that cannot begin", func(t *testing.T) {
		s, g := new(served), flow("w")
		damaged := errors.New("damaged")
		tries := 0
		s.fail = func(call, run string) error {
			if call == "acquire" && run == "r1" {
				if tries++; tries <= 8 {
					return damaged
				}
			}
			return nil
		}
		s.create(t, g, time.Time{}, "r1", "r2")
		begin := time.Now()
		end := serve(t, &kahn.Runner{MaxRuns: 1}, s.service(g))
		time.Sleep(500 * ms)
		require.Equal(t, []string{"told r1: store", "r2 a"}, s.take())
		for tried := 0; time.Since(begin) < time.Hour && tried < 9; {
			time.Sleep(time.Second)
			s.mu.Lock()
			tried = tries
			s.mu.Unlock()
		}
		require.InDelta(t, (1+2+4+8+16+32+60+60)*time.Second, time.Since(begin), float64(3*time.Second))
		time.Sleep(time.Second)
		got := s.take()
		require.Len(t, got, 8)
		require.Equal(t, "r1 a", got[7])
		end()
	})
	inBubble(t, "runs that are leased", func(t *testing.T) {
		s, g := new(served), flow("w")
		lost := 0
		s.fail = func(call, run string) error { // for a while another process always acquires the run first
			if call == "acquire" && lost < 100 {
				lost++
				return fmt.Errorf("%w", store.ErrLeased)
			}
			return nil
		}
		for i := range 30 {
			s.create(t, g, time.Time{}, fmt.Sprint("r", i))
		}
		end := serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(2 * time.Second)
		end()
		got := s.take()
		require.Len(t, got, 30, "nothing is reported: %v", got)
	})
	inBubble(t, "a store that does not answer", func(t *testing.T) {
		s, g := new(served), flow("w")
		s.create(t, g, time.Time{}, "r")
		away := errors.New("away")
		for _, call := range []string{"due", "announce"} {
			failures := 0
			s.fail = func(c, _ string) error {
				if c == call && failures < 3 {
					failures++
					return away
				}
				return nil
			}
			s.create(t, g, time.Time{}, call)
			end := serve(t, new(kahn.Runner), s.service(g))
			time.Sleep(8 * time.Second)
			end()
			told := slices.DeleteFunc(s.take(), func(line string) bool { return !strings.HasPrefix(line, "told") })
			require.Equal(t, slices.Repeat([]string{"told : store"}, 3), told, call)
			require.Equal(t, kahn.RunCompleted, s.status(t, call))
		}
		s.fail = func(c, _ string) error { return fmt.Errorf("%w: no schema", kahn.ErrUnusable) }
		err := new(kahn.Runner).Serve(t.Context(), s.service(g))
		require.ErrorIs(t, err, kahn.ErrStore)
		require.ErrorIs(t, err, kahn.ErrUnusable)
	})
	inBubble(t, "a run whose lives fail", func(t *testing.T) {
		s := &rejecting{run: "r1"}
		g := flow("w")
		s.create(t, g, time.Time{}, "r1", "r2")
		rec := newRecorder()
		x := kahn.Service{Store: s, OnError: s.told, Workflows: []kahn.Workflow{{Graph: g, Step: s.step, Options: []kahn.Option{kahn.OnEvent(func(e kahn.Event) {
			if e.RunID == "r2" {
				rec.add(e)
			}
		})}}}}
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Hour)
		lives := 0
		for _, line := range s.take() {
			if line == "told r1: store" {
				lives++
			}
		}
		// Seven tries in the first 63 seconds, and then one per minute.
		require.InDelta(t, 7+(3600-63)/60, lives, 2)
		end()
		res, err := kahn.ReadResult(t.Context(), g, s, "r2")
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.all()))
	})
	inBubble(t, "a store that answers what it was not asked, and panics", func(t *testing.T) {
		s, g := &careless{}, flow("w")
		s.create(t, g, time.Time{}, "r")
		s.create(t, flow("other"), time.Time{}, "o")
		x := s.service(g)
		var told []error
		x.Store, x.OnError = s, func(_ string, _ store.Queue, err error) { told = append(told, err) }
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(500 * ms)
		end()
		require.Equal(t, []string{"r a"}, s.take())
		require.Len(t, told, 3)
		for _, err := range told {
			require.True(t, strings.HasPrefix(err.Error(), "serve"), "the text says who reports the error: %v", err)
		}
		require.ErrorIs(t, told[0], kahn.ErrUnclaimable)
		for i, text := range []string{"not asked for", "the watch of requests"} {
			require.ErrorIs(t, told[i+1], kahn.ErrStore)
			require.ErrorContains(t, told[i+1], text)
		}
	})
	inBubble(t, "a hook that panics", func(t *testing.T) {
		s, g := new(served), flow("w")
		s.create(t, flow("unknown"), time.Time{}, "u")
		s.create(t, g, time.Time{}, "r")
		x := s.service(g)
		x.OnError = func(string, store.Queue, error) { panic("hook") }
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Second)
		end()
		require.Equal(t, []string{"r a"}, s.take())
	})
}

// rejecting is a store that refuses to write the end of a run.
type rejecting struct {
	served
	run string
}

func (s *rejecting) Commit(ctx context.Context, lease store.Lease, c store.Commit) (store.Applied, error) {
	if lease.Run == s.run && c.Status != kahn.RunRunning {
		return 0, fmt.Errorf("%w: too large", kahn.ErrRejected)
	}
	return s.Memory.Commit(ctx, lease, c)
}

// inquired is a store that records the queries for due runs.
type inquired struct {
	served
	queries []store.DueQuery
}

func (s *inquired) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	s.queries = append(s.queries, q)
	return s.served.Due(ctx, q)
}

// careless is a store that lists runs of all queues, and panics when a watch ends.
type careless struct{ served }

func (s *careless) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	n, err := kahn.Prepare(flow("other"))
	if err != nil {
		return store.DuePage{}, err
	}
	q.Queues = append(slices.Clone(q.Queues), n.Queue())
	return s.served.Due(ctx, q)
}

func (s *careless) WatchRequests(run string, tell func(string)) func() {
	stop := s.served.WatchRequests(run, tell)
	return func() {
		stop()
		panic("careless")
	}
}

// Several processes serve one store. Each run is performed once, even if its first process dies.
func TestServeTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, "many runs", func(t *testing.T) {
		s, g := new(served), flow("w")
		var want []string
		for i := range 200 {
			id := fmt.Sprintf("r%03d", i)
			s.create(t, g, time.Time{}, id)
			want = append(want, id+" a")
		}
		acquired := 0
		s.fail = func(call, _ string) error {
			if call == "acquire" {
				acquired++
			}
			return nil
		}
		var ends []func()
		for range 5 {
			ends = append(ends, serve(t, &kahn.Runner{MaxRuns: 20}, s.service(g)))
		}
		time.Sleep(5 * time.Second)
		for _, end := range ends {
			end()
		}
		got := s.take()
		slices.Sort(got)
		require.Equal(t, want, got)
		require.Less(t, acquired, 600, "a herd: acquisitions of 200 runs by 5 processes")
	})
	inBubble(t, "a lease that runs out", func(t *testing.T) {
		s, g := new(served), flow("w")
		s.create(t, g, time.Time{}, "r")
		_, _, err := s.Memory.Acquire(t.Context(), "r", "a process that dies", 20*time.Second)
		require.NoError(t, err)
		begin := time.Now()
		end := serve(t, new(kahn.Runner), s.service(g))
		time.Sleep(20*time.Second - ms)
		require.Empty(t, s.take())
		time.Sleep(2 * ms)
		require.Equal(t, []string{"r a"}, s.take(), "%v", time.Since(begin))
		end()
	})
	inBubble(t, "one owner by mistake", func(t *testing.T) {
		s, g := new(served), flow("w", kahn.Node{ID: "a", Do: takes(time.Minute)})
		s.create(t, g, time.Time{}, "r1")
		opts := []kahn.Option{kahn.Lease("us", 0)}
		end := serve(t, &kahn.Runner{Options: opts}, s.service(g))
		time.Sleep(time.Second)
		second := &kahn.Runner{Options: opts}
		endSecond := serve(t, second, s.service(flow("x")))
		s.create(t, flow("x"), time.Time{}, "x1")
		time.Sleep(2 * time.Minute)
		got := s.take()
		require.Contains(t, got, "told : "+store.ErrOwnerInUse.Error(), "the second one is told")
		require.NotContains(t, got, "x1 a", "and performs nothing")
		end()
		time.Sleep(time.Minute)
		require.Contains(t, s.take(), "x1 a", "the first one has gone")
		endSecond()
	})
	inBubble(t, "an owner whose name another process takes", func(t *testing.T) {
		s := new(served)
		end := serve(t, &kahn.Runner{Options: []kahn.Option{kahn.Lease("us", 6*time.Second)}}, s.service(flow("w")))
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		s.fail = func(call, _ string) error {
			if call == "announce" {
				return store.ErrOwnerInUse
			}
			return nil
		}
		s.mu.Unlock()
		time.Sleep(6 * time.Second)
		require.Equal(t, []string{"told : " + store.ErrOwnerInUse.Error()}, s.take(), "the first refusal is told at once")
		end()
	})
}

// Serve queries the store once per interval, and when a run is known to become due. Announcements cause no further queries.
func TestServePolls(t *testing.T) {
	t.Parallel()
	inBubble(t, "by default, every 50 ms", func(t *testing.T) {
		s := new(served)
		x := s.service(flow("w"))
		x.Poll = 0
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Second)
		end()
		require.InDelta(t, 20, s.dues, 4)
	})
	inBubble(t, "for no more runs than may begin", func(t *testing.T) {
		s, full, idle := new(inquired), flow("full"), flow("idle")
		s.create(t, full, time.Time{}, "r")
		x := s.service(full, idle)
		x.Store = s
		x.Workflows[0].Step, x.Workflows[0].MaxRuns, x.Workflows[1].MaxRuns = takes(time.Hour), 1, 3
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(time.Minute)
		end()
		first, last := s.queries[0], s.queries[len(s.queries)-1]
		require.Equal(t, 4, first.Limit, "one run of the first workflow, three of the second")
		require.Equal(t, 3, last.Limit, "the first workflow has as many runs as it may have")
		for _, q := range last.Queues {
			require.Equal(t, "idle", q.Workflow)
		}
	})
	inBubble(t, "polls", func(t *testing.T) {
		s, g := new(served), flow("w")
		s.create(t, g, time.Now().Add(time.Hour), "later")
		x := s.service(g)
		x.Poll = 10 * time.Minute
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(59 * time.Minute)
		s.mu.Lock()
		require.InDelta(t, 7, s.dues, 2)
		s.mu.Unlock()
		time.Sleep(time.Minute + ms)
		require.Equal(t, []string{"later a"}, s.take())
		end()
	})
}

// Serve removes ended runs, with their events and blobs, after a time that depends on their status, even if there are more runs than one batch
// has. If the store fails, Serve reports the error, and the next removal removes the remaining runs. Serve does not return during a removal.
func TestServeRetention(t *testing.T) {
	t.Parallel()
	inBubble(t, "retention", func(t *testing.T) {
		s, g, blobs := new(served), flow("w"), new(store.MemoryBlobs)
		long := strings.Repeat("long", 100)
		x := s.service(g)
		x.Workflows[0].Step = func(_ context.Context, step *kahn.Step) (any, error) {
			if strings.HasPrefix(step.RunID(), "fails") {
				return nil, errors.New("refused")
			}
			return step.RunID() + long, nil
		}
		x.Workflows[0].Options = append(x.Workflows[0].Options, kahn.StoreEvents(), kahn.Encoding(&store.Blobs{Codec: kahn.Types{}, Store: blobs, Over: 100}))
		x.Retention = []store.Retention{{Statuses: []kahn.RunStatus{kahn.RunCompleted}, For: time.Hour}, {Workflow: "w", For: 24 * time.Hour}}
		x.PruneEvery, x.Poll, x.Blobs = 10*time.Minute, 10*time.Second, blobs
		count := func() (completed, failed int) {
			counts, err := s.Count(t.Context(), store.Filter{})
			require.NoError(t, err)
			for _, c := range counts {
				switch c.Status {
				case kahn.RunCompleted:
					completed = c.Runs
				case kahn.RunFailed:
					failed = c.Runs
				}
			}
			return completed, failed
		}
		for i := range 250 {
			s.create(t, g, time.Time{}, fmt.Sprint("completes ", i))
		}
		s.create(t, g, time.Time{}, "fails")
		end := serve(t, new(kahn.Runner), x)
		time.Sleep(59 * time.Minute)
		completed, failed := count()
		require.Equal(t, []int{250, 1}, []int{completed, failed})
		require.NotZero(t, blobs.Len())
		time.Sleep(time.Minute) // from now on the runs are old enough
		var prunes atomic.Int64
		s.mu.Lock()
		s.fail = func(call, _ string) error {
			if call == "prune" && prunes.Add(1) == 2 {
				return errors.New("the disk is full")
			}
			return nil
		}
		s.mu.Unlock()
		s.take()
		for i := 0; i < 11 && prunes.Load() < 2; i++ { // the first removal comes at a random time within PruneEvery
			time.Sleep(time.Minute)
		}
		completed, failed = count()
		require.Equal(t, []int{150, 1}, []int{completed, failed})
		require.Equal(t, []string{"told : " + kahn.ErrStore.Error()}, s.take())
		time.Sleep(21 * time.Minute)
		completed, failed = count()
		require.Equal(t, []int{0, 1}, []int{completed, failed})
		_, err := s.LoadEvents(t.Context(), "completes 7", 0, 10)
		require.ErrorIs(t, err, store.ErrUnknownRun)
		time.Sleep(time.Hour)
		require.Zero(t, blobs.Len())
		time.Sleep(22 * time.Hour)
		completed, failed = count()
		require.Equal(t, []int{0, 0}, []int{completed, failed})
		end()
	})
}

// Serve returns an error for an invalid Service before it performs a run.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	s, g := new(served), flow("w")
	ok := kahn.Workflow{Graph: g, Step: s.step}
	for name, row := range map[string]struct {
		s    kahn.Service
		rn   *kahn.Runner
		want error
	}{
		"no store":            {kahn.Service{Workflows: []kahn.Workflow{ok}}, nil, kahn.ErrBadOption},
		"no workflow":         {kahn.Service{Store: s}, nil, kahn.ErrBadOption},
		"a negative interval": {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok}, Poll: -1}, nil, kahn.ErrBadOption},
		"a negative removal":  {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok}, PruneEvery: -1}, nil, kahn.ErrBadOption},
		"no time to keep":     {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok}, Retention: []store.Retention{{}}}, nil, kahn.ErrBadOption},
		"runs at work":        {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok}, Retention: []store.Retention{{For: 1, Statuses: []kahn.RunStatus{kahn.RunRunning}}}}, nil, kahn.ErrBadOption},
		"no graph":            {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Step: s.step}}}, nil, kahn.ErrNoGraph},
		"no step function":    {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g}}}, nil, kahn.ErrNoStep},
		"a version twice":     {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok, {Graph: flow("w"), Step: s.step}}}, nil, kahn.ErrBadOption},
		"an id":               {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g, Step: s.step, Options: []kahn.Option{kahn.RunID("r")}}}}, nil, kahn.ErrBadOption},
		"two owners": {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g, Step: s.step, Options: []kahn.Option{kahn.Lease("us", 0)}},
			{Graph: flow("x"), Step: s.step, Options: []kahn.Option{kahn.Lease("them", 0)}}}}, nil, kahn.ErrBadOption},
		"inputs":                {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok}}, &kahn.Runner{Options: []kahn.Option{kahn.Inputs(map[string]any{"n": 1})}}, kahn.ErrBadOption},
		"a bound of a workflow": {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: flow("w"), Step: nop, MaxRuns: -1}}}, new(kahn.Runner), kahn.ErrBadOption},
		"two bounds":            {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: flow("w"), Step: nop, MaxRuns: 1}, {Graph: flow("w", kahn.Node{ID: "b"}), Step: nop}}}, new(kahn.Runner), kahn.ErrBadOption},
		"a bound of nothing":    {kahn.Service{Store: s, Workflows: []kahn.Workflow{ok}}, &kahn.Runner{MaxRuns: -1}, kahn.ErrBadOption},
		"an option of nothing":  {kahn.Service{Store: s, Workflows: []kahn.Workflow{{Graph: g, Step: s.step, Options: []kahn.Option{nil}}}}, nil, kahn.ErrBadOption},
	} {
		rn := row.rn
		if rn == nil {
			rn = new(kahn.Runner)
		}
		require.ErrorIs(t, rn.Serve(t.Context(), row.s), row.want, name)
	}
	var none context.Context
	require.ErrorIs(t, new(kahn.Runner).Serve(none, kahn.Service{}), kahn.ErrNoContext)
	require.Zero(t, s.dues)
}
