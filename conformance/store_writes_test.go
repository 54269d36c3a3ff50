package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/race"
	"github.com/seed-c794f7ef/kahn/store"
)

// countingStore is a store that records its transactions, and takes some time for each.
type countingStore struct {
	store.Memory
	takes   time.Duration
	commits []store.Commit
}

func (s *countingStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	s.commits = append(s.commits, c) // only one goroutine commits
	time.Sleep(s.takes)
	return s.Memory.Commit(ctx, l, c)
}

// TestTransactionsPerNode: the start of a node is written together with the end that made the node ready. All changes that happen while a
// transaction is written go into the next transaction.
func TestTransactionsPerNode(t *testing.T) {
	t.Parallel()
	const n = 100
	chain, fan, diamonds, composites := &kahn.Graph{}, graph(after("root")), &kahn.Graph{}, &kahn.Graph{}
	for i := range n {
		chain.Add(kahn.Node{ID: fmt.Sprint("c", i)})
		fan.Add(after(fmt.Sprint("f", i), "root"))
		if i > 0 {
			chain.Connect(kahn.Edge{From: fmt.Sprint("c", i-1), To: fmt.Sprint("c", i)})
		}
	}
	for i := range n / 4 { // each diamond has two nodes between two others
		a, b, c, d := fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i), fmt.Sprint("d", i)
		diamonds.Add(after(a), after(b, a), after(c, a), after(d, b, c))
		if i > 0 {
			diamonds.Connect(kahn.Edge{From: fmt.Sprint("d", i-1), To: a})
		}
	}
	for i := range n / 5 { // a composite and its four nodes
		composites.Add(subgraph(fmt.Sprint("S", i), graph(after("a"), after("b", "a"), after("c", "b"), after("d", "c"))))
		if i > 0 {
			composites.Connect(kahn.Edge{From: fmt.Sprint("S", i-1), To: fmt.Sprint("S", i)})
		}
	}
	for _, row := range []struct {
		name string
		g    *kahn.Graph
		step time.Duration
		most int // the highest number of transactions
	}{
		{"a chain", chain, 0, 105},
		{"a chain of slow steps", chain, 10 * ms, 105},
		{"a fan", fan, 0, 8},
		{"a fan of slow steps", fan, 10 * ms, 8},
		{"diamonds", diamonds, 0, 101},
		{"composites in a row", composites, 0, 105},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			least := math.MaxInt // the number depends slightly on the order of goroutines
			for range 5 {
				store := &countingStore{takes: ms}
				r := try(t, row.g, takes(row.step), kahn.Durable(store), kahn.RunID("one"))
				if r.err != nil {
					t.Fatal(r.err)
				}
				least = min(least, len(store.commits))
				starts, ends := 0, 0
				for _, c := range store.commits {
					starts, ends = starts+len(c.Started), ends+len(c.Completed)
				}
				if starts != ends || starts < n*4/5 {
					t.Errorf("%d starts and %d ends", starts, ends)
				}
			}
			if most := size(row.most, row.most*3/2, row.most); least > most { // the race detector changes the order of goroutines
				t.Errorf("%d transactions for %d nodes, expected at most %d", least, n, most)
			}
			t.Logf("%d transactions", least)
		})
	}
}

// TestStartTravelsWithItsCause: the start of a successor is written with the end that made it ready. The
// successor's step is called only after this write.
func TestStartTravelsWithItsCause(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		db := &countingStore{takes: time.Second}
		begin := time.Now()
		called := map[string]time.Duration{}
		g := graph(after("A"), after("B", "A"), after("C", "B"))
		r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			called[s.ID()] = time.Since(begin)
			return nil, nil
		}, kahn.Durable(db), kahn.RunID("one"))
		r.expect("A:ok B:ok C:ok", "completed")
		for i, id := range []string{"A", "B", "C"} {
			if want := time.Duration(i+1) * time.Second; called[id] != want {
				t.Errorf("%s was called after %v, expected %v", id, called[id], want)
			}
		}
		for _, want := range [][2]store.Attempt{{{Node: "A", Attempt: 1}, {Node: "B", Attempt: 1}}, {{Node: "B", Attempt: 1}, {Node: "C", Attempt: 1}}} {
			found := false
			for _, c := range db.commits {
				found = found || len(c.Completed) == 1 && c.Completed[0] == want[0] && len(c.Started) == 1 && c.Started[0] == want[1]
			}
			if !found {
				t.Errorf("no transaction holds the end of %v and the start of %v", want[0], want[1])
			}
		}
	})
}

