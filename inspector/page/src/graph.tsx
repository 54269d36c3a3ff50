import { useSignal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import { centred, fitting, panned, showing, zoomed, type Camera, type Size } from "./camera"
import { detailOf, drawGraph, theme, type Item, type Picture } from "./draw"
import { Minimap } from "./minimap"
import type { Model } from "./model"
import { go, remember, remembered, route } from "./route"
import { Facts, pictureOf, sceneOf, treeOf } from "./scene"
import { texts } from "./texts"
import { announced, Empty, Plain, shortcut } from "./ui"
import { visible } from "./visible"
import type { Drawn } from "./worker"

// GraphView is the graph of a run on a canvas, with unfolded composites.
export function GraphView({ model }: { model: Model }) {
	const { inside, open, fold, failed, edges, node } = route.value
	const picture = usePicture(model)
	const picked = useSignal("") // a folded group, which has no address
	const selected = node || picked.value
	const stage = useStage(model, picture.value, selected)
	useEffect(() => model.want([inside, ...open]), [inside, open.join("\n")])
	useEffect(() => {
		if (node) announced.value = texts.nowIs(visible(node), model.status(node))
	}, [node])

	const select = (item: Item | undefined) => {
		picked.value = item?.members ? item.path : ""
		if (item?.members) announced.value = texts.groupOf(item.label, item.members.length)
		go({ node: item && !item.members ? item.path : "" }, true)
	}
	const current = picture.value?.items.find(i => i.path === selected)
	const toggle = (item: Item | undefined) => {
		if (item?.members) toggleGroup(item.group)
		else if (item?.composite) toggleComposite(item.path)
	}
	const keys = useRef<(e: KeyboardEvent) => boolean>(() => false)
	keys.current = e => {
		switch (e.key) {
			case "+": case "=": stage.zoom(1.25); return true
			case "-": stage.zoom(0.8); return true
			case "0": stage.fit(); return true
			case "u": toggle(current); return true
		}
		if (!arrows[e.key] || document.activeElement?.closest("aside, .tools, .tabs, .top")) return false
		if (e.shiftKey) return stage.pan(...arrows[e.key]), true
		const next = picture.value && neighbour(picture.value, selected, e.key)
		if (next) select(next)
		return true
	}
	useEffect(() => shortcut(e => keys.current(e)), [])

	const graph = model.graphs.get(inside)
	const groups = [...new Set(graph?.nodes.map(n => n.groups?.[0] ?? "").filter(Boolean))].sort()
	return (
		<div class="graph">
			<div class="tools">
				{inside && <button onClick={() => go({ inside: "", node: "" })}>← {texts.wholeGraph}</button>}
				{inside && <span class="meta">{texts.inside} <Plain text={inside} /></span>}
				<label class="check"><input type="checkbox" checked={!!failed} onChange={e => go({ failed: e.currentTarget.checked ? "1" : "" })} /> {texts.failedOnly}</label>
				<label class="check"><input type="checkbox" checked={!!edges} onChange={e => go({ edges: e.currentTarget.checked ? "all" : "" })} /> {texts.allEdges}</label>
				{groups.length > 0 && <Groups names={groups} folded={fold} />}
				{current && (current.composite || current.members) && <button aria-expanded={current.open} onClick={() => toggle(current)}>{current.open ? texts.fold : texts.unfold}</button>}
				{open.length > 1 && <button onClick={() => go({ open: [] })}>{texts.foldAll}</button>}
				{graph && graph.total > graph.nodes.length && <span class="meta">{texts.firstNodes(graph.nodes.length, graph.total)}</span>}
				<span class="spring" />
				<button aria-label={texts.zoomOut} onClick={() => stage.zoom(0.8)}>−</button>
				<button onClick={stage.fit}>{texts.fit}</button>
				<button aria-label={texts.zoomIn} onClick={() => stage.zoom(1.25)}>+</button>
			</div>
			{graph?.note && <p class="trail meta"><Plain text={graph.note} /></p>}
			<div class="stage">
				<Canvas stage={stage} boxes={picture.value?.items.length ?? 0} select={select} toggle={toggle} />
				<canvas
					ref={stage.mini} class="minimap" tabIndex={0} role="application" aria-label={texts.minimap}
					onPointerDown={e => { e.currentTarget.setPointerCapture(e.pointerId); stage.look(e.offsetX, e.offsetY) }}
					onPointerMove={e => e.buttons && stage.look(e.offsetX, e.offsetY)}
					onKeyDown={e => {
						if (!arrows[e.key]) return
						e.preventDefault()
						e.stopPropagation()
						stage.pan(...arrows[e.key])
					}}
				/>
				{graph && !graph.known && <div class="over"><Empty title={texts.noGraph} /></div>}
				{failed && picture.value && !picture.value.items.length && <div class="over"><Empty title={texts.noFailed} /></div>}
			</div>
		</div>
	)
}

const arrows: Record<string, [number, number]> = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }

