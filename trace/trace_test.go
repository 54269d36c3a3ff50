package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/chrometrace"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/trace"
)

const ms = time.Millisecond

// lasts returns a step function with a duration for each node. failures contains the number of first attempts of a node that fail.
func lasts(durations map[string]time.Duration, failures map[string]int) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		time.Sleep(durations[s.ID()])
		if s.Attempt() <= failures[s.ID()] {
			return nil, errors.New("broken\x1b")
		}
		return nil, nil
	}
}

// play executes a graph in fake time and returns the result and the recorded events.
func play(t *testing.T, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) (res *kahn.Result, events []event.Event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var rec trace.Recorder
		var all []event.Event // all events, including events that a recorder drops
		sink := func(e event.Event) {
			all = append(all, e)
			rec.Event(e)
		}
		res, _ = kahn.Execute(context.Background(), g, step, append(opts, kahn.OnEvent(sink), kahn.RunID("run-1"))...)
		events = rec.Events()
		require.NotNil(t, res)
		require.NoError(t, kahntest.CheckEvents(g, res, all))
	})
	return res, events
}

// demo plays the run that most tests use. Under Limit(2):
//
//	seconds  0      1        2   2.5  3    3.5  4        5   5.5       6.5
//	slot 1   fetch  build....    ....  test      |            flaky #2
//	slot 2   lint...............  flaky #1  (backoff to 5.5)
//
// flaky is ready at 0 and has no slot until lint ends. test fails, deploy is aborted, and old is disabled.
func demo(t *testing.T) (*kahn.Result, []event.Event) {
	g := &kahn.Graph{Name: "demo"}
	g.Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "lint"},
		kahn.Node{ID: "flaky", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 2 * time.Second, Jitter: kahn.JitterNone}},
		kahn.Node{ID: "build", After: []string{"fetch"}},
		kahn.Node{ID: "test", After: []string{"build", "lint"}},
		kahn.Node{ID: "deploy", After: []string{"test"}},
		kahn.Node{ID: "old", Disabled: true},
	)
	return play(t, g, lasts(map[string]time.Duration{
		"fetch": 1000 * ms, "lint": 2500 * ms, "flaky": 1000 * ms, "build": 2000 * ms, "test": 1000 * ms,
	}, map[string]int{"flaky": 1, "test": 1}), kahn.Limit(2))
}

