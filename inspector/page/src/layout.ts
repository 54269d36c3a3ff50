// A layered layout from left to right: longest path, chains of dummies for long edges, and barycentre sweeps. Heights are the
// least-squares solution that keeps the distances (pool adjacent violators). By default only the edges of the transitive reduction are
// drawn.

export interface Box { w: number; h: number }
export interface Task { boxes: Box[]; edges: [number, number][]; all: boolean }
export interface Layout {
	x: Float64Array // the upper left corner of each box
	y: Float64Array
	w: number
	h: number
	lines: { edge: number; points: number[] }[] // x and y alternate; the line leads from box to box
}

const gapX = 64
const gapY = 14

// Limits of the work. Beyond them, reduce keeps the edges that it has not examined, and long edges are drawn straight.
const mostSteps = 6_000_000
const mostDummies = 40_000

export function layersOf(n: number, edges: [number, number][]): Int32Array {
	const layer = new Int32Array(n), open = new Int32Array(n)
	const out: number[][] = Array.from({ length: n }, () => [])
	for (const [from, to] of edges) {
		out[from].push(to)
		open[to]++
	}
	const queue: number[] = []
	for (let i = 0; i < n; i++) if (!open[i]) queue.push(i)
	for (let k = 0; k < queue.length; k++) {
		for (const to of out[queue[k]]) {
			layer[to] = Math.max(layer[to], layer[queue[k]] + 1)
			if (!--open[to]) queue.push(to)
		}
	}
	return layer
}

// reduce returns the indices of the edges that cannot be replaced by a longer path.
export function reduce(n: number, edges: [number, number][], layer: Int32Array): number[] {
	const out: number[][] = Array.from({ length: n }, () => [])
	edges.forEach(([from], e) => out[from].push(e))
	const mark = new Int32Array(n).fill(-1)
	const kept: number[] = []
	let steps = 0
	for (let u = 0; u < n; u++) {
		const own = out[u]
		if (own.length < 2 || steps > mostSteps) {
			kept.push(...own)
			continue
		}
		const deepest = own.reduce((most, e) => Math.max(most, layer[edges[e][1]]), 0)
		const stack: number[] = own.map(e => edges[e][1])
		while (stack.length) { // marks nodes that are reached through at least two edges
			const v = stack.pop()!
			if (layer[v] >= deepest) continue
			for (const e of out[v]) {
				steps++
				const to = edges[e][1]
				if (mark[to] !== u && layer[to] <= deepest) {
					mark[to] = u
					stack.push(to)
				}
			}
		}
		const seen = new Set<number>()
		for (const e of own) {
			const to = edges[e][1]
			if (mark[to] !== u && !seen.has(to)) kept.push(e)
			seen.add(to)
		}
	}
	return kept
}

// isotonic moves positions as little as possible, so that each has at least the given distance from the previous position.
function isotonic(wish: number[], distance: number[]): number[] {
	const sum: number[] = [], count: number[] = [], offset: number[] = []
	let before = 0
	wish.forEach((y, i) => {
		before += i ? distance[i] : 0
		offset.push(before)
		sum.push(y - before)
		count.push(1)
		while (sum.length > 1 && sum.at(-1)! / count.at(-1)! < sum.at(-2)! / count.at(-2)!) {
			sum[sum.length - 2] += sum.pop()!
			count[count.length - 2] += count.pop()!
		}
	})
	const result: number[] = []
	sum.forEach((s, b) => {
		for (let k = 0; k < count[b]; k++) result.push(s / count[b] + offset[result.length])
	})
	return result
}

