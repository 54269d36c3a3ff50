package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestHostileSnapshots resumes snapshots with forged values: missing, out of range, or contradicting each other. Resume refuses the snapshot, or
// the run ends. It never panics, hangs or uses unbounded memory.
func TestHostileSnapshots(t *testing.T) {
	defer tolerateBugs()()
	graphs, tried, refused := size(4, 3, 200), 0, 0
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			c := newCutter(seed, int(seed%3))
			snapshots, _ := c.run(t, nil, true)
			c.cut = nil
			r := rand.New(rand.NewPCG(seed, 1))
			for i := range 4 * len(snapshots) {
				data := forge(t, r, snapshots[i%len(snapshots)])
				tried++
				s := new(kahn.Snapshot)
				if err := json.Unmarshal(data, s); err != nil {
					require.ErrorIs(t, err, kahn.ErrBadValue)
					refused++
					continue
				}
				if nodes, err := s.Nodes(compiled(t, c.g)); err == nil {
					_ = treeOf(nodes)
				}
				if !goOnHostile(t, c, data, kahn.Resume(s)) {
					refused++
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d snapshots, %d refused", tried, refused)
	require.Greater(t, tried-refused, 100)
	require.Greater(t, refused, 100)
}

// forgedStore is a store with one forged record.
type forgedStore struct {
	*journal
	node   string // node of the record; "" for the run's own record
	record json.RawMessage
	change func(n *store.Columns) // changes the columns of that node; may be nil
}

func (f *forgedStore) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	lease, stored, err := f.journal.Acquire(ctx, run, owner, ttl)
	if err != nil {
		return lease, stored, err
	}
	if f.node == "" {
		stored.Record = f.record
	} else {
		n := stored.Nodes[f.node]
		n.Record = f.record
		if f.change != nil {
			f.change(&n.Columns)
		}
		stored.Nodes[f.node] = n
	}
	return lease, stored, nil
}

// TestHostileStores resumes runs from stores with forged records, and expects the same as TestHostileSnapshots.
func TestHostileStores(t *testing.T) {
	defer tolerateBugs()()
	tried, refused := 0, 0
	for seed := range seeds(t, size(10, 10, 18)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCutter(seed, int(seed%3))
			whole := new(journal)
			c.more = []kahn.Option{kahn.Durable(whole), kahn.RunID("r")}
			c.run(t, nil, false)
			r := rand.New(rand.NewPCG(seed, 2))
			for range 60 {
				db := &forgedStore{journal: whole.replay(t, "r", r.IntN(len(whole.writes)))}
				stored, err := db.Load(t.Context(), "r")
				require.NoError(t, err)
				if stored.Status.Terminal() || stored.Record == nil {
					continue
				}
				db.record = stored.Record
				if nodes := slices.Sorted(maps.Keys(stored.Nodes)); len(nodes) > 0 && r.IntN(8) > 0 {
					db.node = nodes[r.IntN(len(nodes))]
					db.record = stored.Nodes[db.node].Record
				}
				if db.record == nil {
					continue
				}
				forged := ""
				if part := r.IntN(12); db.node != "" && part < 6 {
					number := r.IntN(16)
					value := forge(t, r, []byte(`[{"$type":"int","value":7},null,"x"]`))
					db.change = func(n *store.Columns) {
						switch part {
						case 0:
							n.Status = kahn.Status(number)
						case 1:
							n.Cause = kahn.CauseKind(number * 3)
						case 2:
							n.Value = value
						case 3:
							n.Value = nil
						case 4:
							n.Hash = n.Hash[:len(n.Hash)/2]
						case 5:
							n.Start, n.End = n.End, n.Start.AddDate(-10_000*number, 0, 0)
						}
					}
					forged = fmt.Sprint("part ", part, ", ", number, ", ", string(value), ": ")
				} else {
					db.record = forge(t, r, db.record)
				}
				tried++
				if !goOnHostile(t, c, []byte(forged+db.node+": "+string(db.record)), kahn.Durable(db), kahn.RunID("r")) {
					refused++
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d stored runs, %d refused", tried, refused)
	require.Greater(t, tried-refused, 100)
	require.Greater(t, refused, 100)
}

// goOnHostile resumes a run from forged data, and reports whether Resume accepted it.
func goOnHostile(t *testing.T, c *cutter, data []byte, opts ...kahn.Option) bool {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s", data)
			panic(p)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	run, err := kahn.Start(ctx, c.g, c.step, append(slices.Clone(c.opts), opts...)...)
	if err != nil {
		return false
	}
	for range 20 {
		time.Sleep(time.Second)
		for _, w := range run.Waiting() {
			_ = run.Signal(context.Background(), w.Node, true) // the node's name may have been forged
		}
	}
	run.Cancel()
	time.Sleep(10 * time.Minute) // a cleanup node, which Cancel does not stop, may back off for 5 minutes: see Retry.MaxRetryAfter
	synctest.Wait()
	select {
	case <-run.Done():
		res, _ := run.Wait()
		_, err := json.Marshal(res.Snapshot())
		require.NoError(t, err, "%s", data)
	default:
		t.Errorf("hangs: %s", data)
	}
	return true
}

// forge changes one to three values of an encoded snapshot.
func forge(t *testing.T, r *rand.Rand, data []byte) []byte {
	pick := func(list ...any) any { return list[r.IntN(len(list))] }
	number := func() any { return pick(-1, 0, 1, 7, 1<<30, 1<<31-1, -1<<31) }
	var file any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(t, d.Decode(&file))
	for range 1 + r.IntN(3) {
		places := placesOf(file)
		place := places[r.IntN(len(places))]
		if n, ok := place.value.(map[string]any); ok && n["id"] != nil && r.IntN(2) == 0 {
			switch r.IntN(7) {
			case 0:
				n["status"] = pick("ready", "running", "retrying", "suspended", "completed", "failed", "aborted", "cancelled", "skipped", "idle")
			case 1:
				n[pick("checking", "reached", "substituted", "propagated", "tolerated", "bypass", "dormant", "draining", "abandoned", "memoized").(string)] = true
			case 2:
				n["cause"] = pick("step_error", "timeout", "cancel_run", "run_timeout", "superseded", "upstream_failure", "ctx")
			case 3:
				n[pick("by", "settled", "decided", "attempts", "started", "entries", "timed_out", "timeout").(string)] = number()
			case 4:
				n["status"], n["by"] = "skipped", number()
				n["skip"] = pick("annotation", "condition_branch", "null_propagation", "upstream_skipped", "superseded", "rule_unsatisfied")
			case 5:
				n["origin"] = pick("n0", "n1", "nowhere")
			case 6:
				n["labels"] = []string{"true", "false", "other"}
			}
			continue
		}
		switch place.value.(type) {
		case json.Number:
			place.set(number())
		case string:
			place.set(pick("", "n0", "2020-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "failed", "running"))
		default:
			place.set(nil)
		}
		if r.IntN(4) == 0 {
			other, err := json.Marshal(places[r.IntN(len(places))].value)
			require.NoError(t, err)
			place.set(json.RawMessage(other))
		}
	}
	data, err := json.Marshal(file)
	require.NoError(t, err)
	return data
}

// jsonPlace is a value in a JSON document, with a function that replaces the value.
type jsonPlace struct {
	value any
	set   func(any)
}

// placesOf lists the values of a document, except for the graph's hash and the version.
func placesOf(doc any) (places []jsonPlace) {
	switch doc := doc.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(doc)) {
			if key != "hash" && key != "version" {
				places = append(places, jsonPlace{doc[key], func(v any) { doc[key] = v }})
				places = append(places, placesOf(doc[key])...)
			}
		}
	case []any:
		for i := range doc {
			places = append(places, jsonPlace{doc[i], func(v any) { doc[i] = v }})
			places = append(places, placesOf(doc[i])...)
		}
	}
	return places
}

// A forged date makes a backoff or a pause no longer than its policy allows.
func TestBackoffUntilAForgedDate(t *testing.T) {
	hour, asked := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, MaxDelay: time.Hour}, kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second}
	broken := errors.New("once more")
	failsOnce := func() func(context.Context, *kahn.Step) (any, error) {
		calls := 0
		return func(context.Context, *kahn.Step) (any, error) {
			if calls++; calls == 1 {
				return nil, broken
			}
			return nil, nil
		}
	}
	undo := failsOnce()
	for name, row := range map[string]struct {
		n     kahn.Node
		waits time.Duration
	}{
		"MaxDelay":      {kahn.Node{Do: failsOnce(), Retry: hour}, time.Hour},
		"MaxRetryAfter": {kahn.Node{Do: failsOnce(), Retry: asked}, 5 * time.Minute},
		"cleanup":       {kahn.Node{Do: failsOnce(), Retry: hour, Cleanup: true}, time.Hour},
		"the end":       {kahn.Node{Do: failsOnce(), Retry: hour, Kind: kahn.KindEnd}, time.Hour},
		"a pause": {kahn.Node{
			Sub: graph(after("y")), Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 2, Pause: time.Minute},
		}, time.Minute},
		"a compensation": {kahn.Node{
			Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Permanent(broken) }, CompensateRetry: hour,
			Compensate: func(ctx context.Context, s *kahn.Step) error { _, err := undo(ctx, s); return err },
		}, time.Hour},
	} {
		inBubble(t, name, func(t *testing.T) {
			row.n.ID = "x"
			g := graph(row.n)
			run, err := kahn.Start(t.Context(), g, takes(0))
			require.NoError(t, err)
			time.Sleep(500 * ms)
			data, err := json.Marshal(run.Snapshot())
			require.NoError(t, err)
			_ = run.Cancel()
			_, _ = run.Wait()
			forged := regexp.MustCompile(`"due":"[^"]*"`).ReplaceAll(data, []byte(`"due":"9999-01-01T00:00:00Z"`))
			require.NotEqual(t, data, forged)
			s := new(kahn.Snapshot)
			require.NoError(t, json.Unmarshal(forged, s))
			began := time.Now()
			_, _ = kahn.Execute(t.Context(), g, takes(0), kahn.Resume(s))
			require.Equal(t, row.waits, time.Since(began))
		})
	}
}

