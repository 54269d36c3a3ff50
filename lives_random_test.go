package kahn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/race"
	"github.com/seed-c794f7ef/kahn/internal/trees"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestRandomLives begins random runs and continues each of them several times; each time is a life of the run. The graphs have composites, gates,
// steps that suspend, groups, retries and cleanup nodes. The runs are signalled, left, shut down, stopped at any depth and resumed, from snapshots or
// from a store, in any order. A run that was asked to end must end in time and then hold no resources, and its events must form one stream over all
// lives. With KAHN_SEED=<n> the test performs only seed n. With KAHN_LONG=1 it performs 50,000 seeds, from a new first seed.
func TestRandomLives(t *testing.T) {
	if text := os.Getenv("KAHN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		randomLives(t, seed, new(livesSeen))
		return
	}
	count, batch := uint64(900), uint64(300)
	switch {
	case long():
		count, batch = 50_000, 5_000
	case testing.Short() || race.Enabled:
		count = 300
	}
	var seen livesSeen
	for _, seed := range []uint64{36525, 43755, 474852948, expandedSeeds + 878, 4769752511} { // these seeds found defects that no smaller seed found
		randomLives(t, seed, &seen)
	}
	begin := firstSeed(t)
	t.Run("seeds", func(t *testing.T) {
		for first := begin; first < begin+count; first += batch {
			t.Run(fmt.Sprintf("%d-%d", first, first+batch-1), func(t *testing.T) {
				t.Parallel()
				for seed := first; seed < first+batch && !t.Failed(); seed++ {
					randomLives(t, seed, &seen)
				}
			})
		}
		t.Run("expanded", func(t *testing.T) {
			t.Parallel()
			for seed := expandedSeeds + begin; seed < expandedSeeds+begin+count/3 && !t.Failed(); seed++ {
				randomLives(t, seed, &seen)
			}
		})
	})
	t.Logf("%+v", seen.counts)
	if !t.Failed() {
		seen.check(t)
	}
}

// expandedSeeds is the first seed whose graph has nodes that expand.
const expandedSeeds = 1 << 32

// livesSeen counts kinds of events. If an event no longer occurs, the test fails.
type livesSeen struct {
	sync.Mutex
	counts struct{ lives, resumed, left, interrupted, stopped, signalled, stored, terminal, killed int }
	looks  map[kahn.WhyKind]int // if not nil, the runs are inspected, one at a time: see TestRandomLooks
}

// store returns the store of a run. The store of a run that is inspected takes time for each call, so that an inspection can fall between two
// calls.
func (s *livesSeen) store() store.Store {
	db := store.Store(new(store.Memory))
	if s.looks == nil {
		return db
	}
	var calls atomic.Int64
	return storetest.WithFaults(db, func(string) storetest.Fault {
		return storetest.Fault{Latency: time.Duration(calls.Add(1)%4) * ms}
	})
}

func (s *livesSeen) add(n *int, by int) {
	s.Lock()
	defer s.Unlock()
	*n += by
}

func (s *livesSeen) check(t *testing.T) {
	c := &s.counts
	if c.killed == 0 {
		t.Errorf("of %d lives none was killed", c.lives)
	}
	for what, n := range map[string]int{"resumed": c.resumed, "left": c.left, "interrupted": c.interrupted, "stopped": c.stopped, "signalled": c.signalled, "stored": c.stored, "terminal": c.terminal} {
		if n < c.lives/50 {
			t.Errorf("of %d lives %d were %s", c.lives, n, what)
		}
	}
}

