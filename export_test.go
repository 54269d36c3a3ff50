package kahn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/strict"
	"github.com/seed-c794f7ef/kahn/machine"
)

func init() { strict.Transitions = true }

// StateVisits counts the edges that a State has visited.
func StateVisits(s *machine.State) int64 { return (*machine.Locked)(s).Visited() }

// EdgeVisits counts the edges that the run visited.
func (r *Result) EdgeVisits() int64 { return r.run.st.Visited() }

// Visits is EdgeVisits of a run at work, and what Queued and Why have looked at.
func (r *Run) Visits() int64 {
	r.st.Lock()
	defer r.st.Unlock()
	return r.st.Visited()
}

// AncestrySteps counts the edges that were visited to find out which nodes are ancestors of which.
func (p *Plan) AncestrySteps() int64 {
	_, ancestors := p.net.Steps()
	return ancestors
}

// IsAncestor reports whether a path leads from a to r.
func (p *Plan) IsAncestor(a, r machine.Ref) bool { return p.net.IsAncestor(a, r) }

// ParamSteps counts the parameters that are looked at to find one of a node's.
func (p *Plan) ParamSteps(r machine.Ref, name string) int {
	_, steps := p.data[r].param(name)
	return steps
}

// Deferrals are the runs that Serve keeps apart.
type Deferrals = deferrals

// Begin is called before a run is started.
func (d *deferrals) Begin(id string) (failures int) { return d.begin(id) }

// Begun is called when a run has begun.
func (d *deferrals) Begun(id string) { d.begun(id) }

// Pause is called when a run has failed, or rests.
func (d *deferrals) Pause(id string, failures int, pause time.Duration) { d.pause(id, failures, pause) }

// Except returns what is left out of the next question, and how many runs are noted.
func (d *deferrals) Except(most time.Duration) (ids []string, starting int, wait time.Duration, noted int) {
	ids, starting, wait = d.except(most)
	return ids, starting, wait, len(d.runs)
}

// Steps counts the entries that the Runner has visited.
func (rn *Runner) Steps() int64 {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return rn.steps
}

// Leftovers names the resources that a run still holds after its end: slots, goroutines, timers, waiting nodes. It is empty
// if all were returned.
func (r *Run) Leftovers() string {
	s := &r.st
	s.Lock()
	defer s.Unlock()
	return strings.Join(append(r.held(), s.Leftovers()...), ", ")
}

func (r *Run) held() (left []string) {
	left = r.st.HeldSlots()
	for _, x := range []struct {
		what string
		n    int
	}{{"workers", r.workers}, {"timers", r.timers}} {
		if x.n != 0 {
			left = append(left, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if b := r.bell; b != nil && b.alarms.Len() > 0 {
		left = append(left, fmt.Sprintf("%d alarms", b.alarms.Len()))
	}
	if t := r.tree; t != nil {
		if t.Used != 0 || len(t.waiting) != 0 || len(t.touched) != 0 {
			left = append(left, fmt.Sprintf("%d slots, %d runs that wait, %d touched", t.Used, len(t.waiting), len(t.touched)))
		}
		for key, x := range t.keys {
			if _, used := x.Bounds(); used != 0 {
				left = append(left, fmt.Sprintf("%d slots of key %s", used, key))
			}
		}
	}
	return left
}

// SharedConfig returns a copy of the config that runs without options share.
func SharedConfig() any { return byDefault }

// PoolUse returns the use of the Runner's shared limits: slots in use, waiting claims, and the number of keys after unused
// ones were removed.
func (rn *Runner) PoolUse() (used, claims, keys int) {
	p := rn.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep()
	count := func(x *share) {
		used, claims = used+x.used, claims+x.waiting[0].Len()+x.waiting[1].Len()+x.promised[0]+x.promised[1]
	}
	if p.whole != nil {
		count(p.whole)
	}
	for _, x := range p.keys {
		count(x)
	}
	return used, claims, len(p.keys)
}

// SharedSteps counts the claims that were visited.
func (rn *Runner) SharedSteps() int64 {
	if rn.pool == nil {
		return 0
	}
	rn.pool.mu.Lock()
	defer rn.pool.mu.Unlock()
	var steps int64
	for _, x := range append(slices.Collect(maps.Values(rn.pool.keys)), rn.pool.whole) {
		if x != nil {
			steps += x.waiting[0].Steps() + x.waiting[1].Steps()
		}
	}
	return steps
}

// Rings reports whether the timer is armed that rings when a token falls due. It disarms it.
func (rn *Runner) Rings() bool {
	if rn.pool == nil {
		return false
	}
	rn.pool.mu.Lock()
	defer rn.pool.mu.Unlock()
	return rn.pool.timer != nil && rn.pool.timer.Stop()
}

// SideSteps counts the edges that were visited to find the side edges.
func (p *Plan) SideSteps() int64 {
	sides, _ := p.net.Steps()
	return sides
}

// Standings tells, edge by edge, which are side edges ("side") and which count only if no router of their target was asked
// ("spare").
func (p *Plan) Standings() (list []string) {
	for i := range p.net.Edges() {
		switch {
		case p.net.IsSide(i):
			list = append(list, "side")
		case p.net.IsSpare(i):
			list = append(list, "spare")
		default:
			list = append(list, "")
		}
	}
	return list
}

// Within returns an id that could be taken for the path of a node inside of the one with the given id.
func (p *Plan) Within(id string) (other string, ok bool) { return p.within(id) }

// BranchTexts counts the conditions whose branches were listed once for all who ask.
func BranchTexts(res *Result) (n int) {
	if texts := res.run.texts.Load(); texts != nil {
		texts.Range(func(any, any) bool { n++; return true })
	}
	return n
}

// TreeSteps counts how often nested runs were looked at.
func (r *Run) TreeSteps() int64 {
	r.st.Lock()
	defer r.st.Unlock()
	if r.tree == nil {
		return 0
	}
	return r.tree.steps
}

// OutboxSteps counts the entries of the outbox that were visited.
func (r *Run) OutboxSteps() int64 {
	r.st.Lock()
	defer r.st.Unlock()
	return r.durable.steps
}

// Watchers returns how many watch the Runner.
func (rn *Runner) Watchers() int {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return len(rn.watchers)
}

// IndexedNames returns how many names the codec of an Encoding finds without a search of its Types; -1 for another codec.
func IndexedNames(o Option) int {
	var c config
	if err := o.apply(&c); err != nil {
		return -1
	}
	if t, ok := c.codec.(types); ok {
		return len(t.index.of(t.of))
	}
	return -1
}

// Hold takes the lock of a History, as a run that teaches it does.
func (h *History) Hold() (release func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

// DeltaCounts are how many deltas nodes have emitted.
type DeltaCounts struct{ counts deltaCounts }

// Set sets the number of a node.
func (x *DeltaCounts) Set(path string, n int) { x.counts.set(path, n) }

// Of returns the number of a node.
func (x *DeltaCounts) Of(path string) int { return x.counts.of(path) }

// Saved returns what a snapshot has.
func (x *DeltaCounts) Saved() map[string]int {
	counts := map[string]int{}
	x.counts.addTo(counts)
	return counts
}

// ReadDeltas reads what a snapshot has.
func ReadDeltas(counts map[string]int) *DeltaCounts { return &DeltaCounts{readDeltas(counts)} }

// Bounds sets the bounds of a durable run's transactions: rows of nodes, and bytes of values.
func Bounds(rows, bytes int) Option {
	return optionFunc(func(c *config) error { c.bounds = &room{rows, bytes}; return nil })
}
