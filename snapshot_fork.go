package kahn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// This file determines, at every depth, which nodes run again when a run is redriven, forked or adopted. It finds these nodes in the snapshot, level
// by level, from the outside to the inside, and removes them. The run then continues with the remaining nodes, as from any snapshot.

// RedriveMode changes which nodes a [Redrive] or a [Fork] repeats. Each mode is an option. Modes add up: pass several options, or join the modes by
// |. A run that has a mode, but is neither a redrive nor a fork, is refused with [ErrBadOption].
type RedriveMode uint8

// The modes of redrives and forks.
const (
	// KeepDescendants makes a redrive reset as little as possible: completed and skipped descendants of the nodes that run again stay unchanged, with
	// their outputs. Descendants that failed, were aborted, were cancelled or had not ended also run again. The end node always runs again. A kept node
	// does not belong to the new epoch, so it does not handle failures of the nodes that run again. A fork with this mode is refused with
	// [ErrBadOption].
	KeepDescendants RedriveMode = 1 << iota
	// DespiteHandlers lets a redrive or a fork repeat failures that other nodes have handled. For example, sending the goods failed, so another node
	// refunded the payment. A redrive would now send the goods although the money was returned. Without this mode such a redrive or fork is refused:
	// the error matches [ErrHandlers], and names up to 10 handlers, each with a failure that it has handled. A handler is a completed node that ran
	// because of a catch edge, [OneFailed] or [AllFailed]. A node that ran only on branches of an error boundary is a handler if the boundary has read
	// the status or the error of a failed node. Cleanup nodes and the end node are not handlers. Without this mode a redrive is refused if it repeats a
	// handler, even a named handler or a handler in a composite that begins again. The redrive is also refused if it repeats a handled failure and
	// keeps the handler, see [KeepDescendants]. If a compensation failed or has not ended, the redrive is refused with [ErrCompensation]. A fork is
	// refused if it repeats a handled failure and keeps the result of an ancestor of the handler. Older versions of kahn do not record what a boundary
	// reads. In their runs each boundary counts as having read all nodes that it follows.
	DespiteHandlers
	// Anew makes a redrive or a fork begin the named composites, and all nodes inside them, from the beginning. Without Anew, a named composite
	// continues inside if a node inside it failed: only nodes inside it run again.
	Anew
	// RepeatCompensations makes a redrive repeat the failed compensations of the named nodes, with unchanged idempotency keys. Without names it repeats
	// all failed compensations. No node runs. The run ends again with its old status, but without the failures of the compensations that now succeed.
	RepeatCompensations
	// CompensatedByHand makes a redrive record that a person has undone the effects of the named nodes. Without names it does this for all nodes
	// whose compensations have failed. The Request of the redrive names this person. The events node.compensated contain the Request.
	CompensatedByHand

	redriveModes = KeepDescendants | DespiteHandlers | Anew | RepeatCompensations | CompensatedByHand
	repairs      = RepeatCompensations | CompensatedByHand
)

func (m RedriveMode) apply(c *config) error {
	if m == 0 || m&^redriveModes != 0 {
		return fmt.Errorf("%w: RedriveMode(%d)", ErrBadOption, m)
	}
	if c.repeats |= m; c.repeats&repairs != 0 && c.repeats&(c.repeats-1) != 0 {
		return fmt.Errorf("%w: RepeatCompensations and CompensatedByHand run no node again, so each of them excludes all other RedriveModes", ErrBadOption)
	}
	return nil
}

// The type `redo` determines how the nodes that run again are chosen.
type redo struct {
	// Strict is set for a fork and an adoption: a node in a composite runs again unless it completed, was skipped or was superseded.
	Strict bool `json:"strict,omitempty"`
	Keep   bool `json:"keep,omitempty"` // see KeepDescendants
	Anew   bool `json:"anew,omitempty"`
	// Despite permits repeating handled failures, see DespiteHandlers.
	Despite bool `json:"despite,omitempty"`

	fork bool // set for a fork: an expanded node begins from its beginning, since a fork's store does not contain the nodes inside it
}

// redoState is the part of a snapshot that determines which nodes run again inside an expanded node. It is used when the node's graph is known.
type redoState struct {
	redo
	All   bool     `json:"all,omitempty"`
	Names []string `json:"names,omitempty"`
	Open  bool     `json:"open,omitempty"` // set if the node had not ended: unfinished composites inside it then continue
}

// The method `level` calls [redo.level] for p, the graph of the expanded node, when this graph is known.
func (d *redoState) level(p *Plan, in *insideState, prefix string) (*again, error) {
	return d.redo.level(p, in.Nodes, d.Names, d.All, prefix, !d.Open)
}