func randomLives(t *testing.T, seed uint64, seen *livesSeen) {
	var events []kahn.Event
	said := false
	defer func() {
		if !said || t.Failed() {
			fmt.Fprintf(os.Stderr, "KAHN_SEED=%d did not end well\n%s", seed, eventText(events))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(77, seed))
		g := trees.Maker{Rand: rng, Inline: true, Waits: true, Cleanups: true, Expands: seed >= expandedSeeds}.Graph(2)
		g.Groups[0].CancelOnFailure = rng.IntN(2) == 0
		opts := []kahn.Option{kahn.RunID("r"), kahn.Limit(rng.IntN(3)), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)),
			kahn.FailureMode(rng.IntN(3)), kahn.StopMode(rng.IntN(2)), kahn.SuspendMode(1 + rng.IntN(2)),
			kahn.CancelGrace(20 * ms), kahn.CleanupTimeout(150 * ms), kahn.Random(func() float64 { return 0.5 }),
			kahn.Encoding(kahn.Types{"ints": []int(nil)})}
		if rng.IntN(6) == 0 {
			opts = append(opts, kahn.Timeout(time.Duration(1+rng.IntN(300))*ms))
		}
		var db store.Store
		stored := rng.IntN(2) == 0
		if stored {
			db = seen.store()
			opts = append(opts, kahn.Durable(db))
			if seed%3 == 0 {
				opts = append(opts, kahn.Bounds(1+int(seed/3%3), 40))
			}
		}
		if seen.looks != nil && seed%5 == 0 {
			opts = append(opts, kahn.Rate{Starts: 1, Per: 5 * ms})
		}
		step, abandoned := trees.Step(rng.Uint64()), false
		var last *kahn.Snapshot
		var deep *deepAnswers
		if seed >= expandedSeeds {
			deep = &deepAnswers{db: db, ids: map[string]string{}}
		}
		most := 1 + rng.IntN(4)
		if deep != nil {
			most += 6
		}
		for life := 1; ; life++ {
			rn, rec := new(kahn.Runner), newRecorder()
			more := append(slices.Clone(opts), kahn.OnEvent(rec.add))
			if last != nil && !stored {
				more = append(more, kahn.Resume(last))
			}
			run, err := rn.Start(t.Context(), g, step, more...)
			if err != nil {
				t.Fatal(err)
			}
			asked := randomActs(t, rng, rn, run, life >= most, seen, deep)
			var killed *kahn.Snapshot
			if deep != nil && !stored && life < most+8 && rng.IntN(3) == 0 {
				if killed = run.Snapshot(); killed.Status().Terminal() {
					killed = nil
				}
				run.Cancel() // the test ignores what happens after the snapshot
			}
			res, problem := livesEnd(run)
			for i := 0; res == nil; i++ { // the run hangs: end it, so that the bubble ends
				if i == 20 {
					events = append(events, rec.all()...)
					t.Fatalf("life %d, %s: %s, and nothing ends it", life, asked, problem)
				}
				run.Leave()
				run.Cancel()
				for _, w := range run.Waiting() {
					_ = run.Signal(context.Background(), w.Token, true)
				}
				res, _ = livesEnd(run)
			}
			if killed != nil {
				last = reload(t, killed)
				events = append(events, before(rec.all(), last)...)
				time.Sleep(time.Second)
				if lost := deep.missing(last, events); lost != "" {
					t.Fatalf("life %d, %s, kill: the answer for %s is lost", life, asked, lost)
				}
				seen.add(&seen.counts.killed, 1)
				continue
			}
			events = append(events, rec.all()...)
			abandoned = abandoned || len(res.Abandoned) > 0
			if left := run.Leftovers(); left != "" && res.Status.Terminal() {
				problem += ", left over: " + left
			}
			// An answer may be posted while the run is at rest, or before a graph is known again. If a deadline has passed by then, the gate times out, or the
			// timeout of another gate aborts it, before the answer is taken.
			late := func(err error) bool {
				return (stored || deep != nil) && (errors.Is(err, kahn.ErrAnswered) || errors.Is(err, kahn.ErrTransition))
			}
			expected := func(err error) bool { return late(err) || isStatic(err) || errors.Is(err, kahn.ErrGateOutlasts) }
			if warnings := slices.DeleteFunc(slices.Clone(res.Warnings), expected); len(warnings) > 0 {
				problem += fmt.Sprint(", warnings ", warnings)
			}
			if !abandoned {
				if err := kahntest.CheckEvents(g, res, events); err != nil {
					problem += ", " + err.Error()
				}
			}
			if problem != "" {
				t.Errorf("life %d, %s: %s", life, asked, problem)
			}
			seen.add(&seen.counts.lives, 1)
			if stored {
				seen.add(&seen.counts.stored, 1)
			}
			time.Sleep(time.Second) // abandoned steps return
			if res.Status.Terminal() || t.Failed() {
				seen.add(&seen.counts.terminal, 1)
				break
			}
			seen.add(&seen.counts.resumed, 1)
			data, err := json.Marshal(res.Snapshot())
			if err != nil {
				t.Fatal(err)
			}
			if last = new(kahn.Snapshot); json.Unmarshal(data, last) != nil {
				t.Fatal(string(data))
			}
			if lost := deep.missing(last, events); lost != "" {
				t.Errorf("life %d, %s: the answer for %s is lost", life, asked, lost)
			}
			if life > most+20 {
				t.Fatalf("life %d: it is %v", life, res.Status)
			}
		}
	})
	said = true
}

