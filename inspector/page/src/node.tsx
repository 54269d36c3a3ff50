import { useSignal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { get, Refused, type Neighbour, type NodeDetail, type NodeUndone, type Value } from "./api"
import { asked, mayDo, undoModes, verbNames, type Verb } from "./actions"
import { AnsweredText, AnswerForm } from "./gates"
import { generation, now } from "./live"
import type { Model } from "./model"
import { Requests } from "./requests"
import { go, href, route } from "./route"
import { ended, totalOf, type Counts } from "./status"
import { texts } from "./texts"
import { announced, Badge, between, duration, InsideProgress, Plain, Problem, RunBadge, Shown, Time, UndoneTag, Used } from "./ui"
import { visible, visibleLines } from "./visible"

const close = () => go({ node: "" }, true)

export function NodePanel({ model, path }: { model: Model; path: string }) {
	const detail = useSignal<NodeDetail | undefined>(undefined), problem = useSignal<Error | undefined>(undefined)
	const status = (model.version.value, model.status(path))
	const load = () => get<NodeDetail>("node", { run: model.id, path }).then(d => {
		if (route.peek().node !== path) return
		if (detail.peek()?.path === path && detail.peek()?.status !== d.status) announced.value = texts.nowIs(visible(path), d.status)
		detail.value = d
		problem.value = undefined
	}, err => (problem.value = err))
	useEffect(() => {
		if (detail.peek()?.path !== path) detail.value = undefined
		void load()
	}, [path, status, generation.value, model.attempts.get(path)])
	useEffect(() => { // a running node changes without a change of its status
		if (!detail.value || ended(detail.value.status)) return
		const timer = setInterval(load, 3000)
		return () => clearInterval(timer)
	}, [path, detail.value?.status])
	const d = detail.value
	return (
		<aside class="panel" aria-label={texts.node}>
			<header>
				<h2 tabIndex={-1}><Plain text={d?.label || path} /></h2>
				<button class="quiet" aria-label={texts.close} onClick={close}>×</button>
			</header>
			{problem.value && !d && (problem.value instanceof Refused && problem.value.status === 404 ? <p class="problem" role="alert"><Plain text={problem.value.message} /></p> : <Problem error={problem.value} again={load} />)}
			{!d && !problem.value && <p class="loading">{texts.loading}</p>}
			{d && <Detail d={d} run={model.id} counts={model.insides.get(path)?.counts} reload={load} />}
		</aside>
	)
}

function Detail({ d, run, counts, reload }: { d: NodeDetail; run: string; counts?: Counts; reload: () => void }) {
	const began = d.start ? Date.parse(d.start) : 0
	const took = d.status === "running" && began ? (d.gone ? Date.parse(d.gone) : now.value) - began : d.duration_ms
	const offered: Record<string, Verb> = { retry: "retry", redrive: "redrive", cancel: "node/cancel" }
	const verbs = [...d.actions.map(a => offered[a]), ...(d.actions.includes("compensate") ? undoModes : [])].filter(verb => verb && mayDo(verb))
	const copied = useSignal(false)
	return (
		<div class="panel-body">
			<p class="why">{d.gone && d.status === "running" ? <RunBadge status={d.status} gone={d.gone} /> : <Badge status={d.status} />} <span><Plain text={d.why.text} />{d.why.since && <span class="meta"> {texts.since} <Time at={d.why.since} /></span>}{d.why.until && <span class="meta"> {texts.until} <Time at={d.why.until} /></span>}</span></p>
			{(d.why.nodes?.length ?? 0) > 0 && <p class="links">{d.why.nodes!.map(p => <a key={p} href={nodeHref(p)}><Plain text={p} /></a>)}{d.why.more ? <span class="meta">{texts.andMore(d.why.more)}</span> : null}</p>}
			<p class="meta facts">
				<span class="mono"><Plain text={d.path} /></span><span>{texts.type[d.type] ?? d.type}{d.kind && d.kind !== d.type && <>, <Plain text={d.kind} /></>}</span>
				{(took > 0 || d.start) && <span>{duration(took)}</span>}
				{d.flags?.map(f => <span class="tag" key={f}>{f}</span>)}
				{d.groups?.map(g => <span class="tag" key={g}><Plain text={g} /></span>)}
			</p>
			{d.usage && <p class="meta"><Used usage={d.usage} /></p>}
			{counts && <p class="inside-counts"><InsideProgress counts={counts} /><span class="meta">{Object.entries(counts).map(([status, n]) => `${n} ${status}`).join(", ")}</span></p>}
			<p class="buttons">
				{d.composite && <button onClick={() => go({ inside: d.path, node: "", tab: route.peek().tab === "table" ? "table" : "graph" })}>{texts.inside}</button>}
				{verbs.map(verb => {
					const label = verb === "redrive" && d.type === "map" ? itemsLabel(counts) : undefined
					return <button key={verb} onClick={() => (asked.value = { verb, run, node: d.path, label })}>{label ?? verbNames[verb]}</button>
				})}
				<a class="button" href={href({ ...route.value, tab: "log", node: d.path })}>{texts.log}</a>
				<button onClick={() => void navigator.clipboard?.writeText(location.href).then(() => (copied.value = true))}>{copied.value ? texts.copied : texts.copyLink}</button>
			</p>
			<Requests list={d.requests} />
			{d.gate && !d.requests?.some(q => q.kind === "signal" && q.status === "waiting") && d.actions.includes("signal") && <Section title={texts.answer}>{d.gate.info && <Shown value={d.gate.info} run={run} path={d.path} of="info" />}<AnswerForm gate={d.gate} done={reload} /></Section>}
			{d.decision && <p class="notice">{texts.answeredBy} <Plain text={d.decision.by || texts.somebody} />: <AnsweredText answer={d.decision} /></p>}
			{d.undone && <Undone u={d.undone} />}
			{!d.data && <p class="notice">{texts.noData}</p>}
			{d.note && <p class="meta"><Plain text={d.note} /></p>}
			{(d.errors?.length ?? 0) > 0 && <Section title={texts.error}><ol class="chain">{d.errors!.map((e, i) => <li key={i}><pre tabIndex={0}><bdi>{visibleLines(e)}</bdi></pre></li>)}</ol></Section>}
			{d.tries.length > 0 && (
				<Section title={texts.attempts}>
					<table class="tries"><thead><tr><th scope="col">#</th><th scope="col">{texts.began}</th><th scope="col">{texts.took}</th><th scope="col">{texts.error}</th></tr></thead>
						<tbody>{d.tries.map(t => (
							<tr key={t.n}><td>{t.n}</td><td><Time at={t.start} /></td><td>{t.start && t.end ? duration(between(t.start, t.end)) : ""}</td>
								<td><Plain text={t.error} />{t.delay_ms ? <span class="meta"> {texts.nextIn(duration(t.delay_ms))}</span> : null}</td></tr>
						))}</tbody>
					</table>
				</Section>
			)}
			{(d.inputs?.length ?? 0) > 0 && <Section title={texts.input}>{d.inputs!.map(i => <div key={i.name}><h4><Plain text={i.name} />{i.open && <span class="tag">{texts.stillOpen}</span>}</h4>{i.value && <Shown value={i.value} run={run} path={d.path} of="input" name={i.name} />}</div>)}</Section>}
			<Values title={texts.output} value={d.output} run={run} path={d.path} of="output" />
			<Values title={texts.config} value={d.config} run={run} path={d.path} of="config" />
			<Around title={texts.upstream} list={d.upstream} />
			<Around title={texts.downstream} list={d.downstream} />
		</div>
	)
}

// itemsLabel says how many items of a map run again; empty if none failed or was stopped.
function itemsLabel(counts: Counts = {}) {
	const failed = counts.failed ?? 0, stopped = (counts.aborted ?? 0) + (counts.cancelled ?? 0)
	if (failed + stopped === 0) return undefined
	return texts.redriveItems(failed + stopped, stopped > 0, totalOf(counts))
}

// Undone shows the progress of undoing the node, since when, and by whom.
function Undone({ u }: { u: NodeUndone }) {
	return (
		<Section title={texts.compensation}>
			<p class="undone">
				<UndoneTag state={u.state} />{u.unknown && <span class="tag">{texts.unknownEffect}</span>}
				{(u.attempts ?? 0) > 1 && <span class="meta">{texts.attemptsMade(u.attempts!)}</span>}
				{u.began && <span class="meta">{texts.since} <Time at={u.began} /></span>}
				{u.ended && <span class="meta">{texts.until} <Time at={u.ended} /></span>}
			</p>
			{u.by_hand && <p class="notice"><Plain text={texts.byHand(u.by || texts.somebody)} />{u.comment && <q><Plain text={u.comment} /></q>}</p>}
			{u.error && <p class="problem"><Plain text={u.error} /></p>}
		</Section>
	)
}

const nodeHref = (node: string) => href({ ...route.value, node })

function Section({ title, children }: { title: string; children: preact.ComponentChildren }) {
	return <section><h3>{title}</h3>{children}</section>
}

function Values({ title, value, run, path, of }: { title: string; value?: Value; run: string; path: string; of: string }) {
	return value ? <Section title={title}><Shown value={value} run={run} path={path} of={of} /></Section> : null
}

function Around({ title, list }: { title: string; list: Neighbour[] }) {
	if (!list.length) return null
	return (
		<Section title={title}>
			<ul class="around">{list.map((n, i) => (
				<li key={i}><a href={nodeHref(n.path)}><Badge status={n.status} quiet /> <Plain text={n.path} /></a>
					<span class="meta">{[n.label, n.on, n.param && `→ ${n.param}`, n.data && texts.dataOnly].filter(Boolean).map(t => <span key={String(t)}><Plain text={String(t)} /> </span>)}<span class={`edge ${n.edge}`}>{texts.edge[n.edge]}</span></span>
				</li>
			))}</ul>
		</Section>
	)
}
