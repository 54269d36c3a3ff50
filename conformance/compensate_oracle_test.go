package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

var sagas = flag.Int("sagas", 400, "random graphs whose compensations are checked")

// world is what steps change outside: an effect for each node that may be undone, by path.
type world struct {
	seed   uint64
	mu     sync.Mutex
	has    map[string]bool // effects that are there
	undone map[string]int  // calls of compensations
	begun  map[string]int  // by path: the number of its first compensation, among all begins and ends
	ended  map[string]int
	clock  int
	wrong  []string
	life   int  // of the run
	dead   bool // the process has died: what its steps do has no effect any more
	keys   map[string]*keysOf

	adapt func(n *kahn.Node, whole bool) // changes a node of a random graph, before and after it may become a composite; may be nil
}

// keysOf are the keys for idempotency that the calls for a node have had.
type keysOf struct {
	does, undoes string // the last ones
	undone       bool   // since the last call of the step
	life         int    // in which it was undone
	spent        map[string]bool
}

func newWorld(seed uint64) *world {
	return &world{seed: seed, has: map[string]bool{}, undone: map[string]int{}, begun: map[string]int{}, ended: map[string]int{}, keys: map[string]*keysOf{}}
}

// called notes the key of a call: all calls of a step have one, until the node was undone, and so have all calls that undo it.
func (w *world) called(s *kahn.Step) {
	k, key := w.keys[s.Path()], s.IdempotencyKey()
	if k == nil {
		k = &keysOf{spent: map[string]bool{}}
		w.keys[s.Path()] = k
	}
	bad := func(what string) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s, attempt %d: %s", s.Path(), s.Attempt(), what))
	}
	if s.Compensating() {
		if k.undone && key != k.undoes { // of another attempt of a composite around it, in which the step was about to be called
			k.spent[k.does], k.spent[k.undoes], k.undone, k.undoes = true, true, false, ""
		}
		switch {
		case k.spent[key], key == k.does:
			bad("it is undone under a key that is spent")
		case k.undone && k.life >= w.life:
			bad("it is undone twice in one life")
		case !k.undone && k.undoes != "" && key != k.undoes:
			bad("the attempts to undo it have different keys")
		}
		k.undoes = key
		return
	}
	switch {
	case k.undone:
		if key == k.does || k.spent[key] {
			bad("it is performed again under the key of what was undone")
		}
		k.spent[k.does], k.spent[k.undoes] = true, true
		k.undone, k.undoes = false, ""
	case k.does != "" && key != k.does:
		bad("its attempts have different keys")
	}
	k.does = key
}

// hasUndone notes that what a node has done was undone.
func (w *world) hasUndone(path string) {
	delete(w.has, path)
	if k := w.keys[path]; k != nil {
		k.undone, k.life = true, w.life
	}
}

// dies ends the life of the process.
func (w *world) dies(dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead = dead; !dead {
		w.life++
	}
}

func (w *world) rng(s *kahn.Step, what uint64) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(s.Path()) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.seed, h^uint64(s.Attempt())<<40^what<<60))
}

func (w *world) do(ctx context.Context, s *kahn.Step) (any, error) {
	r := w.rng(s, 0)
	effect := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.dead {
			w.has[s.Path()] = true
		}
	}
	if w.mu.Lock(); !w.dead {
		w.called(s)
	}
	w.mu.Unlock()
	d, early, fate := time.Duration(r.IntN(20))*ms, r.IntN(2) == 0, r.IntN(14)
	if fate == 0 {
		return nil, kahn.NoEffect(errSoldOut)
	}
	if early {
		effect()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		if r.IntN(2) == 0 {
			return nil, ctx.Err()
		}
	}
	switch fate {
	case 1:
		return nil, errSoldOut
	case 2:
		panic("oh")
	case 3:
		effect()
		return nil, errSoldOut
	}
	effect()
	return fmt.Sprint("output of ", s.Path()), nil
}

func (w *world) undo(ctx context.Context, s *kahn.Step) error {
	r := w.rng(s, 1)
	w.mu.Lock()
	if w.dead {
		w.mu.Unlock()
		return errors.New("the process has died")
	}
	w.called(s)
	w.clock++
	w.undone[s.Path()]++
	if w.begun[s.Path()] == 0 || w.ended[s.Path()] != 0 {
		w.begun[s.Path()], w.ended[s.Path()] = w.clock, 0
	}
	if output, certain := s.Compensated(); certain != (output != nil) || certain && output != fmt.Sprint("output of ", s.Path()) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: output %v, certain %v", s.Path(), output, certain))
	}
	w.mu.Unlock()
	time.Sleep(time.Duration(r.IntN(10)) * ms)
	fate := r.IntN(8)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errors.New("the process has died")
	}
	if fate == 0 && w.seed%4 == 0 {
		return kahn.Permanent(errors.New("for good"))
	}
	if fate == 1 {
		return errors.New("busy")
	}
	w.clock++
	w.ended[s.Path()] = w.clock
	w.hasUndone(s.Path())
	return nil
}

