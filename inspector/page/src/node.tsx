import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { get, Refused, type Neighbour, type NodeDetail, type NodeUndone, type Value } from "./api"
import { asked, mayDo, undoModes, verbNames, type Verb } from "./actions"
import { AnsweredText, Question } from "./gates"
import { LateTag } from "./expected"
import { generation, now } from "./live"
import type { Model } from "./model"
import { Requests } from "./requests"
import { go, href, openRun, route } from "./route"
import { ended, statusIn, totalOf, type Counts } from "./status"
import { texts } from "./texts"
import { announced, Badge, between, duration, InsideProgress, Plain, Problem, roughly, RunBadge, Shown, Time, UndoneTag, Used } from "./ui"
import { visible, visibleLines } from "./visible"

const close = () => go({ node: "" }, true)

export function NodePanel({ model, path }: { model: Model; path: string }) {
	const detail = useSignal<NodeDetail | undefined>(undefined), problem = useSignal<Error | undefined>(undefined)
	const status = (model.version.value, model.status(path))
	const load = () => get<NodeDetail>("node", { run: model.id, path }).then(d => {
		if (route.peek().node !== path) return
		if (detail.peek()?.path === path && detail.peek()?.status !== d.status) announced.value = texts.nowIs(visible(path), statusIn(!!d.gone, d.status))
		detail.value = d
		problem.value = undefined
	}, err => (problem.value = err))
	useEffect(() => {
		if (detail.peek()?.path !== path) detail.value = undefined
		void load()
	}, [path, status, generation.value, model.attempts.get(path)])
	useEffect(() => { // reload at intervals: a running node may change without a change of its status
		if (!detail.value || ended(detail.value.status)) return
		const timer = setInterval(load, 3000)
		return () => clearInterval(timer)
	}, [path, detail.value?.status])
	const panel = useRef<HTMLElement>(null)
	useEffect(() => { // when the panel closes, the focus in it returns to where it was before
		const before = document.activeElement as HTMLElement | null, own = panel.current!
		return () => { if (own.contains(document.activeElement)) before?.focus?.() }
	}, [])
	const d = detail.value
	return (
		<aside class="panel" ref={panel} aria-label={texts.node}>
			<header>
				<h2 tabIndex={-1}><Plain text={d?.label || path} /></h2>
				<button class="quiet" aria-label={texts.close} onClick={close}>×</button>
			</header>
			{problem.value && !d && (problem.value instanceof Refused && problem.value.status === 404 ? <p class="problem" role="alert"><Plain text={problem.value.message} /></p> : <Problem error={problem.value} again={load} />)}
			{!d && !problem.value && <p class="loading">{texts.loading}</p>}
			{d && <Detail d={d} run={model.id} stored={model.row.value?.stored} counts={model.insides.get(path)?.counts} reload={load} />}
		</aside>
	)
}

