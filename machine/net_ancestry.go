package machine

import (
	"slices"
	"sync"
	"sync/atomic"
)

// The type `ancestry` answers whether one node of a plan is an ancestor of another. For this purpose it gives each node two intervals. They come from
// two depth-first searches over the in-edges, in opposite orders. The first question starts these searches, which take time linear in the nodes and
// edges. The intervals answer most questions at once. Any other question needs a further search over the in-edges. This search skips a node if the
// node's intervals show that the supposed ancestor does not lead to the node. If the searches for one ancestor have visited more edges than the graph
// has, ancestry computes all descendants of this ancestor and keeps them. So n questions about one ancestor take time linear in n plus the size of
// the graph.
type ancestry struct {
	once  sync.Once // guards the computation of spans
	spans [2][]span // by Ref
	steps atomic.Int64

	mu     sync.Mutex
	sought map[Ref]*sought
}

// The type `sought` records the searches for one ancestor.
type sought struct {
	steps       int      // the number of edges that the searches have visited
	descendants []uint64 // one bit for each Ref; nil until the method `known` computes it
}

const maxSought = 256 // limits the memory, since each ancestor in sought may need one bit for each node

// The type `span` is the interval that one of the two searches gives to a node. The search numbers a node when it leaves the node. So a
// node has a higher number than all its ancestors.
type span struct {
	number int32
	tree   int32 // all nodes with numbers from tree to number-1 are ancestors
	low    int32 // no ancestor has a lower number
}

// IsAncestor reports whether a path leads from node a to node r.
func (p *Net) IsAncestor(a, r Ref) bool {
	is, sure := p.judgeAncestor(a, r)
	if !sure {
		is = p.ancestry.search(p, a, r)
	}
	return is
}

// judgeAncestor is like IsAncestor, but uses only the spans. If they do not give the answer, the result `sure` is false.
func (p *Net) judgeAncestor(a, r Ref) (is, sure bool) {
	if a >= r {
		return false, true
	}
	p.ancestry.once.Do(func() { p.ancestry.label(p) })
	return p.ancestry.judge(a, r)
}

// The method `judge` is like judgeAncestor, but a must be lower than r, and the spans must already have been computed.
func (x *ancestry) judge(a, r Ref) (is, sure bool) {
	for i := range x.spans {
		s, t := &x.spans[i][a], &x.spans[i][r]
		switch {
		case s.number > t.number || s.low < t.low:
			return false, true
		case s.number >= t.tree:
			return true, true
		}
	}
	return false, false
}

// The method `search` looks for node a among the ancestors of node r.
func (x *ancestry) search(p *Net, a, r Ref) bool {
	if set := x.known(p, a); set != nil {
		return set[r/64]&(1<<(r%64)) != 0
	}
	is, steps := x.climb(p, a, r)
	x.steps.Add(int64(steps))
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.sought[a]; k != nil {
		k.steps += steps
	}
	return is
}

// The method `known` returns the descendants of node a. It computes them as soon as the searches for a have visited more edges than the graph has.
// Before that, it returns nil.
func (x *ancestry) known(p *Net, a Ref) []uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.sought[a]
	if k == nil {
		if x.sought == nil || len(x.sought) == maxSought {
			x.sought = map[Ref]*sought{}
		}
		k = &sought{}
		x.sought[a] = k
	}
	if k.descendants == nil && k.steps > len(p.edges) {
		k.descendants = x.descendants(p, a)
	}
	return k.descendants
}

// climb searches for node a upwards from node r. It skips nodes with Refs below a: they cannot be descendants of a, since every descendant has a
// higher Ref. It also skips a node if the node's spans show that the node is no descendant of a.
func (x *ancestry) climb(p *Net, a, r Ref) (is bool, steps int) {
	seen := map[Ref]bool{}
	stack := []Ref{r}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, i := range p.in.row(at) {
			steps++
			from := p.edges[i].From
			if from == a {
				return true, steps
			}
			if from < a || seen[from] {
				continue
			}
			is, sure := x.judge(a, from)
			if is {
				return true, steps
			}
			if !sure {
				seen[from] = true
				stack = append(stack, from)
			}
		}
	}
	return false, steps
}

// descendants returns the set of all descendants of node a.
func (x *ancestry) descendants(p *Net, a Ref) []uint64 {
	set := make([]uint64, len(p.facts)/64+1)
	for r := a + 1; int(r) < len(p.facts); r++ {
		row := p.in.row(r)
		x.steps.Add(int64(len(row)))
		for _, i := range row {
			if from := p.edges[i].From; from == a || set[from/64]&(1<<(from%64)) != 0 {
				set[r/64] |= 1 << (r % 64)
				break
			}
		}
	}
	return set
}

// The method `label` computes the spans by two searches. Both begin at the nodes without successors. The first search takes these nodes, and the
// predecessors of each node, in falling order of Refs. The predecessor with the highest Ref usually has the most ancestors. So most ancestors of a
// node are in the node's own subtree of the search tree, and the field `tree` covers them. The second search takes the nodes in rising order of Refs
// instead.
func (x *ancestry) label(p *Net) {
	n := len(p.facts)
	out, _ := newCSR(n, p.edges, true, NoRef, nil)
	in := csr{start: p.in.start, items: make([]int32, len(p.in.items))} // by Ref: the predecessors in ascending order
	next := slices.Clone(p.in.start)
	var roots []Ref
	for r := range Ref(n) {
		row := out.row(r)
		for _, i := range row {
			to := p.edges[i].To
			in.items[next[to]] = int32(r)
			next[to]++
		}
		if len(row) == 0 {
			roots = append(roots, r)
		}
	}
	for i := range x.spans {
		x.spans[i] = make([]span, n)
		w := walk{in: &in, spans: x.spans[i], next: make([]int32, n), descending: i == 0}
		for j := range roots {
			if w.descending {
				j = len(roots) - 1 - j
			}
			w.from(roots[j])
		}
	}
	x.steps.Add(3 * int64(len(p.edges)))
}

// A walk is one of the two searches of the method `label`.
type walk struct {
	in         *csr // by Ref: the predecessors
	spans      []span
	next       []int32 // by Ref: 0 until the walk enters the node, and then one more than the number of predecessors that it has looked at
	counter    int32
	stack      []Ref
	descending bool
}

func (w *walk) enter(r Ref) {
	w.next[r] = 1
	w.spans[r].tree, w.spans[r].low = w.counter, w.counter
	w.stack = append(w.stack, r)
}

// The method `from` visits node r, and its ancestors that the walk has not entered yet.
func (w *walk) from(r Ref) {
	w.enter(r)
	for len(w.stack) > 0 {
		at := w.stack[len(w.stack)-1]
		row, s := w.in.row(at), &w.spans[at]
		i := int(w.next[at]) - 1
		if i == len(row) {
			w.stack = w.stack[:len(w.stack)-1]
			s.number = w.counter
			w.counter++
			for _, from := range row {
				s.low = min(s.low, w.spans[from].low)
			}
			continue
		}
		w.next[at]++
		if w.descending {
			i = len(row) - 1 - i
		}
		if from := Ref(row[i]); w.next[from] == 0 {
			w.enter(from)
		}
	}
}