// The type `again` contains the nodes of one graph that run again.
type again struct {
	plan   *Plan                  // nil for an expanded node, since its graph is not known
	runs   []bool                 // by Ref: whether the node begins again
	inside map[machine.Ref]*again // the composites that continue inside, each with the nodes that run again inside it
	// For a loop: iteration is the current iteration, and back is the iteration with which the loop begins again, or 0 if the loop continues in
	// its current iteration.
	iteration, back int
	later           *redoState // for an expanded node with nodes inside that run again: it determines these nodes; otherwise nil
}

// is(r) reports whether node r begins again or continues inside, see again.inside.
func (a *again) is(r machine.Ref) bool { return a.runs[r] || a.inside[r] != nil }

// marks reports, by Ref, which nodes begin again or continue inside.
func (a *again) marks() []bool {
	marks := slices.Clone(a.runs)
	for r := range a.inside {
		marks[r] = true
	}
	return marks
}

// The method `level` finds the nodes that run again in one graph, or among the items of a map. These are the named nodes, undone nodes and, if `all`
// is set, the nodes that failed or were stopped. If `ended` is set, the composite around the nodes has ended, and nodes that have not ended also run
// again. `level` adds all followers, see spread. The paths of the nodes begin with prefix, which is empty for the outermost graph.
func (d *redo) level(p *Plan, nodes []nodeState, names []string, all bool, prefix string, ended bool) (*again, error) {
	at, err := p.placed(nodes, prefix)
	if err != nil {
		return nil, err
	}
	named, parts, err := p.parted(names, at, prefix)
	if err != nil {
		return nil, err
	}
	a := &again{plan: p, runs: make([]bool, len(at)), inside: map[machine.Ref]*again{}}
	for r, n := range at {
		ref := machine.Ref(r)
		switch {
		case ended && n != nil && !n.Status.Terminal():
			a.runs[ref] = true
			continue
		case n.isUndone():
		case !named[ref] && parts[ref] == nil && !(all && n != nil && d.repeats(n)):
			continue
		}
		if err := d.node(a, ref, n, named[ref], all, parts[ref], prefix); err != nil {
			return nil, err
		}
	}
	d.spread(a, at, prefix == "")
	return a, nil
}

// The method `outermost` does what `level` does, for the outermost graph in a fork or an adoption. The plan may describe another graph than the
// snapshot, so `outermost` ignores nodes that are not in the plan.
func (d *redo) outermost(p *Plan, nodes []nodeState, names []string) (*again, error) {
	p.Hash() // also computes the hashes of the nodes
	at := p.found(nodes)
	named, parts, err := p.parted(names, at, "")
	if err != nil {
		return nil, err
	}
	begin := make([]bool, len(at))
	for r := range begin {
		begin[r] = named[machine.Ref(r)] || parts[machine.Ref(r)] != nil
	}
	a := &again{plan: p, runs: p.forkAgain(nodes, begin), inside: map[machine.Ref]*again{}}
	marks := slices.Clone(a.runs)
	for r, n := range at {
		ref := machine.Ref(r)
		follows := slices.ContainsFunc(p.net.In(ref), func(i int32) bool { return marks[p.net.Source(i)] })
		if !marks[ref] || n == nil || n.Inside == nil || follows {
			continue
		}
		a.runs[ref] = false
		if err := d.node(a, ref, n, named[ref], true, parts[ref], ""); err != nil {
			return nil, err
		}
		a.runs[ref] = a.inside[ref] == nil
	}
	return a, nil
}

// The method `repeats` reports whether a node runs again because of its status, or may contain nodes that run again.
func (d *redo) repeats(n *nodeState) bool {
	switch n.Status {
	case Completed, Skipped:
		return false
	case Failed, Aborted, Cancelled:
		return !d.Strict || !n.superseded()
	}
	return d.Strict || n.Inside != nil
}

// The method `node` decides whether a chosen node begins again, continues inside, or stays unchanged.
func (d *redo) node(a *again, ref machine.Ref, n *nodeState, named, all bool, rests []string, prefix string) error {
	if n == nil || named && d.Anew || n.beginsAnew() || !d.goesOn(a.plan, ref, n, prefix == "") {
		// A path may lead into a graph that a step has returned. The plan does not know this graph, but the snapshot has its nodes.
		var before insideState
		if n != nil {
			before.Nodes = []nodeState{*n}
		}
		for _, rest := range rests {
			id := a.plan.names[ref]
			if n.noItems(a.plan, ref) {
				return fmt.Errorf("%w: %s: the map has no items", ErrUnknownNode, quoteID(prefix+id+rest))
			}
			if !a.plan.leads(id+rest) && !before.has(id+rest) {
				return a.plan.unknownPath(prefix, id+rest)
			}
		}
		a.runs[ref] = named || rests != nil || d.Strict || n.Status.Terminal()
		return nil
	}
	in, err := d.into(a.plan, ref, n, rests, named || all && d.repeats(n), prefix)
	if err != nil {
		return err
	}
	goesOn := in.any()
	// If a composite is named together with nodes inside it, the composite's own name decides whether it begins again.
	if named && rests != nil {
		alone, err := d.into(a.plan, ref, n, nil, true, prefix)
		if err != nil {
			return err
		}
		goesOn = alone.any()
	}
	switch {
	case goesOn || n.Status.Terminal() && n.Status != Completed && n.Status != Skipped || d.Strict && !n.Status.Terminal():
		a.inside[ref] = in
	case named:
		a.runs[ref] = true // nothing inside the node has failed, so the node begins again
	}
	return nil
}

