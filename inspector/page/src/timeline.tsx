import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, type Span, type Timeline } from "./api"
import { theme } from "./draw"
import { now } from "./live"
import type { Model } from "./model"
import { go, route } from "./route"
import { lanesOf, byDependencies, bySlots } from "./spans"
import { texts } from "./texts"
import { announced, duration, Empty, Problem } from "./ui"

const lane = 24, ruler = 26

export function TimelineView({ model }: { model: Model }) {
	const data = useSignal<Timeline | undefined>(undefined), problem = useSignal<Error | undefined>(undefined), critical = useSignal("deps"), tip = useSignal<{ x: number; y: number; span: Span } | undefined>(undefined)
	const view = useSignal({ from: 0, to: 1 }) // the part of the time that is shown
	const canvas = useRef<HTMLCanvasElement>(null), busy = useRef(false)
	const load = async () => {
		if (busy.current) return
		busy.current = true
		try {
			data.value = await get<Timeline>("timeline", { run: model.id })
			problem.value = undefined
		} catch (err) { problem.value = err as Error }
		busy.current = false
	}
	const ended = !!model.row.value?.ended
	useEffect(() => { void load() }, [ended])
	useEffect(() => {
		if (ended) return
		const timer = setInterval(load, 2000)
		return () => clearInterval(timer)
	}, [ended])

	const all = data.value?.spans ?? []
	const { spans, lanes, count } = lanesOf(all)
	const end = Math.max(1, ...all.slice(-5000).map(s => s.end_ms ?? data.value!.now_ms), ...all.slice(0, 5000).map(s => s.end_ms ?? data.value!.now_ms))
	const path = critical.value === "deps" ? byDependencies(all, model.graphs.get("")) : critical.value === "slots" ? bySlots(spans, lanes) : new Set<Span>()
	const from = view.value.from * end, to = view.value.to * end

	const hit = (x: number, y: number): Span | undefined => {
		const c = canvas.current!
		const at = from + (x / c.clientWidth) * (to - from), row = Math.floor((y - ruler) / lane)
		const slack = ((to - from) / c.clientWidth) * 2
		return spans.find((s, i) => lanes[i] === row && at >= s.queued_ms - slack && at <= (s.end_ms ?? end) + slack)
	}
	useEffect(() => {
		const c = canvas.current
		if (!c) return
		const draw = () => {
			const t = theme(), ratio = devicePixelRatio || 1, w = c.clientWidth, h = ruler + count * lane + 8
			c.style.height = `${h}px`
			c.width = w * ratio
			c.height = h * ratio
			const g = c.getContext("2d")!
			g.scale(ratio, ratio)
			const x = (ms: number) => ((ms - from) / (to - from)) * w
			g.font = "11px system-ui, sans-serif"
			g.textBaseline = "middle"
			g.lineWidth = 1
			const step = niceStep((to - from) / Math.max(2, w / 110))
			for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) {
				g.strokeStyle = t.line
				g.globalAlpha = 0.5
				g.beginPath()
				g.moveTo(x(ms), ruler - 6)
				g.lineTo(x(ms), h)
				g.stroke()
				g.globalAlpha = 1
				g.fillStyle = t.dim
				g.textAlign = x(ms) < 20 ? "left" : x(ms) > w - 24 ? "right" : "center"
				g.fillText(ms ? duration(ms) : "0", Math.min(w - 2, Math.max(2, x(ms))), 10)
			}
			g.textAlign = "left"
			spans.forEach((s, i) => {
				const y = ruler + lanes[i] * lane, x0 = x(s.start_ms), x1 = Math.max(x0 + 2, x(s.end_ms ?? end)), q = x(s.queued_ms)
				if (x1 < 0 || q > w) return
				if (x0 - q > 1) { // the wait for a slot
					g.strokeStyle = t.dim
					g.setLineDash([2, 3])
					g.beginPath()
					g.moveTo(q, y + lane / 2)
					g.lineTo(x0, y + lane / 2)
					g.stroke()
					g.setLineDash([])
				}
				g.fillStyle = t.status[s.status] ?? t.dim
				g.globalAlpha = path.size && !path.has(s) ? 0.45 : 1
				g.beginPath()
				g.roundRect(x0, y + 3, x1 - x0, lane - 6, 3)
				g.fill()
				g.globalAlpha = 1
				if (path.has(s) || s.path === route.value.node) {
					g.strokeStyle = s.path === route.value.node ? t.accent : t.text
					g.lineWidth = 2
					g.stroke()
					g.lineWidth = 1
				}
				const name = s.n > 1 ? `${s.path} #${s.n}` : s.path, room = Math.min(x1, w) - Math.max(0, x0) - 10
				if (room > 24) {
					g.save()
					g.beginPath()
					g.rect(Math.max(0, x0), y, room + 5, lane)
					g.clip()
					g.fillStyle = path.size && !path.has(s) ? t.text : t.panel
					g.fillText(name.length > 60 ? name.slice(0, 60) : name, Math.max(0, x0) + 6, y + lane / 2 + 0.5)
					g.restore()
				}
			})
			c.dataset.spans = String(spans.length)
		}
		draw()
		const size = new ResizeObserver(draw)
		size.observe(c.parentElement!)
		const scheme = matchMedia("(prefers-color-scheme: dark)")
		scheme.addEventListener("change", draw)
		return () => { size.disconnect(); scheme.removeEventListener("change", draw) }
	}, [data.value, critical.value, view.value, route.value.node, ended ? 0 : now.value])

	const zoom = (factor: number, at = 0.5) => {
		const { from, to } = view.peek(), width = Math.min(1, Math.max(1e-5, (to - from) * factor))
		const centre = from + (to - from) * at
		const left = Math.min(1 - width, Math.max(0, centre - width * at))
		view.value = { from: left, to: left + width }
	}
	const drag = useRef<{ x: number; from: number; moved: boolean } | undefined>(undefined)
	if (problem.value && !data.value) return <Problem error={problem.value} again={load} />
	return (
		<div class="timeline">
			<div class="tools">
				<select aria-label={texts.critical.deps} value={critical.value} onChange={e => (critical.value = e.currentTarget.value)}>{Object.entries(texts.critical).map(([v, name]) => <option key={v} value={v}>{name}</option>)}</select>
				<span class="meta">{texts.lanes(count)}{data.value?.truncated && `, ${texts.firstSpans(all.length)}`}</span>
				<span class="spring" />
				<button aria-label={texts.zoomOut} onClick={() => zoom(1.6)}>−</button>
				<button onClick={() => (view.value = { from: 0, to: 1 })}>{texts.fit}</button>
				<button aria-label={texts.zoomIn} onClick={() => zoom(1 / 1.6)}>+</button>
			</div>
			{data.value && !all.length && <Empty title={texts.noSpans} />}
			<div class="scroll" tabIndex={0} role="region" aria-label={texts.timeline}>
				<div class="track-box">
					<canvas ref={canvas} role="img" aria-label={texts.timeline}
						onPointerDown={e => { drag.current = { x: e.clientX, from: view.peek().from, moved: false } }}
						onPointerMove={e => {
							const d = drag.current
							if (d && e.buttons) {
								if (Math.abs(e.clientX - d.x) > 4) d.moved = true
								if (!d.moved) return
								const width = view.peek().to - view.peek().from
								const left = Math.min(1 - width, Math.max(0, d.from - ((e.clientX - d.x) / e.currentTarget.clientWidth) * width))
								view.value = { from: left, to: left + width }
								return
							}
							const span = hit(e.offsetX, e.offsetY)
							tip.value = span && { x: e.offsetX, y: e.offsetY, span }
							e.currentTarget.style.cursor = span ? "pointer" : ""
						}}
						onPointerLeave={() => (tip.value = undefined)}
						onPointerUp={e => {
							const moved = drag.current?.moved
							drag.current = undefined
							const span = hit(e.offsetX, e.offsetY)
							if (!moved && span) { go({ node: span.path }, true); announced.value = texts.nowIs(span.path, span.status) }
						}}
						onWheel={e => { if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(Math.exp(e.deltaY * 0.002), e.offsetX / e.currentTarget.clientWidth) } }}
					/>
					{tip.value && <Tip {...tip.value} />}
				</div>
			</div>
		</div>
	)
}

function Tip({ x, y, span }: { x: number; y: number; span: Span }) {
	return (
		<div class="tip" style={{ left: `${x + 14}px`, top: `${y + 14}px` }}>
			<strong><bdi>{span.path}</bdi></strong> {span.n > 1 && `#${span.n}`}<br />
			{span.status}{span.end_ms !== undefined && `, ${duration(span.end_ms - span.start_ms)}`}
			{span.start_ms - span.queued_ms >= 1 && <><br />{duration(span.start_ms - span.queued_ms)} {texts.queueWait}</>}
		</div>
	)
}

// niceStep is a step of a ruler, at least as large as wished, that people can count in.
function niceStep(least: number): number {
	for (const unit of [0.001, 0.01, 0.1, 1, 10, 100, 1000, 10_000]) for (const k of [1, 2, 5]) if (unit * k >= least) return unit * k
	for (const s of [30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200]) if (s * 1000 >= least) return s * 1000
	return Math.ceil(least / 86_400_000) * 86_400_000
}
