import { useSignal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import { get, type NodeRow } from "./api"
import { asked, mayDo } from "./actions"
import { LateTag } from "./expected"
import { generation, later } from "./live"
import type { Model } from "./model"
import { go, href, remember, remembered, route } from "./route"
import { ended, nodeStatuses, statusIn } from "./status"
import { texts } from "./texts"
import { Badge, duration, Empty, InsideProgress, Plain, Problem, roughly, Time } from "./ui"
import { visible } from "./visible"

// The nodes as a table, with the same content as the graph, for the keyboard, screen readers and narrow windows.
export function TableView({ model }: { model: Model }) {
	const rows = useSignal<NodeRow[] | undefined>(undefined), more = useSignal(false), problem = useSignal<Error | undefined>(undefined)
	const shown = useRef(remembered<number>("shown") ?? 200), ask = useRef(0)
	const { inside, q, status, order } = route.value
	const load = async () => {
		const own = ++ask.current, { inside, q, status, order } = route.peek()
		try {
			const fresh: NodeRow[] = []
			let after: number | undefined = 0
			while (after !== undefined && fresh.length < shown.current) {
				const page: { nodes: NodeRow[]; next?: number } = await get("nodes", { run: model.id, inside, q, status, order: order ? "" : "trouble", after, limit: Math.min(1000, shown.current - fresh.length) })
				if (own !== ask.current) return
				fresh.push(...page.nodes)
				after = page.next
			}
			rows.value = [...new Map(fresh.map(r => [r.path, r])).values()] // a node may move from one page to the next
			more.value = after !== undefined
			problem.value = undefined
		} catch (err) {
			if (own === ask.current) problem.value = err as Error
		}
	}
	const showMore = () => {
		shown.current += 1000
		remember("shown", shown.current)
		void load()
	}
	const chosen = useSignal<string[]>([]), run = model.row.value
	const choosing = !!run && ended(run.status) && run.actions.includes("redrive") && mayDo("redrive")
	const choose = (paths: string[], on: boolean) => (chosen.value = [...chosen.value.filter(p => !paths.includes(p)), ...(on ? paths : [])])
	const paths = rows.value?.map(r => r.path) ?? []
	const reading = useMemo(() => later(1000, load), [])
	useEffect(() => reading.stop, [])
	useEffect(() => model.want([inside]), [inside])
	useEffect(() => { void load() }, [inside, q, status, order, generation.value])
	useEffect(reading.ask, [model.version.value])
	return (
		<div class="tableview">
			<div class="tools">
				{inside && <a class="button" href={href({ ...route.value, inside: "", node: "" })}>← {texts.wholeGraph}</a>}
				{inside && <span class="meta">{texts.inside} <Plain text={inside} /></span>}
				<select aria-label={texts.status} value={status} onChange={e => go({ status: e.currentTarget.value }, true)}>
					<option value="">{texts.all}</option>
					{nodeStatuses.map(s => <option key={s}>{s}</option>)}
				</select>
				<label class="check"><input type="checkbox" checked={order !== "graph"} onChange={e => go({ order: e.currentTarget.checked ? "" : "graph" }, true)} />{texts.troubleFirst}</label>
				<input type="search" id="search" aria-label={texts.searchNodes} placeholder={texts.searchNodes} value={q} onInput={e => go({ q: e.currentTarget.value }, true)} />
				{choosing && chosen.value.length > 0 && <>
					<button class="primary" onClick={() => (asked.value = { verb: "redrive", run: model.id, nodes: chosen.value, label: texts.redriveChosen(chosen.value.length), done: () => (chosen.value = []) })}>{texts.redriveChosen(chosen.value.length)}</button>
					<button onClick={() => (chosen.value = [])}>{texts.chooseNone}</button>
				</>}
			</div>
			{problem.value && !rows.value && <Problem error={problem.value} again={load} />}
			{rows.value && !rows.value.length && <Empty title={texts.noNodeMatch} />}
			{rows.value && rows.value.length > 0 && (
				<div class="scroll" tabIndex={0} role="region" aria-label={texts.table}>
					<table>
						<thead><tr>{choosing && <th scope="col"><input type="checkbox" aria-label={texts.chooseAll} checked={paths.every(p => chosen.value.includes(p))} onChange={e => choose(paths, e.currentTarget.checked)} /></th>}<th scope="col">{texts.node}</th><th scope="col">{texts.status}</th><th scope="col" class="spare">{texts.attempts}</th><th scope="col" class="spare">{texts.began}</th><th scope="col">{texts.took}</th><th scope="col" class="wide">{texts.error}</th></tr></thead>
						<tbody>{rows.value.map(r => (
							<tr key={r.path} class={r.path === route.value.node ? "selected" : ""}>
								{choosing && <td><input type="checkbox" aria-label={texts.chooseNode(visible(r.label || r.id))} checked={chosen.value.includes(r.path)} onChange={e => choose([r.path], e.currentTarget.checked)} /></td>}
								<td class="name"><a data-row href={href({ ...route.value, node: r.path })}><Plain text={r.label || r.id} /></a><InsideProgress counts={model.insides.get(r.path)?.counts} /></td>
								<td><NodeStatus status={model.statuses.get(r.path) ?? statusIn(!!run?.gone, r.status)} slotOf={r.slot_of} /><LateTag late={model.isLate(r.path) || (r.late && !ended(model.statuses.get(r.path) ?? r.status))} />{r.memoized && <span class="tag">{texts.flag.memoized}</span>}</td>
								<td class="number spare">{r.attempts || ""}</td>
								<td class="spare"><Time at={r.start} /></td>
								<td class="number">{r.start ? duration(r.duration_ms) : ""}{r.start && r.estimate_ms !== undefined && !ended(r.status) && <div class="meta">{texts.ofAbout(roughly(r.estimate_ms))}</div>}</td>
								<td class="wide name problem"><Plain text={r.error} /></td>
							</tr>
						))}</tbody>
					</table>
					{more.value && <p class="more"><button onClick={showMore}>{texts.more}</button></p>}
				</div>
			)}
		</div>
	)
}

// NodeStatus shows the status of a node, and for a ready node the group whose slot it waits for.
function NodeStatus({ status, slotOf }: { status: string; slotOf?: string }) {
	if (status !== "ready" || !slotOf) return <Badge status={status} />
	return <><Badge status={status} quiet /> <span class="meta">{texts.waitsForSlotOf} <Plain text={slotOf} /></span></>
}
