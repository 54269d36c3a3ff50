package machine

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// State is the state of one run as a deterministic machine: every node's status, readiness and blocked-by-failure, the
// ready queue and the slots. It knows no clock, no goroutine, no context and no randomness, and calls no user code:
// results come in as calls, decisions come out. A coordinator drives it by the methods below: the Run of package kahn does, and an
// engine that performs steps elsewhere may do the same.
//
//	for t, ok := st.Next(); ok; t, ok = st.Next() {
//		// perform t.Ref, in any way, at any time, and report with t.Token:
//		st.Settle(t.Token, machine.Outcome{Status: machine.Completed})
//	}
//
// A State may be used by any number of goroutines. When a call returns, all its consequences have been applied, however long the
// cascade. Calls that the transition table forbids return an error and change nothing. No call
// allocates for a node that completes.
type State struct {
	net *Net
	mu  *stateLock // guards everything below; a Run holds it during a whole critical section of its own, events included
	own stateLock  // mu points to it, except in a nested run, which shares the lock of the outermost run

	words  []uint64 // by Ref: see the word constants
	limits *limits
	wide   []wide // by facts.wide
	taken  []bool // by label number: the routing decisions of completed conditions

	order *Schedule // the net's, or the run's own
	stateQueues
	stateTally
	stateHolds
	stateStops
	*stateTimes // nil if no node has an early rule
	stateNotes
}

// stateQueues are the nodes for which work is due.
type stateQueues struct {
	ready   ordset.Set  // nodes in status Ready that wait for a slot, by schedule position
	inline  *ordset.Set // nodes whose check or inline evaluation is due, by Ref
	gates   gateQueue   // gates in status Ready that were not handed out
	touched *ordset.Set // nodes whose counts changed since their join was last looked at, by Ref; made when first needed
	work    []Ref       // nodes that were settled and whose out-edges are still to be visited

	announced bool // what is queued was announced, and not answered yet: see Announce
}

// stateTally counts nodes, and edges for tests.
type stateTally struct {
	left       int // nodes that are not terminal, the end node not counted
	running    int // nodes that hold a slot
	busy       int // nodes that run, retry or are being checked, with or without a slot
	asleep     int // suspended nodes
	pending    int // Waves: nodes of the current tier that are not terminal
	badNodes   int // failed, aborted or cancelled nodes
	cancelled  int // cancelled nodes
	tolerated  int // own failures under ContinueOnFail, and composites inside which failures were handled
	staleCount int
	visits     int64 // edges and members of groups visited, by which tests check that the work is linear
}

// stateHolds are the reasons for which nodes that could start do not.
type stateHolds struct {
	waves  bool       // tier by tier
	holds  bool       // while a node is suspended, no other starts that has not started before
	tier   int32      // Waves: the current one
	limit  int        // slots; 0 means no limit
	hold   hold       // which nodes must not start for the time being
	closed bool       // cleanup nodes and the end node do not run either: the run has lost its store, or never began
	parks  bool       // the host queues ready nodes, once its store has them
	admits bool       // nodes with FlagAdmit are Ready until admitted says that they have started
	aside  *setAside  // nil until something was held
	tree   *TreeSlots // the slots of the tree of runs under a common limit that the run belongs to; limit is set then; else nil
}

// setAside are the nodes that a hold keeps from starting.
type setAside struct {
	held  []Ref      // ready nodes that the hold has passed over
	fresh ordset.Set // the ready nodes, by schedule position, that have not been started before, during a hold for these
	again []Ref      // nodes that were queued and had been started before, if there are such holds
}

// stateStops are the stops of the run and of single nodes.
type stateStops struct {
	stopped CauseKind   // why the whole run was stopped, or CauseNone
	stops   StopSetup   // it fits into the padding behind stopped
	origins *originSets // nil until first needed. A Result asks for origins when the run has ended, without the lock, while a last worker may read the aftermath
	*aftermath
}