// stoppedOpen reports whether an expanded node failed or was stopped before its step had returned the graph again. Some nodes inside it have not
// ended. They begin again when the expanded node continues inside.
func (n *nodeState) stoppedOpen() bool {
	return n.isStopped() && slices.ContainsFunc(n.Inside.Nodes, func(in nodeState) bool { return !in.Status.Terminal() })
}

// isUndone reports whether the node, or a node inside it, was undone or is being undone. Such a node runs again.
func (n *nodeState) isUndone() bool {
	return n != nil && (n.Undo != nil && !n.Undo.Inside || n.Inside != nil && n.Inside.isUndone())
}

func (in *insideState) isUndone() bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool { return n.isUndone() }) || in.isPastUndone()
}

// isPastUndone reports whether a node in an earlier iteration of a loop was undone or is being undone.
func (in *insideState) isPastUndone() bool {
	return slices.ContainsFunc(in.Past, func(past insideState) bool { return past.isUndone() })
}

// beginsAnew reports whether an undone node begins again as a whole: the node itself was undone, or it is a loop and a node in an earlier iteration
// was undone.
func (n *nodeState) beginsAnew() bool {
	return n.Undo != nil && !n.Undo.Inside || n.Inside != nil && n.Inside.isPastUndone()
}

// undecided appends the paths of the nodes whose compensation has not ended or has failed. It is unknown whether these nodes are undone.
func undecided(list []string, nodes []nodeState, prefix string) []string {
	for i := range nodes {
		n := &nodes[i]
		if n.Undo != nil && n.Undo.Status != CompensationDone {
			list = append(list, prefix+n.ID)
		}
		if n.Inside == nil {
			continue
		}
		list = undecided(list, n.Inside.Nodes, n.prefixInside(prefix))
		for _, past := range n.Inside.Past {
			of := nodeState{ID: n.ID, Inside: &past}
			list = undecided(list, past.Nodes, of.prefixInside(prefix))
		}
	}
	return list
}

// refuseUndecided returns an error if the function `undecided` finds a node.
func refuseUndecided(nodes []nodeState) error {
	list := undecided(nil, nodes, "")
	if len(list) == 0 {
		return nil
	}
	more := ""
	if len(list) > 1 {
		more = fmt.Sprintf(" and %d more", len(list)-1)
	}
	return fmt.Errorf("%w: it is not known whether the effects of node %s%s are undone: first repeat the compensation, or declare it done, or give DespiteHandlers to run the node again", ErrCompensation, quoteID(list[0]), more)
}

// noItems reports whether a node is a map whose list was empty.
func (n *nodeState) noItems(p *Plan, ref machine.Ref) bool {
	return n != nil && n.Status == Completed && (n.Inside == nil || n.Inside.Items == 0) && !n.Memoized && !n.Fallback && p.net.Is(ref, machine.FlagComposite) && p.node(ref).Map != nil
}

// The method `any` reports whether at least one node runs again.
func (a *again) any() bool {
	return a.back > 0 || a.later != nil || len(a.inside) > 0 || slices.Contains(a.runs, true)
}

// goesOn reports whether a composite can continue inside. It can if it has begun, it does not wait for its next attempt, and its declaration is
// unchanged. In a fork, an expanded node cannot continue inside.
func (d *redo) goesOn(p *Plan, ref machine.Ref, n *nodeState, outermost bool) bool {
	// A Ready node waits for its next attempt. But a Ready node that was expanded continues its attempt: its step is called again only to return the
	// graph.
	next := n.Status == Retrying || n.Status == Ready && !n.expanded()
	if n.Inside == nil || next || outermost && n.Hash != p.nodeHash(ref) {
		return false
	}
	if n.expanded() {
		return !d.fork
	}
	if !p.net.Is(ref, machine.FlagComposite) {
		return false // the node is mocked
	}
	node := p.node(ref)
	return node.Map == nil || n.Inside.Items > 0 && n.List != nil
}

