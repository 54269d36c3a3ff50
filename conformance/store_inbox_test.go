package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

func expectApplied(t testing.TB, db store.Inbox, ids ...string) {
	t.Helper()
	for _, id := range ids {
		status, why := became(t, db, id)
		require.Equal(t, store.RequestApplied, status, "%s: %s", id, why)
	}
}

// life performs one life of the run "r": until the run ends, or is suspended and no process performs it.
func life(t testing.TB, g *kahn.Graph, step kahn.StepFunc, db store.Store, opts ...kahn.Option) trial {
	t.Helper()
	return try2(t, g, step, append(opts, kahn.Durable(db), kahn.RunID("r"))...)
}

func expectStatus(t testing.TB, run *kahn.Run, node string, want kahn.Status) {
	t.Helper()
	status, _ := run.NodeStatus(node)
	require.Equal(t, want, status, node)
}

// A process that does not perform a run may answer its gates and cancel it.
func TestRequestsForARunAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		g := graph(gate("G"), after("A", "G"), gate("H"), kahn.Node{ID: "B", Do: untilStopped}, after("C", "A", "H"))
		r := tryControlled(t, t.Context(), g, nothing, func(run *kahn.Run) {
			_, err := run.WaitFor(t.Context(), "G", kahn.Suspended)
			require.NoError(t, err)
			post(t, db, "G", kahn.Decision{Value: "yes", Actor: "ann", Comment: "fine", ID: "1"})
			synctest.Wait() // at once, before the next poll
			expectStatus(t, run, "G", kahn.Completed)
			expectApplied(t, db, "1")
			postRequest(t, db, store.Request{ID: "2", Kind: store.KindCancelNode, Node: "B"})
			synctest.Wait()
			expectStatus(t, run, "B", kahn.Cancelled)
			postRequest(t, db, cancelRun)
		}, kahn.Durable(db), kahn.RunID("r"))
		r.expect("G:ok A:ok H:C B:C C:C", "cancelled")
		require.Equal(t, kahn.Request{Actor: "ann", Reason: "enough"}, r.StopRequest)
		require.Equal(t, &kahn.Decision{Value: "yes", Actor: "ann", Comment: "fine", ID: "1"}, r.node("G").Decision)
		r.count(event.NodeSignalled, "G", 1)
		expectApplied(t, db, "1", "2", "cancel")
	})
}

