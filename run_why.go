package kahn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// WhyKind is the kind of a node's state. A node is in exactly one state at any time.
type WhyKind uint8

// The kinds of answers to [Run.Why]. For a node that is ready, WhyHeld and WhyStore take precedence over WhyOrder, WhySlot and WhyRate.
const (
	whyNothing  WhyKind = iota
	WhyEnded            // the node has ended: see Status, Cause, Skip and Err; if a Fallback replaced a failure, Err is this failure; Edges are the in-edges that led to this end
	WhyPending          // the run has not begun: it waits for other runs of its [Runner]
	WhyWaiting          // its join has not decided: Edges are the open in-edges; Nodes are their sources or, for the end node, all nodes that have not ended
	WhyTier             // under [Waves] its tier has not begun: Nodes are the nodes of the current tier that have not ended
	WhyChecking         // the node's guard, merges, required ports or inputs are being checked, or will be checked next
	WhyHeld             // the run does not start the node now: it is being left, or waits for Nodes, which wait for a signal (see [SuspendMode]) or are being undone
	WhyStore            // the store has not yet confirmed that the node is ready or has started; or too many changes wait for the store, so no node may start or end
	WhyOrder            // Nodes begin before this node or, under [Limit](1), must first return; Nodes is empty if this node is next
	WhySlot             // a Bound has no slot: Nodes are the holders of its slots in the same run
	WhyRate             // a Bound has no token: Until is when the next token is due
	WhyRunning          // an attempt, its nested run, or a condition is running: Until is its deadline, if it has one
	WhyPaused           // a loop pauses between two iterations: Until is when the next iteration begins
	WhyStopping         // the node must stop because of Cause and Err: Until is when kahn abandons it, and zero if it may finish or is a composite
	WhyCleanup          // the node cleans up in a run that is being stopped: Until is its deadline
	WhyBackoff          // an attempt failed with Err, or the step returned SuspendUntil and Err is nil: Until is when the step is called again
	WhySignal           // the node waits for a signal: see Wait and Choices; a composite is in this state while Nodes inside it wait
)

var whyNames = enum.Of[WhyKind]("kind of why",
	"", "ended", "pending", "waiting", "tier", "checking", "held", "store", "order", "slot", "rate", "running", "paused", "stopping",
	"cleanup", "backoff", "signal",
)

// String returns the name of the kind, such as "backoff".
func (k WhyKind) String() string { return whyNames.Name(k) }

// MarshalText encodes k as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (k WhyKind) MarshalText() ([]byte, error) { return whyNames.Text(k) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (k *WhyKind) UnmarshalText(text []byte) error { return whyNames.Parse(k, text) }

// Why explains the state of a node: see [Run.Why]. Kind and Status are always set. Every other field is set only in the states for which its own
// comment, or the comment on the Kind, describes it.
type Why struct {
	Kind   WhyKind
	Status Status
	// Since is the time when the attempt began, the node became ready, the backoff began, or the node began to wait for a signal. Since is zero in
	// all other states, and if the time is not known.
	Since time.Time
	// Until is the latest time at which the state ends by itself, or zero if there is none.
	Until time.Time
	// Edges are the in-edges that the comment on the Kind describes: the first 20, in the order of declaration.
	Edges []Edge
	// Nodes are the paths of the other nodes that the comment on the Kind describes: the first 20. More is the number of further nodes, as far as
	// it is known.
	Nodes []string
	More  int
	// Bound is the bound without a free slot or token. Runs are the ids of other runs of the [Runner] that hold slots of the bound, at most 20.
	// For a [Shared] limit, Runs also contains a few runs of each other process that holds slots. If such a process does not report its runs,
	// Runs contains its name instead.
	Bound Bound
	Runs  []string
	// Wait describes the wait of the node, with the node's path. Choices are the answers that a gate accepts; nil if it accepts any answer.
	Wait    *Wait
	Choices []string
	Cause   Cause
	Skip    event.SkipReason
	Err     error
	// For an ended node, Compensation is the state of its compensation, and CompensationErr is the error of a failed compensation. If a held node
	// or the end node waits until other nodes are undone, Compensation is CompensationRunning, and Nodes are the nodes that are being undone now.
	Compensation    Compensation
	CompensationErr error

	// If one edge has decided that the node is skipped, `from` describes how the source of this edge has ended, such as "failed: step_error". It is
	// empty if this is not known.
	from string
}

