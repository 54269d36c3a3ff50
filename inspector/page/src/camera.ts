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

// zoomed zooms around a point of the window: it keeps the same point of the picture.
export function zoomed(c: Camera, factor: number, at: { x: number; y: number }): Camera {
	const zoom = Math.min(4, Math.max(0.01, c.zoom * factor))
	return { zoom, x: c.x + at.x / c.zoom - at.x / zoom, y: c.y + at.y / c.zoom - at.y / zoom }
}

// panned moves the window by some pixels.
export function panned(c: Camera, dx: number, dy: number): Camera {
	return { ...c, x: c.x + dx / c.zoom, y: c.y + dy / c.zoom }
}

// showing moves the window only if it does not contain a box, and zooms in if the box's name would be unreadable.
export function showing(c: Camera, box: { x: number; y: number; w: number; h: number }, view: Size): Camera {
	const x = (box.x - c.x) * c.zoom, y = (box.y - c.y) * c.zoom
	if (x >= 0 && y >= 0 && x + box.w * c.zoom <= view.w && y + box.h * c.zoom <= view.h) return c
	return centred({ x: box.x + box.w / 2, y: box.y + box.h / 2 }, Math.max(c.zoom, 0.6), view)
}
