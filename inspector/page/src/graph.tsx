import { useSignal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import { drawGraph, theme, type Camera, type Item, type Picture, type Theme } from "./draw"
import type { Model } from "./model"
import { go, route } from "./route"
import { texts } from "./texts"
import { announced, Empty, typing } from "./ui"
import type { Drawn, Tree } from "./worker"

const box = { w: 168, h: 38 }

// toTree is the task of the layout: the graph, and the insides of the composites that are unfolded. keep limits it to some nodes.
function toTree(model: Model, inside: string, open: string[], all: boolean, keep?: Set<string>): { tree: Tree; index: number[][] } | undefined {
	const graph = model.graphs.get(inside)
	if (!graph) return undefined
	const prefix = graph.prefix ?? ""
	const shown: number[] = []
	graph.nodes.forEach((n, i) => (!keep || keep.has(prefix + n.id)) && shown.push(i))
	const at = new Map(shown.map((i, k) => [i, k]))
	const kept: number[] = [], edges: [number, number][] = []
	graph.edges.forEach((e, i) => {
		const from = at.get(e.from), to = at.get(e.to)
		if (from === undefined || to === undefined) return
		kept.push(i)
		edges.push([from, to])
	})
	const tree: Tree = { task: { boxes: shown.map(() => box), edges, all }, inside: {} }
	shown.forEach((i, k) => {
		const path = prefix + graph.nodes[i].id
		if (!graph.nodes[i].composite || !open.includes(path)) return
		const child = toTree(model, path, open, all)
		if (child && child.tree.task.boxes.length) tree.inside[k] = child.tree
	})
	return { tree, index: [shown, kept] }
}

// toPicture adds paths and labels to the boxes and lines that the worker has placed.
function toPicture(model: Model, inside: string, index: number[][], drawn: Drawn): Picture {
	const graphOf = (path: number[]): { graph: ReturnType<Model["graphs"]["get"]>; prefix: string } => {
		let graph = model.graphs.get(inside)
		let first = true
		for (const step of path) {
			if (!graph) break
			const n = graph.nodes[first ? index[0][step] : step]
			graph = model.graphs.get((graph.prefix ?? "") + n.id)
			first = false
		}
		return { graph, prefix: graph?.prefix ?? "" }
	}
	const picture: Picture = { items: [], lines: [], w: drawn.w, h: drawn.h }
	const opened = new Set<string>()
	for (const node of drawn.nodes) if (node.path.length > 1) opened.add(node.path.slice(0, -1).join())
	for (const node of drawn.nodes) {
		const { graph, prefix } = graphOf(node.path.slice(0, -1))
		const last = node.path.at(-1)!, n = graph?.nodes[node.path.length === 1 ? index[0][last] : last]
		if (!n) continue
		picture.items.push({
			path: prefix + n.id, label: n.label || n.id, type: n.type, x: node.x, y: node.y, w: node.w, h: node.h, composite: !!n.composite, open: opened.has(node.path.join()), depth: node.path.length,
		})
	}
	for (const line of drawn.lines) {
		const { graph, prefix } = graphOf(line.path)
		const e = graph?.edges[line.path.length ? line.edge : index[1][line.edge]]
		if (!graph || !e) continue
		let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity]
		line.points.forEach((p, k) => {
			if (k % 2) [y0, y1] = [Math.min(y0, p), Math.max(y1, p)]
			else [x0, x1] = [Math.min(x0, p), Math.max(x1, p)]
		})
		picture.lines.push({
			from: prefix + graph.nodes[e.from].id, to: prefix + graph.nodes[e.to].id, points: line.points, label: e.label ?? "", data: !!e.data, on: e.on ?? "", box: [x0, y0, x1, y1],
		})
	}
	return picture
}

// failedPart are the nodes that failed, what they stopped, and what led to them.
function failedPart(model: Model, inside: string): Set<string> {
	const graph = model.graphs.get(inside), keep = new Set<string>()
	if (!graph) return keep
	const path = (i: number) => (graph.prefix ?? "") + graph.nodes[i].id
	const bad = new Set(["failed", "aborted", "retrying", "cancelled"])
	graph.nodes.forEach((_, i) => bad.has(model.status(path(i))) && keep.add(path(i)))
	const core = new Set(keep)
	for (const e of graph.edges) if (core.has(path(e.to))) keep.add(path(e.from))
	return keep
}

