package main

import "math/rand/v2"

// shape is a graph as plain data: the nodes are 0 to n-1, and every edge leads from a smaller to a larger number. Each executor gets the same
// shape and converts it to its own form before the measurement.
type shape struct {
	name  string
	n     int
	edges [][2]int32 // source and target
}

// chain returns a chain of n nodes. The steps of a chain never overlap, so the shape shows the cost of a single node.
func chain(n int) *shape {
	s := &shape{name: "chain", n: n}
	for i := range n - 1 {
		s.edges = append(s.edges, [2]int32{int32(i), int32(i + 1)})
	}
	return s
}

// fan returns a first node, `width` nodes in the middle that follow the first node, and a last node that follows the nodes in the middle. One
// completion makes all nodes in the middle ready, and one join waits for them.
func fan(width int) *shape {
	s := &shape{name: "fan", n: width + 2}
	last := int32(width + 1)
	for i := int32(1); i < last; i++ {
		s.edges = append(s.edges, [2]int32{0, i}, [2]int32{i, last})
	}
	return s
}

// layered returns n nodes in layers of 100. Each node has three different predecessors in the previous layer. The predecessors are chosen at random,
// but the choice is the same in every process.
func layered(n int) *shape {
	const width, in = 100, 3
	s := &shape{name: "layered", n: n}
	random := rand.New(rand.NewPCG(1962, uint64(n)))
	for i := width; i < n; i++ {
		before := (i/width - 1) * width
		picked := [in]int{-1, -1, -1}
		for k := 0; k < in; {
			p := random.IntN(width)
			if p == picked[0] || p == picked[1] {
				continue
			}
			picked[k] = p
			k++
			s.edges = append(s.edges, [2]int32{int32(before + p), int32(i)})
		}
	}
	return s
}

// bipartite returns two sets of `side` nodes, and an edge from each node of the first set to each node of the second set. The shape shows the cost
// of an edge.
func bipartite(side int) *shape {
	s := &shape{name: "bipartite", n: 2 * side}
	for i := range side {
		for j := range side {
			s.edges = append(s.edges, [2]int32{int32(i), int32(side + j)})
		}
	}
	return s
}

// single returns one node. The shape shows the fixed cost of a run.
func single() *shape { return &shape{name: "single", n: 1} }

// beside returns one shape with the nodes and edges of both shapes. No edge connects the two parts.
func beside(name string, a, b *shape) *shape {
	s := &shape{name: name, n: a.n + b.n, edges: append([][2]int32{}, a.edges...)}
	for _, e := range b.edges {
		s.edges = append(s.edges, [2]int32{e[0] + int32(a.n), e[1] + int32(a.n)})
	}
	return s
}

// The function `independent` returns n nodes and no edges.
func independent(n int) *shape { return &shape{name: "independent", n: n} }

// adjacency is a flat list of rows: the values of row i are items[start[i]:start[i+1]].
type adjacency struct {
	start, items []int32
}

func (a *adjacency) row(i int) []int32 { return a.items[a.start[i]:a.start[i+1]] }

// The method `successors` returns the successors of each node.
func (s *shape) successors() adjacency { return s.rows(0, 1) }

// The method `predecessors` returns the predecessors of each node.
func (s *shape) predecessors() adjacency { return s.rows(1, 0) }

func (s *shape) rows(key, value int) adjacency {
	a := adjacency{start: make([]int32, s.n+1), items: make([]int32, len(s.edges))}
	for _, e := range s.edges {
		a.start[e[key]+1]++
	}
	for i := range s.n {
		a.start[i+1] += a.start[i]
	}
	next := append([]int32{}, a.start...)
	for _, e := range s.edges {
		a.items[next[e[key]]] = e[value]
		next[e[key]]++
	}
	return a
}

// indegrees returns, for each node, the number of its in-edges.
func (s *shape) indegrees() []int32 {
	in := make([]int32, s.n)
	for _, e := range s.edges {
		in[e[1]]++
	}
	return in
}