// The method `into` returns the nodes inside a composite that run again. The parameter `rests` lists the named paths into the composite, without the
// composite's own path.
func (d *redo) into(p *Plan, ref machine.Ref, n *nodeState, rests []string, all bool, prefix string) (*again, error) {
	in, within := n.Inside, n.prefixInside(prefix)
	names := make([]string, len(rests))
	unknown := func(rest string) error { return p.unknownPath(prefix, n.ID+rest) }
	inner := p.sub(ref)
	switch {
	case n.expanded():
		for i, rest := range rests {
			if names[i] = strings.TrimPrefix(rest, "/"); !in.has(names[i]) {
				return nil, unknown(rest)
			}
		}
		if all = all && d.repeatsInside(in); !all && len(names) == 0 && !in.isUndone() && !n.stoppedOpen() {
			return &again{}, nil
		}
		return &again{later: &redoState{*d, all, names, !n.Status.Terminal()}}, nil
	case p.node(ref).Map != nil:
		inner = p.items[ref].repeated(n.ID, in.Items)
		for i, rest := range rests {
			names[i] = n.ID + rest
		}
	case p.node(ref).Loop != nil:
		back := 0
		for i, rest := range rests {
			digits, name, inside := strings.Cut(strings.TrimPrefix(rest, "#"), "/")
			k, err := strconv.Atoi(digits)
			switch {
			case err != nil || k < 1 || k > in.Iteration || strconv.Itoa(k) != digits || inside && k < in.Iteration && !inner.leads(name):
				return nil, unknown(rest)
			case inside && k < in.Iteration:
				return nil, fmt.Errorf("%w: %s: a node can be named only in the last iteration: name the whole iteration instead", ErrBadOption, quoteID(prefix+n.ID+rest))
			case !inside && (back == 0 || k < back):
				back = k
			}
			names[i] = name
		}
		switch {
		case back > 1 && back < in.Iteration && len(in.Collected) < back-1:
			return nil, fmt.Errorf("%w: the output of iteration %d of loop %s is no longer known, since Loop.Collect does not keep it: name the first or the last iteration", ErrBadOption, back-1, quoteID(prefix+n.ID))
		case back > 0:
			return &again{back: back}, nil
		case !in.Due.IsZero(): // the loop pauses: no node of its next iteration has run yet
			for i, rest := range rests {
				if !inner.leads(names[i]) {
					return nil, unknown(rest)
				}
			}
			return &again{}, nil
		}
	default:
		for i, rest := range rests {
			var ok bool
			if names[i], ok = strings.CutPrefix(rest, "/"); !ok {
				return nil, unknown(rest)
			}
		}
	}
	a, err := d.level(inner, in.Nodes, names, all, within, n.Status.Terminal())
	if a != nil {
		a.iteration = in.Iteration
	}
	return a, err
}

// The method `has` reports whether a path, relative to the composite, names a node inside it.
func (in *insideState) has(path string) bool {
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.ID == path {
			return true
		}
		if n.Inside == nil {
			continue
		}
		if digits, ok := strings.CutPrefix(path, n.ID+"#"); ok {
			if k, err := strconv.Atoi(digits); err == nil && k > 0 && k <= n.Inside.Iteration && strconv.Itoa(k) == digits {
				return true
			}
		}
		prefix := n.prefixInside("")
		if n.Inside.Items > 0 {
			prefix = ""
		}
		if rest, ok := strings.CutPrefix(path, prefix); ok && n.Inside.has(rest) {
			return true
		}
	}
	return false
}

// repeatsInside reports whether a node inside, at any depth, runs again because of its status.
func (d *redo) repeatsInside(in *insideState) bool {
	return slices.ContainsFunc(in.Nodes, func(n nodeState) bool {
		return d.repeats(&n) && (n.Inside == nil || n.Status.Terminal()) || n.Inside != nil && !n.Status.Terminal() && d.repeatsInside(n.Inside)
	})
}

// The method `spread` adds the end node, and all followers of the nodes that run again. If Keep is set, `spread` omits completed and skipped
// followers.
func (d *redo) spread(a *again, at []*nodeState, outermost bool) {
	p := a.plan
	for grown := true; grown; {
		if p.end != noRef && !a.runs[p.end] && (outermost || a.any()) {
			a.runs[p.end] = true
		}
		follows := make([]bool, len(a.runs))
		for i := range a.runs { // predecessors precede their followers
			r, n := machine.Ref(i), at[i]
			for _, e := range p.net.In(r) {
				from := p.net.Source(e)
				follows[r] = follows[r] || a.is(from) || follows[from]
			}
			if !follows[r] || d.Keep && n != nil && (n.Status == Completed || n.Status == Skipped) && !a.is(r) {
				continue
			}
			a.runs[r] = true
			delete(a.inside, r)
		}
		grown = false
		// In a fork or an adoption: if a node decided without a superseded node, and now runs again, the superseded node also runs again.
		for r, n := range at {
			if d.Strict && n != nil && !a.runs[r] && n.superseded() {
				if origin, ok := p.Ref(n.Origin); ok && a.is(origin) {
					a.runs[r], grown = true, true
				}
			}
		}
	}
}

