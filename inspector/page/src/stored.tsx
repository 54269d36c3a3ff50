import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, type Queue, type Stored, type StoredRow } from "./api"
import { everySoOften, generation } from "./live"
import { Queues, Since } from "./queues"
import { go, href, openRun, route } from "./route"
import { UndoneFilter } from "./runs"
import { runStatuses } from "./status"
import { texts } from "./texts"
import { Badge, Empty, Plain, Problem, RunBadge, Time, UndoneTag, Used } from "./ui"

// StoredView lists the store's runs: runs of other processes, and runs that the Runner has forgotten.
export function StoredView() {
	const { status, undone, workflow, key, queue, q } = route.value
	const { rows, next, problem, unclaimable, load, more } = useStored({ status, compensation: undone, workflow, key, queue, prefix: q })
	return (
		<main class="page" id="main">
			<div class="bar">
				<h1>{texts.stored}</h1>
				<span class="spring" />
				<label class="check"><input type="checkbox" checked={!!queue} onChange={e => go({ queue: e.currentTarget.checked ? "unclaimable" : "" })} />{texts.unclaimableOnly}</label>
				<UndoneFilter />
				<input aria-label={texts.workflow} placeholder={texts.workflow} value={workflow} onChange={e => go({ workflow: e.currentTarget.value }, true)} />
				<input aria-label={texts.key} placeholder={texts.key} value={key} onChange={e => go({ key: e.currentTarget.value }, true)} />
				<input type="search" id="search" aria-label={texts.searchStored} placeholder={texts.searchStored} value={q} onInput={e => go({ q: e.currentTarget.value }, true)} />
			</div>
			<nav class="chips" aria-label={texts.status}>
				<a class={status ? "" : "on"} aria-current={!status} href={href({ ...route.value, status: "" })}>{texts.all}</a>
				{runStatuses.map(s => <a key={s} class={status === s ? "on" : ""} aria-current={status === s} href={href({ ...route.value, status: s })}><Badge status={s} /></a>)}
			</nav>
			<Queues list={unclaimable.list} runs={unclaimable.runs} />
			{!rows && (problem ? <Problem error={problem} again={load} /> : <p class="loading">{texts.loading}</p>)}
			{rows?.length === 0 && <Empty title={status || undone || workflow || key || queue || q ? texts.noMatch : texts.noStored} />}
			{rows && rows.length > 0 && (
				<table class="runs">
					<thead><tr><th scope="col">{texts.status}</th><th scope="col">{texts.workflow}</th><th scope="col">{texts.run}</th><th scope="col">{texts.created}</th><th scope="col">{texts.endedOrNext}</th><th scope="col" class="wide waiting">{texts.waitsFor}</th></tr></thead>
					<tbody>{rows.map(r => (
						<tr key={r.id}>
							<td><RunBadge status={r.status} gone={r.gone} /><UndoneTag state={r.compensation} />{r.here && <span class="tag">{texts.here}</span>}{r.queue && !r.gone && <span class="tag lost">{texts.unclaimable}</span>}</td>
							<td class="name"><Plain text={r.workflow} />{r.queue && <div class="meta">{r.queue.plan && texts.version(r.queue.plan)} {r.queue.since && <Since queue={r.queue} />}</div>}{r.labels && <div class="meta labels" role="note" aria-label={texts.labels}><Plain text={Object.entries(r.labels).map(([name, value]) => `${name}=${value}`).join(", ")} /></div>}</td>
							<td class="name id"><a data-row href={openRun(r.id)}><Plain text={r.id} /></a><KeyTag r={r} /><Used usage={r.usage} most={3} /></td>
							<td><Time at={r.created} /></td>
							<td>{r.ended ? <Time at={r.ended} /> : r.wake_at && <span class="meta">{r.status === "suspended" ? texts.sleeps : texts.wakes} <Time at={r.wake_at} /></span>}</td>
							<td class="wide waiting name"><Waits r={r} /></td>
						</tr>
					))}</tbody>
				</table>
			)}
			{next && <p class="more"><button onClick={more}>{texts.more}</button></p>}
		</main>
	)
}

// KeyTag shows a run's key; a click lists the stored runs with that key.
export function KeyTag({ r }: { r: { key?: string; priority?: number } }) {
	if (!r.key && !r.priority) return null
	return (
		<span class="meta">
			{r.key && <> {texts.key.toLowerCase()} <a href={href({ ...(route.value.view === "stored" ? route.value : { view: "stored" }), key: r.key })}><Plain text={r.key} /></a></>}
			{!!r.priority && <> {texts.priority(r.priority)}</>}
		</span>
	)
}

// Waits lists the waits of a stored run, with the beginning and the deadline of each.
function Waits({ r }: { r: StoredRow }) {
	return (
		<>
			{r.waiting?.map(w => (
				<div key={w.path}>
					<a class="waits" href={openRun(r.id, { node: w.path })}><Plain text={w.label || w.path} /></a>
					<span class="meta"> {w.answered ? texts.requestWaits : <>{w.since && <>{texts.since} <Time at={w.since} /></>}{w.deadline && <>, {texts.until} <Time at={w.deadline} /></>}</>}</span>
				</div>
			))}
			{(r.waits ?? 0) > (r.waiting?.length ?? 0) && <span class="meta">{texts.andMore(r.waits! - r.waiting!.length)}</span>}
		</>
	)
}

// useStored reads the first page of the list, and further pages on demand.
function useStored(params: Record<string, string>) {
	const rows = useSignal<StoredRow[] | undefined>(undefined), next = useSignal(""), problem = useSignal<Error | undefined>(undefined), ask = useRef(0), paged = useRef(false)
	const unclaimable = useSignal<{ list?: Queue[]; runs: number }>({ runs: 0 })
	const read = async (after: string) => {
		const own = ++ask.current
		paged.current = !!after
		try {
			const page = await get<Stored>("stored", { ...params, after })
			if (own !== ask.current) return
			const before = after ? rows.peek() ?? [] : page.urgent ?? [], known = new Set(before.map(r => r.id))
			rows.value = [...before, ...page.runs.filter(r => !known.has(r.id))] // runs that need somebody come first, and are not repeated in their places
			next.value = page.next ?? ""
			unclaimable.value = { list: page.unclaimable, runs: page.unclaimable_runs ?? 0 }
			problem.value = undefined
		} catch (err) {
			if (own === ask.current) problem.value = err as Error
		}
	}
	useEffect(() => { void read("") }, [JSON.stringify(params), generation.value])
	useEffect(() => everySoOften(() => { if (!paged.current) void read("") }), [JSON.stringify(params)])
	return { rows: rows.value, next: next.value, problem: problem.value, unclaimable: unclaimable.value, load: () => void read(""), more: () => void read(next.peek()) }
}