export function GraphView({ model }: { model: Model }) {
	const canvas = useRef<HTMLCanvasElement>(null), mini = useRef<HTMLCanvasElement>(null)
	const picture = useSignal<Picture | undefined>(undefined)
	const all = useSignal(false), failedOnly = useSignal(false)
	const camera = useRef<Camera>({ x: 0, y: 0, zoom: 1 })
	const colours = useRef<Theme>(theme())
	const frame = useRef(0), fitted = useRef("")
	const worker = useMemo(() => new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), [])
	const inside = route.value.inside, open = route.value.open, selected = route.value.node

	const draw = () => {
		frame.current = 0
		const c = canvas.current, p = picture.peek()
		if (!c || !p) return
		const begun = performance.now(), ratio = devicePixelRatio || 1
		const w = c.clientWidth, h = c.clientHeight
		if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) {
			c.width = Math.round(w * ratio)
			c.height = Math.round(h * ratio)
		}
		const g = c.getContext("2d")!
		g.setTransform(ratio, 0, 0, ratio, 0, 0)
		drawGraph(g, w, h, p, camera.current, path => model.status(path), route.peek().node, colours.current)
		drawMini(mini.current, p, camera.current, w, h, path => model.status(path), colours.current)
		c.dataset.draw = (performance.now() - begun).toFixed(2)
		c.dataset.items = String(p.items.length)
		c.dataset.zoom = camera.current.zoom.toFixed(3)
		if (!c.dataset.first) c.dataset.first = performance.now().toFixed(0)
	}
	const redraw = () => { frame.current ||= requestAnimationFrame(draw) }

	const fit = () => {
		const c = canvas.current, p = picture.peek()
		if (!c || !p) return
		const zoom = Math.min(1.25, (c.clientWidth - 40) / Math.max(1, p.w), (c.clientHeight - 40) / Math.max(1, p.h))
		camera.current = { zoom, x: p.w / 2 - c.clientWidth / 2 / zoom, y: p.h / 2 - c.clientHeight / 2 / zoom }
		redraw()
	}
	const zoomBy = (factor: number, x?: number, y?: number) => {
		const c = canvas.current!, k = camera.current
		const at = { x: x ?? c.clientWidth / 2, y: y ?? c.clientHeight / 2 }
		const zoom = Math.min(4, Math.max(0.01, k.zoom * factor))
		camera.current = { zoom, x: k.x + at.x / k.zoom - at.x / zoom, y: k.y + at.y / k.zoom - at.y / zoom }
		redraw()
	}
	const show = (path: string) => {
		const item = picture.peek()?.items.find(i => i.path === path), c = canvas.current, k = camera.current
		if (!item || !c) return
		const x = (item.x - k.x) * k.zoom, y = (item.y - k.y) * k.zoom
		if (x < 0 || y < 0 || x + item.w * k.zoom > c.clientWidth || y + item.h * k.zoom > c.clientHeight) {
			k.zoom = Math.max(k.zoom, 0.6)
			camera.current = { zoom: k.zoom, x: item.x + item.w / 2 - c.clientWidth / 2 / k.zoom, y: item.y + item.h / 2 - c.clientHeight / 2 / k.zoom }
		}
		redraw()
	}

	useEffect(() => () => worker.terminate(), [])
	useEffect(() => model.want([inside, ...open]), [inside, open.join("\n")])

	// A new layout, whenever the graphs or what is shown of them have changed.
	const shape = `${model.structure.value}|${inside}|${open.join("|")}|${all.value}|${failedOnly.value}`
	useEffect(() => {
		const keep = failedOnly.value ? failedPart(model, inside) : undefined
		const task = toTree(model, inside, open, all.value, keep)
		if (!task) return
		const id = Math.random()
		const take = (e: MessageEvent<{ id: number; drawn: Drawn }>) => {
			if (e.data.id !== id) return
			picture.value = toPicture(model, inside, task.index, e.data.drawn)
			if (canvas.current) canvas.current.dataset.layout = e.data.drawn.ms.toFixed(1)
			const what = `${inside}|${failedOnly.value}`
			if (fitted.current !== what && picture.value.items.length) {
				fitted.current = what
				fit()
				if (selected) show(selected)
			}
			redraw()
		}
		worker.addEventListener("message", take)
		worker.postMessage({ id, tree: task.tree })
		return () => worker.removeEventListener("message", take)
	}, [shape])

	useEffect(redraw, [model.version.value])
	useEffect(() => {
		if (selected) {
			show(selected)
			announced.value = texts.nowIs(selected, model.status(selected))
		} else redraw()
	}, [selected])
	useEffect(() => {
		const scheme = matchMedia("(prefers-color-scheme: dark)")
		const recolour = () => { colours.current = theme(); redraw() }
		scheme.addEventListener("change", recolour)
		const size = new ResizeObserver(() => {
			if (fitted.current && !fittedOnce.current && canvas.current?.clientWidth) { fittedOnce.current = true; fit() }
			redraw()
		})
		size.observe(canvas.current!)
		return () => { scheme.removeEventListener("change", recolour); size.disconnect(); cancelAnimationFrame(frame.current) }
	}, [])
	const fittedOnce = useRef(false)

	const toggle = (path: string) => {
		const list = route.peek().open
		go({ open: list.includes(path) ? list.filter(p => p !== path && !p.startsWith(path)) : [...list, path] }, true)
	}
	const hit = (e: { offsetX: number; offsetY: number }): Item | undefined => {
		const k = camera.current, x = k.x + e.offsetX / k.zoom, y = k.y + e.offsetY / k.zoom
		return picture.peek()?.items.findLast(i => x >= i.x && x <= i.x + i.w && y >= i.y && y <= i.y + i.h)
	}

	useEffect(() => {
		const keys = (e: KeyboardEvent) => {
			if (typing() || e.ctrlKey || e.metaKey || e.altKey) return
			const p = picture.peek(), at = route.peek().node
			switch (e.key) {
				case "+": case "=": zoomBy(1.25); break
				case "-": zoomBy(0.8); break
				case "0": fit(); break
				case "u": if (p?.items.find(i => i.path === at)?.composite) toggle(at); break
				case "ArrowRight": case "ArrowLeft": case "ArrowUp": case "ArrowDown": {
					const next = p && neighbour(p, at, e.key)
					if (next) go({ node: next }, true)
					break
				}
				default: return
			}
			e.preventDefault()
		}
		addEventListener("keydown", keys)
		return () => removeEventListener("keydown", keys)
	}, [])

	const drag = useRef<{ x: number; y: number; moved: boolean } | undefined>(undefined)
	const graph = model.graphs.get(inside)
	const current = picture.value?.items.find(i => i.path === selected)
	return (
		<div class="graph">
			<div class="tools">
				{inside && <button onClick={() => go({ inside: "", node: "" })}>← {texts.wholeGraph}</button>}
				{inside && <span class="meta">{texts.inside} <bdi>{inside}</bdi></span>}
				<label class="check"><input type="checkbox" checked={failedOnly.value} onChange={e => (failedOnly.value = e.currentTarget.checked)} /> {texts.failedOnly}</label>
				<label class="check"><input type="checkbox" checked={all.value} onChange={e => (all.value = e.currentTarget.checked)} /> {texts.allEdges}</label>
				{current?.composite && <button onClick={() => toggle(selected)}>{current.open ? texts.fold : texts.unfold}</button>}
				{graph && graph.total > graph.nodes.length && <span class="meta">{texts.firstNodes(graph.nodes.length, graph.total)}</span>}
				<span class="spring" />
				<button aria-label={texts.zoomOut} onClick={() => zoomBy(0.8)}>−</button>
				<button onClick={fit}>{texts.fit}</button>
				<button aria-label={texts.zoomIn} onClick={() => zoomBy(1.25)}>+</button>
			</div>
			<div class="stage">
				<canvas
					ref={canvas} class="picture" tabIndex={0} role="img" aria-label={texts.graphLabel(picture.value?.items.length ?? 0)}
					onPointerDown={e => { drag.current = { x: e.clientX, y: e.clientY, moved: false }; e.currentTarget.setPointerCapture(e.pointerId) }}
					onPointerMove={e => {
						const d = drag.current
						if (!d) { e.currentTarget.style.cursor = hit(e) ? "pointer" : "grab"; return }
						const dx = e.clientX - d.x, dy = e.clientY - d.y
						if (!d.moved && Math.hypot(dx, dy) < 4) return
						drag.current = { x: e.clientX, y: e.clientY, moved: true }
						camera.current.x -= dx / camera.current.zoom
						camera.current.y -= dy / camera.current.zoom
						redraw()
					}}
					onPointerUp={e => {
						const moved = drag.current?.moved
						drag.current = undefined
						if (!moved) go({ node: hit(e)?.path ?? "" }, true)
					}}
					onDblClick={e => { const item = hit(e); if (item?.composite) toggle(item.path) }}
					onWheel={e => { e.preventDefault(); zoomBy(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e.offsetX, e.offsetY) }}
				/>
				<canvas
					ref={mini} class="minimap" width="320" height="200" role="img" aria-label={texts.minimap}
					onPointerDown={e => {
						const p = picture.peek(), c = canvas.current
						if (!p || !c) return
						const s = miniScale(p), k = camera.current
						k.x = e.offsetX / s - c.clientWidth / 2 / k.zoom
						k.y = e.offsetY / s - c.clientHeight / 2 / k.zoom
						redraw()
					}}
				/>
				{graph && !graph.known && <div class="over"><Empty title={texts.noGraph} /></div>}
				{failedOnly.value && picture.value && !picture.value.items.length && <div class="over"><Empty title={texts.noFailed} /></div>}
			</div>
		</div>
	)
}