func TestPerfettoOfDemo(t *testing.T) {
	res, events := demo(t)
	var b bytes.Buffer
	require.NoError(t, trace.WritePerfetto(&b, res, events))
	file, err := chrometrace.Read(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	var lines []string
	for _, e := range file.TraceEvents {
		line := fmt.Sprintf("%s %d %s %s", e.Phase, *e.TID, *e.Name, *e.TS)
		if e.Dur != nil {
			line += "+" + string(*e.Dur)
		}
		if e.Cat != nil {
			line += " " + *e.Cat
		}
		lines = append(lines, line)
	}
	require.Equal(t, []string{
		"M 0 process_name 0.000",
		"M 1 thread_name 0.000", "M 1 thread_sort_index 0.000",
		"M 2 thread_name 0.000", "M 2 thread_sort_index 0.000",
		"M 3 thread_name 0.000", "M 3 thread_sort_index 0.000",
		"M 4 thread_name 0.000", "M 4 thread_sort_index 0.000",
		"X 3 fetch 0.000+1000000.000 attempt",
		"X 4 lint 0.000+2500000.000 attempt,critical",
		"X 3 build 1000000.000+2000000.000 attempt",
		"X 4 flaky 2500000.000+1000000.000 attempt,critical",
		"X 3 test 3000000.000+1000000.000 attempt",
		"X 3 flaky 5500000.000+1000000.000 attempt,critical",
		"b 2 waits 0.000 queue", "b 2 flaky 0.000 queue", "e 2 flaky 2500000.000 queue", "e 2 waits 2500000.000 queue",
		"b 2 waits 3500000.000 backoff", "b 2 flaky 3500000.000 backoff", "e 2 flaky 5500000.000 backoff", "e 2 waits 5500000.000 backoff",
		"i 2 old 0.000 not run", "i 2 deploy 4000000.000 not run",
		"X 1 lint 0.000+2500000.000 critical",
		"X 1 flaky 2500000.000+4000000.000 critical",
		"s 4 critical path 0.000 critical", "f 4 critical path 2500000.000 critical",
	}, lines)
	tracks := map[string]bool{} // a viewer takes the name of an asynchronous track from the first slice of each id
	seen := map[string]bool{}
	for _, e := range file.TraceEvents {
		if e.Phase == "b" && !seen[fmt.Sprint(*e.ID)] {
			seen[fmt.Sprint(*e.ID)] = true
			tracks[*e.Name] = true
		}
	}
	require.Len(t, seen, 2)
	require.Equal(t, map[string]bool{"waits": true}, tracks)
	require.Equal(t, "demo", file.OtherData["workflow"])
	require.Equal(t, "run-1", file.OtherData["run_id"])
	require.Equal(t, "failed", file.OtherData["status"])
	require.Equal(t, []any{"lint", "flaky"}, file.OtherData["critical_path"])
	for _, e := range file.TraceEvents {
		if *e.Name == "deploy" {
			require.Equal(t, map[string]any{"status": "aborted", "reason": "aborted: upstream_failure of test"}, *e.Args)
		}
	}
}

func TestReportOfDemo(t *testing.T) {
	res, events := demo(t)
	r := trace.NewReport(res, events)
	require.Equal(t, []trace.Step{
		{Node: "lint", Duration: 2500 * ms},
		{Node: "flaky", Via: trace.ViaSlot, Start: 2500 * ms, Duration: 4000 * ms, Wait: 2500 * ms},
	}, r.CriticalPath)
	require.Equal(t, []trace.Failure{
		{Node: "test", Status: kahn.Failed, Cause: "step_error", Error: `node "test": step_error: broken` + "\x1b"},
		{Node: "deploy", Parent: "test", Depth: 1, Status: kahn.Aborted, Cause: "upstream_failure"},
	}, r.Failures)
	// lint has no slack, since flaky waits for its slot. build, and therefore fetch, may end later until test would end after flaky.
	want := map[string]time.Duration{"fetch": 2500 * ms, "lint": 0, "flaky": 0, "build": 2500 * ms, "test": 2500 * ms}
	for _, n := range r.Nodes {
		require.Equal(t, want[n.ID], n.Slack, n.ID)
	}

	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	golden(t, "testdata/report.txt", text.String())

	encoded, err := json.Marshal(r)
	require.NoError(t, err)
	var decoded trace.Report
	require.NoError(t, json.Unmarshal(encoded, &decoded))
	require.True(t, r.Start.Equal(decoded.Start))
	decoded.Start = r.Start
	require.Equal(t, *r, decoded)
}

// golden compares a text with a file that was written by hand.
func golden(t *testing.T, file, got string) {
	t.Helper()
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// chain renders a critical path: "a -slot-> b".
func chain(r *trace.Report) string {
	var b strings.Builder
	for i, s := range r.CriticalPath {
		if i > 0 {
			fmt.Fprintf(&b, " -%s-> ", s.Via)
		}
		b.WriteString(s.Node)
	}
	return b.String()
}

// A node's start waits for the last predecessor that ends, whatever the order of declaration, for the node that has the slot, or for the wave.
func TestCriticalPath(t *testing.T) {
	const s = time.Second
	performed := 0
	for _, test := range []struct {
		name  string
		graph *kahn.Graph
		lasts map[string]time.Duration
		fails map[string]int
		opts  []kahn.Option
		path  string
		slack map[string]time.Duration
	}{
		{
			name: "last predecessor",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c"},
				kahn.Node{ID: "d", After: []string{"a", "b", "c"}}),
			lasts: map[string]time.Duration{"a": 1 * s, "b": 3 * s, "c": 2 * s, "d": 1 * s},
			path:  "b -dependency-> d",
			slack: map[string]time.Duration{"a": 2 * s, "c": 1 * s},
		},
		{
			name: "early join",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "slow"}, kahn.Node{ID: "fast"},
				kahn.Node{ID: "any", After: []string{"slow", "fast"}, Join: kahn.AnySucceeded}),
			lasts: map[string]time.Duration{"slow": 3 * s, "fast": 1 * s, "any": 5 * s},
			path:  "fast -dependency-> any",
			slack: map[string]time.Duration{"slow": 3 * s},
		},
		{
			name: "through a node that did not run",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}},
				kahn.Node{ID: "c", After: []string{"b"}, Join: kahn.AllDone}),
			lasts: map[string]time.Duration{"a": 1 * s, "c": 1 * s},
			fails: map[string]int{"a": 1},
			path:  "a -dependency-> b -dependency-> c",
		},
		{
			name:  "one slot",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", After: []string{"a"}}),
			lasts: map[string]time.Duration{"a": 1 * s, "b": 2 * s, "c": 3 * s},
			opts:  []kahn.Option{kahn.Limit(1)},
			path:  "a -slot-> b -slot-> c", // b and c have equally long remaining paths, and b is declared first
		},
		{
			name: "group",
			graph: withGroups(kahn.Group{Name: "disk", Limit: 1}).Add(kahn.Node{ID: "a", Groups: []string{"disk"}},
				kahn.Node{ID: "b", Groups: []string{"disk"}}, kahn.Node{ID: "short"}, kahn.Node{ID: "long"}),
			lasts: map[string]time.Duration{"a": 2 * s, "b": 4 * s, "short": 1 * s, "long": 5 * s},
			path:  "a -slot-> b",
			slack: map[string]time.Duration{"short": 5 * s, "long": 1 * s},
		},
		{
			name: "early join in a group",
			graph: withGroups(kahn.Group{Name: "disk", Limit: 1}).Add(kahn.Node{ID: "hog", Groups: []string{"disk"}},
				kahn.Node{ID: "slow"}, kahn.Node{ID: "fast"},
				kahn.Node{ID: "any", After: []string{"slow", "fast"}, Join: kahn.AnySucceeded, Groups: []string{"disk"}}),
			lasts: map[string]time.Duration{"hog": 3 * s, "slow": 2 * s, "fast": 1 * s, "any": 5 * s},
			path:  "hog -slot-> any",
			// The node any waits for the slot when slow ends, and does not need slow. fast could have ended as late as hog.
			slack: map[string]time.Duration{"slow": 6 * s, "fast": 2 * s},
		},
		{
			name: "composite",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "s", After: []string{"a"},
				Sub: new(kahn.Graph).Add(kahn.Node{ID: "x"}, kahn.Node{ID: "y", After: []string{"x"}})}, kahn.Node{ID: "b", After: []string{"s"}}),
			lasts: map[string]time.Duration{"a": 1 * s, "x": 1 * s, "y": 1 * s, "b": 1 * s},
			path:  "a -dependency-> s -composite-> s/x -dependency-> s/y -dependency-> b",
		},
		{
			name: "slot of a node inside of a composite",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a", Priority: 2}, kahn.Node{ID: "s", After: []string{"a"}, Priority: 2,
				Sub: new(kahn.Graph).Add(kahn.Node{ID: "x", Priority: 2})}, kahn.Node{ID: "b"}),
			lasts: map[string]time.Duration{"a": 1 * s, "x": 1 * s, "b": 3 * s},
			opts:  []kahn.Option{kahn.Limit(1)},
			path:  "a -dependency-> s -composite-> s/x -slot-> b",
			slack: map[string]time.Duration{"s": 3 * s}, // s may end later than x, but a may not
		},
		{
			name: "composite that is performed again",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "s", Priority: 2, Sub: new(kahn.Graph).Add(kahn.Node{ID: "x", Priority: 2,
				Do: func(_ context.Context, step *kahn.Step) (any, error) {
					time.Sleep(1 * s)
					if performed++; performed == 1 {
						return nil, errors.New("broken")
					}
					return nil, nil
				}}),
				Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 1 * s, Jitter: kahn.JitterNone}}, kahn.Node{ID: "b"}),
			lasts: map[string]time.Duration{"b": 3 * s},
			opts:  []kahn.Option{kahn.Limit(1)},
			// x fails at 1, b has the slot until 4, and s continues at 2. x continues, too, once it has the slot, until 5.
			path: "s -composite-> s/x -slot-> b -slot-> s/x",
		},
		{
			name: "key",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a", Key: "k"}, kahn.Node{ID: "b", Key: "k"}, kahn.Node{ID: "c", Key: "l"},
				kahn.Node{ID: "d"}),
			lasts: map[string]time.Duration{"a": 2 * s, "b": 4 * s, "c": 1 * s, "d": 3 * s},
			opts:  []kahn.Option{kahn.KeyLimit(1)},
			path:  "a -slot-> b",
			slack: map[string]time.Duration{"c": 5 * s, "d": 3 * s},
		},
		{
			name: "key from a value",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a", KeyFrom: "of", Params: map[string]any{"of": "k"}},
				kahn.Node{ID: "b", KeyFrom: "of", Params: map[string]any{"of": "k"}}, kahn.Node{ID: "c", KeyFrom: "of", Params: map[string]any{"of": "l"}},
				kahn.Node{ID: "d", Ports: []kahn.Port{{Name: "of"}}, KeyFrom: "of"}),
			lasts: map[string]time.Duration{"a": 2 * s, "b": 4 * s, "c": 1 * s, "d": 3 * s},
			opts:  []kahn.Option{kahn.KeyLimit(1)},
			path:  "a -slot-> b",
			slack: map[string]time.Duration{"c": 5 * s, "d": 3 * s},
		},
		{
			name: "wave",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", After: []string{"a"}},
				kahn.Node{ID: "d", After: []string{"b"}}),
			lasts: map[string]time.Duration{"a": 1 * s, "b": 3 * s, "c": 2 * s, "d": 1 * s},
			opts:  []kahn.Option{kahn.Waves},
			path:  "b -wave-> c",
			slack: map[string]time.Duration{"a": 2 * s, "d": 1 * s},
		},
		{
			name: "wave with a composite",
			graph: new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "s", Sub: new(kahn.Graph).Add(kahn.Node{ID: "x"})},
				kahn.Node{ID: "c", After: []string{"a"}}),
			lasts: map[string]time.Duration{"a": 1 * s, "x": 3 * s, "c": 2 * s},
			opts:  []kahn.Option{kahn.Waves},
			path:  "s -composite-> s/x -wave-> c",
		},
		{
			name: "slot of an attempt that is retried",
			graph: new(kahn.Graph).Add(
				kahn.Node{ID: "a", Priority: 1, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 10 * s, MaxDelay: 10 * s, Jitter: kahn.JitterNone}},
				kahn.Node{ID: "b"}),
			lasts: map[string]time.Duration{"a": 1 * s, "b": 20 * s},
			fails: map[string]int{"a": 1},
			opts:  []kahn.Option{kahn.Limit(1)},
			path:  "a", // the second attempt of a waits for b, but a itself ends last, at 22 s
			slack: map[string]time.Duration{"b": 1 * s},
		},
		{
			name: "slot of an attempt that is retried, on the path",
			graph: new(kahn.Graph).Add(
				kahn.Node{ID: "a", Priority: 1, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 1 * s, Jitter: kahn.JitterNone}},
				kahn.Node{ID: "b"}, kahn.Node{ID: "c", After: []string{"b"}}),
			lasts: map[string]time.Duration{"a": 1 * s, "b": 3 * s, "c": 9 * s},
			fails: map[string]int{"a": 1},
			opts:  []kahn.Option{kahn.Limit(1)},
			// a fails at 1 and would continue at 2. b has the slot until 4. Then a gets it, since a has a higher priority than c, and keeps it until 5.
			// Then c gets it.
			path: "a -slot-> c",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			res, events := play(t, test.graph, lasts(test.lasts, test.fails), test.opts...)
			r := trace.NewReport(res, events)
			require.Equal(t, test.path, chain(r))
			if test.slack != nil {
				for _, n := range r.Nodes {
					require.Equal(t, test.slack[n.ID], n.Slack, n.ID)
				}
			}
			contiguous(t, res, r)
		})
	}
}

