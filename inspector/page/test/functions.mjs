// The functions of the page that need no browser, on random inputs.
import assert from "node:assert/strict"
import { effect } from "@preact/signals"
import { createServer } from "vite"
import { measured } from "./yardstick.mjs"

const vite = await createServer({ root: new URL("..", import.meta.url).pathname, configFile: false, server: { middlewareMode: true, ws: false, watch: null }, appType: "custom", logLevel: "error", optimizeDeps: { noDiscovery: true } })
const load = name => vite.ssrLoadModule(`/src/${name}`)
const { divided } = await load("cluster")
const { onCurve, placesOf, widest } = await load("labels")
const { layersOf, layout, reduce } = await load("layout")
const { escaped, pagesOf, pngScale } = await load("paper")
const { Rows } = await load("rows")
const { matching } = await load("search")
const { place } = await load("place")
const { pictureOf, sceneOf, treeOf } = await load("scene")
const { bySlots, byDependencies, lanesOf, neighbourSpan } = await load("spans")
const { visible, visibleLines } = await load("visible")
await vite.close()

// chance returns a function that returns random numbers below n. Equal seeds give equal numbers.
const chance = seed => n => {
	seed = (seed * 1664525 + 1013904223) >>> 0
	return Math.floor((seed / 2 ** 32) * n)
}

const long = process.env.KAHN_LONG === "1" ? 50 : 1

// graphs yields random graphs. Their edges lead from nodes with lower numbers to nodes with higher numbers.
function* graphs(count) {
	for (let seed = 1; seed <= count * long; seed++) {
		const below = chance(seed), n = 1 + below(14), edges = []
		for (let to = 1; to < n; to++) for (let from = 0; from < to; from++) if (below(10) < 3) edges.push([from, to])
		yield { n, edges, below, seed }
	}
}

