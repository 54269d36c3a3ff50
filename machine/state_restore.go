package machine

import (
	"math"
	"slices"
)

// Facts contains what a snapshot stores about a node whose join has decided. References to other nodes and to branches are not part of it: see
// Restored.
type Facts struct {
	Status      Status `json:"status"`             // Idle for a node that is being checked
	Checking    bool   `json:"checking,omitempty"` // the join is satisfied, but the check has no result yet
	Reached     bool   `json:"reached,omitempty"`
	Substituted bool   `json:"substituted,omitempty"`
	Propagated  bool   `json:"propagated,omitempty"`
	Tolerated   bool   `json:"tolerated,omitempty"`
	Bypass      bool   `json:"bypass,omitempty"`
	// Cause is the reason why a node failed or was stopped, or why a running node was asked to stop. Skip is the reason why a node was skipped.
	Cause CauseKind `json:"cause,omitempty"`
	Skip  SkipKind  `json:"skip,omitempty"`
	// The field By is for a node that was skipped because of a branch not taken, a skipped predecessor or a port without a value. It is the position of
	// the deciding edge or port among the node's in-edges or ports, counted from 1. It is 0 if no single edge or port decided.
	By      int   `json:"by,omitempty"`
	Settled int32 `json:"settled,omitempty"` // logical times, for joins that may decide early: see stateTimes
	Decided int32 `json:"decided,omitempty"`
	Started int32 `json:"started,omitempty"` // the number of attempts that have begun; a re-entry of a step also counts as an attempt here
	// Dormant means that the nested run of a running composite can only wait. Draining means that a running node will not be retried. It is set only for
	// a composite, or for a node whose attempt is in flight (see Restored).
	Dormant  bool `json:"dormant,omitempty"`
	Draining bool `json:"draining,omitempty"`
}

// Restored is the state of a node whose join has decided. Another State can continue from it.
type Restored struct {
	Facts
	// Route contains the numbers of the labels that a completed condition has taken.
	Route []int32
	// Origin is the node that caused the stop, the supersession or the propagated failure of this node, or NoRef.
	Origin  Ref
	Inside  bool // for a composite: its nested run continues
	Judging bool // the node had a slot, and its inputs were being judged
	// InFlight means that the attempt of a running node continues, and that the node keeps its slots. Expanded means that nested runs perform the node,
	// because its step has returned a graph.
	InFlight, Expanded bool
	Stopping           bool // whether a draining node whose attempt is in flight was also asked to stop
}

// Restore restores the word, the logical times and the labels of a node. If the node has not ended, Rebuild restores its status later.
func (s *Locked) Restore(r Ref, n *Restored) {
	w := uint64(WordDecided)
	for _, f := range []struct {
		set bool
		bit uint64
	}{
		{n.Reached, WordReached}, {n.Substituted, WordSubstituted}, {n.Propagated, WordPropagated}, {n.Tolerated, WordTolerated},
		{n.Bypass, WordBypass}, {n.Checking, WordChecking},
	} {
		if f.set {
			w |= f.bit
		}
	}
	if x := s.stateTimes; x != nil {
		x.settledAt[r], x.decidedAt[r] = n.Settled, n.Decided
		x.clock = max(x.clock, n.Settled, n.Decided)
	}
	if !n.Status.Terminal() {
		s.words[r] = w | uint64(uint32(n.Started))
		return
	}
	arg := uint64(noEdge)
	switch {
	case n.Status == Skipped && n.By > 0:
		arg = uint64(n.By - 1)
		if n.Skip != SkipNullPropagation {
			arg = uint64(s.net.in.row(r)[n.By-1])
		}
	case n.Status == Completed || n.Status == Failed && !n.Propagated:
		arg = 0
	case n.Origin != NoRef:
		arg = uint64(uint32(n.Origin))
	}
	w |= uint64(n.Status)<<statusShift | uint64(n.Cause)<<kindShift | uint64(n.Skip)<<kindShift | arg
	if n.Status == Completed && n.Tolerated {
		s.tolerated++ // see Settle
	}
	for _, id := range n.Route {
		s.taken[s.net.facts[r].labels+id] = true
	}
	s.words[r] = w
	s.count(r, n.Status, w)
}

