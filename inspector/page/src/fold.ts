import { layersOf } from "./layout"

// parts divides the members of a group so that each part can be drawn as one box without a cycle: a member is in a later part than
// another member if a path from that member leads to it through a node outside the group. It returns the part of each member, from 0,
// and -1 for all other nodes.
export function parts(n: number, edges: [number, number][], member: boolean[]): number[] {
	const layer = layersOf(n, edges)
	const before: number[][] = Array.from({ length: n }, () => [])
	for (const [from, to] of edges) before[to].push(from)
	const reached = new Array<number>(n).fill(-1) // for a member, its part; for another node, the last part from which a path leads to it
	for (const v of Array.from(layer.keys()).sort((a, b) => layer[a] - layer[b])) {
		for (const u of before[v]) reached[v] = Math.max(reached[v], member[v] && !member[u] ? reached[u] + 1 : reached[u])
		if (member[v]) reached[v] = Math.max(reached[v], 0)
	}
	return reached.map((part, v) => (member[v] ? part : -1))
}