const miniScale = (p: Picture) => Math.min(160 / Math.max(1, p.w), 100 / Math.max(1, p.h))

function drawMini(c: HTMLCanvasElement | null, p: Picture, camera: Camera, w: number, h: number, status: (path: string) => string, t: Theme): void {
	const g = c?.getContext("2d")
	if (!c || !g) return
	const whole = p.w * camera.zoom <= w && p.h * camera.zoom <= h
	c.classList.toggle("whole", whole)
	if (whole) return
	const s = miniScale(p) * 2
	g.clearRect(0, 0, c.width, c.height)
	const paths = new Map<string, Path2D>()
	for (const i of p.items) {
		if (i.open) continue
		const own = status(i.path)
		let path = paths.get(own)
		if (!path) paths.set(own, (path = new Path2D()))
		path.rect(i.x * s, i.y * s, Math.max(1.5, i.w * s), Math.max(1.5, i.h * s))
	}
	for (const [own, path] of paths) {
		g.fillStyle = t.status[own]
		g.fill(path)
	}
	g.strokeStyle = t.accent
	g.lineWidth = 2
	g.strokeRect(camera.x * s, camera.y * s, (w / camera.zoom) * s, (h / camera.zoom) * s)
}

// neighbour is the node that an arrow key leads to: along an edge to the left and right, the nearest one above and below.
function neighbour(p: Picture, at: string, key: string): string | undefined {
	const own = p.items.find(i => i.path === at)
	if (!own) return p.items[0]?.path
	const byPath = new Map(p.items.map(i => [i.path, i]))
	let list: Item[]
	if (key === "ArrowRight") list = p.lines.filter(l => l.from === at).map(l => byPath.get(l.to)!)
	else if (key === "ArrowLeft") list = p.lines.filter(l => l.to === at).map(l => byPath.get(l.from)!)
	else list = p.items.filter(i => i !== own && !i.open && (key === "ArrowDown" ? i.y > own.y : i.y < own.y) && Math.abs(i.x - own.x) < own.w)
	const far = (i: Item) => Math.abs(i.y - own.y) + Math.abs(i.x - own.x) / 10
	return list.filter(Boolean).sort((a, b) => far(a) - far(b))[0]?.path
}
