package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

const crashNodes = 130

// Kill starts one process after the other. Each process performs a run over a store, until the run has ended or Kill kills the process at a random
// time. When a run has ended, the next process begins another run, in a new folder. If no run has ended after the given number of starts, for
// example on a slow machine, Kill starts more processes, up to ten times this number in all, and lets the later processes live longer. Kill returns
// how many runs have ended, and the first fault it finds. There are three faults: the outcome of a run differs from the outcome without kills; a
// step was repeated although its end was stored; a process failed by itself. The function "command" returns the command of a process that calls
// [Killed] for the folder. The function "folder" makes a new and empty folder.
//
// Each step appends a line to a log on the disk when it starts and when it ends, so the log shows which steps were repeated, and in which order.
func Kill(starts int, command func(dir string) *exec.Cmd, folder func() string) (runs int, err error) {
	res, err := kahn.Execute(context.Background(), crashGraph(), func(_ context.Context, s *kahn.Step) (any, error) { return crashValue(s), nil })
	if err != nil {
		return 0, err
	}
	want := outcomes(res)
	random := rand.New(rand.NewPCG(17, 19))
	dir := ""
	for i := 0; i < starts || runs == 0 && i < 10*starts; i++ {
		if dir == "" {
			dir = folder()
		}
		cmd := command(dir)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			return runs, err
		}
		kill := time.AfterFunc(time.Duration((20+random.IntN(180))*(1+i/starts))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		data, missing := os.ReadFile(filepath.Join(dir, "done"))
		if missing != nil {
			if cmd.ProcessState.Exited() { // the process ended by itself, before the kill
				return runs, fmt.Errorf("the process has failed: %w\n%s", err, out.String())
			}
			continue
		}
		runs++
		if err := checkOutcome(data, want); err != nil {
			return runs, err
		}
		if err := checkEffects(filepath.Join(dir, "effects")); err != nil {
			return runs, err
		}
		dir = ""
	}
	if dir != "" {
		// There is no log if all processes of the last folder were killed before they made it. This is not a fault.
		if err := checkEffects(filepath.Join(dir, "effects")); !errors.Is(err, fs.ErrNotExist) {
			return runs, err
		}
	}
	return runs, nil
}

// Killed is the main function of a process that [Kill] has started: it performs the run of the folder over the store, until it is killed or the
// run has ended. If the store keeps the leases of a killed process until they run out, opts must set an owner, see [kahn.Lease].
func Killed(ctx context.Context, dir string, db store.Store, opts ...kahn.Option) error {
	effects, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(line string) error {
		mu.Lock()
		defer mu.Unlock()
		if _, err := effects.WriteString(line + "\n"); err != nil {
			return err
		}
		return effects.Sync()
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if err := say("start " + s.Path()); err != nil {
			return nil, err
		}
		if s.Kind() == "flaky" && s.Attempt() == 1 {
			return nil, errors.New("not yet")
		}
		value := crashValue(s)
		return value, say("end " + s.Path() + " " + value)
	}
	opts = append(opts, kahn.RunID("crash"), kahn.Durable(db), kahn.Limit(8), kahn.MaxCrashes(-1))
	res, err := kahn.Execute(ctx, crashGraph(), step, opts...)
	for range 3 { // a server may still perform the last statement of a killed process, which takes the lease away once
		if errors.Is(err, store.ErrFenced) {
			res, err = kahn.Execute(ctx, crashGraph(), step, opts...)
		}
	}
	got := map[string]string{"": finished}
	if !errors.Is(err, kahn.ErrFinished) {
		if err != nil {
			return err
		}
		got = outcomes(res)
	}
	data, err := json.Marshal(got)
	if err != nil {
		return err
	}
	done := filepath.Join(dir, "done")
	if err := os.WriteFile(done+".part", data, 0o600); err != nil {
		return err
	}
	return os.Rename(done+".part", done) // the file exists complete, or not at all
}