// aftermath is what failures, stops and redrives leave behind, and what is needed to undo what nodes have done. All States in which there was none share noAftermath, which is never
// written to: what writes calls ownAftermath first.
type aftermath struct {
	unchecked    []Ref          // nodes that were stopped while the coordinator performed a check of theirs; for a Run alone
	stopping     []Ref          // running nodes that were asked to stop and that NextStop has not handed out
	origin       map[Ref]Ref    // for running nodes that were asked to stop: the node that caused it, if any
	losers       *loserSearch   // nil until losers are looked for
	late         []Ref          // nodes whose predecessor failed after their join was decided, and that do not continue then
	failedGroups map[int32]bool // the groups whose members were stopped; nil in a Run, which has its own
	members      [][]Ref        // by group: made when the first one fails; nil in a Run
	undo         *undoing       // nil unless some node may have to be undone

	epochs []int // by Ref: the epoch in which the node has ended, or will end; nil unless a redrive has kept descendants
}

var noAftermath aftermath

// ownAftermath returns the State's own aftermath.
func (s *Locked) ownAftermath() *aftermath {
	if s.aftermath == &noAftermath {
		s.aftermath = &aftermath{}
	}
	return s.aftermath
}

// stateTimes are logical times, for nodes with early rules, whose inputs are frozen at the decision.
type stateTimes struct {
	clock     int32
	settledAt []int32 // by Ref: when the node became terminal
	decidedAt []int32 // by Ref: when the node's join was decided
}

// stateNotes are the changes that are recorded, and who observes them.
type stateNotes struct {
	changes []Change // transitions for the event log; only if logged
	logged  bool
	noted   bool       // logged or observed
	obs     *observers // nil until a signal is asked for
	host    Host       // that drives the State, or nil
	rule    StatusRule // for the RunStatusSignal of a State without a host
	bug     error      // a transition that is not in the table, see check
}

// DrivenBy makes a Run, or another coordinator with a lock of its own, drive the State. around is the State whose lock it shares;
// nil for none.
func (s *Locked) DrivenBy(h Host, around *Locked) {
	s.host, s.admits = h, true
	if around != nil {
		s.mu = around.mu
	}
}

// KeepLog makes the State record its transitions, see Changes.
func (s *Locked) KeepLog() { s.logged, s.noted = true, true }

// IsLogged reports whether transitions are recorded.
func (s *Locked) IsLogged() bool { return s.logged }

// DropLog stops the recording.
func (s *Locked) DropLog() { s.logged = false }

// Park with true leaves ready inline nodes to the host, which calls Queue; Park with false ends that.
func (s *Locked) Park(on bool) { s.parks = on }

// ParksNodes reports whether parking is on.
func (s *Locked) ParksNodes() bool { return s.parks }

// Defect is a transition that is not in the table, or another defect of this package; nil if none was found.
func (s *Locked) Defect() error { return s.bug }

// Close makes cleanup nodes and the end node not run any more.
func (s *Locked) Close() { s.closed = true }

// IsClosed reports whether Close was called.
func (s *Locked) IsClosed() bool { return s.closed }

// StoppedFor is why the whole run was stopped, or CauseNone.
func (s *Locked) StoppedFor() CauseKind { return s.stopped }

// SetStopped notes why the whole run is being stopped, before it is.
func (s *Locked) SetStopped(kind CauseKind) { s.stopped = kind }

// TakeUnchecked returns the nodes that were stopped while the coordinator performed a check of theirs, once.
func (s *Locked) TakeUnchecked() []Ref {
	refs := s.unchecked
	if refs != nil {
		s.unchecked = nil
	}
	return refs
}

// Visited is what CountVisits has counted, and the edges that the State has visited: tests check that the work is linear.
func (s *Locked) Visited() int64 { return s.visits }

// StaleOutcomes counts outcomes that were refused because their token was not current.
func (s *Locked) StaleOutcomes() int { return s.staleCount }

