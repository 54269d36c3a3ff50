import { layout, type Task } from "./layout"

// The layout of a graph with unfolded composites: the graph in a composite is laid out first, and determines the composite's
// size.
export interface Tree { task: Task; inside: Record<number, Tree> }
export interface Placed { path: number[]; x: number; y: number; w: number; h: number } // path: the index in each graph, from the outermost
export interface Drawn { nodes: Placed[]; lines: { path: number[]; edge: number; points: number[] }[]; w: number; h: number; ms: number }

const padding = 18
const caption = 46 // the name and the counts, and a gap below them

export function place(tree: Tree): Drawn {
	const inner = new Map<number, Drawn>()
	const boxes = tree.task.boxes.map((box, i) => {
		if (!tree.inside[i]) return box
		const drawn = place(tree.inside[i])
		inner.set(i, drawn)
		return { w: Math.max(box.w, drawn.w + 2 * padding), h: drawn.h + caption + padding }
	})
	const flat = layout({ ...tree.task, boxes })
	const drawn: Drawn = { nodes: [], lines: [], w: flat.w, h: flat.h, ms: 0 }
	boxes.forEach((box, i) => drawn.nodes.push({ path: [i], x: flat.x[i], y: flat.y[i], ...box }))
	for (const line of flat.lines) drawn.lines.push({ path: [], ...line })
	for (const [i, child] of inner) {
		const dx = flat.x[i] + padding, dy = flat.y[i] + caption
		for (const node of child.nodes) drawn.nodes.push({ ...node, path: [i, ...node.path], x: node.x + dx, y: node.y + dy })
		for (const line of child.lines) drawn.lines.push({ ...line, path: [i, ...line.path], points: line.points.map((p, k) => p + (k % 2 ? dy : dx)) })
	}
	return drawn
}
