import { useEffect, useMemo, useRef } from "preact/hooks"
import { centred, fitting, panned, readable, showing, starting, zoomed, type Camera, type Size } from "./camera"
import { mostBoxes } from "./cluster"
import { detailOf, drawGraph, theme, type Item, type Picture } from "./draw"
import { Facts } from "./facts"
import { Minimap } from "./minimap"
import type { Model } from "./model"
import { remember, remembered, route } from "./route"
import { texts } from "./texts"

// useStage manages the canvas, the part of the picture that is visible on it, and the gestures and keys that move
// this part.
export function useStage(model: Model, picture: Picture | undefined, selected: string) {
	const canvas = useRef<HTMLCanvasElement>(null), mini = useRef<HTMLCanvasElement>(null)
	const camera = useRef<Camera>({ x: 0, y: 0, zoom: 1 })
	const colours = useRef(theme()), facts = useMemo(() => new Facts(model), [model]), minimap = useRef<Minimap | undefined>(undefined)
	const shown = useRef({ picture, selected })
	shown.current = { picture, selected }
	const frame = useRef(0)
	const moved = useRef("") // the picture that the user has moved; other pictures are shown as a whole
	const due = useRef({ path: "", least: 0 }) // a box to bring into view as soon as the picture contains it, and the least zoom
	const before = useRef(selected) // the previous selection; at first the selection in the address
	const whole = useRef(false) // the user has asked for the whole picture
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
		Object.assign(c.dataset, { // for tests, which cannot read the canvas
			draw: (performance.now() - begun).toFixed(2), layout: p.ms.toFixed(1), picture: p.n, items: p.items.length, lines: p.lines.length, detail: detailOf(zoom), camera: [x, y, zoom].map(n => n.toFixed(3)).join(" "),
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
	const bring = () => {
		const item = shown.current.picture?.items.find(i => i.path === due.current.path)
		if (!item || !size().w) return
		camera.current = showing(camera.current, item, size(), due.current.least)
		due.current.path = ""
		redraw()
	}
	const refit = () => {
		const { picture: p, selected } = shown.current
		if (p?.items.length && moved.current !== p.of && size().w) {
			const focus = p.items.find(i => i.path === (selected || route.peek().around)) ?? facts.first(p.items)
			camera.current = whole.current || (route.peek().by === "none" && p.items.length > mostBoxes) ? fitting(p, size()) : starting(p, focus, size())
		}
		bring()
		redraw()
	}
	const fit = () => {
		moved.current = ""
		whole.current = true
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
		if (before.current !== selected && due.current.path !== selected) due.current = { path: selected, least: 0 }
		before.current = selected
		bring()
		redraw()
	}, [selected])
	useEffect(redraw, [model.version.value])
	useEffect(() => {
		minimap.current = new Minimap(mini.current!)
		const scheme = matchMedia("(prefers-color-scheme: dark)")
		const recolour = () => { colours.current = theme(); redraw() }
		scheme.addEventListener("change", recolour)
		addEventListener("resize", redraw) // this event comes even if only the ratio of pixels has changed
		const resized = new ResizeObserver(refit)
		resized.observe(canvas.current!)
		return () => { scheme.removeEventListener("change", recolour); removeEventListener("resize", redraw); resized.disconnect(); cancelAnimationFrame(frame.current) }
	}, [])

	return {
		canvas, mini, fit, facts,
		// bring moves the window to a box and makes its name readable, as soon as the picture contains the box.
		bring: (path: string) => {
			due.current = { path, least: readable }
			whole.current = false
			bring()
		},
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

export function Canvas({ stage, boxes, select, toggle }: { stage: Stage; boxes: number; select: (item?: Item) => void; toggle: (item?: Item) => void }) {
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
				const d = drag.current
				drag.current = undefined
				if (d && !d.moved) select(stage.hit(e))
			}}
			onDblClick={e => toggle(stage.hit(e))}
			onWheel={e => { e.preventDefault(); stage.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), { x: e.offsetX, y: e.offsetY }) }}
		/>
	)
}

// neighbour returns the box that an arrow key selects. Left and right follow an edge; up and down lead to the nearest
// box.
export function neighbour(p: Picture, at: string, key: string): Item | undefined {
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
