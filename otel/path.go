package otelkahn

import (
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// site is the position of a node.
type site struct {
	within string     // the path of the composite around the node; "" for a node of the outermost graph
	plan   *kahn.Plan // the plan of the graph that contains the node; nil if the node is an item of a map, or is in a graph that a step has returned
	id     string     // the id of the node in its graph
}

// siteOf returns the site of the node at a path. An item of a map is inside the map, and the nodes of an item's graph are inside the item: "m[3]/x"
// is in "m[3]", which is in "m". The nodes of an iteration are inside the loop: "l#2/x" is in "l".
//
// Ids may contain the characters that separate the parts of a path, so siteOf looks up each part in the plan. A graph that a step has returned
// has no plan, so inside it siteOf splits the path at the last separator.
func siteOf(p *kahn.Plan, path string) site {
	within, rest := "", path
	for p != nil {
		if _, is := p.Ref(rest); is {
			return site{within, p, rest}
		}
		next, part := nextPart(p, rest)
		if next == "" {
			return site{within: within} // the node is in a graph that a step has returned
		}
		end := len(path) - len(rest) + len(next)
		item := strings.HasPrefix(next[len(part):], "[")
		switch {
		case len(next) == len(rest) && item:
			return site{within: path[:end-len(next)+len(part)]}
		case item:
			within = path[:end]
		default:
			within = path[:end-len(next)+len(part)]
		}
		ref, _ := p.Ref(part)
		p, rest = p.Sub(ref), rest[len(next)+1:]
	}
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		return site{within: unnumbered(path[:len(path)-len(rest)+i])}
	}
	return site{within: within}
}

// predecessors maps each node of a graph to the ids of the nodes that it follows. Each id occurs once, in the order of the edges.
type predecessors map[string][]string

func predecessorsIn(p *kahn.Plan) predecessors {
	type pair struct{ from, to string }
	all, seen := predecessors{}, map[pair]bool{}
	for e := range p.Edges() {
		if ends := (pair{e.From, e.To}); !seen[ends] {
			seen[ends] = true
			all[e.To] = append(all[e.To], e.From)
		}
	}
	return all
}

// nextPart returns the first part of a path, including the number of an item or an iteration if the part has one. It also returns the id of the
// node that this part names. Both results are "" if no prefix of the path names a node of the plan.
func nextPart(p *kahn.Plan, path string) (part, id string) {
	for end := 0; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		if _, is := p.Ref(path[:end]); is && end < len(path) {
			return path[:end], path[:end]
		}
		if i := strings.LastIndexAny(path[:end], "[#"); i >= 0 {
			if _, is := p.Ref(path[:i]); is {
				return path[:end], path[:i]
			}
		}
	}
	return "", ""
}

// The function `unnumbered` removes the number of an iteration from the end of a path.
func unnumbered(path string) string {
	if i := strings.LastIndexByte(path, '#'); i >= 0 && strings.Trim(path[i+1:], "0123456789") == "" {
		return path[:i]
	}
	return path
}

// nameOf returns the name of a node's span: the node's id without the number of an item. So all items of a map have the same name.
func nameOf(path string) string {
	path = path[strings.LastIndexByte(path, '/')+1:]
	if i := strings.LastIndexByte(path, '['); i > 0 && strings.HasSuffix(path, "]") {
		return path[:i]
	}
	return path
}