// TestGivenUpBeforeItsStart: an attempt may be stopped and abandoned before the store has written its start. Its start and its end are then in
// one transaction.
func TestGivenUpBeforeItsStart(t *testing.T) {
	for _, refused := range []bool{false, true} {
		inBubble(t, fmt.Sprint("the transaction is refused: ", refused), func(t *testing.T) {
			db := &countingStore{takes: 20 * time.Second}
			g := graph(kahn.Node{ID: "A"}, after("B", "A"), kahn.Node{ID: "C", Cleanup: true, After: []string{"B"}})
			kept := &brokenStore{Store: db, commit: func(c store.Commit) error {
				if refused && len(c.Started) > 0 {
					time.Sleep(20 * time.Second)
					return kahn.ErrFenced
				}
				return nil
			}}
			r := tryControlled(t, t.Context(), g, takes(0), func(run *kahn.Run) {
				time.Sleep(time.Second)
				run.Cancel()
			}, kahn.Durable(kept), kahn.RunID("one"), kahn.CancelGrace(time.Second))
			if refused != errors.Is(r.err, kahn.ErrStore) {
				t.Error(r.err)
			}
			if left, err := db.Load(t.Context(), "one"); err != nil || left.Status.Terminal() == refused {
				t.Errorf("%+v, %v", left, err)
			}
		})
	}
}

// TestAllocationsOfDurableChain limits the allocations per node of a chain over a store in memory. Each node causes one transaction, with the end
// of the node, the start of the next node, and two records.
func TestAllocationsOfDurableChain(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	objects := func(nodes int) float64 {
		g := new(kahn.Graph)
		for i := range nodes {
			n := kahn.Node{ID: fmt.Sprintf("n%04d", i)}
			if i > 0 {
				n.After = []string{fmt.Sprintf("n%04d", i-1)}
			}
			g.Add(n)
		}
		step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
		return testing.AllocsPerRun(5, func() {
			if _, err := kahn.Execute(t.Context(), g, step, kahn.RunID("r"), kahn.Durable(new(store.Memory))); err != nil {
				t.Error(err)
			}
		})
	}
	if node := (objects(600) - objects(100)) / 500; node > 8 {
		t.Errorf("%.1f objects a node", node)
	}
}

// TestQueuedInTheStore: a commit that ends an attempt also queues the nodes that become ready, and counts for their successors. The start of a node
// takes it from the queue.
func TestQueuedInTheStore(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		db := new(store.Memory)
		var seen []string
		g := graph(kahn.Node{ID: "A", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms, Jitter: kahn.JitterNone}}, after("B"), after("C", "A", "B"), after("D", "A", "B"))
		r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			time.Sleep(10 * ms) // A is queued again meanwhile
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			text := fmt.Sprint(s.ID(), s.Attempt(), ":")
			for _, id := range []string{"A", "B", "C", "D"} {
				n := stored.Nodes[id]
				text += fmt.Sprintf(" %s %d/%d", id, n.Resolved, n.Required)
				if n.Queued {
					text += " queued"
				}
			}
			if seen = append(seen, text); s.ID() == "A" && s.Attempt() == 1 {
				return nil, errStep
			}
			return nil, nil
		}, kahn.Durable(db), kahn.RunID("r"), kahn.Limit(1))
		r.expect("A:ok B:ok C:ok D:ok", "completed")
		require.Equal(t, []string{
			"A1: A 0/0 B 0/0 queued C 0/0 D 0/0",
			"B1: A 0/0 queued B 0/0 C 0/0 D 0/0",
			"A2: A 0/0 B 0/0 C 1/2 D 1/2",
			"C1: A 0/0 B 0/0 C 2/2 D 2/2 queued",
			"D1: A 0/0 B 0/0 C 2/2 D 2/2",
		}, seen)
		counted(t, db)
	})
}
