import type { Camera, Size } from "./camera"
import { widest } from "./labels"
import type { Facts } from "./facts"
import { badgeLetter, hollow, inBar, totalOf, type Counts } from "./status"
import { texts } from "./texts"

// The pictures of statuses and the canvas of the graph, as pure functions.

// Pen has the methods of a canvas with which pictures are drawn. A pen that is not a canvas makes its own paths. Before a shortened text is
// drawn, such a pen gets the whole text as a hint.
export type Pen = Pick<CanvasRenderingContext2D,
	"clearRect" | "save" | "restore" | "scale" | "translate" | "beginPath" | "moveTo" | "lineTo" | "arc" | "closePath" | "roundRect" | "fill" | "stroke" | "fillRect" | "fillText" | "strokeText" | "measureText" |
	"setLineDash" | "fillStyle" | "strokeStyle" | "lineWidth" | "font" | "textAlign" | "textBaseline"> & { newPath?(): Path2D; hint?(text: string): void }

const newPath = (g: Pen) => g.newPath?.() ?? new Path2D()

export interface Theme { text: string; dim: string; line: string; soft: string; surface: string; panel: string; accent: string; status: Record<string, string> }

// theme returns the colours of the page; if paper is set, it returns the light colours.
export function theme(paper = false): Theme {
	document.documentElement.classList.toggle("paper", paper)
	const css = getComputedStyle(document.documentElement)
	const read = (name: string) => css.getPropertyValue(name).trim()
	const status: Record<string, string> = {}
	for (const name of Object.keys(badgeLetter)) status[name] = read(`--${name}`)
	const t = { text: read("--text"), dim: read("--dim"), line: read("--line"), soft: read("--soft"), surface: read("--surface"), panel: read("--panel"), accent: read("--accent"), status }
	document.documentElement.classList.remove("paper")
	return t
}

// shape traces the shape of a status around a centre. Each status has its own shape, in addition to its colour.
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

// Item is a box: a node or, if it has members, a part of a folded group.
export interface Item { path: string; label: string; type: string; group: string; x: number; y: number; w: number; h: number; composite: boolean; members?: string[]; open: boolean; depth: number }
export interface Line { from: string; to: string; points: number[]; label: string; data: boolean; on: string; box: [number, number, number, number]; text?: { x: number; y: number } }
// Picture is a drawn graph. of identifies the graph, n is the number of the picture in this view, and ms is the time that the layout took.
export interface Picture { of: string; n: number; items: Item[]; lines: Line[]; w: number; h: number; ms: number }

// detailOf returns what a box shows at a zoom: first its colour, then also its status letter, then its name, and finally
// more facts.
export function detailOf(zoom: number): "boxes" | "letters" | "names" | "facts" {
	return zoom < 0.22 ? "boxes" : zoom < 0.45 ? "letters" : zoom < 1.3 ? "names" : "facts"
}

export function drawGraph(g: Pen, view: Size, p: Picture, camera: Camera, facts: Facts, selected: string, t: Theme): void {
	g.clearRect(0, 0, view.w, view.h)
	g.save()
	const { zoom } = camera
	g.scale(zoom, zoom)
	g.translate(-camera.x, -camera.y)
	const right = camera.x + view.w / zoom, bottom = camera.y + view.h / zoom
	const visible = p.items.filter(i => i.x < right && i.x + i.w > camera.x && i.y < bottom && i.y + i.h > camera.y)
	for (const item of visible) if (item.open) drawFrame(g, item, t, zoom)
	drawLines(g, p, camera, right, bottom, selected, t)
	g.textBaseline = "middle"
	if (detailOf(zoom) === "boxes") drawBoxes(g, visible, facts, t)
	else for (const item of visible) drawItem(g, item, facts, t, zoom)
	const own = visible.find(i => i.path === selected)
	if (own) {
		g.strokeStyle = t.accent
		g.lineWidth = Math.max(2.5, 2 / zoom)
		rounded(g, own.x - 3, own.y - 3, own.w + 6, own.h + 6, 9)
		g.stroke()
	}
	g.restore()
}

// drawBoxes fills boxes in the colours of their statuses, with one path for each status.
function drawBoxes(g: Pen, items: Item[], facts: Facts, t: Theme): void {
	const byStatus = new Map<string, Path2D>()
	for (const item of items) {
		if (item.open) continue
		const s = facts.status(item)
		let path = byStatus.get(s)
		if (!path) byStatus.set(s, (path = newPath(g)))
		path.rect(item.x, item.y, item.w, item.h)
	}
	for (const [s, path] of byStatus) {
		g.fillStyle = t.status[s]
		g.fill(path)
	}
}

function rounded(g: Pen, x: number, y: number, w: number, h: number, r: number): void {
	g.beginPath()
	g.roundRect(x, y, w, h, r)
}

function drawFrame(g: Pen, item: Item, t: Theme, zoom: number): void {
	rounded(g, item.x, item.y, item.w, item.h, 10)
	g.fillStyle = item.depth % 2 ? t.surface : t.panel
	g.fill()
	g.strokeStyle = t.line
	g.lineWidth = 1 / Math.min(1, zoom)
	g.stroke()
}

