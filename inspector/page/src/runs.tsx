import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, type Row, type Runs } from "./api"
import { info, may, starting } from "./actions"
import { generation, later, now, onRows } from "./live"
import { go, href, openRun, remember, remembered, route } from "./route"
import { runStatuses } from "./status"
import { texts } from "./texts"
import { Badge, duration, Empty, Plain, Problem, Progress, Time, UndoneTag, Used } from "./ui"
import { visible } from "./visible"

export function RunsView() {
	const rows = useSignal<Row[] | undefined>(undefined), next = useSignal(""), total = useSignal(0), problem = useSignal<Error | undefined>(undefined)
	const { status, undone, workflow, q } = route.value
	const shown = useRef(remembered<number>("shown") ?? 50), ask = useRef(0)
	const load = () => {
		const own = ++ask.current, { status, undone, workflow, q } = route.peek()
		return get<Runs>("runs", { status, compensation: undone, workflow, q, limit: Math.min(500, shown.current) }).then(r => {
			if (own !== ask.current) return
			rows.value = r.runs
			next.value = r.next ?? ""
			total.value = r.total
			problem.value = undefined
		}, err => own === ask.current && (problem.value = err))
	}
	useEffect(() => { void load() }, [status, undone, workflow, q, generation.value])
	useEffect(() => {
		const loading = later(1000, load)
		const off = onRows(m => { // shown rows change at once; which rows match, and their order, a little later
			const changed = new Map(m.runs.map(r => [r.id, r]))
			rows.value = rows.peek()?.map(r => (changed.has(r.id) ? { ...changed.get(r.id)!, error: r.error } : r))
			loading.ask()
		})
		return () => { off(); loading.stop() }
	}, [])
	const more = () => {
		shown.current = Math.min(500, shown.current + 50)
		remember("shown", shown.current)
		void load()
	}
	const filtered = status || undone || workflow || q
	return (
		<main class="page" id="main">
			<div class="bar">
				<h1>{texts.runs}</h1>
				<span class="spring" />
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
			{problem.value && !rows.value && <Problem error={problem.value} again={load} />}
			{!rows.value && !problem.value && <p class="loading">{texts.loading}</p>}
			{rows.value && !rows.value.length && (filtered
				? <Empty title={texts.noMatch}><p><a href="#/runs">{texts.clear}</a></p></Empty>
				: <Empty title={texts.noRuns}><p>{texts.noRunsHint}</p></Empty>)}
			{rows.value && rows.value.length > 0 && (
				<table class="runs">
					<thead><tr><th scope="col">{texts.status}</th><th scope="col">{texts.workflow}</th><th scope="col">{texts.run}</th><th scope="col">{texts.progress}</th><th scope="col">{texts.arrived}</th><th scope="col">{texts.duration}</th><th scope="col" class="wide">{texts.waitsFor}</th></tr></thead>
					<tbody>{rows.value.map(r => <RunRow key={r.id} r={r} />)}</tbody>
				</table>
			)}
			{next.value && <p class="more"><button onClick={more}>{texts.more}</button> <span class="meta">{texts.of(rows.value?.length ?? 0, total.value)}</span></p>}
		</main>
	)
}

// UndoneFilter selects runs by the progress of their undoing.
export function UndoneFilter() {
	return (
		<select aria-label={texts.compensation} value={route.value.undone} onChange={e => go({ undone: e.currentTarget.value })}>
			<option value="">{texts.anyCompensation}</option>
			{Object.entries(texts.undone).map(([state, name]) => <option key={state} value={state}>{name}</option>)}
		</select>
	)
}

// took returns how long a run has taken, up to now if it continues. If it does not, the response has the time.
export function took(r: Row): string {
	if (!r.started) return ""
	return duration(r.duration_ms ?? now.value - Date.parse(r.started))
}

function RunRow({ r }: { r: Row }) {
	return (
		<tr>
			<td><Badge status={r.status} /><UndoneTag state={r.compensation} />{r.degraded && <span class="tag">{texts.degraded}</span>}{r.left && <span class="tag">{texts.left}</span>}</td>
			<td class="name"><Plain text={r.workflow} /></td>
			<td class="name id"><a data-row href={openRun(r.id)}><Plain text={r.id} /></a><Used usage={r.usage} most={3} /></td>
			<td class="bars"><Progress counts={r.counts} total={r.nodes} label={texts.nodesDone(r.done, r.nodes)} /><span class="meta">{r.done}/{r.nodes}</span></td>
			<td><Time at={r.arrived} /></td>
			<td class="number">{took(r)}</td>
			<td class="wide name">
				{r.error ? <span class="problem"><Plain text={r.error} /></span> : r.waiting?.map((path, i) => <a key={path} class="waits" href={openRun(r.id, { node: path })}>{i > 0 && ", "}<Plain text={path} /></a>)}
				{(r.waits ?? 0) > (r.waiting?.length ?? 0) && <span class="meta"> {texts.andMore(r.waits! - r.waiting!.length)}</span>}
			</td>
		</tr>
	)
}
