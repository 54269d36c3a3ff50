package machine

import (
	"hash/maphash"
	"slices"
)

// This file computes the origins of bad nodes. The origins of a node are the nodes whose own failure, or whose stop on request, caused the node's
// end. A node that bad predecessors have stopped has the origins of all these predecessors. If all sets were written out, their total size could be
// quadratic in the number of nodes. So a set is stored as a list of other sets, and its elements are listed only when a caller needs them.

// originSet is a set of origins: a single node, the union ("join") of other sets, or the empty set.
type originSet int32

const noOrigins originSet = -1 // the empty set; lower numbers are joins: see originSets

// nodeOrigins holds what is known about the origins of a node.
type nodeOrigins struct {
	set       originSet
	state     originState
	byRequest bool // every origin was stopped by a request
}

type originState uint8

const (
	originsUnknown originState = iota
	originsOpen                // some ancestors have not ended: when another node goes bad, the origins must be computed again
	originsFinal
)

// originSets caches origins: of the bad nodes about which callers have asked, and of all bad nodes between such a node and its origins. The
// State's originsLock guards it.
type originSets struct {
	nodes    []nodeOrigins // by Ref
	opened   []Ref         // nodes in state originsOpen
	badNodes int32         // the State's badNodes when the sets were computed

	final joins // the joins that can no longer change; as values of type originSet they have the numbers -2, -4, ...
	open  joins // the joins of nodes in state originsOpen; as values of type originSet they have the numbers -3, -5, ...
	known map[uint64]originSet

	// The set that was written out last: see originNames.
	last      originSet
	lastNames []string
	lastDecl  int32 // the declaration index of its last element

	stamp              int32 // identifies the set that is being written out
	stamps, joinStamps []int32
}

// joins is a list of sets, each of which is the union of other sets.
type joins struct {
	ends  []int32 // by index: where in parts the set ends
	parts []originSet
}

func (j *joins) add(parts []originSet) (index int) {
	j.parts = append(j.parts, parts...)
	j.ends = append(j.ends, int32(len(j.parts)))
	return len(j.ends) - 1
}

func (j *joins) at(index int) []originSet {
	start := int32(0)
	if index > 0 {
		start = j.ends[index-1]
	}
	return j.parts[start:j.ends[index]]
}

// The method `parts` returns the sets that a join unites.
func (x *originSets) parts(set originSet) []originSet {
	if index := int(-2 - set); index%2 == 0 {
		return x.final.at(index / 2)
	} else {
		return x.open.at(index / 2)
	}
}

var originSeed = maphash.MakeSeed()

// The method `join` returns the union of the given sets. It sorts the slice `parts` in place.
func (x *originSets) join(parts []originSet, state originState) originSet {
	slices.Sort(parts)
	parts = slices.Compact(parts)
	if i := slices.Index(parts, noOrigins); i >= 0 {
		parts = slices.Delete(parts, i, i+1)
	}
	switch {
	case len(parts) == 0:
		return noOrigins
	case len(parts) == 1:
		return parts[0]
	case state == originsOpen:
		return originSet(-3 - 2*x.open.add(parts))
	}
	var h maphash.Hash
	h.SetSeed(originSeed)
	for _, part := range parts {
		maphash.WriteComparable(&h, part)
	}
	sum := h.Sum64()
	if set, ok := x.known[sum]; ok && slices.Equal(x.parts(set), parts) {
		return set // many nodes may have the same predecessors; they share one set
	}
	set := originSet(-2 - 2*x.final.add(parts))
	x.known[sum] = set
	return set
}