// Requests for a run at rest make the run due. Its next life takes them in the order in which they were posted, before it calls a step. So a run
// that is cancelled in this way calls no step.
func TestRequestsForARunAtRest(t *testing.T) {
	t.Parallel()
	g := graph(gate("G"), after("A", "G"), gate("H", "A"), after("B", "H"))
	begin := func(t *testing.T) *store.Memory {
		db := new(store.Memory)
		life(t, g, nothing, db).expect("G:suspended A:waiting H:idle B:idle", "suspended")
		stored, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Zero(t, stored.WakeAt)
		return db
	}
	due := func(t *testing.T, db *store.Memory) {
		stored, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		require.False(t, stored.WakeAt.IsZero() || stored.WakeAt.After(time.Now()), "%v", stored.WakeAt)
	}
	inBubble(t, "signals", func(t *testing.T) {
		db := begin(t)
		first, early := post(t, db, "G", "yes"), post(t, db, "H", "no")
		due(t, db)
		r := life(t, g, nothing, db)
		r.expect("G:ok A:ok H:ok B:ok", "completed")
		require.Equal(t, "yes", r.node("G").Output)
		require.Equal(t, "no", r.node("H").Output)
		expectApplied(t, db, first, early)
	})
	inBubble(t, "a signal, then a cancel", func(t *testing.T) {
		db := begin(t)
		first := post(t, db, "G", "yes")
		postRequest(t, db, cancelRun)
		late := post(t, db, "H", "yes")
		r := life(t, g, neverStep(t), db)
		r.expect("G:ok A:C H:C B:C", "cancelled")
		expectApplied(t, db, first, "cancel")
		status, why := became(t, db, late)
		require.Equal(t, store.RequestRefused, status)
		require.NotEmpty(t, why)
	})
	inBubble(t, "a cancel, with what cleans up and the end", func(t *testing.T) {
		g := graph(after("A"), gate("G", "A"), after("B", "G"), kahn.Node{ID: "K", Cleanup: true, After: []string{"B"}}, kahn.Node{ID: "end", Kind: kahn.KindEnd})
		for _, early := range []bool{false, true} {
			db := new(store.Memory)
			life(t, g, nothing, db).expect("A:ok G:suspended B:waiting K:idle end:idle", "suspended")
			if early {
				post(t, db, "G", "yes")
			}
			postRequest(t, db, store.Request{ID: "node", Kind: store.KindCancelNode, Node: "B"})
			postRequest(t, db, cancelRun)
			var calls []string
			life(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
				calls = append(calls, s.ID())
				return nil, nil
			}, db)
			require.Equal(t, []string{"K", "end"}, calls)
			expectApplied(t, db, "node", "cancel")
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Equal(t, kahn.RunCancelled, stored.Status)
		}
	})
	inBubble(t, "a cancel, after the process has died at work", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "K", Cleanup: true, After: []string{"A"}})
		db := new(journal)
		db = dies(t, g, takes(time.Minute), db, time.Second)
		_, err := db.Post(t.Context(), "r", cancelRun)
		require.NoError(t, err)
		var calls []string
		life(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			calls = append(calls, s.ID())
			return nil, nil
		}, db).expect("A:C K:ok", "cancelled")
		require.Equal(t, []string{"K"}, calls)
	})
	inBubble(t, "the cancel of a node", func(t *testing.T) {
		db := begin(t)
		postRequest(t, db, store.Request{ID: "1", Kind: store.KindCancelNode, Node: "G"})
		late := post(t, db, "G", "yes")
		due(t, db)
		r := life(t, g, neverStep(t), db)
		r.expect("G:C A:X H:X B:X", "cancelled")
		expectApplied(t, db, "1")
		status, why := became(t, db, late)
		require.Equal(t, store.RequestRefused, status)
		require.Equal(t, kahn.ErrFinished.Error(), why)
	})
	inBubble(t, "what the run refuses", func(t *testing.T) {
		db := begin(t)
		unknown := post(t, db, "nowhere", "yes")
		reached := post(t, db, "A", "yes")
		postRequest(t, db, store.Request{ID: "no node", Kind: store.KindCancelNode, Node: "nowhere"})
		r := life(t, g, neverStep(t), db)
		r.expect("G:suspended A:waiting H:idle B:idle", "suspended")
		for id, want := range map[string]string{unknown: "unknown gate", reached: "unknown gate", "no node": "unknown node"} {
			status, why := became(t, db, id)
			require.Equal(t, store.RequestRefused, status, id)
			require.Contains(t, why, want)
		}
		stored, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Zero(t, stored.WakeAt, "nothing waits any more")
	})
}

// A run that was cancelled before it started calls no step. A signal does not make a run start before its time. A cancel ends the run before its
// time.
func TestRequestsForARunThatHasNotBegun(t *testing.T) {
	t.Parallel()
	g := graph(after("A"), gate("G", "A"))
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		n, err := kahn.Prepare(g, kahn.RunID("r"))
		require.NoError(t, err)
		n.NotBefore = time.Now().Add(time.Hour)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
		early := post(t, db, "G", "yes")
		_, err = kahn.Execute(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("r"))
		require.ErrorIs(t, err, kahn.ErrNotDue)
		postRequest(t, db, store.Request{ID: "1", Kind: store.KindCancelNode, Node: "A"})
		postRequest(t, db, cancelRun)
		r := life(t, g, neverStep(t), db)
		r.expect("A:C G:C", "cancelled")
		require.Equal(t, kahn.Request{Actor: "ann", Reason: "enough"}, r.StopRequest)
		expectApplied(t, db, early, "cancel")
		status, _ := became(t, db, "1")
		require.Equal(t, store.RequestRefused, status)
	})
}

