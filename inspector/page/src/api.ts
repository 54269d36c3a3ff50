import { signal } from "@preact/signals"

// The endpoints, as openapi.json describes them.

export type Action = "view" | "view_data" | "signal" | "cancel" | "redrive" | "start" | "schedule"

export interface Info { actions: Action[]; workflows: string[]; known: string[]; stored: boolean; schedules?: boolean; counts: Record<string, number>; actor?: string }
export type Undone = "running" | "done" | "failed" // progress of undoing nodes
export type Usage = Record<string, number> // what steps used, by name
export interface Row {
	id: string; workflow: string; status: string; compensation?: Undone; usage?: Usage; degraded?: boolean; left?: boolean; arrived: string; started?: string; continued?: string; ended?: string; duration_ms?: number; gone?: string; remaining_ms?: number; remaining_waits?: boolean; late_ms?: number; late_node?: string; late_label?: string; late_estimate_ms?: number
	counts: Record<string, number>; nodes: number; done: number; waiting?: string[]; waits?: number; running?: { path: string; label?: string }; failed?: string[]; cause?: string; error?: string; error_path?: string; stopped_by?: string; stop_reason?: string; first: number; last: number
	actions: RunVerb[]; stored?: boolean; note?: string; requests?: Posted[]; can_continue?: boolean; queue?: Queue; key?: string; priority?: number; line?: InLine
}
// InLine is the place of a pending run among the runs that wait to begin.
export interface InLine { ahead: number; more?: boolean; running: number; limit?: number; from?: string }
// withValues completes a row of the stream. Such a row lacks the fields that only clients with the permission view_data see; withValues copies
// them from the row that was read last.
export const withValues = (row: Row, last?: Row): Row => ({ ...row, error: last?.error, error_path: last?.error_path, stopped_by: last?.stopped_by, stop_reason: last?.stop_reason })
// Queue is a workflow and a plan that no live process serves. since is the time at which a process last served it.
export interface Queue { workflow: string; plan?: string; runs: number; since?: string }
// Posted is a request for a stored run that the run has not taken, or has refused.
export interface Posted { kind: "signal" | "cancel" | "cancel_node" | "redrive"; path?: string; status: "waiting" | "refused"; posted: string; compensations?: UndoMode; by?: string; comment?: string; value?: Value; refused?: string }
export interface Done { status: "accepted" | "requested" }
export type RunVerb = "cancel" | "abort" | "leave" | "redrive" | "fork" | "compensate" // actions that the status of a run allows
export type UndoMode = "repeat" | "by_hand" // how a failed compensation is resolved
export interface Count { total: number; more?: boolean }
export interface Runs { runs: Row[]; next?: string; total: number }
export interface GraphNode { id: string; label?: string; kind?: string; type: string; tier: number; groups?: string[]; composite?: boolean; cleanup?: boolean }
export interface GraphEdge { from: number; to: number; label?: string; on?: string; data?: boolean }
export interface Graph { inside?: string; prefix?: string; iteration?: number; known: boolean; nodes: GraphNode[]; edges: GraphEdge[]; groups: string[]; note?: string; total: number; text?: string }
export interface InsideCounts { iteration?: number; counts: Record<string, number> }
export interface State { run: Row; prefix?: string; event: number; status: string; attempts: Record<string, number>; insides: Record<string, InsideCounts>; late_in_ms?: Record<string, number> }
export interface NodeRow { path: string; id: string; label?: string; kind?: string; status: string; tier: number; attempts: number; start?: string; duration_ms: number; estimate_ms?: number; late?: boolean; memoized?: boolean; slot_of?: string; error?: string }
export interface Value { json?: unknown; text?: string; type: string; bytes: number; truncated?: boolean }
export interface Neighbour { path: string; status: string; label?: string; param?: string; on?: string; data?: boolean; edge: string }
export interface Answered { by?: string; comment?: string; value?: Value }
export interface Gate { run: string; workflow: string; path: string; label?: string; since?: string; deadline?: string; on_deadline?: "fail" | "timeout" | "again"; leads?: Lead[]; choices?: string[]; schema?: unknown; info?: Value; bases?: { name: string; path?: string; value: Value }[]; stored?: boolean }
// Lead says to which nodes an answer leads, or a failure of the gate. by is the condition that decides, if this is not the gate.
export interface Lead { answer?: string; on?: string; by?: string; to?: string[]; more?: number; skips?: string[] }
export interface NodeDetail extends NodeRow {
	parent?: string; type: string; composite?: boolean; groups?: string[]; slots?: Slots[]; timeout_ms?: number; overall_timeout_ms?: number; flags?: string[]; hit?: { run?: string; at: string }; labels?: string[]
	why: { kind: string; text: string; since?: string; until?: string; nodes?: string[]; more?: number }
	errors?: string[]; config?: Value; inputs?: { name: string; open?: boolean; value?: Value }[]; output?: Value
	tries: { n: number; start?: string; end?: string; error?: string; delay_ms?: number }[]
	upstream: Neighbour[]; downstream: Neighbour[]; gate?: Gate; decision?: Answered; undone?: NodeUndone; usage?: Usage; requests?: Posted[]; actions: string[]; data: boolean; note?: string; gone?: string
}
// Preview says which nodes a redrive or a fork runs, and with which inputs.
export interface Preview { nodes: string[]; total: number; asks?: string[]; completed?: string[]; can_fork?: boolean; refused?: string; inputs?: { name: string; value?: Value }[] }
// Slots is what a group means for its members.
export interface Slots { name: string; limit?: number; used?: number; cancels?: boolean }
// NodeUndone is the progress of undoing a node. unknown means that it is unknown whether the node had an effect.
export interface NodeUndone { state: Undone; unknown?: boolean; attempts?: number; began?: string; ended?: string; by_hand?: boolean; by?: string; comment?: string; error?: string }
// UndoTask is a run with a failed compensation.
export interface UndoTask { run: string; workflow: string; status: string; ended?: string }
export interface Inbox { gates: Gate[]; total: number; compensations: UndoTask[]; failed: number; stored_gone?: number; stored_waiting?: number; note?: string }
export interface Line { id: number; time: string; type: string; level: string; path?: string; attempt?: number; text: string }
export interface Log { lines: Line[]; after: number; more: boolean; before?: number; first: number; last: number; note?: string }
export interface Span { path: string; n: number; queued_ms: number; start_ms: number; end_ms?: number; late_ms?: number; status: string; id: number }
export interface Timeline { start?: string; now_ms: number; remaining_ms?: number; late_ms?: number; late_node?: string; spans: Span[]; memoized?: number; truncated?: boolean; note?: string }