// A snapshot with a started attempt of a gate is refused, at every depth: a gate has no attempts, and a signal could not end one.
func TestForgedAttemptOfGate(t *testing.T) {
	gate := kahn.Node{ID: "g", Kind: kahn.KindGate}
	for name, g := range map[string]*kahn.Graph{"alone": graph(gate), "inside": graph(subgraph("S", graph(gate)))} {
		for _, field := range []string{"started", "attempts"} {
			inBubble(t, name+" "+field, func(t *testing.T) {
				res, err := kahn.Execute(t.Context(), g, takes(0))
				require.NoError(t, err)
				data, err := json.Marshal(res.Snapshot())
				require.NoError(t, err)
				forged := bytes.Replace(data, []byte(`"id":"g",`), []byte(`"id":"g","`+field+`":7,`), 1)
				require.NotEqual(t, data, forged)
				s := new(kahn.Snapshot)
				if err = json.Unmarshal(forged, s); err == nil {
					_, err = kahn.Execute(t.Context(), g, takes(0), kahn.Resume(s))
				}
				require.ErrorIs(t, err, kahn.ErrBadValue)
			})
		}
	}
}

// A snapshot with a forged number of interrupted attempts does not give the node more attempts than its policy allows.
func TestForgedCutAttempts(t *testing.T) {
	for _, cleanup := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("cleanup %v", cleanup), func(t *testing.T) {
			g := graph(kahn.Node{ID: "x", Cleanup: cleanup, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second}})
			run, err := kahn.Start(t.Context(), g, breaks("x"))
			require.NoError(t, err)
			time.Sleep(400 * ms) // x backs off after its first attempt
			data, err := json.Marshal(run.Snapshot())
			require.NoError(t, err)
			_, _ = run.Wait()
			forged := regexp.MustCompile(`"attempts":1,`).ReplaceAll(data, []byte(`"attempts":1,"cut":1000000000,`))
			require.NotEqual(t, data, forged)
			s := new(kahn.Snapshot)
			require.NoError(t, json.Unmarshal(forged, s))
			res, _ := kahn.Execute(t.Context(), g, breaks("x"), kahn.Resume(s))
			x, _ := res.Node("x")
			require.Equal(t, kahn.Failed, x.Status)
			require.Equal(t, 4, x.Attempts) // the first attempt counts as interrupted
		})
	}
}