// saga is a random graph whose nodes may be undone, and the options of its run.
func (w *world) saga(r *rand.Rand, depth int) *kahn.Graph {
	g := new(kahn.Graph)
	n := 2 + r.IntN(7)
	g.Groups = []kahn.Group{{Name: "two", Limit: 2}}
	for i := range n {
		node := kahn.Node{ID: fmt.Sprintf("n%d", i), Do: w.do, CompensateRetry: kahn.Retry{MaxAttempts: 30, InitialDelay: ms}}
		if r.IntN(5) > 0 {
			node.Compensate = w.undo
		} else {
			node.CompensateRetry, node.Do = kahn.Retry{}, func(context.Context, *kahn.Step) (any, error) { return nil, nil }
		}
		for j := range i {
			if r.IntN(3) == 0 {
				e := kahn.Edge{From: fmt.Sprintf("n%d", j)}
				switch r.IntN(10) {
				case 0:
					e.On = kahn.OnFailure
				case 1:
					e.On = kahn.OnAlways
				case 2:
					e.DataOnly = true
				}
				node.In = append(node.In, e)
			}
		}
		if r.IntN(4) == 0 {
			node.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: 3 * ms}
		}
		if r.IntN(6) == 0 {
			node.Timeout = 10 * ms
		}
		switch r.IntN(8) {
		case 0:
			node.Groups = []string{"two"}
		case 1:
			node.Key = "k"
		}
		node.ContinueOnFail, node.Critical = r.IntN(12) == 0, r.IntN(12) == 0
		if r.IntN(10) == 0 {
			node.Fallback = func(context.Context, error) (any, error) { return nil, errSoldOut }
		}
		if len(node.In) > 1 && r.IntN(6) == 0 {
			node.Join = []kahn.Join{kahn.AnySucceeded, kahn.AllDone, kahn.OneFailed}[r.IntN(3)]
		}
		if w.adapt != nil {
			w.adapt(&node, false)
		}
		if w.composite(r, &node, depth); w.adapt != nil {
			w.adapt(&node, true)
		}
		g.Add(node)
	}
	for i := range r.IntN(3) {
		node := kahn.Node{ID: fmt.Sprintf("tidy%d", i), Cleanup: true, After: []string{fmt.Sprintf("n%d", r.IntN(n))}, Do: w.cleanup}
		if w.adapt != nil {
			w.adapt(&node, true)
		}
		g.Add(node)
	}
	if r.IntN(4) == 0 {
		verdict := any(nil)
		switch r.IntN(4) {
		case 0:
			verdict = kahn.EndVerdict{Status: kahn.RunFailed}
		case 1:
			verdict = kahn.EndVerdict{Status: kahn.RunCompleted}
		}
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: succeeds(verdict)})
	}
	return g
}

func (w *world) cleanup(_ context.Context, s *kahn.Step) (any, error) {
	if w.rng(s, 2).IntN(8) == 0 {
		return nil, errSoldOut
	}
	return nil, nil
}