func withGroups(groups ...kahn.Group) *kahn.Graph { return &kahn.Graph{Groups: groups} }

// contiguous checks that the steps of the critical path cover the time from the run's start to its end without gaps. This is exact because the
// engine takes no time in fake time.
func contiguous(t *testing.T, res *kahn.Result, r *trace.Report) {
	t.Helper()
	at := time.Duration(0)
	for _, s := range r.CriticalPath {
		require.Equal(t, at, s.Start, "start of %s", s.Node)
		at += s.Duration
	}
	require.Equal(t, res.Duration, at)
}

// random returns a graph of n nodes and durations.
func random(rng *rand.Rand, n int) (*kahn.Graph, map[string]time.Duration) {
	g := &kahn.Graph{}
	durations := map[string]time.Duration{}
	for i := range n {
		node := kahn.Node{ID: fmt.Sprintf("n%d", i)}
		for j := range i {
			if rng.IntN(4) == 0 {
				node.After = append(node.After, fmt.Sprintf("n%d", j))
			}
		}
		durations[node.ID] = time.Duration(1+rng.IntN(50)) * ms
		g.Add(node)
	}
	return g, durations
}

// seeds yields the usual number of seeds from 0 or, in the long mode, the full number from a random seed.
func seeds(usual, full uint64) iter.Seq[uint64] {
	n, first := usual, uint64(0)
	if os.Getenv("KAHN_LONG") != "" {
		n, first = full, rand.Uint64()
	}
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(first + i) {
				return
			}
		}
	}
}

