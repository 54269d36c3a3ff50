package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
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
)

// The crash test kills a process at random moments while it runs a graph over a store in a file, and starts another one,
// until the run is done. Each step appends a line to a log that is on the disk before it goes on; the log shows which steps
// were repeated, and in which order.

const (
	crashNodes = 130
	crashEnv   = "KAHN_CRASH_DIR"  // tells the test binary that it is the process to be killed, and where its files are
	crashTorn  = "KAHN_CRASH_TORN" // ... and that its store is to write in two parts
	cycles     = 200
)

// crashGraph is a layered graph whose outputs depend on everything upstream.
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

// nest turns some of the nodes into composites: a sub-graph, a map of steps or of sub-graphs, a loop.
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

// crashValue is the output of a step, computed from its inputs.
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

// crashSources are the predecessors of the nodes of the outermost graph, and innerSources those of nodes inside.
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

// precedes reports whether a step had to end before another one could begin, both by path.
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

// TestCrashChild is the process to be killed. It does nothing unless it is one.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		return
	}
	effects, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := effects.WriteString(line + "\n"); err != nil {
			t.Error(err)
		}
		if err := effects.Sync(); err != nil {
			t.Error(err)
		}
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		say("start " + s.Path())
		if s.Kind() == "flaky" && s.Attempt() == 1 {
			return nil, errors.New("not yet")
		}
		value := crashValue(s)
		say("end " + s.Path() + " " + value)
		return value, nil
	}
	store, err := openFileStore(filepath.Join(dir, "store"), os.Getenv(crashTorn) != "")
	if err != nil {
		t.Fatal(err)
	}
	res, err := kahn.Execute(t.Context(), crashGraph(), step, kahn.RunID("crash"), kahn.Durable(store), kahn.Limit(8))
	got := map[string]string{"": finished}
	if !errors.Is(err, kahn.ErrFinished) {
		if err != nil {
			t.Fatal(err)
		}
		got = statuses(res)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(dir, "done")
	if err := os.WriteFile(done+".part", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(done+".part", done); err != nil { // there as a whole, or not at all
		t.Fatal(err)
	}
}

// finished is the output for a run whose process was killed between its end and its report: only the store knows that it has
// ended.
const finished = "finished"

// statuses are the statuses of a run, by node.
func statuses(res *kahn.Result) map[string]string {
	m := map[string]string{"": res.Status.String()}
	addStatuses(m, res, "")
	return m
}

func addStatuses(m map[string]string, res *kahn.Result, prefix string) {
	for n := range res.Nodes() {
		m[prefix+n.ID] = fmt.Sprint(n.Status, " ", n.Skip.Kind, " ", n.Output)
		if n.Sub != nil {
			addStatuses(m, n.Sub, prefix+n.ID+" ")
		}
	}
}

// crashCycles kills and restarts the child until it has been started the given number of times, beginning a new run whenever
// one is done, and returns the first thing that went wrong.
func crashCycles(t *testing.T, want map[string]string, starts int, torn bool) (problem string, runs int) {
	random := rand.New(rand.NewPCG(17, 19))
	dir := ""
	for range starts {
		if dir == "" {
			dir = t.TempDir()
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		cmd.Env = append(os.Environ(), crashEnv+"="+dir)
		if torn {
			cmd.Env = append(cmd.Env, crashTorn+"=1")
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(20+random.IntN(180))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		data, missing := os.ReadFile(filepath.Join(dir, "done"))
		if missing != nil {
			if cmd.ProcessState.Exited() { // by itself, that is
				return fmt.Sprintf("the process has failed: %v\n%s", err, out.String()), runs
			}
			continue
		}
		runs++
		var got map[string]string
		if err := json.Unmarshal(data, &got); err != nil {
			return err.Error(), runs
		}
		for id, status := range want {
			if got[id] != status && got[""] != finished {
				return fmt.Sprintf("%s is %s, expected %s", id, got[id], status), runs
			}
		}
		if problem := checkEffects(filepath.Join(dir, "effects")); problem != "" {
			return problem, runs
		}
		dir = ""
	}
	if dir != "" {
		return checkEffects(filepath.Join(dir, "effects")), runs
	}
	return "", runs
}

// checkEffects reads the log of effects: a step whose successor has begun is durable, and never begins again; and no step
// begins before its predecessors have ended, those that are skipped apart.
func checkEffects(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	ended, durable := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasSuffix(line, "\n") {
			continue // the process was killed while it wrote
		}
		switch id := words[1]; words[0] {
		case "start":
			if durable[id] {
				return id + " was performed again after a successor had begun"
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
	return ""
}

func TestCrash(t *testing.T) {
	res, err := kahn.Execute(t.Context(), crashGraph(), func(_ context.Context, s *kahn.Step) (any, error) { return crashValue(s), nil })
	if err != nil {
		t.Fatal(err)
	}
	want := statuses(res)
	problem, runs := crashCycles(t, want, cycles, false)
	if problem != "" {
		t.Error(problem)
	}
	t.Logf("%d processes, %d runs brought to their end", cycles, runs)
	if runs == 0 || runs == cycles {
		t.Errorf("%d runs in %d processes: the kills come too early or too late", runs, cycles)
	}
}

// TestCrashControl shows that the test would notice a store that does not write a commit as a whole.
func TestCrashControl(t *testing.T) {
	res, err := kahn.Execute(t.Context(), crashGraph(), func(_ context.Context, s *kahn.Step) (any, error) { return crashValue(s), nil })
	if err != nil {
		t.Fatal(err)
	}
	problem, _ := crashCycles(t, statuses(res), cycles, true)
	if problem == "" {
		t.Error("a store that tears commits apart went unnoticed")
	}
	t.Log(problem)
}

// fileStore is a store in a file: a log of the writes that were applied, each on the disk before it is acknowledged. There
// is one process at a time, so leases are in memory.
type fileStore struct {
	*kahn.MemoryStore
	mu   sync.Mutex
	file *os.File
	torn bool // a commit is written in two parts, its consequences first
}

func openFileStore(path string, torn bool) (*fileStore, error) {
	s := &fileStore{MemoryStore: new(kahn.MemoryStore), torn: torn}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1] // the last line may be cut
	if err := s.replay(bytes.NewReader(whole)); err != nil {
		return nil, err
	}
	if s.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	if err := s.file.Truncate(int64(len(whole))); err != nil {
		return nil, err
	}
	_, err = s.file.Seek(0, io.SeekEnd)
	return s, err
}

func (s *fileStore) replay(r io.Reader) error {
	ctx := context.Background()
	lease, _, err := s.MemoryStore.Acquire(ctx, "crash", "replay", time.Hour)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return s.MemoryStore.Release(ctx, lease)
		}
		var c kahn.Commit
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		applied, err := s.MemoryStore.Commit(ctx, lease, c)
		if err != nil || applied != kahn.AppliedNow {
			return fmt.Errorf("replay of %s: %v, %w", line, applied, err)
		}
	}
}

func (s *fileStore) append(c kahn.Commit) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return s.file.Sync()
}

func (s *fileStore) Commit(ctx context.Context, l kahn.Lease, c kahn.Commit) (kahn.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.torn && len(c.Completed) > 0 && len(c.Nodes) > 1 {
		return s.tear(ctx, l, c)
	}
	if s.torn {
		r, err := s.MemoryStore.Load(ctx, l.Run)
		if err != nil {
			return 0, err
		}
		c.Sequence = r.Sequence + 1
	}
	a, err := s.MemoryStore.Commit(ctx, l, c)
	if err == nil && a == kahn.AppliedNow {
		err = s.append(c)
	}
	return a, err
}

// tear writes the consequences of a completion, and a moment later the completion.
func (s *fileStore) tear(ctx context.Context, l kahn.Lease, c kahn.Commit) (kahn.Applied, error) {
	r, err := s.MemoryStore.Load(ctx, l.Run)
	if err != nil {
		return 0, err
	}
	first := kahn.Commit{Sequence: r.Sequence + 1, Started: c.Started, Ready: c.Ready}
	rest := c
	rest.Sequence, rest.Started, rest.Ready, rest.Nodes = r.Sequence+2, nil, nil, nil
	for _, n := range c.Nodes {
		if slices.ContainsFunc(c.Completed, func(a kahn.NodeAttempt) bool { return a.Node == n.Node }) {
			rest.Nodes = append(rest.Nodes, n)
		} else {
			first.Nodes = append(first.Nodes, n)
		}
	}
	for i, part := range []kahn.Commit{first, rest} {
		if i > 0 {
			time.Sleep(2 * time.Millisecond)
		}
		a, err := s.MemoryStore.Commit(ctx, l, part)
		if err != nil || a != kahn.AppliedNow {
			return a, err
		}
		if err := s.append(part); err != nil {
			return a, err
		}
	}
	return kahn.AppliedNow, nil
}