// composite may make a node a composite: a sub-graph, a loop, a map of steps or of sub-graphs, or a step that returns a graph.
func (w *world) composite(r *rand.Rand, n *kahn.Node, depth int) {
	if depth == 0 || r.IntN(3) > 0 {
		return
	}
	own := n.Compensate != nil && r.IntN(4) == 0
	n.Fallback, n.Timeout = nil, 0
	if r.IntN(4) == 0 {
		n.Timeout = 40 * ms
	}
	switch r.IntN(5) {
	case 0:
		n.Do, n.Groups, n.Key, n.Sub = nil, nil, "", w.saga(r, depth-1)
	case 1:
		n.Do, n.Groups, n.Key, n.Sub = nil, nil, "", w.saga(r, depth-1)
		n.Loop = &kahn.Loop{MaxIterations: 3, OnLimit: []kahn.LoopLimit{kahn.LoopFail, kahn.LoopStop}[r.IntN(2)], While: whileLess(1 + r.IntN(4))}
	case 2:
		n.Map, n.Params = &kahn.Map{Over: "items", ToleratedCount: r.IntN(3), FailFast: r.IntN(3) == 0}, map[string]any{"items": numbers(r.IntN(4))}
		return // its compensation is that of the items
	case 3:
		n.Do, n.Groups, n.Key, n.Sub = nil, nil, "", w.saga(r, depth-1)
		n.Map, n.Params = &kahn.Map{Over: "items", ToleratedCount: r.IntN(3), Limit: r.IntN(3)}, map[string]any{"items": numbers(r.IntN(4))}
	case 4:
		inner := w.saga(r, depth-1)
		n.Do = func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }
		n.Groups, n.Key = nil, ""
	}
	if n.Compensate = nil; own {
		n.Compensate = func(ctx context.Context, s *kahn.Step) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.dead {
				return errors.New("the process has died")
			}
			w.clock++
			w.undone[s.Path()]++
			w.begun[s.Path()] = w.clock
			w.clock++
			w.ended[s.Path()] = w.clock
			for path := range w.keys { // everything inside
				if strings.HasPrefix(path, s.Path()+"/") || strings.HasPrefix(path, s.Path()+"#") {
					if w.hasUndone(path); w.begun[path] > 0 {
						w.ended[path] = w.clock
					}
				}
			}
			return nil
		}
	} else {
		n.CompensateRetry = kahn.Retry{}
	}
}

// check says what is wrong with the end of a run.
func (w *world) check(g *kahn.Graph, res *kahn.Result, err error, events []kahn.Event) (wrong []string) {
	wrong = w.wrong
	ends, reported := map[string]kahn.Status{}, map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case event.NodeCompleted:
			ends[e.Path] = kahn.Completed
		case event.NodeFailed, event.NodeAborted, event.NodeCancelled, event.NodeSkipped:
			ends[e.Path] = kahn.Failed
		case event.NodeCompensated:
			if reported[e.Path] = e.Payload.(event.Compensation).Err != nil; reported[e.Path] && (res.Status == kahn.RunCompleted || !errors.Is(err, kahn.ErrCompensation)) {
				wrong = append(wrong, fmt.Sprintf("%s could not be undone, and the run is %v: %v", e.Path, res.Status, err))
			}
		}
	}
	for path := range w.has {
		bad := ""
		if res.Status != kahn.RunCompleted {
			bad = "the run"
		}
		for _, around := range enclosing(path) {
			if bad == "" && ends[around] != kahn.Completed {
				bad = around
			}
			if reported[around] {
				reported[path] = true
			}
		}
		if bad != "" && !reported[path] {
			wrong = append(wrong, fmt.Sprintf("%s has an effect that is neither undone nor reported, and %s has not completed", path, bad))
		}
	}
	plan, _ := g.Compile()
	for n := range res.Nodes() {
		if d, _ := plan.At(n.ID); n.Sub != nil || d.Compensate == nil || d.Map != nil {
			continue
		}
		switch {
		case res.Status == kahn.RunCompleted && (w.undone[n.ID] > 0 || n.Compensation != kahn.CompensationNone):
			wrong = append(wrong, fmt.Sprintf("%s was undone in a run that has completed", n.ID))
		case n.Compensation == kahn.CompensationRunning,
			n.Compensation == kahn.CompensationDone && (w.undone[n.ID] == 0 || w.ended[n.ID] == 0),
			n.Compensation == kahn.CompensationNone && w.undone[n.ID] > 0,
			(n.Compensation == kahn.CompensationFailed) != (n.CompensationErr != nil) || (n.CompensationErr != nil) != reported[n.ID]:
			wrong = append(wrong, fmt.Sprintf("%s: %v, %v, undone %d times, %v", n.ID, n.Status, n.Compensation, w.undone[n.ID], n.CompensationErr))
		}
		for path, e := range w.ended { // of what follows the node, and is inside it
			if top := topOf(path); w.begun[n.ID] > 0 && slices.Contains(plan.Ancestors(top), n.ID) && (e == 0 && !reported[path] || e > w.begun[n.ID]) {
				wrong = append(wrong, fmt.Sprintf("%s was undone before %s", n.ID, path))
			}
		}
	}
	return append(wrong, phases(g, events)...)
}

// enclosing are the paths of the composites around a node.
func enclosing(path string) (list []string) {
	for i := range len(path) {
		switch path[i] {
		case '/', '[', '#':
			if path[i] != '/' || !strings.Contains(path[strings.LastIndexByte(path[:i], '/')+1:i], "#") {
				list = append(list, path[:i])
			}
		}
	}
	return list
}

