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

// A life that calls the step of an expanded node for its graph again, to undo the nodes inside, tells of these as they are: what was not undone keeps its
// key, and a compensation that has failed is reported by its own name alone.
func TestUndoneAfterLivesOfExpansions(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprint("stored ", stored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := map[string][]string{}
				inner := graph(
					kahn.Node{ID: "declined", Compensate: func(context.Context, *kahn.Step) error { return nil }, Do: func(_ context.Context, s *kahn.Step) (any, error) {
						keys[s.Path()] = append(keys[s.Path()], s.IdempotencyKey())
						return nil, kahn.NoEffect(errSoldOut)
					}},
				)
				again := false
				sub := subgraph("S", graph(
					kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
					kahn.Node{ID: "slow", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
						if !again {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return nil, nil
					}},
				))
				sub.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: -1}
				res, err := inLives(t, graph(sub), stored, func() { again = true })
				require.ErrorIs(t, err, errSoldOut)
				require.Len(t, keys["S/E/declined"], 2)
				require.Equal(t, keys["S/E/declined"][0], keys["S/E/declined"][1], "it was not undone")
				require.Equal(t, kahn.CompensationNone, must(res.Node("S")).Compensation)
			})
			synctest.Test(t, func(t *testing.T) {
				inner := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errors.New("closed")) }})
				life := 1
				waits := func(until int) func(context.Context) error {
					return func(ctx context.Context) error {
						if life < until {
							<-ctx.Done()
						}
						return ctx.Err()
					}
				}
				g := graph(
					kahn.Node{ID: "look", Do: succeeds(1), Compensate: func(ctx context.Context, _ *kahn.Step) error { return waits(3)(ctx) }},
					kahn.Node{ID: "E", After: []string{"look"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }},
					kahn.Node{ID: "ship", After: []string{"E"}, Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
						if err := waits(2)(ctx); err != nil {
							return nil, err
						}
						return nil, kahn.NoEffect(errSoldOut)
					}},
				)
				res, err := inLives(t, g, stored, func() { life++ }, func() { life++ })
				require.ErrorIs(t, err, kahn.ErrCompensation)
				require.Equal(t, 1, strings.Count(err.Error(), "compensation failed"), err)
				require.ErrorContains(t, err, `node "E/pay": compensation failed: closed`)
				require.NotContains(t, err.Error(), "%!")
				require.Equal(t, kahn.CompensationFailed, must(res.Node("E")).Compensation)
				preview, err := kahn.RedrivePreview(compiled(t, g), res.Snapshot(), nil, kahn.CompensatedByHand)
				require.NoError(t, err)
				require.Equal(t, []string{"E/pay"}, preview)
			})
		})
	}
}

// inLives performs a run that is left once everything in it waits, and goes on in another life after each of the given changes, over a store or by
// snapshots.
func inLives(t *testing.T, g *kahn.Graph, stored bool, between ...func()) (res *kahn.Result, err error) {
	t.Helper()
	memory := new(store.Memory)
	var from *kahn.Snapshot
	for life := 0; ; life++ {
		opts := []kahn.Option{kahn.RunID("r")}
		switch {
		case stored:
			opts = append(opts, kahn.Durable(memory))
		case from != nil:
			opts = append(opts, kahn.Resume(from))
		}
		runner := new(kahn.Runner)
		run, err := runner.Start(t.Context(), g, nil, opts...)
		require.NoError(t, err)
		if life == len(between) {
			return run.Wait()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = runner.Shutdown(ctx)
		res, err := run.Wait()
		require.NoError(t, err)
		require.True(t, res.Left)
		from = reload(t, res.Snapshot())
		between[life]()
	}
}
