package trace

import (
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Drawing holds options for pictures. The functions [Mermaid], [DOT] and [SVG] draw with the zero value.
type Drawing struct {
	// If Reduced is set, the picture leaves out each plain edge for which a longer path leads from the edge's source to its target. Edges with
	// a Label, a Key or a Param, and edges of other styles, are always drawn. In a very large graph, some of the edges that could be left out are
	// drawn, too.
	Reduced bool
	// If LeftToRight is set, the picture goes from left to right instead of from top to bottom.
	LeftToRight bool
	// If Errors is set, each node that failed by itself shows the first line of its error.
	Errors bool
}

// A picture holds what a drawing shows. All three notations use it. Its nodes have the names n0, n1, ... in declaration order, because the id of
// a node might be a keyword of the notation.
type picture struct {
	name   string
	boxes  []box
	lines  []line
	groups []string
}

type box struct {
	name   string
	text   []string // the lines of the label
	shape  shape
	group  int // index into groups, or -1
	status string
}

type line struct {
	from, to string
	style    style
	text     string
	tail     int // the indices of the boxes at the two ends of the line
	head     int
}

type shape uint8

const (
	shapeStep shape = iota
	shapeCondition
	shapeGate
	shapeCleanup
	shapeEnd
)

// style is the line style of an edge. It shows for which outcome the edge waits, or that the edge only delivers data.
type style uint8

const (
	styleSuccess style = iota
	styleFailure
	styleAlways
	styleData
)

// colours are the colours of a node.
type colours struct{ fill, stroke string }

// palette lists the colours of the statuses, in the order in which package kahn declares the statuses.
var palette = []struct {
	status kahn.Status
	colours
}{
	{kahn.Suspended, colours{"#fff3bf", "#e67700"}},
	{kahn.Completed, colours{"#d3f9d8", "#2b8a3e"}},
	{kahn.Failed, colours{"#ffc9c9", "#c92a2a"}},
	{kahn.Aborted, colours{"#ffe8cc", "#d9480f"}},
	{kahn.Cancelled, colours{"#e5dbff", "#5f3dc4"}},
	{kahn.Skipped, colours{"#f1f3f5", "#868e96"}},
}

// draw makes the picture of a plan or, if res is not nil, of a run.
func (d Drawing) draw(p *kahn.Plan, res *kahn.Result) picture {
	pic := picture{name: p.Name()}
	groups := map[string]int{}
	for i, g := range p.Groups() {
		groups[g.Name] = i
		pic.groups = append(pic.groups, g.Name)
	}
	names, index := map[string]string{}, map[string]int{}
	for ref, id := range p.Declared() {
		n := p.Node(ref)
		b := box{name: fmt.Sprintf("n%d", len(names)), text: []string{clean(id)}, shape: shapeOf(&n), group: -1}
		names[id], index[id] = b.name, len(pic.boxes)
		if n.Label != "" && n.Label != id {
			b.text = append(b.text, clean(n.Label))
		}
		if len(n.Groups) > 0 {
			b.group = groups[n.Groups[0]] // a node can be drawn in only one group, so use the first
		}
		if res != nil {
			r, _ := res.Node(id)
			b.status = r.Status.String()
			b.text = append(b.text, outcome(r))
			if line := errorLine(r); d.Errors && line != "" {
				b.text = append(b.text, line)
			}
		}
		pic.boxes = append(pic.boxes, b)
	}
	for e, side := range p.Edges() {
		pic.lines = append(pic.lines, line{names[e.From], names[e.To], styleOf(e, side), edgeText(e), index[e.From], index[e.To]})
	}
	if d.Reduced {
		pic.reduce()
	}
	return pic
}

func shapeOf(n *kahn.Node) shape {
	switch {
	case n.Kind == kahn.KindEnd:
		return shapeEnd
	case n.Kind == kahn.KindGate:
		return shapeGate
	case n.Kind == kahn.KindCondition || n.Routes || n.Test != nil || n.TestExpr != "":
		return shapeCondition
	case n.Cleanup:
		return shapeCleanup
	}
	return shapeStep
}

// The function outcome returns the status of a node and the reason for the status, in words, for example:
//
//	skipped: condition_branch(ok? answered "true", not "false")
func outcome(r kahn.NodeResult) string {
	text := r.Status.String()
	switch {
	case r.Status == kahn.Skipped:
		text += ": " + r.Skip.String()
	case r.Cause.Kind != kahn.CauseNone:
		text += ": " + r.Cause.Kind.String()
		if origins := r.Cause.Origins; len(origins) > 1 || len(origins) == 1 && origins[0] != r.ID {
			text += " of " + list(origins)
		}
	case r.Fallback:
		text += " by its fallback"
	}
	if r.Tolerated {
		text += ", tolerated"
	}
	if r.Attempts > 1 {
		text += fmt.Sprintf(", %d attempts", r.Attempts)
	}
	return clean(text)
}

// errorLine returns the first line of the error of a node that failed by itself.
func errorLine(r kahn.NodeResult) string {
	own, ok := r.Err.(*kahn.NodeError)
	if !ok || r.Status != kahn.Failed {
		return ""
	}
	text, _, _ := strings.Cut(foreign.ErrorText(own.Err), "\n")
	return clean(strings.TrimSuffix(text, "\r"))
}

func styleOf(e kahn.Edge, side bool) style {
	switch {
	case e.DataOnly, side:
		return styleData
	case e.On == kahn.OnFailure:
		return styleFailure
	case e.On == kahn.OnAlways:
		return styleAlways
	}
	return styleSuccess
}

// edgeText says what an edge waits for and what the edge delivers, such as "true", "failure (timeout)" or "as rows".
func edgeText(e kahn.Edge) string {
	var parts []string
	if e.Label != "" {
		parts = append(parts, e.Label)
	}
	if e.On != kahn.OnSuccess {
		text := e.On.String()
		if len(e.Causes) > 0 {
			var causes []string
			for _, c := range e.Causes {
				causes = append(causes, c.String())
			}
			text += " (" + strings.Join(causes, ", ") + ")"
		}
		parts = append(parts, text)
	}
	if e.Key != "" {
		parts = append(parts, "key "+e.Key)
	}
	if e.Param != "" {
		parts = append(parts, "as "+e.Param)
	}
	return clean(strings.Join(parts, ", "))
}

// The method members returns the boxes without a group, and then the boxes of every group.
func (p *picture) members() [][]box {
	members := make([][]box, 1+len(p.groups))
	for _, b := range p.boxes {
		members[b.group+1] = append(members[b.group+1], b)
	}
	return members
}
