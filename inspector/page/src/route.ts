import { signal } from "@preact/signals"

// Everything that a link shares is in the fragment of the address.
export interface Route {
	view: "runs" | "gates" | "run" | "stored"
	id: string
	tab: "graph" | "timeline" | "log" | "table" | ""
	node: string
	inside: string
	open: string[] // composites that are unfolded
	status: string
	workflow: string
	q: string
}

const nowhere: Route = { view: "runs", id: "", tab: "", node: "", inside: "", open: [], status: "", workflow: "", q: "" }

export function parse(hash: string): Route {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2)
	const params = new URLSearchParams(query)
	const parts = path.split("/").map(decode)
	const text = (name: string) => params.get(name) ?? ""
	const route: Route = { ...nowhere, node: text("node"), inside: text("inside"), open: params.getAll("open"), status: text("status"), workflow: text("workflow"), q: text("q") }
	if (parts[0] === "gates") route.view = "gates"
	if (parts[0] === "stored") {
		route.view = "stored"
		route.id = parts[1] ?? ""
	}
	if (parts[0] === "runs" && parts[1]) {
		route.view = "run"
		route.id = parts[1]
		if (["graph", "timeline", "log", "table"].includes(parts[2])) route.tab = parts[2] as Route["tab"]
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
	for (const name of ["node", "inside", "status", "workflow", "q"] as const) if (r[name]) params.set(name, r[name])
	for (const path of r.open) params.append("open", path)
	let path = r.view === "gates" || r.view === "stored" ? r.view : "runs"
	if (r.view === "stored" && r.id) path += "/" + encodeURIComponent(r.id)
	if (r.view === "run") {
		path += "/" + encodeURIComponent(r.id)
		if (r.tab) path += "/" + r.tab
	}
	const query = params.toString()
	return `#/${path}${query ? "?" + query : ""}`
}

export const route = signal(parse(location.hash))

addEventListener("hashchange", () => (route.value = parse(location.hash)))

// go changes a part of the address; replaced ones are not in the history.
export function go(change: Partial<Route>, replace = false): void {
	const to = href({ ...route.peek(), ...change })
	if (to === location.hash) return
	if (replace) {
		history.replaceState(null, "", to)
		route.value = parse(to)
	} else {
		location.hash = to
	}
}

export const openRun = (id: string, more: Partial<Route> = {}) => href({ view: "run", id, ...more })
