import type { InLine, Queue, Row } from "./api"
import { may, mayDo } from "./actions"
import { openRun } from "./route"
import { ended } from "./status"
import { texts } from "./texts"
import { Plain, Time } from "./ui"

// Since shows when a process last served a queue.
export function Since({ queue }: { queue: Queue }) {
	return queue.since ? <span>{texts.since} <Time at={queue.since} /></span> : <span>{texts.neverWorked}</span>
}

// openWaits returns the first nodes of a run that wait for an answer and to which no answer was posted.
export const openWaits = (row: Row) => row.waiting?.filter(path => !row.requests?.some(q => q.kind === "signal" && q.status === "waiting" && q.path === path)) ?? []

// needsSteps reports whether NextSteps has something to say.
export const needsSteps = (row: Row) => !!row.stored && !ended(row.status) && !!(row.queue || row.gone)

// NextSteps says what somebody can do about a stored run that no process performs, and in which order.
export function NextSteps({ row }: { row: Row }) {
	const { queue, gone, can_continue: can } = row
	const open = openWaits(row), asks = (row.waits ?? 0) - (row.waiting?.length ?? 0) + open.length
	if (!needsSteps(row)) return null
	const press = row.actions.includes("redrive") && mayDo("redrive"), answer = asks > 0 && may("signal"), first = answer || press
	const last = queue
		? <>{first ? texts.orStart : texts.onlyStart} <Plain text={row.workflow} />{queue.plan && <> (<code>{texts.version(queue.plan)}</code>)</>}: {texts.continuesItself} {queue.since ? <>{texts.lastServed} <Time at={queue.since} />.</> : texts.neverServed} {queue.runs > 1 && texts.helpsAll(queue.runs)} {texts.orAdopt}</>
		: <>{first ? texts.orWait : texts.onlyWait}</>
	return (
		<div class="notice queues next-steps" role="note" aria-label={texts.whatToDo}>
			<p><strong>{gone ? texts.processGone : asks ? texts.waitsForAnswers(asks) : row.status === "pending" ? texts.notBegun : texts.noProcessNow}</strong> {first ? `${texts.whatToDo}:` : last}</p>
			{first && <ol>
				{answer && <li>{texts.answerHere} {open.map((path, i) => <>{i > 0 && ", "}<a key={path} href={openRun(row.id, { node: path })}><Plain text={path} /></a></>)}. {can ? texts.thenHere : texts.thenElsewhere}</li>}
				{press && <li>{texts.pressContinue}</li>}
				<li>{last}</li>
			</ol>}
		</div>
	)
}

// Queues lists the first queues that no process serves, counts the runs of the further queues that no process serves, and says what to do about
// them.
export function Queues({ list, runs }: { list?: Queue[]; runs: number }) {
	if (!list?.length) return null
	const more = runs - list.reduce((sum, q) => sum + q.runs, 0)
	return (
		<div class="notice queues">
			<p><strong>{texts.unclaimableRuns(runs)}</strong> {texts.remedy}</p>
			<ul class="list short">
				{list.map(q => (
					<li key={q.workflow + "\n" + q.plan}><Plain text={q.workflow} />{q.plan && <> <code>{texts.version(q.plan)}</code></>}: {texts.runCount(q.runs)}, <Since queue={q} /></li>
				))}
				{more > 0 && <li>{texts.moreRuns(more)}</li>}
			</ul>
		</div>
	)
}

// PlaceInLine says which pending runs begin before a run.
export function PlaceInLine({ line, stored, hasKey }: { line: InLine; stored?: boolean; hasKey: boolean }) {
	if (line.from) return <span>{texts.beginsFrom} <Time at={line.from} /></span>
	return <span>{texts.ahead(line.ahead, !!line.more, stored ? (hasKey ? "withKey" : "withoutKey") : "")}{(!stored || hasKey) && texts.runningNow(line.running, line.limit)}</span>
}
