import type { Camera, Size } from "./camera"
import type { Picture, Theme } from "./draw"
import type { Facts } from "./facts"

// Minimap draws a whole picture in a small canvas, with a frame around the part in the window. It redraws the boxes only when they
// have changed.
export class Minimap {
	private base: HTMLCanvasElement | undefined
	private drawn: unknown[] = []

	constructor(private readonly canvas: HTMLCanvasElement) {}

	// place is the scale of the picture in the canvas, and the position of its upper left corner.
	private place(p: Picture): { s: number; x: number; y: number } {
		const { clientWidth: w, clientHeight: h } = this.canvas
		const s = Math.min((w - 8) / Math.max(1, p.w), (h - 8) / Math.max(1, p.h))
		return { s, x: (w - p.w * s) / 2, y: (h - p.h * s) / 2 }
	}

	// point returns the point of the picture at a point of the canvas.
	point(p: Picture, x: number, y: number): { x: number; y: number } {
		const at = this.place(p)
		return { x: (x - at.x) / at.s, y: (y - at.y) / at.s }
	}

	draw(p: Picture, camera: Camera, view: Size, facts: Facts, t: Theme, version: unknown): void {
		const c = this.canvas, whole = p.w * camera.zoom <= view.w && p.h * camera.zoom <= view.h
		c.classList.toggle("whole", whole)
		if (whole || !c.clientWidth) return
		const ratio = devicePixelRatio || 1
		c.width = c.clientWidth * ratio
		c.height = c.clientHeight * ratio
		const at = this.place(p), state = [p, t, version, at.s, ratio]
		if (!this.base || state.some((x, i) => x !== this.drawn[i])) {
			this.drawn = state
			this.base = document.createElement("canvas")
			this.base.width = c.width
			this.base.height = c.height
			const g = this.base.getContext("2d")!
			g.setTransform(ratio * at.s, 0, 0, ratio * at.s, ratio * at.x, ratio * at.y)
			drawBoxes(g, p, 1.5 / at.s, facts, t)
		}
		const g = c.getContext("2d")!
		g.drawImage(this.base, 0, 0)
		g.setTransform(ratio, 0, 0, ratio, ratio * at.x, ratio * at.y)
		const frame = [camera.x * at.s, camera.y * at.s, (view.w / camera.zoom) * at.s, (view.h / camera.zoom) * at.s] as const
		g.globalAlpha = 0.6 // parts outside the window are paler
		g.fillStyle = t.panel
		g.beginPath()
		g.rect(-at.x, -at.y, c.clientWidth, c.clientHeight)
		g.rect(...frame)
		g.fill("evenodd")
		g.globalAlpha = 1
		g.strokeStyle = t.accent
		g.lineWidth = 2
		g.strokeRect(...frame)
	}
}

// drawBoxes fills the boxes, each at least large enough to be visible.
function drawBoxes(g: CanvasRenderingContext2D, p: Picture, least: number, facts: Facts, t: Theme): void {
	const paths = new Map<string, Path2D>()
	for (const item of p.items) {
		if (item.open) continue
		const status = facts.status(item)
		let path = paths.get(status)
		if (!path) paths.set(status, (path = new Path2D()))
		path.rect(item.x, item.y, Math.max(least, item.w), Math.max(least, item.h))
	}
	for (const [status, path] of paths) {
		g.fillStyle = t.status[status]
		g.fill(path)
	}
}