// Slack agrees with its definition: if a node takes longer by its slack, the run takes no longer. If the node takes a little more time than
// that, the run takes longer.
func TestSlackIsExactWithoutLimits(t *testing.T) {
	for seed := range seeds(10, 300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g, durations := random(rng, 12)
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			res, events := play(t, g, lasts(durations, nil), mode)
			for _, n := range trace.NewReport(res, events).Nodes {
				was := durations[n.ID]
				durations[n.ID] = was + n.Slack
				same, _ := play(t, g, lasts(durations, nil), mode)
				durations[n.ID] = was + n.Slack + ms
				longer, _ := play(t, g, lasts(durations, nil), mode)
				durations[n.ID] = was
				if same.Duration != res.Duration || longer.Duration != res.Duration+ms {
					t.Fatalf("seed %d, %v, %s with slack %v: run %v, with the slack %v, with more %v",
						seed, mode, n.ID, n.Slack, res.Duration, same.Duration, longer.Duration)
				}
			}
		}
	}
}

// An attempt that ends in the instant in which another node becomes ready and starts has not delayed this node, whatever the order of the events.
func TestNoSlotWithoutAWait(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", After: []string{"a"}}, kahn.Node{ID: "d", After: []string{"a"}})
	res, recorded := play(t, g, lasts(map[string]time.Duration{"a": 2 * ms, "b": 2 * ms, "c": ms, "d": 2 * ms}, nil))
	is := func(id string, what event.Type) func(event.Event) bool {
		return func(e event.Event) bool { return e.Node == id && e.Type == what }
	}
	end := recorded[slices.IndexFunc(recorded, is("b", event.NodeCompleted))]
	events := slices.DeleteFunc(slices.Clone(recorded), is("b", event.NodeCompleted))
	events = slices.Insert(events, slices.IndexFunc(events, is("d", event.NodeStarted)), end) // c has taken the slot of a, and b ends before d starts
	ids := map[uint64]uint64{}
	for i := range events {
		ids[events[i].ID] = uint64(i + 1)
		events[i].ID = uint64(i + 1)
	}
	for i := range events {
		events[i].Parent = ids[events[i].Parent]
	}
	require.Equal(t, "a -dependency-> d", chain(trace.NewReport(res, events)))
}

