package kahn

import (
	"time"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Estimate returns how long a node is expected to take. This is the time that [Map.Estimate] or Node.Estimate declares. If neither declares one, it
// is the time that the run's [History] knew for the node's path when the run started. The History measures a composite from its start to its end.
// With the option [Estimates], Estimate returns the node's duration in the earlier run that the option names, or else the time that the node
// declares. The second result is false if none of these times is known, or if the path names no node now. For the form of the path, see [Run.Node].
func (r *Run) Estimate(path string) (time.Duration, bool) {
	r.st.Lock()
	defer r.st.Unlock()
	at, lost := r.locate(path)
	if lost != nil {
		return 0, false
	}
	return at.estimate()
}

func (at place) estimate() (time.Duration, bool) {
	r, ref := at.run, at.ref
	if r.plan.estimates != nil {
		return r.plan.estimates[ref], true
	}
	if took, ok := r.cfg.estimates.took(r.plan.names[ref]); ok {
		return time.Duration(took), true
	}
	if d := r.plan.node(ref).Estimate; d > 0 {
		return d, true
	}
	known := r.estimates()
	if known == nil || r.cfg.estimates != nil {
		return 0, false
	}
	took, ok := known.Paths[r.learnedPath(r.learnedPrefix(), ref)]
	return time.Duration(took), ok
}

// Forecast contains the expected remaining time of a run: see [Run.Forecast].
type Forecast struct {
	// Left is the expected time until the run ends, not counting the time for which nodes wait for signals or other runs.
	Left time.Duration
	// Waits is true if a node waits for a signal or for another run, or if a gate has not ended. The gate may be inside a composite that has not begun
	// yet. Left does not contain the time of these waits.
	Waits bool
	// Late is the largest time by which a running step exceeds its estimate. It is 0 if no step exceeds its estimate. If Late is not 0, Left may be too
	// small, since Forecast assumes that every step that exceeds its estimate ends now.
	Late time.Duration
	// LateNode is the path, as for [Run.Node], of the step that exceeds its estimate by Late. It is empty if Late is 0.
	LateNode string
}

// Forecast returns how long the run is expected to take from now. It uses the estimates by which the run orders its nodes: see [History] and
// [Estimates]. The second result is false if Forecast needs an estimate that is not known. It is also false while the run is pending, is being
// stopped or left, or undoes nodes, and after the run has ended.
//
// Left is the length of the longest path of nodes that have not ended. Under [Waves] it is the sum, over the tiers, of the longest node of each tier.
// A running node counts with its estimate minus the time for which it has run, but at least with 0. A node that backs off counts with its estimate
// plus the rest of the delay. Left is at least the remaining work divided by [Limit] or Map.Limit. Forecast ignores other limits and rates. A
// composite that has begun counts with the remaining time of its graph. But a loop counts with at least its own estimate minus the time for which it
// has run. Gates, conditions and suspended nodes count with 0. The end node does not count. A node that the run is going to skip counts like any
// other node until the run has skipped it. Each call visits all nodes.
func (r *Run) Forecast() (Forecast, bool) {
	r = r.outermost()
	r.st.Lock()
	defer r.st.Unlock()
	if r.stage < stageRunning || r.concluded() || r.leaving || r.compensation() == CompensationRunning || r.st.StoppedFor() != CauseNone {
		return Forecast{}, false
	}
	o := outlook{now: r.now()}
	x, ok := o.ofRun(r)
	if !ok {
		return Forecast{}, false
	}
	f := Forecast{Left: time.Duration(x.left), Waits: o.waits, Late: time.Duration(o.late)}
	if o.late > 0 {
		f.LateNode = o.latest.run.path(o.latest.ref)
	}
	return f, true
}

// outlook computes a forecast. The caller holds the run's lock.
type outlook struct {
	now    int64
	waits  bool
	late   int64          // the largest time by which a running step exceeds its estimate, in ns
	latest place          // the step that exceeds its estimate by this time, if late is not 0
	asks   map[*Plan]bool // for each plan: whether there is a gate in its own graph or in its composites
}

// expected contains two times of a node or a run, in ns. The field `left` is the time until the node or run ends. The field `work` is the time for
// which the steps will still hold slots of the run.
type expected struct{ left, work int64 }

// ofRun computes the remaining time of a run or nested run. The result `ok` is false if this time is not known.
func (o *outlook) ofRun(r *Run) (sum expected, ok bool) {
	p := r.plan
	var tiers []int64                    // under Waves: the longest node of each tier
	after := make([]int64, len(p.names)) // for each node: the length of the longest path that begins with it; 0 for a node that has ended
	held := int64(0)                     // the time for which nodes will still hold slots of the run's own limit
	for i := len(after) - 1; i >= 0; i-- {
		ref := machine.Ref(i)
		if r.st.Word(ref).Status().Terminal() || ref == p.end {
			continue
		}
		x, ok := o.ofNode(place{r, ref})
		if !ok {
			return expected{}, false
		}
		if r.cfg.mode == Waves {
			tier := p.Tier(ref)
			tiers = append(tiers, make([]int64, max(0, tier+1-len(tiers)))...)
			tiers[tier] = max(tiers[tier], x.left)
		}
		for _, a := range p.net.Out(ref) {
			after[ref] = max(after[ref], after[a.To()])
		}
		after[ref] = saturate.Add(after[ref], x.left)
		sum.left, sum.work = max(sum.left, after[ref]), saturate.Add(sum.work, x.work)
		if r.items == nil {
			held = sum.work
		} else {
			held = saturate.Add(held, x.left) // an item holds its slot from its start to its end, whatever nodes are inside it
		}
	}
	inTiers := int64(0)
	for _, longest := range tiers {
		inTiers = saturate.Add(inTiers, longest)
	}
	if sum.left = max(sum.left, inTiers); r.cfg.limit > 0 {
		sum.left = max(sum.left, held/int64(r.cfg.limit))
	}
	return sum, true
}

// ofNode computes the remaining time of a node that has not ended.
func (o *outlook) ofNode(at place) (expected, bool) {
	r, ref := at.run, at.ref
	w := r.st.Word(ref)
	begun := w.Status() == Running || w.Status() == Suspended
	switch inside := r.performsInside(ref); {
	case w.Is(machine.WordStopping):
		return expected{}, true
	case inside && begun:
		return o.ofComposite(at)
	case r.plan.net.Is(ref, machine.FlagGate) || w.Status() == Suspended:
		o.waits = true
		return expected{}, true
	case inside:
		o.waits = o.waits || o.hasGates(r.plan.sub(ref))
	case r.plan.net.Is(ref, machine.FlagInline):
		return expected{}, true
	}
	own, ok := o.own(at)
	if -own > o.late {
		o.late, o.latest = -own, at
	}
	own = max(own, 0)
	left := own
	if w.Status() == Retrying {
		left = saturate.Add(left, max(0, r.extras[ref].due-o.now))
	}
	return expected{left, own}, ok
}

// ofComposite computes the remaining time of a composite that has begun.
func (o *outlook) ofComposite(at place) (expected, bool) {
	own, known := o.own(at)
	own = max(own, 0)
	c := at.child()
	if c == nil || c.concluded() { // a loop is between two iterations, or the composite is about to end
		return expected{own, own}, known
	}
	x, ok := o.ofRun(c)
	switch {
	case !ok:
		return expected{own, own}, known
	case c.iteration > 0:
		x.left, x.work = max(x.left, own), max(x.work, own)
	}
	return x, true
}

// The method `own` returns the node's own estimate minus the time for which the node has run. It is negative if the node exceeds its estimate. The
// node's own estimate is the rank of the node minus the largest rank of its successors.
func (o *outlook) own(at place) (left int64, known bool) {
	r, ref := at.run, at.ref
	if known = r.expects(ref); !known {
		return 0, false
	}
	left = r.st.Rank(ref)
	longest := int64(0)
	for _, a := range r.plan.net.Out(ref) {
		longest = max(longest, r.st.Rank(a.To()))
	}
	if left -= longest; r.st.Word(ref).Status() == Running {
		left -= o.now - r.attemptStart(ref, r.extras[ref])
	}
	return left, true
}

// The method `expects` reports whether the run uses an estimate to order the node. A History may have derived this estimate from other nodes.
func (r *Run) expects(ref machine.Ref) bool {
	switch p := r.plan; {
	case p.estimates != nil || p.node(ref).Estimate > 0:
		return true
	case r.cfg.estimates != nil:
		_, ok := r.cfg.estimates.took(p.names[ref])
		return ok
	}
	return r.estimates() != nil
}

// hasGates reports whether a graph, or a graph nested in it, has a gate. It returns false if p is nil, which means that the graph is not known.
func (o *outlook) hasGates(p *Plan) bool {
	if p == nil {
		return false
	}
	has, known := o.asks[p]
	if known {
		return has
	}
	if o.asks == nil {
		o.asks = map[*Plan]bool{}
	}
	for ref := range p.names {
		r := machine.Ref(ref)
		if has = p.net.Is(r, machine.FlagGate) || o.hasGates(p.sub(r)); has {
			break
		}
	}
	o.asks[p] = has
	return has
}