// randomActs performs some random acts on a run and then asks it to end. In the last life it stops the run. It returns a description of the acts.
func randomActs(t *testing.T, rng *rand.Rand, rn *kahn.Runner, run *kahn.Run, last bool, seen *livesSeen, deep *deepAnswers) string {
	var acts []string
	did := func(format string, args ...any) { acts = append(acts, fmt.Sprintf(format, args...)) }
	leave := func() {
		did("leave")
		seen.add(&seen.counts.left, 1)
		run.Leave()
	}
	shutdown := func() {
		patience := time.Duration(rng.IntN(30)) * ms
		did("shut down, patience %v", patience)
		seen.add(&seen.counts.interrupted, 1)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		go func() { defer cancel(); _ = rn.Shutdown(ctx) }()
	}
	stop := func() {
		seen.add(&seen.counts.stopped, 1)
		if rng.IntN(2) == 0 {
			did("cancel")
			run.Cancel()
		} else {
			did("abort")
			run.AbortAll(errHost)
		}
	}
	most, longest := 8, 40
	if deep != nil && len(deep.waiting) > 0 && rng.IntN(2) == 0 { // this life ends before an expanded node has its graph again
		most, longest = 3, 8
	}
	for range rng.IntN(most) {
		pause := time.Duration(rng.IntN(longest)) * ms
		did("%v", pause)
		time.Sleep(pause)
		if seen.looks != nil {
			synctest.Wait()
			if err := lookAll(run, seen.looks); err != nil {
				t.Errorf("%s: %v", strings.Join(acts, ", "), err)
			}
		}
		switch rng.IntN(16) {
		case 0:
			id := fmt.Sprint("n", rng.IntN(4))
			did("cancel %s", id)
			_ = run.CancelNode(id)
		case 1:
			if rng.IntN(4) == 0 {
				stop()
			}
		case 2:
			if rng.IntN(2) == 0 {
				leave()
			}
		case 3:
			if rng.IntN(2) == 0 {
				shutdown()
			}
		default:
			if w := run.Waiting(); deep != nil {
				if path := deep.answer(rng, run, w); path != "" {
					did("answer %s", path)
					seen.add(&seen.counts.signalled, 1)
				}
			} else if len(w) > 0 {
				token := w[rng.IntN(len(w))].Token
				did("signal %s", token)
				seen.add(&seen.counts.signalled, 1)
				_ = run.Signal(context.Background(), token, rng.IntN(3) > 0)
			}
		}
	}
	switch how := rng.IntN(4); {
	case last:
		if rng.IntN(2) == 0 { // the stop comes while the run is being left
			leave()
			pause := time.Duration(1+rng.IntN(20)) * ms
			did("%v", pause)
			time.Sleep(pause)
		}
		stop()
		if rng.IntN(3) == 0 {
			leave()
		}
	case how == 0:
		shutdown()
	case how == 1:
		leave()
		shutdown()
	default:
		leave()
	}
	return strings.Join(acts, ", ")
}

