// The places of the texts on edges. A text is on the curve of its own edge, near the source. Near the target, where edges meet, a reader
// could not say to which edge a text belongs.

interface Place { x: number; y: number; w: number } // the centre and the width of a text
interface Edge { points: number[]; text: string }

export const widest = 60
const height = 13
const shares = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8] // the positions on a curve, from 0 to 1, in the order in which they are tried

// onCurve returns a point of the curve that drawLines draws between the first two points of a line. share is the position on the curve,
// from 0 to 1.
export function onCurve(points: number[], share: number): { x: number; y: number } {
	const [x0, y0, x1, y1] = points, rest = 1 - share
	const near = rest ** 3 + 3 * rest ** 2 * share, far = 1 - near // each control point has the y of its end, and the mean of the two x
	return { x: rest ** 3 * x0 + 3 * rest * share * ((x0 + x1) / 2) + share ** 3 * x1, y: near * y0 + far * y1 }
}

// placesOf returns a place for each text: the first place on its curve that is beside the source and overlaps no earlier text. If every
// place overlaps an earlier text, placesOf returns the first place.
export function placesOf(edges: Edge[]): (Place | undefined)[] {
	const taken = new Map<number, Place[]>() // by row of the picture
	const meets = (p: Place) => [-1, 0, 1].some(d => taken.get(Math.floor(p.y / height) + d)?.some(q => Math.abs(p.y - q.y) < height && Math.abs(p.x - q.x) < (p.w + q.w) / 2))
	return edges.map(({ points, text }) => {
		if (!text) return undefined
		const w = Math.min(widest, 6.5 * text.length + 4)
		const all = shares.map(share => ({ ...onCurve(points, share), w }))
		const beside = all.filter(p => p.x - w / 2 >= points[0] && p.x + w / 2 <= points[2])
		const list = beside.length ? beside : [{ ...onCurve(points, 0.5), w }]
		const place = list.find(p => !meets(p)) ?? list[0]
		const row = Math.floor(place.y / height)
		taken.set(row, [...(taken.get(row) ?? []), place])
		return place
	})
}
