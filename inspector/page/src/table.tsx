import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, type NodeRow } from "./api"
import { generation } from "./live"
import type { Model } from "./model"
import { href, route } from "./route"
import { texts } from "./texts"
import { Badge, duration, Empty, Problem, Time } from "./ui"

// The nodes as a table: the same as the graph, for the keyboard, screen readers and narrow windows.
export function TableView({ model }: { model: Model }) {
	const rows = useSignal<NodeRow[] | undefined>(undefined), next = useSignal(0), q = useSignal(""), status = useSignal(""), problem = useSignal<Error | undefined>(undefined)
	const inside = route.value.inside, limit = useRef(200), busy = useRef(false), again = useRef(false)
	const load = async (): Promise<void> => {
		if (busy.current) { again.current = true; return }
		busy.current = true
		try {
			const page = await get<{ nodes: NodeRow[]; next?: number }>("nodes", { run: model.id, inside, q: q.value, status: status.value, limit: limit.current })
			rows.value = page.nodes
			next.value = page.next ?? 0
			problem.value = undefined
		} catch (err) { problem.value = err as Error }
		busy.current = false
		if (again.current) { again.current = false; return load() }
	}
	useEffect(() => { void load() }, [inside, q.value, status.value, generation.value])
	useEffect(() => { // at most one request a second while the run is busy
		const timer = setTimeout(() => void load(), 1000)
		return () => clearTimeout(timer)
	}, [model.row.value?.last])
	void model.version.value
	return (
		<div class="tableview">
			<div class="tools">
				{inside && <a class="button" href={href({ ...route.value, inside: "", node: "" })}>← {texts.wholeGraph}</a>}
				{inside && <span class="meta">{texts.inside} <bdi>{inside}</bdi></span>}
				<select aria-label={texts.status} value={status.value} onChange={e => (status.value = e.currentTarget.value)}>
					<option value="">{texts.all}</option>
					{["running", "retrying", "suspended", "failed", "aborted", "ready", "waiting", "idle", "completed", "skipped", "cancelled"].map(s => <option key={s}>{s}</option>)}
				</select>
				<input type="search" id="search" aria-label={texts.searchNodes} placeholder={texts.searchNodes} value={q.value} onInput={e => (q.value = e.currentTarget.value)} />
			</div>
			{problem.value && !rows.value && <Problem error={problem.value} again={load} />}
			{rows.value && !rows.value.length && <Empty title={texts.noNodeMatch} />}
			{rows.value && rows.value.length > 0 && (
				<div class="scroll" tabIndex={0} role="region" aria-label={texts.table}>
					<table>
						<thead><tr><th scope="col">{texts.node}</th><th scope="col">{texts.status}</th><th scope="col">{texts.attempts}</th><th scope="col">{texts.began}</th><th scope="col">{texts.took}</th><th scope="col" class="wide">{texts.error}</th></tr></thead>
						<tbody>{rows.value.map(r => (
							<tr key={r.path} class={r.path === route.value.node ? "selected" : ""}>
								<td class="name"><a data-row href={href({ ...route.value, node: r.path })}><bdi>{r.label || r.id}</bdi></a></td>
								<td><Badge status={model.statuses.get(r.path) ?? r.status} /></td>
								<td class="number">{r.attempts || ""}</td>
								<td><Time at={r.start} /></td>
								<td class="number">{r.start ? duration(r.duration_ms) : ""}</td>
								<td class="wide name problem"><bdi>{r.error}</bdi></td>
							</tr>
						))}</tbody>
					</table>
					{next.value > 0 && limit.current < 1000 && <p class="more"><button onClick={() => { limit.current = 1000; void load() }}>{texts.more}</button></p>}
				</div>
			)}
		</div>
	)
}