// deepAnswers holds answers for nodes that wait at any depth, including nodes that waited in the previous life. If such a node is inside an
// expanded node, that node's graph may not be known yet.
type deepAnswers struct {
	db      store.Store       // nil without a store
	waiting []string          // the paths of the nodes that waited at the end of the previous life
	ids     map[string]string // the ids of acknowledged answers, by path
}

// answer gives an answer, and returns the path of its node, or "" if no node accepted an answer.
func (x *deepAnswers) answer(rng *rand.Rand, run *kahn.Run, waits []kahn.Wait) string {
	paths := slices.Clone(x.waiting)
	for _, w := range waits {
		paths = append(paths, w.Node)
	}
	select {
	case <-run.Done(): // an answer would now remain in the store
		return ""
	default:
	}
	if len(paths) == 0 {
		return ""
	}
	path := paths[rng.IntN(len(paths))]
	id := fmt.Sprint(path, ", answer ", rng.Uint32())
	if run.Signal(context.Background(), path, kahn.Decision{Value: rng.IntN(3) > 0, ID: id}) != nil {
		return ""
	}
	x.ids[path] = id
	return path
}

// missing returns the path of a node that waits although its answer was acknowledged and has not been used. It also records the waiting nodes. A
// node may wait again if it, or a composite around it, is attempted again.
func (x *deepAnswers) missing(s *kahn.Snapshot, events []kahn.Event) (lost string) {
	if x == nil {
		return ""
	}
	x.waiting = s.Waiting()
	for _, path := range x.waiting {
		id, ok := x.ids[path]
		if ok && !x.posted(id) && !slices.ContainsFunc(events, func(e kahn.Event) bool {
			if e.Type == event.NodeSignalled && e.Path == path {
				p, _ := e.Payload.(event.Answer)
				return p.ID == id
			}
			rest, inside := strings.CutPrefix(path, e.Path)
			return e.Type == event.NodeRetried && inside && (rest == "" || strings.ContainsRune("/[#", rune(rest[0])))
		}) {
			return path
		}
	}
	return ""
}

// posted reports whether an answer is in the store because it came when the run was already at rest.
func (x *deepAnswers) posted(id string) bool {
	in, ok := x.db.(store.Inbox)
	if !ok {
		return false
	}
	list, err := in.LoadRequests(context.Background(), "r", 0, store.MaxPage)
	if err != nil {
		panic(err)
	}
	return slices.ContainsFunc(list, func(q store.PostedRequest) bool { return q.ID == id && q.Status == store.RequestWaiting })
}

// before returns the events that a snapshot includes.
func before(events []kahn.Event, s *kahn.Snapshot) []kahn.Event {
	var head struct {
		Last uint64 `json:"last_event"`
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &head)
	}
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(events, func(e kahn.Event) bool { return e.ID > head.Last })
}

// livesEnd waits for a run that was asked to end. Attempts take up to 70 ms. Cleanup nodes take up to 170 ms each, run one after the other at
// every depth, and may be attempted again.
func livesEnd(run *kahn.Run) (res *kahn.Result, problem string) {
	select {
	case <-run.Done():
	case <-time.After(5 * time.Second):
		return nil, fmt.Sprintf("it has not ended, and is %v, waiting %v", run.Status(), run.Waiting())
	}
	res, _ = run.Wait()
	return res, ""
}