// A run that is pending in a Runner takes its requests.
func TestRequestsForAPendingRun(t *testing.T) {
	t.Parallel()
	for k := range 4 {
		stored, cancel := k%2 > 0, k/2 > 0
		synctest.Test(t, func(t *testing.T) {
			cancelled := kahn.Request{Actor: cancelRun.Actor, Reason: cancelRun.Comment}
			db, g := new(store.Memory), graph(gate("G"), after("A", "G"))
			if stored {
				_, err := kahn.Execute(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
				require.NoError(t, err)
			}
			runner := &kahn.Runner{MaxRuns: 1}
			busy, err := runner.Start(t.Context(), graph(kahn.Node{ID: "long", Do: untilStopped}), nil)
			require.NoError(t, err)
			step := nothing
			if cancel {
				step = neverStep(t)
			}
			run, err := runner.Start(t.Context(), g, step, kahn.Durable(db), kahn.RunID("r"))
			require.NoError(t, err)
			require.Equal(t, kahn.RunPending, run.Status())
			postRequest(t, db, store.Request{ID: "1", Kind: store.KindCancelNode, Node: "A"})
			answer := "cancel"
			if !cancel {
				answer = post(t, db, "G", "yes")
			}
			synctest.Wait()
			require.Equal(t, kahn.RunPending, run.Status())
			if cancel {
				postRequest(t, db, cancelRun)
				synctest.Wait()
				if !stored { // the run has no cleanup node, and does not wait for a slot
					require.Equal(t, kahn.RunCancelled, run.Status())
				}
			}
			busy.Cancel()
			res, err := run.Wait()
			require.Error(t, err)
			require.Equal(t, kahn.RunCancelled, res.Status)
			require.Equal(t, cancel, res.StopRequest == cancelled)
			expectApplied(t, db, answer)
			if !cancel || stored {
				n, _ := res.Node("A")
				require.Equal(t, kahn.CauseCancelNode, n.Cause.Kind)
				expectApplied(t, db, "1")
			}
		})
	}
}

// A request is idempotent by its id, even after the end of the run. After the end, new requests are refused, and so are requests that no life has
// taken.
func TestRequestsAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := new(store.Memory), graph(gate("G"))
		_, err := kahn.Execute(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		q, err := kahn.PrepareSignal("G", kahn.Decision{Value: 7, ID: "1"})
		require.NoError(t, err)
		postRequest(t, db, q)
		_, err = kahn.Execute(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		posted, err := db.Post(t.Context(), "r", q)
		require.NoError(t, err)
		require.False(t, posted)
		_, err = db.Post(t.Context(), "r", cancelRun)
		require.ErrorIs(t, err, kahn.ErrFinished)
		other, err := kahn.PrepareSignal("G", kahn.Decision{Value: 8, ID: "1"})
		require.NoError(t, err)
		_, err = db.Post(t.Context(), "r", other)
		require.ErrorIs(t, err, store.ErrRequestConflict)
	})
}

// A process that has lost the lease of a run does not take the requests of the run.
func TestRequestsAndFencing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := new(store.Memory), graph(gate("G"), after("A", "G"))
		old, err := kahn.Start(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("r"), kahn.Lease("one", 0))
		require.NoError(t, err)
		_, err = old.WaitFor(t.Context(), "G", kahn.Suspended)
		require.NoError(t, err)
		_, _, err = db.Acquire(t.Context(), "r", "one", time.Minute) // a process of the same name
		require.NoError(t, err)
		id := post(t, db, "G", "yes")
		res, err := old.Wait()
		require.ErrorIs(t, err, kahn.ErrFenced)
		require.Equal(t, kahn.RunFailed, res.Status)
		status, _ := became(t, db, id)
		require.Equal(t, store.RequestWaiting, status)
		life(t, g, nothing, db, kahn.Lease("one", 0)).expect("G:ok A:ok", "completed")
		expectApplied(t, db, id)
	})
}

