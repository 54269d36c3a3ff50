package machine

import (
	"fmt"
	"math"
	"sync"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/ordset"
)

// State is the state of one run: each node's status, whether the node is ready or blocked by a failure, the ready queue and the slots. It is
// a deterministic machine: it has no clock, goroutine, context or randomness, and calls no user code. A coordinator drives the State: it calls
// the methods below to report results and to ask for tasks. The Run of package kahn is a coordinator; an engine that performs steps
// elsewhere may be another.
//
//	for t, ok := st.Next(); ok; t, ok = st.Next() {
//		// perform t.Ref, in any way, at any time, and report with t.Token:
//		st.Settle(t.Token, machine.Outcome{Status: machine.Completed})
//	}
//
// Any number of goroutines may use a State at the same time. When a call returns, all its consequences have been applied, however many nodes they
// concern. A call that the transition table forbids returns an error and changes nothing. A call that completes a node usually allocates nothing.
type State struct {
	net *Net
	mu  *stateLock // guards all fields below; a Run also publishes its events while it holds mu
	own stateLock  // mu points to this lock, except in a nested run, where mu points to the lock of the outermost run

	words  []uint64 // by Ref: see the word constants
	limits *limits
	*stateMarks

	order *Schedule // the order in which ready nodes start: the net's order, or an order of this run's own
	stateQueues
	stateTally
	stateHolds
	stateStops
	*stateTimes // nil if no node has an early rule, which may decide before all edges have resolved
	stateNotes
}

// stateQueues holds the nodes for which work is due.
type stateQueues struct {
	ready   ordset.Set  // nodes in status Ready that contend for a slot, by schedule position
	inline  *ordset.Set // nodes that must be checked or evaluated inline, by Ref
	gates   *gateQueue  // gates in status Ready that have not been handed out; nil until the first gate is ready
	touched *ordset.Set // nodes whose counts have changed since their join was last judged, by Ref; created on first use
	work    []Ref       // terminal nodes whose out-edges must still be visited
}

// stateMarks holds the data that only wide nodes and conditions need. A State without such nodes shares noMarks, whose slices are empty.
type stateMarks struct {
	wide  []wide // by facts.wide
	taken []bool // by label number: whether a completed condition has taken the label
}

var noMarks stateMarks

// stateTally counts nodes and, for tests, edges.
type stateTally struct {
	left       int32 // nodes that are not terminal, except the end node and, after AllowUndo, cleanup nodes: see leftOf
	running    int32 // nodes that hold a slot
	busy       int32 // nodes that run, retry or are being checked, with or without a slot
	asleep     int32 // suspended nodes
	pending    int32 // under Waves: nodes of the current tier that are not terminal
	badNodes   int32 // failed, aborted or cancelled nodes
	cancelled  int32 // cancelled nodes
	tolerated  int32 // nodes that failed by themselves under ContinueOnFail, and completed composites in which failures were handled or tolerated
	staleCount int32
	visits     int64 // edges and group members visited; tests check that the work is linear
}

// stateHolds contains what may keep ready nodes from starting.
type stateHolds struct {
	waves  bool       // nodes start tier by tier
	holds  bool       // while a node is suspended, no node starts for the first time
	hold   hold       // which nodes must not start at present
	closed bool       // the run has lost its store or never began: a stop also stops cleanup nodes and the end node
	parks  bool       // the host queues some ready inline nodes, after its store has recorded them: see ParksNode
	admits bool       // a node with FlagAdmit that has its slot appears as Ready until the host calls Admitted
	tier   int32      // under Waves: the current tier
	limit  int32      // slots; 0 means no limit
	aside  *setAside  // nil until a hold has kept a node from starting
	tree   *TreeSlots // the slots that the runs of a tree share; nil if the tree has no limit; if tree is set, limit is set, too
}

// setAside holds the nodes that a hold keeps from starting.
type setAside struct {
	held  []Ref      // nodes that are in no queue because of the hold
	fresh ordset.Set // ready nodes that have never started, by schedule position, while they are held
	again []Ref      // nodes that were queued for a further attempt, and may start during a hold of fresh nodes; empty if the run has no such holds
}

