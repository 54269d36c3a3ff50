import type { Graph } from "./api"
import type { Item, Line, Picture } from "./draw"
import { mostBoxes, partition, type By } from "./cluster"
import { parts } from "./fold"
import { layersOf } from "./layout"
import { placesOf } from "./labels"
import { isInside, prefixOf } from "./paths"
import type { Drawn, Tree } from "./place"
import { visible } from "./visible"

// The content of a graph's picture, as pure functions: a scene is made from the graphs, laid out, and turned into a picture.

// Choice says which part of the graph is shown, and how. stopped has the words for the name of the box for the stopped nodes: with the nodes that
// stopped them, and without.
export interface Choice { open: Set<string>; fold: string[]; failed: string; by: By | "" | "none"; stopped?: { by: string; alone: string }; around?: Around }

// Around is the neighbourhood of a node: its predecessors up to some levels up, and its successors up to some levels down.
export interface Around { path: string; up: number; down: number }

// Known is what is known about a run: the graphs by their composites, the composites that have begun, and the statuses by path.
export interface Known { graphs: { get(inside: string): Graph | undefined }; insides: { has(path: string): boolean }; status(path: string): string }

// Cell is a box: a node, or a part of a folded group.
interface Cell { path: string; label: string; type: string; group: string; composite: boolean; members?: string[]; inside?: Scene }
interface Link { from: number; to: number; label: string; on: string; data: boolean; parts?: Part[] }
// Part is a link between two nodes. A link from or to an unfolded cluster consists of Parts.
interface Part { from: string; to: string; label: string; on: string; data: boolean }
export interface Scene { cells: Cell[]; links: Link[] }

// sceneOf returns the graph in a composite; undefined while it is unknown.
export function sceneOf(model: Known, inside: string, choice: Choice, start = inside): Scene | undefined {
	const graph = model.graphs.get(inside)
	if (!graph) return undefined
	const prefix = prefixOf(graph)
	const keep = choice.around ? neighbourhood(graph, choice.around, inside === start) : choice.failed ? failedPart(model, inside) : undefined
	const scene: Scene = { cells: [], links: [] }
	const at = new Map<number, number>()
	graph.nodes.forEach((n, i) => {
		const path = prefix + n.id
		if (keep && !keep.has(path)) return
		at.set(i, scene.cells.length)
		const composite = !!n.composite || model.insides.has(path)
		const child = composite && choice.open.has(path) ? sceneOf(model, path, choice, start) : undefined
		scene.cells.push({ path, label: visible(n.label || n.id, 80), type: n.type, group: n.groups?.[0] ?? "", composite, inside: child?.cells.length ? child : undefined })
	})
	for (const e of graph.edges) {
		const from = at.get(e.from), to = at.get(e.to)
		if (from !== undefined && to !== undefined) scene.links.push({ from, to, label: visible(e.label ?? "", 80), on: e.on ?? "", data: !!e.data })
	}
	const shown = choice.failed === "1" ? foldCells(scene, stopped, stoppedBy(graph.nodes.filter(n => model.status(prefix + n.id) === "failed"), choice), c => stops.has(model.status(c.path))) : scene
	return clustered(choice.fold.reduce((s, group) => foldCells(s, group, group, c => c.group === group), shown), choice)
}

// stoppedBy names the box for the stopped nodes after the nodes whose failures stopped them.
function stoppedBy(roots: Graph["nodes"], { stopped: words = { by: "", alone: "" } }: Choice): string {
	const [first, ...more] = roots.map(n => n.label || n.id)
	return first === undefined ? words.alone : `${words.by} ${first}${more.length ? ` +${more.length}` : ""}`
}

// clustered replaces the cells of a large scene by clusters. An unfolded cluster contains the scene of its members, which is divided into clusters if
// there are many members.
function clustered(scene: Scene, choice: Choice): Scene {
	const { cells, links } = scene
	if (choice.by === "none" || cells.length <= mostBoxes) return scene
	const before: number[][] = cells.map(() => [])
	for (const l of links) before[l.to].push(l.from)
	const layer = layersOf(cells.length, links.map(l => [l.from, l.to]))
	const division = partition(cells.map(c => ({ name: c.label, group: c.group })), before, layer, choice.by) ?? partition(cells.map(c => ({ name: c.label, group: c.group })), before, layer, "")
	if (!division) return scene
	const own: number[][] = division.names.map(() => [])
	division.of.forEach((k, i) => own[k].push(i))
	const to: Scene = { cells: [], links: [] }
	const places = own.map((list, k) => {
		if (list.length === 1) return to.cells.push(cells[list[0]]) - 1
		const path = `cluster\n${division.names[k]}\n${list.length}\n${cells[list[0]].path}`
		const inside = choice.open.has(path) ? clustered(part(scene, list), choice) : undefined
		return to.cells.push({ path, label: division.names[k], type: "cluster", group: "", composite: false, members: list.flatMap(i => cells[i].members ?? [cells[i].path]), inside }) - 1
	})
	return joined(to, links, division.of.map(k => places[k]), i => cells[i].members?.[0] ?? cells[i].path)
}