// Under any limit, the critical path covers the whole time of the run. The timeline is a valid trace and contains every node.
func TestRandomRuns(t *testing.T) {
	for seed := range seeds(60, 3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		g, durations := random(rng, 30)
		fails := map[string]int{}
		if seed%2 == 1 {
			fails[fmt.Sprintf("n%d", rng.IntN(30))] = 1
		}
		res, events := play(t, g, lasts(durations, fails), kahn.Limit(1+rng.IntN(5)))
		r := trace.NewReport(res, events)
		contiguous(t, res, r)
		for _, n := range r.Nodes {
			if n.Critical && n.Attempts > 0 && n.Slack != 0 || n.Slack < 0 {
				t.Errorf("seed %d: %+v", seed, n)
			}
		}
		var b bytes.Buffer
		require.NoError(t, trace.WritePerfetto(&b, res, events))
		file, err := chrometrace.Read(&b)
		require.NoError(t, err)
		names := map[string]bool{}
		for _, e := range file.TraceEvents {
			names[*e.Name] = names[*e.Name] || e.Phase == "X" || e.Phase == "i"
		}
		for n := range res.Nodes() {
			require.True(t, names[n.ID], "seed %d: %s", seed, n.ID)
		}
	}
}

// A composite holds no slot. The nodes inside appear themselves on the critical path and in the timeline.
func TestComposite(t *testing.T) {
	sub := new(kahn.Graph).Add(kahn.Node{ID: "x"}, kahn.Node{ID: "y", After: []string{"x"}}, kahn.Node{ID: "z"}, kahn.Node{ID: "end", Disabled: true})
	g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "S", Sub: sub, After: []string{"A"}}, kahn.Node{ID: "B", After: []string{"S"}})
	// The slot belongs to A until 1, to x until 2, to y until 3 (y is declared before z), to z until 3.5 and to B until 4.5.
	res, events := play(t, g, lasts(map[string]time.Duration{"A": 1000 * ms, "x": 1000 * ms, "y": 1000 * ms, "z": 500 * ms, "B": 1000 * ms}, nil), kahn.Limit(1))
	r := trace.NewReport(res, events)
	require.Equal(t, "A -dependency-> S -composite-> S/x -dependency-> S/y -slot-> S/z -dependency-> B", chain(r))
	contiguous(t, res, r)
	require.Equal(t, []time.Duration{4500 * ms, 2000 * ms}, []time.Duration{r.Work, r.QueueWait})
	require.Equal(t, 1, r.Slots)
	require.Len(t, r.Nodes, 3)

	var b bytes.Buffer
	require.NoError(t, trace.WritePerfetto(&b, res, events))
	file, err := chrometrace.Read(&b)
	require.NoError(t, err)
	track := map[string]int{}
	for _, e := range file.TraceEvents {
		if e.Phase == "X" && *e.TID != 1 || e.Phase == "i" {
			track[*e.Name] = *e.TID
		}
	}
	require.Equal(t, map[string]int{"A": 3, "S": 4, "S/x": 3, "S/y": 3, "S/z": 3, "B": 3, "S/end": 2}, track)
}