// stateStops records the stops of the run and of single nodes.
type stateStops struct {
	stopped CauseKind // why the whole run was stopped, or CauseNone
	stops   StopSetup // placed here to use the padding behind stopped
	// The field `origins` is nil until a caller asks for origins. originsLock guards it: after the run has ended, a Result computes the origins without
	// mu, while other goroutines may compute them with mu. The field is no part of the aftermath, since a Result may set it while the last worker reads
	// the aftermath. A goroutine that holds originsLock takes no other lock.
	origins     *originSets
	originsLock sync.Mutex
	*aftermath
}

// aftermath holds the effects of failures, stops and redrives, and the data for undoing nodes. A State without these shares
// noAftermath, which is never written, because writers call ownAftermath first.
type aftermath struct {
	unchecked    []Ref          // nodes that were stopped while the coordinator was checking them; only under a Run
	stopping     []Ref          // running nodes that were asked to stop, and that NextStop has not handed out yet
	origin       map[Ref]Ref    // for running nodes that were asked to stop, or that drain: the node that caused the stop, or NoRef
	losers       *loserSearch   // nil until the first search for losers
	late         []Ref          // nodes that must be stopped, since a predecessor failed or was stopped after their join was decided
	failedGroups map[int32]bool // the groups whose members were stopped; nil under a Run, which stores this set itself
	members      [][]Ref        // by group: its members; computed when a failure first stops a group; nil under a Run
	undo         *undoing       // nil unless some node may have to be undone

	// The field `epochs` has, by Ref, the epoch in which the node ended or will end: see SetEpochs. It is nil unless a redrive has kept some node
	// although one of the node's ancestors runs again.
	epochs []int
}

var noAftermath aftermath

// ownAftermath returns the State's own aftermath. The first call creates it.
func (s *Locked) ownAftermath() *aftermath {
	if s.aftermath == &noAftermath {
		s.aftermath = &aftermath{}
	}
	return s.aftermath
}

// stateTimes holds logical times for nodes with early rules. Such a node gets no input from a predecessor that ends after the node's join was
// decided.
type stateTimes struct {
	clock     int32
	settledAt []int32 // by Ref: when the node became terminal
	decidedAt []int32 // by Ref: when the node's join was decided
}

// stateNotes holds the recorded changes, the observers, the host, and whether an announcement is open.
type stateNotes struct {
	announced bool // an announcement is open: see Announce
	logged    bool
	noted     bool       // transitions are logged or observed
	rule      StatusRule // the rule that determines the status of the run, see RunStatusByRule and RunStatusSignal
	host      Host       // the coordinator that drives the State, or nil
	*stateLog
}

// stateLog holds the notes of a State that is logged or observed, or has a defect. Any other State shares noLog, which is never written, because
// writers call ownLog first.
type stateLog struct {
	changes []Change   // transitions for the event log; empty unless logged is set
	obs     *observers // nil until a signal is requested
	bug     error      // the first defect, see NoteBug
}

var noLog stateLog

// ownLog returns the State's own stateLog. The first call creates it.
func (s *Locked) ownLog() *stateLog {
	if s.stateLog == &noLog {
		s.stateLog = &stateLog{}
	}
	return s.stateLog
}

// DrivenBy makes h drive the State. The parameter h is a Run, or another coordinator that calls the methods of Locked. The parameter `around` is the
// State whose lock this State shares, or nil if this State has its own lock.
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

// DropLog stops recording transitions.
func (s *Locked) DropLog() { s.logged = false }

// Park turns parking on or off. While parking is on, the host, and not the State, queues some ready inline nodes: see ParksNode.
func (s *Locked) Park(on bool) { s.parks = on }

// ParksNodes reports whether parking is on.
func (s *Locked) ParksNodes() bool { return s.parks }

// Defect returns the first recorded defect, or nil if there is none. A transition that the table forbids is a defect. See NoteBug.
func (s *Locked) Defect() error { return s.bug }

// Close extends later calls of Stop to cleanup nodes and the end node.
func (s *Locked) Close() { s.closed = true }

// IsClosed reports whether Close was called.
func (s *Locked) IsClosed() bool { return s.closed }

// StoppedFor returns why the whole run was stopped, or CauseNone.
func (s *Locked) StoppedFor() CauseKind { return s.stopped }

// SetStopped records why the whole run is about to be stopped.
func (s *Locked) SetStopped(kind CauseKind) { s.stopped = kind }

// TakeUnchecked returns the nodes that were stopped while the coordinator was checking them, and clears the list.
func (s *Locked) TakeUnchecked() []Ref {
	refs := s.unchecked
	if refs != nil {
		s.unchecked = nil
	}
	return refs
}

