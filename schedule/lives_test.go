package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

var errDead = errors.New("the process was killed")

// process is the store as one process sees it. The process may be killed, and its clock may be wrong.
type process struct {
	*store.Memory
	world *world
	skew  time.Duration // how far the process's clock is wrong
	fuse  atomic.Int64  // how many calls the process can make before it dies; the last call takes effect, but its answer is lost
}

// world is the store that all processes share, with records of what happened.
type world struct {
	store.Memory
	mu    sync.Mutex
	ended map[string]int // how often each run has ended, by run
	left  map[string]bool
}

// call makes a call unless the process is dead.
func call[T any](p *process, f func() (T, error)) (x T, err error) {
	left := p.fuse.Add(-1)
	if left < 0 {
		return x, errDead
	}
	if x, err = f(); left == 0 {
		var none T
		return none, errDead
	}
	return x, err
}

func (p *process) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	var r *store.Run
	l, err := call(p, func() (l store.Lease, err error) {
		l, r, err = p.Memory.Acquire(ctx, run, owner, ttl)
		return l, err
	})
	return l, r, err
}

func (p *process) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	_, err := call(p, func() (bool, error) { return true, p.Memory.Renew(ctx, l, ttl) })
	return err
}

func (p *process) Release(ctx context.Context, l store.Lease) error {
	_, err := call(p, func() (bool, error) { return true, p.Memory.Release(ctx, l) })
	return err
}

func (p *process) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	return call(p, func() (store.Applied, error) {
		applied, err := p.Memory.Commit(ctx, l, c)
		if applied == store.AppliedNow && c.Status.Terminal() {
			p.world.mu.Lock()
			p.world.ended[l.Run]++
			p.world.left[l.Run] = c.Status != machine.RunCompleted
			p.world.mu.Unlock()
		}
		return applied, err
	})
}

func (p *process) PutSchedule(ctx context.Context, x store.Schedule, create *store.NewRun) error {
	_, err := call(p, func() (bool, error) { return true, p.Memory.PutSchedule(ctx, x, create) })
	return err
}

func (p *process) Schedules(ctx context.Context, names ...string) (list []store.ScheduleState, now time.Time, err error) {
	list, err = call(p, func() (list []store.ScheduleState, err error) {
		list, now, err = p.Memory.Schedules(ctx, names...)
		return list, err
	})
	return list, now.Add(p.skew), err
}

// Due uses the clock of the process.
func (p *process) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return call(p, func() (page store.DuePage, err error) {
		if page, err = p.Memory.Due(ctx, q); err != nil || p.skew == 0 {
			return page, err
		}
		page.Runs = slices.DeleteFunc(page.Runs, func(r store.Run) bool { return time.Until(r.WakeAt) > p.skew })
		list, err := p.List(ctx, store.Query{Filter: store.Filter{Statuses: []machine.RunStatus{machine.RunPending}}})
		for _, r := range list.Runs {
			if d := time.Until(r.WakeAt); d > 0 && d <= p.skew && !slices.Contains(q.Except, r.ID) {
				page.Runs = append(page.Runs, r)
			}
		}
		page.Next = store.Never
		return page, err
	})
}

func (p *process) Announce(ctx context.Context, a store.Announcement) error {
	_, err := call(p, func() (bool, error) { return true, p.Memory.Announce(ctx, a) })
	return err
}

// TestEachTickOnce kills processes after any call of the store; the clocks of the processes differ by up to an hour. New versions of the graph
// are deployed, and runs are pruned all the time. Each tick must have one run, which ends once. No tick may be left out if ticks may overlap;
// otherwise no two runs may run at the same time.
func TestEachTickOnce(t *testing.T) {
	t.Parallel()
	worlds := uint64(6)
	if os.Getenv("KAHN_LONG") != "" {
		worlds = 400
	}
	for seed := range worlds {
		for _, skewed := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, skewed %v", seed, skewed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { eachTickOnce(t, rand.New(rand.NewPCG(seed, 15)), skewed) })
			})
		}
	}
}