// The method `placed` returns the nodes of a snapshot by Ref. It returns an error if one of them is not in the plan.
func (p *Plan) placed(nodes []nodeState, prefix string) ([]*nodeState, error) {
	at := make([]*nodeState, len(p.names))
	for i := range nodes {
		n := &nodes[i]
		ref, ok := p.Ref(n.ID)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: node %s is %v in the snapshot, but is not in the graph", ErrGraphChanged, quoteID(prefix+n.ID), n.Status)
		case at[ref] != nil:
			return nil, fmt.Errorf("%w: snapshot: node %s occurs twice", ErrBadValue, quoteID(prefix+n.ID))
		}
		at[ref] = n
	}
	return at, nil
}

// The method `found` returns the nodes of a snapshot by Ref. It omits nodes that are not in the plan.
func (p *Plan) found(nodes []nodeState) []*nodeState {
	at := make([]*nodeState, len(p.names))
	for i := range nodes {
		if ref, ok := p.Ref(nodes[i].ID); ok {
			at[ref] = &nodes[i]
		}
	}
	return at
}

// The method `parted` returns the nodes that the paths name. For paths that lead into a composite, parts contains the rest of each path.
func (p *Plan) parted(names []string, at []*nodeState, prefix string) (named map[machine.Ref]bool, parts map[machine.Ref][]string, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	named, parts = map[machine.Ref]bool{}, map[machine.Ref][]string{}
	for _, name := range names {
		ref, rest, ok := p.part(name, at)
		switch {
		case !ok:
			return nil, nil, p.unknownPath(prefix, name)
		case rest == "":
			named[ref] = true
		default:
			parts[ref] = append(parts[ref], rest)
		}
	}
	return named, parts, nil
}

// The method `part` returns the node that a path names. If the path leads into a composite, it returns the composite and the rest of the path. The
// parameter `at` is nil, or lists the nodes of a snapshot by Ref. If it is given, paths may also lead into expanded nodes.
func (p *Plan) part(path string, at []*nodeState) (ref machine.Ref, rest string, ok bool) {
	if ref, ok = p.Ref(path); ok {
		return ref, "", true
	}
	for i := len(path) - 1; i > 0; i-- {
		if strings.IndexByte("/[#", path[i]) < 0 {
			continue
		}
		if ref, ok = p.Ref(path[:i]); ok && (p.net.Is(ref, machine.FlagComposite) || at != nil && at[ref] != nil && at[ref].expanded()) {
			return ref, path[i:], true
		}
	}
	return noRef, "", false
}

// The method `leads` reports whether a path may name a node, an item or an iteration in a run of the plan.
func (p *Plan) leads(path string) bool {
	if _, ok := p.Ref(path); ok {
		return true
	}
	if i := strings.LastIndexByte(path, '#'); i >= 0 && !strings.Contains(path[i:], "/") {
		n, known := p.At(path[:i])
		k, err := strconv.Atoi(path[i+1:])
		return known && n.Loop != nil && err == nil && k > 0 && strconv.Itoa(k) == path[i+1:]
	}
	_, ok := p.At(path)
	return ok
}

// unknownPath returns the error for a path that names no node. The error helps to correct the path: it shows an item of a map, an iteration of a
// loop, or names of nodes.
func (p *Plan) unknownPath(prefix, name string) error {
	unknown := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: "+format, append([]any{ErrUnknownNode, quoteID(prefix + name)}, args...)...)
	}
	if p.itemOf != "" {
		item, deep, inside := strings.Cut(name, "/")
		switch ref, known := p.Ref(item); {
		case inside && known && p.subs[ref] != nil:
			return unknown("no path leads there%s", insteadIn(prefix+item+"/", deep, p.subs[ref].names))
		case inside && known:
			return unknown("no path leads there")
		case len(p.names) == 0:
			return unknown("the map has no items")
		}
		return unknown("the map has %d items, %s to %s", len(p.names), quoteID(prefix+p.names[0]), quoteID(prefix+p.names[len(p.names)-1]))
	}
	around, rest := name, ""
	if at := strings.IndexAny(name, "/[#"); at > 0 {
		around, rest = name[:at], name[at:]
	}
	if rest == "" && prefix == "" {
		if path := p.pathInside(name); path != "" {
			return unknown("did you mean %s?", quoteID(path))
		}
		return p.unknownNode(name)
	}
	ref, known := p.Ref(around)
	switch {
	case !known:
		return unknown("no path leads there%s", insteadIn(prefix, around, p.names))
	case p.subs[ref] != nil && strings.Index(rest, "/") > 0: // the path leads into an item or an iteration
		part, deep, _ := strings.Cut(rest, "/")
		return unknown("no path leads there%s", insteadIn(prefix+around+part+"/", deep, p.subs[ref].names))
	case p.node(ref).Map != nil:
		return unknown("an item of %s is for example %s", quoteID(around), quoteID(prefix+around+"[0]"))
	case p.node(ref).Loop != nil:
		return unknown("an iteration of %s that has begun is for example %s", quoteID(around), quoteID(prefix+around+"#1"))
	case p.subs[ref] != nil:
		return unknown("no path leads there%s", insteadIn(prefix+around+"/", strings.TrimPrefix(rest, "/"), p.subs[ref].names))
	}
	return unknown("no path leads there")
}

