// Trace is a path that is written as the data of an SVG path. It has the methods of Path2D that the pictures use.
export class Trace {
	d = ""
	moveTo(x: number, y: number) { this.d += `M${short(x)} ${short(y)}` }
	lineTo(x: number, y: number) { this.d += `L${short(x)} ${short(y)}` }
	bezierCurveTo(a: number, b: number, c: number, d: number, x: number, y: number) { this.d += `C${[a, b, c, d, x, y].map(short).join(" ")}` }
	arc(x: number, y: number, r: number) { // always draws a whole circle, beginning at its rightmost point
		for (const end of [x - r, x + r]) this.d += `A${short(r)} ${short(r)} 0 1 1 ${short(end)} ${short(y)}`
	}
	roundRect(x: number, y: number, w: number, h: number, r: number) {
		const corner = (dx: number, dy: number) => `a${short(r)} ${short(r)} 0 0 1 ${short(dx)} ${short(dy)}`
		this.moveTo(x + r, y)
		this.d += `h${short(w - 2 * r)}${corner(r, r)}v${short(h - 2 * r)}${corner(-r, r)}h${short(2 * r - w)}${corner(-r, -r)}v${short(2 * r - h)}${corner(r, -r)}Z`
	}
	rect(x: number, y: number, w: number, h: number) { this.d += `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}Z` }
	closePath() { this.d += "Z" }
}

export const short = (n: number) => String(Math.round(n * 100) / 100)