// Whatever a snapshot says, nodes inside an expanded node back off no longer, and are attempted no more often, than their policy allows.
func TestForgedInsideAnExpandedNode(t *testing.T) {
	for name, forge := range map[string]func(text string) string{
		"no time": func(text string) string {
			return regexp.MustCompile(`"due":"[^"]*"`).ReplaceAllString(text, `"due":"0001-01-01T00:00:00Z"`)
		},
		"far away": func(text string) string {
			return regexp.MustCompile(`"due":"[^"]*"`).ReplaceAllString(text, `"due":"9999-01-01T00:00:00Z"`)
		},
		"re-entries": func(text string) string { return strings.ReplaceAll(text, `"due":`, `"entries":1000000000,"due":`) },
	} {
		inBubble(t, name, func(t *testing.T) {
			inner := graph(kahn.Node{ID: "x", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("broken") }})
			g := graph(kahn.Node{ID: "e", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }})
			run, err := kahn.Start(t.Context(), g, nil)
			require.NoError(t, err)
			time.Sleep(400 * ms) // x backs off after its first attempt
			data, err := json.Marshal(run.Snapshot())
			require.NoError(t, err)
			_, _ = run.Wait()
			forged := forge(string(data))
			require.NotEqual(t, string(data), forged)
			s := new(kahn.Snapshot)
			require.NoError(t, json.Unmarshal([]byte(forged), s))
			began := time.Now()
			res, _ := kahn.Execute(t.Context(), g, nil, kahn.Resume(s))
			require.Equal(t, kahn.RunFailed, res.Status)
			require.Equal(t, 3, must(must(res.Node("e")).Sub.Node("x")).Attempts)
			require.LessOrEqual(t, time.Since(began), 6*time.Minute)
		})
	}
}

