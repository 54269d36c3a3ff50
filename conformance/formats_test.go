package conformance_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// leftRun is a run that was saved in a file: in the middle, as a crash would leave it, or once all remaining nodes waited.
type leftRun struct {
	graph    func() *kahn.Graph
	step     kahn.StepFunc
	opts     []kahn.Option
	crash    time.Duration // the time in the run at which the file of the crash was written
	statuses string        // expected at the end of the run
	status   kahn.RunStatus
	degraded bool
	output   string              // expected from the last node
	calls    map[string][]string // the steps that the next life must call, for a run that crashed and for a run that was suspended
}

var leftRuns = map[string]leftRun{
	"plain": {
		graph: plainLeft, step: plainStep, crash: 2500 * time.Millisecond,
		statuses: "fetch:ok flaky:ok scan:F note:ok big:ok split:S/br whole:ok ask:ok approve:ok confirm:ok publish:ok",
		status:   kahn.RunCompleted, degraded: true,
		output: "map[answer:yes by:ann choice:[1 2] both fetched:map[files:[a b] version:7] flaky:steady note:true]",
		calls:  map[string][]string{"crashed": {"ask", "ask", "flaky", "publish"}, "suspended": {"ask", "publish"}},
	},
	"nested": {
		graph: nestedLeft, step: nestedStep, crash: 1500 * time.Millisecond,
		statuses: "S:ok list:ok M:ok L:ok sum:ok", status: kahn.RunCompleted,
		output: "map[l:[L#1/turn go L#3/turn] m:[a B c] s:yes]",
		calls: map[string][]string{
			"crashed":   {"L#2/turn", "L#2/turn", "L#3/turn", "M[1]", "S/y", "sum"},
			"suspended": {"L#2/turn", "L#3/turn", "M[1]", "S/y", "sum"},
		},
	},
	"fired": {
		graph: firedLeft, step: firedStep, opts: []kahn.Option{kahn.Fire("push", "abc")}, crash: 500 * time.Millisecond,
		statuses: "push:ok build:ok approve:ok deploy:ok", status: kahn.RunCompleted,
		output: "deploymap[answer:yes built:buildmap[commit:abc]]",
		calls:  map[string][]string{"crashed": {"build", "deploy"}, "suspended": {"deploy"}},
	},
}

// answers are the signals for waiting nodes.
var answers = map[string]any{"approve": "yes", "confirm": "ann", "ask": "both", "S/g": "yes", "M[1]": "B", "L#2/turn": "go"}

