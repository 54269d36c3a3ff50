package storetest_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/race"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return new(store.Memory) })
}

// defect is a correct store with one defect added.
type defect struct {
	*store.Memory
	mu     sync.Mutex
	lease  store.Lease // the newest lease
	commit func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error)
	load   func(d *defect, r *store.Run)
	grants bool // every Acquire gets a lease
	stays  bool // a lease does not run out
	loose  bool // a release of any lease releases the run
	kept   *store.Run
}

func (d *defect) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	if d.stays {
		ttl = time.Hour
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.grants {
		_ = d.Memory.Release(ctx, d.lease)
	}
	l, r, err := d.Memory.Acquire(ctx, run, owner, ttl)
	if err == nil {
		d.lease = l
	}
	return l, r, err
}

func (d *defect) newest() store.Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lease
}

func (d *defect) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if d.stays {
		ttl = time.Hour
	}
	return d.Memory.Renew(ctx, l, ttl)
}

func (d *defect) Release(ctx context.Context, l store.Lease) error {
	if d.loose {
		l = d.newest()
	}
	return d.Memory.Release(ctx, l)
}

func (d *defect) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if d.commit != nil {
		return d.commit(d, ctx, l, c)
	}
	return d.Memory.Commit(ctx, l, c)
}

func (d *defect) Load(ctx context.Context, run string) (*store.Run, error) {
	r, err := d.Memory.Load(ctx, run)
	if err == nil && d.load != nil {
		d.mu.Lock() // a check calls Load from several goroutines
		defer d.mu.Unlock()
		d.load(d, r)
	}
	return r, err
}

// losesData changes the stored columns of nodes.
func losesData(change func(n *store.Columns)) func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	return func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
		c.Nodes = slices.Clone(c.Nodes)
		for i := range c.Nodes {
			change(&c.Nodes[i].Columns)
		}
		return d.Memory.Commit(ctx, l, c)
	}
}