// Saved is the reverse of Restore: it returns the state of a node. The fields that only the coordinator knows are zero.
func (s *Locked) Saved(r Ref) Restored {
	w := s.Word(r)
	n := Restored{Origin: NoRef, Facts: Facts{
		Status: w.Status(), Checking: w.Is(WordChecking), Reached: w.Is(WordReached), Substituted: w.Is(WordSubstituted), Propagated: w.Is(WordPropagated),
		Tolerated: w.Is(WordTolerated), Bypass: w.Is(WordBypass),
	}}
	if x := s.stateTimes; x != nil {
		n.Settled, n.Decided = x.settledAt[r], x.decidedAt[r]
	}
	switch n.Status {
	case Skipped:
		x := s.SkipOf(r)
		n.Skip = x.Kind
		switch {
		case n.Skip == SkipSuperseded:
			n.Origin = x.Node
		case n.Skip == SkipNullPropagation:
			n.By = x.Port + 1
		case x.Edge >= 0 && n.Skip != SkipParentFailure:
			n.By = slices.Index(s.net.in.row(r), x.Edge) + 1
		}
	case Failed, Aborted, Cancelled:
		n.Cause = w.Kind()
		if n.Status != Failed || n.Propagated {
			n.Origin = w.By()
		}
	case Completed:
		n.Route = s.Route(r)
	default:
		if n.Started = w.attempts(); w.Is(WordStopping | WordDraining) {
			n.Cause, n.Origin = w.Kind(), s.StopOrigin(r)
		}
	}
	return n
}

// Rebuild replaces Begin for a restored State. The node refs[i] has the state nodes[i]. From the restored words, Rebuild computes the statuses, the
// queues, and the counts of undecided nodes. If the graph or the mode has changed, Rebuild also makes the decisions that have become possible. In
// Waves mode the run continues with the first tier that has unfinished nodes. If inWave is true, the run had already begun this tier; otherwise
// Rebuild logs that the tier begins.
func (s *Locked) Rebuild(refs []Ref, nodes []Restored, inWave bool) {
	for _, r := range s.net.disabled {
		if s.words[r]&WordDecided == 0 {
			s.finish(r, Skipped, uint64(SkipAnnotation)<<kindShift|WordBypass|noEdge)
		}
	}
	for r := range s.words {
		if !statusOf(s.words[r]).Terminal() {
			continue
		}
		if x := s.stateTimes; x != nil && x.settledAt[r] == 0 {
			x.clock++
			x.settledAt[r] = x.clock
		}
		s.visit(Ref(r))
	}
	s.ownAftermath().late = nil // the snapshot already contains the effects of earlier failures
	for i, r := range refs {
		w := s.words[r]
		switch {
		case statusOf(w).Terminal():
		case w&WordChecking != 0:
			s.busy++
			s.EvaluateInline(r)
		case nodes[i].Status == Suspended:
			s.words[r] |= uint64(Suspended) << statusShift
			s.fallAsleep()
			s.host.BeganToWait(r)
		case nodes[i].Status == Retrying:
			s.words[r] |= uint64(Retrying)<<statusShift | WordReached
			s.busy++
		case (nodes[i].Inside || nodes[i].InFlight) && nodes[i].Status == Running:
			s.continueAttempt(r, &nodes[i])
		case s.host.Keeps(r): // the node's step was called before, and will be called again in the same attempt
			s.makeReady(r)
			s.Hush(r)
		default:
			if nodes[i].Judging && s.net.facts[r].is(FlagAdmit) {
				s.words[r] |= WordAdmitting // the inputs of the node were being judged
			}
			s.makeReady(r)
		}
	}
	if s.waves {
		s.brink()
		if s.tier = s.firstOpenTier(); s.tier < int32(len(s.net.tiers)-1) {
			if !inWave {
				s.logWave(s.tier, 1)
			}
			if !s.openTier() {
				s.advance()
			}
		}
		return
	}
	if len(s.net.tiers) < 2 {
		s.brink()
		return
	}
	for r := range Ref(s.net.tiers[1]) {
		if r != s.net.end {
			s.touch(r)
		}
	}
	s.cascade()
	s.maybeEnd()
}

