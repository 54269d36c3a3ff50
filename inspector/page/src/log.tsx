import { useSignal } from "@preact/signals"
import { useEffect, useLayoutEffect, useRef } from "preact/hooks"
import { get, url, type Line, type Log } from "./api"
import type { Model } from "./model"
import { go, href, route } from "./route"
import { texts } from "./texts"
import { Empty, Plain, Problem, Time } from "./ui"
import { visibleLines } from "./visible"

const following = 1000 // lines that are kept while following the log
const most = 5000 // the maximum number of kept lines; dropped lines can be loaded again
const onePage = 1000
const behind = 3000 // if the log follows the run and is more than this number of events behind the last event, it jumps to the end
const every = 300 // ms between readings
const intent = 700 // ms during which a gesture counts as the cause of scrolling

// Reading is a task that reads lines. It stops when mine() returns false: its result is then no longer wanted.
type Reading = (mine: () => boolean) => Promise<void>

// filtered reports whether the user has chosen a filter for the lines. A level that includes debugging lines does not filter.
const filtered = () => {
	const { node, level, q } = route.peek()
	return !!(node || q || level === "warn" || level === "error")
}

// LogView shows a part of the log without gaps. Without a filter it begins at the end, with a filter at the start. Further lines are loaded
// on demand. If the last line is shown, new lines of the run are appended.
export function LogView({ model }: { model: Model }) {
	const lines = useSignal<Line[]>([]), follow = useSignal(true), problem = useSignal<Error | undefined>(undefined), note = useSignal(""), ready = useSignal(false)
	const before = useSignal(0) // the parameter for earlier lines; 0: there are none
	const later = useSignal(false) // there are later lines, which are loaded on demand
	const searched = useSignal("") // how far a search has got
	const { node: path, level, q } = route.value
	const after = useRef(0), busy = useRef(false), again = useRef(false), pause = useRef<number | undefined>(undefined), box = useRef<HTMLDivElement>(null), epoch = useRef(0), gesture = useRef(0), anchor = useRef<{ id: string; top: number } | undefined>(undefined), wanted = useRef<Reading | undefined>(undefined)

	const ask = (params: Record<string, number>) => {
		const { node, level, q } = route.peek()
		return get<Log>("log", { run: model.id, path: node, level, q, limit: onePage, ...params })
	}
	// turn performs one Reading at a time, and drops a Reading whose filter is no longer chosen. A Reading that the user requested comes next.
	const turn = async (f: Reading, asked = false) => {
		if (busy.current) {
			if (asked) wanted.current = f
			else again.current = true
			return
		}
		busy.current = true
		again.current = false
		const own = epoch.current
		try {
			await f(() => own === epoch.current)
			if (own === epoch.current) problem.value = undefined
		} catch (err) {
			if (own === epoch.current) problem.value = err as Error
		}
		searched.value = ""
		pause.current = window.setTimeout(() => {
			busy.current = false
			const next = wanted.current
			wanted.current = undefined
			if (own !== epoch.current) void begin()
			else if (next) void turn(next, true)
			else if (again.current) void grow()
		}, own === epoch.current ? every : 0)
	}
	// append adds later lines. Excess lines are dropped at the beginning, and can be loaded again.
	const append = (fresh: Line[], cap: number) => {
		if (!fresh.length) return
		const all = [...lines.peek(), ...fresh]
		if (all.length > cap) {
			if (!follow.peek()) hold()
			before.value = all[all.length - cap]!.id
		}
		lines.value = all.slice(-cap)
	}
	const begin = () => turn(async mine => {
		if (filtered()) {
			await forwards(mine)
		} else {
			const page = await ask({ before: (model.row.peek()?.last ?? 0) + 1 })
			if (!mine()) return
			lines.value = page.lines
			before.value = page.before ?? 0
			after.current = page.after
			later.value = false
			note.value = page.note ?? ""
			again.current ||= page.last > page.after // the run may have gone on since its row was read
		}
		if (mine()) ready.value = true
	})
	// forwards reads up to a page of lines after the last line. A search may need to read many events for this.
	const forwards = async (mine: () => boolean) => {
		const fresh: Line[] = []
		for (;;) {
			const page = await ask({ after: after.current })
			if (!mine()) return
			after.current = page.after
			note.value = page.note ?? ""
			fresh.push(...page.lines)
			later.value = page.more
			if (!page.more || fresh.length >= onePage) break
			searched.value = texts.searched(page.after, page.last)
			if (fresh.length) { append(fresh.splice(0), most); ready.value = true }
		}
		append(fresh, most)
	}
	// grow reads new lines at the end.
	const grow = () => {
		if (later.peek() || !ready.peek()) return
		return turn(async mine => {
			for (let pages = 0; ; pages++) {
				const page = await ask({ after: after.current })
				if (!mine()) return
				if (after.current < page.first) note.value = page.note ?? ""
				if (follow.peek() && !filtered() && page.last - page.after > behind) { // the log grows faster than the page can read: jump to the end and drop the earlier lines, so that there is no gap
					const end = await ask({ before: page.last + 1 })
					if (!mine()) return
					lines.value = end.lines
					before.value = end.before ?? 0
					after.current = end.after
					again.current = true
					return
				}
				after.current = page.after
				const room = most - lines.peek().length
				if (!follow.peek() && page.lines.length > room) { // the user is reading earlier lines, so append drops none of them
					after.current = room ? page.lines[room - 1]!.id : lines.peek().at(-1)!.id
					append(page.lines.slice(0, room), most)
					later.value = true
					return
				}
				append(page.lines, follow.peek() ? following : most)
				if (!page.more) return
				if (pages === 3) {
					again.current = true
					return
				}
			}
		})
	}
	const loadEarlier = () => turn(async mine => {
		let from = before.peek()
		const found: Line[] = []
		while (from && found.length < onePage) {
			const page = await ask({ before: from })
			if (!mine()) return
			found.unshift(...page.lines)
			searched.value = texts.searched(from, page.last)
			from = page.before ?? 0
		}
		hold()
		follow.value = false
		const all = [...found, ...lines.peek()]
		if (all.length > most) {
			all.length = most
			after.current = all[most - 1]!.id
			later.value = true
		}
		before.value = from
		lines.value = all
	}, true)
	const loadLater = () => turn(async mine => {
		follow.value = false
		await forwards(mine)
	}, true)
	// hold keeps the first visible line in place when lines are added or dropped above it.
	const hold = () => {
		const b = box.current
		if (!b) return
		const top = b.getBoundingClientRect().top
		for (const row of b.querySelectorAll<HTMLElement>(".line")) {
			const at = row.getBoundingClientRect()
			if (at.bottom > top) {
				anchor.current = { id: row.dataset.id!, top: at.top - top }
				return
			}
		}
	}
	// toEnd resumes following: the lines in between are dropped, and can be loaded.
	const toEnd = () => {
		follow.value = true
		if (!later.peek()) return void grow()
		later.value = false
		void turn(async mine => {
			const page = await ask({ before: (model.row.peek()?.last ?? 0) + 1 })
			if (!mine()) return
			lines.value = page.lines
			before.value = page.before ?? 0
			after.current = page.after
			later.value = false
			again.current = true
		}, true)
	}
	useEffect(() => () => clearTimeout(pause.current), [])
	useEffect(() => {
		epoch.current++
		after.current = before.value = 0
		lines.value = []
		later.value = ready.value = false
		follow.value = true
		if (model.row.peek()) void begin()
	}, [path, level, q, !!model.row.value])
	useEffect(() => { void grow() }, [model.lines.value])
	useLayoutEffect(() => {
		const b = box.current
		if (!b) return
		const held = anchor.current && b.querySelector<HTMLElement>(`.line[data-id="${anchor.current.id}"]`)
		if (held) b.scrollTop += held.getBoundingClientRect().top - b.getBoundingClientRect().top - anchor.current!.top
		else if (follow.value && !later.value) b.scrollTop = b.scrollHeight
		anchor.current = undefined
	}, [lines.value, follow.value, later.value])
	const moved = () => {
		const b = box.current!
		const below = b.scrollHeight - b.scrollTop - b.clientHeight
		if (Date.now() - gesture.current > intent) return // the lines have moved without a gesture of the user
		if (below > 60) follow.value = false
		else if (below < 4 && !later.peek()) follow.value = true
	}
	const touched = () => (gesture.current = Date.now())
	const file = (format: string) => url("logfile", { run: model.id, path, level, q, format })
	return (
		<div class="logview">
			<div class="tools">
				<label>{texts.level} <select value={level || "info"} onChange={e => go({ level: e.currentTarget.value }, true)}>{Object.entries(texts.levels).map(([v, name]) => <option key={v} value={v}>{name}</option>)}</select></label>
				<input type="search" id="search" aria-label={texts.searchLog} placeholder={texts.searchLog} value={q} onInput={e => go({ q: e.currentTarget.value }, true)} />
				{path && <button onClick={() => go({ node: "" }, true)}><Plain text={path} /> ×</button>}
				{searched.value && <span class="meta" role="status">{searched.value}</span>}
				<span class="spring" />
				<span class="downloads"><span class="meta">{texts.downloadLog}</span> <a href={file("text")} download>{texts.asText}</a> <a href={file("jsonl")} download>{texts.asJSONLines}</a></span>
				<label class="check"><input type="checkbox" checked={follow.value && !later.value} onChange={e => (e.currentTarget.checked ? toEnd() : (follow.value = false))} /> {texts.follow}</label>
			</div>
			{problem.value && <Problem error={problem.value} again={() => void (ready.peek() ? grow() : begin())} />}
			<div class="lines" ref={box} tabIndex={0} role="log" aria-live="off" aria-label={texts.log} onScroll={moved} onWheel={touched} onTouchMove={touched} onPointerDown={touched} onPointerMove={e => { if (e.buttons) touched() }} onKeyDown={touched}>
				{before.value > 0 && <p class="edge-of-log"><button onClick={loadEarlier}>{texts.loadEarlier}</button></p>}
				{ready.value && lines.value.length > 0 && !before.value && note.value && <p class="edge-of-log meta">{note.value}</p>}
				{ready.value && !lines.value.length && <Empty title={note.value || texts.noLines} />}
				{lines.value.map(line => (
					<div class={`line l-${line.level}`} key={line.id} data-id={line.id}>
						<Time at={line.time} exact />
						<span class="lvl">{line.level}</span>
						{line.path ? <a href={href({ ...route.value, node: line.path })}><Plain text={line.path} />{(line.attempt ?? 0) > 1 && ` #${line.attempt}`}</a> : <span />}
						<bdi class="text">{visibleLines(line.text)}</bdi>
					</div>
				))}
				{later.value && <p class="edge-of-log"><button onClick={loadLater}>{texts.loadLater}</button></p>}
			</div>
		</div>
	)
}
