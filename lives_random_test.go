package kahn_test

import (
	"context"
	"encoding/json"
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
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestRandomLives leads random runs through their lives: composites, gates, steps that suspend themselves, groups, retries and
// cleanup nodes, which are signalled, left, shut down, stopped at any depth and resumed, from snapshots or from a store, in any
// order. Whatever happens, a run ends in time after it was asked to, holds nothing then, and its events are one stream over all
// lives. KAHN_SEED=<n> leads the lives of one seed, KAHN_LONG=1 those of 150,000; -run 'TestRandomLives/seeds/^<first>-' picks a part.
func TestRandomLives(t *testing.T) {
	if text := os.Getenv("KAHN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		randomLives(t, seed, new(livesSeen))
		return
	}
	count, batch := uint64(1_800), uint64(600)
	switch {
	case long():
		count, batch = 150_000, 5_000
	case testing.Short() || raceEnabled:
		count = 500
	}
	var seen livesSeen
	for _, seed := range []uint64{36525, 43755} { // which found defects that no smaller seed did
		randomLives(t, seed, &seen)
	}
	t.Run("seeds", func(t *testing.T) {
		for first := uint64(0); first < count; first += batch {
			t.Run(fmt.Sprintf("%d-%d", first, first+batch-1), func(t *testing.T) {
				t.Parallel()
				for seed := first; seed < first+batch && !t.Failed(); seed++ {
					randomLives(t, seed, &seen)
				}
			})
		}
	})
	t.Run("expanded", func(t *testing.T) {
		t.Parallel()
		for seed := uint64(expandedSeeds); seed < expandedSeeds+count/10 && !t.Failed(); seed++ {
			randomLives(t, seed, &seen)
		}
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
	counts struct{ lives, resumed, left, interrupted, stopped, signalled, stored, terminal int }
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
		}
		if seen.looks != nil && seed%5 == 0 {
			opts = append(opts, kahn.StartRate(kahn.Rate{Starts: 1, Per: 5 * ms}))
		}
		step, abandoned := randomStep(rng.Uint64()), false
		var last *kahn.Snapshot
		most := 1 + rng.IntN(4)
		for life := 1; ; life++ {
			rn, rec := new(kahn.Runner), newRecorder()
			more := append(slices.Clone(opts), kahn.OnEvent(rec.add))
			if last != nil && !stored {
				more = append(more, kahn.ResumeFrom(last, nil))
			}
			run, err := rn.Start(t.Context(), g, step, more...)
			if err != nil {
				t.Fatal(err)
			}
			asked := randomActs(t, rng, rn, run, life >= most, seen)
			res, problem := livesEnd(run)
			for i := 0; res == nil; i++ { // the run hangs: end it, so that the bubble ends
				if i == 20 {
					events = append(events, rec.all()...)
					t.Fatalf("life %d, %s: %s, and nothing ends it", life, asked, problem)
				}
				run.Leave()
				run.Cancel()
				for _, w := range run.Waiting() {
					_ = run.Signal(w.Token, true)
				}
				res, _ = livesEnd(run)
			}
			events = append(events, rec.all()...)
			abandoned = abandoned || len(res.Abandoned) > 0
			if left := run.Leftovers(); left != "" && res.Status.Terminal() {
				problem += ", left over: " + left
			}
			if len(res.Warnings) > 0 {
				problem += fmt.Sprint(", warnings ", res.Warnings)
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
			if life > most+20 {
				t.Fatalf("life %d: it is %v", life, res.Status)
			}
		}
	})
	said = true
}

// randomActs does a few things to a run and then asks it to end: in the last life by a stop. It returns what it did.
func randomActs(t *testing.T, rng *rand.Rand, rn *kahn.Runner, run *kahn.Run, last bool, seen *livesSeen) string {
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
	for range rng.IntN(8) {
		pause := time.Duration(rng.IntN(40)) * ms
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
			if w := run.Waiting(); len(w) > 0 {
				token := w[rng.IntN(len(w))].Token
				did("signal %s", token)
				seen.add(&seen.counts.signalled, 1)
				_ = run.Signal(token, rng.IntN(3) > 0)
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