// Runs that former versions saved in files continue with their values, waits and answers. No step of an ended node is called again.
func TestFormats(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/formats/*/*.json")
	require.NoError(t, err)
	versions := map[string]bool{}
	for _, file := range files {
		versions[filepath.Base(filepath.Dir(file))] = true
		t.Run(strings.TrimPrefix(file, "testdata/formats/"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			// Before composites had records, a store did not keep the answer to a gate that had not been reached.
			lost := strings.Contains(file, "2-stores/plain") || strings.Contains(file, "3-names/plain") && strings.Contains(file, ".store.")
			synctest.Test(t, func(t *testing.T) { goOn(t, filepath.Base(file), data, lost) })
		})
	}
	require.Equal(t, []string{"1-snapshots", "2-stores", "3-names", "4-inside", "5-fired", "6-answers", "7-parts", "8-specs", "9-signals"}, slices.Sorted(maps.Keys(versions)))
}

// goOn continues a run from a file until the run ends. In each life it answers the nodes that wait. lost says that the file lacks the early
// answer to the gate "confirm".
func goOn(t *testing.T, name string, data []byte, lost bool) {
	what, form, _ := strings.Cut(strings.TrimSuffix(name, ".json"), ".")
	run, moment, _ := strings.Cut(what, "-")
	left := leftRuns[run]
	var mu sync.Mutex
	var calls []string
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		mu.Lock()
		calls = append(calls, s.Path())
		mu.Unlock()
		return left.step(ctx, s)
	}
	var db store.Store
	snapshot := new(kahn.Snapshot)
	var waiting []string
	if form == "store" {
		var stored store.Run
		require.NoError(t, json.Unmarshal(data, &stored))
		db = storeWith(t, stored)
		waiting = waitingInStore(stored)
	} else {
		require.NoError(t, json.Unmarshal(data, snapshot))
		require.Equal(t, "left", snapshot.RunID())
		waiting = snapshot.Waiting()
	}
	asked := false
	for range 4 {
		asked = asked || slices.Contains(waiting, "confirm")
		signals := map[string]any{}
		for _, node := range waiting {
			signals[node] = answers[node]
		}
		opts := []kahn.Option{kahn.Resume(snapshot), kahn.EarlySignals(signals)}
		if db != nil {
			opts = []kahn.Option{kahn.RunID("left"), kahn.Durable(db), kahn.EarlySignals(signals)}
		}
		var events []kahn.Event
		g := left.graph()
		res, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }))...)
		require.NotNil(t, res, err)
		checkEvents(t, g, res, events)
		snapshot = res.Snapshot()
		if waiting = snapshot.Waiting(); res.Status != kahn.RunSuspended {
			require.NoError(t, err)
			require.Equal(t, left.statuses, kahntest.Statuses(res))
			require.Equal(t, left.status, res.Status)
			require.Equal(t, left.degraded, res.Degraded)
			nodes := slices.Collect(res.Nodes())
			last := nodes[slices.IndexFunc(nodes, func(n kahn.NodeResult) bool { return slices.Contains([]string{"publish", "sum", "deploy"}, n.ID) })]
			require.Equal(t, left.output, fmt.Sprint(last.Output))
			break
		}
	}
	require.Equal(t, lost, asked)
	slices.Sort(calls)
	require.Equal(t, left.calls[moment], calls)
}

// storeWith returns a store that contains a run.
func storeWith(t *testing.T, r store.Run) store.Store {
	if r.Created.IsZero() { // former versions stored no creation time
		r.Created = time.Now()
	}
	s := new(store.Memory)
	require.NoError(t, s.Insert(t.Context(), &r))
	return s
}

// waitingInStore returns the nodes whose records say that they wait.
func waitingInStore(stored store.Run) (waiting []string) {
	for key, node := range stored.Nodes {
		if node.Status == kahn.Suspended || strings.Contains(string(node.Record), `"status":"suspended"`) || strings.Contains(string(node.Record), `"status": "suspended"`) {
			waiting = append(waiting, key)
		}
	}
	return waiting
}

// A file of a later version is refused, with its version and the known versions in the error.
func TestFormatOfALaterVersion(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/formats/6-answers/plain-suspended.snapshot.json")
	require.NoError(t, err)
	later := strings.Replace(string(data), `"version": 1`, `"version": 2`, 1)
	err = json.Unmarshal([]byte(later), new(kahn.Snapshot))
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, "version 2 is unknown: this version of kahn reads the versions [1 3]")

	data, err = os.ReadFile("testdata/formats/6-answers/plain-suspended.store.json")
	require.NoError(t, err)
	var stored store.Run
	require.NoError(t, json.Unmarshal(data, &stored))
	stored.Record = []byte(strings.Replace(string(stored.Record), `"version": 1`, `"version": 4`, 1))
	_, err = kahn.Execute(t.Context(), plainLeft(), plainStep, kahn.RunID("left"), kahn.Durable(storeWith(t, stored)))
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, "version 4 is unknown: this version of kahn reads the versions [1 2 3]")
}

var formats = flag.String("formats", "", "TestWriteFormats writes what runs leave in this version into this folder")

// TestWriteFormats writes the files of a new format: go test -run TestWriteFormats . -formats testdata/formats/7-what-is-new.
func TestWriteFormats(t *testing.T) {
	for run, left := range leftRuns {
		for _, durable := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				opts := append(slices.Clone(left.opts), kahn.RunID("left"))
				var store store.Memory
				if durable {
					opts = append(opts, kahn.Durable(&store))
				}
				g := left.graph()
				var events []kahn.Event
				live, err := kahn.Start(t.Context(), g, left.step, append(opts, kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }))...)
				require.NoError(t, err)
				if run == "plain" {
					require.NoError(t, live.Signal(context.Background(), "confirm", kahn.Decision{Value: "ann", ID: "1"})) // confirm is answered before the run reaches it
				}
				write := func(moment string) {
					var v any = live.Snapshot()
					form := "snapshot"
					if durable {
						form = "store"
						v, err = store.Load(t.Context(), "left")
						require.NoError(t, err)
					}
					data, err := json.MarshalIndent(v, "", " ")
					require.NoError(t, err)
					if *formats != "" {
						require.NoError(t, os.MkdirAll(*formats, 0o755))
						require.NoError(t, os.WriteFile(filepath.Join(*formats, run+"-"+moment+"."+form+".json"), append(data, '\n'), 0o644))
					}
					goOn(t, run+"-"+moment+"."+form+".json", data, false)
				}
				time.Sleep(left.crash)
				synctest.Wait()
				write("crashed")
				time.Sleep(time.Minute)
				synctest.Wait()
				live.Leave()
				res, err := live.Wait()
				require.Equal(t, kahn.RunSuspended, res.Status, err)
				checkEvents(t, g, res, events)
				write("suspended")
			})
		}
	}
}
