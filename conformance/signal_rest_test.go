package conformance_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// muteStore does not implement store.Inbox.
type muteStore struct{ store.Store }

// sealedStore is a store that refuses every request.
type sealedStore struct{ store.Memory }

func (*sealedStore) Post(context.Context, string, store.Request) (bool, error) {
	return false, errDisk
}

// restGraph returns a graph with a gate with choices, a step that waits under a token, a gate in a composite, and gates that are not reached.
func restGraph() *kahn.Graph {
	g := graph(gate("G"), kahn.Node{ID: "W", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if v, ok := s.Resumed(); ok {
			return v, nil
		}
		return nil, kahn.Suspend("token", nil, nil)
	}}, subgraph("S", graph(gate("y"))), after("A"), gate("later"), after("yes"), after("no"))
	return g.Connect(kahn.Edge{From: "G", To: "yes", Label: "approved"}, kahn.Edge{From: "G", To: "no", Label: "rejected"}, kahn.Edge{From: "yes", To: "later"})
}

// TestSignalAtRest: Run.Signal of a run at rest posts the answer in the store, and the next life takes it. The answer is checked against the
// state in which the run came to rest.
func TestSignalAtRest(t *testing.T) {
	t.Parallel()
	left := func(t *testing.T, opts ...kahn.Option) *kahn.Run {
		t.Helper()
		run, err := kahn.Start(t.Context(), restGraph(), nothing, append(opts, kahn.RunID("r"))...)
		require.NoError(t, err)
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		require.Len(t, res.Waiting, 3)
		return run
	}
	ann := func(value any) kahn.Decision {
		return kahn.Decision{Value: value, Actor: "ann", Comment: "fine", ID: "1"}
	}
	inBubble(t, "posted", func(t *testing.T) {
		db := new(store.Memory)
		run := left(t, kahn.Durable(db))
		require.NoError(t, run.Signal(context.Background(), "G", ann("approved")))
		require.NoError(t, run.Signal(context.Background(), "G", ann("approved")), "the same signal is the same answer")
		require.ErrorIs(t, run.Signal(context.Background(), "G", ann("rejected")), kahn.ErrSignalConflict)
		require.NoError(t, run.Signal(context.Background(), "token", "woken"))
		require.NoError(t, run.Signal(context.Background(), "S/y", "inside"))
		require.NoError(t, run.Signal(context.Background(), "later", "early"))
		r := try2(t, restGraph(), nothing, kahn.Durable(db), kahn.RunID("r"))
		r.expect("G:ok W:ok S:ok A:ok later:ok yes:ok no:S/br", "completed")
		d := r.node("G").Decision
		require.Equal(t, &kahn.Decision{Value: "approved", Actor: "ann", Comment: "fine", ID: "1"}, d)
		require.Equal(t, "woken", r.node("W").Output)
		require.Equal(t, "early", r.node("later").Output)

		require.ErrorIs(t, run.Signal(context.Background(), "G", "approved"), kahn.ErrFinished, "it has ended since")
		require.ErrorIs(t, run.CancelNode("W"), kahn.ErrFinished)
	})
	inBubble(t, "cancelled", func(t *testing.T) {
		db := new(store.Memory)
		run := left(t, kahn.Durable(db))
		require.NoError(t, run.CancelNode("W"))
		require.NoError(t, run.Signal(context.Background(), "S/y", "inside"))
		require.NoError(t, run.Signal(context.Background(), "G", "rejected"))
		r := try2(t, restGraph(), nothing, kahn.Durable(db), kahn.RunID("r"))
		r.expect("G:ok W:C S:ok A:ok later:S/up yes:S/br no:ok", "cancelled")
	})
	inBubble(t, "the run cancelled", func(t *testing.T) {
		ann := kahn.Request{Actor: "ann", Reason: "a wrong order"}
		db := new(store.Memory)
		run := left(t, kahn.Durable(db))
		require.NoError(t, run.Cancel(ann))
		r := try2(t, restGraph(), nothing, kahn.Durable(db), kahn.RunID("r"))
		r.expect("G:C W:C S:C A:ok later:C yes:C no:C", "cancelled")
		require.Equal(t, ann, r.StopRequest)
		require.ErrorIs(t, run.Cancel(ann), kahn.ErrFinished, "it has ended since")

		db = new(store.Memory)
		run = left(t, kahn.Durable(db))
		run.Cancel()
		list, err := db.LoadRequests(t.Context(), "r", 0, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, store.KindCancel, list[0].Kind)

		ended, err := kahn.Start(t.Context(), graph(after("A")), nothing)
		require.NoError(t, err)
		_, err = ended.Wait()
		require.NoError(t, err)
		require.NoError(t, ended.Cancel(ann))
		require.NoError(t, ended.AbortAll(nil, ann))
	})
	inBubble(t, "refused", func(t *testing.T) {
		db := new(store.Memory)
		run := left(t, kahn.Durable(db))
		var choice *kahn.ChoiceError
		err := run.Signal(context.Background(), "G", "perhaps")
		require.True(t, errors.As(err, &choice), err)
		require.Subset(t, choice.Choices, []string{"approved", "rejected", "yes", "no"})
		require.ErrorIs(t, run.Signal(context.Background(), "A", 1), kahn.ErrUnknownGate)
		require.ErrorIs(t, run.Signal(context.Background(), "nobody", 1), kahn.ErrUnknownGate)
		require.ErrorIs(t, run.Signal(context.Background(), "G", func() {}), kahn.ErrChoice)
		require.ErrorIs(t, run.Signal(context.Background(), "token", func() {}), kahn.ErrNotEncodable)
		require.ErrorIs(t, run.CancelNode("A"), kahn.ErrTransition)
		require.ErrorIs(t, run.RetryNow("W"), kahn.ErrAtRest)
		require.ErrorIs(t, run.AbortAll(errStep, kahn.Request{}), kahn.ErrAtRest)
		for _, gate := range []string{"G", "token", "S/y", "later"} {
			require.NoError(t, run.CheckSignal(gate, "approved"), gate)
		}
		require.NoError(t, run.CheckCancelNode("W"))
		require.ErrorIs(t, run.CheckSignal("G", "perhaps"), kahn.ErrChoice)
		require.ErrorIs(t, run.CheckSignal("A", 1), kahn.ErrUnknownGate)
		require.ErrorIs(t, run.CheckCancelNode("A"), kahn.ErrTransition)
		var none context.Context
		require.ErrorIs(t, run.Signal(none, "G", "approved"), kahn.ErrNoContext)
		list, err := db.LoadRequests(t.Context(), "r", 0, 10)
		require.NoError(t, err)
		require.Empty(t, list)
	})
	for name, opts := range map[string][]kahn.Option{"without a store": nil, "a store that takes no requests": {kahn.Durable(muteStore{new(store.Memory)})}} {
		inBubble(t, name, func(t *testing.T) {
			run := left(t, opts...)
			require.ErrorIs(t, run.Signal(context.Background(), "G", "approved"), kahn.ErrAtRest)
			require.NotErrorIs(t, run.Signal(context.Background(), "G", "approved"), kahn.ErrFinished)
			require.ErrorIs(t, run.CancelNode("W"), kahn.ErrAtRest)
			require.ErrorIs(t, run.Cancel(kahn.Request{}), kahn.ErrAtRest)
			require.ErrorIs(t, run.CheckSignal("G", "approved"), kahn.ErrAtRest)
			require.ErrorIs(t, run.CheckCancelNode("W"), kahn.ErrAtRest)
		})
	}
	inBubble(t, "a store that fails", func(t *testing.T) {
		run := left(t, kahn.Durable(new(sealedStore)))
		err := run.Signal(context.Background(), "G", "approved")
		require.ErrorIs(t, err, kahn.ErrStore)
		require.ErrorIs(t, err, errDisk)
		err = run.Cancel(kahn.Request{})
		require.ErrorIs(t, err, kahn.ErrStore)
		require.ErrorIs(t, err, errDisk)
	})
	inBubble(t, "put away by Serve", func(t *testing.T) { // Serve itself continues the run
		db, rn, g := new(store.Memory), new(kahn.Runner), restGraph()
		n, err := kahn.Prepare(g, kahn.RunID("r"))
		require.NoError(t, err)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
		end := serve(t, rn, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: g, Step: nothing}}})
		time.Sleep(time.Minute)
		run, ok := rn.Run("r")
		require.True(t, ok)
		require.Equal(t, kahn.RunSuspended, run.Status())
		<-run.Done()
		for _, name := range []string{"G", "token", "S/y"} {
			require.NoError(t, run.Signal(context.Background(), name, "approved"), name)
		}
		time.Sleep(time.Minute)
		now, _ := rn.Run("r")
		require.NotSame(t, run, now)
		require.NoError(t, now.Signal(context.Background(), "later", "at last"))
		time.Sleep(time.Minute)
		res, err := kahn.ReadResult(t.Context(), g, db, "r")
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		end()
	})
}

