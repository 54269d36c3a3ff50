import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, type Line, type Log } from "./api"
import type { Model } from "./model"
import { go, href, route } from "./route"
import { texts } from "./texts"
import { Empty, Plain, Problem } from "./ui"
import { visibleLines } from "./visible"

const most = 1000 // lines that are shown
const behind = 3000 // events before the last one that are read at first
const every = 300 // ms from one reading to the next

export function LogView({ model }: { model: Model }) {
	const lines = useSignal<Line[]>([]), follow = useSignal(true), problem = useSignal<Error | undefined>(undefined), cut = useSignal(false), note = useSignal(""), ready = useSignal(false)
	const { node: path, level, q } = route.value
	const cursor = useRef<number | undefined>(undefined), busy = useRef(false), again = useRef(false), pause = useRef<number | undefined>(undefined), box = useRef<HTMLDivElement>(null), epoch = useRef(0)
	// read takes what is new. A run that is faster than the page is followed at its end: lines in between are left out.
	const read = async () => {
		if (busy.current) {
			again.current = true
			return
		}
		busy.current = true
		again.current = false
		const own = epoch.current, { node: path, level, q } = route.peek()
		const fresh: Line[] = []
		try {
			let after = cursor.current ?? Math.max(0, (model.row.peek()?.last ?? 0) - behind)
			for (let pages = 0; pages < 4; pages++) {
				const page: Log = await get<Log>("log", { run: model.id, path, level, q, after, limit: 1000 })
				if (own !== epoch.current) break
				cut.value ||= cursor.current === undefined && after >= page.first
				cursor.current = after = page.after
				note.value = page.note ?? ""
				fresh.push(...page.lines)
				again.current ||= page.more && pages === 3
				if (!page.more) break
				if (page.last - page.after > behind) {
					cursor.current = after = page.last - behind / 3
					cut.value = true
				}
			}
			if (own === epoch.current) {
				if (fresh.length) {
					const all = [...lines.peek(), ...fresh]
					cut.value ||= all.length > most
					lines.value = all.slice(-most)
				}
				ready.value = true
				problem.value = undefined
			}
		} catch (err) {
			problem.value = err as Error
		}
		pause.current = window.setTimeout(() => {
			busy.current = false
			if (again.current || own !== epoch.current) void read()
		}, own === epoch.current ? every : 0)
	}
	useEffect(() => () => clearTimeout(pause.current), [])
	useEffect(() => {
		epoch.current++
		cursor.current = undefined
		lines.value = []
		cut.value = ready.value = false
		void read()
	}, [path, level, q])
	useEffect(() => { void read() }, [model.lines.value, !!model.row.value])
	useEffect(() => { if (follow.value && box.current) box.current.scrollTop = box.current.scrollHeight }, [lines.value, follow.value])
	return (
		<div class="logview">
			<div class="tools">
				<label>{texts.level} <select value={level || "info"} onChange={e => go({ level: e.currentTarget.value }, true)}>{Object.entries(texts.levels).map(([v, name]) => <option key={v} value={v}>{name}</option>)}</select></label>
				<input type="search" id="search" aria-label={texts.searchLog} placeholder={texts.searchLog} value={q} onInput={e => go({ q: e.currentTarget.value }, true)} />
				{path && <button onClick={() => go({ node: "" }, true)}><Plain text={path} /> ×</button>}
				<span class="spring" />
				<label class="check"><input type="checkbox" checked={follow.value} onChange={e => (follow.value = e.currentTarget.checked)} /> {texts.follow}</label>
			</div>
			{problem.value && <Problem error={problem.value} again={read} />}
			<div class="lines" ref={box} tabIndex={0} role="log" aria-live="off" aria-label={texts.log} onScroll={e => {
				const b = e.currentTarget
				if (b.scrollHeight - b.scrollTop - b.clientHeight > 60) follow.value = false
			}}>
				{cut.value && <p class="meta">{texts.earlier}</p>}
				{ready.value && !lines.value.length && <Empty title={note.value || texts.noLines} />}
				{lines.value.map(line => (
					<div class={`line l-${line.level}`} key={line.id}>
						<time dateTime={line.time}>{line.time.slice(11, 23)}</time>
						<span class="lvl">{line.level}</span>
						{line.path ? <a href={href({ ...route.value, node: line.path })}><Plain text={line.path} />{(line.attempt ?? 0) > 1 && ` #${line.attempt}`}</a> : <span />}
						<bdi class="text">{visibleLines(line.text)}</bdi>
					</div>
				))}
			</div>
		</div>
	)
}