// whysOf maps each status to the kinds of reasons that Why may return.
var whysOf = map[kahn.Status][]kahn.WhyKind{
	kahn.Idle:      {kahn.WhyPending, kahn.WhyWaiting, kahn.WhyTier, kahn.WhyChecking, kahn.WhyHeld},
	kahn.Waiting:   {kahn.WhyWaiting, kahn.WhyTier, kahn.WhyChecking, kahn.WhyHeld},
	kahn.Ready:     {kahn.WhyHeld, kahn.WhyStore, kahn.WhyOrder, kahn.WhySlot, kahn.WhyRate, kahn.WhyChecking, kahn.WhyStopping},
	kahn.Running:   {kahn.WhyRunning, kahn.WhyPaused, kahn.WhyStopping, kahn.WhyCleanup, kahn.WhyStore},
	kahn.Retrying:  {kahn.WhyBackoff},
	kahn.Suspended: {kahn.WhySignal, kahn.WhyHeld},
	kahn.Completed: {kahn.WhyEnded}, kahn.Failed: {kahn.WhyEnded}, kahn.Aborted: {kahn.WhyEnded}, kahn.Cancelled: {kahn.WhyEnded}, kahn.Skipped: {kahn.WhyEnded},
}

// looker compares what different methods of a run return, while nothing changes.
type looker struct {
	run      *kahn.Run
	statuses map[string]kahn.Status
	waits    map[string]bool
	kinds    map[kahn.WhyKind]int
	problems []error
}

func (l *looker) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Errorf(format, args...))
}

// lookAll inspects all nodes of a run, at all depths.
func lookAll(run *kahn.Run, kinds map[kahn.WhyKind]int) error {
	l := &looker{run: run, statuses: map[string]kahn.Status{}, waits: map[string]bool{}, kinds: kinds}
	for _, w := range run.Waiting() {
		l.waits[w.Node] = true
	}
	counts := map[kahn.Status]int{}
	top := slices.Collect(run.Nodes())
	for _, n := range top {
		counts[n.Status]++
	}
	for status, n := range run.Counts() {
		if counts[status] != n {
			l.problem("%d nodes are %v, and %d are said to be", counts[status], status, n)
		}
		delete(counts, status)
	}
	if len(counts) > 0 {
		l.problem("not counted: %v", counts)
	}
	l.collect(top)
	l.level(run.Plan(), "", top)
	return errors.Join(l.problems...)
}

// collect records the statuses of nodes, and of all nodes inside them.
func (l *looker) collect(nodes []kahn.NodeResult) {
	for _, n := range nodes {
		l.statuses[n.ID] = n.Status
		if in, err := l.run.Inside(n.ID); err == nil {
			l.collect(in.Nodes)
		}
	}
}

func (l *looker) level(p *kahn.Plan, prefix string, nodes []kahn.NodeResult) {
	for _, n := range nodes {
		l.node(p, prefix, n)
		in, err := l.run.Inside(n.ID)
		switch {
		case err != nil && !errors.Is(err, kahn.ErrBadValue):
			l.problem("%s: %w", n.ID, err)
		case err == nil && in.Plan != nil:
			l.level(in.Plan, in.Prefix, in.Nodes)
		}
	}
}