// If a run is left, or its store does not answer, the requests that it has not taken wait for the next life.
func TestRequestsAndLeaving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(store.Memory)
		db := &inboxFaults{Memory: inner}
		g := graph(gate("G"), after("A", "G"))
		run, err := kahn.Start(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err)
		_, err = run.WaitFor(t.Context(), "G", kahn.Suspended)
		require.NoError(t, err)
		db.fail(errDisk)
		id := post(t, inner, "G", "yes")
		time.Sleep(time.Second)
		require.Greater(t, db.loads(), 3, "the store is asked again")
		expectStatus(t, run, "G", kahn.Suspended)
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		_, err = kahn.Execute(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("r"))
		require.ErrorIs(t, err, errDisk)
		require.ErrorIs(t, err, kahn.ErrStore)
		db.fail(nil)
		life(t, g, nothing, db).expect("G:ok A:ok", "completed")
		expectApplied(t, db, id)
	})
}

// inboxFaults is a store that fails to load requests.
type inboxFaults struct {
	*store.Memory
	mu    sync.Mutex
	err   error
	count int
}

func (f *inboxFaults) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *inboxFaults) loads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

func (f *inboxFaults) LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error) {
	f.mu.Lock()
	f.count++
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Memory.LoadRequests(ctx, run, after, limit)
}

// The value of a signal is encoded by the run's codec.
func TestRequestEncoding(t *testing.T) {
	t.Parallel()
	type order struct{ Number int }
	types := kahn.Encoding(kahn.Types{"order": order{}})
	_, err := kahn.PrepareSignal("G", order{7})
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
	_, err = kahn.PrepareSignal("G", kahn.Decision{Value: "yes", ID: "\xff"})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = kahn.PrepareSignal("", "yes")
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = kahn.PrepareSignal("G", "yes", kahn.Encoding(nil))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	q, err := kahn.PrepareSignal("G", order{7}, types)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		db, g := new(store.Memory), graph(gate("G"))
		_, err := kahn.Execute(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"), types)
		require.NoError(t, err)
		postRequest(t, db, q)
		r := life(t, g, nothing, db, types)
		require.Equal(t, order{7}, r.node("G").Output)
	})
}

// If decoding a request panics or calls Goexit, the request waits until the run has ended. The run takes the next request meanwhile.
func TestRequestsAndForeignCode(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func(){"Goexit": runtime.Goexit, "panic": func() { panic("broken") }} {
		inBubble(t, name, func(t *testing.T) {
			db, g := new(store.Memory), graph(gate("G"))
			codec := &badCodec{misbehave: misbehave}
			run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"), kahn.Encoding(codec))
			require.NoError(t, err)
			first, second := post(t, db, "G", "bad"), post(t, db, "G", "good")
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, "good", res.Output())
			status, why := became(t, db, first)
			require.Equal(t, store.RequestRefused, status)
			require.Equal(t, kahn.ErrFinished.Error(), why)
			expectApplied(t, db, second)
		})
		inBubble(t, name+" in a run that was cancelled meanwhile", func(t *testing.T) {
			db, g := new(store.Memory), graph(gate("G"))
			codec := &badCodec{misbehave: func() { time.Sleep(time.Second); misbehave() }}
			run, err := kahn.Start(t.Context(), g, nothing, kahn.Durable(db), kahn.RunID("r"), kahn.Encoding(codec))
			require.NoError(t, err)
			id := post(t, db, "G", "bad")
			synctest.Wait()
			run.Cancel()
			res, _ := run.Wait()
			require.Equal(t, kahn.RunCancelled, res.Status)
			status, why := became(t, db, id)
			require.Equal(t, store.RequestRefused, status)
			require.Equal(t, kahn.ErrFinished.Error(), why)
			time.Sleep(time.Minute) // nobody decodes the value again
			require.EqualValues(t, 1, codec.decoded.Load())
		})
	}
}