// topOf is the outermost node that a path leads into.
func topOf(path string) string {
	if i := strings.IndexAny(path, "/[#"); i >= 0 {
		return path[:i]
	}
	return path
}

// phases checks that nothing is undone before all nodes of the run but cleanup nodes have ended, and that these and the end node do not begin meanwhile.
func phases(g *kahn.Graph, events []kahn.Event) (wrong []string) {
	late := map[string]bool{}
	plan, _ := g.Compile()
	for r := range plan.Declared() {
		n := plan.Node(r)
		late[n.ID] = n.Cleanup || n.Kind == kahn.KindEnd
	}
	own := func(e kahn.Event) bool { return e.Path == e.Node && topOf(e.Path) == e.Path && e.Node != "" }
	first, last := -1, -1
	for i, e := range events {
		if own(e) && (e.Type == event.NodeCompensating || e.Type == event.NodeCompensated) {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	for i, e := range events {
		undoes := e.Type == event.NodeCompensating || e.Type == event.NodeCompensated
		switch {
		case first < 0 || !own(e) || undoes:
		case i > first && !late[e.Node], i > first && i < last && e.Type == event.NodeStarted && e.Attempt == 1:
			wrong = append(wrong, fmt.Sprintf("%v lies between compensations", e))
		}
	}
	return wrong
}

// conditions are random options of a run, and a host that may stop it.
func conditions(r *rand.Rand, cancel func()) (opts []kahn.Option, host func(*kahn.Run)) {
	opts = []kahn.Option{[]kahn.Mode{kahn.Eager, kahn.Waves}[r.IntN(2)], []kahn.FailureMode{kahn.Continue, kahn.StopScheduling, kahn.AbortRunning}[r.IntN(3)]}
	if r.IntN(3) == 0 {
		opts = append(opts, kahn.Limit(1+r.IntN(3)))
	}
	if r.IntN(3) == 0 {
		opts = append(opts, kahn.KeyLimit(1))
	}
	if r.IntN(5) == 0 {
		opts = append(opts, kahn.StatusStrict)
	}
	if r.IntN(6) == 0 {
		opts = append(opts, kahn.Timeout(time.Duration(1+r.IntN(60))*ms))
	}
	at, how := time.Duration(r.IntN(60))*ms, r.IntN(8)
	return opts, func(run *kahn.Run) {
		time.Sleep(at)
		switch how {
		case 0:
			_ = run.Cancel()
		case 1:
			_ = run.AbortAll(nil)
		case 2:
			cancel()
		case 3:
			_ = run.CancelNode("n1")
		}
	}
}

// tellSaga performs a random saga, stops it in a random way, and says what is wrong with its end.
func tellSaga(t *testing.T, seed uint64, depth int) (res *kahn.Result, wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		r := rand.New(rand.NewPCG(seed, 7))
		g := w.saga(r, depth)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		opts, host := conditions(r, cancel)
		trial := tryControlled(t, ctx, g, nil, host, opts...)
		res = trial.Result
		wrong = w.check(g, trial.Result, trial.err, trial.events)
		if len(wrong) > 0 {
			t.Logf("seed %d: %v\n%s\n%s\n%s", seed, res.Status, strings.Join(wrong, "\n"), eventText(trial.events), slices.Sorted(maps.Keys(w.has)))
		}
	})
	return res, wrong
}

// For random graphs, outcomes and stops: effects minus compensations are zero or reported, the order is reverse, and nothing is undone in runs that complete.
func TestSagas(t *testing.T) {
	for depth := range 3 {
		t.Run(fmt.Sprint("depth ", depth), func(t *testing.T) { sagasOf(t, depth) })
	}
}

func sagasOf(t *testing.T, depth int) {
	ends := map[kahn.RunStatus]int{}
	undone, failed := 0, 0
	for seed := range uint64(*sagas) {
		res, wrong := tellSaga(t, seed, depth)
		if len(wrong) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
		}
		ends[res.Status]++
		for n := range res.Nodes() {
			switch n.Compensation {
			case kahn.CompensationDone:
				undone++
			case kahn.CompensationFailed:
				failed++
			}
		}
	}
	t.Log(ends, undone, failed)
	if ends[kahn.RunCompleted] < *sagas/20 || ends[kahn.RunCancelled] < *sagas/20 || undone < *sagas || failed < *sagas/50 {
		t.Errorf("the sagas show too little: %v, %d undone, %d failed", ends, undone, failed)
	}
}