// TestDefects plants defects that real stores have had; at least one check must find each of them.
func TestDefects(t *testing.T) {
	commit := func(change func(c *store.Commit)) func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
		return func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			change(&c)
			return d.Memory.Commit(ctx, l, c)
		}
	}
	for name, plant := range map[string]func() *defect{
		"no token check": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) { c.Completed = nil })}
		},
		"increments are lost":         func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Readiness = nil })} },
		"nothing is enqueued":         func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Ready = nil })} },
		"the status is lost":          func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Status = kahn.RunPending })} },
		"the run record is lost":      func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Run = nil })} },
		"the time to wake is lost":    func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.WakeAt = time.Time{} })} },
		"the time to wake is kept":    func() *defect { return &defect{commit: keepsWake()} },
		"the status of nodes is lost": func() *defect { return &defect{commit: losesData(func(n *store.Columns) { n.Status = kahn.Idle })} },
		"the cause of nodes is lost": func() *defect {
			return &defect{commit: losesData(func(n *store.Columns) { n.Cause = kahn.CauseNone })}
		},
		"times are in seconds": func() *defect {
			return &defect{commit: losesData(func(n *store.Columns) { n.Start = n.Start.Truncate(time.Second) })}
		},
		"times are those of the machine": func() *defect {
			return &defect{commit: losesData(func(n *store.Columns) {
				if !n.End.IsZero() {
					n.End = time.Now()
				}
			})}
		},
		"hashes are lost": func() *defect { return &defect{commit: losesData(func(n *store.Columns) { n.Hash = nil })} },
		"values are lost": func() *defect { return &defect{commit: losesData(func(n *store.Columns) { n.Value = nil })} },
		"no value is null": func() *defect {
			return &defect{commit: losesData(func(n *store.Columns) {
				if n.Value == nil {
					n.Value = json.RawMessage("null")
				}
			})}
		},
		"terminal is forgotten": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) {
				c.Nodes = slices.Clone(c.Nodes)
				for i := range c.Nodes {
					c.Nodes[i].Terminal = false
				}
			})}
		},
		"increment twice": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) {
				c.Readiness = slices.Clone(c.Readiness)
				for i := range c.Readiness {
					c.Readiness[i].By *= 2
					c.Readiness[i].Required *= 2
				}
			})}
		},
		"overflow is cut off": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) {
				c.Readiness = slices.Clone(c.Readiness)
				for i := range c.Readiness {
					c.Readiness[i].Required += 100
				}
			})}
		},
		"enqueue before commit": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
				r, err := d.Memory.Load(ctx, l.Run)
				if err != nil {
					return 0, err
				}
				if c.Sequence == r.Sequence+1 {
					early := store.Commit{Sequence: c.Sequence, Ready: c.Ready}
					if a, err := d.Memory.Commit(ctx, l, early); err != nil || a != store.AppliedNow {
						return a, err
					}
					c.Sequence++
				}
				return d.Memory.Commit(ctx, l, c)
			}}
		},
		"a duplicate is applied": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
				a, err := d.Memory.Commit(ctx, l, c)
				if a == store.Duplicate {
					c.Sequence, c.Completed, c.Nodes = c.Sequence+1, nil, nil
					return d.Memory.Commit(ctx, l, c)
				}
				return a, err
			}}
		},
		"no fencing of commits": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, _ store.Lease, c store.Commit) (store.Applied, error) {
				return d.Memory.Commit(ctx, d.newest(), c)
			}}
		},
		"no fencing of starts": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
				if len(c.Started) > 0 {
					l = d.newest()
				}
				return d.Memory.Commit(ctx, l, c)
			}}
		},
		"attempts are not numbered": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
				r, err := d.Memory.Load(ctx, l.Run)
				c.Started = slices.Clone(c.Started)
				for i := range c.Started {
					if err == nil {
						c.Started[i].Attempt = r.Nodes[c.Started[i].Node].Attempt + 1
					}
				}
				return d.Memory.Commit(ctx, l, c)
			}}
		},
		"nothing is taken back": func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Reset = nil })} },
		"one node is taken back": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) { c.Reset = c.Reset[:min(1, len(c.Reset))] })}
		},
		"a run that has ended is not opened": func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Reopen = false })} },
		"every run that has ended is open":   func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Reopen = true })} },
		"a reset needs no redrive": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) { c.Reopen = c.Reopen || len(c.Reset) > 0 })}
		},
		"counters do not go back": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) {
				c.Readiness = slices.DeleteFunc(slices.Clone(c.Readiness), func(inc store.Readiness) bool { return inc.By < 0 })
			})}
		},
		"a node that is taken back keeps its attempts": func() *defect { return &defect{commit: keepsAttempts} },
		"nodes are taken back for good":                func() *defect { return &defect{commit: takesBackFirst} },
		"attempts are not stored":                      func() *defect { return &defect{commit: commit(func(c *store.Commit) { c.Started = nil })} },
		"only one start is stored": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) { c.Started = c.Started[:min(1, len(c.Started))] })}
		},
		"only one end is stored": func() *defect {
			return &defect{commit: commit(func(c *store.Commit) { c.Completed = c.Completed[:min(1, len(c.Completed))] })}
		},
		"starts are stored for good": func() *defect { return inParts(func(c *store.Commit) *[]store.Attempt { return &c.Started }) },
		"ends are stored for good":   func() *defect { return inParts(func(c *store.Commit) *[]store.Attempt { return &c.Completed }) },
		"a write goes on after its context": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
				a, err := d.Memory.Commit(context.WithoutCancel(ctx), l, c)
				if ctx.Err() != nil {
					return 0, ctx.Err()
				}
				return a, err
			}}
		},
		"two owners":                           func() *defect { return &defect{grants: true} },
		"a lease for ever":                     func() *defect { return &defect{stays: true} },
		"an old lease releases the new one":    func() *defect { return &defect{loose: true} },
		"queued nodes are not told":            func() *defect { return &defect{load: func(_ *defect, r *store.Run) { unqueue(r) }} },
		"the sequence starts over when loaded": func() *defect { return &defect{load: func(_ *defect, r *store.Run) { r.Sequence = 0 }} },
		"what is loaded is the store's own": func() *defect {
			return &defect{load: func(d *defect, r *store.Run) {
				if d.kept != nil {
					*r = *d.kept
				}
				d.kept = r
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // some of the checks wait
				errs := storetest.Check(t.Context(), func() store.Store {
					d := plant()
					d.Memory = new(store.Memory)
					return d
				})
				if len(errs) == 0 {
					t.Error("no check has found it")
				}
			})
		})
	}
}

// keepsWake replaces a zero WakeAt by the last WakeAt that was not zero.
func keepsWake() func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	var last time.Time
	return func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
		d.mu.Lock()
		if c.WakeAt.IsZero() {
			c.WakeAt = last
		}
		last = c.WakeAt
		d.mu.Unlock()
		return d.Memory.Commit(ctx, l, c)
	}
}

// inParts returns a store that applies a part of a commit separately, before the rest, which may be refused.
func inParts(part func(c *store.Commit) *[]store.Attempt) *defect {
	return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
		r, err := d.Memory.Load(ctx, l.Run)
		if err != nil {
			return 0, err
		}
		if list := part(&c); c.Sequence == r.Sequence+1 && len(*list) > 1 {
			early := store.Commit{Sequence: c.Sequence}
			*part(&early) = (*list)[:1]
			if a, err := d.Memory.Commit(ctx, l, early); err != nil || a != store.AppliedNow {
				return a, err
			}
			c.Sequence++
			*list = (*list)[1:]
		}
		return d.Memory.Commit(ctx, l, c)
	}}
}

