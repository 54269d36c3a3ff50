package trace

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-c794f7ef/kahn"
)

// Mermaid returns the flowchart of a plan in Mermaid's notation. If res is not nil, the colour of a node shows its status, and the label says
// why the node was skipped or stopped. The same plan and result give the same text.
//
// Edges that wait for success are plain arrows, edges that wait for failure have a cross, and edges that wait for any
// end are thick. Edges that only deliver data, including side edges, are dotted. A group is drawn around the nodes whose
// first group it is. By default, Mermaid itself refuses a flowchart with more than 500 edges or 50,000 characters.
func Mermaid(p *kahn.Plan, res *kahn.Result) string { return Drawing{}.Mermaid(p, res) }

// Mermaid does what the function [Mermaid] does, with the options d.
func (d Drawing) Mermaid(p *kahn.Plan, res *kahn.Result) string {
	pic := d.draw(p, res)
	var b strings.Builder
	if d.LeftToRight {
		b.WriteString("flowchart LR\n")
	} else {
		b.WriteString("flowchart TD\n")
	}
	for i, boxes := range pic.members() {
		if len(boxes) == 0 {
			continue
		}
		indent := "    "
		if i > 0 {
			fmt.Fprintf(&b, "%ssubgraph g%d[\"%s\"]\n", indent, i-1, mermaidText(clean(pic.groups[i-1])))
			indent += "    "
		}
		for _, box := range boxes {
			open, shut := mermaidShape(box.shape)
			var lines []string
			for _, text := range box.text {
				lines = append(lines, mermaidText(text))
			}
			fmt.Fprintf(&b, "%s%s%s\"%s\"%s\n", indent, box.name, open, strings.Join(lines, "<br/>"), shut)
		}
		if i > 0 {
			b.WriteString("    end\n")
		}
	}
	for _, l := range pic.lines {
		text := ""
		if l.text != "" {
			text = `|"` + mermaidText(l.text) + `"|`
		}
		fmt.Fprintf(&b, "    %s %s%s %s\n", l.from, [...]string{"-->", "--x", "==>", "-.->"}[l.style], text, l.to)
	}
	for _, c := range palette {
		var names []string
		for _, box := range pic.boxes {
			if box.status == c.status.String() {
				names = append(names, box.name)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "    classDef %v fill:%s,stroke:%s,color:#000\n", c.status, c.fill, c.stroke)
			fmt.Fprintf(&b, "    class %s %v\n", strings.Join(names, ","), c.status)
		}
	}
	return b.String()
}

func mermaidShape(s shape) (open, shut string) {
	switch s {
	case shapeCondition:
		return "{", "}"
	case shapeGate:
		return "{{", "}}"
	case shapeCleanup:
		return "[/", "/]"
	case shapeEnd:
		return "([", "])"
	}
	return "[", "]"
}

// mermaidText encodes a text for a quoted label. Mermaid interprets HTML and Markdown in labels (for example, "1. fetch" becomes a list). So
// mermaidText encodes every character except the characters of words, the characters "/", "-" and "_" within a word, and spaces within the text.
func mermaidText(text string) string {
	runes := []rune(text)
	word := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]) || unicode.IsMark(runes[i]))
	}
	inside := func(i int) bool { return word(i-1) && word(i+1) }
	var b strings.Builder
	for i, r := range runes {
		if word(i) || slices.Contains([]rune(" /-_"), r) && inside(i) || r == ' ' && i > 0 && i < len(runes)-1 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}
