// Limits of time are multiples of a yardstick that is measured on the same machine. A slow or busy machine would exceed a limit in milliseconds.

// yardstick measures in a page the shortest times of a fixed computation and of a fixed drawing: { js, canvas }, in milliseconds. It takes the
// shortest time and not the median, because other programs interrupt some of the repetitions.
export const yardstick = page => page.evaluate(async () => {
	const took = f => {
		const begun = performance.now()
		f()
		return performance.now() - begun
	}
	const compute = () => { // sorts layers of a random graph by the means of their neighbours, as a layout does
		let seed = 7
		const below = n => Math.floor(((seed = (seed * 1664525 + 1013904223) >>> 0) / 2 ** 32) * n)
		const layers = Array.from({ length: 40 }, (_, l) => Array.from({ length: 100 }, (_, i) => 100 * l + i))
		const near = Array.from({ length: 4000 }, (_, v) => Array.from({ length: 3 }, () => Math.max(0, v - 1 - below(100))))
		const at = new Float64Array(4000).map((_, v) => v % 100)
		for (let sweep = 0; sweep < 10; sweep++) {
			for (const list of layers) {
				const key = new Map(list.map(v => [v, near[v].reduce((sum, u) => sum + at[u], 0) / 3]))
				list.sort((a, b) => key.get(a) - key.get(b))
				list.forEach((v, i) => (at[v] = i))
			}
		}
	}
	const canvas = document.createElement("canvas")
	canvas.width = 1280
	canvas.height = 600
	const g = canvas.getContext("2d")
	const draw = () => {
		g.clearRect(0, 0, 1280, 600)
		const curves = new Path2D()
		for (let i = 0; i < 1000; i++) {
			const x = (i % 40) * 32, y = Math.floor(i / 40) * 24
			curves.moveTo(x, y)
			curves.bezierCurveTo(x + 16, y, x + 16, y + 48, x + 32, y + 48)
		}
		g.stroke(curves)
		for (let i = 0; i < 300; i++) {
			g.beginPath()
			g.roundRect((i % 20) * 64, Math.floor(i / 20) * 40, 60, 20, 5)
			g.fill()
			g.stroke()
			g.fillText("name of " + i, (i % 20) * 64 + 4, Math.floor(i / 20) * 40 + 12)
		}
	}
	const js = [], drawing = []
	for (let i = 0; i < 15; i++) js.push(took(compute))
	for (let i = 0; i < 12; i++) {
		await new Promise(requestAnimationFrame)
		drawing.push(took(draw))
	}
	return { js: Math.min(...js), canvas: Math.min(...drawing) }
})

// measured opens a page and calls `take` with it, up to three times. It measures the yardsticks right before and after each call. `take` returns
// times, each { name, ms, of, most }: the time may be `most` times as long as the yardstick that `of` names. measured returns lines to print and,
// for each time that was too long in every try, the best try.
export const measured = async (open, take, close) => {
	const best = new Map()
	for (let tries = 0; tries < 3; tries++) {
		const page = await open(), before = await yardstick(page), times = await take(page), after = await yardstick(page)
		await close(page)
		for (const t of times) {
			const ratio = t.ms / ((before[t.of] + after[t.of]) / 2)
			if (!best.has(t.name) || ratio < best.get(t.name).ratio) best.set(t.name, { ...t, ratio })
		}
		if ([...best.values()].every(t => t.ratio <= t.most)) break
	}
	const all = [...best.values()], shown = t => `${t.name} ${t.ms.toFixed(t.ms < 20 ? 1 : 0)} ms = ${t.ratio.toFixed(2)} ${t.of}`
	return { shown: all.map(shown), late: all.filter(t => t.ratio > t.most).map(t => `${shown(t)}, at most ${t.most}`) }
}