function toggleComposite(path: string): void {
	const { open } = route.peek()
	const within = (p: string) => p === path || (p.startsWith(path) && "/[#".includes(p[path.length]))
	go({ open: open.includes(path) ? open.filter(p => !within(p)) : [...open, path] }, true)
}

function toggleGroup(name: string): void {
	const { fold } = route.peek()
	go({ fold: fold.includes(name) ? fold.filter(g => g !== name) : [...fold, name] }, true)
}

// Groups is a menu of the groups that can be folded.
function Groups({ names, folded }: { names: string[]; folded: string[] }) {
	return (
		<details class="menu">
			<summary class="button">{texts.groups}{folded.length > 0 && <span class="count"> {folded.length}</span>}</summary>
			<div>
				{names.map(name => <label class="check" key={name}><input type="checkbox" checked={folded.includes(name)} onChange={() => toggleGroup(name)} /> {texts.fold} <Plain text={name} /></label>)}
			</div>
		</details>
	)
}

// usePicture lays the graph out in a worker, whenever the graph or its shown part has changed.
function usePicture(model: Model) {
	const picture = useSignal<Picture | undefined>(undefined)
	const worker = useMemo(() => new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), [])
	useEffect(() => () => worker.terminate(), [])
	const { inside, open, fold, failed, edges } = route.value
	const asked = useRef(false), again = useRef(false)
	const ask = () => { // one layout at a time: a graph that changes faster is not shown in every state
		if (asked.current) return void (again.current = true)
		const { inside, open, fold, failed, edges } = route.peek()
		const scene = sceneOf(model, inside, { open: new Set(open), fold, failed: !!failed })
		if (!scene) return
		asked.current = true
		worker.onmessage = (e: MessageEvent<Drawn>) => {
			picture.value = pictureOf(scene, e.data, `${inside}|${failed}`)
			asked.current = false
			if (again.current) {
				again.current = false
				ask()
			}
		}
		worker.postMessage(treeOf(scene, !!edges))
	}
	useEffect(ask, [JSON.stringify([model.structure.value, inside, open, fold, edges, failed && model.version.value])])
	return picture
}

