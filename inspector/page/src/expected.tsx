import type { Row } from "./api"
import { now } from "./live"
import type { Model } from "./model"
import { href, route } from "./route"
import { texts } from "./texts"
import { roughly } from "./ui"

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
	const left = end - now.value, late = lateBy(r, now.value)
	if (late !== undefined) return <span class={late < 1000 ? "meta" : "tag lost"} data-expected>{lateText(r.remaining_ms!, late)}</span>
	const text = left <= 0 ? texts.overdue : r.remaining_waits ? texts.leftWithoutWaits(roughly(left)) : texts.timeLeft(roughly(left))
	return <span class={left <= 0 ? "tag lost" : "meta"} data-expected>{text}</span>
}

// lateBy returns by how much the running steps exceed their estimates now.
function lateBy(r: Row, at: number): number | undefined {
	return r.late_ms === undefined ? undefined : r.late_ms + at - received.get(r)!
}

function lateText(left: number, late: number): string {
	return [left > 0 || late < 1000 ? texts.leastLeft(roughly(left)) : "", late < 1000 ? "" : texts.lateBy(roughly(late))].filter(Boolean).join(", ")
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
