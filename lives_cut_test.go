package kahn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestLivesAfterLives cuts runs repeatedly: a run goes on from a snapshot, or from its store, that was taken of a run which
// had gone on itself.
func TestLivesAfterLives(t *testing.T) {
	t.Parallel()
	graphs := size(40, 10, 400)
	for seed := range graphs {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			newCutter(uint64(3000+seed), seed%3).livesAfterLives(t, r, fmt.Sprint("seed ", 3000+seed))
		})
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 8))
			newCutter(uint64(4000+seed), seed%3).writesAfterWrites(t, r, fmt.Sprint("seed ", 4000+seed))
		})
		if t.Failed() {
			return
		}
	}
}

// TestLivesOfDifferentModes: a run that began in one mode may go on in the other, and the events of all lives are one stream.
func TestLivesOfDifferentModes(t *testing.T) {
	t.Parallel()
	graphs := size(15, 15, 3_000)
	for seed := range graphs {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 9))
			c := newCutter(uint64(5000+seed), seed%3)
			c.modes = r
			c.livesAfterLives(t, r, fmt.Sprint("seed ", 5000+seed))
		})
		if t.Failed() {
			return
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
			if p, crashed := first.Payload.(kahn.RunRecovered); crashed && p.From != first.ID-1 {
				t.Errorf("%s, life %d after %d writes: %v", name, life, cut, first)
			}
			whole = append(slices.Clone(whole[:first.ID-1]), c.events...)
		} else {
			whole = c.events // the earlier life left nothing
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