function drawLines(g: Pen, p: Picture, camera: Camera, right: number, bottom: number, selected: string, t: Theme): void {
	const [plain, data, other, own] = Array.from({ length: 4 }, () => newPath(g))
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
	if (detailOf(camera.zoom) === "boxes" || detailOf(camera.zoom) === "letters") return
	g.font = "11px system-ui, sans-serif"
	g.textAlign = "center"
	for (const line of p.lines) {
		const [x0, y0, x1, y1] = line.box
		if (!line.text || x0 > right || x1 < camera.x || y0 > bottom || y1 < camera.y) continue
		const text = fit(g, line.label || line.on, widest), { x, y } = line.text
		g.strokeStyle = t.surface
		g.lineWidth = 4
		g.strokeText(text, x, y)
		g.fillStyle = t.dim
		g.fillText(text, x, y)
	}
}

function drawItem(g: Pen, item: Item, facts: Facts, t: Theme, zoom: number): void {
	const status = facts.status(item), detail = detailOf(zoom), counts = item.composite || item.members ? facts.counts(item) : undefined
	const tall = item.composite || !!item.members, y = tall ? item.y + 18 : item.y + item.h / 2
	if (!item.open) drawBox(g, item, t.status[status], hollow.has(status), t)
	drawBadge(g, status, item.x + 17, y, t)
	const rest = item.open ? 150 : 0 // in the frame of an unfolded composite, counts stand beside the name
	if (counts && item.open) drawCounts(g, counts, item.x + item.w - rest, item.y + 15, rest - 14, detail, t)
	else if (counts) drawCounts(g, counts, item.x + 12, item.y + 34, item.w - 24, detail, t)
	if (detail === "letters") return
	const more = detail === "facts" ? detailsOf(item, facts) : ""
	g.textAlign = "left"
	g.font = "13px system-ui, sans-serif"
	g.fillStyle = t.text
	const name = fit(g, item.label, item.w - 44 - rest)
	if (name !== item.label) g.hint?.(item.label)
	g.fillText(name, item.x + 33, y + (more ? -5.5 : 0.5))
	if (!more) return
	g.font = "9.5px system-ui, sans-serif"
	g.fillStyle = t.dim
	g.fillText(fit(g, more, item.w - 44 - rest), item.x + 33, y + 8)
}

const detailsOf = (item: Item, facts: Facts) =>
	[facts.late(item) && texts.late, texts.type[item.type] ?? item.type, facts.iteration(item) > 0 && texts.iteration(facts.iteration(item)), facts.attempts(item) > 1 && texts.attemptsMade(facts.attempts(item))].filter(Boolean).join(" · ")

function drawBox(g: Pen, item: Item, colour: string, thin: boolean, t: Theme): void {
	if (item.composite || item.members) { // draws a second box behind this one, so that only its edge is visible
		rounded(g, item.x + 4, item.y + 4, item.w, item.h, 7)
		g.fillStyle = t.panel
		g.fill()
		g.strokeStyle = colour
		g.lineWidth = 1
		g.stroke()
	}
	rounded(g, item.x, item.y, item.w, item.h, 7)
	g.fillStyle = t.panel
	g.fill()
	g.strokeStyle = colour
	g.lineWidth = thin ? 1 : 1.6
	g.setLineDash(item.members ? [5, 3] : [])
	g.stroke()
	g.setLineDash([])
}

function drawBadge(g: Pen, status: string, x: number, y: number, t: Theme): void {
	const colour = t.status[status]
	g.beginPath()
	shape(g, status, x, y, 8.5)
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
}

// drawCounts draws a bar of the statuses. Below it are the number of completed nodes of all nodes, and the number of nodes in each
// status.
function drawCounts(g: Pen, counts: Counts, x: number, y: number, w: number, detail: string, t: Theme): void {
	const total = totalOf(counts)
	g.fillStyle = t.soft
	g.fillRect(x, y, w, 5)
	let at = x
	for (const status of inBar) {
		const part = ((counts[status] ?? 0) / Math.max(1, total)) * w
		g.fillStyle = t.status[status]
		g.fillRect(at, y, part, 5)
		at += part
	}
	if (detail === "letters") return
	g.font = "10px system-ui, sans-serif"
	g.textAlign = "right"
	g.fillStyle = t.text
	g.fillText(`${counts.completed ?? 0}/${total}`, x + w, y + 14)
	g.textAlign = "left"
	at = x
	for (const [status, n] of Object.entries(counts)) {
		const text = `${badgeLetter[status]} ${n}`, width = g.measureText(text).width + 7
		if (at + width > x + w - 46) break
		g.fillStyle = t.status[status]
		g.fillText(text, at, y + 14)
		at += width
	}
}

const shortened = new Map<string, string>()

// fit shortens a text to a width. It caches measurements.
function fit(g: Pen, text: string, width: number): string {
	const key = `${g.font}|${Math.round(width)}|${text}`
	let short = shortened.get(key)
	if (short === undefined) {
		short = text
		if (g.measureText(short).width > width) {
			while (short && g.measureText(short + "…").width > width) short = short.slice(0, -1)
			short += "…"
		}
		if (shortened.size > 30_000) shortened.clear()
		shortened.set(key, short)
	}
	return short
}
