package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// awaits returns a node whose step awaits runs, one after the other, and returns their statuses.
func awaits(id string, runs ...string) kahn.Node {
	return kahn.Node{ID: id, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
		list := []any{}
		for _, run := range runs {
			status, err := kahn.AwaitRun(ctx, run)
			switch {
			case errors.Is(err, kahn.ErrUnknownRun):
				list = append(list, "unknown")
			case errors.Is(err, kahn.ErrAwaitCycle):
				list = append(list, "cycle")
			case err != nil:
				return nil, err
			default:
				list = append(list, status.String())
			}
		}
		return list, nil
	}}
}

// A process dies at each write of the waiting and the awaited runs. Each waiting run gets its answer once, after the awaited run has ended.
func TestAwaitAtEveryWrite(t *testing.T) {
	t.Parallel()
	inBubble(t, "at each write", func(t *testing.T) {
		waiting := flow("waiting", awaits("all", "slow", "never", "nobody", "slow"), kahn.Node{ID: "s", Sub: graph(awaits("inner", "never", "slow"))}, awaits("own", "waiting"))
		slow := flow("slow", kahn.Node{ID: "sleeps", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.SavedState() == nil {
				return nil, kahn.SuspendUntil(time.Now().Add(time.Hour), "slept")
			}
			return nil, nil
		}})
		last := false
		for writes := int64(0); !last; writes++ {
			s := new(served)
			s.create(t, waiting, time.Time{}, "waiting")
			s.create(t, slow, time.Time{}, "slow")
			s.create(t, slow, time.Now().Add(100*time.Hour), "never")
			mortal := &perishing{served: s}
			mortal.writes.Store(writes)
			v := s.service(waiting, slow)
			v.Store, v.Poll, v.OnError = mortal, 10*time.Second, func(string, store.Queue, error) {}
			end := serve(t, new(kahn.Runner), v)
			time.Sleep(time.Minute)
			_, err := s.Post(t.Context(), "never", store.Request{ID: "1", Kind: store.KindCancel})
			require.NoError(t, err)
			time.Sleep(90 * time.Minute)
			end()
			last = mortal.writes.Load() >= 0
			v.Store, v.OnError = s, s.told
			end = serve(t, new(kahn.Runner), v)
			time.Sleep(2 * time.Hour)
			end()
			require.Equal(t, kahn.RunCompleted, s.status(t, "waiting"), writes)
			stored, err := s.Load(t.Context(), "waiting")
			require.NoError(t, err)
			want := map[string]any{"all": []any{"completed", "cancelled", "unknown", "completed"}, "s/inner": []any{"cancelled", "completed"}, "own": []any{"cycle"}}
			for path, list := range want {
				wanted, err := json.Marshal(list)
				require.NoError(t, err)
				require.JSONEq(t, string(wanted), string(stored.Nodes[path].Value), "%s after %d writes", path, writes)
			}
			left, err := s.LoadAwaits(t.Context(), "waiting")
			require.NoError(t, err)
			require.Empty(t, left)
			require.Less(t, writes, int64(100))
		}
	})
}

