import { effect, signal } from "@preact/signals"
import { locked, url, type Row } from "./api"
import { route } from "./route"

export { later, restrained } from "./pace"

// One stream keeps the list and the open run up to date. If a proxy buffers the stream, or the server rejects it, the page polls
// every two seconds instead.

export interface Changes { run: string; event: number; nodes: { p: string; s: string; n?: number }[]; lines: number }

export const connection = signal<"stream" | "poll" | "lost">("stream")

// generation increases when everything must be read again.
export const generation = signal(0)

type Listener<T> = (message: T) => void
// Turned are the rows that have changed, the ids of runs that are gone and, unless the client may not know of all runs, the number of runs in each
// status.
export interface Turned { runs: Row[]; removed: string[]; counts?: Record<string, number> }
const rowListeners = new Set<Listener<Turned>>()
const nodeListeners = new Set<Listener<Changes>>()

export function onRows(f: Listener<Turned>): () => void {
	rowListeners.add(f)
	return () => void rowListeners.delete(f)
}

// facts returns the parts of a row on which the run's place in a list and the counts depend. These parts do not change while the run only makes
// progress.
const facts = (r: Row) => [r.status, r.compensation, r.left, r.waits, r.waiting].join()
const known = new Map<string, string>()

// listTurns increases when runs have come or gone, or when facts of a run have changed: lists and counts must be read again.
export const listTurns = signal(0)

onRows(m => {
	let turned = m.removed.length > 0
	m.removed.forEach(id => known.delete(id))
	for (const r of m.runs) {
		if (known.get(r.id) !== facts(r)) turned = true
		known.set(r.id, facts(r))
	}
	if (turned) listTurns.value++
})

// learn stores the facts of the rows that a list has read, so that only later changes of the facts increase listTurns.
export const learn = (rows: Row[]) => rows.forEach(r => known.set(r.id, facts(r)))

export function onNodes(f: Listener<Changes>): () => void {
	nodeListeners.add(f)
	return () => void nodeListeners.delete(f)
}

const helloWithin = 4000
const pollEvery = 2000
const streamAgain = 60_000

let source: EventSource | undefined
let poll: number | undefined
let again: number | undefined

function connect(run: string): void {
	source?.close()
	clearTimeout(again)
	const own = (source = new EventSource(url("stream", { run })))
	let patience = window.setTimeout(() => fallBack(run), helloWithin)
	let greeted = false
	own.addEventListener("hello", () => {
		greeted = true
		clearTimeout(patience)
		clearInterval(poll)
		poll = undefined
		connection.value = "stream"
		generation.value++
	})
	own.addEventListener("reset", () => generation.value++)
	own.addEventListener("runs", e => rowListeners.forEach(f => f(JSON.parse((e as MessageEvent).data))))
	own.addEventListener("nodes", e => nodeListeners.forEach(f => f(JSON.parse((e as MessageEvent).data))))
	own.onerror = () => {
		clearTimeout(patience)
		if (own !== source) return
		if (own.readyState === EventSource.CLOSED) { // the server rejected the stream: the run may be unknown
			if (run && !greeted) connect("")
			else fallBack(run)
			return
		}
		connection.value = "lost" // the browser reconnects by itself
		patience = window.setTimeout(() => fallBack(run), helloWithin)
	}
}

function fallBack(run: string): void {
	source?.close()
	source = undefined
	if (locked.peek()) return
	connection.value = "poll"
	if (poll === undefined) poll = window.setInterval(() => generation.value++, pollEvery)
	generation.value++
	clearTimeout(again)
	again = window.setTimeout(() => connect(run), streamAgain)
}

// keepLive connects, and reconnects when another run is opened.
export function keepLive(): void {
	let run: string | undefined
	effect(() => {
		const wanted = route.value.view === "run" ? route.value.id : ""
		if (wanted === run) return
		run = wanted
		connect(run)
	})
}

// now ticks once a second, for durations that grow.
export const now = signal(Date.now())
setInterval(() => (now.value = Date.now()), 1000)

const storeEvery = 10_000

// everySoOften calls a function at intervals while the page is visible, for data that the stream lacks, such as changes in a store.
export function everySoOften(f: () => void): () => void {
	const timer = setInterval(() => { if (!document.hidden) f() }, storeEvery)
	return () => clearInterval(timer)
}