func unqueue(r *store.Run) {
	for id, n := range r.Nodes {
		n.Queued = false
		r.Nodes[id] = n
	}
}

// size returns how many cases a random test tries: full if KAHN_LONG is set, raced under the race detector, else usual.
func size(usual, raced, full int) int {
	switch {
	case os.Getenv("KAHN_LONG") != "":
		return full
	case race.Enabled:
		return raced
	}
	return usual
}

// first returns the first seed of a random test: a random one if KAHN_LONG is set, else 0.
func first() uint64 {
	if os.Getenv("KAHN_LONG") != "" {
		return rand.Uint64()
	}
	return 0
}

// TestLives performs more graphs than a test of a store needs, because it also tests the engine.
func TestLives(t *testing.T) {
	t.Parallel()
	storetest.Lives(t, first(), size(40, 8, 1_000), func(*testing.T) store.Store { return new(store.Memory) }, kahntest.CheckEvents)
}

// TestLivesControl plants defects in a store that only the function Lives finds. Each defect is tried in a separate process, which must fail.
func TestLivesControl(t *testing.T) {
	t.Parallel()
	losing := func(lost func(n *store.NodeRecord) bool) func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
		return func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
			c.Nodes = slices.DeleteFunc(slices.Clone(c.Nodes), func(n store.NodeRecord) bool { return lost(&n) })
			return d.Memory.Commit(ctx, l, c)
		}
	}
	defects := map[string]func() *defect{
		"records of ended nodes are lost": func() *defect {
			return &defect{commit: losing(func(n *store.NodeRecord) bool { return n.Terminal })}
		},
		"records of nodes inside are lost": func() *defect {
			return &defect{commit: losing(func(n *store.NodeRecord) bool { return strings.Contains(n.Node, "/") })}
		},
		"the answers to steps that wait are lost": func() *defect {
			return &defect{commit: losing(func(n *store.NodeRecord) bool { return strings.Contains(string(n.Record), `"signalled"`) })}
		},
		"a run that was stopped forgets it": func() *defect {
			return &defect{commit: func(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
				if c.Status == kahn.RunCancelled {
					c.Status = kahn.RunPending
				}
				return d.Memory.Commit(ctx, l, c)
			}}
		},
		"the first record of a node stays": func() *defect {
			seen := map[string]bool{}
			return &defect{commit: losing(func(n *store.NodeRecord) bool {
				was := seen[n.Node]
				seen[n.Node] = true
				return was
			})}
		},
	}
	const variable = "KAHN_LIVES_DEFECT"
	if plant := defects[os.Getenv(variable)]; plant != nil {
		storetest.Lives(t, 0, 20, func(*testing.T) store.Store {
			d := plant()
			d.Memory = new(store.Memory)
			return d
		}, kahntest.CheckEvents)
		return
	}
	for name := range defects {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLivesControl$")
		cmd.Env = append(os.Environ(), variable+"="+name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "seed ") {
			t.Errorf("%s: no run has shown it: %v\n%s", name, err, out)
		}
	}
}

// keepsAttempts does not reset the attempts of nodes that a redrive resets.
func keepsAttempts(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	r, err := d.Memory.Load(ctx, l.Run)
	if err != nil {
		return 0, err
	}
	var again []store.Attempt
	for _, id := range c.Reset {
		for n := range r.Nodes[id].Attempt {
			again = append(again, store.Attempt{Node: id, Attempt: n + 1})
		}
	}
	c.Started = slices.Clone(c.Started)
	for i, start := range c.Started {
		if slices.Contains(c.Reset, start.Node) {
			c.Started[i].Attempt += r.Nodes[start.Node].Attempt
		}
	}
	c.Started = append(again, c.Started...)
	return d.Memory.Commit(ctx, l, c)
}

// takesBackFirst resets nodes before it applies the rest of the commit, which may be refused.
func takesBackFirst(d *defect, ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	r, err := d.Memory.Load(ctx, l.Run)
	if err != nil {
		return 0, err
	}
	if c.Reopen && c.Sequence == r.Sequence+1 {
		if a, err := d.Memory.Commit(ctx, l, store.Commit{Sequence: c.Sequence, Reopen: true, Reset: c.Reset}); err != nil || a != store.AppliedNow {
			return a, err
		}
		c.Sequence++
	}
	return d.Memory.Commit(ctx, l, c)
}

func TestMemoryAdmin(t *testing.T) {
	t.Parallel()
	storetest.RunAdmin(t, func(*testing.T) store.Admin { return new(store.Memory) })
}

func TestMemoryQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, err := range storetest.CheckQueues(t.Context(), func() store.QueueStore { return new(store.Memory) }) {
			t.Error(err)
		}
	})
}

func TestMemoryTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, err := range storetest.CheckTurns(t.Context(), func() store.TurnStore { return new(store.Memory) }) {
			t.Error(err)
		}
	})
}
