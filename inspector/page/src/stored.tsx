import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, type StoredNode, type StoredRow } from "./api"
import { generation } from "./live"
import { go, href, openRun, route } from "./route"
import { runStatuses } from "./status"
import { texts } from "./texts"
import { Badge, duration, Empty, Plain, Problem, Time } from "./ui"

// StoredView lists what the store has: runs of other processes, and those that the Runner has forgotten.
export function StoredView() {
	const { status, workflow, q, id } = route.value
	const { rows, next, problem, load, more } = usePages<StoredRow>("stored", { status, workflow, prefix: q }, "runs")
	if (id) return <StoredRun id={id} />
	return (
		<main class="page" id="main">
			<div class="bar">
				<h1>{texts.stored}</h1>
				<span class="spring" />
				<select aria-label={texts.status} value={status} onChange={e => go({ status: e.currentTarget.value })}>
					<option value="">{texts.all}</option>
					{runStatuses.map(s => <option key={s}>{s}</option>)}
				</select>
				<input aria-label={texts.workflow} placeholder={texts.workflow} value={workflow} onChange={e => go({ workflow: e.currentTarget.value }, true)} />
				<input type="search" id="search" aria-label={texts.searchStored} placeholder={texts.searchStored} value={q} onInput={e => go({ q: e.currentTarget.value }, true)} />
			</div>
			<Rows rows={rows} problem={problem} load={load} empty={status || workflow || q ? texts.noMatch : texts.noStored}>
				<table class="runs">
					<thead><tr><th scope="col">{texts.status}</th><th scope="col">{texts.workflow}</th><th scope="col">{texts.run}</th><th scope="col">{texts.created}</th><th scope="col">{texts.ended}</th><th scope="col" class="wide">{texts.labels}</th></tr></thead>
					<tbody>{rows?.map(r => (
						<tr key={r.id}>
							<td><Badge status={r.status} />{r.here && <span class="tag">{texts.here}</span>}</td>
							<td class="name"><Plain text={r.workflow} /></td>
							<td class="name id"><a data-row href={r.here ? openRun(r.id) : href({ view: "stored", id: r.id })}><Plain text={r.id} /></a></td>
							<td><Time at={r.created} /></td>
							<td>{r.ended ? <Time at={r.ended} /> : r.wake_at && <span class="meta">{texts.wakes} <Time at={r.wake_at} /></span>}</td>
							<td class="wide name"><Plain text={Object.entries(r.labels ?? {}).map(([name, value]) => `${name}=${value}`).join(", ")} /></td>
						</tr>
					))}</tbody>
				</table>
			</Rows>
			{next && <p class="more"><button onClick={more}>{texts.more}</button></p>}
		</main>
	)
}

function StoredRun({ id }: { id: string }) {
	const { rows, next, problem, load, more } = usePages<StoredNode>("stored/nodes", { id }, "nodes")
	return (
		<main class="page" id="main">
			<div class="bar"><h1><Plain text={id} /></h1></div>
			<p class="meta"><a href="#/stored">← {texts.stored}</a> · {texts.storedHint}</p>
			<Rows rows={rows} problem={problem} load={load} empty={texts.noStoredNodes}>
				<table class="runs nodes">
					<thead><tr><th scope="col">{texts.node}</th><th scope="col">{texts.status}</th><th scope="col">{texts.attempts}</th><th scope="col">{texts.began}</th><th scope="col">{texts.took}</th><th scope="col" class="wide">{texts.cause}</th></tr></thead>
					<tbody>{rows?.map(n => (
						<tr key={n.path}>
							<td class="name id"><Plain text={n.path} /></td>
							<td><Badge status={n.status} /></td>
							<td class="number">{n.attempt || ""}</td>
							<td><Time at={n.start} /></td>
							<td class="number">{n.start && n.end ? duration(Date.parse(n.end) - Date.parse(n.start)) : ""}</td>
							<td class="wide">{n.cause}</td>
						</tr>
					))}</tbody>
				</table>
			</Rows>
			{next && <p class="more"><button onClick={more}>{texts.more}</button></p>}
		</main>
	)
}

function Rows({ rows, problem, load, empty, children }: { rows?: unknown[]; problem?: Error; load: () => void; empty: string; children: preact.ComponentChildren }) {
	if (problem && !rows) return <Problem error={problem} again={load} />
	if (!rows) return <p class="loading">{texts.loading}</p>
	return rows.length ? <>{children}</> : <Empty title={empty} />
}

// usePages reads a list from its beginning, and further pages on demand.
function usePages<T>(path: string, params: Record<string, string>, field: string) {
	const rows = useSignal<T[] | undefined>(undefined), next = useSignal(""), problem = useSignal<Error | undefined>(undefined), ask = useRef(0)
	const read = async (after: string) => {
		const own = ++ask.current
		try {
			const page = await get<Record<string, unknown>>(path, { ...params, after })
			if (own !== ask.current) return
			const fresh = page[field] as T[]
			rows.value = after ? [...(rows.peek() ?? []), ...fresh] : fresh
			next.value = (page.next as string) ?? ""
			problem.value = undefined
		} catch (err) {
			if (own === ask.current) problem.value = err as Error
		}
	}
	useEffect(() => { void read("") }, [path, JSON.stringify(params), generation.value])
	return { rows: rows.value, next: next.value, problem: problem.value, load: () => void read(""), more: () => void read(next.peek()) }
}
