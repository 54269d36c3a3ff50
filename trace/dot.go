package trace

import (
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// DOT returns the graph of a plan in Graphviz's language. If res is not nil, the colour of a node shows its status, and the label says why
// the node was skipped or stopped. The same plan and result give the same text.
//
// Edges that wait for success are plain, edges that wait for failure are dashed and red, and edges that wait for any
// end are bold. Edges that only deliver data, including side edges, are dotted. A group is a cluster of the nodes whose
// first group it is.
func DOT(p *kahn.Plan, res *kahn.Result) string { return Drawing{}.DOT(p, res) }

// DOT does what the function [DOT] does, with the options d.
func (d Drawing) DOT(p *kahn.Plan, res *kahn.Result) string {
	pic := d.draw(p, res)
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", dotText(clean(pic.name)))
	if d.LeftToRight {
		b.WriteString("    rankdir=LR;\n")
	}
	b.WriteString("    node [fontname=\"sans-serif\", style=filled, fillcolor=\"#ffffff\"];\n")
	for i, boxes := range pic.members() {
		if len(boxes) == 0 {
			continue
		}
		indent := "    "
		if i > 0 {
			fmt.Fprintf(&b, "%ssubgraph cluster_%d {\n", indent, i-1)
			indent += "    "
			fmt.Fprintf(&b, "%slabel=%s;\n", indent, dotText(clean(pic.groups[i-1])))
		}
		for _, box := range boxes {
			fmt.Fprintf(&b, "%s%s [label=%s, shape=%s", indent, box.name, dotText(box.text...),
				[...]string{"box", "diamond", "hexagon", "trapezium", "oval"}[box.shape])
			for _, c := range palette {
				if box.status == c.status.String() {
					fmt.Fprintf(&b, ", fillcolor=%q, color=%q", c.fill, c.stroke)
				}
			}
			b.WriteString("];\n")
		}
		if i > 0 {
			b.WriteString("    }\n")
		}
	}
	for _, l := range pic.lines {
		var attrs []string
		if l.text != "" {
			attrs = append(attrs, "label="+dotText(l.text))
		}
		switch l.style {
		case styleFailure:
			attrs = append(attrs, "style=dashed", `color="#c92a2a"`)
		case styleAlways:
			attrs = append(attrs, "style=bold")
		case styleData:
			attrs = append(attrs, "style=dotted", "arrowhead=empty")
		}
		fmt.Fprintf(&b, "    %s -> %s", l.from, l.to)
		if len(attrs) > 0 {
			fmt.Fprintf(&b, " [%s]", strings.Join(attrs, ", "))
		}
		b.WriteString(";\n")
	}
	b.WriteString("}\n")
	return b.String()
}

var dotEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;")

// dotText quotes the lines of a label. In a label, \n ends a line, and Graphviz decodes HTML entities.
func dotText(lines ...string) string {
	var quoted []string
	for _, text := range lines {
		quoted = append(quoted, dotEscapes.Replace(text))
	}
	return `"` + strings.Join(quoted, `\n`) + `"`
}