// Only a running loop after its first iteration pauses. A file that says anything else is refused.
func TestForgedPause(t *testing.T) {
	inBubble(t, "a pause", func(t *testing.T) {
		again := &kahn.Loop{MaxIterations: 3, Pause: time.Minute, While: func(kahn.View) (bool, error) { return true, nil }}
		inner := graph(kahn.Node{ID: "x", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return nil }})
		g := graph(kahn.Node{ID: "L", Sub: inner, Loop: again}, kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: takes(time.Second)})})
		run, err := kahn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		time.Sleep(400 * ms) // L pauses, and x of S runs
		data, err := json.Marshal(run.Snapshot())
		require.NoError(t, err)
		_, _ = run.Wait()
		resume := func(forge func(loop, sub map[string]any)) error {
			var file struct {
				Nodes []map[string]any `json:"nodes"`
			}
			whole := map[string]any{}
			require.NoError(t, json.Unmarshal(data, &file))
			require.NoError(t, json.Unmarshal(data, &whole))
			require.Equal(t, "L", file.Nodes[0]["id"])
			forge(file.Nodes[0], file.Nodes[1])
			whole["nodes"] = file.Nodes
			forged, err := json.Marshal(whole)
			require.NoError(t, err)
			s := new(kahn.Snapshot)
			require.NoError(t, json.Unmarshal(forged, s))
			_, err = kahn.Execute(t.Context(), g, nil, kahn.Resume(s))
			return err
		}
		inside := func(n map[string]any) map[string]any { return n["inside"].(map[string]any) }
		require.ErrorIs(t, resume(func(_, _ map[string]any) {}), kahn.ErrLoopLimit) // an honest file: the run continues
		for name, forge := range map[string]func(loop, sub map[string]any){
			"S": func(loop, sub map[string]any) { sub["inside"] = loop["inside"] },
			"L": func(loop, sub map[string]any) { inside(loop)["nodes"] = inside(sub)["nodes"] },
		} {
			err := resume(forge)
			require.ErrorIs(t, err, kahn.ErrBadValue)
			require.ErrorContains(t, err, fmt.Sprintf("node %q cannot be in a pause", name))
		}
		err = resume(func(loop, _ map[string]any) { inside(loop)["iteration"] = 1 })
		require.ErrorContains(t, err, `node "L" cannot be in a pause`)
		err = resume(func(loop, _ map[string]any) {
			past := inside(loop)["past"].([]any)[0].(map[string]any)
			past["due"] = inside(loop)["due"] // only the current iteration can be due
		})
		require.ErrorContains(t, err, `iteration 1 of node "L" is not valid`)
		err = resume(func(loop, _ map[string]any) { loop["status"] = "retrying" })
		require.ErrorContains(t, err, `node "L"`)
	})
}
