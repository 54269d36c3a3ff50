package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// randomGraph returns n nodes with up to three predecessors each, all with the default join rule.
func randomGraph(rng *rand.Rand, n int) *kahn.Graph {
	var g kahn.Graph
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		for range min(rng.IntN(4), i) {
			if from := fmt.Sprint("n", rng.IntN(i)); !slices.Contains(node.After, from) {
				node.After = append(node.After, from)
			}
		}
		g.Add(node)
	}
	return &g
}

// naive computes the ready and blocked signals of a node in the simplest way, from the statuses of all predecessors.
func naive(plan *kahn.Plan, st *machine.State, r machine.Ref) (ready, blocked *reactive.Computed[bool]) {
	var preds []*reactive.Value[kahn.Status]
	for e := range st.Inputs(r) {
		p, _ := plan.Ref(plan.Edge(e).From)
		preds = append(preds, st.StatusSignal(p))
	}
	ready = reactive.NewComputed(st.Scope(), func(r reactive.Reader) bool {
		some := len(preds) == 0
		for _, p := range preds {
			status := p.Get(r)
			some = some || status == kahn.Completed
			if status != kahn.Completed && status != kahn.Skipped {
				return false
			}
		}
		return some // a node is skipped if all its inputs were skipped
	})
	blocked = reactive.NewComputed(st.Scope(), func(r reactive.Reader) bool {
		return slices.ContainsFunc(preds, func(p *reactive.Value[kahn.Status]) bool {
			status := p.Get(r)
			return status == kahn.Failed || status == kahn.Aborted || status == kahn.Cancelled
		})
	})
	return ready, blocked
}

// somehow ends a task with a random outcome.
func somehow(rng *rand.Rand, st *machine.State, task machine.Task) error {
	switch rng.IntN(12) {
	case 0:
		return st.Settle(task.Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError})
	case 1:
		return st.Settle(task.Token, machine.Outcome{Status: kahn.Skipped})
	case 2:
		return st.CancelNode(task.Ref)
	case 3:
		if err := st.Retry(task.Token); err != nil {
			return err
		}
		return st.Requeue(task.Token)
	}
	return st.Settle(task.Token, completed)
}