// A run has a report while it waits for a signal, and after it has continued.
func TestSuspended(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"gate"}})
	res, events := play(t, g, lasts(map[string]time.Duration{"a": time.Second}, nil))
	require.Equal(t, kahn.RunSuspended, res.Status)
	r := trace.NewReport(res, events)
	require.Equal(t, []string{"", "it waits for an answer", "the run is not over: it is waiting"},
		[]string{r.Nodes[0].Why, r.Nodes[1].Why, r.Nodes[2].Why})
	require.NoError(t, r.WriteText(io.Discard))
	var b bytes.Buffer
	require.NoError(t, trace.WritePerfetto(&b, res, events))
	_, err := chrometrace.Read(&b)
	require.NoError(t, err)

	synctest.Test(t, func(t *testing.T) {
		var rec trace.Recorder
		snapshot := res.Snapshot()
		res, err := kahn.Execute(t.Context(), g, lasts(map[string]time.Duration{"b": time.Second}, nil), kahn.OnEvent(rec.Event), kahn.Resume(snapshot), kahn.EarlySignals(map[string]any{"gate": "yes"}))
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()))
		r := trace.NewReport(res, rec.Events())
		require.Equal(t, "gate -dependency-> b", chain(r))
		require.Equal(t, time.Second, r.CriticalPath[1].Duration)
		b.Reset()
		require.NoError(t, trace.WritePerfetto(&b, res, rec.Events()))
		_, err = chrometrace.Read(&b)
		require.NoError(t, err)
	})
}