// continueAttempt makes a node Running again, in the same attempt. The node is a composite whose nested run continues, or a node whose attempt is in
// flight.
func (s *Locked) continueAttempt(r Ref, n *Restored) {
	s.words[r] |= wordRunning | WordReached
	if n.Expanded {
		s.words[r] |= WordExpanded
	}
	if n.Cause != CauseNone || n.Draining {
		flag := uint64(WordStopping)
		switch {
		case n.Draining && n.Stopping:
			flag |= WordDraining
		case n.Draining:
			flag = WordDraining
		}
		s.setStop(r, flag, n.Cause, n.Origin)
	}
	if n.Dormant {
		s.words[r] |= WordDormant
		s.fallAsleep()
		return
	}
	s.busy++
	if s.occupies(r) { // a composite occupies a slot only if it is an item of a map and its nested run can do more than wait
		s.running++
	}
	switch {
	case s.net.facts[r].is(FlagInline), n.Expanded: // a node gives its slots back when it is expanded
	case n.InFlight:
		s.keepSlots(r)
	default:
		s.acquire(r)
	}
}

// keepSlots makes a node hold the slots that it held before the State was restored, even if this exceeds a limit. It takes no tokens.
func (s *Locked) keepSlots(r Ref) {
	if !s.limits.active {
		return
	}
	for g := range s.lines(r) {
		if x := s.limits.groups[g].Slots; x != nil {
			x.used++
		}
	}
	if s.tree != nil {
		s.tree.Used++
	}
}

// KeepUndoSlots makes a node hold slots for an attempt to undo the node: the slots that this attempt held before the State was restored. The
// coordinator calls KeepUndoSlots for every node with such an attempt, in all runs, before any run undoes a node. Later it calls KeepUndo for the
// node. If the attempt cannot continue, the coordinator calls DropUndoSlots.
func (s *Locked) KeepUndoSlots(r Ref) { s.addUndoSlots(r, 1) }

// DropUndoSlots reverses KeepUndoSlots. It is called if the attempt to undo the node must be repeated.
func (s *Locked) DropUndoSlots(r Ref) { s.addUndoSlots(r, -1) }

func (s *Locked) addUndoSlots(r Ref, n int) {
	if !s.takesSlotsBack(r) {
		return
	}
	for g := range s.lines(r) {
		if x := s.limits.groups[g].Slots; x != nil && !(s.limits.whole && int(g) == len(s.limits.groups)-1) {
			x.used += n
		}
	}
}

// KeepUndo records that node r is being undone, and returns true. It takes no slots: see KeepUndoSlots. If the node does not contend for the slots in
// which it is undone, for example because its turn has not begun, KeepUndo changes nothing and returns false.
func (s *Locked) KeepUndo(r Ref) bool {
	if !s.Undoes() || s.undo.reversal.state[r] != undoContends {
		return false
	}
	s.undo.reversal.ready.Remove(int(s.order.pos[r]))
	s.undo.reversal.state[r] = undoAtWork
	return true
}

// Moment returns the last moment (see the type moment) at which the State asked its host whether nodes must be undone. KeepMoment restores this
// moment, so that the restored State does not ask again. While the run waits until its nodes are undone, Moment returns 0. Then the restored State
// asks again, and its host begins the undoing again.
func (s *Locked) Moment() uint8 {
	if s.undo == nil || s.undo.holds {
		return 0
	}
	return uint8(s.undo.asked)
}

// KeepMoment restores a moment that Moment has returned.
func (s *Locked) KeepMoment(m uint8) {
	if s.undo != nil {
		s.undo.asked = moment(min(m, uint8(beforeEnd)))
	}
}

// Gates returns the ready gates that have not been handed out, in the order in which they became ready. OrderGates restores this order.
func (s *Locked) Gates() []Ref { return s.gates.list() }

// OrderGates restores the order of the gates that Gates has returned. It ignores a Ref that is not a ready gate.
func (s *Locked) OrderGates(refs []Ref) { s.resumeGates(refs) }

// Tokens contains the state of a token bucket in a snapshot. If the bucket belongs to a late key, Key is this key. Otherwise the bucket belongs to
// the group with the number Group.
type Tokens struct {
	Group int32  `json:"group,omitempty"`
	Key   string `json:"key,omitempty"`
	Level int64  `json:"level"`
	At    int64  `json:"at"`            // the time of the Level, in nanoseconds since the beginning of the run
	Due   *int64 `json:"due,omitempty"` // when the next token falls due; nil if no node waits for it
}

// Advanced returns the time of the latest Advance, which decides whether a token has fallen due. ok is false if the run has no rates.
func (s *Locked) Advanced() (now int64, ok bool) {
	if s.limits.rates == nil {
		return 0, false
	}
	return s.limits.rates.now, true
}

