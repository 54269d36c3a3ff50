import type { Area, Size } from "./camera"
import { drawGraph, type Pen, type Picture, type Theme } from "./draw"
import type { Facts } from "./facts"
import { short, Trace } from "./trace"

// Pictures as files and on paper, whole or in parts, drawn by the same functions as on the screen.

const margin = 20

export const whole = (p: Size): Area => ({ x: -margin, y: -margin, w: p.w + 2 * margin, h: p.h + 2 * margin })

// svgOf writes an area of a picture as SVG, with attributes only, since the page's content security policy forbids inline styles.
export function svgOf(p: Picture, facts: Facts, t: Theme, area = whole(p)): string {
	const paper = new Paper()
	drawGraph(paper as unknown as Pen, area, p, { x: area.x, y: area.y, zoom: 1 }, facts, "", t)
	const w = short(area.w), h = short(area.h)
	return `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" font-family="system-ui, sans-serif"><rect width="${w}" height="${h}" fill="${t.surface}"/>${paper.out.join("")}</svg>`
}

// Browsers refuse larger canvases, or run out of memory.
const mostPixels = 32e6
const longestSide = 8192

// pngScale returns the scale at which a whole picture is drawn as PNG: 2, or less if the canvas would be too large.
export function pngScale(p: Size): number {
	const { w, h } = whole(p)
	return Math.min(2, longestSide / w, longestSide / h, Math.sqrt(mostPixels / w / h))
}

export async function pngOf(p: Picture, facts: Facts, t: Theme): Promise<Blob> {
	const zoom = pngScale(p), { x, y, w, h } = whole(p), canvas = document.createElement("canvas")
	canvas.width = Math.max(1, Math.floor(w * zoom))
	canvas.height = Math.max(1, Math.floor(h * zoom))
	const g = canvas.getContext("2d")!
	drawGraph(g, { w: canvas.width, h: canvas.height }, p, { x, y, zoom }, facts, "", t)
	g.globalCompositeOperation = "destination-over"
	g.fillStyle = t.surface
	g.fillRect(0, 0, canvas.width, canvas.height)
	const blob = await new Promise<Blob | null>(done => canvas.toBlob(done, "image/png"))
	if (!blob) throw new Error("no PNG")
	return blob
}

// A page in pixels that fits on A4 and on Letter, in landscape with margins of 10 mm, and the scale at which names have 8 points.
const page = { w: 960, h: 620 }
const readable = 0.82
const mostPages = 300

export interface Part extends Area { row: number; column: number; rows: number; columns: number }

// pagesOf divides a picture into pages. It returns one page if the names are readable on it, and otherwise as many as needed for readable
// names. If that exceeds the maximum number of pages, the names become smaller. Neighbouring pages overlap by the size of a box, so that
// each box is whole on one page.
export function pagesOf(p: Size, box: Size): Part[] {
	const { x, y, w, h } = whole(p)
	let scale = Math.min(1, page.w / w, page.h / h)
	if (scale >= readable) return [{ x, y, w: page.w / scale, h: page.h / scale, row: 1, column: 1, rows: 1, columns: 1 }]
	for (scale = readable; ; scale *= 0.9) {
		const width = page.w / scale, height = page.h / scale, stepX = width - box.w, stepY = height - box.h
		const columns = Math.max(1, Math.ceil((w - box.w) / stepX)), rows = Math.max(1, Math.ceil((h - box.h) / stepY))
		if (stepX <= 0 || stepY <= 0 || columns * rows > mostPages) continue
		return Array.from({ length: rows * columns }, (_, i) => {
			const row = Math.floor(i / columns), column = i % columns
			return { x: x + column * stepX, y: y + row * stepY, w: width, h: height, row: row + 1, column: column + 1, rows, columns }
		})
	}
}

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }

// escaped escapes a text for XML. It replaces characters that XML forbids: lone surrogates, U+FFFE and U+FFFF.
export const escaped = (text: string) => text.replace(/[\ud800-\udfff\ufffe\uffff]/gu, "\ufffd").replace(/[&<>"]/g, c => escapes[c])

const anchors: Record<string, string> = { center: "middle", right: "end" }

// Paper writes what is drawn on it as SVG. It has the methods of a canvas that the pictures use.
class Paper extends Trace {
	out: string[] = []
	fillStyle = ""
	strokeStyle = ""
	lineWidth = 1
	font = ""
	textAlign = "left"
	textBaseline = ""
	private dash: number[] = []
	private groups: number[] = [] // for each call of save, the number of groups that were opened since
	private last = "" // the data of the last element, if that is a path
	private whole = "" // the hint for the next text
	private static measure: CanvasRenderingContext2D | undefined

	newPath() { return new Trace() }
	hint(text: string) { this.whole = text }
	beginPath() { this.d = "" }
	clearRect() {}
	save() { this.groups.push(0) }
	scale(x: number) { this.group(`scale(${short(x)})`) }
	translate(x: number, y: number) { this.group(`translate(${short(x)} ${short(y)})`) }
	restore() { this.put("</g>".repeat(this.groups.pop() ?? 0)) }
	setLineDash(dash: number[]) { this.dash = dash }
	fill(path: Trace = this) { this.paint(path, `fill="${this.fillStyle}"`) }
	stroke(path: Trace = this) { this.paint(path, `stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}"${this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : ""}`) }
	fillRect(x: number, y: number, w: number, h: number) {
		if (w > 0) this.put(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" fill="${this.fillStyle}"/>`)
	}
	strokeText(text: string, x: number, y: number) { this.write(text, x, y, `stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}" stroke-linejoin="round"`) }
	fillText(text: string, x: number, y: number) { this.write(text, x, y, `fill="${this.fillStyle}"`) }
	measureText(text: string) {
		const g = (Paper.measure ??= document.createElement("canvas").getContext("2d")!)
		g.font = this.font
		return g.measureText(text)
	}

	private put(element: string, last = "") {
		this.out.push(element)
		this.last = last
	}
	private group(transform: string) {
		this.put(`<g transform="${transform}">`)
		this.groups[this.groups.length - 1]++
	}
	// paint adds a path. If the last element has the same path, paint only adds an attribute to this element.
	private paint({ d }: Trace, attribute: string) {
		if (!d) return
		const own = this.out.at(-1)!, name = attribute.split("=")[0]
		if (this.last === d && (own.includes(` ${name}="none"`))) this.out[this.out.length - 1] = own.replace(` ${name}="none"`, ` ${attribute}`)
		else this.put(`<path d="${d}" ${name === "fill" ? 'stroke="none"' : 'fill="none"'} ${attribute}/>`, d)
	}
	private write(text: string, x: number, y: number, paint: string) {
		const [, weight, size] = /^(?:(\d+) )?([\d.]+)px/.exec(this.font)!
		const anchor = anchors[this.textAlign]
		this.put(`<text x="${short(x)}" y="${short(y + 0.35 * Number(size))}" font-size="${size}"${weight ? ` font-weight="${weight}"` : ""}${anchor ? ` text-anchor="${anchor}"` : ""} ${paint}>${escaped(text)}${this.whole && `<title>${escaped(this.whole)}</title>`}</text>`)
		this.whole = ""
	}
}