func TestWhy(t *testing.T) {
	g := &kahn.Graph{Groups: []kahn.Group{{Name: "g", CancelOnFailure: true}}}
	g.Add(
		kahn.Node{ID: "bad"},
		kahn.Node{ID: "off", Disabled: true},
		kahn.Node{ID: "after off", After: []string{"off"}},
		kahn.Node{ID: "after that", After: []string{"after off"}},
		kahn.Node{ID: "guarded", When: func(kahn.View) (bool, error) { return false, nil }},
		kahn.If("yes", func(kahn.View) (bool, error) { return true, nil }),
		kahn.Node{ID: "no", In: []kahn.Edge{{From: "yes", Label: "false"}}},
		kahn.Node{ID: "catch", In: []kahn.Edge{{From: "ok", On: kahn.OnFailure}}},
		kahn.Node{ID: "port", After: []string{"ok"}, Ports: []kahn.Port{{Name: "p", Required: true}},
			In: []kahn.Edge{{From: "ok", Param: "p", DataOnly: true}}},
		kahn.Node{ID: "ok"},
		kahn.Node{ID: "victim", After: []string{"bad"}},
		kahn.Node{ID: "second victim", After: []string{"victim", "ok"}},
		kahn.Node{ID: "kind", After: []string{"bad"}, OnUpstreamFailure: kahn.UpstreamSkip},
		kahn.Node{ID: "rule", After: []string{"ok"}, Join: kahn.OneFailed},
		kahn.Node{ID: "breaks", After: []string{"ok"}, Groups: []string{"g"}},
		kahn.Node{ID: "brother", After: []string{"late"}, Groups: []string{"g"}},
		kahn.Node{ID: "late"},
		kahn.Node{ID: "self"},
	)
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "bad", "breaks":
			return nil, errors.New("broken")
		case "late":
			time.Sleep(time.Second)
		case "self":
			return nil, kahn.Skip("not today")
		}
		return nil, nil
	}
	res, events := play(t, g, step)
	got := map[string]string{}
	for _, n := range trace.NewReport(res, events).Nodes {
		if n.Why != "" {
			got[n.ID] = n.Why
		}
	}
	require.Equal(t, map[string]string{
		"off":           "it is disabled",
		"after off":     "off was skipped: it is disabled",
		"after that":    "off was skipped: it is disabled",
		"guarded":       "its guard said no",
		"no":            `yes answered "true", not "false"`,
		"catch":         "ok has completed, and only its failure leads here",
		"port":          "its required port p got no value from ok",
		"victim":        "a failure upstream: bad",
		"second victim": "a failure upstream: bad",
		"kind":          "bad failed, so it is skipped",
		"rule":          "its join rule can no longer be satisfied: one_failed",
		"brother":       "a member of its group failed: breaks",
	}, got)
}