// TestObservedState is the part of TestSignals that tests the signals of a State.
func TestObservedState(t *testing.T) {
	t.Run("69 Ready and BlockedByFailure equal naive computeds", func(t *testing.T) {
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 69))
			plan, st := stateOf(t, randomGraph(rng, 40))
			for r := range plan.Declared() {
				ready, blocked := st.ReadySignal(r), st.BlockedSignal(r)
				naiveReady, naiveBlocked := naive(plan, st, r)
				effect(t, st.Scope(), func(w reactive.Writer) {
					got := [2]bool{ready.Get(w), blocked.Get(w)}
					if want := [2]bool{naiveReady.Get(w), naiveBlocked.Get(w)}; got != want {
						t.Errorf("seed %d, node %s: ready, blocked %v, naively %v", seed, plan.ID(r), got, want)
					}
				})
			}
			var running []machine.Task
			for !st.Done() {
				for len(running) == 0 || rng.IntN(4) > 0 {
					task, ok := st.Next()
					if !ok {
						break
					}
					running = append(running, task)
				}
				if len(running) == 0 {
					continue
				}
				i := rng.IntN(len(running))
				require.NoError(t, somehow(rng, st, running[i]))
				running = slices.Delete(running, i, i+1)
			}
			require.NoError(t, st.Scope().Err())
		}
	})
	t.Run("70 one edge visit for a predecessor, one notification for a flip", func(t *testing.T) {
		for _, d := range []int{1, 10, 1000, 10_000} {
			for _, fail := range []int{-1, d - 1} {
				var g kahn.Graph
				for i := range d {
					g.Add(kahn.Node{ID: fmt.Sprint("p", i)}).Connect(kahn.Edge{From: fmt.Sprint("p", i), To: "join"})
				}
				g.Add(kahn.Node{ID: "join"})
				plan, st := stateOf(t, &g)
				join := ref(t, plan, "join")
				ready := observe(t, st, st.ReadySignal(join))
				blocked := observe(t, st, st.BlockedSignal(join))
				before := (*machine.Locked)(st).Visited()
				for i := range d {
					task, ok := st.Next()
					require.True(t, ok)
					out := completed
					if i == fail {
						out = machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}
					}
					require.NoError(t, st.Settle(task.Token, out))
				}
				require.Equal(t, int64(d), (*machine.Locked)(st).Visited()-before)
				if fail < 0 {
					require.Equal(t, []bool{false, true}, *ready)
					require.Equal(t, []bool{false}, *blocked)
				} else {
					require.Equal(t, []bool{false}, *ready)
					require.Equal(t, []bool{false, true}, *blocked)
				}
				status := st.StatusSignal(join)
				require.Equal(t, st.Status(join), status.Load())
			}
		}
	})
	t.Run("71 observing in the middle misses nothing", func(t *testing.T) {
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 71))
			plan, st := stateOf(t, randomGraph(rng, 30))
			check := func() {
				t.Helper()
				for r, id := range plan.Declared() {
					if rng.IntN(3) == 0 {
						require.Equal(t, st.Status(r), st.StatusSignal(r).Load(), "seed %d node %s", seed, id)
						skip := rng.IntN(2) == 0 && st.ReadySignal(r).Load() && st.BlockedSignal(r).Load()
						require.False(t, skip, "both")
					}
				}
				if rng.IntN(4) == 0 {
					counts := map[kahn.Status]int{}
					for r := range plan.Declared() {
						counts[st.Status(r)]++
					}
					for status := kahn.Idle; status <= kahn.Aborted; status++ {
						require.Equal(t, counts[status], st.CountSignal(status).Load(), "seed %d: %v", seed, status)
					}
				}
				status, _ := st.RunStatus(machine.StatusEscaped)
				require.Equal(t, status, st.RunStatusSignal().Load())
			}
			var running []machine.Task
			for !st.Done() {
				check()
				for task, ok := st.Next(); ok; task, ok = st.Next() {
					running = append(running, task)
					check()
				}
				if len(running) == 0 {
					continue
				}
				i := rng.IntN(len(running))
				require.NoError(t, somehow(rng, st, running[i]))
				running = slices.Delete(running, i, i+1)
			}
			check()
		}
	})
	t.Run("72 an unobserved node owns no Signal", func(t *testing.T) {
		plan, st := stateOf(t, chainGraph(1200))
		require.False(t, (*machine.Locked)(st).IsObserved())
		st.ReadySignal(ref(t, plan, "n1199"))
		task, _ := st.Next()
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			var err error
			if task, _, err = st.SettleNext(task.Token, completed); err != nil {
				panic(err)
			}
		}))
		require.Equal(t, 1, (*machine.Locked)(st).ObservedNodes())
	})
}

