import { useSignal, type Signal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import { get, type Count, type Row, type Runs } from "./api"
import { info, may, starting, tasks } from "./actions"
import { Expected } from "./expected"
import { generation, learn, listTurns, now, onRows, restrained } from "./live"
import { go, href, openRun, remember, remembered, route, toNode, type Route } from "./route"
import { Rows } from "./rows"
import { ended, runStatuses } from "./status"
import { texts } from "./texts"
import { Badge, duration, Empty, Plain, Problem, Progress, tally, Time, UndoneTag, Used } from "./ui"
import { visible } from "./visible"

export function RunsView() {
	const rows = useMemo(() => new Rows(), []), next = useSignal(""), total = useSignal(0), problem = useSignal<Error | undefined>(undefined)
	const { status, undone, workflow, q, order } = route.value
	const shown = useRef(remembered<number>("shown") ?? 50), ask = useRef(0)
	const load = () => {
		const own = ++ask.current, { status, undone, workflow, q, order } = route.peek()
		return get<Runs>("runs", { status, compensation: undone, workflow, q, order, limit: Math.min(500, shown.current) }).then(r => {
			if (own !== ask.current) return
			rows.read(r.runs)
			learn(r.runs)
			next.value = r.next ?? ""
			total.value = r.total
			problem.value = undefined
		}, err => own === ask.current && (problem.value = err))
	}
	useEffect(() => { void load() }, [status, undone, workflow, q, order, generation.value])
	useEffect(() => {
		const loading = restrained(700, load)
		const offs = [onRows(m => rows.apply(m.runs)), listTurns.subscribe(loading.ask)] // rows change with the stream; which rows are shown, and their order, change a little later
		return () => { offs.forEach(off => off()); loading.stop(); rows.stop() }
	}, [])
	const more = () => {
		shown.current = Math.min(500, shown.current + 50)
		remember("shown", shown.current)
		void load()
	}
	const ids = rows.ids.value, filtered = status || undone || workflow || q
	const matches = useStoredMatches(!!filtered && info.value.stored, { status, undone, workflow, q }), found = matches?.some(m => m.count.total > 0)
	return (
		<main class="page" id="main">
			<div class="bar">
				<h1>{texts.runs}</h1>
				<span class="spring" />
				<label class="check"><input type="checkbox" checked={order === "trouble"} onChange={e => go({ order: e.currentTarget.checked ? "trouble" : "" })} />{texts.troubleFirst}</label>
				<select aria-label={texts.workflow} value={workflow} onChange={e => go({ workflow: e.currentTarget.value })}>
					<option value="">{texts.anyWorkflow}</option>
					{info.value.known.map(w => <option key={w} value={w}>{visible(w)}</option>)}
				</select>
				<UndoneFilter />
				<input type="search" id="search" aria-label={texts.searchRuns} placeholder={texts.searchRuns} value={q} onInput={e => go({ q: e.currentTarget.value }, true)} />
				{may("start") && info.value.workflows.length > 0 && <button class="primary" onClick={() => (starting.value = true)}>{texts.start}</button>}
			</div>
			<nav class="chips" aria-label={texts.status}>
				<a class={status ? "" : "on"} aria-current={!status} href={href({ ...route.value, status: "" })}>{texts.all}</a>
				{runStatuses.map(s => (
					<a key={s} class={status === s ? "on" : ""} aria-current={status === s} href={href({ ...route.value, status: s })}>
						<Badge status={s} /> <span class="count">{info.value.counts[s] ?? 0}</span>
					</a>
				))}
			</nav>
			<StoredNeeds />
			{filtered && info.value.stored && !(found && ids?.length === 0) && <p class="stored-matches meta" role="status"><StoredMatches list={matches} /></p>}
			{problem.value && !ids && <Problem error={problem.value} again={load} />}
			{(ids ? !ids.length && filtered && !matches : !problem.value) && <p class="loading">{texts.loading}</p>}
			{ids && !ids.length && (filtered
				? matches && <Empty title={found ? texts.onlyStored : texts.noMatch}>{found && <p class="stored-matches" role="status"><StoredMatches list={matches} /></p>}<p><a href="#/runs">{texts.clear}</a></p></Empty>
				: <Empty title={texts.noRuns}><p>{texts.noRunsHint}</p></Empty>)}
			{ids && ids.length > 0 && (
				<table class="runs">
					<thead><tr><th scope="col">{texts.status}</th><th scope="col">{texts.workflow}</th><th scope="col">{texts.run}</th><th scope="col">{texts.progress}</th><th scope="col">{texts.arrived}</th><th scope="col">{texts.duration}</th><th scope="col" class="wide waiting">{texts.reason}</th></tr></thead>
					<tbody>{ids.map(id => <RunRow key={id} row={rows.row(id)} />)}</tbody>
				</table>
			)}
			{next.value && <p class="more"><button onClick={more}>{texts.more}</button> <span class="meta">{texts.of(ids?.length ?? 0, total.value)}</span></p>}
		</main>
	)
}

// StoredNeeds says how many runs of the store need somebody. The list has only runs of this process.
function StoredNeeds() {
	const { stored_waiting: asking = 0, stored_gone: gone = 0 } = tasks.value
	if (asking + gone === 0) return null
	return <p class="notice stored-needs" role="status">{texts.inStore} {asking > 0 && <a href="#/gates">{texts.runsAsk(asking)}</a>}{asking > 0 && gone > 0 && ", "}{gone > 0 && <a href="#/stored">{texts.runsLost(gone)}</a>}</p>
}

interface Match { count: Count; words: string; to: Partial<Route> } // the runs of the store that a search finds, and where they are listed

// useStoredMatches counts the runs of the store that match the filters of the list; it returns undefined while the numbers are not known. The
// store finds a text only as the beginning of an id or as the whole name of a workflow.
function useStoredMatches(wanted: boolean, { status, undone, workflow, q }: { status: string; undone: string; workflow: string; q: string }): Match[] | undefined {
	const key = JSON.stringify([status, undone, workflow, q]), read = useSignal<{ key: string; list: Match[] } | undefined>(undefined), ask = useRef(0)
	useEffect(() => {
		const own = ++ask.current
		if (!wanted) return
		const searches: [string, Partial<Route>][] = q ? [[texts.storedPrefix(visible(q, 80)), { workflow, q }], ...(workflow ? [] : [[texts.storedWorkflow(visible(q, 80)), { workflow: q }] as [string, Partial<Route>]])] : [[texts.storedFilters, { workflow }]]
		const timer = setTimeout(() => void Promise.all(searches.map(async ([words, to]) => ({ count: await get<Count>("stored/count", { status, compensation: undone, workflow: to.workflow, prefix: to.q }), words, to: { status, undone, ...to } }))).then(list => {
			if (own === ask.current) read.value = { key, list: list.filter((x, i) => i === 0 || x.count.total > 0) }
		}, () => own === ask.current && (read.value = { key, list: [] })), settled)
		return () => clearTimeout(timer)
	}, [key, wanted, generation.value])
	return wanted ? (read.value?.key === key ? read.value.list : undefined) : []
}

// StoredMatches says how many runs of the store match, and leads to them.
function StoredMatches({ list }: { list?: Match[] }) {
	return <>{list?.map(({ count, words, to }) => {
		const text = <>{texts.storedMatch(count.total, !!count.more)} {words}</>
		return <span key={words}>{count.total ? <a href={href({ view: "stored", ...to })}>{text}</a> : text}</span>
	})}</>
}

const settled = 300 // ms for which the filters must not change before the store is asked

// UndoneFilter selects runs by the progress of their compensations.
export function UndoneFilter() {
	return (
		<select aria-label={texts.compensation} value={route.value.undone} onChange={e => go({ undone: e.currentTarget.value })}>
			<option value="">{texts.anyCompensation}</option>
			{Object.entries(texts.undone).map(([state, name]) => <option key={state} value={state}>{name}</option>)}
		</select>
	)
}

// took returns how long a run has taken: up to now if the run continues, and otherwise the time in the response.
export function took(r: Row): string {
	if (!r.started) return ""
	return duration(r.duration_ms ?? now.value - Date.parse(r.started))
}

// Stopped says why a run was stopped as a whole and, if a person requested the stop, who did so and for what reason.
export function Stopped({ r }: { r: Row }) {
	const cause = ended(r.status) && texts.stop[r.cause ?? ""]
	if (!cause) return null
	return <span class="stopped">{cause}{r.stopped_by && <> {texts.stoppedBy} <Plain text={r.stopped_by} /></>}{r.stop_reason && <>: <q><Plain text={r.stop_reason} /></q></>}</span>
}

// AtWork says which node runs.
export function AtWork({ r }: { r: Row }) {
	const { running, counts } = r, more = (counts.running ?? 0) - 1
	return running ? <span class="at-work meta">{texts.runsNow} <a href={toNode(r.id, running.path)}><Plain text={running.label || running.path} /></a>{more > 0 && ` ${texts.moreRunning(more)}`}</span> : null
}

// FailedSoFar says how many nodes of an unfinished run have failed.
export function FailedSoFar({ r }: { r: Row }) {
	const n = r.counts.failed ?? 0
	return n && !ended(r.status) ? <a class="tag lost" href={openRun(r.id, { tab: "table", status: "failed" })}>{texts.failedSoFar(n)}</a> : null
}

// Cause shows why a run failed, as a link to the node. The whole cause comes first, and then the path, which is cut if it is
// long.
export function Cause({ r }: { r: Row }) {
	if (!r.error) return null
	const path = r.error_path ?? r.failed?.[0] ?? ""
	return <a class="problem cause" href={openRun(r.id, path ? { node: path } : {})} title={visible(path ? `${r.error} (${path})` : r.error, 1000)}><span><Plain text={r.error} /></span><span class="path"><Plain text={path} /></span></a>
}

// Took is a component of its own, since it changes every second while the run continues.
const Took = ({ r }: { r: Row }) => <>{took(r)}</>

function RunRow({ row }: { row: Signal<Row> }) {
	const r = row.value
	return (
		<tr>
			<td><Badge status={r.status} /><FailedSoFar r={r} /><UndoneTag state={r.compensation} />{r.degraded && <span class="tag">{texts.degraded}</span>}{r.left && <span class="tag">{texts.left}</span>}</td>
			<td class="name"><Plain text={r.workflow} /></td>
			<td class="name id"><a data-row href={openRun(r.id)}><Plain text={r.id} /></a><Used usage={r.usage} most={3} /></td>
			<td class="bars"><Progress counts={r.counts} total={r.nodes} label={texts.ofNodes(tally(r.counts, r.nodes))} /><span class="meta">{tally(r.counts, r.nodes)}</span></td>
			<td><Time at={r.arrived} /></td>
			<td class="number"><Took r={r} /> <Expected r={r} /></td>
			<td class="wide waiting name">
				<Stopped r={r} />{r.error ? <Cause r={r} /> : !!r.waits && <><span class="meta">{texts.waitsFor.toLowerCase()} </span>{r.waiting?.map((path, i) => <a key={path} class="waits" href={openRun(r.id, { node: path })}>{i > 0 && ", "}<Plain text={path} /></a>)}</>}
				{(r.waits ?? 0) > (r.waiting?.length ?? 0) && <span class="meta"> {texts.andMore(r.waits! - r.waiting!.length)}</span>}
				<AtWork r={r} />
			</td>
		</tr>
	)
}