// The method `paths` appends the paths of the nodes that run again, in the order of declaration. After a composite that continues inside, it appends
// the nodes that run again inside this composite.
func (a *again) paths(list []string, nodes []nodeState, prefix string) []string {
	at := a.plan.found(nodes) // the nodes may belong to another version of the graph
	for _, ref := range a.plan.declared {
		in := a.inside[ref]
		if a.is(ref) {
			list = append(list, prefix+a.plan.names[ref])
		}
		if in == nil {
			continue
		}
		n := at[ref]
		switch {
		case in.back > 0:
			list = append(list, fmt.Sprintf("%s%s#%d", prefix, n.ID, in.back))
		case in.later != nil:
			list = n.Inside.repeated(list, in.later, n.prefixInside(prefix))
		case in.plan != nil:
			list = in.paths(list, n.Inside.Nodes, n.prefixInside(prefix))
		}
	}
	return list
}

// The method `repeated` appends the paths of the nodes that will run again inside an expanded node whose graph is not known yet.
func (in *insideState) repeated(list []string, d *redoState, prefix string) []string {
	for _, name := range d.Names {
		list = append(list, prefix+name)
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		anew := !d.Open && !n.Status.Terminal()
		all := d.All && d.repeats(n)
		if !anew && !all && !n.isUndone() {
			continue
		}
		list = append(list, prefix+n.ID)
		if n.Inside != nil && !anew && !n.beginsAnew() {
			list = n.Inside.repeated(list, &redoState{redo: d.redo, All: all, Open: !n.Status.Terminal()}, n.prefixInside(prefix))
		}
	}
	return list
}

// The method `take` divides the nodes of a snapshot: nodes that begin again are dropped, and all other nodes are kept. Composites that continue
// inside get the status running. The parameter `epoch` is the number of the epoch that ends.
func (a *again) take(nodes []nodeState, epoch int, keep bool) (kept, dropped []nodeState) {
	for _, n := range nodes {
		ref, _ := a.plan.Ref(n.ID)
		switch in := a.inside[ref]; {
		case a.runs[ref]:
			dropped = append(dropped, n)
			continue
		case in != nil:
			n.goOn(in, epoch, keep)
		case keep && n.Epoch == 0:
			n.Epoch = epoch
		}
		kept = append(kept, n)
	}
	return kept, dropped
}

// The function `forked` resets the composites that continue inside, at every depth, to their first attempt, since the log and the store of the fork
// contain no earlier attempts.
func forked(nodes []nodeState, undoes bool) {
	for i := range nodes {
		n := &nodes[i]
		n.Event, n.Latest, n.Epoch, n.apart = 0, 0, 0, false
		n.Inherited = undoes && n.Status.Terminal()
		if n.Inside == nil {
			continue
		}
		n.Inside.First, n.Inside.dropped, n.Inside.apart, n.Inside.Whole = 0, nil, 0, false
		if n.Status == Running {
			n.Attempts, n.Started, n.Cut, n.Errs, n.Retried, n.LastErr, n.Began, n.Tokens, n.Usage = 1, 1, 0, nil, nil, nil, time.Time{}, [2]int{}, nil
			n.reopened, n.Dormant = true, false
		}
		forked(n.Inside.Nodes, undoes || n.Inside.Undoes)
		for k := range n.Inside.Past {
			forked(n.Inside.Past[k].Nodes, true)
		}
	}
}

// The method `forgets` reports whether a signal for a node must be dropped because the node runs again or is not known.
func (a *again) forgets(path string) bool {
	for a.plan != nil {
		ref, rest, ok := a.plan.part(path, nil)
		switch in := a.inside[ref]; {
		case !ok || a.runs[ref]:
			return true
		case rest == "" || in == nil:
			return false
		case in.plan == nil && in.back == 0:
			return false
		case a.plan.node(ref).Loop != nil:
			digits, name, _ := strings.Cut(strings.TrimPrefix(rest, "#"), "/")
			if k, _ := strconv.Atoi(digits); in.back > 0 || k != in.iteration {
				return in.back > 0 && k >= in.back
			}
			a, path = in, name
		case a.plan.node(ref).Map != nil:
			a, path = in, a.plan.names[ref]+rest
		default:
			a, path = in, strings.TrimPrefix(rest, "/")
		}
	}
	return false
}