// checkOutcome compares the outcome that a process has reported with the expected one.
func checkOutcome(data []byte, want map[string]string) error {
	var got map[string]string
	if err := json.Unmarshal(data, &got); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] != want[id] && got[""] != finished {
			return fmt.Errorf("%s is %s, expected %s", id, got[id], want[id])
		}
	}
	return nil
}

// crashGraph returns a layered graph whose outputs depend on everything upstream.
func crashGraph() *kahn.Graph {
	r := rand.New(rand.NewPCG(11, 13))
	g := new(kahn.Graph)
	for i := range crashNodes {
		n := kahn.Node{ID: fmt.Sprint("n", i)}
		for _, back := range []int{1 + r.IntN(12), 1 + r.IntN(30)} {
			if i-back >= 0 && i%20 != 0 {
				n.After = append(n.After, fmt.Sprint("n", i-back))
			}
		}
		if len(n.After) == 2 && n.After[0] == n.After[1] {
			n.After = n.After[:1]
		}
		switch r.IntN(10) {
		case 0:
			n.Retry = kahn.Retry{MaxAttempts: 1000, InitialDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
			n.Kind = "flaky"
		case 1:
			n.When = func(kahn.View) (bool, error) { return i%3 == 0, nil }
		}
		if n.Kind == "" {
			nest(&n, i)
		}
		g.Add(n)
	}
	return g
}

// For some values of i, nest turns the node n into a composite: a sub-graph, a map of steps or of sub-graphs, or a loop.
func nest(n *kahn.Node, i int) {
	inner := new(kahn.Graph).Add(
		kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}},
		kahn.Node{ID: "c", After: []string{"a"}, Kind: "flaky", Retry: kahn.Retry{MaxAttempts: 1000, InitialDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}},
		kahn.Node{ID: "d", After: []string{"b", "c"}},
	)
	n.Params = map[string]any{"items": []string{"p", "q", "r"}}
	switch i % 16 {
	case 3:
		n.Sub = inner
	case 7:
		n.Map = &kahn.Map{Over: "items", Limit: 2}
	case 11:
		n.Sub, n.Map = inner, &kahn.Map{Over: "items"}
	case 15:
		n.Sub = new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "d", After: []string{"a"}})
		n.Loop = &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 3, Collect: true}
	}
}

// crashValue returns the output of a step, computed from its inputs.
func crashValue(s *kahn.Step) string {
	h := fnv.New64a()
	item, _ := s.Item()
	previous, _ := s.Root("previous")
	fmt.Fprint(h, s.Path(), item, previous)
	upstream := s.UpstreamAll()
	for _, from := range slices.Sorted(maps.Keys(upstream)) {
		fmt.Fprint(h, from, upstream[from])
	}
	return fmt.Sprintf("%x", h.Sum64())
}

// crashSources maps the nodes of the outermost graph to their predecessors. innerSources does the same for the nodes inside composites.
var (
	crashSources = func() map[string][]string {
		sources := map[string][]string{}
		for _, e := range crashGraph().Edges() {
			sources[e.To] = append(sources[e.To], e.From)
		}
		return sources
	}()
	innerSources = map[string][]string{"b": {"a"}, "c": {"a"}, "d": {"a", "b", "c"}}
)

// precedes reports whether the step with the path "from" has to end before the step with the path "to" can begin. It knows the predecessors in
// crashSources and innerSources, but not the predecessors of these predecessors.
func precedes(from, to string) bool {
	top := func(path string) string { return path[:strings.IndexAny(path+"/", "/[#")] }
	if top(from) != top(to) {
		return slices.Contains(crashSources[top(to)], top(from))
	}
	var k, l int
	if _, err := fmt.Sscanf(strings.TrimPrefix(from, top(from)), "#%d/", &k); err == nil {
		if _, err := fmt.Sscanf(strings.TrimPrefix(to, top(to)), "#%d/", &l); err == nil && k < l {
			return true
		}
	}
	i, j := strings.LastIndexByte(from, '/')+1, strings.LastIndexByte(to, '/')+1
	return from[:i] == to[:j] && i > 0 && slices.Contains(innerSources[to[j:]], from[i:])
}

