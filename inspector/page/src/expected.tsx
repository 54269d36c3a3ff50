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

// Expected says about how long a run will still take. While the whole run waits for an answer, the time is not counted down.
export function Expected({ r }: { r: Row }) {
	const end = endOf(r)
	if (end === undefined) return null
	const left = end - now.value, waits = r.status === "suspended"
	const text = waits ? texts.leftAfterAnswer(roughly(r.remaining_ms!)) : left <= 0 ? texts.overdue : r.remaining_waits ? texts.leftWithoutWaits(roughly(left)) : texts.timeLeft(roughly(left))
	return <span class={left <= 0 && !waits ? "tag lost" : "meta"} data-expected>{text}</span>
}

// LateTag marks a node that takes much longer than expected.
export function LateTag({ late }: { late?: boolean }) {
	return late ? <span class="tag lost">⏱ {texts.late}</span> : null
}

// LateSoFar links to the late nodes of the graphs that are shown.
export function LateSoFar({ model }: { model: Model }) {
	const paths = (model.version.value, model.lateNodes())
	if (!paths.length) return null
	return <a class="tag lost" href={href({ ...route.value, node: paths[0] })}>⏱ {texts.lateSoFar(paths.length)}</a>
}