// Leftovers names what is left to do. Once a run has ended it is empty.
func (s *Locked) Leftovers() (left []string) {
	for _, x := range []struct {
		what string
		n    int
	}{{"busy", s.busy}, {"not terminal", s.left}, {"ready", s.ready.Len()}, {"inline", s.inline.Len()}} {
		if x.n != 0 {
			left = append(left, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return left
}

// HeldSlots names the slots that nodes hold.
func (s *Locked) HeldSlots() (left []string) {
	if s.running != 0 {
		left = append(left, fmt.Sprintf("%d running", s.running))
	}
	for i, x := range s.limits.groups {
		if x.Slots != nil && x.used != 0 {
			left = append(left, fmt.Sprintf("%d slots of group or key %d", x.used, i))
		}
	}
	return left
}

// CountVisits adds to the count of what was visited.
func (s *Locked) CountVisits(n int) { s.visits += int64(n) }

// Epoch is the epoch of a run that a redrive has begun, in which the node has ended, or will end; 0 in other runs.
func (s *Locked) Epoch(r Ref) int {
	if s.epochs == nil {
		return 0
	}
	return s.epochs[r]
}

// SetEpochs sets the epochs of all nodes, by Ref.
func (s *Locked) SetEpochs(epochs []int) { s.ownAftermath().epochs = epochs }

// OpenTier returns the tier that is being performed, from 0, and how many of its nodes are not terminal. Before the first one
// begins it is -1.
func (s *Locked) OpenTier() (tier int32, open int) { return s.tier, s.pending }

// SettledAfter reports whether a node has ended after the join of another was decided, which has an early rule.
func (s *Locked) SettledAfter(from, r Ref) bool {
	return s.stateTimes != nil && s.settledAt[from] > s.decidedAt[r]
}

// Host is the Run that drives a State. Its methods are called with the lock held.
type Host interface {
	RunStatus() RunStatus
	Hurries() bool     // a run around it is being stopped
	BeganToWait(r Ref) // a node waits for a signal
	EndedWait()        // a wait has ended
	Keeps(r Ref) bool  // the node's step was called in an earlier life and is called again in the same attempt
	Contends()         // a node contends again for a slot
	Reverses() bool    // the run is about to end: it begins to undo what its nodes have done, by Reverse, if it ends badly
	Announced()        // there is something to do: a worker is to be started, which calls Answer and Next
	Grants() bool      // of the slots of its tree there is one for its best ready node
}

// TreeSlots are the slots that the runs of a tree share.
type TreeSlots struct{ Used int }

// Token names one attempt of one node, or with Attempt 0 its check. An outcome is accepted only with the current token of
// its node, so a duplicate or late one changes nothing.
type Token struct {
	Ref     Ref
	Attempt int32
}

// Task is something for the coordinator to do.
type Task struct {
	Token
	// Check means that the node's join is satisfied and that user code or data decides whether it runs: evaluate the node's
	// guard, assemble its inputs, and report with Checked. Otherwise the attempt has begun: the node is Running.
	Check bool
	// Gate means that the node is a gate that was reached, and still Ready: report with Suspend that it waits, or with
	// Settle the outcome of a signal that came before. A gate that waits is settled with the same Token.
	Gate bool

	Returned bool // the nested run of a composite has ended: a worker concludes the composite
}

// Outcome says how an attempt ended.
type Outcome struct {
	// Status is Completed, Failed, Skipped (the step skipped itself), Aborted or Cancelled.
	Status Status
	// Cause says why the node is Failed, Aborted or Cancelled: one of the node's own failures, of the failures elsewhere, or of the requests
	// to stop, in the order of the constants. A cause of another status is refused with [ErrBadValue].
	Cause CauseKind
	// Route is what Plan.Route returned for the output of a completed condition.
	Route []int32
	// Degraded says of a completed composite that failures inside it were handled or tolerated.
	Degraded bool
	// AbortRun says of a failure that its step has asked for the end of the run, see [AbortRun].
	AbortRun bool
}

// CheckVerdict is the result of a check. The zero value lets the node continue.
type CheckVerdict struct {
	// Skip is SkipWhenGuard or SkipNullPropagation, to skip the node.
	Skip SkipKind
	// Port is, for SkipNullPropagation, the index of the port in the node's Ports.
	Port int
	// Fail is CauseConditionError, CauseMergeError, CauseContractInput, CauseModeration, CausePanic or CauseGoexit, to
	// fail the node.
	Fail CauseKind
	// Key is, of a node whose key a value decides and that is neither skipped nor failed, its key; "" for none.
	Key string
}

// Change is one transition, for the log.
type Change struct {
	Ref     Ref
	Attempt int32 // attempts begun by then, unless the node is terminal
	Status  Status
	Blocked bool // the join was blocked: the transition by the node's policy follows
	Quiet   bool // it has no event
	Wave    int8 // +1: the tier ref starts, -1: it has completed
}

// wide holds the counters that do not fit into the word of a node: of AtLeast, and of early rules with required
// ports.
type wide struct {
	s, other, ports int32
}

// Setup are the options of a State.
type Setup struct {
	Waves bool       // tier by tier
	Holds bool       // while a node is suspended, no other starts that has not started before
	Limit int        // slots; 0 means no limit
	Rule  StatusRule // for the RunStatusSignal
	Stops StopSetup
	Order *Schedule // in which ready nodes start; nil for the plan's own
	SlotSetup
}

// StopSetup are the options that say what failures and stops do to what runs.
type StopSetup struct {
	OnFailure OnFailure
	Drains    bool // a failure lets what runs finish
}

// New returns the state of a run that has not begun: disabled nodes are skipped, roots are ready.
func New(p *Net, x *Setup) *State {
	s := &Locked{}
	s.Init(p, x)
	for r := range p.facts {
		s.words[r] = p.firstWord(Ref(r))
	}
	s.Begin()
	return (*State)(s)
}

// Init makes the State the State of a run of the net. Begin, or Restore and Rebuild, have to follow.
func (s *Locked) Init(p *Net, x *Setup) {
	n := len(p.names)
	s.mu = &s.own
	s.aftermath = &noAftermath
	s.net, s.waves, s.holds, s.limit, s.left, s.tier, s.rule, s.stops = p, x.Waves, x.Holds, x.Limit, n, -1, x.Rule, x.Stops
	if p.end != NoRef {
		s.left--
	}
	space := make([]uint64, n+ordset.Words(n))
	s.words = space[:n:n]
	copy(s.words, p.words)
	if s.order = x.Order; s.order == nil {
		s.order = &p.order
	}
	s.limits = makeLimits(p, &x.SlotSetup)
	s.ready = ordset.MakeIn(space[n:], n)
	if p.wide > 0 {
		s.wide = make([]wide, p.wide)
		for r := range p.facts {
			if f := &p.facts[r]; f.wide >= 0 {
				s.wide[f.wide].ports = p.portEdges(Ref(r))
			}
		}
	}
	if p.labels > 0 {
		s.taken = make([]bool, p.labels)
	}
	if p.early {
		s.stateTimes = &stateTimes{settledAt: make([]int32, n), decidedAt: make([]int32, n)}
	}
}

// Begin makes the decisions that need no outcome: disabled nodes first, then the roots.
func (s *Locked) Begin() {
	for _, r := range s.net.disabled {
		s.finish(r, Skipped, uint64(SkipAnnotation)<<kindShift|WordBypass|noEdge)
		s.work = append(s.work, r)
	}
	if s.waves {
		s.visitAll()
		s.advance()
		return
	}
	if len(s.net.tiers) > 1 && s.net.tiers[1] > 0 && s.net.end != 0 {
		for r := range Ref(s.net.tiers[1]) {
			if s.words[r]&(wordSpecial|WordDecided) == 0 && !s.logged {
				s.makeReady(r) // see visit
			} else {
				s.touch(r)
			}
		}
	}
	s.visitAll()
	s.cascade()
	s.maybeEnd()
}

// Status returns a node's status. A node is Waiting, which is computed here, if some predecessor has started or settled. A
// Ref that is not of the plan is Idle.
func (st *State) Status(r Ref) Status {
	s := st.lock()
	defer s.Unlock()
	if s.known(r) != nil {
		return Idle
	}
	return s.Status(r)
}

// Status is [State.Status].
func (s *Locked) Status(r Ref) Status {
	status := statusOf(s.words[r])
	switch w := s.words[r]; {
	case w&WordAdmitting != 0:
		return Ready
	case w&WordDormant != 0:
		return Suspended
	}
	if status != Idle {
		return status
	}
	for _, i := range s.net.in.row(r) {
		if started(s.words[s.net.edges[i].From]) {
			return Waiting
		}
	}
	return Idle
}

// started reports whether a node is running, or was, or will never run.
func started(w uint64) bool {
	switch status := statusOf(w); {
	case status == Ready:
		return w&wordCount != 0 && w&WordAdmitting == 0 // it is to be tried again
	case status > Ready:
		return w&WordAdmitting == 0
	}
	return false
}

// Admitted makes a node Running whose inputs have passed.
func (s *Locked) Admitted(r Ref) {
	was := s.words[r]
	s.words[r] = was &^ WordAdmitting
	s.log(r, was, Running)
}

// Settle reports how an attempt ended. A node that was asked to stop and whose step returned an error takes the status that
// belongs to the stop; a success is kept, and so is a panic, a timeout or a failed check, which the stop did not cause.
//
// The error matches [ErrStale] if the token is not current, and [ErrTransition] or [ErrBadValue] if the outcome is not
// possible; nothing has changed then.
func (st *State) Settle(t Token, out Outcome) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	if err := s.Settle(t, out); err != nil {
		return err
	}
	s.react(t.Ref, out.AbortRun)
	return nil
}

// SettleNext is Settle and Next in one call.
func (st *State) SettleNext(t Token, out Outcome) (Task, bool, error) {
	s, err := st.drive()
	if err != nil {
		return Task{}, false, err
	}
	defer s.unlockAndDeliver()
	if err := s.Settle(t, out); err != nil {
		return Task{}, false, err
	}
	s.react(t.Ref, out.AbortRun)
	next, ok := s.Next()
	return next, ok, nil
}

// known returns an error for a Ref that is not of this plan.
func (s *Locked) known(r Ref) error {
	if r < 0 || int(r) >= len(s.words) {
		return fmt.Errorf("%w: ref %d", ErrUnknownNode, r)
	}
	return nil
}

// Current returns an error unless a token belongs to its node's last attempt and its node is in the given status.
func (s *Locked) Current(t Token, status Status) error {
	if err := s.known(t.Ref); err != nil {
		return err
	}
	w := s.words[t.Ref]
	if statusOf(w) != status || int32(w&wordCount) != t.Attempt {
		s.staleCount++
		return fmt.Errorf("%w: node %s, attempt %d", ErrStale, foreign.Quote(s.net.ID(t.Ref)), t.Attempt)
	}
	return nil
}

// Token is the current token of a node that has been started.
func (s *Locked) Token(r Ref) Token { return Token{r, int32(s.words[r] & wordCount)} }

func (s *Locked) leaveRunning(r Ref) {
	s.busy--
	if s.words[r]&WordAdmitting != 0 && !s.net.facts[r].is(FlagInline) { // it has not started
		s.Refund(r)
	}
	if s.occupies(r) {
		s.running--
	}
	if w := s.words[r]; w&WordExpanded != 0 {
		s.words[r] = w &^ WordExpanded
	} else if !s.net.facts[r].is(FlagInline) {
		s.release(r)
	}
}

// occupies reports whether a running node counts against the run's own limit. A node that the engine evaluates does not; nor
// does an expanded node, except the item of a map, which runs as long as its graph does.
func (s *Locked) occupies(r Ref) bool {
	return !s.net.facts[r].is(FlagInline) && (s.words[r]&WordExpanded == 0 || s.net.items)
}

// IsExpanded reports whether a running node has been expanded.
func (s *Locked) IsExpanded(r Ref) bool { return s.words[r]&WordExpanded != 0 }

// Expand records that nested runs perform a running node from now on, and releases the slots of its step.
func (s *Locked) Expand(r Ref) {
	held := s.occupies(r)
	s.words[r] |= WordExpanded
	if held && !s.occupies(r) {
		s.running--
	}
	if held {
		s.release(r)
	}
}

// Retry reports that the attempt failed and another one was granted: the node backs off, holding no slot, until Requeue.
// In a run, or of a node, that is being stopped there is no other attempt: an error that matches [ErrTransition].
func (st *State) Retry(t Token) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	return s.Retry(t)
}

// Retry is [State.Retry].
func (s *Locked) Retry(t Token) error {
	if err := s.Current(t, Running); err != nil {
		return err
	}
	if !s.MayRetry(t.Ref) {
		return &TransitionError{Node: s.net.ID(t.Ref), From: Running, To: Retrying}
	}
	s.leaveRunning(t.Ref)
	s.busy++
	s.setStatus(t.Ref, Retrying)
	return nil
}

// MayRetry reports whether a node may get another attempt: neither it nor its run is being stopped.
func (s *Locked) MayRetry(r Ref) bool {
	return s.words[r]&(WordStopping|WordDraining) == 0 && (s.stopped == CauseNone || s.net.facts[r].is(FlagCleanup))
}

// Requeue makes a node that backs off ready again.
func (st *State) Requeue(t Token) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	return s.Requeue(t, Retrying)
}

