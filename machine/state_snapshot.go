package machine

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// StateVersion is the version of a [State]'s decisions: two States of the same version make the same decisions if they get the same calls. An engine
// that replays histories stores the version with each history. The version changes when a decision or the form of a [StateSnapshot] changes.
const StateVersion = 1

// StateSnapshot contains the data of a [State] at one moment. [State.Snapshot] returns it, and [RestoreState] makes a State that continues from it,
// for example in another process. The contents are opaque. They fit only the plan and the StateVersion with which the snapshot was taken.
type StateSnapshot struct {
	Version int    `json:"version"`
	Plan    uint64 `json:"plan,string"` // a fingerprint of the plan
	Words   []byte `json:"words"`       // 8 bytes per node, little-endian

	Counters []int32     `json:"counters,omitempty"` // 3 numbers for each join that counts edges
	Taken    []int32     `json:"taken,omitempty"`    // the labels that conditions have taken
	Clock    int32       `json:"clock,omitempty"`    // logical times, for plans with early joins
	Settled  []int32     `json:"settled,omitempty"`
	Decided  []int32     `json:"decided,omitempty"`
	Tier     int32       `json:"tier,omitempty"`  // -1 if the mode is not Waves
	Gates    []Ref       `json:"gates,omitempty"` // gates that have not been handed out
	Stopped  CauseKind   `json:"stopped,omitempty"`
	Stopping []Ref       `json:"stopping,omitempty"` // nodes that NextStop has not handed out
	Origins  map[Ref]Ref `json:"origins,omitempty"`  // by running node: the origin of its stop
	Groups   []int32     `json:"failed_groups,omitempty"`

	Keys map[Ref]string `json:"keys,omitempty"` // keys that values have given to nodes
}

// unsaved contains the flags of a word that a snapshot omits, because they have a meaning only for one State.
const unsaved = wordObserved | wordFeeds

// Snapshot returns the current data of the State. Running attempts may continue: the State restored from the snapshot accepts their outcomes with the
// same tokens. It also hands out again each check and gate that was handed out and not reported. The snapshot does not contain the token buckets of
// rates, so the buckets of the restored State are full. For a State that a Run drives, Snapshot returns the zero StateSnapshot; use the Run's own
// snapshot instead.
func (st *State) Snapshot() (x StateSnapshot) {
	s, err := st.drive()
	if err != nil {
		return x
	}
	defer s.mu.Unlock()
	x = StateSnapshot{
		Version: StateVersion, Plan: s.net.fingerprint(), Words: make([]byte, 0, 8*len(s.words)), Tier: s.tier, Gates: s.gates.list(),
		Stopped: s.stopped, Stopping: append([]Ref(nil), s.stopping...), Origins: maps.Clone(s.origin), Groups: slices.Sorted(maps.Keys(s.failedGroups)),
	}
	for _, w := range s.words {
		x.Words = binary.LittleEndian.AppendUint64(x.Words, w&^unsaved)
	}
	for _, c := range s.wide {
		x.Counters = append(x.Counters, c.s, c.other, c.ports)
	}
	for id, taken := range s.taken {
		if taken {
			x.Taken = append(x.Taken, int32(id))
		}
	}
	if late := s.limits.late; late != nil && len(late.keys) > 0 {
		x.Keys = maps.Clone(late.keys)
	}
	if t := s.stateTimes; t != nil {
		x.Clock, x.Settled, x.Decided = t.clock, slices.Clone(t.settledAt), slices.Clone(t.decidedAt)
	}
	return x
}

// RestoreState returns a State that continues from a snapshot. Setup.Waves must have the value that it had when the snapshot was taken. The other
// options may differ, and apply from now on. The error matches [ErrGraphChanged] if the snapshot is of another net. It matches [ErrBadValue] if
// the snapshot has another [StateVersion], was taken with another Setup.Waves, or holds a state that no State of the net can reach.
func RestoreState(p *Net, setup *Setup, x *StateSnapshot) (*State, error) {
	s := &Locked{}
	s.Init(p, setup)
	if err := s.adopt(x); err != nil {
		return nil, fmt.Errorf("state snapshot: %w", err)
	}
	for _, r := range slices.Sorted(maps.Keys(x.Keys)) {
		if s.known(r) != nil {
			return nil, fmt.Errorf("state snapshot: %w: a key belongs to no node", ErrBadValue)
		}
		s.BindKey(r, x.Keys[r])
	}
	for r := range s.words {
		s.resume(Ref(r))
	}
	s.resumeGates(x.Gates)
	// The method `resume` calls `count`, which has changed s.pending. Compute s.pending anew.
	if s.pending = 0; s.waves && s.tier < p.TierCount() {
		for r, to := p.TierRange(s.tier); r < to; r++ {
			if !statusOf(s.words[r]).Terminal() {
				s.pending++
			}
		}
	}
	return (*State)(s), nil
}

