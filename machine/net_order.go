package machine

import (
	"cmp"
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
)

// Schedule is the order in which ready nodes start. The node with the highest priority comes first. Among nodes of equal priority the node with the
// highest rank comes first, and among nodes of equal rank the node that was declared first.
type Schedule struct {
	rank []int64 // by Ref: the length of the longest path from the node, including the node
	pos  []int32 // by Ref: the node's place in the order
	at   []Ref   // by place: the node
}

// Order returns the Schedule of the nodes. The rank of a node is the length of the longest path from the node, including the node. The function `own`
// returns the length of a single node.
func (p *Net) Order(own func(Ref) int64) Schedule {
	n := len(p.facts)
	s := Schedule{make([]int64, n), make([]int32, n), make([]Ref, n)}
	p.orderInto(own, s, nil)
	return s
}

func (p *Net) orderInto(own func(Ref) int64, s Schedule, space slab) {
	rank, pos, at := s.rank, s.pos, s.at
	longest := int64(0)
	for r := Ref(len(rank) - 1); r >= 0; r-- {
		after := int64(0)
		for _, a := range p.Out(r) {
			after = max(after, rank[a.to])
		}
		rank[r] = saturate.Add(after, max(own(r), 0))
		longest = max(longest, rank[r])
	}
	if p.priorities == nil && longest < int64(len(rank)) {
		p.countingSort(rank, longest, at, space)
	} else {
		copy(at, p.declared)
		slices.SortFunc(at, func(a, b Ref) int {
			if p.priorities != nil {
				if c := cmp.Compare(p.priorities[b], p.priorities[a]); c != 0 {
					return c
				}
			}
			return cmp.Or(cmp.Compare(rank[b], rank[a]), cmp.Compare(p.decl[a], p.decl[b]))
		})
	}
	for i, r := range at {
		pos[r] = int32(i)
	}
}

// countingSort sorts the nodes for orderInto if no node has a priority and the ranks are small. If no node has an estimate, the ranks are small,
// because a rank is then a number of nodes.
func (p *Net) countingSort(rank []int64, longest int64, at []Ref, space slab) {
	begin, _ := space.cut(int(longest) + 2) // by longest minus rank: the position at which the nodes of this rank begin
	for _, r := range rank {
		begin[longest-r+1]++
	}
	for i := range longest {
		begin[i+1] += begin[i]
	}
	for _, r := range p.declared {
		i := &begin[longest-rank[r]]
		at[*i] = r
		*i++
	}
}

// Rank returns the length of the longest path from a node, including the node.
func (p *Net) Rank(r Ref) int64 { return p.order.rank[r] }

// Rank returns the length of the longest path from a node, including the node. It uses the lengths that apply to this run.
func (s *Locked) Rank(r Ref) int64 { return s.order.rank[r] }