func eachTickOnce(t *testing.T, random *rand.Rand, skewed bool) {
	const lasts = 12 * time.Hour
	w := &world{ended: map[string]int{}, left: map[string]bool{}}
	// All ticks of both schedules must run. Ticks of the first schedule may overlap. Ticks of the second schedule run one after the other.
	list := []schedule.Schedule{
		{Name: "beside", Workflow: "w", Cron: "*/15 * * * *", Missed: schedule.All, Overlap: schedule.Allow},
		{Name: "after", Workflow: "w", Every: 10 * time.Minute, Missed: schedule.All, Jitter: 3 * time.Minute},
	}
	var atWork sync.Map // the runs of "after" whose step is running in a live process
	version := 0
	live := func(skew time.Duration) (kill func(now bool)) {
		p := &process{Memory: &w.Memory, world: w, skew: skew}
		p.fuse.Store(1 << 40)
		g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, Config: map[string]any{"version": version}})
		x := kahn.Service{Store: p, Poll: 5 * time.Second, OnError: func(string, store.Queue, error) {}, Workflows: []kahn.Workflow{{Graph: g, Options: []kahn.Option{kahn.Lease("", time.Minute)},
			Step: func(ctx context.Context, s *kahn.Step) (any, error) {
				if run := s.RunID(); strings.HasPrefix(run, "after") && p.fuse.Load() > 0 {
					atWork.Range(func(other, of any) bool {
						if other != run && of.(*process).fuse.Load() > 0 {
							t.Errorf("%s begins while %s is at work", run, other)
						}
						return true
					})
					atWork.Store(run, p)
					defer atWork.Delete(run)
				}
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
				return nil, context.Cause(ctx)
			}}}}
		former := version // the process also keeps the previous version, for runs that have begun with it
		for v := range former {
			old := x.Workflows[0]
			old.Graph = (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, Config: map[string]any{"version": v}})
			x.Workflows = append(x.Workflows, old)
		}
		rn := new(kahn.Runner)
		s, err := schedule.New(rn, x, list...)
		require.NoError(t, err)
		over := make(chan struct{})
		go func() { defer close(over); _ = s.Serve(t.Context()) }()
		return func(now bool) {
			if now {
				p.fuse.Store(0)
			}
			ctx, cancel := context.WithCancel(context.Background())
			if cancel(); !now {
				ctx = context.Background()
			}
			_ = rn.Shutdown(ctx)
			<-over
		}
	}
	begin := time.Now()
	var processes sync.WaitGroup
	for range 3 {
		skew := time.Duration(0)
		if skewed {
			skew = time.Duration(random.Int64N(int64(2*time.Hour))) - time.Hour
		}
		lives := make([]time.Duration, 0, 64)
		for range cap(lives) {
			lives = append(lives, time.Duration(random.Int64N(int64(40*time.Minute))))
		}
		processes.Go(func() {
			for i := 0; time.Since(begin) < lasts; i += 2 {
				kill := live(skew)
				time.Sleep(lives[i%64])
				kill(i%4 == 0)
				time.Sleep(lives[(i+1)%64] / 2)
			}
		})
	}
	for time.Since(begin) < lasts {
		time.Sleep(11 * time.Minute)
		_, err := w.Prune(t.Context(), store.PruneQuery{EndedBefore: time.Now(), Limit: store.MaxPage})
		require.NoError(t, err)
		if version < 4 && random.IntN(10) == 0 {
			version++
		}
	}
	processes.Wait()
	kill := live(0) // start one more process, which performs the remaining ticks
	time.Sleep(3 * time.Hour)
	kill(false)
	left := 0 // how many ticks of "after" were left out, because the previous run was running or still leased to a dead process
	for _, s := range list {
		times, err := schedule.Every(15 * time.Minute)
		if s.Every != 0 {
			times, err = schedule.Every(s.Every)
		}
		require.NoError(t, err)
		first := times.Next(begin)
		if skewed { // the first tick depends on the clock of the first process, which is up to an hour ahead
			for tick := range times.Between(begin.Add(-time.Hour), begin.Add(75*time.Minute)) {
				if w.ended[s.Name+"@"+tick.UTC().Format(time.RFC3339)] > 0 {
					first = tick
					break
				}
			}
		}
		for tick := range times.Between(first, begin.Add(lasts)) {
			id := s.Name + "@" + tick.UTC().Format(time.RFC3339)
			if w.ended[id] != 1 {
				t.Errorf("%s has ended %d times", id, w.ended[id])
			}
			if w.left[id] {
				require.Equal(t, "after", s.Name, id)
				left++
			}
		}
	}
	for id, n := range w.ended {
		require.Equal(t, 1, n, id)
	}
	require.Less(t, left, 24, "of 72")
}