// TestRefusalsAlike: an invalid answer is refused with the same error, whether the run is running, at rest, pending, or resumed with the answer.
func TestRefusalsAlike(t *testing.T) {
	t.Parallel()
	inner := func() *kahn.Graph {
		return graph(gate("done"), kahn.Node{ID: "bad", Do: fails(0)}, gate("lost", "bad"), kahn.Node{ID: "asks", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if v, ok := s.Resumed(); ok {
				return v, nil
			}
			return nil, kahn.Suspend("", nil, nil)
		}}, kahn.Node{ID: "plain"}, gate("w"), kahn.Node{ID: "skipped", Kind: kahn.KindGate, When: func(kahn.View) (bool, error) { return false, nil }})
	}
	ended := graph(gate("g"))
	for name, c := range map[string]struct {
		g      *kahn.Graph
		prefix string
	}{
		"at the top": {inner().Add(subgraph("C", ended)), ""},
		"sub-graph":  {graph(subgraph("S", inner().Add(subgraph("C", ended)))), "S/"},
	} {
		inBubble(t, name, func(t *testing.T) {
			db := new(store.Memory)
			opts := []kahn.Option{kahn.RunID("r"), kahn.Continue, kahn.Durable(db)}
			run, err := kahn.Start(t.Context(), c.g, nothing, opts...)
			require.NoError(t, err)
			synctest.Wait()
			for _, id := range []string{"done", "asks", "C/g"} {
				require.NoError(t, run.Signal(t.Context(), c.prefix+id, 1))
			}
			synctest.Wait()
			names := map[string]error{"done": kahn.ErrAnswered, "lost": kahn.ErrTransition, "asks": kahn.ErrAnswered, "plain": kahn.ErrUnknownGate,
				"skipped": kahn.ErrTransition, "C/g": kahn.ErrUnknownGate, "C": kahn.ErrUnknownGate, "nobody": kahn.ErrUnknownGate, "D/g": kahn.ErrUnknownGate}
			atWork := map[string]string{}
			for id, want := range names {
				err := run.Signal(t.Context(), c.prefix+id, 2)
				require.ErrorIs(t, err, want, id)
				require.ErrorContains(t, err, c.prefix+id)
				atWork[id] = err.Error()
			}
			run.Leave()
			_, err = run.Wait()
			require.NoError(t, err)
			pending := &kahn.Runner{MaxRuns: 1}
			hold, err := pending.Start(t.Context(), graph(gate("g")), nothing)
			require.NoError(t, err)
			next, err := pending.Start(t.Context(), c.g, nothing, opts...)
			require.NoError(t, err)
			for id := range names {
				err := run.Signal(t.Context(), c.prefix+id, 2)
				require.EqualError(t, err, atWork[id], "at rest")
				err = next.Signal(t.Context(), c.prefix+id, 2)
				require.EqualError(t, err, atWork[id], "about to go on")
			}
			next.Leave()
			_, err = next.Wait()
			require.NoError(t, err)
			require.NoError(t, hold.Cancel())
			_, err = hold.Wait()
			require.Error(t, err)
			for id := range names {
				_, err := kahn.Execute(t.Context(), c.g, nothing, append(opts, kahn.EarlySignals(map[string]any{c.prefix + id: 2}))...)
				require.EqualError(t, err, atWork[id], "resumed")
			}
			for id := range names {
				q, err := kahn.PrepareSignal(c.prefix+id, kahn.Decision{Value: 2, ID: id})
				require.NoError(t, err)
				_, err = db.Post(t.Context(), "r", q)
				require.NoError(t, err)
			}
			_, err = kahn.Execute(t.Context(), c.g, nothing, opts...)
			require.NoError(t, err)
			for id := range names {
				q, err := db.FindRequest(t.Context(), "r", id)
				require.NoError(t, err)
				require.Equal(t, atWork[id], q.Refused, "posted")
			}
		})
	}
}