// Requeue makes a node ready again that is in the given status, with the token of its last attempt.
func (s *Locked) Requeue(t Token, from Status) error {
	if err := s.Current(t, from); err != nil {
		return err
	}
	s.withdraw(t.Ref)
	s.makeReady(t.Ref)
	return nil
}

// Checked reports the result of a check. The error matches [ErrStale] if the node does not wait for one.
func (st *State) Checked(t Token, v CheckVerdict) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	if err := s.Checked(t, v); err != nil {
		return err
	}
	s.react(t.Ref, false)
	return nil
}

// Checked is [State.Checked].
func (s *Locked) Checked(t Token, v CheckVerdict) error {
	if err := s.known(t.Ref); err != nil {
		return err
	}
	if s.words[t.Ref]&WordChecking == 0 || t.Attempt != 0 {
		s.staleCount++
		return fmt.Errorf("%w: node %s waits for no check", ErrStale, foreign.Quote(s.net.ID(t.Ref)))
	}
	r, key := t.Ref, v.Key
	v.Key = ""
	var bits uint64
	status := Skipped
	switch {
	case v.Skip == SkipNone && ownFailures.Has(v.Fail):
		status, bits = Failed, uint64(v.Fail)<<kindShift
		if s.net.facts[r].is(FlagTolerant) {
			bits |= WordTolerated
		}
	case v.Fail == CauseNone && v.Skip == SkipWhenGuard:
		bits = uint64(SkipWhenGuard)<<kindShift | WordBypass | noEdge
	case v.Fail == CauseNone && v.Skip == SkipNullPropagation && s.net.facts[r].hasPort(v.Port):
		bits = uint64(SkipNullPropagation)<<kindShift | WordBypass | uint64(v.Port)
	case v != (CheckVerdict{}):
		return fmt.Errorf("%w: node %s: verdict %+v", ErrBadValue, foreign.Quote(s.net.ID(r)), v)
	}
	s.inline.Remove(int(r)) // a coordinator may report a check before it was handed out
	s.words[r] &^= WordChecking
	s.busy--
	if (v == CheckVerdict{}) {
		s.BindKey(r, key)
		s.makeReady(r)
		return nil
	}
	if s.net.facts[r].is(FlagAdmit) && !s.admits && (v.Fail == CauseContractInput || v.Fail == CauseModeration) {
		s.words[r] |= WordReached // all that comes before has passed
	}
	s.finish(r, status, bits)
	s.settled(r)
	return nil
}

// Fail makes a node fail that is between two attempts, ready or suspended, because its timeout has passed. The token belongs to its
// last attempt. The error matches [ErrBadValue] for a cause that is not a node's own failure, [ErrStale], and [ErrTransition].
func (st *State) Fail(t Token, kind CauseKind) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	if err := s.Fail(t, kind); err != nil {
		return err
	}
	s.react(t.Ref, false)
	return nil
}

// Fail is [State.Fail].
func (s *Locked) Fail(t Token, kind CauseKind) error {
	if err := s.known(t.Ref); err != nil {
		return err
	}
	from := statusOf(s.words[t.Ref])
	if from != Ready && from != Retrying && from != Suspended {
		return &TransitionError{Node: s.net.ID(t.Ref), From: s.Status(t.Ref), To: Failed}
	}
	if err := s.Current(t, from); err != nil {
		return err
	}
	if !ownFailures.Has(kind) {
		return fmt.Errorf("%w for %v", badCause(kind), Failed)
	}
	bits := uint64(kind) << kindShift
	if s.net.facts[t.Ref].is(FlagTolerant) {
		bits |= WordTolerated
	}
	s.withdraw(t.Ref)
	s.finish(t.Ref, Failed, bits)
	s.settled(t.Ref)
	return nil
}