// Bound is a limit on the number of steps that run at the same time, or on how often they start.
type Bound struct {
	Scope string // one of the constants below
	// Name is the name of the group or the key, or the path of the map.
	Name string
	// Limit is the number of slots, and Used the number of slots that are taken. Both are zero if a token is missing.
	Limit, Used int
}

// The scopes of a [Bound].
const (
	BoundNone        = ""
	BoundRun         = "run"          // of the whole run: [Limit], [Rate]
	BoundMap         = "map"          // of a map: Map.Limit
	BoundGroup       = "group"        // of a [Group]
	BoundKey         = "key"          // of all nodes with the same Key: [KeyLimit], [KeyRate]
	BoundRunner      = "runner"       // of all runs of a [Runner]
	BoundRunnerKey   = "runner_key"   // of all nodes with the same Key, in all runs of a Runner
	BoundShared      = "shared"       // of all steps in all processes: [Shared]
	BoundSharedGroup = "shared_group" // of all nodes of the same Group, in all processes
	BoundSharedKey   = "shared_key"   // of all nodes with the same Key, in all processes
)

// whyMost is the greatest length of a list in a Why.
const whyMost = 20

// Why explains the state of a node: what it waits for, what it does, or how it has ended. The path and the errors are as for [Run.Node]. The lists
// in a Why have at most 20 entries. Usually Why inspects only the node and its neighbours. If other nodes hold the slot, begin first, or hold the
// node back, Why may search the whole run for them. It remembers the holders of slots that it found. It searches for holders again only after one of
// them has given up its slot, or the number of holders has changed.
func (r *Run) Why(path string) (Why, error) {
	r.st.Lock()
	at, err := r.locate(path)
	if err != nil {
		r.st.Unlock()
		return Why{}, err.complete()
	}
	w := at.why()
	r.st.Unlock()
	if w.Kind == WhySignal && w.Wait != nil && at.run.plan.net.Is(at.ref, machine.FlagGate) {
		w.Choices = slices.Clone(at.run.plan.choices(at.ref))
	}
	return w, nil
}

// Why explains the state of a node, like [Run.Why], in a run that has ended.
func (r *Result) Why(path string) (Why, error) {
	if !r.hasRun() {
		return Why{}, (&PathError{Path: path}).complete()
	}
	return r.run.Why(path)
}

// why is [Run.Why] for a given node. The caller holds the run's lock.
func (at place) why() (y Why) {
	r, ref := at.run, at.ref
	s, w := &r.st, r.st.Word(ref)
	y.Status = s.Status(ref)
	switch root := r.outermost(); {
	case y.Status.Terminal():
		at.whyEnded(&y)
		return y
	case root.stage < stageRunning:
		y.Kind = WhyPending
		return y
	}
	switch status := w.Status(); {
	case w.Is(machine.WordChecking):
		at.whyChecking(&y)
	case !w.Is(machine.WordDecided):
		at.whyUndecided(&y)
	case status == Ready:
		y.Since = r.timeAt(r.readyAt(ref))
		at.whyReady(&y)
	case status == Running:
		y.Since = r.timeAt(r.attemptStart(ref, r.extras[ref]))
		at.whyRunning(&y)
	case status == Retrying:
		y.Kind = WhyBackoff
		if x := r.extras[ref]; x.Sleeps {
			y.Since, y.Until = r.timeAt(r.records[ref].end), r.timeAt(x.due)
		} else if errs := r.extras[ref].errs; len(errs) > 0 {
			last := errs[len(errs)-1]
			y.Since, y.Until, y.Err = r.timeAt(last.end), r.timeAt(saturate.Add(last.end, int64(last.delay))), last.err
		}
	default:
		y.Kind = WhySignal
		wait := r.waitAt(ref)
		y.Wait, y.Since, y.Until = &wait, wait.Since, wait.Deadline
	}
	return y
}

