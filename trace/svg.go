package trace

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn"
)

// SVG returns the picture of a plan as an image that browsers can display. If res is not nil, each node has the colour of its status, and the label
// of a skipped or stopped node gives the reason. For the same plan and result, SVG returns the same text. The text contains no scripts and no
// references.
//
// SVG draws edges as [DOT] does. A group has no frame; the labels of its nodes contain its name.
func SVG(p *kahn.Plan, res *kahn.Result) string { return Drawing{}.SVG(p, res) }

const (
	fontSize   = 13
	lineHeight = 17
	charWidth  = 7.2 // the width of an average character
	margin     = 16
)

// SVG does what the function [SVG] does, with the options d.
func (d Drawing) SVG(p *kahn.Plan, res *kahn.Result) string {
	pic := d.draw(p, res)
	boxes := make([]svgBox, len(pic.boxes))
	sizes := make([]size, len(pic.boxes))
	for i, b := range pic.boxes {
		boxes[i] = newSVGBox(&pic, b)
		if d.LeftToRight {
			sizes[i] = size{boxes[i].h, boxes[i].w}
		} else {
			sizes[i] = size{boxes[i].w, boxes[i].h}
		}
	}
	place := layOut(sizes, pic.lines, d.gap(&pic))
	at := func(s spot) (x, y float64) {
		if d.LeftToRight {
			return s.across + margin, s.along + margin
		}
		return s.along + margin, s.across + margin
	}
	w, h := at(spot{place.size.along, place.size.across})
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"%d\">\n",
		w+margin, h+margin, w+margin, h+margin, fontSize)
	fmt.Fprintf(&out, "<title>%s</title>\n", svgText(clean(pic.name)))
	out.WriteString("<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\"><path d=\"M0 0L8 4L0 8z\" fill=\"#495057\"/></marker></defs>\n")
	for i, l := range pic.lines {
		svgLine(&out, l, place.ways[i], at)
	}
	for i := range boxes {
		x, y := at(spot{place.along[i], place.across[i]})
		boxes[i].write(&out, x, y)
	}
	for i, l := range pic.lines {
		if way := place.ways[i]; l.text != "" { // put the text in the middle between the last two points of the line
			last, before := way[len(way)-1], way[len(way)-2]
			x, y := at(spot{(last.along + before.along) / 2, (last.across + before.across) / 2})
			fmt.Fprintf(&out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\" fill=\"#495057\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">%s</text>\n",
				x, y+4, svgText(l.text))
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// The method gap returns the distance between layers. If the drawing goes from left to right, the texts of edges must fit into
// the gap.
func (d Drawing) gap(pic *picture) float64 {
	const least, most = 56, 180
	if !d.LeftToRight {
		return least
	}
	longest := 0
	for _, l := range pic.lines {
		longest = max(longest, utf8.RuneCountInString(l.text))
	}
	return min(most, max(least, float64(longest)*6+24))
}

// svgBox is a box with its size.
type svgBox struct {
	box
	colours
	lines []string
	w, h  float64
}

func newSVGBox(pic *picture, b box) svgBox {
	s := svgBox{box: b, colours: colours{"#ffffff", "#495057"}}
	for _, c := range palette {
		if b.status == c.status.String() {
			s.colours = c.colours
		}
	}
	const most = 48 // characters in a line
	for _, text := range b.text {
		s.lines = append(s.lines, wrap(text, most)...)
	}
	if b.group >= 0 {
		s.lines = append(s.lines, wrap("group "+clean(pic.groups[b.group]), most)...)
	}
	longest := 0
	for _, text := range s.lines {
		longest = max(longest, utf8.RuneCountInString(text))
	}
	s.w, s.h = max(60, float64(longest)*charWidth+24), float64(len(s.lines)*lineHeight)+14
	if b.shape == shapeCondition || b.shape == shapeGate || b.shape == shapeCleanup {
		s.w += 28 // room for the slanted sides
	}
	return s
}

// wrap breaks a text into lines, at spaces if possible.
func wrap(text string, most int) (lines []string) {
	runes := []rune(text)
	for len(runes) > most {
		end := most
		for k := most; k > most/2; k-- {
			if runes[k] == ' ' {
				end = k
				break
			}
		}
		lines = append(lines, string(runes[:end]))
		for runes = runes[end:]; len(runes) > 0 && runes[0] == ' '; {
			runes = runes[1:]
		}
	}
	return append(lines, string(runes))
}

// write writes the box with the given centre.
func (s *svgBox) write(out *strings.Builder, x, y float64) {
	left, right, top, bottom := x-s.w/2, x+s.w/2, y-s.h/2, y+s.h/2
	paint := fmt.Sprintf("fill=\"%s\" stroke=\"%s\"", s.fill, s.stroke)
	polygon := func(points ...float64) {
		out.WriteString("<polygon points=\"")
		for i := 0; i < len(points); i += 2 {
			if i > 0 {
				out.WriteByte(' ')
			}
			fmt.Fprintf(out, "%.1f,%.1f", points[i], points[i+1])
		}
		fmt.Fprintf(out, "\" %s/>\n", paint)
	}
	switch s.shape {
	case shapeCondition:
		polygon(left, y, left+14, top, right-14, top, right, y, right-14, bottom, left+14, bottom)
	case shapeGate:
		polygon(left+14, top, right, top, right-14, bottom, left, bottom)
	case shapeCleanup:
		polygon(left+14, top, right-14, top, right, bottom, left, bottom)
	default:
		radius := 4.0
		if s.shape == shapeEnd {
			radius = s.h / 2
		}
		fmt.Fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" %s/>\n", left, top, s.w, s.h, radius, paint)
	}
	fmt.Fprintf(out, "<text text-anchor=\"middle\" fill=\"#212529\">")
	for i, text := range s.lines {
		weight := ""
		if i == 0 {
			weight = " font-weight=\"bold\""
		}
		fmt.Fprintf(out, "<tspan x=\"%.1f\" y=\"%.1f\"%s>%s</tspan>", x, top+7+float64(i)*lineHeight+fontSize, weight, svgText(text))
	}
	out.WriteString("</text>\n")
}

// svgLine draws an edge along its way.
func svgLine(out *strings.Builder, l line, way []spot, at func(spot) (x, y float64)) {
	x, y := at(way[0])
	fmt.Fprintf(out, "<path d=\"M%.1f %.1f", x, y)
	for i := 1; i < len(way); i++ {
		middle := (way[i-1].across + way[i].across) / 2
		x1, y1 := at(spot{way[i-1].along, middle})
		x2, y2 := at(spot{way[i].along, middle})
		x, y = at(way[i])
		fmt.Fprintf(out, "C%.1f %.1f %.1f %.1f %.1f %.1f", x1, y1, x2, y2, x, y)
	}
	style := [...]string{
		"stroke=\"#495057\"", "stroke=\"#c92a2a\" stroke-dasharray=\"6 4\"", "stroke=\"#495057\" stroke-width=\"2.5\"", "stroke=\"#495057\" stroke-dasharray=\"2 4\"",
	}[l.style]
	fmt.Fprintf(out, "\" fill=\"none\" %s marker-end=\"url(#arrow)\"/>\n", style)
}

// svgText encodes a text for an element.
func svgText(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a Builder never fails
	return b.String()
}
