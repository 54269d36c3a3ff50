package trace

import (
	"cmp"
	"math"
	"slices"
)

// SVG pictures have a layered layout: a node is in the layer after the layer of its last predecessor. A long edge is a chain of empty places, one in
// each layer that it crosses. Barycentre sweeps order the places in each layer. Each node is as close to the middle of its neighbours as the
// minimum distances between boxes allow.

// size is the size of a box along its layer and across the layer.
type size struct{ along, across float64 }

// laidOut holds the positions of boxes and lines. The field "along" has each box's position within its layer, and "across" the layer's position.
type laidOut struct {
	along, across []float64 // the centres of the boxes
	ways          [][]spot  // the points of each line, from box to box
	size          size
}

type spot struct{ along, across float64 }

// boxGap is the distance between boxes of a layer.
const boxGap = 18

// The function layers returns the layer of each box.
func layers(n int, lines []line) []int {
	layer, open, out := make([]int, n), make([]int, n), make([][]int, n)
	for _, l := range lines {
		out[l.tail] = append(out[l.tail], l.head)
		open[l.head]++
	}
	var queue []int
	for i := range n {
		if open[i] == 0 {
			queue = append(queue, i)
		}
	}
	for k := 0; k < len(queue); k++ {
		for _, to := range out[queue[k]] {
			layer[to] = max(layer[to], layer[queue[k]]+1)
			if open[to]--; open[to] == 0 {
				queue = append(queue, to)
			}
		}
	}
	return layer
}

const (
	// mostSteps bounds the search for edges that a longer path replaces. When the search has made this many steps, it keeps the
	// remaining edges.
	mostSteps = 20_000_000
	// mostPlaces is the most empty places of all long edges together. When they are used up, the remaining edges are straight.
	mostPlaces = 200_000
	// A long edge gets a bend only if the positions of two successive places of the edge differ by at least the constant `straight`.
	straight = 4
)

// reduce removes the plain lines without a text that a longer path replaces.
func (p *picture) reduce() {
	layer := layers(len(p.boxes), p.lines)
	out := make([][]int, len(p.boxes))
	for _, l := range p.lines {
		out[l.tail] = append(out[l.tail], l.head)
	}
	longer := make([]map[int]bool, len(p.boxes)) // for each box: the targets of its lines that a longer path also reaches
	mark := make([]int, len(p.boxes))            // for each box: 1 + the last box from which the search found a path of two or more lines to it
	steps := 0
	for from, own := range out {
		if len(own) < 2 || steps > mostSteps {
			continue
		}
		deepest := 0
		for _, to := range own {
			deepest = max(deepest, layer[to])
		}
		for stack := slices.Clone(own); len(stack) > 0; {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, to := range out[at] {
				steps++
				if mark[to] != from+1 && layer[to] <= deepest {
					mark[to] = from + 1
					stack = append(stack, to)
				}
			}
		}
		for _, to := range own {
			if mark[to] == from+1 {
				if longer[from] == nil {
					longer[from] = map[int]bool{}
				}
				longer[from][to] = true
			}
		}
	}
	p.lines = slices.DeleteFunc(p.lines, func(l line) bool { return l.style == styleSuccess && l.text == "" && longer[l.tail][l.head] })
}

// isotonic returns positions that keep the minimum distances. Of all these, they are nearest to the desired positions, by least squares.
func isotonic(wish, distance []float64) []float64 {
	type block struct {
		sum   float64
		count int
	}
	var blocks []block
	mean := func(b block) float64 { return b.sum / float64(b.count) }
	offsets := make([]float64, len(wish))
	for i, w := range wish {
		if i > 0 {
			offsets[i] = offsets[i-1] + distance[i]
		}
		blocks = append(blocks, block{w - offsets[i], 1})
		for n := len(blocks); n > 1 && mean(blocks[n-1]) < mean(blocks[n-2]); n-- {
			blocks[n-2].sum += blocks[n-1].sum
			blocks[n-2].count += blocks[n-1].count
			blocks = blocks[:n-1]
		}
	}
	var places []float64
	for _, b := range blocks {
		for range b.count {
			places = append(places, mean(b)+offsets[len(places)])
		}
	}
	return places
}

// mesh is a picture with empty places for its long edges. The numbers of the empty places follow the numbers of the boxes.
type mesh struct {
	layer    []int
	along    []float64 // the space that each place takes
	up, down [][]int
	rows     [][]int   // the places of each layer, in order
	at       []float64 // by place: at first its index in its layer, and at the end its position
	via      [][]int   // the empty places of each line
}

