package kahn

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// deltaCounts are how many deltas the nodes of nested runs have emitted, by path, over all attempts of theirs and of their composites. They are
// kept for as long as the run, since any of these may be attempted again. So iterations of a loop that follow one another, and in
// which a node has emitted as many, have one entry.
type deltaCounts struct {
	nodes map[string]int // those in no loop
	loops map[loopNode][]deltaSpan
}

// loopNode is a node in the iterations of a loop, the innermost one around it.
type loopNode struct{ loop, path string }

// deltaSpan is a number of deltas in a range of iterations. The spans of a node are in their order, and no two could be one.
type deltaSpan struct{ from, to, n int }

// inLoop splits the path of a node in a loop, such as L#3/x, or that of a span, such as L#3-7/x.
func inLoop(path string) (of loopNode, from, to int, ok bool) {
	for end := len(path); ; {
		at := strings.LastIndexByte(path[:end], '#')
		if at < 0 {
			return of, 0, 0, false
		}
		number, rest, found := strings.Cut(path[at+1:], "/")
		first, last, ranges := strings.Cut(number, "-")
		from, to = iterationNumber(first), iterationNumber(last)
		if !ranges {
			to = from
		}
		if found && 0 < from && from <= to {
			return loopNode{path[:at], rest}, from, to, true
		}
		end = at
	}
}

// iterationNumber is a number as the engine writes it; 0 for any other text.
func iterationNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n == math.MaxInt || text[0] == '0' || text[0] == '+' {
		return 0
	}
	return n
}

// spanAt returns the place of the first span that does not end before an iteration.
func spanAt(spans []deltaSpan, iteration int) int {
	i, _ := slices.BinarySearchFunc(spans, iteration, func(x deltaSpan, iteration int) int { return cmp.Compare(x.to, iteration) })
	return i
}

// of returns the number of a node.
func (x *deltaCounts) of(path string) int {
	of, iteration, _, ok := inLoop(path)
	if !ok {
		return x.nodes[path]
	}
	spans := x.loops[of]
	if i := spanAt(spans, iteration); i < len(spans) && spans[i].from <= iteration {
		return spans[i].n
	}
	return 0
}

// set sets the number of a node.
func (x *deltaCounts) set(path string, n int) {
	of, iteration, _, ok := inLoop(path)
	if !ok {
		if x.nodes == nil {
			x.nodes = map[string]int{}
		}
		x.nodes[path] = n
		return
	}
	if x.loops == nil {
		x.loops = map[loopNode][]deltaSpan{}
	}
	spans := x.loops[of]
	i := spanAt(spans, iteration)
	one := []deltaSpan{{iteration, iteration, n}}
	first, last := i, i // the spans that are replaced
	if i < len(spans) && spans[i].from <= iteration {
		s := spans[i]
		last++
		if s.from < iteration {
			one = slices.Insert(one, 0, deltaSpan{s.from, iteration - 1, s.n})
		}
		if s.to > iteration {
			one = append(one, deltaSpan{iteration + 1, s.to, s.n})
		}
	}
	if first > 0 {
		first--
		one = slices.Insert(one, 0, spans[first])
	}
	if last < len(spans) {
		one = append(one, spans[last])
		last++
	}
	joined := one[:1]
	for _, s := range one[1:] {
		if end := &joined[len(joined)-1]; end.to+1 == s.from && end.n == s.n {
			end.to = s.to
		} else {
			joined = append(joined, s)
		}
	}
	x.loops[of] = slices.Replace(spans, first, last, joined...)
}

// isEmpty reports whether no node has emitted anything.
func (x *deltaCounts) isEmpty() bool { return len(x.nodes)+len(x.loops) == 0 }

// addTo adds the numbers to those of a snapshot: a span has one path.
func (x *deltaCounts) addTo(counts map[string]int) {
	maps.Copy(counts, x.nodes)
	for of, spans := range x.loops {
		for _, s := range spans {
			number := strconv.Itoa(s.from)
			if s.to > s.from {
				number = fmt.Sprintf("%d-%d", s.from, s.to)
			}
			counts[of.loop+"#"+number+"/"+of.path] = s.n
		}
	}
}

// readDeltas reads the numbers of a snapshot, or of the records of a store. If there are two for a node, the higher one counts.
func readDeltas(counts map[string]int) (x deltaCounts) {
	type span struct {
		deltaSpan
		of   loopNode
		path string
	}
	var spans []span
	for path, n := range counts {
		if of, from, to, ok := inLoop(path); ok {
			spans = append(spans, span{deltaSpan{from, to, n}, of, path})
		} else {
			x.set(path, n)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { // long ones first, and so that the lists grow at their ends
		return cmp.Or(-cmp.Compare(min(a.to-a.from, 1), min(b.to-b.from, 1)), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.n, b.n))
	})
	for _, s := range spans {
		if s.from == s.to {
			x.set(s.path, max(s.n, x.of(s.path)))
			continue
		}
		if x.loops == nil {
			x.loops = map[loopNode][]deltaSpan{}
		}
		known := x.loops[s.of]
		if len(known) > 0 { // what a snapshot has does not overlap, unless it is damaged
			s.from = max(s.from, known[len(known)-1].to+1)
		}
		if s.from <= s.to {
			x.loops[s.of] = append(known, s.deltaSpan)
		}
	}
	return x
}
