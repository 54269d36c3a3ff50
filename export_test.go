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

// StateVisits returns the number of edges that a State has visited.
func StateVisits(s *machine.State) int64 { return (*machine.Locked)(s).Visited() }

// EdgeVisits returns the number of edges that the run has visited.
func (r *Result) EdgeVisits() int64 { return r.run.st.Visited() }

// Visits is EdgeVisits for a run that has not ended. It also counts the edges that Queued and Why have visited.
func (r *Run) Visits() int64 {
	r.st.Lock()
	defer r.st.Unlock()
	return r.st.Visited()
}

// AncestrySteps returns the number of edges that were visited to decide which nodes are ancestors.
func (p *Plan) AncestrySteps() int64 {
	_, ancestors := p.net.Steps()
	return ancestors
}

// IsAncestor reports whether a path leads from a to r.
func (p *Plan) IsAncestor(a, r machine.Ref) bool { return p.net.IsAncestor(a, r) }

// ParamSteps returns the number of parameters that the search for a parameter of a node examines.
func (p *Plan) ParamSteps(r machine.Ref, name string) int {
	_, steps := p.data[r].param(name)
	return steps
}

// Deferrals holds the runs that Serve defers.
type Deferrals = deferrals

// Begin is called before a run starts.
func (d *deferrals) Begin(id string) (failures int) { return d.begin(id) }

// Begun is called when a run has begun.
func (d *deferrals) Begun(id string) { d.begun(id) }

// Pause is called when a run has failed, or is at rest.
func (d *deferrals) Pause(id string, failures int, pause time.Duration) { d.pause(id, failures, pause) }

// Except returns the runs that the next query of the store omits, and the number of recorded runs.
func (d *deferrals) Except(most time.Duration) (ids []string, starting int, wait time.Duration, noted int) {
	ids, starting, wait = d.except(most)
	return ids, starting, wait, len(d.runs)
}

// Steps returns the number of entries that the Runner has visited.
func (rn *Runner) Steps() int64 {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return rn.steps
}

// Leftovers lists the resources that a run still holds after its end: slots, goroutines, timers, waiting nodes. It returns "" if the run holds
// none.
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
	}{{"workers", int(r.workers)}, {"timers", int(r.timers)}} {
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

// SharedConfig returns a copy of the config that all runs without options share.
func SharedConfig() any { return byDefault }

// PoolUse returns the use of the Runner's shared limits: used slots, waiting claims, and the number of keys. It first removes unused keys.
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
	for _, x := range p.groups {
		count(x)
	}
	return used, claims, len(p.keys)
}

// SharedSteps returns the number of claims that were visited.
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

// Rings reports whether the timer for the next due token is set, and stops this timer.
func (rn *Runner) Rings() bool {
	if rn.pool == nil {
		return false
	}
	rn.pool.mu.Lock()
	defer rn.pool.mu.Unlock()
	return rn.pool.timer != nil && rn.pool.timer.Stop()
}

// SideSteps returns the number of edges that were visited to find the side edges.
func (p *Plan) SideSteps() int64 {
	sides, _ := p.net.Steps()
	return sides
}

// Standings returns "side" for each side edge, "spare" for each edge that counts only if no router of its target was evaluated, and "" for any
// other edge. A router of a node is a condition that chooses between branches, and the node is on one of them.
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

// Within returns an id that looks like the path of a node inside the node with the given id.
func (p *Plan) Within(id string) (other string, ok bool) { return p.within(id) }

// BranchTexts returns the number of conditions whose list of branches was computed. Each list is computed once.
func BranchTexts(res *Result) (n int) {
	if texts := res.run.texts.Load(); texts != nil {
		texts.Range(func(any, any) bool { n++; return true })
	}
	return n
}

// TreeSteps returns the number of visits to nested runs.
func (r *Run) TreeSteps() int64 {
	r.st.Lock()
	defer r.st.Unlock()
	if r.tree == nil {
		return 0
	}
	return r.tree.steps
}

// OutboxSteps returns the number of outbox entries that were visited.
func (r *Run) OutboxSteps() int64 {
	r.st.Lock()
	defer r.st.Unlock()
	return r.durable.steps
}

// Watchers returns the number of watchers of the Runner.
func (rn *Runner) Watchers() int {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return len(rn.watchers)
}

// IndexedNames returns the number of names in the index of an Encoding's Types, or -1 for another codec.
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

// Hold takes the lock of a History, like a run that adds its durations.
func (h *History) Hold() (release func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

// DeltaCounts counts the deltas that nodes have emitted.
type DeltaCounts struct{ counts deltaCounts }

// Set sets the count of a node.
func (x *DeltaCounts) Set(path string, n int) { x.counts.set(path, n) }

// Of returns the count of a node.
func (x *DeltaCounts) Of(path string) int { return x.counts.of(path) }

// Saved returns the counts in the form of a snapshot.
func (x *DeltaCounts) Saved() map[string]int {
	counts := map[string]int{}
	x.counts.addTo(counts)
	return counts
}

// ReadDeltas returns the counts of a snapshot.
func ReadDeltas(counts map[string]int) *DeltaCounts { return &DeltaCounts{readDeltas(counts)} }

// Bounds sets the bounds of a durable run's transactions: rows of nodes, and bytes of values.
func Bounds(rows, bytes int) Option {
	return optionFunc(func(c *config) error { c.bounds = &room{rows, bytes}; return nil })
}

// GroupRuns returns the number of runs, including nested ones, that share a group of the Runner with other processes.
func (rn *Runner) GroupRuns(group string) int {
	rn.pool.mu.Lock()
	defer rn.pool.mu.Unlock()
	return len(rn.pool.groups[group].stakes)
}

// KeptTexts returns the number of nodes, nested runs not included, whose encoded values the run keeps.
func KeptTexts(r *Run) (n int) {
	r.st.Lock()
	defer r.st.Unlock()
	for _, x := range r.extras {
		if x.texts != nil {
			n++
		}
	}
	return n
}
