// Camera is the part of a picture in the window: the point in the upper left corner, and the pixels per unit.
export interface Camera { x: number; y: number; zoom: number }

export interface Size { w: number; h: number }

export function fitting(picture: Size, view: Size): Camera {
	const zoom = Math.min(1.25, (view.w - 40) / Math.max(1, picture.w), (view.h - 40) / Math.max(1, picture.h))
	return centred({ x: picture.w / 2, y: picture.h / 2 }, zoom, view)
}

export function centred(point: { x: number; y: number }, zoom: number, view: Size): Camera {
	return { zoom, x: point.x - view.w / 2 / zoom, y: point.y - view.h / 2 / zoom }
}

// zoomed zooms around a point of the window: the same point of the picture stays there.
export function zoomed(c: Camera, factor: number, at: { x: number; y: number }): Camera {
	const zoom = Math.min(4, Math.max(0.01, c.zoom * factor))
	return { zoom, x: c.x + at.x / c.zoom - at.x / zoom, y: c.y + at.y / c.zoom - at.y / zoom }
}

// panned moves the window by some pixels.
export function panned(c: Camera, dx: number, dy: number): Camera {
	return { ...c, x: c.x + dx / c.zoom, y: c.y + dy / c.zoom }
}

// showing moves the window to a box if the window does not contain the box or its zoom is below least. It zooms in if the box's name
// would be unreadable.
export function showing(c: Camera, box: Area, view: Size, least = 0): Camera {
	const x = (box.x - c.x) * c.zoom, y = (box.y - c.y) * c.zoom
	if (c.zoom >= least && x >= 0 && y >= 0 && x + box.w * c.zoom <= view.w && y + box.h * c.zoom <= view.h) return c
	return centred({ x: box.x + box.w / 2, y: box.y + box.h / 2 }, Math.max(c.zoom, least || 0.6), view)
}

export const readable = 12 / 13 // the zoom at which names have 12 pixels

export interface Area extends Size { x: number; y: number }

// starting shows the whole picture if its names are then readable. Otherwise it shows the part around a box.
export function starting(picture: Size, box: Area | undefined, view: Size): Camera {
	const whole = fitting(picture, view)
	if (whole.zoom >= readable || !box) return whole
	const width = view.w / readable, height = view.h / readable, edge = 20
	const inside = (want: number, most: number, size: number) => (most + 2 * edge <= size ? (most - size) / 2 : Math.max(-edge, Math.min(want, most + edge - size)))
	return { zoom: readable, x: inside(box.x + Math.min(box.w, width) / 2 - width / 2, picture.w, width), y: inside(box.y + Math.min(box.h, height) / 2 - height / 2, picture.h, height) }
}