function Detail({ d, run, stored, counts, reload }: { d: NodeDetail; run: string; stored?: boolean; counts?: Counts; reload: () => void }) {
	const began = d.start ? Date.parse(d.start) : 0
	const runs = d.status === "running" && !d.gone
	const took = d.status === "running" && began ? (d.gone ? Date.parse(d.gone) : now.value) - began : d.duration_ms
	const offered: Record<string, Verb> = { retry: "retry", redrive: "redrive", cancel: "node/cancel" }
	const verbs = [...d.actions.map(a => offered[a]), ...(d.actions.includes("compensate") ? undoModes : [])].filter(verb => verb && mayDo(verb))
	const copied = useSignal(false)
	return (
		<div class="panel-body">
			<p class="why">{d.gone && d.status === "running" ? <RunBadge status={d.status} gone={d.gone} /> : <Badge status={d.status} />} <span><Plain text={d.errors?.length ? firstLine(d.why.text) : d.why.text} />{d.why.since && <span class="meta"> {texts.since} <Time at={d.why.since} /></span>}{d.why.until && <span class="meta">{d.why.kind === "running" ? <>, {texts.stoppedAt} <Time at={d.why.until} /> {texts.ifNotEnded(bound(d))}</> : <> {texts.until} <Time at={d.why.until} /></>}</span>}</span></p>
			{(d.why.nodes?.length ?? 0) > 0 && <p class="links">{d.why.nodes!.map(p => <a key={p} href={nodeHref(p)}><Plain text={p} /></a>)}{d.why.more ? <span class="meta">{texts.andMore(d.why.more)}</span> : null}</p>}
			<p class="meta facts">
				<span class="mono"><Plain text={d.path} /></span><span>{texts.type[d.type] ?? d.type}{d.kind && d.kind !== d.type && <>, <Plain text={d.kind} /></>}</span>
				{(took > 0 || d.start) && <span>{runs ? texts.runningFor(duration(took)) : duration(took)}{d.estimate_ms !== undefined && !ended(d.status) && ` ${texts.ofAbout(roughly(d.estimate_ms))}`}</span>}<LateTag late={d.late} />
				{runs && !stored && d.type === "step" && d.estimate_ms === undefined && <span>{texts.noEstimate}</span>}
				{runs && d.timeout_ms !== undefined && <span>{[d.timeout_ms > 0 && texts.timeoutOf(duration(d.timeout_ms)), (d.overall_timeout_ms ?? 0) > 0 && texts.overallOf(duration(d.overall_timeout_ms!))].filter(Boolean).join(", ") || texts.noTimeout}</span>}
				{d.flags?.map(f => <span class="tag" key={f}>{texts.flag[f] ?? f}</span>)}
				{d.hit && <span class="hit">{d.hit.run ? <>{texts.byRun} <a href={openRun(d.hit.run, { node: d.path })}><Plain text={d.hit.run} /></a></> : texts.byEarlierRun} <Time at={d.hit.at} /></span>}
				{d.groups?.map(name => {
					const slots = d.slots?.find(s => s.name === name)
					return <span class="tag" key={name} title={slots && visible(texts.slotsHint(slots))}><Plain text={slots ? texts.slots(slots) : texts.group(name)} /></span>
				})}
			</p>
			{d.usage && <p class="meta"><Used usage={d.usage} /></p>}
			{counts && <p class="inside-counts"><InsideProgress counts={counts} /><span class="meta">{Object.entries(counts).filter(([status]) => !ended(status)).map(([status, n]) => `${n} ${status}`).join(", ")}</span></p>}
			<p class="buttons">
				{route.value.tab !== "table" && route.value.tab !== "timeline" && route.value.around !== d.path && <button onClick={() => go({ around: d.path, failed: "" })}>{texts.neighbourhood}</button>}
				{d.composite && <button onClick={() => go({ inside: d.path, node: "", tab: route.peek().tab === "table" ? "table" : "graph" })}>{texts.inside}</button>}
				{verbs.map(verb => {
					const label = verb === "redrive" && d.type === "map" ? itemsLabel(counts) : undefined
					return <button key={verb} onClick={() => (asked.value = { verb, run, node: d.path, label })}>{label ?? verbNames[verb]}</button>
				})}
				{d.type === "map" && d.actions.includes("redrive") && mayDo("redrive") && itemsLabel(counts) && <a class="button" href={openRun(run, { tab: "table", inside: d.path, status: counts?.failed ? "failed" : "" })}>{texts.chooseItems}</a>}
				<a class="button" href={href({ ...route.value, tab: "log", node: d.path })}>{texts.log}</a>
				<button onClick={() => void navigator.clipboard?.writeText(location.href).then(() => (copied.value = true))}>{copied.value ? texts.copied : texts.copyLink}</button>
			</p>
			<Requests list={d.requests} />
			{d.gate && !d.requests?.some(q => q.kind === "signal" && q.status === "waiting") && d.actions.includes("signal") && <Section title={texts.answer}><Question gate={d.gate} done={outcome => { if (!outcome.first) reload() }} /></Section>}
			{d.decision && <p class="notice"><Plain text={d.decision.by || texts.someone} /> {texts.answered} <AnsweredText answer={d.decision} /></p>}
			{d.undone && <Undone u={d.undone} />}
			{!d.data && <p class="notice">{texts.noData}</p>}
			{d.note && <p class="meta"><Plain text={d.note} /></p>}
			{(d.errors?.length ?? 0) > 0 && <Failure key={d.path} text={stepError(d.errors!)} />}
			{d.tries.length > 0 && (
				<Section title={texts.attempts}>
					<table class="tries"><thead><tr><th scope="col">#</th><th scope="col">{texts.began}</th><th scope="col">{texts.took}</th><th scope="col">{texts.error}</th></tr></thead>
						<tbody>{d.tries.map(t => (
							<tr key={t.n}><td>{t.n}</td><td><Time at={t.start} /></td><td>{t.start && t.end ? duration(between(t.start, t.end)) : ""}</td>
								<td><Plain text={firstLine(t.error ?? "")} />{t.delay_ms ? <span class="meta"> {texts.nextIn(duration(t.delay_ms))}</span> : null}</td></tr>
						))}</tbody>
					</table>
				</Section>
			)}
			{(d.inputs?.length ?? 0) > (d.gate?.bases?.length ?? 0) && <Section title={texts.input}>{d.inputs!.map(i => <div key={i.name}><h4><Plain text={i.name} />{i.open && <span class="tag">{texts.stillOpen}</span>}</h4>{i.value && <Shown value={i.value} run={run} path={d.path} of="input" name={i.name} />}</div>)}</Section>}
			<Values title={texts.output} value={d.output} run={run} path={d.path} of="output" />
			<Values title={texts.config} value={d.config} run={run} path={d.path} of="config" />
			<Around title={texts.upstream} list={d.upstream} gone={!!d.gone} />
			<Around title={texts.downstream} list={d.downstream} gone={!!d.gone} />
		</div>
	)
}