func (l *looker) node(p *kahn.Plan, prefix string, n kahn.NodeResult) {
	alone, err := l.run.Node(n.ID)
	if err != nil || alone.Status != n.Status || alone.Attempts != n.Attempts || len(alone.History()) != len(n.History()) || alone.Cause.Kind != n.Cause.Kind {
		l.problem("%s: %+v by itself, %+v among others, %v", n.ID, alone, n, err)
	}
	history := n.History()
	if len(history) > n.Attempts || n.Attempts > 0 && len(history) == 0 && n.Status.Terminal() {
		l.problem("%s: %d attempts, %v", n.ID, n.Attempts, history)
	}
	for i, a := range history {
		if i > 0 && a.Number <= history[i-1].Number || !a.End.IsZero() && a.End.Before(a.Start) || a.Delay > 0 && a.Err == nil {
			l.problem("%s: history %v", n.ID, history)
		}
	}
	if _, _, err := l.run.Inputs(n.ID); err != nil {
		l.problem("%s: %w", n.ID, err)
	}
	y, err := l.run.Why(n.ID)
	if err != nil {
		l.problem("%s: %w", n.ID, err)
		return
	}
	l.kinds[y.Kind]++
	bad := func(what string) { l.problem("%s is %v, and %v: %+v: %s", n.ID, n.Status, y.Kind, y, what) }
	if y.Status != n.Status || !slices.Contains(whysOf[n.Status], y.Kind) {
		bad("a kind of another status")
	}
	if y.String() == "" || y.String() == y.Kind.String() {
		bad("no words")
	}
	for _, path := range y.Nodes {
		if _, ok := l.statuses[path]; !ok {
			bad("no node " + path)
		}
	}
	is := func(want ...kahn.Status) {
		for _, path := range y.Nodes {
			if !slices.Contains(want, l.statuses[path]) {
				bad(path + " is " + l.statuses[path].String())
			}
		}
	}
	now := time.Now() // in a run that was left, no timer fires any more
	switch y.Kind {
	case kahn.WhyWaiting:
		if len(y.Nodes) == 0 {
			bad("nothing that it waits for")
		}
		is(kahn.Idle, kahn.Waiting, kahn.Ready, kahn.Running, kahn.Retrying, kahn.Suspended)
		l.edges(p, prefix, n, y, bad)
	case kahn.WhyTier:
		if len(y.Nodes) == 0 {
			bad("nothing that it waits for")
		}
		is(kahn.Idle, kahn.Waiting, kahn.Ready, kahn.Running, kahn.Retrying, kahn.Suspended)
	case kahn.WhySlot:
		if y.Bound.Used < y.Bound.Limit || y.Bound.Limit == 0 || y.Bound.Scope == kahn.BoundNone || len(y.Nodes)+y.More != y.Bound.Used {
			bad("a bound that is not reached")
		}
		is(kahn.Running, kahn.Ready) // a node counts as ready while its inputs are judged
	case kahn.WhyRate:
		if !y.Until.After(now) {
			bad("a token that is due")
		}
	case kahn.WhyBackoff:
		if y.Err == nil || l.run.Status() == kahn.RunRunning && !y.Until.After(now) {
			bad("no backoff")
		}
	case kahn.WhySignal:
		if l.waits[n.ID] != (y.Wait != nil) || y.Wait == nil && len(y.Nodes) == 0 {
			bad("no wait")
		}
		is(kahn.Suspended)
	case kahn.WhyHeld:
		is(kahn.Suspended)
	case kahn.WhyPaused:
		if l.run.Status() == kahn.RunRunning && !y.Until.After(now) {
			bad("no pause")
		}
	case kahn.WhyStopping:
		if y.Err == nil {
			bad("stopped for nothing")
		}
	case kahn.WhyEnded:
		if (y.Skip != event.SkipReason{}) != (n.Status == kahn.Skipped) || (y.Cause.Kind != kahn.CauseNone) != (n.Status != kahn.Skipped && n.Status != kahn.Completed) {
			bad("an end of another kind")
		}
	case kahn.WhyOrder:
		if l.run.Status() == kahn.RunRunning && len(y.Nodes) == 0 && p.Node(refOf(p, prefix, n)).Kind != kahn.KindGate {
			bad("nothing keeps it, and nothing moves")
		}
	}
}

func refOf(p *kahn.Plan, prefix string, n kahn.NodeResult) machine.Ref {
	ref, _ := p.Ref(n.ID[len(prefix):])
	return ref
}

// edges checks that the open edges of a node are the edges from nodes that have not ended.
func (l *looker) edges(p *kahn.Plan, prefix string, n kahn.NodeResult, y kahn.Why, bad func(string)) {
	var open []string
	for e := range p.Edges() {
		if prefix+e.To == n.ID && !l.statuses[prefix+e.From].Terminal() {
			open = append(open, e.From)
		}
	}
	var told []string
	for _, e := range y.Edges {
		told = append(told, e.From)
	}
	if !slices.Equal(open, told) {
		bad(fmt.Sprint("open are the edges from ", open))
	}
}