// reach returns, for each node, the set of all nodes that can be reached from it.
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

	async "clusters are in no cycle, keep every node and what follows what, and are few"() {
		for (const { n, edges, below, seed } of graphs(400)) {
			const before = Array.from({ length: n }, () => [])
			for (const [from, to] of edges) before[to].push(from)
			const classes = before.map(() => "abc"[below(3)]), { of, names } = divided(classes, before, [...before.keys()])
			assert(acyclic(names.length, edges.map(([a, b]) => [of[a], of[b]]).filter(([a, b]) => a !== b)), `seed ${seed}`)
			of.forEach((k, v) => assert.equal(names[k], classes[v]))
			const apart = edges.some(([a, b]) => classes[a] !== classes[b])
			if (!apart) assert.equal(names.length, new Set(classes).size, `seed ${seed}: one cluster each without need for more`)
		}
		for (const n of [300, 5000, 20_000]) {
			for (const [by, name, chosen] of [["", i => `n${i}`, "layer"], ["", i => `${["load", "clean", "store", "send"][Math.floor((4 * i) / n)]}_${i}`, "prefix"], ["group", i => `n${i}`, "group"], ["layer", i => `${i % 4}_${i}`, "layer"]]) {
				const nodes = Array.from({ length: n }, (_, i) => ({ id: name(i), type: "step", tier: 0, groups: by === "group" ? [`g${Math.floor((5 * i) / n)}`] : undefined }))
				const edges = nodes.flatMap((_, i) => (i < 20 ? [] : [{ from: i - 20, to: i }, { from: i - 1 - ((i * 7) % 19), to: i }]))
				const model = { graphs: new Map([["", { known: true, nodes, edges, groups: [], total: n }]]), insides: new Map(), status: () => "idle" }
				const open = new Set(), show = () => sceneOf(model, "", { open, fold: [], failed: "", by })
				let { cells, links } = show()
				assert(cells.length <= 48 && cells.length >= 3, `${n} ${by}: ${cells.length} boxes`)
				assert(acyclic(cells.length, links.map(l => [l.from, l.to])))
				assert.deepEqual(cells.flatMap(c => c.members ?? [c.path]).sort(), nodes.map(x => x.id).sort())
				if (chosen === "layer") assert.match(cells[0].label, /^layers? 1/)
				if (chosen === "prefix") assert.equal(cells[0].label, "load…")
				if (chosen === "group") assert.equal(cells[0].label, "g0")
				for (let depth = 0; cells.some(c => c.members); depth++) { // unfold one cluster after the other, until all nodes are shown
					assert(depth < 6, `${n} ${by}: ${depth} levels`)
					const own = cells.find(c => c.members)
					open.add(own.path)
					const find = list => list.flatMap(c => (c.path === own.path ? [c] : find(c.inside?.cells ?? [])))
					const { inside } = find(show().cells)[0]
					assert(acyclic(inside.cells.length, inside.links.map(l => [l.from, l.to])))
					cells = inside.cells
					assert(cells.length <= 48, `${n} ${by}: ${cells.length} boxes in one`)
					assert.deepEqual(cells.flatMap(c => c.members ?? [c.path]).sort(), [...own.members].sort())
				}
			}
		}
	},

	async "a limit of time fails for code that is slower in every try, and only then"() {
		const tries = async (...times) => { // the yardstick is 10 ms, and the limit three yardsticks
			let n = 0
			const { late } = await measured(async () => ({ evaluate: async () => ({ js: 10, canvas: 5 }) }), async () => [{ name: "draw", ms: times[n++], of: "js", most: 3 }], async () => undefined)
			return [late.length, n]
		}
		assert.deepEqual(await tries(60, 60, 60), [1, 3])
		assert.deepEqual(await tries(31, 33, 32), [1, 3])
		assert.deepEqual(await tries(60, 29), [0, 2])
		assert.deepEqual(await tries(29), [0, 1])
	},

	async "edges lead to the boxes in an unfolded cluster, not to its frame"() {
		for (let seed = 1; seed <= 20 * long; seed++) {
			const below = chance(seed), n = 60 + below(600), nodes = Array.from({ length: n }, (_, i) => ({ id: `${"abcd"[Math.floor((4 * i) / n)]}_${i}`, type: "step", tier: 0 }))
			const edges = nodes.flatMap((_, i) => (i ? Array.from({ length: 1 + below(2) }, () => ({ from: Math.max(0, i - 1 - below(30)), to: i, label: below(2) ? "yes" : "" })) : []))
			const model = { graphs: new Map([["", { known: true, nodes, edges, groups: [], total: n }]]), insides: new Map(), status: () => "idle" }
			const open = new Set(), show = () => sceneOf(model, "", { open, fold: [], failed: "", by: "" })
			for (let k = 0; k < 3; k++) {
				const scene = show(), { items, lines } = pictureOf(scene, place(treeOf(scene, true))), box = new Map()
				for (const i of items) if (!i.open) for (const m of i.members ?? [i.path]) box.set(m, i)
				const byPath = new Map(items.map(i => [i.path, i])), drawn = new Set()
				for (const l of lines) {
					const from = byPath.get(l.from), to = byPath.get(l.to), [x, y] = l.points
					assert(!from.open && !to.open, `seed ${seed}: a line to a frame`)
					assert(Math.abs(x - from.x - from.w) + Math.abs(y - from.y - from.h / 2) + Math.abs(l.points.at(-2) - to.x) + Math.abs(l.points.at(-1) - to.y - to.h / 2) < 1e-6, `seed ${seed}: ends beside its boxes`)
					assert(!drawn.has(l.from + "\r" + l.to), `seed ${seed}: twice`)
					drawn.add(l.from + "\r" + l.to)
				}
				const want = new Set(edges.map(e => [box.get(nodes[e.from].id).path, box.get(nodes[e.to].id).path]).filter(([a, b]) => a !== b).map(p => p.join("\r")))
				assert.deepEqual([...drawn].sort(), [...want].sort(), `seed ${seed}`)
				const folded = items.filter(i => i.members && !i.open)
				if (!folded.length) break
				open.add(folded[below(folded.length)].path)
			}
		}
	},

	async "a neighbourhood has what is within some steps of a node, against the edges and along them"() {
		for (const { n, edges, below, seed } of graphs(200)) {
			const graph = { known: true, nodes: Array.from({ length: n }, (_, i) => ({ id: `n${i}`, type: "step", tier: 0 })), edges: edges.map(([from, to]) => ({ from, to })), groups: [], total: n }
			const model = { graphs: new Map([["", graph]]), insides: new Map(), status: () => "idle" }
			const own = below(n), up = [0, 1, 2, Infinity][below(4)], down = [0, 1, 2, Infinity][below(4)]
			const distance = (from, next) => { // the distance of each node from the node `from`
				const list = Array(n).fill(Infinity)
				list[from] = 0
				for (let k = 0; k < n; k++) for (const e of edges) list[e[1 - next]] = Math.min(list[e[1 - next]], list[e[next]] + 1)
				return list
			}
			const before = distance(own, 1), after = distance(own, 0)
			const { cells } = sceneOf(model, "", { open: new Set(), fold: [], failed: "", by: "none", around: { path: `n${own}`, up, down } })
			assert.deepEqual(cells.map(c => c.path).sort(), graph.nodes.map(x => x.id).filter((_, i) => (before[i] < Infinity && before[i] <= up) || (after[i] < Infinity && after[i] <= down)).sort(), `seed ${seed}`)
		}
	},

	async "a picture is divided over pages so that each box is whole on one of them, and files have a size that browsers can hold"() {
		for (const { below, seed } of graphs(100)) {
			const w = 1 + below(30_000), h = 1 + below(seed % 2 ? 400 : 300_000), box = { w: 168, h: 62 }, pages = pagesOf({ w, h }, box)
			assert(pages.length <= 300, `seed ${seed}: ${pages.length} pages`)
			for (const p of pages) assert(Math.abs(p.w / p.h - pages[0].w / pages[0].h) < 1e-9)
			for (let i = 0; i < 20; i++) {
				const x = below(Math.max(1, w - box.w)), y = below(Math.max(1, h - box.h))
				assert(pages.some(p => x >= p.x && y >= p.y && x + box.w <= p.x + p.w && y + box.h <= p.y + p.h), `seed ${seed}: ${x} ${y} of ${w} ${h}`)
			}
			const scale = pngScale({ w, h })
			assert(scale <= 2 && (w + 40) * scale <= 8192.5 && (h + 40) * scale <= 8192.5 && (w + 40) * (h + 40) * scale * scale <= 32.1e6)
		}
		assert.equal(pagesOf({ w: 700, h: 400 }, { w: 168, h: 38 }).length, 1)
		assert(pagesOf({ w: 3000, h: 800 }, { w: 168, h: 38 })[0].w <= 960 / 0.82 + 1e-6, "names have 8 points while there are few pages")
		assert.equal(escaped(`<a b="&">\ud800\uffff👩`), "&lt;a b=&quot;&amp;&quot;&gt;\ufffd\ufffd👩")
	},

	async "a search finds ids, labels and paths in any case, the closest first"() {
		const node = (id, label) => ({ id, label, type: "step", tier: 0 }), graph = (inside, ...nodes) => [inside, { inside, known: true, nodes, edges: [], groups: [], total: nodes.length }]
		const graphs = new Map([graph("", node("load_10"), node("preload_1"), node("load_1"), node("x", "Load_1 again")), graph("sub", node("load_1"))])
		const find = text => matching(graphs, text)
		assert.deepEqual(find("LOAD_1").list.map(m => m.path), ["load_1", "sub/load_1", "load_10", "x", "preload_1"])
		assert.deepEqual(find("sub/").list, [{ path: "sub/load_1", label: "load_1" }])
		assert.deepEqual(find("again").list, [{ path: "x", label: "Load_1 again" }])
		assert.deepEqual(find("none"), { list: [], total: 0 })
		const all = matching(new Map([graph("", ...Array.from({ length: 20_000 }, (_, i) => node(`n${i}`)))]), "n")
		assert.deepEqual([all.list.length, all.total], [50, 20_000])
	},

	async "texts of edges are on their own edge, near the source, and do not overlap"() {
		for (const { n, edges, below, seed } of graphs(200)) {
			const boxes = Array.from({ length: n }, () => ({ w: 168, h: 38 })), { lines } = layout({ boxes, edges, all: true })
			const list = lines.map(l => ({ points: l.points, text: below(2) ? ["yes", "no", "ask again"][below(3)] : "" })), places = placesOf(list)
			list.forEach(({ points, text }, i) => {
				assert.equal(!!places[i], !!text)
				if (!text) return
				const { x, y, w } = places[i], gaps = Array.from({ length: 101 }, (_, k) => onCurve(points, k / 100)).map(p => Math.hypot(p.x - x, p.y - y))
				assert(Math.min(...gaps) < 1, `seed ${seed}: on its curve`)
				assert(w <= widest && x - w / 2 >= points[0] && x + w / 2 <= points[2], `seed ${seed}: between the boxes`)
			})
		}
		const fan = [-60, -20, 20, 60].map(y => ({ points: [0, 0, 64, y], text: "yes" })), places = placesOf(fan)
		places.forEach((a, i) => places.slice(0, i).forEach(b => assert(Math.abs(a.x - b.x) >= a.w || Math.abs(a.y - b.y) >= 11, JSON.stringify([a, b]))))
		const met = placesOf([-26, 26].map(y => ({ points: [0, y, 64, 0], text: "yes" })))
		met.forEach((p, i) => assert(Math.abs(p.y - [-26, 26][i]) < 13, "nearer to its source than to where the edges meet"))
	},

	async "folded groups make no cycle and lose no node"() {
		for (const { n, edges, below, seed } of graphs(400)) {
			const groups = Array.from({ length: n }, () => ["", "a", "b"][below(3)])
			const graph = { known: true, nodes: groups.map((g, i) => ({ id: `n${i}`, type: "step", tier: 0, groups: g ? [g] : undefined })), edges: edges.map(([from, to]) => ({ from, to })), groups: ["a", "b"], total: n }
			const model = { graphs: new Map([["", graph]]), insides: new Map(), status: () => "idle" }
			const scene = sceneOf(model, "", { open: new Set(), fold: ["a", "b"], failed: "", by: "none" })
			assert(acyclic(scene.cells.length, scene.links.map(l => [l.from, l.to])), `seed ${seed}`)
			assert.deepEqual(scene.cells.flatMap(c => c.members ?? [c.path]).sort(), graph.nodes.map(x => x.id).sort())
			for (const cell of scene.cells) if (cell.members) assert.equal(new Set(cell.members.map(m => groups[m.slice(1)])).size, 1)
			if (!edges.some(([from, to]) => groups[from] !== groups[to])) for (const g of ["a", "b"]) assert(scene.cells.filter(c => c.members && c.group === g).length <= 1) // one box is enough if no edge leads to another group
			assert.equal(treeOf(scene, true).task.edges.length, scene.links.length)
			assert.equal(pictureOf(scene, { nodes: scene.cells.map((_, i) => ({ path: [i], x: 0, y: 0, w: 1, h: 1 })), lines: [], w: 1, h: 1, ms: 0 }).items.length, scene.cells.length)
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

	async "a list renders a row only if it shows something else, and a few times a second at most"() {
		const rows = new Rows(), first = Array.from({ length: 50 }, (_, i) => ({ id: `run-${i}`, status: "running", counts: { completed: 0 }, first: 1, last: 1, error: `error ${i}` }))
		rows.read(first)
		const renders = first.map(() => 0), last = { ...first[7], error: undefined }, pause = ms => new Promise(r => setTimeout(r, ms))
		first.forEach((r, i) => effect(() => { rows.row(r.id).value && renders[i]++ }))
		let orders = 0
		effect(() => { rows.ids.value && orders++ })
		for (let i = 0; i < 30; i++, await pause(20)) rows.apply([{ ...last, last: i + 2 }, { ...last, id: "unknown" }]) // only the numbers of events change
		await pause(400)
		assert.deepEqual([renders.reduce((a, b) => a + b), orders], [50, 1])
		const begun = Date.now()
		for (let i = 1; i <= 30; i++, await pause(20)) rows.apply([{ ...last, counts: { completed: i } }])
		await pause(400)
		const most = (Date.now() - begun) / 300 + 1
		assert(renders[7] >= 2 && renders[7] - 1 <= most, `${renders[7]} renders`)
		assert.equal(renders.reduce((a, b) => a + b), 49 + renders[7])
		assert.deepEqual([rows.row("run-7").value.counts, rows.row("run-7").value.error], [{ completed: 30 }, "error 7"])
		rows.read([...first.filter((_, i) => i !== 7)]) // the same list, without one run
		assert.equal(renders.reduce((a, b) => a + b), 49 + renders[7])
		assert.equal(orders, 2)
		rows.stop()
	},
}