// finished is what a process reports in place of the outcome if an earlier process has ended the run, and was killed before it could report. Then
// only the store has the outcome.
const finished = "finished"

// outcomes returns the status and the output of each node, also inside composites. The status of the run has the key "".
func outcomes(res *kahn.Result) map[string]string {
	m := map[string]string{"": res.Status.String()}
	addOutcomes(m, res, "")
	return m
}

func addOutcomes(m map[string]string, res *kahn.Result, prefix string) {
	for n := range res.Nodes() {
		m[prefix+n.ID] = fmt.Sprint(n.Status, " ", n.Skip.Kind, " ", n.Output)
		if n.Sub != nil {
			addOutcomes(m, n.Sub, prefix+n.ID+" ")
		}
	}
}

// checkEffects reads the log of effects. The end of a step is stored before its successors begin, so checkEffects returns an error if a step begins
// again after a successor has begun.
func checkEffects(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	ended, durable := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasSuffix(line, "\n") {
			continue // the process was killed while it wrote this line
		}
		switch id := words[1]; words[0] {
		case "start":
			if durable[id] {
				return fmt.Errorf("%s was performed again after a successor had begun", id)
			}
			for from := range ended {
				if !durable[from] && precedes(from, id) {
					durable[from] = true
				}
			}
		case "end":
			ended[id] = true
		}
	}
	return nil
}

// Torn returns a store with a defect. If a commit ends attempts and has at least two records, the store splits it: the first part has the changes of
// other nodes, and the second part has the ends of the attempts. A test must notice the state that a process leaves if the process is killed between
// the two parts.
func Torn(s store.Store) store.Store { return &torn{Store: s} }

type torn struct {
	store.Store
	mu sync.Mutex
}

func (s *torn) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.Load(ctx, l.Run)
	if err != nil {
		return 0, err
	}
	c.Sequence = r.Sequence + 1
	if len(c.Completed) == 0 || len(c.Nodes) < 2 {
		return s.Store.Commit(ctx, l, c)
	}
	first, rest := store.Commit{Sequence: c.Sequence, Ready: c.Ready, WakeAt: c.WakeAt}, c
	rest.Sequence, rest.Started, rest.Ready, rest.Nodes = c.Sequence+1, nil, nil, nil
	ends := func(node string) bool {
		return slices.ContainsFunc(c.Completed, func(a store.Attempt) bool { return a.Node == node })
	}
	for _, a := range c.Started {
		part := &first
		if ends(a.Node) {
			part = &rest
		}
		part.Started = append(part.Started, a)
	}
	for _, n := range c.Nodes {
		part := &first
		if ends(n.Node) {
			part = &rest
		}
		part.Nodes = append(part.Nodes, n)
	}
	if a, err := s.Store.Commit(ctx, l, first); err != nil || a != store.AppliedNow {
		return a, err
	}
	time.Sleep(2 * time.Millisecond)
	return s.Store.Commit(ctx, l, rest)
}

// RunKill kills processes while they perform a run; the next process continues the run, see [Kill]. Kill must find no fault with the processes that
// the function "whole" makes. It must find a fault with the processes that the function "torn" makes, over a [Torn] store: this shows that the test
// notices a store that writes a commit in parts.
func RunKill(t *testing.T, starts int, whole, torn func(dir string) *exec.Cmd) {
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		runs, err := Kill(starts, whole, t.TempDir)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d processes, %d runs brought to their end", starts, runs)
		if runs == 0 || runs == starts {
			t.Errorf("%d runs in %d processes: the kills come too early or too late", runs, starts)
		}
	})
	t.Run("torn", func(t *testing.T) {
		t.Parallel()
		_, err := Kill(200, torn, t.TempDir)
		if err == nil {
			t.Fatal("a store that tears commits apart went unnoticed")
		}
		// A process may fail with a store error, because the store refuses to continue a run whose commits it has torn. This also shows the defect. A
		// process that fails for any other reason fails the test.
		if strings.Contains(err.Error(), "process has failed") && !strings.Contains(err.Error(), kahn.CauseStoreError.String()) {
			t.Fatal(err)
		}
	})
}