// badCodec is a codec that fails when it decodes "bad".
type badCodec struct {
	kahn.Types
	misbehave func()
	decoded   atomic.Int64 // how often "bad" was decoded
}

func (c *badCodec) Decode(data json.RawMessage) (any, error) {
	if string(data) == `"bad"` {
		c.decoded.Add(1)
		c.misbehave()
	}
	return c.Types.Decode(data)
}

// Whichever write a process dies at, each request takes effect once, in the order in which the requests were posted.
func TestRequestsAndCrashes(t *testing.T) {
	t.Parallel()
	post := func(p *kahntest.Process, s *kahn.Step, list ...store.Request) error {
		for _, q := range list {
			if err := p.Post(context.Background(), q); err != nil && !errors.Is(err, kahn.ErrUnusable) {
				return err
			}
		}
		p.Effect(s.IdempotencyKey(), s.ID())
		return nil
	}
	signal := func(gate, id string) store.Request {
		q, err := kahn.PrepareSignal(gate, kahn.Decision{Value: id, ID: id})
		require.NoError(t, err)
		return q
	}
	g := graph(after("A"), gate("G", "A"), after("B", "G"), gate("H", "B"), gate("I"), after("C", "H", "I"), kahn.Node{ID: "D"})
	kahntest.InFakeTime(t, func(t *testing.T) {
		kahntest.Crashes(t, func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return g, func(ctx context.Context, s *kahn.Step) (any, error) {
				switch s.ID() {
				case "A":
					return "A", post(p, s, signal("I", "early"), signal("G", "first"), signal("G", "second"), signal("nowhere", "lost"),
						store.Request{ID: "node", Kind: store.KindCancelNode, Node: "D"})
				case "B":
					return "B", post(p, s, signal("H", "third"))
				case "C":
					if err := post(p, s, store.Request{ID: "run", Kind: store.KindCancel}); err != nil {
						return nil, err
					}
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
	})
}

// lateRequest is a store to which a request comes while the last commit of a run is on its way. From then on it loads no requests until the context
// of the load ends.
type lateRequest struct {
	*store.Memory
	request store.Request
	ended   atomic.Bool
	commits atomic.Int32 // after the last commit of the run
	loads   atomic.Int32 // likewise
}

func (s *lateRequest) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.ended.Load() {
		s.commits.Add(1)
	}
	if c.Status.Terminal() && !s.ended.Swap(true) {
		if _, err := s.Post(ctx, "r", s.request); err != nil {
			return 0, err
		}
		synctest.Wait()
	}
	return s.Memory.Commit(ctx, l, c)
}

func (s *lateRequest) LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error) {
	if s.ended.Load() {
		s.loads.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Memory.LoadRequests(ctx, run, after, limit)
}

// A run whose end is being written takes no requests. The store refuses them with the end, and the end does not wait for a store that loads none.
func TestRequestsDuringTheEnd(t *testing.T) {
	t.Parallel()
	signal, err := kahn.PrepareSignal("G", kahn.Decision{Value: 7, ID: "late"})
	require.NoError(t, err)
	stop := cancelRun
	stop.ID = "late"
	for name, q := range map[string]store.Request{"a signal": signal, "a cancel": stop} {
		inBubble(t, name, func(t *testing.T) {
			db := &lateRequest{Memory: new(store.Memory), request: q}
			began := time.Now()
			r := life(t, graph(after("A")), nothing, db)
			r.expect("A:ok", "completed")
			require.NoError(t, r.err)
			require.Empty(t, r.Warnings)
			require.Zero(t, time.Since(began))
			require.True(t, db.ended.Load())
			require.Zero(t, db.loads.Load())
			require.Zero(t, db.commits.Load())
			status, why := became(t, db, "late")
			require.Equal(t, store.RequestRefused, status)
			require.Equal(t, store.ErrEnded.Error(), why)
		})
	}
}
