import { badgeLetter } from "./texts"

// The pictures of statuses and the canvas of the graph: functions of what is to be drawn, without state.

export interface Theme { text: string; dim: string; line: string; surface: string; panel: string; accent: string; status: Record<string, string> }

export function theme(): Theme {
	const css = getComputedStyle(document.documentElement)
	const read = (name: string) => css.getPropertyValue(name).trim()
	const status: Record<string, string> = {}
	for (const name of Object.keys(badgeLetter)) status[name] = read(`--${name}`)
	return { text: read("--text"), dim: read("--dim"), line: read("--line"), surface: read("--surface"), panel: read("--panel"), accent: read("--accent"), status }
}

// shape traces the shape of a status around a centre: its form tells the status as well as its colour.
export function shape(g: Pick<Path2D, "moveTo" | "lineTo" | "arc" | "closePath">, status: string, x: number, y: number, r: number): void {
	const polygon = (points: number, turn: number, size: number) => {
		for (let i = 0; i < points; i++) {
			const a = turn + (i * 2 * Math.PI) / points
			if (i) g.lineTo(x + size * Math.cos(a), y + size * Math.sin(a))
			else g.moveTo(x + size * Math.cos(a), y + size * Math.sin(a))
		}
		g.closePath()
	}
	const outline = (...points: [number, number][]) => {
		points.forEach(([dx, dy], i) => (i ? g.lineTo(x + dx * r, y + dy * r) : g.moveTo(x + dx * r, y + dy * r)))
		g.closePath()
	}
	switch (status) {
		case "failed": return polygon(4, Math.PI / 4, r * 1.25) // square
		case "aborted": return polygon(8, Math.PI / 8, r * 1.05) // octagon
		case "suspended": return polygon(4, 0, r * 1.25) // diamond
		case "retrying": return outline([0, -1.25], [1.05, -0.3], [1.05, 0.95], [-1.05, 0.95], [-1.05, -0.3]) // a house
		case "running": return outline([-1, -0.95], [0.4, -0.95], [1.3, 0], [0.4, 0.95], [-1, 0.95]) // a signpost
		case "cancelled": return polygon(5, Math.PI / 2, r * 1.15)
		case "skipped": return polygon(6, 0, r * 1.15)
		default:
			g.moveTo(x + r, y)
			g.arc(x, y, r, 0, 2 * Math.PI)
			g.closePath()
	}
}

// hollow statuses have an outline only: nothing has happened to the node yet.
export const hollow = new Set(["idle", "waiting", "ready", "pending"])

export interface Item { path: string; label: string; type: string; x: number; y: number; w: number; h: number; composite: boolean; open: boolean; depth: number }
export interface Line { from: string; to: string; points: number[]; label: string; data: boolean; on: string; box: [number, number, number, number] }
export interface Picture { items: Item[]; lines: Line[]; w: number; h: number }
export interface Camera { x: number; y: number; zoom: number } // the point of the picture in the upper left corner

export const labelsFrom = 0.45 // zoom from which labels can be read
const lettersFrom = 0.22

export function drawGraph(g: CanvasRenderingContext2D, width: number, height: number, p: Picture, camera: Camera, status: (path: string) => string, selected: string, t: Theme): void {
	g.clearRect(0, 0, width, height)
	g.save()
	const { zoom } = camera
	g.scale(zoom, zoom)
	g.translate(-camera.x, -camera.y)
	const right = camera.x + width / zoom, bottom = camera.y + height / zoom
	const visible = p.items.filter(i => i.x < right && i.x + i.w > camera.x && i.y < bottom && i.y + i.h > camera.y)
	for (const item of visible) if (item.open) drawFrame(g, item, t, zoom)
	drawLines(g, p, camera, right, bottom, selected, t)
	g.textBaseline = "middle"
	const small = zoom < lettersFrom
	if (small) { // one path a status
		const byStatus = new Map<string, Path2D>()
		for (const item of visible) {
			if (item.open) continue
			const s = status(item.path)
			let path = byStatus.get(s)
			if (!path) byStatus.set(s, (path = new Path2D()))
			path.rect(item.x, item.y, item.w, item.h)
		}
		for (const [s, path] of byStatus) {
			g.fillStyle = t.status[s]
			g.fill(path)
		}
	} else {
		for (const item of visible) drawItem(g, item, status(item.path), t, zoom)
	}
	const own = visible.find(i => i.path === selected)
	if (own) {
		g.strokeStyle = t.accent
		g.lineWidth = Math.max(2.5, 2 / zoom)
		rounded(g, own.x - 3, own.y - 3, own.w + 6, own.h + 6, 9)
		g.stroke()
	}
	g.restore()
}