// TestSignalsMadeInCallbacks: a signal that an effect creates agrees with the other signals, even if the State has changed meanwhile.
func TestSignalsMadeInCallbacks(t *testing.T) {
	plan, st := stateOf(t, chainGraph(3))
	a, b, c := ref(t, plan, "n0"), ref(t, plan, "n1"), ref(t, plan, "n2")
	status := st.StatusSignal(a)
	var seen []string
	effect(t, st.Scope(), func(w reactive.Writer) {
		if status.Get(w) == kahn.Running { // the effect changes the State
			require.NoError(t, st.Settle(machine.Token{Ref: a, Attempt: 1}, completed))
			task, ok := st.Next()
			require.True(t, ok)
			require.Equal(t, b, task.Ref)
		}
		seen = append(seen, fmt.Sprint(status.Get(w), st.StatusSignal(b).Get(w), st.ReadySignal(b).Get(w), st.StatusSignal(c).Get(w),
			st.CountSignal(kahn.Running).Get(w), st.CountSignal(kahn.Completed).Get(w), st.RunStatusSignal().Get(w)))
	})
	_, ok := st.Next()
	require.True(t, ok)
	require.NoError(t, st.Scope().Err())
	require.Equal(t, []string{"ready idle false idle 0 0 running", "running waiting false idle 1 0 running",
		"completed running true waiting 1 1 running"}, seen)

	plan, st = stateOf(t, chainGraph(3)) // the same, with signals that are created after the State has changed
	a, b, c = ref(t, plan, "n0"), ref(t, plan, "n1"), ref(t, plan, "n2")
	status, seen = st.StatusSignal(a), nil
	effect(t, st.Scope(), func(w reactive.Writer) {
		if status.Get(w) != kahn.Running {
			return
		}
		require.NoError(t, st.Settle(machine.Token{Ref: a, Attempt: 1}, completed))
		_, ok := st.Next()
		require.True(t, ok)
		seen = append(seen, fmt.Sprint(status.Get(w), st.StatusSignal(b).Get(w), st.ReadySignal(b).Get(w), st.StatusSignal(c).Get(w),
			st.CountSignal(kahn.Running).Get(w), st.CountSignal(kahn.Completed).Get(w)))
		effect(t, w, func(w reactive.Writer) {
			seen = append(seen, fmt.Sprint(st.StatusSignal(b).Get(w), st.StatusSignal(c).Get(w)))
		})
	})
	_, ok = st.Next()
	require.True(t, ok)
	require.NoError(t, st.Scope().Err())
	require.Equal(t, []string{"running waiting false idle 1 0", "waiting idle"}, seen[:2])
	require.Equal(t, kahn.Running, st.StatusSignal(b).Load())
	require.Equal(t, kahn.Waiting, st.StatusSignal(c).Load())
	require.Equal(t, 1, st.CountSignal(kahn.Completed).Load())
}

// TestEffectsDriveAChain: effects that call the State drive a long chain without recursion, and within the limit on rounds of effects.
func TestEffectsDriveAChain(t *testing.T) {
	const n = 20_000
	plan, st := stateOf(t, chainGraph(n))
	for r := range plan.Declared() {
		effect(t, st.Scope(), func(w reactive.Writer) {
			if st.ReadySignal(r).Get(w) {
				task, ok := st.Next()
				if !ok || task.Ref != r {
					t.Error("not the one that is ready")
				}
				if err := st.Settle(task.Token, completed); err != nil {
					t.Error(err)
				}
			}
		})
	}
	require.NoError(t, st.Scope().Err())
	require.True(t, st.Done())
	require.Equal(t, n, st.CountSignal(kahn.Completed).Load())
}

// TestStateDispose: after Dispose effects do not run, the State continues, and the signals keep their values.
func TestStateDispose(t *testing.T) {
	plan, st := stateOf(t, chainGraph(3))
	a := ref(t, plan, "n0")
	status, runs := st.StatusSignal(a), 0
	effect(t, st.Scope(), func(w reactive.Writer) {
		runs++
		if status.Get(w) == kahn.Running {
			st.Dispose()
		}
	})
	task, _ := st.Next()
	require.Equal(t, 2, runs)
	require.NoError(t, st.Settle(task.Token, completed))
	st.AbortAll()
	st.Dispose()
	require.Equal(t, 2, runs)
	require.Equal(t, kahn.Running, status.Load())
	require.Equal(t, kahn.Completed, st.Status(a))
	require.True(t, st.Done())
	_, err := reactive.NewEffect(st.Scope(), func(reactive.Writer) {})
	require.ErrorIs(t, err, reactive.ErrDisposed)
	require.Equal(t, kahn.Aborted, st.StatusSignal(ref(t, plan, "n2")).Load(), "what is asked for later shows what is then")
}

