package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// fan returns a graph of n nodes without edges.
func fan(n int) *kahn.Graph {
	g := &kahn.Graph{}
	for i := range n {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
	}
	return g
}

// bytesOf returns the number of bytes of a commit's values.
func bytesOf(c store.Commit) (n int) {
	for i := range c.Nodes {
		n += len(c.Nodes[i].Value)
	}
	return n
}

// TestTransactionsAreBounded: steps that end together are written in transactions of at most 8 MiB of values and 1,024 nodes. A larger value has
// its own transaction. If an end has too many consequences for one transaction, its consequences share transactions with the consequences of
// other ends.
func TestTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	const kB, most = 1 << 10, 8 << 20
	text := strings.Repeat("x", 9<<20)
	bipartite := fan(300)
	for i := range size(1200, 60, 1200) {
		n := kahn.Node{ID: fmt.Sprint("t", i)}
		for k := range 300 {
			n.After = append(n.After, fmt.Sprint("n", k))
		}
		bipartite.Add(n)
	}
	for _, row := range []struct {
		name        string
		g           *kahn.Graph
		value       string
		rows, bytes int
		commits     int
	}{
		{"large values", fan(40), text[:512*kB], 1024, most, 10},
		{"values above the bound", fan(2), text, 1024, 9<<20 + 2, 5},
		{"many steps", fan(3000), "", 1024, most, 16},
		{"a node with many successors", func() *kahn.Graph {
			g := graph(after("root"))
			for i := range 3000 {
				g.Add(after(fmt.Sprint("n", i), "root"))
			}
			return g
		}(), "", 3002, most, 20},
		{"many nodes with the same successors", bipartite, "", 2402, most, 12},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			db := &countingStore{takes: ms}
			r := try(t, row.g, func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				return row.value, nil
			}, kahn.Durable(db), kahn.RunID("one"), kahn.CancelGrace(time.Minute))
			if r.err != nil {
				t.Fatal(r.err)
			}
			for i, c := range db.commits {
				if rows, bytes := len(c.Nodes), bytesOf(c); rows > row.rows || bytes > row.bytes {
					t.Errorf("transaction %d has %d nodes and %d bytes, expected at most %d and %d", i+1, rows, bytes, row.rows, row.bytes)
				}
			}
			if len(db.commits) > row.commits {
				t.Errorf("%d transactions, expected at most %d", len(db.commits), row.commits)
			}
			t.Logf("%d transactions", len(db.commits))
		})
	}
}

// TestWideFanInBatches: the size of a run's first transaction does not grow with the number of roots. If the process dies, at most the attempts
// that two transactions start are repeated.
func TestWideFanInBatches(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{false, true} {
		inBubble(t, fmt.Sprint("inside a composite: ", inside), func(t *testing.T) {
			n := size(5000, 2000, 5000)
			g := fan(n)
			if inside {
				g = graph(subgraph("S", g))
			}
			var called atomic.Int32
			ended, most, largest, first := 0, 0, 0, -1
			db := &eventStore{commit: func(c store.Commit, apply func() error) error {
				if len(c.Started) > 0 && first < 0 {
					first = int(called.Load())
				}
				most, largest = max(most, int(called.Load())-ended), max(largest, len(c.Nodes), len(c.Events))
				time.Sleep(ms)
				err := apply()
				ended += len(c.Completed)
				return err
			}}
			r := try(t, g, func(context.Context, *kahn.Step) (any, error) {
				called.Add(1)
				return nil, nil
			}, kahn.Durable(db), kahn.RunID("one"), kahn.StoreEvents())
			if r.err != nil || ended != n || first != 0 {
				t.Errorf("%v; %d of %d ends; %d calls before the first start", r.err, ended, n, first)
			}
			if largest > 3*1024 || most > 1024 {
				t.Errorf("a transaction of %d nodes or events; a crash would have repeated %d attempts", largest, most)
			}
			if err := kahntest.CheckEvents(g, r.Result, storedEvents(t, db, "one")); err != nil {
				t.Error(err)
			}
		})
	}
}

// silentCodec is a codec that, for a node's output, returns from Encode only after speak is closed.
type silentCodec struct {
	speak chan struct{}
}

func (c silentCodec) Encode(v any) (json.RawMessage, error) {
	if v == "silent" {
		<-c.speak
	}
	return json.Marshal(v)
}

func (silentCodec) Decode(data json.RawMessage) (v any, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// TestManySilentCodecs: if calls of a codec do not return, other attempts still end, and every attempt can be abandoned.
func TestManySilentCodecs(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		const n = 300
		g := fan(n)
		g.Add(kahn.Node{ID: "quick"})
		g.Add(kahn.Node{ID: "timed", Timeout: time.Second})
		codec := silentCodec{make(chan struct{})}
		r := tryControlled(t, t.Context(), g, func(ctx context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "timed" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if s.ID() == "quick" {
				time.Sleep(time.Second)
				return "quick", nil
			}
			return "silent", nil
		}, func(run *kahn.Run) {
			time.Sleep(time.Minute)
			run.Cancel()
		}, kahn.Durable(&countingStore{}), kahn.RunID("one"), kahn.Encoding(codec), kahn.CancelGrace(time.Second), kahn.Lease("", 24*time.Hour))
		close(codec.speak) // long after the end of the run
		if q, d := r.node("quick"), r.node("timed"); q.Status != kahn.Completed || d.Status != kahn.Failed || d.Duration != time.Second {
			t.Errorf("quick: %s, timed: %s after %v", q.Status, d.Status, d.Duration)
		}
		if len(r.Abandoned) != n {
			t.Errorf("%d abandoned, expected %d", len(r.Abandoned), n)
		}
	})
}

// TestTimeoutOfAGraphThatWaitsForRoom: a node's Timeout covers the graph that its step returns. The time for which the step waits for room in a
// transaction does not count.
func TestTimeoutOfAGraphThatWaitsForRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, "Timeout", func(t *testing.T) {
		text := strings.Repeat("x", 9<<20)
		large := func(d time.Duration) kahn.StepFunc {
			return func(context.Context, *kahn.Step) (any, error) { time.Sleep(d); return text, nil }
		}
		inner := graph(kahn.Node{ID: "x", Do: takes(time.Hour)})
		g := graph(kahn.Node{ID: "A", Do: large(1000 * ms)}, kahn.Node{ID: "B", Do: large(1010 * ms)}, kahn.Node{ID: "E", Timeout: 10 * time.Second,
			Do: func(context.Context, *kahn.Step) (any, error) {
				time.Sleep(1100 * ms)
				return nil, kahn.Expand(inner, nil, nil)
			}})
		r := try(t, g, nil, kahn.Durable(&slowStore{Store: new(store.Memory), takes: 2 * time.Second}), kahn.RunID("r"), kahn.Lease("", time.Hour))
		r.expect("A:ok B:ok E:F", "failed")
		if n := r.node("E"); n.Cause.Kind != kahn.CauseTimeout {
			t.Errorf("%v after %v", n.Cause, n.Duration)
		}
		began, expanded, ended := r.at(event.NodeStarted, "E"), r.at(event.NodeQueued, "E/x"), r.at(event.NodeTimedOut, "E")
		if waited := expanded - began - 1100*ms; waited < time.Second || ended-expanded != 8900*ms {
			t.Errorf("the nested run had %v, after E had waited for %v", ended-expanded, waited)
		}
	})
}