// part returns some cells of a scene, with the links between them.
function part(scene: Scene, list: number[]): Scene {
	const at = new Map(list.map((i, k) => [i, k]))
	const links = scene.links.flatMap(l => {
		const from = at.get(l.from), to = at.get(l.to)
		return from === undefined || to === undefined ? [] : [{ ...l, from, to }]
	})
	return { cells: list.map(i => scene.cells[i]), links }
}

// stopped is the name of the group of nodes that were stopped because other nodes failed. It is empty, so it differs from the name of every group of
// a graph.
export const stopped = ""
const stops = new Set(["aborted", "cancelled"])
export const notable = new Set(["failed", "retrying", ...stops]) // the statuses of the nodes from which failedPart begins

// failedPart returns the paths of the nodes that failed, of their predecessors, and of the nodes that were stopped. In a composite without such nodes
// it returns undefined, which means all nodes.
function failedPart(model: Known, inside: string): Set<string> | undefined {
	const graph = model.graphs.get(inside)!, keep = new Set<string>()
	const path = (i: number) => prefixOf(graph) + graph.nodes[i].id
	graph.nodes.forEach((_, i) => notable.has(model.status(path(i))) && keep.add(path(i)))
	if (!keep.size && inside) return undefined
	const roots = new Set([...keep].filter(p => !stops.has(model.status(p))))
	for (const e of graph.edges) if (roots.has(path(e.to))) keep.add(path(e.from))
	return keep
}

// neighbourhood returns the paths of a graph's nodes that are around a node, or around the composite that contains it. If the graph contains neither,
// neighbourhood returns an empty set for the outermost graph, and undefined for the graph of a composite, which is then shown as a whole.
function neighbourhood(graph: Graph, { path, up, down }: Around, outermost: boolean): Set<string> | undefined {
	const paths = graph.nodes.map(n => prefixOf(graph) + n.id), own = paths.indexOf(path)
	if (own < 0) {
		const around = paths.filter(p => isInside(path, p))
		return around.length || outermost ? new Set(around) : undefined
	}
	const keep = new Set([path])
	for (const [levels, from, to] of [[up, "to", "from"], [down, "from", "to"]] as const) {
		const next: number[][] = paths.map(() => [])
		for (const e of graph.edges) next[e[from]].push(e[to])
		const seen = new Set([own])
		let last = [own]
		for (let k = 0; k < levels && last.length; k++) last = [...new Set(last.flatMap(i => next[i]))].filter(i => !seen.has(i) && seen.add(i))
		for (const i of seen) keep.add(paths[i])
	}
	return keep
}

// foldCells replaces the nodes of a group by one cell, or by several if one cell would make a cycle.
function foldCells(scene: Scene, group: string, label: string, member: (cell: Cell) => boolean): Scene {
	const { cells, links } = scene
	const part = parts(cells.length, links.map(l => [l.from, l.to]), cells.map(c => !c.members && member(c)))
	const sizes = new Map<number, number>()
	for (const p of part) sizes.set(p, (sizes.get(p) ?? 0) + 1)
	const folded: Scene = { cells: [], links: [] }
	const cellOf = new Map<number, number>() // by part
	const at = cells.map((cell, i) => {
		const p = part[i]
		if (p < 0 || sizes.get(p) === 1) return folded.cells.push(cell) - 1
		let k = cellOf.get(p)
		if (k === undefined) {
			k = folded.cells.push({ path: `group\n${group}\n${cell.path}`, label: visible(label, 80), type: "group", group, composite: false, members: [] }) - 1
			cellOf.set(p, k)
		}
		folded.cells[k].members!.push(cell.path)
		return k
	})
	return joined(folded, links, at)
}