export function layout({ boxes, edges, all }: Task): Layout {
	const n = boxes.length
	if (!edges.length && n > 8) return grid(boxes)
	const layer = layersOf(n, edges)
	const kept = all ? edges.map((_, e) => e) : reduce(n, edges, layer)

	// Nodes and dummies, by layer.
	const level: number[] = Array.from(layer), height: number[] = boxes.map(b => b.h)
	const up: number[][] = boxes.map(() => []), down: number[][] = boxes.map(() => [])
	const chains: { edge: number; via: number[] }[] = []
	for (const e of kept) {
		const [from, to] = edges[e], via: number[] = []
		let last = from
		for (let l = layer[from] + 1; l < layer[to] && level.length - n < mostDummies; l++) {
			const d = level.length
			level.push(l)
			height.push(2)
			up.push([last])
			down.push([])
			down[last].push(d)
			via.push(d)
			last = d
		}
		down[last].push(to)
		up[to].push(last)
		chains.push({ edge: e, via })
	}
	const layers: number[][] = []
	level.forEach((l, v) => (layers[l] ??= []).push(v))

	// The order in each layer.
	const at = new Float64Array(level.length)
	for (const list of layers) list.forEach((v, i) => (at[v] = i))
	const mean = (v: number, list: number[]) => {
		if (!list.length) return at[v]
		let sum = 0
		for (const u of list) sum += at[u]
		return sum / list.length
	}
	const sweeps = level.length > 8000 ? 4 : 10
	for (let s = 0; s < sweeps; s++) {
		const forward = s % 2 === 0
		for (let k = 0; k < layers.length; k++) {
			const list = layers[forward ? k : layers.length - 1 - k]
			const key = new Map(list.map(v => [v, mean(v, forward ? up[v] : down[v])]))
			list.sort((a, b) => key.get(a)! - key.get(b)! || at[a] - at[b])
			list.forEach((v, i) => (at[v] = i))
		}
	}

	// The heights.
	const y = new Float64Array(level.length)
	const distances = layers.map(list => list.map((v, i) => (i ? (height[v] + height[list[i - 1]]) / 2 + gapY : 0)))
	layers.forEach((list, l) => {
		let sum = 0
		list.forEach((v, i) => (y[v] = sum += distances[l][i]))
		for (const v of list) y[v] -= sum / 2
	})
	const centre = (v: number, list: number[]) => {
		if (!list.length) return y[v]
		let sum = 0
		for (const u of list) sum += y[u]
		return sum / list.length
	}
	for (let s = 0; s < (level.length > 8000 ? 4 : 8); s++) {
		const forward = s % 2 === 1
		for (let k = 0; k < layers.length; k++) {
			const l = forward ? k : layers.length - 1 - k
			const list = layers[l]
			isotonic(list.map(v => centre(v, forward ? up[v] : down[v])), distances[l]).forEach((p, i) => (y[list[i]] = p))
		}
	}

	// The columns.
	const left: number[] = [], width: number[] = layers.map(list => list.reduce((w, v) => Math.max(w, v < n ? boxes[v].w : 0), 0))
	let x = 0
	for (const w of width) {
		left.push(x)
		x += w + gapX
	}
	let top = Infinity, bottom = -Infinity
	level.forEach((_, v) => {
		top = Math.min(top, y[v] - height[v] / 2)
		bottom = Math.max(bottom, y[v] + height[v] / 2)
	})
	const result: Layout = { x: new Float64Array(n), y: new Float64Array(n), w: Math.max(0, x - gapX), h: Math.max(0, bottom - top), lines: [] }
	for (let v = 0; v < n; v++) {
		result.x[v] = left[layer[v]] + (width[layer[v]] - boxes[v].w) / 2
		result.y[v] = y[v] - height[v] / 2 - top
	}
	for (const { edge, via } of chains) {
		const [from, to] = edges[edge]
		const points = [result.x[from] + boxes[from].w, y[from] - top]
		for (const d of via) points.push(left[level[d]], y[d] - top, left[level[d]] + width[level[d]], y[d] - top)
		points.push(result.x[to], y[to] - top)
		result.lines.push({ edge, points })
	}
	return result
}

// grid places boxes without edges in rows, such as the items of a map.
function grid(boxes: Box[]): Layout {
	const columns = Math.ceil(Math.sqrt(boxes.length / 2.5))
	const w = Math.max(...boxes.map(b => b.w)) + gapY
	const result: Layout = { x: new Float64Array(boxes.length), y: new Float64Array(boxes.length), w: columns * w - gapY, h: 0, lines: [] }
	let y = 0, tallest = 0
	boxes.forEach((box, i) => {
		if (i && i % columns === 0) {
			y += tallest + gapY
			tallest = 0
		}
		result.x[i] = (i % columns) * w
		result.y[i] = y
		tallest = Math.max(tallest, box.h)
	})
	result.h = y + tallest
	return result
}
