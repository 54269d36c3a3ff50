package kahn

import "math"

// View is what a guard, a condition or a step may see of the run: the node itself, root inputs, and the results of its
// ancestors. Asked for any other node it says [Idle], nil and nil. An ancestor that still runs, possible only behind an
// early join, shows its current status.
type View struct {
	run *Run
	ref Ref
}

// ID returns the id of the node that looks.
func (v View) ID() string { return v.node().ID }

// everyNode is the ref of a View that sees all nodes of its run: that of a loop's test.
const everyNode Ref = math.MaxInt32

// node is the node that looks.
func (v View) node() *Node {
	if v.ref == everyNode {
		return &v.run.outer.plan.nodes[v.run.within.ref]
	}
	return &v.run.plan.nodes[v.ref]
}

// Config returns the Config of the node that looks.
func (v View) Config() any { return v.node().Config }

// Root returns a root input.
func (v View) Root(name string) (value any, ok bool) {
	value, ok = v.run.input(name)
	return v.run.clone(value), ok
}

// Trigger returns the payload that the run was fired with. ok is false for a run that no trigger fired.
func (v View) Trigger() (payload any, ok bool) {
	if f := v.run.cfg.fired; f != nil {
		return v.run.clone(f.payload), true
	}
	return nil, false
}

// Has reports whether id names an ancestor.
func (v View) Has(id string) bool {
	_, ok := v.ancestor(id)
	return ok
}

// Status returns the status of an ancestor.
func (v View) Status(id string) Status {
	r, ok := v.ancestor(id)
	if !ok {
		return Idle
	}
	v.run.st.mu.Lock()
	defer v.run.st.mu.Unlock()
	return v.run.st.status(r)
}

// Output returns the output of an ancestor, or nil if it has not completed.
func (v View) Output(id string) any {
	r, ok := v.ancestor(id)
	if !ok {
		return nil
	}
	v.run.st.mu.Lock()
	completed := statusOf(v.run.st.words[r]) == Completed
	v.run.st.mu.Unlock()
	if !completed {
		return nil
	}
	return v.run.clone(v.run.records[r].value)
}

// Err returns the error of an ancestor that failed, was aborted or was cancelled: a [*NodeError] or an [*UpstreamError]; and that
// of a map that completed although some of its items failed: a [*MapError].
func (v View) Err(id string) error {
	r, ok := v.ancestor(id)
	if !ok {
		return nil
	}
	v.run.st.mu.Lock()
	defer v.run.st.mu.Unlock()
	if items := v.run.endedItems(r); items != nil {
		if failed := items.failedItems(); failed != nil {
			return failed
		}
	}
	return v.run.nodeError(r)
}

// RunStatus returns the status that the run is going to have, as far as it follows from its nodes. It is meant for the end
// node, which sees all of them terminal; to any other node the run is [RunRunning].
func (v View) RunStatus() RunStatus {
	if v.ref != v.run.plan.end {
		return RunRunning
	}
	v.run.st.mu.Lock()
	defer v.run.st.mu.Unlock()
	status, _ := v.run.st.runStatus(v.run.cfg.statusRule)
	return status
}

// ancestor looks a node up. It takes no time that grows with the graph where ancestry knows the answer at once.
func (v View) ancestor(id string) (Ref, bool) {
	p := v.run.plan
	target, ok := p.ids[id]
	if !ok || target >= v.ref {
		return noRef, false
	}
	if v.ref == p.end || v.ref == everyNode || len(p.edgesFrom(v.ref, target)) > 0 || p.isAncestor(target, v.ref) {
		return target, true
	}
	return noRef, false
}