// TestObservedRun observes runs from several goroutines, with observers that are created and disposed of meanwhile.
func TestObservedRun(t *testing.T) {
	before := runtime.NumGoroutine()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		g := randomGraph(rng, 60)
		plan, err := g.Compile()
		require.NoError(t, err)
		var run *kahn.Run
		begun := make(chan struct{})
		var glitches atomic.Int32
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			<-begun
			st := run.State()
			r, _ := plan.Ref(s.ID())
			if status := st.StatusSignal(r); status.Load().Terminal() {
				glitches.Add(1)
			}
			if len(s.ID())%2 == 0 {
				runtime.Gosched()
			}
			if s.ID() == "n7" {
				return nil, errTest
			}
			return nil, nil
		}
		run, err = plan.Start(t.Context(), kahn.StepFunc(step))
		require.NoError(t, err)
		st := run.State()
		require.ErrorIs(t, st.Settle(machine.Token{Ref: 0, Attempt: 1}, completed), machine.ErrDriven)
		_, ok := st.Next()
		require.False(t, ok)
		st.AbortAll()
		for r, id := range plan.Declared() {
			effect(t, st.Scope(), func(w reactive.Writer) {
				if status := st.StatusSignal(r).Get(w); status < kahn.Running {
					return
				}
				for edge := range st.Inputs(r) {
					from := plan.Edge(edge).From
					p, _ := plan.Ref(from)
					if !st.StatusSignal(p).Get(w).Terminal() && st.StatusSignal(r).Get(w) != kahn.Aborted {
						t.Errorf("%s has started before %s was done", id, from)
					}
				}
			})
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					e, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
						sum := 0
						for status := kahn.Idle; status <= kahn.Aborted; status++ {
							sum += st.CountSignal(status).Get(w)
						}
						if sum != 60 {
							t.Errorf("%d nodes", sum)
						}
					})
					if errors.Is(err, reactive.ErrDisposed) {
						return
					}
					e.Dispose()
					select {
					case <-run.Done():
						return
					default:
					}
				}
			})
		}
		close(begun)
		if seed%4 == 0 {
			st.Dispose() // in the middle
		}
		res, _ := run.Wait()
		wg.Wait()
		require.Empty(t, res.Warnings)
		require.Zero(t, glitches.Load())
		if seed%4 != 0 {
			for r, id := range plan.Declared() {
				n, _ := res.Node(id)
				require.Equal(t, n.Status, st.StatusSignal(r).Load(), "when Wait has returned the effects have run")
			}
			require.Equal(t, res.Status, st.RunStatusSignal().Load())
		}
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			break
		}
		runtime.Gosched()
		runtime.GC()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+1)
}

// TestEffectsOfARun: the errors of effects are reported and do not stop the run.
func TestEffectsOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stuck := range []bool{false, true} {
			started, release := make(chan struct{}), make(chan struct{})
			run, err := kahn.Start(t.Context(), chainGraph(3), func(context.Context, *kahn.Step) (any, error) { <-started; return nil, nil })
			require.NoError(t, err)
			st := run.State()
			goexits := 0
			effect(t, st.Scope(), func(w reactive.Writer) {
				if st.StatusSignal(0).Get(w) == kahn.Completed {
					panic(errTest)
				}
			})
			effect(t, st.Scope(), func(w reactive.Writer) {
				if st.StatusSignal(0).Get(w) == kahn.Completed {
					goexits++
					runtime.Goexit()
				}
			})
			effect(t, st.Scope(), func(w reactive.Writer) {
				if st.RunStatusSignal().Get(w).Terminal() && stuck {
					<-release
				}
			})
			close(started)
			begin := time.Now()
			res, err := run.Wait()
			require.NoError(t, err)
			if stuck {
				require.ErrorContains(t, errors.Join(res.Warnings...), "still running")
				require.Positive(t, time.Since(begin))
			} else {
				require.ErrorIs(t, errors.Join(res.Warnings...), errTest)
				require.Zero(t, time.Since(begin))
			}
			close(release)
			synctest.Wait()
			require.Equal(t, 1, goexits)
		}
	})
}

func effect(t testing.TB, in reactive.Owner, f func(reactive.Writer)) *reactive.Effect {
	t.Helper()
	e, err := reactive.NewEffect(in, f)
	require.NoError(t, err)
	return e
}

// observe creates an effect that records every value of v.
func observe(t testing.TB, st *machine.State, v *reactive.Value[bool]) *[]bool {
	t.Helper()
	seen := new([]bool)
	effect(t, st.Scope(), func(w reactive.Writer) { *seen = append(*seen, v.Get(w)) })
	return seen
}

var errTest = errors.New("test")