// A step keeps the answers of earlier awaits while it awaits another run, and a signal does not end the wait.
func TestAwaitKeeps(t *testing.T) {
	t.Parallel()
	inBubble(t, "over a store", func(t *testing.T) {
		var s store.Memory
		opts := []kahn.Option{kahn.Durable(&s), kahn.RunID("waiting")}
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", nil, "state")
			}
			status, err := kahn.AwaitRun(ctx, "other")
			answer, _ := s.Resumed()
			return []any{status.String(), answer, s.SavedState()}, err
		}
		other, err := kahn.Start(t.Context(), flow("other", kahn.Node{ID: "g", Kind: kahn.KindGate}), nil, kahn.Durable(&s), kahn.RunID("other"))
		require.NoError(t, err)
		run, err := kahn.Start(t.Context(), flow("w"), step, opts...)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, run.Signal(t.Context(), "a", "yes"))
		synctest.Wait()
		wait := run.Waiting()
		require.Len(t, wait, 1)
		require.Equal(t, "other", wait[0].Run)
		require.ErrorIs(t, run.Signal(t.Context(), "a", "again"), kahn.ErrUnknownGate)
		require.ErrorIs(t, run.CheckSignal("a", "again"), kahn.ErrUnknownGate)
		run.Leave()
		_, err = run.Wait()
		require.NoError(t, err)
		require.ErrorIs(t, run.Signal(t.Context(), "a", "again"), kahn.ErrUnknownGate)
		shown, err := kahn.ReadRun(t.Context(), &s, "waiting")
		require.NoError(t, err)
		require.Equal(t, "other", shown.Waiting[0].Run)

		stored, err := s.Load(t.Context(), "waiting")
		require.NoError(t, err)
		var elsewhere store.Memory // holds neither the awaited run nor the wait for it
		require.NoError(t, elsewhere.Insert(t.Context(), stored))
		_, err = kahn.Execute(t.Context(), flow("w"), step, kahn.Durable(&elsewhere), kahn.RunID("waiting"))
		require.ErrorIs(t, err, kahn.ErrUnknownRun)
		require.NoError(t, other.Signal(t.Context(), "g", true))
		_, err = other.Wait()
		require.NoError(t, err)
		res, err := kahn.Execute(t.Context(), flow("w"), step, opts...)
		require.NoError(t, err)
		require.Equal(t, []any{"completed", "yes", "state"}, res.Output())
	})
}

// The answer to an await has no effect if the awaiting node was stopped meanwhile, or now waits for something else. A cycle of awaits no longer
// exists once one of its nodes stops waiting.
func TestAwaitGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, "over a store", func(t *testing.T) {
		var s store.Memory
		start := func(id string, nodes ...kahn.Node) *kahn.Run {
			run, err := kahn.Start(t.Context(), flow(id, nodes...), nil, kahn.Durable(&s), kahn.RunID(id))
			require.NoError(t, err)
			synctest.Wait()
			return run
		}
		gate := kahn.Node{ID: "g", Kind: kahn.KindGate}
		n, err := kahn.Prepare(flow("two", gate, awaits("x", "one")), kahn.RunID("two"))
		require.NoError(t, err)
		_, _, err = s.Create(t.Context(), n)
		require.NoError(t, err)
		one := start("one", gate, awaits("x", "two"), awaits("y", "two"))
		require.NoError(t, one.CancelNode("x"))
		synctest.Wait()
		list, err := s.LoadAwaits(t.Context(), "one")
		require.NoError(t, err)
		require.Equal(t, []store.Await{{Node: "y", Run: "two"}}, list)
		require.NoError(t, one.CancelNode("y"))
		synctest.Wait()
		two, three := start("two", gate, awaits("x", "one")), start("three", awaits("z", "one"))
		require.NoError(t, two.Signal(t.Context(), "g", true))
		require.NoError(t, one.Signal(t.Context(), "g", true))
		_, err = one.Wait()
		require.Error(t, err) // because the nodes x and y of the run were cancelled
		res, err := two.Wait()
		require.NoError(t, err)
		x, _ := res.Node("x")
		require.Equal(t, []any{"cancelled"}, x.Output) // run "one" no longer awaits run "two", so the two runs form no cycle
		res, err = three.Wait()
		require.NoError(t, err)
		require.Equal(t, []any{one.Status().String()}, res.Output())
		requests, err := s.LoadRequests(t.Context(), "one", 0, 10)
		require.NoError(t, err)
		require.Empty(t, requests)
	})
}

// A node that was superseded by another node awaits no run.
func TestSupersededNodeAwaitsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, "over a store", func(t *testing.T) {
		var s store.Memory
		_, _, err := s.Create(t.Context(), store.NewRun{ID: "never"})
		require.NoError(t, err)
		run, err := kahn.Start(t.Context(), flow("r", awaits("x", "never"), awaits("y", "never"), kahn.Node{ID: "fast", Do: takes(ms)},
			kahn.Node{ID: "first", After: []string{"x", "fast"}, Join: kahn.AnySucceeded, CancelLosers: true, Do: takes(time.Second)}), nil, kahn.Durable(&s), kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(10 * ms)
		synctest.Wait()
		list, err := s.LoadAwaits(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, []store.Await{{Node: "y", Run: "never"}}, list)
		require.NoError(t, run.Cancel())
		_, err = run.Wait()
		require.Error(t, err)
	})
}