// TestEarlyAnswerOfAnAbortedGate: a gate is answered early, and aborted before it asks. Later lives do not warn about the answer. The same holds
// in a sub-graph, in a graph that a step returns, and over a store.
func TestEarlyAnswerOfAnAbortedGate(t *testing.T) {
	t.Parallel()
	inner := func() *kahn.Graph {
		return graph(kahn.Node{ID: "b"}, kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"b"}}, gate("w"))
	}
	for name, c := range map[string]struct {
		g      *kahn.Graph
		prefix string
	}{
		"at the top":  {inner(), ""},
		"sub-graph":   {graph(subgraph("S", inner())), "S/"},
		"expanded":    {graph(kahn.Node{ID: "E"}), "E/"},
		"two levels":  {graph(subgraph("S", graph(subgraph("T", inner())))), "S/T/"},
		"in expanded": {graph(subgraph("S", graph(kahn.Node{ID: "E"}))), "S/E/"},
	} {
		for _, stored := range []bool{false, true} {
			inBubble(t, name, func(t *testing.T) {
				step := func(_ context.Context, s *kahn.Step) (any, error) {
					if s.ID() == "E" {
						return nil, kahn.Expand(inner(), nil, nil)
					}
					time.Sleep(time.Second)
					return nil, errors.New("broken")
				}
				opts := []kahn.Option{kahn.RunID("r"), kahn.Continue}
				if stored {
					opts = append(opts, kahn.Durable(new(store.Memory)))
				}
				run, err := kahn.Start(t.Context(), c.g, step, opts...)
				require.NoError(t, err)
				synctest.Wait()
				require.NoError(t, run.Signal(t.Context(), c.prefix+"g", "early"))
				time.Sleep(2 * time.Second)
				run.Leave()
				res, err := run.Wait()
				require.NoError(t, err)
				require.Equal(t, kahn.RunSuspended, res.Status)
				for life := range 3 {
					more := slices.Clone(opts)
					if !stored {
						more = append(more, kahn.Resume(reload(t, res.Snapshot())))
					}
					if life == 2 {
						more = append(more, kahn.EarlySignals(map[string]any{c.prefix + "w": "yes"}))
					}
					res, err = kahn.Execute(t.Context(), c.g, step, more...)
					require.Empty(t, res.Warnings, "life %d", life)
				}
				require.Error(t, err)
				require.Equal(t, kahn.RunFailed, res.Status)
			})
		}
	}
}