export interface StoredRow { id: string; workflow: string; status: string; compensation?: Undone; usage?: Usage; created?: string; ended?: string; wake_at?: string; labels?: Record<string, string>; key?: string; priority?: number; here?: boolean; queue?: Queue; waiting?: StoredWait[]; waits?: number; gone?: string }
// StoredWait is a node of a stored run that waits for an answer. If it is answered, the process that performs the run has not taken the answer
// yet.
export interface StoredWait { path: string; label?: string; since?: string; deadline?: string; answered?: boolean }
export interface Stored { runs: StoredRow[]; urgent?: StoredRow[]; next?: string; unclaimable?: Queue[]; unclaimable_runs?: number }

export interface ScheduleRun { id: string; status: string; tick?: string; kind?: string; left_out?: string; ended?: string }
export interface Schedule { name: string; workflow: string; cron?: string; zone?: string; every?: string; missed: string; overlap: string; paused?: boolean; queue?: Queue; next: string[]; last: ScheduleRun[] }

export interface Fault { code: string; message: string; action?: string; choices?: string[]; answered?: Answered }

export class Refused extends Error {
	constructor(readonly status: number, readonly fault: Fault) {
		super(fault.message)
	}
}

export type Params = Record<string, string | number | string[] | undefined>

export function url(path: string, params: Params = {}): string {
	const query = new URLSearchParams()
	for (const [name, value] of Object.entries(params)) {
		for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== "") query.append(name, String(one))
	}
	const text = query.toString()
	return `api/v1/${path}${text ? "?" + text : ""}`
}

// locked reports whether the service asks for a token that this browser has not given.
export const locked = signal(false)

async function answer<T>(response: Response): Promise<{ body: T; text: string }> {
	if (response.status === 401) locked.value = true
	const text = await response.text().catch(() => "")
	let body: any
	try { body = JSON.parse(text) } catch { /* the response of a proxy, or half a response */ }
	if (response.ok && body !== undefined) return { body, text }
	throw new Refused(response.status, body?.error ?? { code: "unreadable", message: `status ${response.status}` })
}

// reachable reports whether the last request got a response.
export const reachable = signal(true)

export const get = async <T>(path: string, params?: Params): Promise<T> => (await fetched<T>(path, params)).body

// getGraph returns a graph, and the text of the response, because a text is copied to a worker faster than objects.
export async function getGraph(params: Params): Promise<Graph> {
	const { body, text } = await fetched<Graph>("graph", params)
	return { ...body, text }
}

async function fetched<T>(path: string, params?: Params): Promise<{ body: T; text: string }> {
	try {
		const response = await fetch(url(path, params), { headers: { Accept: "application/json" } })
		reachable.value = true
		return await answer(response)
	} catch (err) {
		if (!(err instanceof Refused)) reachable.value = false
		throw err
	}
}

// The idempotency keys of requests without a final response, by the contents of the requests.
const keys = new Map<string, string>()

// post performs an action. If a request gets no final response, because the connection was cut or the service was slow, its repetition has the
// same idempotency key, even if another click causes the repetition. So the service performs the action once.
export async function post<T>(path: string, params: Params, body: unknown): Promise<T> {
	const asked = JSON.stringify([path, params, body])
	const key = keys.get(asked) ?? [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, "0")).join("")
	keys.set(asked, key)
	const send = () => fetch(url(path, params), { method: "POST", headers: { "Content-Type": "application/json", "Idempotency-Key": key }, body: JSON.stringify(body) })
	const response = await send().catch(send)
	if (![502, 503, 504].includes(response.status)) keys.delete(asked) // otherwise the outcome is unknown
	return (await answer<T>(response)).body
}
