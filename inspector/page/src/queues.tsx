import type { InLine, Queue } from "./api"
import { texts } from "./texts"
import { Plain, Time } from "./ui"

// Since shows when a process last served a queue.
export function Since({ queue }: { queue: Queue }) {
	return queue.since ? <span>{texts.since} <Time at={queue.since} /></span> : <span>{texts.neverWorked}</span>
}

// QueueNote says that no process serves the queue of a run, and what to do about it.
export function QueueNote({ queue }: { queue: Queue }) {
	return (
		<p class="notice queues">
			<strong>{texts.unclaimableRun}</strong> <Plain text={queue.workflow} /> {queue.plan && <code>{texts.plan(queue.plan)}</code>}: {texts.runCount(queue.runs)}, <Since queue={queue} />. {texts.remedy}
		</p>
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
					<li key={q.workflow + "\n" + q.plan}><Plain text={q.workflow} /> {q.plan && <code>{texts.plan(q.plan)}</code>}: {texts.runCount(q.runs)}, <Since queue={q} /></li>
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