func (at place) whyEnded(y *Why) {
	r, ref := at.run, at.ref
	y.Kind, y.Skip = WhyEnded, r.skipReason(ref)
	res := NodeResult{Status: y.Status}
	r.addCause(ref, &res)
	y.Cause, y.Err = res.Cause, res.Err
	if x := r.extras[ref]; y.Status == Completed && r.records[ref].fallback && x != nil {
		y.Err = x.lastErr
	}
	y.Compensation, y.CompensationErr = r.compensationOf(ref)
	switch {
	case y.Skip.Kind == SkipConditionBranch || y.Skip.Kind == SkipUpstreamSkipped:
		if x := r.st.SkipOf(ref); x.Edge >= 0 {
			y.Edges, y.from = []Edge{r.plan.Edge(x.Edge)}, r.outcomeText(r.plan.net.Source(x.Edge))
		}
	case y.Skip.Kind == SkipParentFailure, machine.IsUpstream(y.Cause.Kind):
		at.edges(y, r.st.Carries)
	}
}

// outcomeText describes how a node has ended, as the end of a sentence about the node.
func (r *Run) outcomeText(ref machine.Ref) string {
	w := r.st.Word(ref)
	if status := w.Status(); status != Failed && status != Aborted && status != Cancelled {
		return "has " + status.String()
	}
	return fmt.Sprintf("%v: %v", w.Status(), w.Kind())
}

// outcome describes which outcome of its source an edge without a label requires.
func (e Edge) outcome() string {
	switch {
	case e.On != OnFailure:
		return "success"
	case len(e.Causes) == 0:
		return "failure"
	}
	var causes []string
	for _, cause := range e.Causes {
		causes = append(causes, cause.String())
	}
	return "failure with " + strings.Join(causes, " or ")
}

// awaitsUndos reports whether the run undoes nodes. If so, awaitsUndos adds the nodes that are being undone now: the node of `at` begins only after
// all undos.
func (at place) awaitsUndos(y *Why) bool {
	x := at.run.undo
	if x == nil || x.by != at.run {
		return false
	}
	y.Compensation = CompensationRunning
	for _, u := range x.active {
		y.name(u.run.path(u.ref))
	}
	return true
}

// The method `edges` adds those in-edges of the node for which the function `is` returns true.
func (at place) edges(y *Why, is func(int32) bool) {
	for _, i := range at.run.plan.net.In(at.ref) {
		if len(y.Edges) < whyMost && is(i) {
			y.Edges = append(y.Edges, at.run.plan.Edge(i))
		}
	}
}

// The method `name` adds the path of a node, unless the list already contains it.
func (y *Why) name(path string) {
	switch {
	case slices.Contains(y.Nodes, path):
	case len(y.Nodes) < whyMost:
		y.Nodes = append(y.Nodes, path)
	default:
		y.More++
	}
}

// nameThose adds those nodes of a run for which the function `is` returns true, in the order of declaration.
func (y *Why) nameThose(r *Run, is func(ref machine.Ref, w machine.Word) bool) {
	for _, ref := range r.plan.declared {
		if is(ref, r.st.Word(ref)) {
			if len(y.Nodes) < whyMost {
				y.Nodes = append(y.Nodes, r.path(ref))
			} else {
				y.More++
			}
		}
	}
}

func (at place) whyChecking(y *Why) {
	r := at.run
	y.Kind = WhyChecking
	if r.leaving && r.checks[at.ref] == nil && slices.Contains(r.remarked().abandoned, at.ref) {
		y.Kind = WhyHeld
	}
}

