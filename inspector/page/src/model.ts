import { signal } from "@preact/signals"
import { get, prefixOf, Refused, type Graph, type InsideCounts, type Row, type State } from "./api"
import { later, type Changes } from "./live"
import { statusOf } from "./status"

// Model is the page's state of the open run: its graphs by their composites, and the status of each node by its path.
export class Model {
	readonly row = signal<Row | undefined>(undefined)
	readonly problem = signal<Refused | Error | undefined>(undefined)
	readonly graphs = new Map<string, Graph>()
	readonly statuses = new Map<string, string>()
	readonly attempts = new Map<string, number>()
	readonly insides = new Map<string, InsideCounts>() // of composites that have begun, by path
	readonly structure = signal(0) // increases with new graphs
	readonly version = signal(0) // increases with new statuses
	readonly lines = signal(0) // increases with new events
	private wanted: string[] = [""]
	private closed = false

	// reading requests data that the stream lacks.
	private readonly reading = later(1000, () => {
		for (const path of this.wanted) {
			if (!this.graphs.get(path)?.known) this.graphs.delete(path)
			void this.load(path)
		}
	})

	constructor(readonly id: string) {}

	close(): void {
		this.closed = true
		this.reading.stop()
	}

	// want names the composites whose graphs are shown, besides the outermost graph.
	want(paths: string[]): void {
		this.wanted = ["", ...paths.filter(Boolean)]
		for (const path of this.wanted) if (!this.graphs.has(path)) void this.load(path)
	}

	async reload(): Promise<void> {
		await Promise.all(this.wanted.map(path => this.load(path)))
		this.lines.value++
	}

	private async load(inside: string): Promise<void> {
		try {
			const ask = () => get<Graph>("graph", { run: this.id, inside })
			const known = this.graphs.get(inside)
			let graph = known?.known ? known : await ask()
			const state = await get<State>("state", { run: this.id, inside })
			if (graph.prefix !== state.prefix || (state.status && state.status.length !== graph.nodes.length)) graph = await ask()
			if (this.closed) return
			this.take(graph, state)
			if (this.graphs.get(inside) !== graph) {
				this.graphs.set(inside, graph)
				this.structure.value++
			}
			this.row.value = state.run
			this.problem.value = undefined
		} catch (err) {
			if (this.closed) return
			if (inside === "" || !(err instanceof Refused)) {
				if (!this.row.peek() || err instanceof Refused) this.problem.value = err as Error
			} else {
				this.graphs.set(inside, { inside, known: false, nodes: [], edges: [], groups: [], total: 0 })
				this.structure.value++
			}
		}
	}

	private take(graph: Graph, state: State): void {
		graph.nodes.forEach((n, i) => {
			const path = prefixOf(graph) + n.id
			this.statuses.set(path, statusOf[state.status[i]] ?? "idle")
			if (state.attempts[i]) this.attempts.set(path, state.attempts[i])
			if (state.insides[i]) {
				if (!n.composite && !this.insides.has(path)) this.structure.value++ // a node that its step expanded
				this.insides.set(path, state.insides[i])
			}
		})
		this.version.value++
	}

	// apply applies changes from the stream. Data that they lack, such as new waits, is read a little later.
	apply(m: Changes): void {
		if (m.run !== this.id) return
		for (const c of m.nodes) {
			this.statuses.set(c.p, statusOf[c.s] ?? "idle")
			if (c.n && c.n > 1) this.attempts.set(c.p, c.n)
		}
		this.version.value++
		if (m.lines) this.lines.value++
		this.reading.ask()
	}

	rows(rows: Row[]): void {
		const own = rows.find(r => r.id === this.id)
		if (!own) return
		this.row.value = { ...own, error: this.row.peek()?.error }
		this.reading.ask()
	}

	status(path: string): string {
		return this.statuses.get(path) ?? "idle"
	}
}