// bound names the timeout at which a running attempt is stopped; it returns "" if another bound, such as the run's, comes before it.
function bound({ why, timeout_ms: own = 0, overall_timeout_ms: overall = 0 }: NodeDetail): string {
	const whole = why.since && why.until ? between(why.since, why.until) : 0
	return own > 0 && Math.abs(whole - own) < 1000 ? texts.timeoutIs(duration(own)) : overall > 0 && whole <= overall ? texts.overallIs(duration(overall)) : ""
}

// firstLine returns the first line of an error. The panel shows the whole error elsewhere.
const firstLine = (text: string) => text.replace(/\n[^]*/, " …")

// stepError returns the text of the step's error, which includes the texts of the errors that it wraps. The first error of the list is
// left out, since it adds only the node and the kind.
function stepError(errors: string[]) {
	return errors[1] ?? errors[0]!
}

const foldedLines = 8, foldedLength = 600

// Failure shows an error once, with its line breaks, and folds it if it is long.
function Failure({ text }: { text: string }) {
	const whole = useSignal(false), copied = useSignal(false)
	const start = text.split("\n").slice(0, foldedLines).join("\n").slice(0, foldedLength).replace(/[\ud800-\udbff]$/, "")
	return (
		<Section title={texts.error}>
			<div class="failure"><pre tabIndex={0}><bdi>{visibleLines(whole.value ? text : start)}{!whole.value && start !== text && "…"}</bdi></pre></div>
			<p class="buttons">
				{start !== text && <button aria-expanded={whole.value} onClick={() => (whole.value = !whole.value)}>{whole.value ? texts.showLess : texts.showAll}</button>}
				<button onClick={() => void navigator.clipboard?.writeText(text).then(() => (copied.value = true))}>{copied.value ? texts.copied : texts.copyError}</button>
			</p>
		</Section>
	)
}

// itemsLabel returns a text about how many items of a map run again, or "" if no item failed or was stopped.
function itemsLabel(counts: Counts = {}) {
	const failed = counts.failed ?? 0, stopped = (counts.aborted ?? 0) + (counts.cancelled ?? 0)
	if (failed + stopped === 0) return undefined
	return texts.redriveItems(failed + stopped, stopped > 0, totalOf(counts))
}

// Undone shows the progress of undoing the node, when it began, and who did it.
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

function Around({ title, list, gone }: { title: string; list: Neighbour[]; gone: boolean }) {
	if (!list.length) return null
	return (
		<Section title={title}>
			<ul class="around">{list.map((n, i) => (
				<li key={i}><a href={nodeHref(n.path)}><Badge status={statusIn(gone, n.status)} quiet /> <Plain text={n.path} /></a>
					<span class="meta">{[n.label, n.on, n.param && `→ ${n.param}`, n.data && texts.dataOnly].filter(Boolean).map(t => <span key={String(t)}><Plain text={String(t)} /> </span>)}<span class={`edge ${n.edge}`}>{texts.edge[n.edge]}</span></span>
				</li>
			))}</ul>
		</Section>
	)
}
