package kahn

import (
	"context"
	"fmt"
	"slices"
)

// Fork begins a new run with results of another one, which it does not change. The new run has an id of its own, [RunID], and the inputs
// of the old one unless it is given others. A node keeps its result, with all that is inside of it, if it completed, was skipped or was
// superseded, and the graph declares it as it was, with the same in-edges and the same inside; the graph may be another one. All other nodes run, and
// so do those that are named, and everything that follows a node that runs. They start anew, as in a [Redrive]. [ForkPreview] tells which
// nodes these are. Go functions cannot be compared: see [Plan.Hash], and name the nodes whose functions are other ones. A name that the graph does not have is an error that matches [ErrUnknownNode].
//
// The events of the new run begin with 1. Its run.started names the old run, and the nodes that keep their results have no events. Under
// [Durable] the first transaction writes all results that are kept. If the store has the fork already, because the process has died in the
// middle of it, the fork goes on; one that has ended is an error that matches [ErrFinished], see [ReadResult], and another run of that id is
// one that matches [ErrDuplicateRun]. [RunLabels] and [ParentRun] are those that are given: the fork does not inherit them. A run in a store is forked from
// [ReadSnapshot]. Values are decoded by the [Codec] and encoded again, so that the runs share blobs only by their content.
//
// Apart from this, Fork is [Execute] with the option [ForkFrom].
func Fork(ctx context.Context, g *Graph, step StepFunc, s *Snapshot, nodes []string, opts ...Option) (*Result, error) {
	return Execute(ctx, g, step, append(slices.Clone(opts), ForkFrom(s, nodes...))...)
}

// ForkFrom makes the run begin with results of a snapshot. See [Fork].
func ForkFrom(s *Snapshot, nodes ...string) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: ForkFrom(nil)", ErrBadOption)
		}
		c.from, c.redrive, c.redriven, c.fork = s, false, nodes, true
		return nil
	})
}

// ForkPreview returns the nodes that a [Fork] would run, in the order of declaration. All others keep their results. It begins no run, and
// reads no values.
func ForkPreview(p *Plan, s *Snapshot, nodes ...string) ([]string, error) {
	switch {
	case !p.isCompiled():
		return nil, ErrNoGraph
	case s == nil:
		return nil, fmt.Errorf("%w: there is no snapshot", ErrBadOption)
	}
	p.Hash() // and of its nodes
	again, err := p.forkAgain(s.file.Nodes, nodes)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, ref := range p.declared {
		if again[ref] {
			list = append(list, p.names[ref])
		}
	}
	return list, nil
}

// forkAgain tells which nodes run again in a fork.
func (p *Plan) forkAgain(nodes []nodeState, names []string) ([]bool, error) {
	again, err := p.marked(names)
	if err != nil {
		return nil, err
	}
	kept := make([]*nodeState, len(p.names))
	for i := range nodes {
		n := &nodes[i]
		if ref, ok := p.Ref(n.ID); ok && n.Hash == p.nodeHash(ref) && (n.Status == Completed || n.Status == Skipped || n.superseded()) {
			kept[ref] = n
		}
	}
	losers := map[Ref][]Ref{} // by the node that has decided without them: a loser runs again if that does, which follows it
	var work []Ref
	mark := func(r Ref) {
		if !again[r] {
			again[r] = true
			work = append(work, r)
		}
	}
	for i, named := range again {
		r, n := Ref(i), kept[i]
		if named {
			work = append(work, r)
			continue
		}
		if n == nil || r == p.end {
			mark(r)
			continue
		}
		if n.superseded() {
			if origin, ok := p.Ref(n.Origin); ok {
				losers[origin] = append(losers[origin], r)
			} else {
				mark(r)
			}
		}
	}
	for len(work) > 0 {
		r := work[len(work)-1]
		work = work[:len(work)-1]
		for _, a := range p.net.Out(r) {
			mark(a.To())
		}
		for _, loser := range losers[r] {
			mark(loser)
		}
	}
	return again, nil
}

// superseded reports whether the node has ended because no other node waited for its result any more.
func (n *nodeState) superseded() bool {
	return n.Skip == SkipSuperseded || n.Status == Cancelled && n.Cause == CauseSuperseded
}

// marked marks the nodes of the given names.
func (p *Plan) marked(names []string) ([]bool, error) {
	marks := make([]bool, len(p.names))
	for _, name := range names {
		ref, ok := p.Ref(name)
		if !ok {
			return nil, p.unknownOwn(name)
		}
		marks[ref] = true
	}
	return marks, nil
}

// spread marks the descendants of the marked nodes, but for those that stay.
func (p *Plan) spread(again, stays []bool) {
	follows := make([]bool, len(again))
	for r := range again { // predecessors come first
		for _, i := range p.net.In(Ref(r)) {
			from := p.net.Source(i)
			follows[r] = follows[r] || again[from] || follows[from]
		}
		again[r] = again[r] || follows[r] && !(stays != nil && stays[r])
	}
}

// fork makes the restoration of a new run: that of the results which it keeps.
func (x *restoration) fork(p *Plan, c *config) error {
	again, err := p.forkAgain(x.file.Nodes, c.redriven)
	if err != nil {
		return err
	}
	old := &x.file
	if c.runID == old.Run {
		return fmt.Errorf("%w: a fork of run %s needs an id of its own: see RunID", ErrBadOption, quoteID(old.Run))
	}
	var kept []nodeState
	for i := range old.Nodes {
		if ref, ok := p.Ref(old.Nodes[i].ID); ok && !again[ref] {
			kept = append(kept, old.Nodes[i])
		}
	}
	forgetEvents(kept)
	x.file = snapshotFile{Version: old.Version, Graph: p.name, Hash: p.Hash(), Epoch: 1, Forked: old.Run, Inputs: old.Inputs, Fired: old.Fired, Estimates: old.Estimates, Mode: old.Mode, Nodes: kept}
	x.crashed, x.anew = false, true
	c.from = &Snapshot{file: x.file, codec: c.from.codec} // what else reads it is not to find the events of the old run
	x.held, err = x.hold(p, c, kept)
	return err
}

// forgetEvents takes the ids of another run's events out of nodes, and of those inside of them.
func forgetEvents(nodes []nodeState) {
	for i := range nodes {
		n := &nodes[i]
		n.Event, n.Latest, n.Epoch = 0, 0, 0
		if n.Inside != nil {
			n.Inside.First = 0
			forgetEvents(n.Inside.Nodes)
		}
	}
}