// originsOf returns the known origins of a bad node, and whether all these origins were stopped by requests. It visits the in-edges of each victim
// (see Victim) between the node and its origins. If all ancestors of a victim are terminal, the origins of the victim are final, and later calls do
// not visit its in-edges again. Otherwise the origins are valid until another node goes bad.
func (s *Locked) originsOf(r Ref) (set originSet, byRequest bool) {
	x := s.origins
	if x == nil {
		x = &originSets{
			nodes: make([]nodeOrigins, len(s.words)), stamps: make([]int32, len(s.words)), known: map[uint64]originSet{}, last: noOrigins,
		}
		s.origins = x
	}
	if x.badNodes != s.badNodes {
		x.badNodes = s.badNodes
		for _, o := range x.opened {
			x.nodes[o] = nodeOrigins{}
		}
		x.opened, x.open = x.opened[:0], joins{}
	}
	var parts []originSet
	stack := []Ref{r}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		n := &x.nodes[at]
		switch {
		case n.state != originsUnknown:
		case !s.Victim(at):
			*n = nodeOrigins{originSet(s.OriginOf(at)), originsFinal, statusOf(s.words[at]) == Cancelled}
		default:
			depth, all := len(stack), nodeOrigins{state: originsFinal, byRequest: true}
			parts = parts[:0]
			row := s.net.in.row(at)
			s.visits += int64(len(row))
			for _, i := range row {
				e := &s.net.edges[i]
				switch source := &x.nodes[e.From]; {
				case e.isData():
				case !statusOf(s.words[e.From]).Terminal():
					all.state = originsOpen
				case !s.isF(e):
				case source.state == originsUnknown:
					stack = append(stack, e.From)
				default:
					all.state = min(all.state, source.state)
					all.byRequest = all.byRequest && source.byRequest
					parts = append(parts, source.set)
				}
			}
			if len(stack) > depth {
				continue // the search visits this node again once the origins of its predecessors are known
			}
			if all.set = x.join(parts, all.state); all.state == originsOpen {
				x.opened = append(x.opened, at)
			}
			*n = all
		}
		stack = stack[:len(stack)-1]
	}
	return x.nodes[r].set, x.nodes[r].byRequest
}

// The method `written` returns the elements of the sets, without duplicates, in declaration order.
func (s *Locked) written(sets ...originSet) []Ref {
	x := s.origins
	x.stamp++
	var refs []Ref
	stack := sets
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at >= 0 {
			if x.stamps[at] != x.stamp {
				x.stamps[at] = x.stamp
				refs = append(refs, Ref(at))
			}
			continue
		}
		if at == noOrigins {
			continue
		}
		for int(-2-at) >= len(x.joinStamps) {
			x.joinStamps = append(x.joinStamps, 0)
		}
		if seen := &x.joinStamps[-2-at]; *seen != x.stamp {
			*seen = x.stamp
			parts := x.parts(at)
			s.visits += int64(len(parts))
			stack = append(stack, parts...)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return int(s.net.decl[a] - s.net.decl[b]) })
	return refs
}

// EscapedOrigins returns the origins of the bad nodes whose failures were not handled, in declaration order. Under [StatusEscaped], the run failed
// or was cancelled because of these nodes. All nodes but the end node must be terminal. If the graph has no node that handles failures and no
// failure was tolerated, every failure has escaped, and EscapedOrigins visits no edge.
func (s *Locked) EscapedOrigins() []Ref {
	if !s.net.handlers && s.tolerated == 0 {
		var own []Ref
		for _, r := range s.net.declared {
			if r != s.net.end && s.Bad(r) && !s.Victim(r) {
				own = append(own, r)
			}
		}
		return own
	}
	s.originsLock.Lock()
	defer s.originsLock.Unlock()
	var sets []originSet
	for i := range s.words {
		if r := Ref(i); r != s.net.end && s.Bad(r) && !s.consumed(r) {
			set, _ := s.originsOf(r)
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		return nil
	}
	return s.written(sets...)
}

// CauseOf returns why a node failed, was aborted or was cancelled, and the ids of its origins, as far as they are known.
func (s *Locked) CauseOf(r Ref) (CauseKind, []string) {
	s.originsLock.Lock()
	defer s.originsLock.Unlock()
	origins, byRequest := s.originsOf(r)
	return s.causeKind(r, byRequest), s.originNames(origins)
}

// originNames returns the ids of the origins in a set. A loop over the nodes of a run often needs the same large set again, or the same set with more
// elements. So originNames caches the ids of the last set. If the next set contains the last set, and its other elements are declared
// later, originNames only appends the ids of these other elements.
func (s *Locked) originNames(set originSet) []string {
	x := s.origins
	if set >= noOrigins || set%2 != 0 { // the set is small, or it is not final
		return s.appendNames(nil, s.written(set))
	}
	if set == x.last {
		return slices.Clip(x.lastNames)
	}
	var names []string
	var more []Ref
	if parts := x.parts(set); slices.Contains(parts, x.last) {
		others := slices.DeleteFunc(slices.Clone(parts), func(part originSet) bool { return part == x.last })
		if more = s.written(others...); s.net.decl[more[0]] > x.lastDecl {
			names = x.lastNames
		}
	}
	if names == nil {
		more = s.written(set)
	}
	x.last, x.lastNames, x.lastDecl = set, s.appendNames(names, more), s.net.decl[more[len(more)-1]]
	return slices.Clip(x.lastNames)
}

func (s *Locked) appendNames(names []string, refs []Ref) []string {
	for _, r := range refs {
		names = append(names, s.net.ID(r))
	}
	return names
}