func (at place) whyUndecided(y *Why) {
	r, s := at.run, &at.run.st
	open := func(i int32) bool { return !s.Word(r.plan.net.Source(i)).Status().Terminal() }
	switch {
	case at.ref == r.plan.end:
		y.Kind = WhyWaiting
		if at.awaitsUndos(y) {
			break
		}
		at.edges(y, open)
		y.nameThose(r, func(ref machine.Ref, w machine.Word) bool { return ref != at.ref && !w.Status().Terminal() })
	case r.cfg.mode == Waves:
		y.Kind = WhyTier
		tier, left := s.OpenTier()
		lo, hi := r.plan.net.TierRange(max(tier, 0))
		for ref := lo; ref < hi; ref++ { // in a tier, Refs are in the order of declaration
			if !s.Word(ref).Status().Terminal() {
				y.name(r.path(ref))
				if len(y.Nodes) == whyMost {
					y.More = left - whyMost
					break
				}
			}
		}
	default:
		y.Kind = WhyWaiting
		at.edges(y, open)
		for _, i := range r.plan.net.In(at.ref) {
			if open(i) {
				y.name(r.path(r.plan.net.Source(i)))
			}
		}
	}
}

func (at place) whyReady(y *Why) {
	r, ref := at.run, at.ref
	s := &r.st
	inline := r.plan.net.Is(ref, machine.FlagInline|machine.FlagGate)
	all, fresh := s.HeldBack(ref)
	switch {
	case all:
		y.Kind = WhyHeld
		return
	case fresh:
		y.Kind = WhyHeld
		if at.awaitsUndos(y) {
			return
		}
		y.nameHolders(r, heldBy{r}, s.Sleepers(), func(c *Run, ref machine.Ref) bool { return c == r && c.st.Word(ref).Shown() == Suspended })
		return
	case s.ParksNodes() && r.durable.failed == nil && (r.heldBack || r.isParked(ref) || r.single != nil && r.single.unwritten > 0):
		y.Kind = WhyStore
		return
	case at.whyOrder(y), inline, at.whyBound(y):
		y.Kind = max(y.Kind, WhyOrder)
		return
	}
	y.Kind = WhyOrder
	// The node lacks neither a slot nor a token. If it still waits in the queue of a bound, the nodes that were taken from this queue begin first.
	if !s.Contends(ref) {
		y.nameAll(r.outermost(), func(c *Run, other machine.Ref, w machine.Word) bool {
			return w.Status() == Ready && c.st.Contends(other) && c.st.SharesLine(other, s, ref)
		})
	} else if best, ok := r.nextInLine(); ok && best != at {
		y.name(best.run.path(best.ref))
	}
}

// whyOrder adds to y the nodes that must return before any other node can begin, and reports whether there are any. They exist only in a run with
// one slot.
func (at place) whyOrder(y *Why) bool {
	r := at.run
	if x := r.single; x.interrupts() {
		y.Kind = WhyOrder
		y.name(x.interrupted.run.path(x.interrupted.ref))
		return true
	}
	if r.single == nil || r.single.alone == 0 {
		return false
	}
	y.Kind = WhyOrder
	y.nameAll(r.outermost(), func(c *Run, ref machine.Ref, w machine.Word) bool {
		return c.checks[ref] != nil || w.Status() == Running && c.plan.net.Is(ref, machine.FlagInline) && !c.performsInside(ref)
	})
	return true
}

// nameAll adds those nodes of a run, and of the runs nested in it, for which the function `is` returns true. It stops when the list is full.
func (y *Why) nameAll(r *Run, is func(c *Run, ref machine.Ref, w machine.Word) bool) {
	for ref, w := range r.st.Words() {
		if len(y.Nodes) == whyMost {
			return
		}
		if is(r, ref, w) {
			y.name(r.path(ref))
		}
	}
	if !r.nests {
		return
	}
	for _, c := range r.children() {
		y.nameAll(c, is)
	}
}

// heldBy is a key in the cache of nameHolders. Under this key, nameHolders caches the waiting nodes that hold back the other nodes of a run.
type heldBy struct{ run *Run }

// nameHolders adds the first holders of a resource among the nodes of a run and of the runs nested in it. The parameter `of` identifies the
// resource, and `total` is the number of its holders. Callers may ask about many nodes, so nameHolders caches the holders that it found. It
// searches all nodes again only if a known holder no longer holds the resource, or if the number of holders has changed.
func (y *Why) nameHolders(r *Run, of any, total int, holds func(c *Run, ref machine.Ref) bool) {
	known := r.outermost().remark()
	list := known.holders[of]
	lacks := func(at place) bool { return !holds(at.run, at.ref) }
	if len(list) != min(total, whyMost) || slices.ContainsFunc(list, lacks) {
		list = r.search(nil, holds)
		if known.holders == nil {
			known.holders = map[any][]place{}
		}
		known.holders[of] = list
	}
	for _, at := range list {
		y.Nodes = append(y.Nodes, at.run.path(at.ref))
	}
	y.More = max(0, total-len(list))
}