function rounded(g: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, r: number): void {
	g.beginPath()
	g.roundRect(x, y, w, h, r)
}

function drawFrame(g: CanvasRenderingContext2D, item: Item, t: Theme, zoom: number): void {
	rounded(g, item.x, item.y, item.w, item.h, 10)
	g.fillStyle = item.depth % 2 ? t.surface : t.panel
	g.fill()
	g.strokeStyle = t.line
	g.lineWidth = 1 / Math.min(1, zoom)
	g.stroke()
}

function drawLines(g: CanvasRenderingContext2D, p: Picture, camera: Camera, right: number, bottom: number, selected: string, t: Theme): void {
	const plain = new Path2D(), data = new Path2D(), other = new Path2D(), own = new Path2D()
	for (const line of p.lines) {
		const [x0, y0, x1, y1] = line.box
		if (x0 > right || x1 < camera.x || y0 > bottom || y1 < camera.y) continue
		const to = selected && (line.from === selected || line.to === selected) ? own : line.on ? other : line.data ? data : plain
		const c = line.points
		to.moveTo(c[0], c[1])
		for (let k = 2; k < c.length; k += 2) {
			const mid = (c[k - 2] + c[k]) / 2
			to.bezierCurveTo(mid, c[k - 1], mid, c[k + 1], c[k], c[k + 1])
		}
	}
	const width = Math.min(3, 1.2 / Math.min(1, camera.zoom))
	const stroke = (path: Path2D, colour: string, dash: number[], w: number) => {
		g.strokeStyle = colour
		g.lineWidth = w
		g.setLineDash(dash)
		g.stroke(path)
	}
	stroke(plain, t.line, [], width)
	stroke(data, t.line, [2, 4], width)
	stroke(other, t.status.failed, [6, 4], width)
	stroke(own, t.accent, [], width * 1.6)
	g.setLineDash([])
	if (camera.zoom < labelsFrom) return
	g.font = "11px system-ui, sans-serif"
	g.textAlign = "center"
	for (const line of p.lines) {
		const [x0, y0, x1, y1] = line.box
		if (!line.label && !line.on || x0 > right || x1 < camera.x || y0 > bottom || y1 < camera.y) continue
		const c = line.points, x = c[c.length - 2] - 26, y = c[c.length - 1] - 8
		g.fillStyle = t.dim
		g.fillText(fit(g, line.label || line.on, 60), x, y)
	}
}

function drawItem(g: CanvasRenderingContext2D, item: Item, status: string, t: Theme, zoom: number): void {
	const colour = t.status[status], y = item.open ? item.y + 17 : item.y + item.h / 2
	if (!item.open) {
		rounded(g, item.x, item.y, item.w, item.h, 7)
		g.fillStyle = t.panel
		g.fill()
		g.strokeStyle = colour
		g.lineWidth = hollow.has(status) ? 1 : 1.6
		g.stroke()
		if (item.composite) { // a second edge behind it
			g.beginPath()
			g.moveTo(item.x + 5, item.y + item.h + 3)
			g.lineTo(item.x + item.w - 3, item.y + item.h + 3)
			g.lineTo(item.x + item.w + 3, item.y + item.h - 3)
			g.lineTo(item.x + item.w + 3, item.y + 5)
			g.stroke()
		}
	}
	const r = 8.5, x = item.x + 17
	g.beginPath()
	shape(g, status, x, y, r)
	g.lineWidth = 1.6
	g.strokeStyle = colour
	g.stroke()
	if (!hollow.has(status)) {
		g.fillStyle = colour
		g.fill()
	}
	g.textAlign = "center"
	g.font = "700 9.5px system-ui, sans-serif"
	g.fillStyle = hollow.has(status) ? t.text : t.panel
	g.fillText(badgeLetter[status], x, status === "retrying" ? y + 1.5 : y + 0.5)
	if (zoom < labelsFrom) return
	g.textAlign = "left"
	g.font = "13px system-ui, sans-serif"
	g.fillStyle = t.text
	g.fillText(fit(g, item.label, item.w - 44), item.x + 33, y + 0.5)
}

const widths = new Map<string, string>()

// fit shortens a text to a width, and remembers what it has measured.
function fit(g: CanvasRenderingContext2D, text: string, width: number): string {
	const key = `${g.font}|${Math.round(width)}|${text.length > 80 ? text.slice(0, 80) : text}`
	let short = widths.get(key)
	if (short === undefined) {
		short = text.length > 80 ? text.slice(0, 80) : text
		if (short !== text || g.measureText(short).width > width) {
			while (short && g.measureText(short + "…").width > width) short = short.slice(0, -1)
			short += "…"
		}
		if (widths.size > 30_000) widths.clear()
		widths.set(key, short)
	}
	return short
}
