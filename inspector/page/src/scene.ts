import { prefixOf } from "./api"
import type { Item, Picture } from "./draw"
import { parts } from "./fold"
import type { Model } from "./model"
import { together, type Counts } from "./status"
import { visible } from "./visible"
import type { Drawn, Tree } from "./worker"

// The content of a graph's picture: a scene is made from the model, laid out by the worker, and turned into a
// picture.

export interface Choice { open: Set<string>; fold: string[]; failed: boolean }

// Cell is a box: a node, or the members of a folded group's part.
interface Cell { path: string; label: string; type: string; group: string; composite: boolean; members?: string[]; inside?: Scene }
interface Link { from: number; to: number; label: string; on: string; data: boolean }
export interface Scene { cells: Cell[]; links: Link[] }

// sceneOf returns the graph in a composite; undefined while it is unknown.
export function sceneOf(model: Model, inside: string, choice: Choice): Scene | undefined {
	const graph = model.graphs.get(inside)
	if (!graph) return undefined
	const prefix = prefixOf(graph)
	const keep = choice.failed ? failedPart(model, inside) : undefined
	const scene: Scene = { cells: [], links: [] }
	const at = new Map<number, number>()
	graph.nodes.forEach((n, i) => {
		const path = prefix + n.id
		if (keep && !keep.has(path)) return
		at.set(i, scene.cells.length)
		const composite = !!n.composite || model.insides.has(path)
		const child = composite && choice.open.has(path) ? sceneOf(model, path, choice) : undefined
		scene.cells.push({ path, label: visible(n.label || n.id, 80), type: n.type, group: n.groups?.[0] ?? "", composite, inside: child?.cells.length ? child : undefined })
	})
	for (const e of graph.edges) {
		const from = at.get(e.from), to = at.get(e.to)
		if (from !== undefined && to !== undefined) scene.links.push({ from, to, label: visible(e.label ?? "", 80), on: e.on ?? "", data: !!e.data })
	}
	return choice.fold.reduce(foldGroup, scene)
}

// failedPart returns the paths of the nodes that failed or were stopped, and of their predecessors. In a composite without such nodes
// it returns undefined, which means all nodes.
function failedPart(model: Model, inside: string): Set<string> | undefined {
	const graph = model.graphs.get(inside)!, keep = new Set<string>()
	const path = (i: number) => prefixOf(graph) + graph.nodes[i].id
	const bad = new Set(["failed", "aborted", "retrying", "cancelled"])
	graph.nodes.forEach((_, i) => bad.has(model.status(path(i))) && keep.add(path(i)))
	if (!keep.size && inside) return undefined
	const core = new Set(keep)
	for (const e of graph.edges) if (core.has(path(e.to))) keep.add(path(e.from))
	return keep
}

// foldGroup replaces the nodes of a group by one cell, or by several where one would be in a cycle.
function foldGroup(scene: Scene, group: string): Scene {
	const { cells, links } = scene
	const part = parts(cells.length, links.map(l => [l.from, l.to]), cells.map(c => c.group === group && !c.members))
	const sizes = new Map<number, number>()
	for (const p of part) sizes.set(p, (sizes.get(p) ?? 0) + 1)
	const folded: Scene = { cells: [], links: [] }
	const cellOf = new Map<number, number>() // by part
	const at = cells.map((cell, i) => {
		const p = part[i]
		if (p < 0 || sizes.get(p) === 1) return folded.cells.push(cell) - 1
		let k = cellOf.get(p)
		if (k === undefined) {
			k = folded.cells.push({ path: `group\n${group}\n${cell.path}`, label: visible(group, 80), type: "group", group, composite: false, members: [] }) - 1
			cellOf.set(p, k)
		}
		folded.cells[k].members!.push(cell.path)
		return k
	})
	const known = new Map<string, Link>()
	for (const link of links) {
		const from = at[link.from], to = at[link.to]
		if (from === to) continue
		const other = known.get(`${from} ${to}`)
		if (!other) {
			const own = { ...link, from, to }
			known.set(`${from} ${to}`, own)
			folded.links.push(own)
			continue
		}
		other.data &&= link.data
		if (other.label !== link.label) other.label = ""
		if (other.on !== link.on) other.on = ""
	}
	return folded
}

const plain = { w: 168, h: 38 }
const counted = { w: 168, h: 62 } // space for a bar and counts

export function treeOf(scene: Scene, all: boolean): Tree {
	const inside: Record<number, Tree> = {}
	scene.cells.forEach((cell, i) => { if (cell.inside) inside[i] = treeOf(cell.inside, all) })
	return { task: { boxes: scene.cells.map(c => (c.composite || c.members ? counted : plain)), edges: scene.links.map(l => [l.from, l.to]), all }, inside }
}

// pictureOf adds names to the boxes and lines that the worker has placed.
export function pictureOf(scene: Scene, drawn: Drawn, of: string): Picture {
	const at = (path: number[]) => path.reduce((s, i) => s.cells[i].inside!, scene)
	const items = drawn.nodes.map(({ path, x, y, w, h }): Item => {
		const { inside, ...cell } = at(path.slice(0, -1)).cells[path.at(-1)!]
		return { ...cell, x, y, w, h, open: !!inside, depth: path.length }
	})
	const lines = drawn.lines.map(({ path, edge, points }) => {
		const { cells, links } = at(path), { from, to, ...link } = links[edge]
		const xs = points.filter((_, k) => k % 2 === 0), ys = points.filter((_, k) => k % 2)
		return { ...link, from: cells[from].path, to: cells[to].path, points, box: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)] as [number, number, number, number] }
	})
	return { of, items, lines, w: drawn.w, h: drawn.h, ms: drawn.ms }
}

// Facts is what a picture shows about its boxes.
export class Facts {
	private readonly groups = new Map<string, Counts>()
	private version = -1

	constructor(private readonly model: Model) {}

	status(item: Item): string {
		return item.members ? together(this.counts(item)!) : this.model.status(item.path)
	}

	// counts are the counts of the nodes in a composite or a folded group; undefined while there are none.
	counts(item: Item): Counts | undefined {
		if (!item.members) return this.model.insides.get(item.path)?.counts
		if (this.version !== this.model.version.peek()) {
			this.version = this.model.version.peek()
			this.groups.clear()
		}
		let counts = this.groups.get(item.path)
		if (!counts) {
			counts = {}
			for (const path of item.members) counts[this.model.status(path)] = (counts[this.model.status(path)] ?? 0) + 1
			this.groups.set(item.path, counts)
		}
		return counts
	}

	iteration(item: Item): number {
		return this.model.insides.get(item.path)?.iteration ?? 0
	}

	attempts(item: Item): number {
		return this.model.attempts.get(item.path) ?? 1
	}
}
