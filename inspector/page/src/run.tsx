import { useEffect, useMemo } from "preact/hooks"
import type { Row, RunVerb } from "./api"
import { asked, info, mayDo, redriven, undoModes, verbNames } from "./actions"
import { GraphView, picked } from "./graph"
import { everySoOften, generation, onNodes, onRows } from "./live"
import { LogView } from "./log"
import { Model } from "./model"
import { NodePanel } from "./node"
import { needsSteps, NextSteps, openWaits, PlaceInLine } from "./queues"
import { Requests } from "./requests"
import { Expected, LateSoFar } from "./expected"
import { go, href, openRun, route, unfiltered, type Route } from "./route"
import { AtWork, Cause, FailedSoFar, Stopped, took } from "./runs"
import { ended, otherEnds } from "./status"
import { KeyTag } from "./stored"
import { TableView } from "./table"
import { texts } from "./texts"
import { TimelineView } from "./timeline"
import { announced, clock, Plain, Problem, Progress, RunBadge, shortcut, tally, Time, UndoneTag, Used } from "./ui"

// Attention links to the nodes for which a person may have to act: nodes that have failed, and nodes that wait for an answer.
function Attention({ r, model }: { r: Row; model: Model }) {
	const failed = r.failed ?? (model.version.value, r.counts.failed ? model.having("failed", listed) : []), waits = ended(r.status) || needsSteps(r) ? [] : openWaits(r)
	const list = (kind: string, name: string, paths: string[], total: number) => paths.length > 0 && (
		<p class={`run-note attention ${kind}`}>{name} {paths.map((path, i) => <span key={path}>{i > 0 && ", "}<a href={openRun(r.id, { tab: "graph", node: path })}><Plain text={path} /></a></span>)}{total > paths.length && <span class="meta"> {texts.andMore(total - paths.length)}</span>}</p>
	)
	return <>{list(failed.length > 1 ? "failures" : "failures one", texts.haveFailed, failed, r.counts.failed ?? 0)}{list("waits", texts.waitsForAnswer, waits, waits.length + (r.waits ?? 0) - (r.waiting?.length ?? 0))}</>
}

const listed = 5

// settled reports whether no node of an ended run would run again in a redrive or a fork of the whole run.
const settled = (r: Row) => r.status === "completed" && !r.degraded && !otherEnds.some(s => s !== "skipped" && r.counts[s])

// redrivenText says what became of a redrive for which this page has asked.
function redrivenText({ id }: Row): string {
	const own = redriven.value[id]
	return own ? texts.redrivenAt(clock(new Date(own.at)), info.value.actor ?? "", own.total) : ""
}

// failedAgain reports whether the run has failed after a redrive for which this page has asked.
const failedAgain = (r: Row) => r.status === "failed" && !!r.ended && Date.parse(r.ended) >= Date.parse(redriven.value[r.id]?.at ?? "")

// wide reports whether the window is wide enough to show a readable graph.
export const wide = () => innerWidth >= 700

const tabs: [Route["tab"], string, string][] = [["graph", texts.graph, "g"], ["timeline", texts.timeline, "t"], ["log", texts.log, "l"], ["table", texts.table, "n"]]

const order: Exclude<RunVerb, "compensate">[] = ["fork", "redrive", "leave", "abort", "cancel"]

const forecastEvery = 10_000 // ms between readings of a running run that knows how long it will take
const storedEvery = 3000 // ms between readings of a stored run, whose changes are not in the stream, and of a pending run, whose place depends on other runs