// search appends the holders among the nodes of a run and of the runs nested in it, in the order of declaration, until the list is full.
func (r *Run) search(list []place, holds func(c *Run, ref machine.Ref) bool) []place {
	for _, ref := range r.plan.declared {
		if len(list) == whyMost {
			return list
		}
		r.st.CountVisits(1)
		if holds(r, ref) {
			list = append(list, place{r, ref})
		}
	}
	if !r.nests {
		return list
	}
	for _, c := range r.children() {
		list = c.search(list, holds)
	}
	return list
}

// whyBound reports whether a bound has no slot or token for the node, and adds the bound to y.
func (at place) whyBound(y *Why) bool {
	r, ref := at.run, at.ref
	s := &r.st
	var until time.Time // when the token of a shared limit is due
	var shared Bound
	lack, ok := s.Lacking(ref, r.now(), func(x machine.SharedLimit, token bool) (waits, forToken bool) {
		k := x.(*stake)
		shared = k.bound()
		if waits, forToken = k.waits(token); forToken {
			until = k.nextToken()
		} else if waits {
			y.Runs = k.holders()
		}
		return waits, forToken
	})
	switch {
	case ok && lack.Token:
		y.Kind, y.Bound = WhyRate, at.boundOf(lack, shared)
		if y.Bound.Limit, y.Bound.Used = 0, 0; lack.Due > 0 {
			until = r.outermost().start.Add(time.Duration(lack.Due))
		}
		y.Until = until
		return true
	case ok:
		y.Kind, y.Bound = WhySlot, at.boundOf(lack, shared)
		_, used := lack.Slots.Bounds()
		y.nameHolders(r.outermost(), lack.Slots, used, func(c *Run, ref machine.Ref) bool { // an expanded node no longer holds its step's slot, see [machine.Locked.Expand]
			return c.st.HoldsSlot(ref) && !c.st.IsExpanded(ref) && c.st.Needs(ref, lack.Slots)
		})
		y.More = max(0, y.Bound.Used-len(y.Nodes))
		return true
	}
	switch limit, used := s.OwnSlots(); {
	case limit > 0 && used >= limit:
		y.Bound = Bound{Scope: BoundRun, Limit: limit, Used: used}
		if r.items != nil {
			y.Bound.Scope, y.Bound.Name = BoundMap, r.outer.path(r.within.ref)
		}
		y.nameHolders(r, s, used, func(c *Run, ref machine.Ref) bool { return c == r && s.HoldsSlot(ref) })
	case s.InTree() && r.tree.Used >= r.tree.limit:
		y.Bound = Bound{Scope: BoundRun, Limit: r.tree.limit, Used: r.tree.Used}
		y.nameHolders(r.outermost(), r.tree, r.tree.Used, func(c *Run, ref machine.Ref) bool {
			return c.st.InTree() && c.st.HoldsSlot(ref) && !c.st.IsExpanded(ref)
		})
	default:
		return false
	}
	y.Kind = WhySlot
	return true
}

// boundOf returns the bound that has no slot or token for the node.
func (at place) boundOf(lack machine.Shortage, shared Bound) Bound {
	r, b := at.run, Bound{Scope: BoundRun}
	b.Limit, b.Used = lack.Slots.Bounds()
	if lack.Group >= 0 {
		in := &r.plan.groups[lack.Group]
		if b.Scope, b.Name = BoundGroup, in.Name; in.key {
			b.Scope, b.Name = BoundKey, cmp.Or(in.Name, r.st.KeyOf(at.ref))
		}
	}
	if lack.Shared {
		switch shared.Name = b.Name; b.Scope {
		case BoundKey:
			shared.Scope += "_key" // turns BoundRunner into BoundRunnerKey, and BoundShared into BoundSharedKey
		case BoundGroup:
			shared.Scope = BoundSharedGroup
		}
		return shared
	}
	return b
}

