import { signal } from "@preact/signals"

// The fragment of the address contains everything that a link to the page shares.
export interface Route {
	view: "runs" | "gates" | "run" | "stored" | "schedules"
	id: string
	tab: "graph" | "timeline" | "log" | "table" | ""
	node: string
	inside: string // the composite whose graph is shown, empty for the run's graph
	open: string[] // unfolded composites and clusters
	fold: string[] // folded groups
	failed: string // "1": only the failed part of the graph, with one box for all stopped nodes; "all": the same with a box for each stopped node
	around: string // only the neighbourhood of this node
	up: string // how many levels of predecessors the neighbourhood has: a number or "all"; by default 1
	down: string // how many levels of successors the neighbourhood has
	by: string // how a large graph is shown in clusters: "group", "prefix", "layer" or "none"; by default the page chooses
	edges: string // "all": shows even the edges that a longer path replaces
	critical: string // the critical path that the timeline shows: "slots", "none", or by dependencies (the default)
	level: string // of the log
	status: string
	undone: string // only runs whose compensations are "running", "done" or "failed"
	workflow: string
	key: string // only runs with this key
	order: string // of runs: "trouble": runs in trouble come first; of nodes: "graph": not the nodes in trouble first
	queue: string // "unclaimable": only runs that no process serves
	q: string
}

const texts = ["node", "inside", "failed", "around", "up", "down", "by", "edges", "critical", "level", "status", "undone", "workflow", "key", "order", "queue", "q"] as const
const lists = ["open", "fold"] as const

const nowhere: Route = {
	view: "runs", id: "", tab: "", node: "", inside: "", open: [], fold: [], failed: "", around: "", up: "", down: "", by: "", edges: "", critical: "", level: "", status: "", undone: "", workflow: "", key: "", order: "", queue: "", q: "",
}

// unfiltered contains the empty values of the filters. A filter restricts the content of one view, and has no meaning in other
// views.
export const unfiltered = { status: "", undone: "", workflow: "", key: "", order: "", queue: "", q: "", level: "" }

export function parse(hash: string): Route {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2)
	const params = new URLSearchParams(query)
	const [view, id = "", tab = ""] = path.split("/").map(decode)
	const route: Route = { ...nowhere }
	for (const name of texts) route[name] = params.get(name) ?? ""
	for (const name of lists) route[name] = params.getAll(name)
	if (view === "gates") route.view = "gates"
	if (view === "stored" || view === "schedules") route.view = view
	if (view === "runs" && id) {
		route.view = "run"
		route.id = id
		if (["graph", "timeline", "log", "table"].includes(tab)) route.tab = tab as Route["tab"]
	}
	return route
}

function decode(text: string): string {
	try {
		return decodeURIComponent(text)
	} catch {
		return text
	}
}

export function href(change: Partial<Route>): string {
	const r = { ...nowhere, ...change }
	const params = new URLSearchParams()
	for (const name of texts) if (r[name]) params.set(name, r[name])
	for (const name of lists) for (const value of r[name]) params.append(name, value)
	let path = r.view === "gates" || r.view === "stored" || r.view === "schedules" ? r.view : "runs"
	if (r.view === "run") {
		path += "/" + encodeURIComponent(r.id)
		if (r.tab) path += "/" + r.tab
	}
	const query = params.toString()
	return `#/${path}${query ? "?" + query : ""}`
}

// aroundOf returns the neighbourhood to which a route limits the graph.
export const aroundOf = ({ around, up, down }: Route) => (around ? { path: around, up: levels(up), down: levels(down) } : undefined)

const levels = (text: string) => (text === "all" ? Infinity : /^\d+$/.test(text) ? Number(text) : 1)

export const route = signal(parse(location.hash))

addEventListener("hashchange", () => {
	forget()
	route.value = parse(location.hash)
})

// go changes a part of the address. If replace is set, the browser's history gets no new entry. go reads the address and not the signal, because
// the signal changes a little later than the address.
export function go(change: Partial<Route>, replace = false): void {
	const to = href({ ...parse(location.hash), ...change })
	if (to === location.hash) return
	if (replace) {
		history.replaceState(history.state, "", to)
		route.value = parse(to)
	} else {
		save()
		location.hash = to
	}
}

export const openRun = (id: string, more: Partial<Route> = {}) => href({ view: "run", id, ...more })

// toNode links to a node of a run: in the present view if the run is open, and otherwise in the run's first view.
export const toNode = (id: string, node: string) => (route.value.view === "run" ? href({ ...route.value, node }) : openRun(id, { node }))

// Data that was passed to remember and is not yet in the browser's history, for the entry that is shown.
let unsaved: Record<string, unknown> = {}
let saving: number | undefined

// Browsers reject too frequent calls of replaceState; Safari allows 100 in 30 s.
const saveEvery = 500

// remember stores data that a reload restores but a link does not share, such as the visible part of a picture.
export function remember(name: string, value: unknown): void {
	unsaved[name] = value
	saving ??= window.setTimeout(save, saveEvery)
}

export function remembered<T>(name: string): T | undefined {
	return (name in unsaved ? unsaved[name] : history.state?.[name]) as T | undefined
}

function save(): void {
	if (Object.keys(unsaved).length) history.replaceState({ ...history.state, ...unsaved }, "")
	forget()
}

// forget drops unsaved data when the history has moved to another entry.
function forget(): void {
	clearTimeout(saving)
	saving = undefined
	unsaved = {}
}

addEventListener("pagehide", save)
