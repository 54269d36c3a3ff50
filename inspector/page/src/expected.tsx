import type { Row } from "./api"
import { now } from "./live"
import type { Model } from "./model"
import { href, route, toNode } from "./route"
import { texts } from "./texts"
import { Plain, roughly } from "./ui"

// The forecast of a run: when it will end, and which nodes are late. A run without estimates has no forecast, and nothing is shown.

const received = new WeakMap<Row, number>() // when the page received each row

// endOf returns when a run is expected to end, in ms since 1970.
function endOf(r: Row): number | undefined {
	if (r.remaining_ms === undefined) return undefined
	const at = received.get(r) ?? Date.now()
	received.set(r, at)
	return at + r.remaining_ms
}

// Expected says about how long a run will still take. The page does not count the time down while the whole run waits for an answer, or while a
// step exceeds its estimate, because the end of the wait or of the step is unknown.
export function Expected({ r }: { r: Row }) {
	const end = endOf(r)
	if (end === undefined) return null
	if (r.status === "suspended") return <span class="meta" data-expected>{texts.leftAfterAnswer(roughly(r.remaining_ms!))}</span>
	if (r.late_ms !== undefined) return <Overrun r={r} late={r.late_ms + now.value - received.get(r)!} />
	const left = end - now.value
	const text = left <= 0 ? texts.overdue : r.remaining_waits ? texts.leftWithoutWaits(roughly(left)) : texts.timeLeft(roughly(left))
	return <span class={left <= 0 ? "tag lost" : "meta"} data-expected>{text}</span>
}

// Overrun names the step that exceeds its estimate the most. As long as the excess does not show in a rounded time, Overrun says only how long the
// run takes at least.
function Overrun({ r, late }: { r: Row; late: number }) {
	const left = roughly(r.remaining_ms!), estimate = r.late_estimate_ms
	const ran = estimate === undefined ? texts.ranLonger(roughly(late)) : texts.ranInstead(roughly(estimate + late), roughly(estimate))
	if (late < 1000 || (estimate !== undefined && roughly(estimate + late) === roughly(estimate))) return <span class="meta" data-expected>{texts.leastLeft(left)}</span>
	return (
		<span class="overrun" data-expected>
			{texts.endUnknown}: <a href={toNode(r.id, r.late_node!)}><Plain text={r.late_label || r.late_node} /></a> {ran}
			{r.remaining_ms! > 0 && <span class="meta">{texts.leastAfter(left)}</span>}
		</span>
	)
}

// LateTag marks a node that takes much longer than expected.
export function LateTag({ late }: { late?: boolean }) {
	return late ? <span class="tag lost">{texts.late}</span> : null
}

// LateSoFar links to the late nodes of the graphs that are shown.
export function LateSoFar({ model }: { model: Model }) {
	const paths = (model.version.value, model.lateNodes())
	if (!paths.length) return null
	return <a class="tag lost" href={href({ ...route.value, node: paths[0] })}>{texts.lateSoFar(paths.length)}</a>
}