// The type `repair` is a redrive that runs no nodes. It finds nodes whose compensations have failed. It makes these compensations begin again, or
// marks them as done by hand.
type repair struct {
	names  map[string]bool // the nodes to repair that are not found yet; nil means all
	hand   bool
	by     *Request
	paths  []string // the paths of the nodes found
	around []string // the paths of the composites that contain these nodes, and have a state of undoing
}

// The method `repairs` finds the nodes that a redrive with RepeatCompensations or CompensatedByHand changes.
func (p *Plan) repairs(nodes []nodeState, c *config) (*repair, error) {
	x := &repair{hand: c.repeats&CompensatedByHand != 0, by: c.redrivenBy}
	for _, name := range c.redriven {
		if x.names == nil {
			x.names = map[string]bool{}
		}
		x.names[name] = true
	}
	x.level(nodes, "")
	for _, name := range c.redriven {
		if x.names[name] {
			if _, _, ok := p.part(name, nil); !ok {
				return nil, p.unknownPath("", name)
			}
			return nil, fmt.Errorf("%w: %s: its compensation has not failed", ErrUnknownNode, quoteID(name))
		}
	}
	if len(x.paths) == 0 {
		return nil, fmt.Errorf("%w: no compensation has failed", ErrUnknownNode)
	}
	return x, nil
}

// The method `level` repairs the nodes of one graph, whose paths begin with prefix, and the nodes inside them. It reports whether it repaired a
// node.
func (x *repair) level(nodes []nodeState, prefix string) (some bool) {
	for i := range nodes {
		n := &nodes[i]
		path := prefix + n.ID
		inside := false
		if in := n.Inside; in != nil {
			inside = x.level(in.Nodes, n.prefixInside(prefix))
			for k := range in.Past {
				of := nodeState{ID: n.ID, Inside: &in.Past[k]}
				inside = x.level(in.Past[k].Nodes, of.prefixInside(prefix)) || inside
			}
		}
		u := n.Undo
		switch {
		case u == nil:
		case u.Status == CompensationFailed && (x.names == nil || x.names[path]):
			delete(x.names, path)
			x.paths, some = append(x.paths, path), true
			u = clonePtr(u)
			n.Undo, u.fresh, u.Crashes, u.Due, u.Ended = u, true, 0, time.Time{}, time.Time{}
			if u.Status, u.Cut = CompensationRunning, u.Attempts; x.hand {
				u.Status, u.Err, u.By = CompensationDone, nil, orZero(x.by)
			}
		case inside:
			u = clonePtr(u)
			if n.Undo, u.around = u, true; u.Status != CompensationFailed || u.Err == nil { // otherwise a compensation of its own has failed, too
				x.around = append(x.around, path)
			}
		}
		some = some || inside
	}
	return some
}

// Fork begins a new run with results of another run, and does not change the other run. The new run has its own id, see [RunID]. It has the old
// run's inputs unless the option [Inputs] gives it other inputs. The graph may differ from the graph of the other run. A node keeps its result if it
// completed, was skipped or was superseded, if neither it nor a node inside it was undone, and if its declaration, its in-edges and the nodes inside
// it are unchanged. All other nodes run. The nodes whose paths are in `nodes` also run. Each node that follows a node that runs also runs.
// Composites that have not completed continue inside, as in a [Redrive]. An expanded node that runs starts from the beginning. If an expanded node
// keeps its result, the nodes inside it are not stored again. [ForkPreview] lists the nodes that run. Go functions cannot be compared, see
// [Plan.Hash], so name the nodes whose functions have changed. The error matches [ErrUnknownNode] if a name is unknown.
//
// Event ids begin with 1. The event run.started names the old run. Nodes that keep their results have no events. Under [Durable] the first
// transaction writes all kept results. If the store already contains the fork, because a process died, the fork continues. The error matches
// [ErrFinished] if the fork has ended, see [ReadResult], and [ErrDuplicateRun] if the id belongs to another run. Labels and parent come only from
// [Describe]. To fork a stored run, use [ReadSnapshot]. Values are decoded and encoded again; equal contents share a blob.
func Fork(s *Snapshot, nodes ...string) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: Fork(nil)", ErrBadOption)
		}
		c.from, c.redrive, c.redriven, c.redrivenBy, c.fork, c.adopts = s, false, nodes, nil, true, nil
		return nil
	})
}

