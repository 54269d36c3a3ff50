package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestLivesAfterLives interrupts runs repeatedly: a run continues from a snapshot, or a store, of a run that had itself been continued.
func TestLivesAfterLives(t *testing.T) {
	t.Parallel()
	graphs := size(7, 2, 400)
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			newCutter(3000+seed, int(seed%3)).livesAfterLives(t, r, fmt.Sprint("seed ", 3000+seed))
		})
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 8))
			newCutter(4000+seed, int(seed%3)).writesAfterWrites(t, r, fmt.Sprint("seed ", 4000+seed))
		})
		if t.Failed() {
			return
		}
	}
}

// TestLivesOfDifferentModes: a run that began in one mode may continue in the other, and the events of all lives form one stream.
func TestLivesOfDifferentModes(t *testing.T) {
	t.Parallel()
	graphs := size(5, 2, 1_000)
	for seed := range seeds(t, graphs) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			c := newCutter(5000+seed, int(seed%3))
			c.modes = r
			c.livesAfterLives(t, r, fmt.Sprint("seed ", 5000+seed))
		})
		if t.Failed() {
			return
		}
	}
}

// TestEarlyJoinOfDifferentModes: an early join has the inputs that exist when it is decided, in the mode of the life that decides it, and
// keeps them in later lives. A composite passes its inputs on to the nodes inside. Statuses are the same in all modes.
func TestEarlyJoinOfDifferentModes(t *testing.T) {
	t.Parallel()
	const a, both = "[A]", "[A B]"
	sees := func(_ context.Context, s *kahn.Step) (any, error) {
		p, _ := s.Param("p")
		if s.ID() == "x" {
			p, _ = s.Root("p")
		}
		time.Sleep(time.Second)
		return fmt.Sprint(p), nil
	}
	j := kahn.Node{ID: "J", Join: kahn.AnySucceeded, Merge: kahn.MergeArray, In: []kahn.Edge{{From: "A", Param: "p"}, {From: "B", Param: "p"}}}
	step, composite := j, j
	step.Do, composite.Sub = sees, graph(kahn.Node{ID: "x", Do: sees})
	for _, j := range []kahn.Node{step, composite} {
		g := graph(kahn.Node{ID: "A", Do: takes(10 * ms)}, kahn.Node{ID: "B", Do: takes(100 * ms)}, j)
		for _, row := range []struct {
			modes []kahn.Mode // by life; the first life is interrupted when A has ended and B has not
			want  string
		}{
			{[]kahn.Mode{kahn.Eager}, a}, {[]kahn.Mode{kahn.Waves}, both},
			{[]kahn.Mode{kahn.Eager, kahn.Eager}, a}, {[]kahn.Mode{kahn.Eager, kahn.Waves}, a},
			{[]kahn.Mode{kahn.Waves, kahn.Eager}, a}, {[]kahn.Mode{kahn.Waves, kahn.Waves}, both},
		} {
			inBubble(t, fmt.Sprint(row.modes, j.Sub != nil), func(t *testing.T) {
				first, rec := newRecorder(), newRecorder()
				opts := []kahn.Option{row.modes[len(row.modes)-1], kahn.OnEvent(rec.add)}
				var before []kahn.Event
				if len(row.modes) > 1 {
					s := crashed(t, g, nil, 50*ms, row.modes[0], kahn.OnEvent(first.add))
					opts = append(opts, kahn.Resume(s))
					data, err := json.Marshal(s)
					if err != nil {
						t.Fatal(err)
					}
					before = first.all()[:lastEvent(t, data)]
				}
				res, err := kahn.Execute(t.Context(), g, nil, opts...)
				if err != nil {
					t.Fatal(err)
				}
				if n, _ := res.Node("J"); res.Count(kahn.Completed) != 3 || n.Output != row.want {
					t.Errorf("J is %v, and has got %v instead of %s", n.Status, n.Output, row.want)
				}
				checkEvents(t, g, res, slices.Concat(before, rec.all()))
			})
		}
	}
}

