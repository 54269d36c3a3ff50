// A graph with too many boxes to read their names is shown as clusters: by group, by common beginnings of names, or by layer.

export type By = "group" | "prefix" | "layer"
export interface Member { name: string; group: string }
// Partition divides members into clusters: of contains the number of each member's cluster, and names the names of the clusters.
export interface Partition { of: number[]; names: string[] }

export const mostBoxes = 48 // in a window of usual size, the names of so many boxes are readable
const fewest = 3
const ranges = 16 // the number of ranges of layers, or of members without edges

const tokens = (name: string) => name.match(/\d+|[^\d\-_./:\s]+|[-_./:\s]+/g) ?? []

// divided makes clusters of members that have the same class and the same level. A member is on a higher level than its predecessors of
// other classes. So an edge between two clusters leads to a higher level, and the clusters form no cycle. order lists the members in
// topological order.
export function divided(classes: string[], before: number[][], order: number[]): Partition {
	const level = new Int32Array(classes.length)
	for (const v of order) for (const u of before[v]) level[v] = Math.max(level[v], level[u] + (classes[u] === classes[v] ? 0 : 1))
	const known = new Map<string, number>(), names: string[] = []
	const of = classes.map((name, v) => {
		const key = `${level[v]} ${name}`
		let k = known.get(key)
		if (k === undefined) {
			k = names.push(name) - 1
			known.set(key, k)
		}
		return k
	})
	return { of, names }
}

// partition divides members into clusters of the given kind; for "" it chooses the kind. It returns undefined if there would be too few
// or too many clusters.
export function partition(members: Member[], before: number[][], layer: Int32Array, by: By | ""): Partition | undefined {
	const order = Array.from(layer.keys()).sort((a, b) => layer[a] - layer[b])
	const fits = (p: Partition) => p.names.length >= fewest && p.names.length <= mostBoxes
	const list = by ? [by] : ["group", "prefix", "layer"] as const
	for (const kind of list) {
		if (kind === "group" && members.some(m => m.group)) {
			const p = divided(members.map(m => m.group || "–"), before, order)
			if (fits(p)) return p
		}
		if (kind === "prefix") {
			const names = members.map(m => tokens(m.name))
			for (let n = 1; n <= 8; n++) {
				const p = divided(names.map(t => t.slice(0, n).join("") + (t.length > n ? "…" : "")), before, order)
				if (fits(p)) return p
				if (p.names.length > mostBoxes) break
			}
		}
		if (kind === "layer") return byLayer(members, layer)
	}
	return undefined
}

// byLayer makes clusters of neighbouring layers. If there is only one layer, it makes clusters of consecutive members.
function byLayer(members: Member[], layer: Int32Array): Partition {
	const layers = layer.reduce((most, l) => Math.max(most, l), 0) + 1
	const at = layers > 1 ? Array.from(layer) : members.map((_, i) => i), size = Math.ceil((layers > 1 ? layers : members.length) / ranges)
	const of = at.map(i => Math.floor(i / size)), names: string[] = []
	members.forEach((m, i) => {
		if (names[of[i]] !== undefined) return
		const first = of[i] * size, last = Math.min(first + size, layers > 1 ? layers : members.length) - 1
		names[of[i]] = layers > 1 ? (first === last ? `layer ${first + 1}` : `layers ${first + 1}–${last + 1}`) : `${m.name} – ${members[last].name}`
	})
	return { of, names }
}
