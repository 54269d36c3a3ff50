package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// doomedStore is a store whose process dies with one of its writes, which it has still written, or not.
type doomedStore struct {
	*store.Memory
	writes int
	last   int // the write with which it dies; 0 for none
	kept   bool
	dies   func()
	dead   bool
	wrong  []string // what the store has told about compensations that its records do not
}

var errDied = fmt.Errorf("%w: the process has died", store.ErrUnusable)

func (m *doomedStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if m.dead {
		return 0, errDied
	}
	if m.writes++; m.writes != m.last {
		a, err := m.Memory.Commit(ctx, l, c)
		if wrong := misledBy(m.Memory, l.Run); wrong != "" {
			m.wrong = append(m.wrong, fmt.Sprintf("write %d: %s", m.writes, wrong))
		}
		return a, err
	}
	m.dead = true
	if m.kept {
		_, _ = m.Memory.Commit(ctx, l, c)
	}
	m.dies()
	return 0, errDied
}

func (m *doomedStore) Renew(ctx context.Context, l store.Lease, d time.Duration) error {
	if m.dead {
		return errDied
	}
	return m.Memory.Renew(ctx, l, d)
}

func (m *doomedStore) Release(ctx context.Context, l store.Lease) error {
	if m.dead {
		return errDied
	}
	return m.Memory.Release(ctx, l)
}

// misledBy says how the state of a run's compensations in a store, by which List finds runs, differs from what the records of its nodes say.
func misledBy(s store.Store, run string) string {
	stored, err := s.Load(context.Background(), run)
	if err != nil {
		return err.Error()
	}
	has, keys := map[kahn.Status]bool{}, map[string]kahn.Status{}
	for key, n := range stored.Nodes {
		if strings.HasSuffix(key, "#undo") {
			keys[key] = n.Status
		}
	}
	for key, status := range keys {
		covered := slices.ContainsFunc(enclosing(strings.TrimSuffix(key, "#undo")), func(around string) bool { _, has := keys[around+"#undo"]; return has })
		if status != kahn.Running || !covered { // else it is undone with the composite around it
			has[status] = true
		}
	}
	ended := kahn.CompensationNone
	switch {
	case has[kahn.Failed]:
		ended = kahn.CompensationFailed
	case has[kahn.Completed]:
		ended = kahn.CompensationDone
	}
	switch is := stored.Compensation; {
	case stored.Status.Terminal() && is == ended:
	case stored.Status.Terminal() || has[kahn.Running] && is != kahn.CompensationRunning,
		is == kahn.CompensationFailed && !has[kahn.Failed], is == kahn.CompensationDone && !has[kahn.Completed]:
		return fmt.Sprintf("the run is %v, its compensation %v, and its records are %v", stored.Status, is, keys)
	}
	return ""
}

// livesOfSaga performs a random saga over a store. Its process dies with the given writes, one in each life, and the next one goes on with the run. It
// returns what is wrong with its end, and how many writes the last life has made.
func livesOfSaga(t *testing.T, seed uint64, depth int, deaths []int, kept bool) (writes int, res *kahn.Result, wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		r := rand.New(rand.NewPCG(seed, 7))
		g := w.saga(r, depth)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		opts, host := conditions(r, func() {})
		memory := new(store.Memory)
		for life := 0; ; life++ {
			m := &doomedStore{Memory: memory, kept: kept, dies: func() { w.dies(true) }}
			if life < len(deaths) {
				m.last = deaths[life]
			}
			run, err := kahn.Start(ctx, g, nil, append(opts, kahn.Durable(m), kahn.RunID("r"), kahn.StoreEvents())...)
			if errors.Is(err, kahn.ErrFinished) { // the last write of the life before was written
				res, err = kahn.ReadResult(ctx, g, memory, "r", opts...)
			} else {
				require.NoError(t, err)
				if life == 0 {
					host(run)
				}
				res, err = run.Wait()
			}
			if wrong = append(wrong, m.wrong...); m.dead {
				w.dies(false)
				time.Sleep(time.Minute) // the lease
				continue
			}
			writes = m.writes
			events := storedEvents(t, memory, "r")
			wrong = append(wrong, w.check(g, res, err, events)...)
			if e := kahntest.CheckEvents(g, res, events); e != nil {
				wrong = append(wrong, e.Error())
			}
			if len(wrong) > 0 {
				t.Logf("seed %d, deaths %v, kept %v: %v, %v\n%s\n%s", seed, deaths, kept, res.Status, err, strings.Join(wrong, "\n"), eventText(events))
			}
			return
		}
	})
	return writes, res, wrong
}

// A process that dies at any write loses nothing of what is to be undone: the next one goes on with it, and repeats at most what was under way, under the
// same key.
func TestSagasAfterDeaths(t *testing.T) {
	graphs := size(30, 10, 400)
	died, undone := 0, 0
	for depth := range 3 {
		for seed := range seeds(t, graphs) {
			writes, _, wrong := livesOfSaga(t, seed, depth, nil, false)
			require.Empty(t, wrong, "seed %d, depth %d", seed, depth)
			r := rand.New(rand.NewPCG(seed, uint64(depth)))
			for at := 1; at <= writes; at++ {
				if !long() && r.IntN(writes) > 3 {
					continue
				}
				deaths := []int{at}
				if r.IntN(3) == 0 {
					deaths = append(deaths, 1+r.IntN(8))
				}
				_, res, wrong := livesOfSaga(t, seed, depth, deaths, r.IntN(2) == 0)
				require.Empty(t, wrong, "seed %d, depth %d, death %v", seed, depth, deaths)
				died++
				for n := range res.Nodes() {
					if n.Compensation == kahn.CompensationDone {
						undone++
					}
				}
			}
		}
	}
	t.Log(died, undone)
}