// TestDecidedAtResumption: decisions that waves have postponed to the next tier are made when the run continues in eager mode. If such a
// decision is about a node inside a waiting composite, the composite continues, and waits again if there is nothing else to do.
func TestDecidedAtResumption(t *testing.T) {
	t.Parallel()
	off := func(kahn.View) (bool, error) { return false, nil }
	asks := func(_ context.Context, s *kahn.Step) (any, error) {
		if v, ok := s.Resumed(); ok {
			return v, nil
		}
		return nil, kahn.Suspend("", nil, nil)
	}
	for name, second := range map[string][]kahn.Node{
		"skipped":     {{ID: "x", When: off}, after("y", "x")},
		"aborted":     {{ID: "x", Do: always(errStep)}, after("y", "x")},
		"failed":      {{ID: "x", Do: always(errStep)}, {ID: "y", After: []string{"x"}, OnUpstreamFailure: kahn.UpstreamPropagate}},
		"a later one": {{ID: "x", When: off}, after("y", "x"), after("z", "y")},
		"performed":   {{ID: "x", Do: nop}, {ID: "y", After: []string{"x"}, Do: nop}},
	} {
		inner := graph(append(second, kahn.Node{ID: "w", Do: asks})...)
		for where, g := range map[string]*kahn.Graph{
			"w": inner, "S/w": graph(subgraph("S", inner)), "S/T/w": graph(subgraph("S", graph(subgraph("T", inner))), after("end", "S")),
			"L#1/w":  graph(kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 1, Until: off, OnLimit: kahn.LoopStop}}),
			"M[0]/w": graph(kahn.Node{ID: "M", Sub: inner, Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1}}}),
			"D/w":    graph(kahn.Node{ID: "D", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}),
		} {
			for _, on := range []kahn.Option{kahn.SuspendDrain, kahn.SuspendStop} {
				inBubble(t, fmt.Sprint(name, " ", where, " ", on), func(t *testing.T) {
					first := pause(t, g, nop, kahn.Waves, on)
					rec := newRecorder()
					res, err := kahn.Execute(t.Context(), g, nop, kahn.Eager, on, kahn.OnEvent(rec.add), kahn.Resume(reload(t, first.Snapshot())))
					if err != nil || res.Status != kahn.RunSuspended || len(res.Waiting) != 1 {
						t.Fatalf("%v, waiting for %v: %v", res.Status, res.Waiting, err)
					}
					events := slices.Concat(first.events, rec.all())
					checkEvents(t, g, res, events)
					rec = newRecorder()
					res, err = kahn.Execute(t.Context(), g, nop, on, kahn.OnEvent(rec.add), kahn.Resume(reload(t, res.Snapshot())), kahn.EarlySignals(map[string]any{where: 1}))
					if failed := len(second) > 1 && second[0].When == nil && name != "performed"; failed != (err != nil) || !res.Status.Terminal() {
						t.Errorf("%v: %v", res.Status, err)
					}
					checkEvents(t, g, res, append(events, rec.all()...))
				})
			}
		}
	}
}

func (c *cutter) livesAfterLives(t *testing.T, r *rand.Rand, name string) {
	snapshots, want := c.run(t, nil, true)
	whole := c.events
	for life := 2; life <= 5 && len(snapshots) > 0; life++ {
		data := snapshots[r.IntN(len(snapshots))]
		s := new(kahn.Snapshot)
		if err := json.Unmarshal(data, s); err != nil {
			t.Fatal(err)
		}
		if c.modes != nil {
			c.more = []kahn.Option{[]kahn.Mode{kahn.Eager, kahn.Waves}[c.modes.IntN(2)]}
		}
		var got outcome
		snapshots, got = c.run(t, s, true)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, life %d: resumed from\n%s\ngot  %v\nwant %v", name, life, data, got, want)
			return
		}
		whole = append(slices.Clone(whole[:lastEvent(t, data)]), c.events...)
		if err := errors.Join(kahntest.CheckEvents(c.g, c.res, c.events), kahntest.CheckEvents(c.g, c.res, whole)); err != nil {
			t.Errorf("%s, life %d: resumed from\n%s\n%v\n%s", name, life, data, err, eventText(whole))
			return
		}
		if again := c.repeated(data); again != "" {
			t.Errorf("%s, life %d: resumed from\n%s\n%s was performed again", name, life, data, again)
			return
		}
	}
}

func (c *cutter) writesAfterWrites(t *testing.T, r *rand.Rand, name string) {
	store := new(journal)
	c.more = []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
	c.opts = append(c.opts, kahn.MaxCrashes(-1))
	_, want := c.run(t, nil, false)
	whole := c.events
	for life, cut := 2, 0; life <= 5 && len(store.writes) > cut; life++ {
		cut += r.IntN(len(store.writes) - cut)
		store = store.replay(t, "r", cut)
		before, err := store.Load(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if before.Status.Terminal() {
			return
		}
		c.more = []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		_, got := c.run(t, nil, false)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, life %d after %d writes: \ngot  %v\nwant %v", name, life, cut, got, want)
			return
		}
		if first := c.events[0]; first.ID > 1 {
			if p, crashed := first.Payload.(event.Recovery); crashed && p.From != first.ID-1 {
				t.Errorf("%s, life %d after %d writes: %v", name, life, cut, first)
			}
			whole = append(slices.Clone(whole[:first.ID-1]), c.events...)
		} else {
			whole = c.events // this life starts the run anew, since the earlier life stored nothing
		}
		if err := errors.Join(kahntest.CheckEvents(c.g, c.res, c.events), kahntest.CheckEvents(c.g, c.res, whole)); err != nil {
			t.Errorf("%s, life %d after %d writes: %v\n%s", name, life, cut, err, eventText(whole))
			return
		}
		if again := c.repeatedKey(before); again != "" {
			t.Errorf("%s, life %d after %d writes: %s was performed again", name, life, cut, again)
			return
		}
	}
}
