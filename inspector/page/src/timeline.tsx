import { useSignal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import { get, type Span, type Timeline } from "./api"
import { theme, type Theme } from "./draw"
import { now } from "./live"
import type { Model } from "./model"
import { go, href, remember, remembered, route } from "./route"
import { byDependencies, bySlots, lanesOf, neighbourSpan, type Lanes } from "./spans"
import { statusIn } from "./status"
import { texts } from "./texts"
import { announced, clock, duration, Empty, Plain, Problem, shortcut } from "./ui"
import { visible } from "./visible"

const lane = 24, ruler = 26

// Range is the visible part of the timeline; from and to are between 0 and 1.
interface Range { from: number; to: number }

const whole: Range = { from: 0, to: 1 }

// at returns a range of the given width, moved so that it lies within 0 to 1.
const at = (from: number, width: number): Range => {
	const left = Math.min(1 - width, Math.max(0, from))
	return { from: left, to: left + width }
}

// TimelineView shows the attempts of a run in lanes along a time axis.
export function TimelineView({ model }: { model: Model }) {
	const { data, problem, load } = useTimeline(model)
	const range = useSignal<Range>(remembered<Range>("range") ?? whole)
	const { critical, node } = route.value
	const all = data?.spans ?? []
	const lanes = useMemo(() => lanesOf(all), [data])
	const path = useMemo(() => criticalPath(critical, all, lanes, model), [data, critical, model.structure.value])
	const picked = useRef<Span | undefined>(undefined)

	const look = (to: Range) => {
		range.value = to
		remember("range", to)
	}
	const zoom = (factor: number, centre = 0.5) => {
		const { from, to } = range.peek(), width = Math.min(1, Math.max(1e-5, (to - from) * factor))
		look(at(from + (to - from) * centre - width * centre, width))
	}
	const pan = (by: number) => look(at(range.peek().from + by, range.peek().to - range.peek().from))
	const select = (span: Span | undefined) => {
		if (!span) return
		picked.current = span
		announced.value = texts.nowIs(visible(span.path), span.status)
		go({ node: span.path }, true)
	}
	const keys = useRef<(e: KeyboardEvent) => boolean>(() => false)
	keys.current = e => {
		const sideways = e.key === "ArrowLeft" ? -1 : e.key === "ArrowRight" ? 1 : 0
		if (e.key === "+" || e.key === "=") zoom(1 / 1.6)
		else if (e.key === "-") zoom(1.6)
		else if (e.key === "0") look(whole)
		else if (sideways && e.shiftKey) pan((sideways * (range.peek().to - range.peek().from)) / 4)
		else if (e.key.startsWith("Arrow") && !document.activeElement?.closest("aside, .tools, .tabs, .top")) {
			const own = picked.current?.path === node ? lanes.spans.find(s => s.path === node && s.n === picked.current!.n) : lanes.spans.find(s => s.path === node)
			select(neighbourSpan(lanes, own, e.key))
		} else return false
		return true
	}
	useEffect(() => shortcut(e => keys.current(e)), [])

	if (problem && !data) return <Problem error={problem} again={load} />
	return (
		<div class="timeline">
			<div class="tools">
				<select aria-label={texts.critical.deps} value={critical || "deps"} onChange={e => go({ critical: e.currentTarget.value === "deps" ? "" : e.currentTarget.value })}>{Object.entries(texts.critical).map(([v, name]) => <option key={v} value={v}>{name}</option>)}</select>
				<span class="meta">{texts.lanes(lanes.count)}{data?.truncated && `, ${texts.firstSpans(all.length)}`}{!!data?.memoized && `, ${texts.memoizedCount(data.memoized)}`}{data?.note && ` · ${data.note}`}</span>
				{data?.start && endOf(data) !== undefined && <span class="meta" data-end>{texts.expectedEnd} {clock(new Date(Date.parse(data.start) + endOf(data)!))}</span>}
				{data?.late_node && <span class="meta" data-end>{texts.endUnknown}: <a href={href({ ...route.value, node: data.late_node })}><Plain text={data.late_node} /></a> {texts.isLate}</span>}
				<span class="spring" />
				<button aria-label={texts.zoomOut} onClick={() => zoom(1.6)}>−</button>
				<button onClick={() => look(whole)}>{texts.fit}</button>
				<button aria-label={texts.zoomIn} onClick={() => zoom(1 / 1.6)}>+</button>
			</div>
			{path.length > 0 && <Trail path={path} now={data!.now_ms} />}
			{data && !all.length && <Empty title={texts.noSpans} />}
			<Track lanes={lanes} end={data ? axisOf(data) : 1} now={data?.now_ms ?? 0} expected={data && endOf(data)} path={path} range={range.value} ended={!!model.row.value?.ended} select={select} look={look} zoom={zoom} />
		</div>
	)
}

// useTimeline reads the attempts. It reads them again and again while the run continues.
function useTimeline(model: Model) {
	const data = useSignal<Timeline | undefined>(undefined), problem = useSignal<Error | undefined>(undefined), busy = useRef(false)
	const load = async () => {
		if (busy.current) return
		busy.current = true
		try {
			const read = await get<Timeline>("timeline", { run: model.id }), gone = !!model.row.peek()?.gone
			data.value = { ...read, spans: read.spans.map(s => ({ ...s, status: statusIn(gone, s.status) })) }
			problem.value = undefined
		} catch (err) { problem.value = err as Error }
		busy.current = false
	}
	const ended = !!model.row.value?.ended
	useEffect(() => {
		void load()
		if (ended) return
		const timer = setInterval(load, 2000)
		return () => clearInterval(timer)
	}, [ended])
	return { data: data.value, problem: problem.value, load }
}

// endOf returns when the run is expected to end, on the axis of the timeline. While a step exceeds its estimate, the end is unknown.
const endOf = (data: Timeline) => data.remaining_ms === undefined || data.late_node ? undefined : data.now_ms + data.remaining_ms

// axisOf returns the end of the axis. It includes the expected end of the run unless the attempts would then be very short.
const axisOf = (data: Timeline) => Math.max(lastOf(data), Math.min((endOf(data) ?? 0) * 1.03, 2 * data.now_ms))

const lastOf = (data: Timeline) => data.spans.reduce((last, s) => Math.max(last, s.end_ms ?? data.now_ms), 1)

// criticalPath returns the path in the order of time.
function criticalPath(which: string, all: Span[], lanes: Lanes, model: Model): Span[] {
	const path = which === "none" ? [] : which === "slots" ? bySlots(lanes) : byDependencies(all, model.graphs.get(""))
	return [...path].sort((a, b) => a.start_ms - b.start_ms)
}

const mostSteps = 30 // the maximum number of steps that Trail lists

// Trail shows the critical path as text.
function Trail({ path, now }: { path: Span[]; now: number }) {
	const took = (path.at(-1)!.end_ms ?? now) - path[0].queued_ms
	return (
		<p class="trail meta">{texts.criticalPath(duration(took))} {path.slice(0, mostSteps).map((s, i) => (
			<span key={`${s.path}#${s.n}`}>{i > 0 && " → "}<a href={href({ ...route.value, node: s.path })}><Plain text={s.path} />{s.n > 1 && ` #${s.n}`}</a></span>
		))}{path.length > mostSteps && ` ${texts.andMore(path.length - mostSteps)}`}</p>
	)
}

interface TrackProps {
	lanes: Lanes; end: number; now: number; expected?: number; path: Span[]; range: Range; ended: boolean
	select: (span?: Span) => void; look: (to: Range) => void; zoom: (factor: number, centre: number) => void
}

// Track draws the lanes. Its canvas is as high as the window, and shows the part that is scrolled into view.
function Track({ lanes, end, now: read, expected, path, range, ended, select, look, zoom }: TrackProps) {
	const canvas = useRef<HTMLCanvasElement>(null), scroll = useRef<HTMLDivElement>(null)
	const tip = useSignal<{ x: number; y: number; span: Span } | undefined>(undefined)
	const drag = useRef<{ x: number; from: number; moved: boolean } | undefined>(undefined)
	const { spans } = lanes, from = range.from * end, to = range.to * end
	const node = route.value.node

	const hit = (x: number, y: number): Span | undefined => {
		const c = canvas.current!, row = Math.floor((y - ruler + scroll.current!.scrollTop) / lane)
		const time = from + (x / c.clientWidth) * (to - from), slack = ((to - from) / c.clientWidth) * 2
		return y < ruler ? undefined : spans.find((s, i) => lanes.lanes[i] === row && time >= s.queued_ms - slack && time <= (s.end_ms ?? read) + slack)
	}
	useEffect(() => {
		const c = canvas.current!, box = scroll.current!
		const draw = () => {
			const ratio = devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight
			c.width = w * ratio
			c.height = h * ratio
			const g = c.getContext("2d")!
			g.scale(ratio, ratio)
			drawTrack(g, { w, h, top: box.scrollTop, from, to, now: read, expected }, lanes, new Set(path), node, theme())
			c.dataset.spans = String(spans.length)
			c.dataset.late = spans.filter(s => isLate(s, read)).map(s => s.path).join(" ")
			c.dataset.expected = expected !== undefined && expected <= to ? String(Math.round(expected)) : ""
		}
		draw()
		const size = new ResizeObserver(draw)
		size.observe(box)
		const scheme = matchMedia("(prefers-color-scheme: dark)")
		scheme.addEventListener("change", draw)
		box.addEventListener("scroll", draw)
		return () => { size.disconnect(); scheme.removeEventListener("change", draw); box.removeEventListener("scroll", draw) }
	}, [lanes, path, from, to, end, read, expected, node, ended ? 0 : now.value])
	return (
		<div class="scroll track" ref={scroll} tabIndex={0} role="region" aria-label={texts.timeline}>
			<div class="track-box" style={{ height: `${ruler + lanes.count * lane + 22}px` }}>
				<canvas ref={canvas} role="img" aria-label={texts.timeline}
					onPointerDown={e => { drag.current = { x: e.clientX, from: range.from, moved: false } }}
					onPointerMove={e => {
						const d = drag.current
						if (d && e.buttons) {
							d.moved ||= Math.abs(e.clientX - d.x) > 4
							const width = range.to - range.from
							if (d.moved) look(at(d.from - ((e.clientX - d.x) / e.currentTarget.clientWidth) * width, width))
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
						if (!moved) select(hit(e.offsetX, e.offsetY))
					}}
					onWheel={e => { if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(Math.exp(e.deltaY * 0.002), e.offsetX / e.currentTarget.clientWidth) } }}
				/>
				{tip.value && <Tip {...tip.value} y={tip.value.y + (scroll.current?.scrollTop ?? 0)} />}
			</div>
		</div>
	)
}

interface Part { w: number; h: number; top: number; from: number; to: number; now: number; expected?: number } // the visible part of the track

const isLate = (s: Span, now: number) => s.late_ms !== undefined && now > s.late_ms

function drawTrack(g: CanvasRenderingContext2D, part: Part, { spans, lanes }: Lanes, path: Set<Span>, node: string, t: Theme): void {
	const { w, h, top, from, to, now, expected } = part
	const x = (ms: number) => ((ms - from) / (to - from)) * w
	g.font = "11px system-ui, sans-serif"
	g.textBaseline = "middle"
	g.save()
	g.beginPath()
	g.rect(0, ruler - 6, w, h)
	g.clip()
	const ticks = ticksOf(from, to, w)
	g.strokeStyle = t.soft
	for (const ms of ticks) line(g, x(ms), ruler - 6, x(ms), h)
	spans.forEach((s, i) => {
		const y = ruler + lanes[i] * lane - top, x0 = x(s.start_ms), x1 = Math.max(x0 + 2, x(s.end_ms ?? now)), queued = x(s.queued_ms)
		if (x1 < 0 || queued > w || y + lane < 0 || y > h) return
		if (x0 - queued > 1) { // the wait for a slot
			g.strokeStyle = t.dim
			g.setLineDash([2, 3])
			line(g, queued, y + lane / 2, x0, y + lane / 2)
			g.setLineDash([])
		}
		const off = path.size > 0 && !path.has(s)
		g.fillStyle = t.status[s.status] ?? t.dim
		g.globalAlpha = off ? 0.45 : 1
		g.beginPath()
		g.roundRect(x0, y + 3, x1 - x0, lane - 6, 3)
		g.fill()
		g.globalAlpha = 1
		if (path.has(s) || s.path === node) {
			g.strokeStyle = s.path === node ? t.accent : t.text
			g.lineWidth = 2
			g.stroke()
			g.lineWidth = 1
		}
		const late = isLate(s, now)
		if (late) { // a dashed frame around the time that was not expected
			g.strokeStyle = t.text
			g.lineWidth = 2
			g.setLineDash([3, 3])
			const at = x(s.late_ms!)
			g.strokeRect(at, y + 3, Math.max(2, x1 - at), lane - 6)
			g.setLineDash([])
			g.lineWidth = 1
		}
		drawName(g, (late ? `${texts.late}: ` : "") + visible(s.path, 60) + (s.n > 1 ? ` #${s.n}` : ""), Math.max(0, x0), Math.min(x1, w), y, off ? t.text : t.panel)
	})
	if (expected !== undefined && expected <= to) {
		g.strokeStyle = t.accent
		g.setLineDash([6, 4])
		line(g, x(expected), ruler - 6, x(expected), h)
		g.setLineDash([])
		g.fillStyle = t.text
		g.textAlign = "right"
		g.fillText(texts.expectedEnd, x(expected) - 4, h - 10)
	}
	g.restore()
	g.fillStyle = t.dim
	for (const ms of ticks) {
		g.textAlign = x(ms) < 20 ? "left" : x(ms) > w - 24 ? "right" : "center"
		g.fillText(ms ? duration(ms, true) : "0", Math.min(w - 2, Math.max(2, x(ms))), 10)
	}
}

function drawName(g: CanvasRenderingContext2D, name: string, left: number, right: number, y: number, colour: string): void {
	if (right - left < 34) return
	g.save()
	g.beginPath()
	g.rect(left, y, right - left - 5, lane)
	g.clip()
	g.textAlign = "left"
	g.fillStyle = colour
	g.fillText(name, left + 6, y + lane / 2 + 0.5)
	g.restore()
}

function line(g: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
	g.beginPath()
	g.moveTo(x0, y0)
	g.lineTo(x1, y1)
	g.stroke()
}

function Tip({ x, y, span }: { x: number; y: number; span: Span }) {
	return (
		<div class="tip" style={{ left: `${x + 14}px`, top: `${y + 14}px` }}>
			<strong><Plain text={span.path} /></strong> {span.n > 1 && `#${span.n}`}<br />
			{span.status}{span.end_ms !== undefined && `, ${duration(span.end_ms - span.start_ms, true)}`}
			{span.start_ms - span.queued_ms >= 1 && <><br />{duration(span.start_ms - span.queued_ms)} {texts.queueWait}</>}
		</div>
	)
}

// ticksOf returns the times of a ruler, in round steps.
function ticksOf(from: number, to: number, width: number): number[] {
	const step = niceStep((to - from) / Math.max(2, width / 110)), ticks: number[] = []
	for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) ticks.push(ms)
	return ticks
}

function niceStep(least: number): number {
	for (const unit of [0.001, 0.01, 0.1, 1, 10, 100, 1000, 10_000]) for (const k of [1, 2, 5]) if (unit * k >= least) return unit * k
	for (const s of [30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200]) if (s * 1000 >= least) return s * 1000
	return Math.ceil(least / 86_400_000) * 86_400_000
}
