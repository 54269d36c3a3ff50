package machine

// The method `advance` begins the next tier, and judges the joins of its nodes. All in-edges of these nodes have resolved. If this leaves no node of
// the tier unfinished, advance begins the tier after it, and so on. It is called when all nodes of the current tier are terminal.
func (s *Locked) advance() {
	last := int32(len(s.net.tiers) - 2)
	defer s.brink()                        // the joins that advance judges may have ended the last open node
	for s.pending == 0 && s.tier <= last { // the condition on s.tier keeps the last tier from completing twice
		s.brink()
		if s.tier >= 0 {
			s.logWave(s.tier, -1)
		}
		if s.tier++; s.tier > last {
			return
		}
		if s.enterTier() {
			return
		}
	}
}

// enterTier begins a tier. It returns true if the tier consists of the end node, and the end node is not terminal.
func (s *Locked) enterTier() (end bool) {
	s.logWave(s.tier, 1)
	return s.openTier()
}

// openTier judges the joins of the nodes of the tier. In the tier of the end node it does not judge a join: it calls maybeEnd, and returns true.
func (s *Locked) openTier() (end bool) {
	lo, hi := Ref(s.net.tiers[s.tier]), Ref(s.net.tiers[s.tier+1])
	if lo == s.net.end && !statusOf(s.words[lo]).Terminal() { // the end node is already terminal if the run ended before the end node could begin
		s.pending = 1
		s.maybeEnd()
		return true
	}
	for r := lo; r < hi; r++ {
		if !statusOf(s.words[r]).Terminal() {
			s.pending++
		}
	}
	for r := lo; r < hi; r++ {
		if s.judge(r) {
			s.visit(r)
		}
	}
	return false
}

func (s *Locked) logWave(tier int32, wave int8) {
	if s.logged {
		s.logChange(Change{Ref: Ref(tier), Wave: wave})
	}
}