// TokensLeft returns the contents of each bucket that differs from a new bucket, in the order of groups. If several runs of a tree share a bucket,
// TokensLeft may return it for each of these runs.
func (s *Locked) TokensLeft() (list []Tokens) {
	for g := range s.limits.groups {
		if t, ok := s.TokensOf(s.limits.groups[g].Slots); ok {
			t.Group = int32(g)
			list = append(list, t)
		}
	}
	keys := s.keysOfGroups()
	for i := range list {
		list[i].Key = keys[list[i].Group]
	}
	return list
}

// TokensOf returns the contents of the bucket of x. The result `ok` is false if x has no bucket, or if the bucket does not differ from a new bucket.
func (s *Locked) TokensOf(x *Slots) (t Tokens, ok bool) {
	if x == nil || x.bucket == nil {
		return t, false
	}
	if s.limits.rates.awaited.Has(x) {
		due := x.Due
		t.Due = &due
	}
	t.Level, t.At = x.bucket.Contents()
	return t, t.At != 0 || t.Due != nil || !x.bucket.Full(0)
}

// KeepTokens restores the contents of the buckets that TokensLeft has returned. It ignores groups that have no rate.
func (s *Locked) KeepTokens(list []Tokens) {
	for i := range list {
		if g, ok := s.groupOf(list[i].Group, list[i].Key); ok {
			s.keepTokens(s.limits.groups[g].Slots, &list[i])
		}
	}
}

func (s *Locked) keepTokens(x *Slots, t *Tokens) {
	if x.bucket == nil {
		return
	}
	if x.bucket.Refill(t.Level, t.At); t.Due != nil {
		s.limits.rates.awaited.Add(x, *t.Due)
	}
}

// KeepKey restores the token bucket of a key in a tree of runs, and returns the slots of the key. The parameter x has these slots. If x is nil,
// because no restored run has a node with the key, KeepKey makes the slots. The State must use rates.
func (s *Locked) KeepKey(x *Slots, t *Tokens, setup *SlotSetup) *Slots {
	if x == nil {
		x = newSlots(Bound{Limit: setup.KeyLimit, Rate: setup.KeyRate, Key: true})
	}
	s.keepTokens(x, t)
	return x
}

// Line describes one of the two queues of a group's line: either the nodes of the run that need a token, or the nodes that need only a slot. If the
// line belongs to a late key, Key is this key.
type Line struct {
	Group   int32
	Key     string
	Token   bool   // whether the nodes need tokens
	Arrival uint64 // orders the lines of the runs that share the slots
	Nodes   []Ref  // the waiting nodes that are ready or contend for slots in order to be undone; the list may be empty
}

// Lines returns the lines in which nodes of the run wait. After Rebuild, the coordinator sorts the lines of all runs by Arrival, and passes each line
// to KeepLine.
func (s *Locked) Lines() (list []Line) {
	for g := range s.limits.groups {
		x := &s.limits.groups[g]
		for of := range x.queues {
			q := &x.queues[of]
			if x.Slots == nil || !q.listed && !q.parked {
				continue
			}
			l := Line{Group: int32(g), Token: of == needToken, Arrival: q.arrival}
			q.eachWaiting(func(pos int32) bool {
				if r := s.order.at[pos]; s.waitsInLine(r) {
					l.Nodes = append(l.Nodes, r)
				}
				return true
			})
			list = append(list, l)
		}
	}
	keys := s.keysOfGroups()
	for i := range list {
		list[i].Key = keys[list[i].Group]
	}
	return list
}

// KeepLine restores one of the lines that Lines has returned.
func (s *Locked) KeepLine(l *Line) {
	g, ok := s.groupOf(l.Group, l.Key)
	if !ok {
		return
	}
	x, of := &s.limits.groups[g], needSlot
	if l.Token {
		of = needToken
	}
	var now []Ref // the nodes that join the line now; the others join it when their turns to be undone begin
	q, later := &x.queues[of], 0
	for _, r := range l.Nodes {
		switch {
		case !s.Needs(r, x.Slots):
		case statusOf(s.words[r]) == Ready && s.ready.Has(int(s.order.pos[r])), s.beingUndone(r) && s.undo.reversal.ready.Has(int(s.order.pos[r])):
			now = append(now, r)
		case s.undo != nil && s.undo.reversal == nil && statusOf(s.words[r]).Terminal():
			if later++; s.undo.lines == nil {
				s.undo.lines = map[Ref]int32{}
			}
			s.undo.lines[r], q.keeps = g, true
		}
	}
	if !q.listed && !q.parked {
		x.arrivals = max(x.arrivals, l.Arrival)
		switch q.arrival = l.Arrival; {
		case later > 0 && len(now) == 0: // the line is listed later, since the next offer would take an empty line off the list
		case s.isFull(): // otherwise the next offer would set the queue aside
			s.park(g, of)
		default:
			q.listed = true
			x.waiting[of] = append(x.waiting[of], waiting{s, g, l.Arrival})
		}
	}
	for _, r := range now {
		contending := &s.ready
		if s.beingUndone(r) {
			contending = &s.undo.reversal.ready
		}
		if contending.Remove(int(s.order.pos[r])) { // false if the list contains the node twice
			s.enqueue(g, r, s.takesToken(r))
		}
	}
}