// nextInLine returns the node that begins next, among the nodes that need not wait for a slot or a token.
func (r *Run) nextInLine() (place, bool) {
	if r.tree != nil && len(r.tree.waiting) > 0 {
		r = r.tree.waiting[0]
	}
	if ref, ok := r.st.FirstReady(); ok {
		return place{r, ref}, true
	}
	return place{}, false
}

func (at place) whyRunning(y *Why) {
	r, ref := at.run, at.ref
	s, w := &r.st, r.st.Word(ref)
	x, step := r.extras[ref], r.current(ref)
	y.Kind = WhyRunning
	if step != nil {
		if own := step.ctx.Load(); own != nil && own.deadline != 0 {
			y.Until = r.timeAt(own.deadline)
		}
	}
	switch {
	case w.Is(machine.WordDormant):
		y.Kind, y.Since, y.Until = WhySignal, time.Time{}, time.Time{}
		if r.leaving {
			y.Kind = WhyHeld
			return
		}
		for _, wait := range x.comp.child.waiting() {
			y.name(wait.Node)
		}
	case w.Is(machine.WordStopping|machine.WordDraining) || x != nil && (x.timedOut != timeoutNone || x.left):
		at.whyStopping(y, x)
	case r.recordingStart(ref) || r.records[ref].returned:
		y.Kind, y.Until = WhyStore, time.Time{}
	case w.Is(machine.WordAdmitting):
		y.Kind = WhyChecking
	case x != nil && x.pauses():
		y.Kind, y.Since, y.Until = WhyPaused, time.Time{}, r.timeAt(x.comp.pause.due)
	case r.plan.net.Is(ref, machine.FlagCleanup) && s.Hurries():
		y.Kind = WhyCleanup
	}
}

func (at place) whyStopping(y *Why, x *extra) {
	r, ref := at.run, at.ref
	w := r.st.Word(ref)
	y.Kind, y.Until, y.Since = WhyStopping, time.Time{}, time.Time{}
	if x != nil && x.grace != nil {
		y.Until = r.timeAt(x.grace.Due)
	}
	switch {
	case w.Is(machine.WordStopping | machine.WordDraining):
		y.Cause.Kind = w.Kind()
		if origin := r.st.StopOrigin(ref); origin != noRef {
			y.Cause.Origins = []string{r.plan.names[origin]}
		}
		if cause := r.causeOf(ref); cause != nil {
			y.Err = cause.err
		}
	case x.timedOut != timeoutNone:
		y.Cause.Kind, y.Err = CauseTimeout, ErrTimeout
	default:
		y.Err = ErrLeft
	}
	y.Cause.Err = y.Err
}

// isParked reports whether the node waits until the store confirms the change that made the node ready.
func (r *Run) isParked(ref machine.Ref) bool {
	d, at := r.durable, place{r, ref}
	return d.outbox.parks(at) || d.current != nil && d.current.parks(at)
}

// recordingStart reports whether the node's attempt waits until the store confirms that the attempt has started.
func (r *Run) recordingStart(ref machine.Ref) bool {
	d := r.durable
	if d == nil || d.failed != nil {
		return false
	}
	at := place{r, ref}
	return d.outbox.starts(at) || d.current != nil && d.current.starts(at)
}