// ForkPreview returns the paths of the nodes that a [Fork] would run, in the order of declaration. A composite that continues inside precedes the
// nodes inside it. Nodes that are not listed keep their results. If the fork would be refused because of nodes that have handled failures,
// ForkPreview returns the paths together with an error that matches [ErrHandlers]. ForkPreview uses the options [DespiteHandlers] and [Anew]. It
// begins no run and reads no values.
func ForkPreview(p *Plan, s *Snapshot, nodes []string, opts ...Option) ([]string, error) {
	c, err := p.previewed(s, append(slices.Clone(opts), Fork(s, nodes...)))
	if err != nil {
		return nil, err
	}
	again, err := p.forks(s.file.Nodes, c)
	if again == nil {
		return nil, err
	}
	return again.paths(nil, s.file.Nodes, ""), err
}

// forkAgain returns the nodes that run again in a fork: the given nodes, all nodes without a usable result, and the nodes that follow any of
// these.
func (p *Plan) forkAgain(nodes []nodeState, again []bool) []bool {
	kept := make([]*nodeState, len(p.names))
	for i := range nodes {
		n := &nodes[i]
		if ref, ok := p.Ref(n.ID); ok && n.Hash == p.nodeHash(ref) && (n.Status == Completed || n.Status == Skipped || n.superseded()) && !n.isUndone() {
			kept[ref] = n
		}
	}
	losers := map[machine.Ref][]machine.Ref{} // by node: the superseded nodes without which the node decided; they run again if the node runs again
	var work []machine.Ref
	mark := func(r machine.Ref) {
		if !again[r] {
			again[r] = true
			work = append(work, r)
		}
	}
	for i, named := range again {
		r, n := machine.Ref(i), kept[i]
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
	return again
}

// RedrivePreview returns the paths of the nodes that a [Redrive] would run again, in the order of declaration. A composite that continues inside
// precedes the nodes inside it. If the redrive would be refused because of nodes that have handled failures, RedrivePreview returns the paths
// together with an error that matches [ErrHandlers]. It uses all options of the type [RedriveMode]. With [RepeatCompensations] or
// [CompensatedByHand] it returns the paths of the nodes whose compensations the redrive would repeat or declare done. It begins no run and reads no
// values. In a graph that a step has returned it finds no nodes that run again only because a node before them does.
func RedrivePreview(p *Plan, s *Snapshot, nodes []string, opts ...Option) ([]string, error) {
	c, err := p.previewed(s, append(slices.Clone(opts), Redrive(s, nodes)))
	if err != nil {
		return nil, err
	}
	if c.repeats&repairs != 0 {
		x, err := p.repairs(cloneNodes(s.file.Nodes), c)
		return orZero(x).paths, err
	}
	again, err := p.redrives(s.file.Nodes, c)
	if again == nil {
		return nil, err
	}
	return again.paths(nil, s.file.Nodes, ""), err
}

// previewed returns the config of a preview.
func (p *Plan) previewed(s *Snapshot, opts []Option) (*config, error) {
	switch {
	case !p.isCompiled():
		return nil, ErrNoGraph
	case s == nil:
		return nil, fmt.Errorf("%w: there is no snapshot", ErrBadOption)
	}
	p.Hash() // also computes the hashes of the nodes
	return configure(opts, false)
}

// The method `forks` returns the nodes that a fork runs again. It returns an error if the fork is refused.
func (p *Plan) forks(nodes []nodeState, c *config) (*again, error) {
	d := redo{Strict: true, Anew: c.repeats&Anew != 0, fork: true}
	a, err := d.outermost(p, nodes, c.redriven)
	if err == nil && c.repeats&DespiteHandlers == 0 {
		err = a.handled(nil, nodes, "", false, false).refusal()
	}
	return a, err
}

// The method `fork` turns x into the restoration of a new run, which begins with the results that the fork keeps.
func (x *restoration) fork(p *Plan, c *config) error {
	again, err := p.forks(x.file.Nodes, c)
	if err != nil {
		return err
	}
	old := &x.file
	if c.runID == old.Run {
		return fmt.Errorf("%w: a fork of run %s needs an id of its own: see RunID", ErrBadOption, quoteID(old.Run))
	}
	old.Nodes = slices.DeleteFunc(old.Nodes, func(n nodeState) bool {
		_, ok := p.Ref(n.ID)
		return !ok
	})
	kept, _ := again.take(old.Nodes, 0, false)
	forked(kept, p.undoes)
	x.file = snapshotFile{Version: old.Version, Graph: p.name, Hash: p.Hash(), Epoch: 1, Forked: old.Run, Inputs: old.Inputs, Fired: old.Fired, Estimates: old.Estimates, Mode: old.Mode, Nodes: kept}
	x.crashed, x.anew = false, true
	c.from = &Snapshot{file: x.file, codec: c.from.codec} // without the old run's events
	x.held, err = x.hold(p, c, kept)
	return err
}
