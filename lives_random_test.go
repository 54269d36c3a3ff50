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
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestRandomLives leads random runs through their lives: composites, gates, steps that suspend themselves, groups, retries and
// cleanup nodes, which are signalled, left, shut down, stopped at any depth and resumed, from snapshots or from a store, in any
// order. Whatever happens, a run ends in time after it was asked to, holds nothing then, and its events are one stream over all
// lives. With KAHN_SEED=<n> the test leads the lives of seed n alone; with KAHN_LONG=1 it leads those of 150,000 seeds and begins at a
// fresh one.
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
		count, batch = 150_000, 5_000
	case testing.Short() || raceEnabled:
		count = 300
	}
	var seen livesSeen
	for _, seed := range []uint64{36525, 43755, expandedSeeds + 878} { // which found defects that no smaller seed did
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

// expandedSeeds is the first of the seeds whose graphs have nodes that are expanded.
const expandedSeeds = 1 << 32

// livesSeen counts kinds of events, so that the test fails if it no longer covers them.
type livesSeen struct {
	sync.Mutex
	counts struct{ lives, resumed, left, interrupted, stopped, signalled, stored, terminal, killed int }
	looks  map[kahn.WhyKind]int // if it is not nil the runs are looked at, one at a time: see TestRandomLooks
}

// store is that of a run: of one that is looked at it takes its time, so that there is something to be seen of it.
func (s *livesSeen) store() store.Store {
	db := store.Store(new(kahn.MemoryStore))
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
		g := treeGen{rng: rng, inline: true, waits: true, cleanups: true, expands: seed >= expandedSeeds}.tree(2)
		g.Groups[0].CancelOnFailure = rng.IntN(2) == 0
		opts := []kahn.Option{kahn.RunID("r"), kahn.Limit(rng.IntN(3)), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)),
			kahn.FailureMode(rng.IntN(3)), kahn.StopMode(rng.IntN(2)), kahn.SuspendMode(1 + rng.IntN(2)),
			kahn.CancelGrace(20 * ms), kahn.CleanupTimeout(150 * ms), kahn.Random(func() float64 { return 0.5 }),
			kahn.Encoding(kahn.Types{"ints": []int(nil), "time": time.Duration(0)})}
		if rng.IntN(6) == 0 {
			opts = append(opts, kahn.Timeout(time.Duration(1+rng.IntN(300))*ms))
		}
		stored := rng.IntN(2) == 0
		if stored {
			opts = append(opts, kahn.Durable(seen.store()))
			if seed%3 == 0 {
				opts = append(opts, kahn.Bounds(1+int(seed/3%3), 40))
			}
		}
		if seen.looks != nil && seed%5 == 0 {
			opts = append(opts, kahn.StartRate(kahn.Rate{Starts: 1, Per: 5 * ms}))
		}
		step, abandoned := randomStep(rng.Uint64()), false
		var last *kahn.Snapshot
		var deep *deepAnswers
		if seed >= expandedSeeds {
			deep = &deepAnswers{ids: map[string]string{}}
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
				run.Cancel() // what follows, nobody sees
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
			late := func(err error) bool { return stored && errors.Is(err, kahn.ErrAnswered) } // posted while the run was at rest, and its gate has timed out
			if warnings := slices.DeleteFunc(slices.Clone(res.Warnings), late); len(warnings) > 0 {
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

// randomActs does a few things to a run and then asks it to end: in the last life by a stop. It returns what it did.
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
	if deep != nil && len(deep.waiting) > 0 && rng.IntN(2) == 0 { // a life that ends before an expanded node has its graph again
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
		if rng.IntN(2) == 0 { // a stop comes while the run is being left
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

// deepAnswers are answers for nodes that wait at any depth, also for those that have waited in the life before: an expanded node around them may
// not have its graph yet.
type deepAnswers struct {
	waiting []string          // when the last life has ended
	ids     map[string]string // of the answers that were acknowledged, by path
}

// answer gives an answer, and returns the path of its node; "" if nobody took one.
func (x *deepAnswers) answer(rng *rand.Rand, run *kahn.Run, waits []kahn.Wait) string {
	paths := slices.Clone(x.waiting)
	for _, w := range waits {
		paths = append(paths, w.Node)
	}
	select {
	case <-run.Done(): // what is answered now waits in the store
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

// missing returns the path of a node that waits although its answer was acknowledged, and nobody has had it, and takes note of those that wait. A
// node that another attempt of it, or of what it is inside of, has left behind may wait anew.
func (x *deepAnswers) missing(s *kahn.Snapshot, events []kahn.Event) (lost string) {
	if x == nil {
		return ""
	}
	x.waiting = s.Waiting()
	for _, path := range x.waiting {
		id, ok := x.ids[path]
		if ok && !slices.ContainsFunc(events, func(e kahn.Event) bool {
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

// before are the events that a snapshot knows of.
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

// livesEnd waits for a run that was asked to end: attempts take up to 70 ms, and cleanup nodes, each of which takes up to 170 ms,
// follow one another, at every depth, and may be attempted again.
func livesEnd(run *kahn.Run) (res *kahn.Result, problem string) {
	select {
	case <-run.Done():
	case <-time.After(5 * time.Second):
		return nil, fmt.Sprintf("it has not ended, and is %v, waiting %v", run.Status(), run.Waiting())
	}
	res, _ = run.Wait()
	return res, ""
}