func cancelNode(t *testing.T, r *kahn.Run, id string) {
	if err := r.CancelNode(id); err != nil {
		t.Error(err)
	}
}

func TestWhyOfStoppedRuns(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
	ctx, cancel := context.WithCancel(context.Background())
	for name, test := range map[string]struct {
		want string
		stop func(*kahn.Run)
		opts []kahn.Option
	}{
		"cancel":  {"the run was cancelled", func(r *kahn.Run) { r.Cancel() }, nil},
		"abort":   {"the run was aborted", func(r *kahn.Run) { r.AbortAll(nil) }, nil},
		"node":    {"it was cancelled", func(r *kahn.Run) { cancelNode(t, r, "b") }, nil},
		"pred":    {"a cancellation upstream: a", func(r *kahn.Run) { cancelNode(t, r, "a") }, nil},
		"timeout": {"the run took too long", func(*kahn.Run) {}, []kahn.Option{kahn.Timeout(time.Second)}},
		"context": {"the caller's context ended", func(*kahn.Run) { cancel() }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			runCtx := context.Background()
			if name == "context" {
				runCtx = ctx
			}
			var rec trace.Recorder
			step := func(ctx context.Context, _ *kahn.Step) (any, error) {
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second):
				}
				return nil, ctx.Err()
			}
			run, err := kahn.Start(runCtx, g, step, append(test.opts, kahn.OnEvent(rec.Event))...)
			require.NoError(t, err)
			synctest.Wait()
			test.stop(run)
			res, _ := run.Wait()
			require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()), name)
			r := trace.NewReport(res, rec.Events())
			require.Equal(t, test.want, r.Nodes[1].Why, name)
		})
	}
}

// A recorder drops events that a trace does not need.
func TestRecorder(t *testing.T) {
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		s.Emit(1)
		s.Log(0, "hello")
		return nil, nil
	}})
	_, events := play(t, g, nil)
	var types []event.Type
	for _, e := range events {
		types = append(types, e.Type)
	}
	require.True(t, slices.Equal(types, []event.Type{
		event.RunStarted, event.NodeQueued, event.NodeStarted, event.NodeCompleted, event.RunCompleted,
	}), types)
}

// A report says who asked to stop the run and to redrive it, with the reasons.
func TestReportOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g kahn.Graph
		g.Add(kahn.Node{ID: "A"})
		step := func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var s *kahn.Snapshot
		for range 2 {
			var opts []kahn.Option
			if s != nil {
				opts = append(opts, kahn.Redrive(s, nil, kahn.Request{Reason: "again"}))
			}
			run, err := kahn.Start(t.Context(), &g, step, opts...)
			require.NoError(t, err)
			run.Cancel(kahn.Request{Actor: "ann"})
			res, _ := run.Wait()
			s = res.Snapshot()
			r := trace.NewReport(res, nil)
			var text strings.Builder
			require.NoError(t, r.WriteText(&text))
			require.Contains(t, text.String(), "\nstop asked for by \"ann\"\n")
			require.Equal(t, &kahn.Request{Actor: "ann"}, r.StopRequest)
			if len(opts) == 0 {
				require.Nil(t, r.RedriveRequest)
				continue
			}
			require.Contains(t, text.String(), "\nredrive asked for because \"again\"\n")
		}
	})
}