// TestRandomLooks inspects random runs while they are in progress. For every node Why returns one reason, which fits the statuses of this node and of
// the other nodes. An inspection does not change how a run continues. With KAHN_LONG=1 the test inspects the runs of 10,000 seeds, from a new first
// seed.
func TestRandomLooks(t *testing.T) {
	count := uint64(250)
	if long() {
		count = 10_000
	} else if testing.Short() || race.Enabled {
		count = 150
	}
	seen := livesSeen{looks: map[kahn.WhyKind]int{}}
	for _, seed := range []uint64{907, expandedSeeds + 1628, expandedSeeds + 3012} { // these seeds found defects that no earlier seed found
		randomLives(t, seed, &seen)
	}
	first := firstSeed(t)
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		randomLives(t, seed, &seen)
		if seed%4 == 0 {
			randomLives(t, expandedSeeds+seed, &seen)
		}
	}
	t.Log(seen.looks)
	for _, kind := range []kahn.WhyKind{kahn.WhyEnded, kahn.WhyWaiting, kahn.WhyTier, kahn.WhyHeld, kahn.WhySlot, kahn.WhyRunning, kahn.WhyStopping, kahn.WhyCleanup, kahn.WhyBackoff, kahn.WhySignal, kahn.WhyPaused, kahn.WhyStore, kahn.WhyRate, kahn.WhyOrder} {
		if seen.looks[kind] == 0 && !t.Failed() {
			t.Errorf("no node was %v", kind)
		}
	}
}

// TestRandomTrees runs random composites whose steps fail, are slow or ignore their context, under limits, and stops them at a random time. It checks
// the events, and that no goroutine, slot or timer remains.
func TestRandomTrees(t *testing.T) {
	n := uint64(300)
	if testing.Short() {
		n = 50
	}
	for seed := range n {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, seed))
			g := trees.Maker{Rand: rng}.Graph(3)
			opts := []kahn.Option{kahn.Limit(rng.IntN(3)), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)), kahn.FailureMode(rng.IntN(3)),
				kahn.StopMode(rng.IntN(2)), kahn.CancelGrace(20 * ms), kahn.Random(func() float64 { return 0.5 })}
			stop, after := rng.IntN(6), time.Duration(rng.IntN(200))*ms
			salt := rng.Uint64()
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				h := rand.New(rand.NewPCG(salt, uint64(len(s.Path())*31+s.Attempt())+uint64(s.Index()+1)*7+uint64(s.Path()[len(s.Path())-1])))
				d := time.Duration(h.IntN(40)) * ms
				switch h.IntN(12) {
				case 0:
					time.Sleep(d + 30*ms) // ignores the end of the context
					return nil, ctx.Err()
				case 1, 2:
					time.Sleep(d)
					return nil, errStep
				case 3:
					return nil, kahn.Skip("no")
				}
				return takes(d)(ctx, s)
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, step, append(opts, kahn.OnEvent(rec.add))...)
			if err != nil {
				t.Fatal(seed, err)
			}
			switch stop {
			case 0, 1:
				time.AfterFunc(after, func() { run.Cancel() })
			case 2:
				time.AfterFunc(after, func() { run.AbortAll(errHost) })
			case 3:
				time.AfterFunc(after, func() { _ = run.CancelNode("n0") })
			}
			res, _ := run.Wait()
			if left := run.Leftovers(); left != "" {
				t.Errorf("seed %d: left over: %s", seed, left)
			}
			if slices.ContainsFunc(res.Warnings, func(err error) bool { return !isStatic(err) }) || !res.Status.Terminal() {
				t.Errorf("seed %d: %v, warnings %v", seed, res.Status, res.Warnings)
			}
			if len(res.Abandoned) == 0 {
				if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, eventText(rec.all()))
				}
			}
			time.Sleep(time.Second) // abandoned steps return
		})
		if t.Failed() {
			return
		}
	}
}