// The error for a long cycle names the first runs of the cycle and the last one, and the number of runs between them.
func TestAwaitLongCycle(t *testing.T) {
	t.Parallel()
	inBubble(t, "of eight", func(t *testing.T) {
		var s store.Memory
		const n = 8
		id := func(i int) string { return fmt.Sprint("r", i%n+1) }
		for i := range n {
			_, _, err := s.Create(t.Context(), store.NewRun{ID: id(i)})
			require.NoError(t, err)
		}
		text := ""
		var runs []*kahn.Run
		for i := range n {
			run, err := kahn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
				_, err := kahn.AwaitRun(ctx, id(i+1))
				if errors.Is(err, kahn.ErrAwaitCycle) {
					text, err = err.Error(), nil
				}
				return nil, err
			}}), nil, kahn.Durable(&s), kahn.RunID(id(i)))
			require.NoError(t, err)
			runs = append(runs, run)
			synctest.Wait()
		}
		for _, run := range runs {
			_, err := run.Wait()
			require.NoError(t, err)
		}
		_, cycle, _ := strings.Cut(text, ": ")
		require.Equal(t, `"r1", which awaits "r2", which awaits "r3", which awaits "r4", which awaits "r5", which awaits 2 others, which awaits "r8", which awaits "r1"`, cycle)
	})
}

// bareInbox is an inbox that does not implement [store.Awaiter].
type bareInbox struct{ store.Inbox }

// A step gets an error if the store does not support awaits, even if an earlier life of the run had a store that does.
func TestAwaitNowhere(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kahn.Option{
		"without a store":          nil,
		"a store without awaits":   {kahn.Durable(bareInbox{new(store.Memory)})},
		"a store without requests": {kahn.Durable(struct{ store.Store }{new(store.Memory)})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kahn.Execute(t.Context(), flow("w", awaits("a", "other")), nil, opts...)
			require.ErrorIs(t, err, kahn.ErrNoAwait)
		})
	}
	_, err := kahn.AwaitRun(t.Context(), "other")
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = kahn.Execute(t.Context(), flow("w", awaits("a", "")), nil)
	require.ErrorIs(t, err, kahn.ErrBadValue)

	var s store.Memory
	_, _, err = s.Create(t.Context(), store.NewRun{ID: "other"})
	require.NoError(t, err)
	res, err := kahn.Execute(t.Context(), flow("w", awaits("a", "other")), nil, kahn.Durable(&s))
	require.NoError(t, err)
	_, err = kahn.Execute(t.Context(), flow("w", awaits("a", "other")), nil, kahn.Resume(res.Snapshot()))
	require.ErrorIs(t, err, kahn.ErrNoAwait)
}

// If another process performs a step, the step awaits runs through its Call and its Reply.
func TestAwaitElsewhere(t *testing.T) {
	t.Parallel()
	inBubble(t, "as data", func(t *testing.T) {
		var s store.Memory
		_, _, err := s.Create(t.Context(), store.NewRun{ID: "other"})
		require.NoError(t, err)
		there := awaits("a", "other", "nobody").Do
		step := func(ctx context.Context, step *kahn.Step) (any, error) {
			sent, err := json.Marshal(step.Call())
			require.NoError(t, err)
			var call kahn.Call
			require.NoError(t, json.Unmarshal(sent, &call))
			answer, err := json.Marshal(call.Perform(ctx, there, nil))
			require.NoError(t, err)
			var reply kahn.Reply
			require.NoError(t, json.Unmarshal(answer, &reply))
			return reply.Value, reply.Err
		}
		run, err := kahn.Start(t.Context(), flow("w"), step, kahn.Durable(&s), kahn.RunID("w"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "other", run.Waiting()[0].Run)
		lease, _, err := s.Acquire(t.Context(), "other", "me", time.Minute)
		require.NoError(t, err)
		_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 1, Status: kahn.RunFailed})
		require.NoError(t, err)
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, []any{"failed", "unknown"}, res.Output())
	})
}
