package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunFollow performs a run in two parts. Meanwhile a reader follows the run, and must see each event once. The reader has its own store value, like
// a reader in another process. The parameter "check" must be kahntest.CheckEvents.
func RunFollow(t *testing.T, performing store.Admin, reading store.EventStore, check func(g *kahn.Graph, res *kahn.Result, events []kahn.Event) error) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"A"}}, kahn.Node{ID: "B", After: []string{"gate"}})
	n, err := kahn.Prepare(g, kahn.RunID("r"))
	if err == nil {
		_, _, err = performing.Create(t.Context(), n)
	}
	if err != nil {
		t.Fatal(err)
	}
	var events []kahn.Event
	var reader sync.WaitGroup
	reader.Go(func() {
		log, err := store.OpenEvents(t.Context(), reading, "r") // the run has not begun yet
		if err != nil {
			t.Error(err)
			return
		}
		log.Poll = time.Millisecond
		for e, err := range log.Events(t.Context(), 0) {
			if err != nil {
				t.Error(err)
				return
			}
			events = append(events, e)
		}
	})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		for i := range 20 {
			s.Emit(i)
			time.Sleep(time.Millisecond)
		}
		return nil, nil
	}
	var res *kahn.Result
	for _, signals := range []map[string]any{nil, {"gate": "yes"}} {
		res, err = kahn.Execute(t.Context(), g, step, kahn.RunID("r"), kahn.Durable(performing), kahn.StoreEvents(), kahn.EarlySignals(signals))
		if err != nil {
			t.Fatal(err)
		}
	}
	reader.Wait()
	if err := check(g, res, events); err != nil {
		t.Error(err)
	}
}
