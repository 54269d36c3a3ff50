// The functions of the page that need no browser, on random inputs.
import assert from "node:assert/strict"
import { createServer } from "vite"

const vite = await createServer({ root: new URL("..", import.meta.url).pathname, configFile: false, server: { middlewareMode: true, ws: false, watch: null }, appType: "custom", logLevel: "error", optimizeDeps: { noDiscovery: true } })
const load = name => vite.ssrLoadModule(`/src/${name}.ts`)
const { layersOf, layout, reduce } = await load("layout")
const { pictureOf, sceneOf, treeOf } = await load("scene")
const { bySlots, byDependencies, lanesOf, neighbourSpan } = await load("spans")
const { visible, visibleLines } = await load("visible")
await vite.close()

// chance is a generator of random numbers below n, the same ones each time.
const chance = seed => n => {
	seed = (seed * 1664525 + 1013904223) >>> 0
	return Math.floor((seed / 2 ** 32) * n)
}

const long = process.env.KAHN_LONG === "1" ? 50 : 1

// graphs are random graphs whose edges lead from lower to higher numbers.
function* graphs(count) {
	for (let seed = 1; seed <= count * long; seed++) {
		const below = chance(seed), n = 1 + below(14), edges = []
		for (let to = 1; to < n; to++) for (let from = 0; from < to; from++) if (below(10) < 3) edges.push([from, to])
		yield { n, edges, below, seed }
	}
}

// reach has for each node the set of nodes that follow it.
const reach = (n, edges) => {
	const sets = Array.from({ length: n }, () => new Set())
	for (let from = n - 1; from >= 0; from--) for (const [a, b] of edges) if (a === from) for (const x of [b, ...sets[b]]) sets[from].add(x)
	return sets
}

const acyclic = (n, edges) => {
	const open = Array(n).fill(0)
	for (const [, to] of edges) open[to]++
	const queue = [...open.keys()].filter(i => !open[i])
	for (const i of queue) for (const [from, to] of edges) if (from === i && !--open[to]) queue.push(to)
	return queue.length === n
}

export const functions = {
	async "a reduction keeps what follows what, with no edge too many"() {
		for (const { n, edges, seed } of graphs(300)) {
			const kept = reduce(n, edges, layersOf(n, edges)).map(e => edges[e]), all = reach(n, edges)
			assert.deepEqual(reach(n, kept), all, `seed ${seed}`)
			for (const edge of kept) assert.notDeepEqual(reach(n, kept.filter(e => e !== edge)), all, `seed ${seed}: ${edge}`)
		}
	},

	async "a layout leads from left to right, and no boxes overlap"() {
		for (const { n, edges, below, seed } of graphs(200)) {
			const boxes = Array.from({ length: n }, () => ({ w: 100 + below(80), h: 30 + below(90) })), { x, y, w, h, lines } = layout({ boxes, edges, all: true })
			assert.equal(lines.length, edges.length)
			for (const [from, to] of edges) assert(x[from] + boxes[from].w < x[to], `seed ${seed}`)
			for (let a = 0; a < n; a++) {
				assert(x[a] >= 0 && y[a] >= -1e-6 && x[a] + boxes[a].w <= w + 1e-6 && y[a] + boxes[a].h <= h + 1e-6, `seed ${seed}`)
				for (let b = 0; b < a; b++) assert(x[a] + boxes[a].w <= x[b] || x[b] + boxes[b].w <= x[a] || y[a] + boxes[a].h <= y[b] + 1e-6 || y[b] + boxes[b].h <= y[a] + 1e-6, `seed ${seed}: ${a} and ${b}`)
			}
		}
	},

	async "folded groups make no cycle and lose no node"() {
		for (const { n, edges, below, seed } of graphs(400)) {
			const groups = Array.from({ length: n }, () => ["", "a", "b"][below(3)])
			const graph = { known: true, nodes: groups.map((g, i) => ({ id: `n${i}`, type: "step", tier: 0, groups: g ? [g] : undefined })), edges: edges.map(([from, to]) => ({ from, to })), groups: ["a", "b"], total: n }
			const model = { graphs: new Map([["", graph]]), insides: new Map(), status: () => "idle" }
			const scene = sceneOf(model, "", { open: new Set(), fold: ["a", "b"], failed: false })
			assert(acyclic(scene.cells.length, scene.links.map(l => [l.from, l.to])), `seed ${seed}`)
			assert.deepEqual(scene.cells.flatMap(c => c.members ?? [c.path]).sort(), graph.nodes.map(x => x.id).sort())
			for (const cell of scene.cells) if (cell.members) assert.equal(new Set(cell.members.map(m => groups[m.slice(1)])).size, 1)
			if (!edges.some(([from, to]) => groups[from] !== groups[to])) for (const g of ["a", "b"]) assert(scene.cells.filter(c => c.members && c.group === g).length <= 1) // one box without need for more
			assert.equal(treeOf(scene, true).task.edges.length, scene.links.length)
			assert.equal(pictureOf(scene, { nodes: scene.cells.map((_, i) => ({ path: [i], x: 0, y: 0, w: 1, h: 1 })), lines: [], w: 1, h: 1, ms: 0 }, "").items.length, scene.cells.length)
		}
	},

	async "no two attempts share a lane, and critical paths go back from the end"() {
		for (const { below, seed } of graphs(200)) {
			const all = Array.from({ length: 1 + below(20) }, (_, id) => {
				const queued_ms = below(50), start_ms = queued_ms + below(10)
				return { path: `n${id}`, n: 1, id, queued_ms, start_ms, end_ms: start_ms + 1 + below(30), status: "completed" }
			})
			const lanes = lanesOf(all), last = Math.max(...all.map(s => s.end_ms))
			lanes.spans.forEach((a, i) => lanes.spans.forEach((b, k) => assert(i === k || lanes.lanes[i] !== lanes.lanes[k] || a.end_ms <= b.start_ms || b.end_ms <= a.start_ms, `seed ${seed}`)))
			const most = Math.max(...all.map(a => all.filter(b => b.start_ms <= a.start_ms && b.end_ms > a.start_ms).length))
			assert.equal(lanes.count, most, `seed ${seed}: as many lanes as attempts were under way at once`)
			const graph = { nodes: all.map(s => ({ id: s.path })), edges: [] }
			for (const path of [bySlots(lanes), byDependencies(all, graph)]) {
				const steps = [...path].sort((a, b) => a.start_ms - b.start_ms)
				assert.equal(steps.at(-1).end_ms, last, `seed ${seed}`)
				steps.slice(1).forEach((s, i) => assert(steps[i].end_ms <= s.start_ms + 1, `seed ${seed}: ${steps[i].path} before ${s.path}`))
			}
			for (const key of ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]) assert.notEqual(neighbourSpan(lanes, lanes.spans[0], key), lanes.spans[0])
		}
	},

	async "texts of runs keep their letters and lose what would disturb others"() {
		assert.equal(visible("a\u202eb\u0000c\nd"), "a⟨202E⟩b␀c␊d")
		assert.equal(visibleLines("a\nb\tc\u2066"), "a\nb\tc⟨2066⟩")
		assert.equal(visible("שלום, 世界 👩‍🚀"), "שלום, 世界 👩‍🚀")
		assert.equal(visible("x".repeat(100_000)).length, 301)
		assert.equal(visible("👩".repeat(10), 3), "👩…")
		for (let code = 0; code < 0x3000; code++) assert.doesNotMatch(visible(String.fromCodePoint(code)), /[\p{Cc}\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/u)
	},
}
