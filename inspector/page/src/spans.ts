import type { Graph, Span } from "./api"

// What the timeline shows about attempts, computed by pure functions.

// Lanes lists attempts in the order of their starts, and the lane of each attempt.
export interface Lanes { spans: Span[]; lanes: number[]; count: number }

// lanesOf gives each attempt a lane in which no other attempt runs. Composites are left out: they hold no slot, and their nodes are shown.
export function lanesOf(all: Span[]): Lanes {
	const parents = new Set<string>()
	for (const s of all) {
		for (let i = s.path.length - 1; i > 0; i--) {
			const c = s.path[i]
			if (c === "/" || c === "[") parents.add(s.path.slice(0, i).replace(/#\d+$/, ""))
		}
	}
	const spans = all.filter(s => !parents.has(s.path)).sort((a, b) => a.start_ms - b.start_ms || a.id - b.id)
	const free: number[] = [], lanes: number[] = []
	for (const s of spans) {
		let l = free.findIndex(end => end <= s.start_ms)
		if (l < 0) l = free.length
		free[l] = Math.max(s.end_ms ?? Infinity, s.start_ms + 1e-6)
		lanes.push(l)
	}
	return { spans, lanes, count: free.length }
}

// byDependencies returns the critical path by dependencies. It begins at the node that ended last, and goes from each node to the
// predecessor that ended last.
export function byDependencies(all: Span[], graph: Graph | undefined): Set<Span> {
	const path = new Set<Span>()
	if (!graph) return path
	const last = new Map<string, Span>()
	for (const s of all) {
		const known = last.get(s.path)
		if (!known || (s.end_ms ?? Infinity) >= (known.end_ms ?? Infinity)) last.set(s.path, s)
	}
	const before = new Map<number, number[]>(), index = new Map(graph.nodes.map((n, i) => [n.id, i]))
	for (const e of graph.edges) before.set(e.to, [...(before.get(e.to) ?? []), e.from])
	let at = [...last.values()].filter(s => index.has(s.path)).sort((a, b) => (b.end_ms ?? Infinity) - (a.end_ms ?? Infinity))[0] as Span | undefined
	while (at && !path.has(at)) {
		path.add(at)
		const list = (before.get(index.get(at.path)!) ?? []).map(i => last.get(graph.nodes[i].id)).filter((s): s is Span => !!s)
		at = list.sort((a, b) => (b.end_ms ?? Infinity) - (a.end_ms ?? Infinity))[0]
	}
	return path
}

// bySlots returns the critical path by slots. It begins at the attempt that ended last. From an attempt that waited for a slot it goes to
// the attempt that freed the lane. From any other attempt it goes to the attempt that ended last before this one was queued.
export function bySlots({ spans, lanes }: Lanes): Set<Span> {
	const path = new Set<Span>()
	const byEnd = spans.map((s, i) => ({ s, i })).filter(x => x.s.end_ms !== undefined).sort((a, b) => a.s.end_ms! - b.s.end_ms!)
	const before = (limit: number, lane?: number) => byEnd.findLast(x => x.s.end_ms! <= limit && !path.has(x.s) && (lane === undefined || lanes[x.i] === lane))
	let at = spans.some(s => s.end_ms === undefined) ? { s: spans.findLast(s => s.end_ms === undefined)!, i: 0 } : byEnd.at(-1)
	if (at) at.i = spans.indexOf(at.s)
	while (at) {
		path.add(at.s)
		const waited = at.s.start_ms - at.s.queued_ms > 1
		at = waited ? (before(at.s.start_ms + 0.5, lanes[at.i]) ?? before(at.s.start_ms)) : before(at.s.queued_ms + 0.05)
	}
	return path
}

// neighbourSpan returns the attempt that an arrow key selects: the previous or the next attempt in the same lane, or the nearest attempt
// in a neighbouring lane.
export function neighbourSpan({ spans, lanes }: Lanes, own: Span | undefined, key: string): Span | undefined {
	if (!own) return spans[0]
	const i = spans.indexOf(own), lane = lanes[i]
	if (key === "ArrowRight") return spans.find((_, k) => k > i && lanes[k] === lane)
	if (key === "ArrowLeft") return spans.findLast((_, k) => k < i && lanes[k] === lane)
	const next = lane + (key === "ArrowDown" ? 1 : -1), away = (s: Span) => Math.abs(s.start_ms - own.start_ms)
	return spans.filter((_, k) => lanes[k] === next).sort((a, b) => away(a) - away(b))[0]
}