// resumeGates restores the order of the gates: first the gates that were handed out and not reported, then the gates that were not handed out.
func (s *Locked) resumeGates(gates []Ref) {
	var rest []Ref
	for _, r := range gates {
		if s.known(r) == nil && s.gates.has(r) {
			s.gates.remove(r)
			rest = append(rest, r)
		}
	}
	if rest == nil {
		return
	}
	s.gates.refs = s.gates.list() // drops the removed gates from the list; the loop below adds them at the end
	for _, r := range rest {
		s.gates.add(r)
	}
}

// adopt copies the fields of a snapshot. Later the method `resume` updates counts, queues and slots. adopt returns an error if the snapshot is
// damaged or impossible, or if it is from another plan, mode or StateVersion.
func (s *Locked) adopt(x *StateSnapshot) error {
	n := len(s.words)
	mode := map[bool]string{false: "Eager", true: "Waves"}
	switch took := x.Tier >= 0; {
	case x.Version != StateVersion:
		return fmt.Errorf("%w: version %d is not known: this version of kahn reads %d", ErrBadValue, x.Version, StateVersion)
	case x.Plan != s.net.fingerprint():
		return fmt.Errorf("%w: the snapshot is of another plan", ErrGraphChanged)
	case took != s.waves:
		return fmt.Errorf("%w: the mode is %s, but the snapshot was taken under %s", ErrBadValue, mode[s.waves], mode[took])
	case len(x.Words) != 8*n, len(x.Counters) != 3*len(s.wide), x.Stopped != CauseNone && !x.Stopped.stops(), x.Tier < -1 || x.Tier > s.net.TierCount(),
		s.stateTimes == nil && len(x.Settled)+len(x.Decided) > 0, s.stateTimes != nil && (len(x.Settled) != n || len(x.Decided) != n):
		return fmt.Errorf("%w: the snapshot is damaged", ErrBadValue)
	}
	for r := range s.words {
		s.words[r] = binary.LittleEndian.Uint64(x.Words[8*r:]) &^ unsaved
	}
	for i := range s.wide {
		s.wide[i] = wide{x.Counters[3*i], x.Counters[3*i+1], x.Counters[3*i+2]}
	}
	for _, id := range x.Taken {
		if id < 0 || int(id) >= len(s.taken) {
			return fmt.Errorf("%w: no label number %d", ErrBadValue, id)
		}
		s.taken[id] = true
	}
	if t := s.stateTimes; t != nil {
		t.clock = x.Clock
		copy(t.settledAt, x.Settled)
		copy(t.decidedAt, x.Decided)
	}
	s.tier, s.stopped = x.Tier, x.Stopped
	if err := s.checkWords(); err != nil {
		return err
	}
	for r, origin := range x.Origins {
		if s.known(r) != nil || origin != NoRef && s.known(origin) != nil {
			return fmt.Errorf("%w: the origin of a stop is not a node", ErrBadValue)
		}
	}
	after := s.ownAftermath()
	after.origin = maps.Clone(x.Origins)
	for _, r := range x.Stopping {
		if s.known(r) != nil {
			return fmt.Errorf("%w: an entry of the list of stopping nodes is not a node", ErrBadValue)
		}
	}
	after.stopping = slices.Clone(x.Stopping)
	for _, g := range x.Groups {
		after.noteFailed(g)
	}
	return nil
}

// The method `resume` updates counts, queues and slots to match a node's restored word.
func (s *Locked) resume(r Ref) {
	w := s.words[r]
	switch status := statusOf(w); {
	case status == Completed && w&WordTolerated != 0:
		s.tolerated++ // see Settle
		fallthrough
	case status.Terminal():
		s.count(r, status, w)
	case w&WordChecking != 0:
		s.busy++
		s.EvaluateInline(r)
	case status == Ready:
		s.Queue(r)
	case status == Running:
		s.busy++
		if s.net.facts[r].is(FlagInline) {
			return
		}
		s.running++
		for g := range s.lines(r) {
			if x := s.limits.groups[g].Slots; x != nil {
				x.used++
			}
		}
	case status == Retrying:
		s.busy++
	case status == Suspended:
		s.fallAsleep()
	}
}

// fingerprint returns a hash of all parts of the plan that affect decisions.
func (p *Net) fingerprint() uint64 {
	p.hash.once.Do(func() {
		h := fnv.New64a()
		_, _ = fmt.Fprintln(h, p.names, p.facts, p.declared, p.disabled, p.arcs, p.edges, p.tiers, p.routes, p.filters, p.bounds, p.member, p.end, p.priorities, p.order)
		p.hash.sum = h.Sum64()
	})
	return p.hash.sum
}