func newMesh(sizes []size, lines []line) *mesh {
	n := len(sizes)
	m := &mesh{layer: layers(n, lines), up: make([][]int, n), down: make([][]int, n)}
	for _, s := range sizes {
		m.along = append(m.along, s.along)
	}
	for _, l := range lines {
		last := l.tail
		var via []int
		for layer := m.layer[l.tail] + 1; layer < m.layer[l.head] && len(m.layer) < n+mostPlaces; layer++ {
			place := len(m.layer)
			m.layer, m.along = append(m.layer, layer), append(m.along, 0)
			m.up, m.down = append(m.up, []int{last}), append(m.down, nil)
			m.down[last] = append(m.down[last], place)
			via = append(via, place)
			last = place
		}
		m.down[last] = append(m.down[last], l.head)
		m.up[l.head] = append(m.up[l.head], last)
		m.via = append(m.via, via)
	}
	for place, layer := range m.layer {
		for len(m.rows) <= layer {
			m.rows = append(m.rows, nil)
		}
		m.rows[layer] = append(m.rows[layer], place)
	}
	m.at = make([]float64, len(m.layer))
	return m
}

// middle returns the mean of the neighbours' positions, or the place's own position if it has no neighbours.
func (m *mesh) middle(place int, neighbours []int) float64 {
	if len(neighbours) == 0 {
		return m.at[place]
	}
	sum := 0.0
	for _, other := range neighbours {
		sum += m.at[other]
	}
	return sum / float64(len(neighbours))
}

// The method sweep visits all layers, alternately forwards and backwards. It arranges each layer according to the places that its lines
// have in the layer before.
func (m *mesh) sweep(times int, arrange func(layer int, neighbours [][]int)) {
	for k := range times {
		for i := range m.rows {
			if k%2 == 0 {
				arrange(i, m.up)
			} else {
				arrange(len(m.rows)-1-i, m.down)
			}
		}
	}
}

// The method order sorts the places of each layer to reduce the crossings of lines.
func (m *mesh) order() {
	number := func(row []int) {
		for i, place := range row {
			m.at[place] = float64(i)
		}
	}
	for _, row := range m.rows {
		number(row)
	}
	wish := make([]float64, len(m.layer))
	m.sweep(8, func(layer int, neighbours [][]int) {
		row := m.rows[layer]
		for _, place := range row {
			wish[place] = m.middle(place, neighbours[place])
		}
		slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(wish[a], wish[b]) })
		number(row)
	})
}

// The method position computes the positions of the places from their order.
func (m *mesh) position() {
	distances := make([][]float64, len(m.rows))
	for layer, row := range m.rows {
		sum := 0.0
		distances[layer] = make([]float64, len(row))
		for i, place := range row {
			if i > 0 {
				distances[layer][i] = (m.along[place]+m.along[row[i-1]])/2 + boxGap
			}
			sum += distances[layer][i]
			m.at[place] = sum
		}
		for _, place := range row {
			m.at[place] -= sum / 2
		}
	}
	m.sweep(8, func(layer int, neighbours [][]int) {
		row := m.rows[layer]
		wish := make([]float64, len(row))
		for i, place := range row {
			wish[i] = m.middle(place, neighbours[place])
		}
		for i, at := range isotonic(wish, distances[layer]) {
			m.at[row[i]] = at
		}
	})
}

// layOut places the boxes of a picture, with a gap between layers.
func layOut(sizes []size, lines []line, gap float64) laidOut {
	m := newMesh(sizes, lines)
	m.order()
	m.position()
	deep := make([]float64, len(m.rows)) // the depth of each layer
	for box, s := range sizes {
		deep[m.layer[box]] = max(deep[m.layer[box]], s.across)
	}
	first := make([]float64, len(m.rows))
	for layer := 1; layer < len(first); layer++ {
		first[layer] = first[layer-1] + deep[layer-1] + gap
	}
	least, most := math.Inf(1), math.Inf(-1)
	for place, at := range m.at {
		least, most = min(least, at-m.along[place]/2), max(most, at+m.along[place]/2)
	}
	out := laidOut{along: make([]float64, len(sizes)), across: make([]float64, len(sizes))}
	if len(sizes) > 0 {
		out.size = size{most - least, first[len(first)-1] + deep[len(deep)-1]}
	}
	for box := range sizes {
		out.along[box], out.across[box] = m.at[box]-least, first[m.layer[box]]+deep[m.layer[box]]/2
	}
	for i, l := range lines {
		way := []spot{{out.along[l.tail], out.across[l.tail] + sizes[l.tail].across/2}}
		for k, place := range m.via[i] {
			layer, along := m.layer[place], m.at[place]-least
			if k > 0 && math.Abs(along-way[len(way)-1].along) < straight {
				way[len(way)-1].across = first[layer] + deep[layer] // make the last piece of the line longer, to avoid a bend
				continue
			}
			way = append(way, spot{along, first[layer]}, spot{along, first[layer] + deep[layer]})
		}
		out.ways = append(out.ways, append(way, spot{out.along[l.head], out.across[l.head] - sizes[l.head].across/2}))
	}
	return out
}