// readyAt returns when a node became ready for its current attempt, in ns since the run's start. A node becomes ready after a backoff, after a
// signal, or at the end of the last predecessor that its join awaits. The node may be checked only after that time, so the duration of the check
// counts as waiting.
func (r *Run) readyAt(ref machine.Ref) int64 {
	if x := r.extras[ref]; x != nil && x.ready != 0 {
		return x.ready
	}
	s, p, at := &r.st, r.plan, r.began
	ended := func(from machine.Ref) bool { // returns false if the node has ended without an attempt, since the time of its end is then not known
		if !s.Word(from).Status().Terminal() {
			return true
		}
		at = max(at, r.records[from].end)
		return r.records[from].end != 0
	}
	switch {
	case ref == p.end:
		for from := range s.Words() {
			ended(from)
		}
	case r.cfg.mode == Waves && p.net.Tier(ref) > 0:
		lo, hi := p.net.TierRange(p.net.Tier(ref) - 1)
		for from := lo; from < hi; from++ {
			ended(from)
		}
	default:
		const most = 256 // bounds the search among nodes that were not attempted
		for work, n := []machine.Ref{ref}, 0; n < len(work) && n < most; n++ {
			for _, i := range p.net.In(work[n]) {
				from := p.net.Source(i)
				s.CountVisits(1)
				if s.SettledAfter(from, ref) || ended(from) {
					continue
				}
				s.CountVisits(len(work))
				if len(work) < most && !slices.Contains(work, from) {
					work = append(work, from) // the node `from` ended together with one of its predecessors
				}
			}
		}
	}
	return at
}

// String returns the explanation as a part of a sentence about the node, such as "it waits for a slot of the group db, held by slow". Errors in the
// text are shortened to about a kilobyte.
func (y Why) String() string {
	nodes := y.nodes()
	switch y.Kind {
	case WhyEnded:
		return y.ended() + y.undone()
	case WhyPending:
		return "the run is pending"
	case WhyWaiting, WhyHeld:
		return y.held(nodes)
	case WhyTier:
		return "its tier has not begun: it waits for " + nodes
	case WhyChecking:
		return "it is being checked"
	case WhyStore:
		return "it waits until the store has confirmed earlier changes"
	case WhyOrder:
		if nodes == "" {
			return "it is next"
		}
		return "it waits for its turn after " + nodes
	case WhySlot:
		text := "it waits for a slot of " + y.Bound.String()
		if len(y.Runs) > 0 {
			text += fmt.Sprintf(": %d of %d, held by run %s", y.Bound.Used, y.Bound.Limit, few(y.Runs, 0))
			if y.More = 0; len(y.Nodes) > 0 {
				text += ", here by " + y.nodes()
			}
			return text
		}
		if nodes != "" {
			text += ", held by " + nodes
		}
		return text
	case WhyRate:
		return "it waits for a token of " + y.Bound.String() + y.until()
	case WhyRunning:
		return "it is running"
	case WhyPaused:
		return "it pauses between two iterations" + y.until()
	case WhyStopping:
		text := "it was asked to stop"
		if y.Until.IsZero() {
			text = "it may finish"
		}
		if y.Err != nil {
			text += ": " + errorText(y.Err)
		}
		return text
	case WhyCleanup:
		return "it cleans up"
	case WhyBackoff:
		if y.Err == nil {
			return "it sleeps until " + y.Until.Format(time.RFC3339Nano)
		}
		return "it is attempted again" + y.until() + " after: " + errorText(y.Err)
	case WhySignal:
		if y.Wait == nil && nodes != "" {
			return "inside it " + nodes + " waits for an answer"
		}
		return "it waits for an answer"
	}
	return y.Kind.String()
}

func (y Why) until() string {
	if y.Until.IsZero() {
		return ""
	}
	return " at " + y.Until.Format(time.RFC3339Nano)
}

func (y Why) nodes() string { return few(y.Nodes, y.More) }