// joined adds links to a scene. at maps each end of a link to its cell. Several links between the same two cells become one link. If one of the cells
// is an unfolded cluster, the joined link contains the original links as its parts. pathOf returns the path of the node at an end.
function joined(scene: Scene, links: Link[], at: number[], pathOf = (_: number) => ""): Scene {
	const known = new Map<number, Link>(), unfolded = scene.cells.map(c => c.type === "cluster" && !!c.inside)
	for (const link of links) {
		const from = at[link.from], to = at[link.to]
		if (from === to) continue
		const { label, on, data } = link, part = unfolded[from] || unfolded[to] ? { from: pathOf(link.from), to: pathOf(link.to), label, on, data } : undefined
		const key = from * at.length + to, other = known.get(key)
		if (!other) {
			const own = { from, to, label, on, data, parts: part && [part] }
			known.set(key, own)
			scene.links.push(own)
			continue
		}
		if (part) other.parts!.push(part)
		merge(other, link)
	}
	return scene
}

const plain = 38, counted = 62 // the heights of boxes, without and with a bar and counts
const narrow = 168, wide = 300

// sizeOf returns the size of a box. In a graph with few boxes there is room for a long name.
function sizeOf({ label, composite, members }: Cell, roomy: boolean) {
	return { w: roomy ? Math.min(wide, Math.max(narrow, 50 + 7 * label.length)) : narrow, h: composite || members ? counted : plain }
}

export function treeOf(scene: Scene, all: boolean): Tree {
	const inside: Record<number, Tree> = {}
	scene.cells.forEach((cell, i) => { if (cell.inside) inside[i] = treeOf(cell.inside, all) })
	return { task: { boxes: scene.cells.map(c => sizeOf(c, scene.cells.length <= mostBoxes)), edges: scene.links.map(l => [l.from, l.to]), all }, inside }
}

// pictureOf adds names to the boxes and lines that the worker has placed.
export function pictureOf(scene: Scene, drawn: Drawn): Omit<Picture, "of" | "n"> {
	const at = (path: number[]) => path.reduce((s, i) => s.cells[i].inside!, scene)
	const items = drawn.nodes.map(({ path, x, y, w, h }): Item => {
		const { inside, ...cell } = at(path.slice(0, -1)).cells[path.at(-1)!]
		return { ...cell, x, y, w, h, open: !!inside, depth: path.length }
	})
	const boxOf = new Map<string, Item>() // by the paths of nodes
	for (const item of items) for (const path of item.members ?? [item.path]) if (!item.members || !item.open) boxOf.set(path, item)
	const routes = drawn.lines.flatMap(({ path, edge, points }): Route[] => {
		const { cells, links } = at(path), { parts, from, to, label, on, data } = links[edge]
		return parts ? between(parts, points, boxOf) : [{ from: cells[from].path, to: cells[to].path, label, on, data, points }]
	})
	const places = placesOf(routes.map(({ label, on, points }) => ({ points, text: label || on })))
	const lines = routes.map((route, i) => {
		const xs = route.points.filter((_, k) => k % 2 === 0), ys = route.points.filter((_, k) => k % 2)
		return { ...route, text: places[i], box: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)] as [number, number, number, number] }
	})
	return { items, lines, w: drawn.w, h: drawn.h, ms: drawn.ms }
}

type Route = Pick<Line, "from" | "to" | "label" | "on" | "data" | "points">

// between returns one line for each link that a line between clusters stands for. Each of these lines leads from box to box, through the points
// at which the line between the clusters enters and leaves frames.
function between(parts: Part[], points: number[], boxOf: Map<string, Item>): Route[] {
	const known = new Map<string, Route>()
	for (const part of parts) {
		const from = boxOf.get(part.from)!, to = boxOf.get(part.to)!, key = `${from.path}\n${to.path}`, other = known.get(key)
		if (other) {
			merge(other, part)
			continue
		}
		const start = [from.x + from.w, from.y + from.h / 2], end = [to.x, to.y + to.h / 2]
		known.set(key, { ...part, from: from.path, to: to.path, points: [...(start[0] < points[0] ? start : []), ...points, ...(end[0] > points.at(-2)! ? end : [])] })
	}
	return [...known.values()]
}

// merge merges a link into another link between the same boxes. The result has only the properties that both links have.
function merge(to: Pick<Link, "label" | "on" | "data">, link: Pick<Link, "label" | "on" | "data">): void {
	to.data &&= link.data
	if (to.label !== link.label) to.label = ""
	if (to.on !== link.on) to.on = ""
}