export function RunView({ id }: { id: string }) {
	const model = useMemo(() => new Model(id), [id])
	useEffect(() => {
		const offs = [onNodes(m => model.apply(m)), onRows(m => {
			model.rows(m.runs)
			if (m.removed.includes(id)) void model.reload()
		})]
		return () => { offs.forEach(off => off()); model.close() }
	}, [model])
	useEffect(() => { void model.reload() }, [model, generation.value])
	const row = model.row.value
	const atWork = row?.status === "pending" || !!row?.stored && (!ended(row.status) || !!row.requests?.some(q => q.status === "waiting"))
	useEffect(() => {
		if (!atWork) return row?.stored ? everySoOften(() => void model.reload()) : undefined // somebody may redrive an ended run elsewhere
		const timer = setInterval(() => void model.reload(), storedEvery)
		return () => clearInterval(timer)
	}, [model, atWork, row?.stored])
	const foretold = row?.remaining_ms !== undefined && row.status === "running"
	const every = row?.late_ms === undefined ? Math.min(Math.max(row?.remaining_ms ?? 0, 1000), forecastEvery) : forecastEvery
	useEffect(() => { // when a step takes longer than expected, only a new forecast says so
		if (!foretold) return
		const timer = setInterval(() => void model.readRow(), every)
		return () => clearInterval(timer)
	}, [model, foretold, every])
	useEffect(() => { if (row) announced.value = texts.runIs(row.status, failedAgain(row), redrivenText(row)) }, [row?.status])
	useEffect(() => shortcut(e => {
		const tab = tabs.find(t => t[2] === e.key), { node, inside } = route.peek()
		if (tab) go({ ...unfiltered, tab: tab[0] }, true)
		else if (e.key === "Escape") node ? go({ node: "" }, true) : picked.peek() ? (picked.value = "") : inside ? go({ inside: "" }) : (location.hash = model.row.peek()?.stored ? "#/stored" : "#/runs")
		else return false
		return true
	}), [])
	if (model.problem.value) return <main class="page" id="main"><Problem error={model.problem.value} again={() => model.reload()} /></main>
	if (!row) return <main class="page" id="main"><p class="loading">{texts.loading}</p></main>
	const tab = route.value.tab || (wide() ? "graph" : "table")
	const verbs = [...(row.actions.includes("compensate") ? undoModes : []), ...order.filter(verb => row.actions.includes(verb) && !(settled(row) && (verb === "redrive" || verb === "fork")))].filter(mayDo)
	return (
		<main class="run" id="main">
			<header class="run-head">
				<div class="run-title">
					<h1><Plain text={row.workflow || row.id} /></h1>
					<RunBadge status={row.status} gone={row.gone} /><FailedSoFar r={row} /><LateSoFar model={model} /><UndoneTag state={row.compensation} />{row.degraded && <span class="tag">{texts.degraded}</span>}{row.left && <span class="tag">{texts.left}</span>}{row.stored && <span class="tag">{texts.stored}</span>}
					<span class="meta">{took(row)}</span> {row.continued && <span class="meta continued">{texts.began.toLowerCase()} <Time at={row.started} />, {texts.continued} <Time at={row.continued} /></span>} <AtWork r={row} /> <Expected r={row} />{row.status === "running" && !row.stored && row.remaining_ms === undefined && <span class="meta">{texts.noEstimateOfRun}</span>}
				</div>
				<Stopped r={row} />
				{row.error && <p class="run-error">{failedAgain(row) && <span class="problem">{texts.failedAgain} <Time at={row.ended} /></span>}<Cause r={row} /></p>}
				{redrivenText(row) && <p class="meta run-note redriven"><Plain text={redrivenText(row)} /></p>}
				<Attention r={row} model={model} />
				<p class="meta mono run-id"><Plain text={row.id} /></p>
				<div class="run-progress"><Progress counts={row.counts} total={row.nodes} label={texts.ofNodes(tally(row.counts, row.nodes))} /><span class="meta">{tally(row.counts, row.nodes)}</span></div>
				<div class="buttons">{verbs.map(verb => {
					const goesOn = verb === "redrive" && !!row.stored && !ended(row.status)
					return <button key={verb} onClick={() => (asked.value = { verb, run: id, goesOn, label: goesOn ? texts.goOn : undefined })}>{goesOn ? texts.goOn : verbNames[verb]}</button>
				})}</div>
				<Requests list={row.requests} />
				{row.usage && <p class="meta run-note"><Used usage={row.usage} /></p>}
				{(row.key || row.priority || row.line) && <p class="meta run-note line"><KeyTag r={row} /> {row.line && !row.queue && <PlaceInLine line={row.line} stored={row.stored} hasKey={!!row.key} />}</p>}
				<NextSteps row={row} />
				{row.note && <p class="meta run-note"><Plain text={row.note} /></p>}
			</header>
			<nav class="tabs" aria-label={texts.views}>
				{tabs.map(([name, label, key]) => <a key={name} class={tab === name ? "on" : ""} aria-current={tab === name ? "page" : undefined} aria-keyshortcuts={key} href={href({ ...route.value, ...unfiltered, tab: name })}>{label}</a>)}
			</nav>
			<div class="split">
				<div class="view">
					{tab === "graph" && <GraphView key={id} model={model} />}
					{tab === "timeline" && <TimelineView model={model} />}
					{tab === "log" && <LogView model={model} />}
					{tab === "table" && <TableView model={model} />}
				</div>
				{route.value.node && tab !== "log" && <NodePanel model={model} path={route.value.node} />}
			</div>
		</main>
	)
}