// useStage is the canvas, with its visible part of the picture and the ways to move that.
function useStage(model: Model, picture: Picture | undefined, selected: string) {
	const canvas = useRef<HTMLCanvasElement>(null), mini = useRef<HTMLCanvasElement>(null)
	const camera = useRef<Camera>({ x: 0, y: 0, zoom: 1 })
	const colours = useRef(theme()), facts = useMemo(() => new Facts(model), [model]), minimap = useRef<Minimap | undefined>(undefined)
	const shown = useRef({ picture, selected })
	shown.current = { picture, selected }
	const frame = useRef(0)
	const moved = useRef("") // the picture that the user has moved; other pictures are shown as a whole
	const size = (): Size => ({ w: canvas.current?.clientWidth ?? 0, h: canvas.current?.clientHeight ?? 0 })

	const draw = () => {
		frame.current = 0
		const c = canvas.current, { picture: p, selected } = shown.current
		if (!c || !p) return
		const begun = performance.now(), ratio = devicePixelRatio || 1, view = size()
		const [w, h] = [Math.round(view.w * ratio), Math.round(view.h * ratio)]
		if (c.width !== w) c.width = w
		if (c.height !== h) c.height = h
		const g = c.getContext("2d")!
		g.setTransform(ratio, 0, 0, ratio, 0, 0)
		drawGraph(g, view, p, camera.current, facts, selected, colours.current)
		minimap.current?.draw(p, camera.current, view, facts, colours.current, model.version.peek())
		const { x, y, zoom } = camera.current
		Object.assign(c.dataset, { // for tests, which cannot see the canvas
			draw: (performance.now() - begun).toFixed(2), layout: p.ms.toFixed(1), items: p.items.length, lines: p.lines.length, detail: detailOf(zoom), camera: [x, y, zoom].map(n => n.toFixed(3)).join(" "),
		})
		c.dataset.first ??= performance.now().toFixed(0)
	}
	const redraw = () => { frame.current ||= requestAnimationFrame(draw) }
	const move = (to: Camera) => {
		camera.current = to
		redraw()
		moved.current = shown.current.picture?.of ?? ""
		remember("camera", { of: moved.current, ...camera.current })
	}
	const refit = () => {
		const p = shown.current.picture
		if (p?.items.length && moved.current !== p.of && size().w) camera.current = fitting(p, size())
		redraw()
	}
	const fit = () => {
		moved.current = ""
		remember("camera", undefined)
		refit()
	}
	useEffect(() => { // a reload restores the picture's position
		const before = remembered<Camera & { of: string }>("camera")
		if (!before) return
		moved.current = before.of
		camera.current = before
	}, [])
	useEffect(refit, [picture])
	useEffect(() => {
		const item = picture?.items.find(i => i.path === selected)
		if (item) camera.current = showing(camera.current, item, size())
		redraw()
	}, [selected])
	useEffect(redraw, [model.version.value])
	useEffect(() => {
		minimap.current = new Minimap(mini.current!)
		const scheme = matchMedia("(prefers-color-scheme: dark)")
		const recolour = () => { colours.current = theme(); redraw() }
		scheme.addEventListener("change", recolour)
		const resized = new ResizeObserver(refit)
		resized.observe(canvas.current!)
		return () => { scheme.removeEventListener("change", recolour); resized.disconnect(); cancelAnimationFrame(frame.current) }
	}, [])

	return {
		canvas, mini, fit,
		zoom: (factor: number, at = { x: size().w / 2, y: size().h / 2 }) => move(zoomed(camera.current, factor, at)),
		drag: (dx: number, dy: number) => move(panned(camera.current, -dx, -dy)),
		pan: (x: number, y: number) => move(panned(camera.current, (x * size().w) / 4, (y * size().h) / 4)),
		// look centres the window on a point of the minimap.
		look: (x: number, y: number) => picture && move(centred(minimap.current!.point(picture, x, y), camera.current.zoom, size())),
		hit: (e: { offsetX: number; offsetY: number }): Item | undefined => {
			const k = camera.current, x = k.x + e.offsetX / k.zoom, y = k.y + e.offsetY / k.zoom
			return picture?.items.findLast(i => x >= i.x && x <= i.x + i.w && y >= i.y && y <= i.y + i.h)
		},
	}
}

type Stage = ReturnType<typeof useStage>

function Canvas({ stage, boxes, select, toggle }: { stage: Stage; boxes: number; select: (item?: Item) => void; toggle: (item?: Item) => void }) {
	const drag = useRef<{ x: number; y: number; moved: boolean } | undefined>(undefined)
	return (
		<canvas
			ref={stage.canvas} class="picture" tabIndex={0} role="application" aria-label={texts.graphLabel(boxes)}
			onPointerDown={e => { drag.current = { x: e.clientX, y: e.clientY, moved: false }; e.currentTarget.setPointerCapture(e.pointerId) }}
			onPointerMove={e => {
				const d = drag.current
				if (!d) { e.currentTarget.style.cursor = stage.hit(e) ? "pointer" : "grab"; return }
				const dx = e.clientX - d.x, dy = e.clientY - d.y
				if (!d.moved && Math.hypot(dx, dy) < 4) return
				drag.current = { x: e.clientX, y: e.clientY, moved: true }
				stage.drag(dx, dy)
			}}
			onPointerUp={e => {
				const moved = drag.current?.moved
				drag.current = undefined
				if (!moved) select(stage.hit(e))
			}}
			onDblClick={e => toggle(stage.hit(e))}
			onWheel={e => { e.preventDefault(); stage.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), { x: e.offsetX, y: e.offsetY }) }}
		/>
	)
}

// neighbour returns the box that an arrow key selects: left and right along an edge, above and below the nearest box.
function neighbour(p: Picture, at: string, key: string): Item | undefined {
	const own = p.items.find(i => i.path === at)
	if (!own) return p.items[0]
	const byPath = new Map(p.items.map(i => [i.path, i]))
	let list: (Item | undefined)[]
	if (key === "ArrowRight") list = p.lines.filter(l => l.from === at).map(l => byPath.get(l.to))
	else if (key === "ArrowLeft") list = p.lines.filter(l => l.to === at).map(l => byPath.get(l.from))
	else list = p.items.filter(i => i !== own && !i.open && (key === "ArrowDown" ? i.y > own.y : i.y < own.y) && Math.abs(i.x - own.x) < own.w)
	const far = (i: Item) => Math.abs(i.y - own.y) + Math.abs(i.x - own.x) / 10
	return list.filter(i => i !== undefined).sort((a, b) => far(a) - far(b))[0]
}