// The function `few` returns the first three names, and the number of further ones, as text.
func few(list []string, more int) string {
	const most = 3
	names := list[:min(most, len(list))]
	text := strings.Join(names, ", ")
	if more := len(list) - len(names) + more; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// String returns a name of the bound, such as "the group db".
func (b Bound) String() string {
	switch b.Scope {
	case BoundMap:
		return "the map " + b.Name
	case BoundGroup:
		return "the group " + b.Name
	case BoundKey:
		return "the key " + b.Name
	case BoundRunner:
		return "all runs"
	case BoundRunnerKey:
		return "the key " + b.Name + " in all runs"
	case BoundShared:
		return "all processes"
	case BoundSharedGroup:
		return "the group " + b.Name + " in all processes"
	case BoundSharedKey:
		return "the key " + b.Name + " in all processes"
	}
	return "the run"
}

// The method `held` describes what the node waits for, if the kind is WhyWaiting or WhyHeld.
func (y Why) held(nodes string) string {
	switch {
	case y.Compensation == CompensationRunning && nodes == "":
		return "it waits for compensations"
	case y.Compensation == CompensationRunning:
		return "it waits for compensations, now of " + nodes
	case y.Kind == WhyWaiting:
		return "it waits for " + nodes
	case nodes == "":
		return "the run was left: nothing more starts in this process"
	}
	return "nothing else is started as long as " + nodes + " waits for an answer"
}

// The method `undone` returns, as text, whether the effects of a node were undone.
func (y Why) undone() string {
	switch y.Compensation {
	case CompensationRunning:
		return "; it is being undone"
	case CompensationDone:
		return "; it was undone"
	case CompensationFailed:
		if y.CompensationErr == nil {
			return "; its effects could not all be undone"
		}
		return "; it could not be undone: " + errorText(y.CompensationErr)
	}
	return ""
}

// The method `ended` returns, as text, how a node has ended.
func (y Why) ended() string {
	switch y.Status {
	case Completed:
		if y.Err != nil {
			return "it has completed with the output of its Fallback, after: " + errorText(y.Err)
		}
		return "it has completed"
	case Skipped:
		return y.skipped()
	}
	switch origins := (Why{Nodes: y.Cause.Origins}).nodes(); y.Cause.Kind {
	case CauseUpstreamFailure:
		return "a failure upstream: " + origins
	case CauseUpstreamCancelled:
		return "a cancellation upstream: " + origins
	case CauseSiblingFailure:
		return "a member of its group failed: " + origins
	case CauseFailFast:
		return "the run stops at the first failure: " + origins
	case CauseAbortAll:
		return "the run was aborted"
	case CauseRunTimeout:
		return "the run took too long"
	case CauseBudget:
		return "the run has used more than its budget allows"
	case CauseContext:
		return "the caller's context ended"
	case CauseCancelRun:
		return "the run was cancelled"
	case CauseCancelNode:
		return "it was cancelled"
	case CauseGateTimeout:
		return "no answer came in time"
	}
	text := fmt.Sprintf("it was %v before it began: %v", y.Status, y.Cause.Kind)
	if own, ok := y.Err.(*NodeError); ok && own.Attempt > 0 {
		return fmt.Sprintf("it %v: %v: %v", y.Status, y.Cause.Kind, errorText(own.Err))
	}
	if y.Err != nil {
		text += ": " + errorText(y.Err)
	}
	return text
}

func (y Why) skipped() string {
	s := y.Skip
	switch s.Kind {
	case SkipAnnotation:
		return "it is disabled"
	case SkipWhenGuard:
		if s.Expression == "func" {
			return "its guard said no"
		}
		return "its guard said no: " + s.Expression
	case SkipConditionBranch:
		switch {
		case s.Label == "" && y.from != "" && len(y.Edges) == 1:
			return fmt.Sprintf("%s %s, and only its %s leads here", s.Node, y.from, y.Edges[0].outcome())
		case s.Label == "": // a catch edge has no label
			return "the outcome of " + s.Node + " leads elsewhere"
		case s.Answer == "":
			return fmt.Sprintf("%s did not take the branch %q", s.Node, s.Label)
		}
		return fmt.Sprintf("%s answered %q, not %q", s.Node, s.Answer, s.Label)
	case SkipNullPropagation:
		if s.Node == "" {
			return "nothing feeds its required port " + s.Port
		}
		return fmt.Sprintf("its required port %s got no value from %s", s.Port, s.Node)
	case SkipUpstreamSkipped:
		if s.Node == "" {
			return "its predecessors were skipped"
		}
		return s.Node + " was skipped"
	case SkipParentFailure:
		return s.Node + " failed, so it is skipped"
	case SkipRuleUnsatisfied:
		return "its join rule can no longer be satisfied: " + s.Rule
	case SkipSelf:
		return "its step skipped itself: " + s.Message
	case SkipSuperseded:
		return s.Node + " was decided without it"
	}
	return s.String()
}