// Visited returns the number of edges that the State has visited, plus the counts passed to CountVisits. Tests use this number to check that the
// work is linear.
func (s *Locked) Visited() int64 { return s.visits }

// StaleOutcomes returns the number of calls that were refused because their token was not current.
func (s *Locked) StaleOutcomes() int { return int(s.staleCount) }

// Leftovers returns texts about the work that the run has not finished. It returns none once the run has ended.
func (s *Locked) Leftovers() (left []string) {
	for _, x := range []struct {
		what string
		n    int
	}{{"busy", int(s.busy)}, {"not terminal", int(s.left)}, {"ready", s.ready.Len()}, {"inline", s.inline.Len()}} {
		if x.n != 0 {
			left = append(left, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return left
}

// HeldSlots returns texts about the numbers of slots that nodes hold.
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

// CountVisits adds n to the count that Visited returns.
func (s *Locked) CountVisits(n int) { s.visits += int64(n) }

// Epoch returns the epoch that SetEpochs has set for a node: the epoch in which the node ended or will end. It returns 0 if SetEpochs was not
// called.
func (s *Locked) Epoch(r Ref) int {
	if s.epochs == nil {
		return 0
	}
	return s.epochs[r]
}

// SetEpochs sets the epochs of all nodes, by Ref.
func (s *Locked) SetEpochs(epochs []int) { s.ownAftermath().epochs = epochs }

// OpenTier returns the number of the current tier, and how many nodes of the tier are not terminal. The first tier has the number 0. Before it
// begins, the result `tier` is -1.
func (s *Locked) OpenTier() (tier int32, open int) { return s.tier, int(s.pending) }

// SettledAfter reports whether the node `from`, a predecessor of node r, ended after the join of r was decided. This is possible only if r has an
// early rule.
func (s *Locked) SettledAfter(from, r Ref) bool {
	return s.stateTimes != nil && s.settledAt[from] > s.decidedAt[r]
}

// Host is the coordinator that drives a State. The State calls the methods of the Host with the State's lock held.
type Host interface {
	RunStatus() RunStatus
	Hurries() bool     // reports whether a run around this run is being stopped
	BeganToWait(r Ref) // called when a node begins to wait for a signal
	EndedWait()        // called when a wait has ended
	Keeps(r Ref) bool  // for a restored run: reports whether the node's step was called before, and will be called again in the same attempt
	Contends()         // called when a node contends for a slot again
	Reverses() bool    // called when the run is about to end: if the run must undo nodes, the host calls Reverse and returns true
	Announced()        // called when there is a task: the host starts a worker, which calls Answer and Next
	Grants() bool      // reports whether a slot of the run's tree is free for the run's best ready node
}

// TreeSlots are the slots that the runs of a tree share.
type TreeSlots struct{ Used int }

// Token identifies one attempt of a node. If Attempt is 0, it identifies the node's check or, for a gate, the gate itself. A State accepts an outcome
// only with the node's current token, so a duplicate or late outcome changes nothing.
type Token struct {
	Ref     Ref
	Attempt int32
}

// Task is something for the coordinator to do.
type Task struct {
	Token
	// Check means that the node's join is satisfied, and that user code or data decides whether the node runs. Evaluate the node's guard,
	// assemble its inputs, and report the verdict with Checked. If neither Check nor Gate is set, the attempt has begun: the node is Running.
	Check bool
	// Gate means that the node is a gate, and is Ready. If no signal has arrived for the gate, call Suspend: the gate then waits. If a signal has
	// arrived, report its outcome with Settle. When a signal arrives for a waiting gate, call Settle with the same Token.
	Gate bool

	// Returned means that the nested run of a composite has ended, and that a worker must conclude the composite. Check is set, too, but there is
	// nothing to check.
	Returned bool
}

// Outcome describes how an attempt ended.
type Outcome struct {
	// Status is Completed, Failed, Skipped (the step skipped itself), Aborted or Cancelled.
	Status Status
	// Cause is the reason why the node is Failed, Aborted or Cancelled. For Failed it is one of the node's own failures. For Aborted it is one of the
	// failures elsewhere. For Cancelled it is one of the requests to stop. Settle returns [ErrBadValue] for a cause that does not fit the Status.
	Cause CauseKind
	// Route lists, for a completed condition, the numbers of the labels that it takes. Plan.Route of package kahn finds them.
	Route []int32
	// Degraded means that failures inside a completed composite were handled or tolerated.
	Degraded bool
	// AbortRun means that the step of a failed node returned an error that ends the run: see AbortRun in package kahn.
	AbortRun bool
}

// CheckVerdict is the result of a check. The zero value lets the node run.
type CheckVerdict struct {
	// Skip, if not SkipNone, makes the State skip the node. It is SkipWhenGuard or SkipNullPropagation.
	Skip SkipKind
	// Port is, for SkipNullPropagation, the index of the port in the node's Ports.
	Port int
	// Fail, if not CauseNone, makes the State fail the node. It is one of the node's own failures, such as CauseConditionError, CauseMergeError,
	// CauseContractInput, CauseModeration, CauseTimeout or CausePanic.
	Fail CauseKind
	// Key is the key that a value gives to the node, or "". It has no effect if the node is skipped or failed.
	Key string
}

// Change is one transition, for the log.
type Change struct {
	Ref     Ref
	Attempt int32 // the number of attempts begun so far; meaningless if the node is terminal
	Status  Status
	Blocked bool // the join was blocked; what happens to the node then follows from its upstream policy
	Quiet   bool // the change has no event
	Wave    int8 // +1: the tier whose number is Ref starts; -1: that tier has completed
}

// The type `wide` holds the extra counters of a node, which do not fit into the node's word. A node has them if its rule is AtLeast, or if it has an
// early rule and required ports.
type wide struct {
	s, other, ports int32
}

// Setup holds the options of a State.
type Setup struct {
	Waves bool       // nodes start tier by tier
	Holds bool       // while a node is suspended, no node starts for the first time
	Limit int        // slots; 0 means no limit
	Rule  StatusRule // determines the status of the run, see RunStatusByRule and RunStatusSignal
	Stops StopSetup
	Order *Schedule // the order in which ready nodes start; nil means the order of the plan
	SlotSetup
}

// StopSetup holds the options for failures and stops.
type StopSetup struct {
	OnFailure OnFailure
	Drains    bool // after a failure, running nodes may finish
}

// New returns the state of a run that has just begun: disabled nodes are skipped and roots are ready.
func New(p *Net, x *Setup) *State {
	s := &Locked{}
	s.Init(p, x)
	for r := range p.facts {
		s.words[r] = p.firstWord(Ref(r))
	}
	s.Begin()
	return (*State)(s)
}

// Init makes s the State of a run of the net. The caller then calls Begin, or Restore and Rebuild.
func (s *Locked) Init(p *Net, x *Setup) {
	n := len(p.names)
	s.mu = &s.own
	s.aftermath, s.stateLog = &noAftermath, &noLog
	s.net, s.waves, s.holds, s.limit, s.left, s.tier, s.rule, s.stops = p, x.Waves, x.Holds, int32(min(x.Limit, math.MaxInt32)), int32(n), -1, x.Rule, x.Stops
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
	s.stateMarks = &noMarks
	if p.wide > 0 || p.labels > 0 {
		s.stateMarks = &stateMarks{make([]wide, p.wide), make([]bool, p.labels)}
	}
	if p.wide > 0 {
		for r := range p.facts {
			if f := &p.facts[r]; f.wide >= 0 {
				s.wide[f.wide].ports = p.portEdges(Ref(r))
			}
		}
	}
	if p.early {
		s.stateTimes = &stateTimes{settledAt: make([]int32, n), decidedAt: make([]int32, n)}
	}
}

// Begin makes the decisions that need no outcome: it skips disabled nodes and makes roots ready.
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

// Status returns a node's status. It computes [Waiting] from the predecessors: an idle node is waiting if one of them has started or
// ended. For a Ref outside the plan, Status returns Idle.
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

// The function `started` reports whether a node runs or ran, or will never run.
func started(w uint64) bool {
	switch status := statusOf(w); {
	case status == Ready:
		return w&wordCount != 0 && w&WordAdmitting == 0 // an earlier attempt has started, even if the next has not
	case status > Ready:
		return w&WordAdmitting == 0
	}
	return false
}

// Admitted makes a node Running after its inputs were judged and accepted.
func (s *Locked) Admitted(r Ref) {
	was := s.words[r]
	s.words[r] = was &^ WordAdmitting
	s.log(r, was, Running)
}

// Settle reports how an attempt ended. If the node was asked to stop and its step then returned an error, the node takes the status of the
// stop. A success is kept. A panic, a timeout or a refusal of the inputs is kept, too, since the stop did not cause it.
//
// The error matches [ErrStale] if the token is not current, and [ErrTransition] or [ErrBadValue] if the outcome is not possible. If Settle returns an
// error, the State is unchanged.
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

// SettleNext calls Settle, and then Next unless Settle returns an error.
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

// The method `known` returns an error if the Ref is outside this plan.
func (s *Locked) known(r Ref) error {
	if r < 0 || int(r) >= len(s.words) {
		return fmt.Errorf("%w: ref %d", ErrUnknownNode, r)
	}
	return nil
}

// Current returns an error unless the token belongs to the last attempt of its node and the node has the given status.
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

// Token returns the current token of a node that has started.
func (s *Locked) Token(r Ref) Token { return Token{r, int32(s.words[r] & wordCount)} }

func (s *Locked) leaveRunning(r Ref) {
	s.busy--
	if s.words[r]&WordAdmitting != 0 && !s.net.facts[r].is(FlagInline) { // the inputs are still being judged, and the attempt has not started
		s.Refund(r)
	}
	if s.occupies(r) {
		s.vacate()
	}
	if w := s.words[r]; w&WordExpanded != 0 {
		s.words[r] = w &^ WordExpanded
	} else if !s.net.facts[r].is(FlagInline) {
		s.release(r)
	}
}

// The method `occupies` reports whether a running node counts against the run's own limit. A node that the engine evaluates does not count. An
// expanded node counts only if it is the item of a map, since an item holds its slot until its graph ends.
func (s *Locked) occupies(r Ref) bool {
	return !s.net.facts[r].is(FlagInline) && (s.words[r]&WordExpanded == 0 || s.net.items)
}

// IsExpanded reports whether a running node has been expanded.
func (s *Locked) IsExpanded(r Ref) bool { return s.words[r]&WordExpanded != 0 }

// Expand records that a running node was expanded: from now on, nested runs perform the node. It releases the slots of the node's step.
func (s *Locked) Expand(r Ref) {
	held := s.occupies(r)
	s.words[r] |= WordExpanded
	if held && !s.occupies(r) {
		s.vacate()
	}
	if held {
		s.release(r)
	}
}

// Retry reports that an attempt failed and that another attempt will follow. The node backs off, and holds no slot, until Requeue is called. The
// error matches [ErrTransition] if the node or the run is being stopped.
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

// MayRetry reports whether a node may get another attempt. It returns false if the node or its run is being stopped. A stop of the run does not
// affect cleanup nodes.
func (s *Locked) MayRetry(r Ref) bool {
	return s.words[r]&(WordStopping|WordDraining) == 0 && (s.stopped == CauseNone || s.net.facts[r].is(FlagCleanup))
}

// Requeue ends the backoff of a node: the node becomes ready again.
func (st *State) Requeue(t Token) error {
	s, err := st.drive()
	if err != nil {
		return err
	}
	defer s.unlockAndDeliver()
	return s.Requeue(t, Retrying)
}

// Requeue makes a node ready again. The node must have the status `from`. The argument t is the token of the node's last attempt.
func (s *Locked) Requeue(t Token, from Status) error {
	if err := s.Current(t, from); err != nil {
		return err
	}
	s.withdraw(t.Ref)
	s.makeReady(t.Ref)
	return nil
}

// Checked reports the result of a check. The error matches [ErrStale] if the node does not wait for a check.
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
	s.inline.Remove(int(r)) // a coordinator may report a check before Next hands it out
	s.words[r] &^= WordChecking
	s.busy--
	if (v == CheckVerdict{}) {
		s.BindKey(r, key)
		s.makeReady(r)
		return nil
	}
	if s.net.facts[r].is(FlagAdmit) && !s.admits && (v.Fail == CauseContractInput || v.Fail == CauseModeration) {
		s.words[r] |= WordReached // only the inputs were rejected; the guard, the merge and the ports have passed
	}
	s.finish(r, status, bits)
	s.settled(r)
	return nil
}

// Fail fails a node that is ready, suspended or between two attempts, for example because its timeout has passed. The argument t is the token of the
// node's last attempt. The error matches [ErrTransition] if the node has any other status, and [ErrStale] if the token is not current. It matches
// [ErrBadValue] if the cause is not a node's own failure.
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