// Offers returns the lines whose nodes contend because of an offer (see pass), in the order of the offers. Only Group and Key of each Line are set. The
// result is nil if the run has no limit of its own.
func (s *Locked) Offers() []Line {
	if !s.recordsOffers() {
		return nil
	}
	list, keys := make([]Line, len(s.limits.offered)), s.keysOfGroups()
	for i, g := range s.limits.offered {
		list[i] = Line{Group: g, Key: keys[g]}
	}
	return list
}

func (s *Locked) recordsOffers() bool {
	return s.limits.active && s.limit > 0 && s.limit < math.MaxInt32
}

// KeepOffers is the reverse of Offers. It is called after KeepLine. If the list is nil, the offers are not known, and all nodes that contend for a slot
// count as nodes that have left a line because of an offer.
func (s *Locked) KeepOffers(list []Line) {
	for i := range list {
		if g, ok := s.groupOf(list[i].Group, list[i].Key); ok {
			s.offered(g)
		}
	}
	if list != nil || !s.recordsOffers() {
		return
	}
	var ready []int
	for i, ok := s.ready.PopMin(); ok; i, ok = s.ready.PopMin() {
		ready = append(ready, i)
		for g := range s.lines(s.order.at[i]) {
			s.offered(g)
		}
	}
	for _, i := range ready {
		s.ready.Insert(i)
	}
}

// Held returns the ready nodes that a hold has taken out of the queue. They have declined the slots for which they contended, see passOver.
func (s *Locked) Held() (list []Ref) {
	if s.aside == nil || s.hold != holdFresh {
		return nil
	}
	for _, r := range s.aside.held {
		if statusOf(s.words[r]) == Ready {
			list = append(list, r)
		}
	}
	return list
}

// KeepHeld is the reverse of Held, after Rebuild. So the nodes do not decline again, since other nodes would then get offers.
func (s *Locked) KeepHeld(list []Ref) {
	for _, r := range list {
		if s.hold == holdFresh && s.known(r) == nil && statusOf(s.words[r]) == Ready && s.ready.Remove(int(s.order.pos[r])) {
			x := s.hasAside()
			x.held = append(x.held, r)
		}
	}
}

// keysOfGroups returns the late keys by group, see LateKeys.
func (s *Locked) keysOfGroups() map[int32]string {
	if s.limits.late == nil {
		return nil
	}
	keys := map[int32]string{}
	for key, g := range s.LateKeys() {
		keys[g] = key
	}
	return keys
}

// groupOf returns the group in whose line the nodes with a late key wait. If key is empty, it returns g. The result `ok` is false if there is no such
// group, or if the group has no Slots.
func (s *Locked) groupOf(g int32, key string) (_ int32, ok bool) {
	if key != "" && s.limits.late != nil {
		g, ok = s.limits.late.of[key]
		if !ok {
			return 0, false
		}
	}
	return g, g >= 0 && int(g) < len(s.limits.groups) && s.limits.groups[g].Slots != nil
}

// HasEnded reports whether one of the recorded changes is the end of a node (see Changes). A coordinator calls it after Rebuild, which may end nodes.
// For example, if a run in Waves mode continues in Eager mode, Rebuild judges joins that the run had postponed to its next tier.
func (s *Locked) HasEnded() bool {
	return slices.ContainsFunc(s.changes, func(c Change) bool { return c.Wave == 0 && c.Status.Terminal() })
}

// firstOpenTier returns the lowest tier with a node that is not terminal. If all nodes are terminal, it returns the number of tiers.
func (s *Locked) firstOpenTier() int32 {
	for r, w := range s.words {
		if !statusOf(w).Terminal() {
			return s.net.facts[r].tier
		}
	}
	return int32(len(s.net.tiers) - 1)
}
