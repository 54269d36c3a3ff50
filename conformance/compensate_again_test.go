package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// repairedSaga is a composite S that has a compensation of its own and that fails after the composite E inside it, so the nodes inside E are undone
// first. Inside E are pay, last after pay, and the composite T. T has a compensation of its own, so the node charge inside T is never undone.
type repairedSaga struct {
	t       *testing.T
	mu      sync.Mutex
	g       *kahn.Graph
	stored  *journal       // nil for a run without a store
	undone  map[string]int // how often the compensations of nodes were called
	takes   map[string]time.Duration
	refuses map[string]error // the errors of the compensations, and of the step of E after its first call
	expands int              // how often the step of E was called
}

func newRepairedSaga(t *testing.T, expands, deep, stored bool) *repairedSaga {
	x := &repairedSaga{t: t, undone: map[string]int{}, takes: map[string]time.Duration{}, refuses: map[string]error{}}
	if stored {
		x.stored = new(journal)
	}
	undo := func(_ context.Context, s *kahn.Step) error { return x.undo(s.ID()) }
	charge := subgraph("T", graph(kahn.Node{ID: "charge", Do: succeeds(1), Compensate: undo}))
	charge.Compensate = undo
	inner := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: undo}, kahn.Node{ID: "last", Do: succeeds(1), Compensate: undo, After: []string{"pay"}}, charge)
	e := subgraph("E", inner)
	if expands {
		e = kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) {
			x.mu.Lock()
			x.expands++
			again, takes, refused := x.expands > 1, x.takes["E"], x.refuses["E"]
			x.mu.Unlock()
			if again {
				time.Sleep(takes)
				if refused != nil {
					return nil, refused
				}
			}
			return nil, kahn.Expand(inner, nil, nil)
		}}
	}
	in := graph(e, kahn.Node{ID: "ship", After: []string{"E"}, Do: always(errSoldOut)})
	if deep {
		in = graph(subgraph("U", in))
	}
	s := subgraph("S", in)
	s.Compensate = undo
	x.g = graph(s)
	return x
}

func (x *repairedSaga) undo(id string) error {
	x.mu.Lock()
	x.undone[id]++
	takes, refused := x.takes[id], x.refuses[id]
	x.mu.Unlock()
	time.Sleep(takes)
	return refused
}

func (x *repairedSaga) options(more ...kahn.Option) []kahn.Option {
	if more = append(more, kahn.RunID("r")); x.stored != nil {
		more = append(more, kahn.Durable(x.stored))
	}
	return more
}

// crash performs the run until the process dies, and returns the options with which another process continues the run.
func (x *repairedSaga) crash(opts ...kahn.Option) []kahn.Option {
	run, err := kahn.Start(x.t.Context(), x.g, nil, x.options(opts...)...)
	require.NoError(x.t, err)
	time.Sleep(30 * time.Second)
	var next []kahn.Option
	if j := x.stored; j != nil {
		x.stored = j.replay(x.t, "r", j.len())
	} else {
		next = append(next, kahn.Resume(reload(x.t, run.Snapshot())))
	}
	x.mu.Lock()
	undone, called := maps.Clone(x.undone), x.expands
	x.mu.Unlock()
	run.Cancel()
	_, _ = run.Wait()
	x.undone, x.expands = undone, called // what a dead process would have done does not count
	return next
}

// repair returns the options of a repair of the run that has ended with res.
func (x *repairedSaga) repair(res *kahn.Result) []kahn.Option {
	var from *kahn.Snapshot
	if x.stored == nil {
		from = reload(x.t, res.Snapshot())
	}
	return []kahn.Option{kahn.Redrive(from, nil), kahn.RepeatCompensations}
}

func (x *repairedSaga) perform(opts ...kahn.Option) (*kahn.Result, error) {
	return kahn.Execute(x.t.Context(), x.g, nil, x.options(opts...)...)
}

// eachRepair calls f with and without an expanded node, or with one only.
func eachRepair(t *testing.T, onlyExpanded bool, f func(t *testing.T, expands, deep, stored bool)) {
	for i := range 8 {
		if onlyExpanded && i&1 == 0 {
			continue
		}
		expands, deep, stored := i&1 != 0, i&2 != 0, i&4 != 0
		inBubble(t, fmt.Sprintf("expands %v, deep %v, stored %v", expands, deep, stored), func(t *testing.T) { f(t, expands, deep, stored) })
	}
}

// The process dies while a repair performs a failed compensation inside a composite that has a compensation of its own. The next process repeats this
// compensation and no other: neither the node that was undone nor the node that the compensation of T has undone, nor a composite.
func TestCrashDuringRepairInsideACompositeThatIsUndone(t *testing.T) {
	eachRepair(t, false, func(t *testing.T, expands, deep, stored bool) {
		for _, dies := range []string{"pay", "E"} { // what takes time when the process dies
			if dies == "E" && !expands {
				continue
			}
			x := newRepairedSaga(t, expands, deep, stored)
			x.refuses["pay"] = kahn.Permanent(errors.New("no such charge"))
			res, err := x.perform()
			require.ErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, map[string]int{"pay": 1, "last": 1, "T": 1, "S": 1}, x.undone)
			x.refuses["pay"], x.takes[dies] = nil, time.Minute
			opts := x.crash(x.repair(res)...)
			before := x.undone["pay"]
			x.takes[dies] = 0
			res, err = x.perform(opts...)
			require.ErrorContains(t, err, errSoldOut.Error())
			require.NotErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, map[string]int{"pay": before + 1, "last": 1, "T": 1, "S": 1}, x.undone)
			require.Equal(t, kahn.CompensationDone, must(res.Node("S")).Compensation)
		}
	})
}

// After a crash the step of the expanded node E must return its graph again, so that the nodes inside can be undone. It fails, so these nodes are not
// undone. A repair calls the step again and undoes them, also if its process dies meanwhile, although S has a compensation of its own.
func TestRepairOfAnExpandedNodeInsideACompositeThatIsUndone(t *testing.T) {
	eachRepair(t, true, func(t *testing.T, expands, deep, stored bool) {
		for _, dies := range []string{"", "last", "pay", "E"} { // what takes time when the process of the repair dies, if it dies
			x := newRepairedSaga(t, expands, deep, stored)
			x.takes["last"] = time.Minute
			opts := x.crash()
			require.Equal(t, map[string]int{"last": 1, "T": 1}, x.undone)
			x.takes["last"], x.refuses["E"] = 0, kahn.Permanent(errStep)
			res, err := x.perform(opts...)
			require.ErrorIs(t, err, kahn.ErrCompensation)
			require.Equal(t, map[string]int{"last": 1, "T": 1, "S": 1}, x.undone)
			opts, x.refuses["E"] = x.repair(res), nil
			if dies != "" {
				x.takes[dies] = time.Minute
				opts = x.crash(opts...)
				x.takes[dies] = 0
			}
			before := maps.Clone(x.undone)
			res, err = x.perform(opts...)
			require.NotErrorIs(t, err, kahn.ErrCompensation)
			if before["pay"] > 0 {
				require.Equal(t, before["last"], x.undone["last"], "last was undone before pay")
			} else {
				require.Equal(t, before["last"]+1, x.undone["last"])
			}
			require.Equal(t, before["pay"]+1, x.undone["pay"])
			require.Equal(t, 1, x.undone["T"])
			require.Equal(t, 1, x.undone["S"])
			require.Zero(t, x.undone["charge"])
			require.Equal(t, kahn.CompensationDone, must(res.Node("S")).Compensation)
		}
	})
}
