import { signal } from "@preact/signals"
import { get, getGraph, Refused, withValues, type Graph, type InsideCounts, type Row, type State } from "./api"
import { later, type Changes } from "./live"
import { prefixOf } from "./paths"
import { countsIn, statusIn, statusOf } from "./status"

// Model is the page's state of the open run: its graphs by their composites, and the status of each node by its path.
export class Model {
	readonly row = signal<Row | undefined>(undefined)
	readonly problem = signal<Refused | Error | undefined>(undefined)
	readonly graphs = new Map<string, Graph>()
	readonly statuses = new Map<string, string>()
	readonly attempts = new Map<string, number>()
	readonly insides = new Map<string, InsideCounts>() // of composites that have begun, by path
	private readonly lateAt = new Map<string, number>() // of running nodes: when they are late
	private nextLate: number | undefined
	readonly structure = signal(0) // increases with new graphs
	readonly explored = signal(0) // increases with new graphs that are not shown
	readonly version = signal(0) // increases with new statuses
	readonly lines = signal(0) // increases with new events
	private wanted: string[] = [""]
	private loading = new Set<string>()
	private exploring = false
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
		clearTimeout(this.nextLate)
		this.reading.stop()
	}

	// want sets the composites whose graphs are shown in addition to the outermost graph.
	want(paths: string[]): void {
		this.wanted = ["", ...paths.filter(Boolean)]
		for (const path of this.wanted) if (!this.graphs.has(path) && !this.loading.has(path)) void this.load(path)
	}

	// explore loads the graphs of composites that are not shown, the outermost first, up to a number of graphs.
	async explore(most = 60): Promise<void> {
		if (this.exploring) return
		this.exploring = true
		while (!this.closed && this.graphs.size < most) {
			const next = this.unexplored()
			if (next === undefined) break
			await this.load(next)
			if (!this.graphs.has(next)) break // the connection is lost
		}
		this.exploring = false
	}

	private unexplored(): string | undefined {
		for (const graph of this.graphs.values()) {
			for (const n of graph.nodes) {
				const path = prefixOf(graph) + n.id
				if ((n.composite || this.insides.has(path)) && !this.graphs.has(path)) return path
			}
		}
	}

	async reload(): Promise<void> {
		await Promise.all(this.wanted.map(path => this.load(path)))
		this.lines.value++
	}

	private async load(inside: string): Promise<void> {
		this.loading.add(inside)
		try {
			const ask = () => getGraph({ run: this.id, inside })
			const known = this.graphs.get(inside)
			let graph = known?.known ? known : await ask()
			const state = await get<State>("state", { run: this.id, inside })
			if (graph.prefix !== state.prefix || (state.status && state.status.length !== graph.nodes.length)) graph = await ask()
			if (this.closed) return
			this.take(graph, state)
			if (this.graphs.get(inside) !== graph) {
				this.graphs.set(inside, graph)
				this.changed(inside)
			}
			this.row.value = { ...state.run, counts: countsIn(!!state.run.gone, state.run.counts) }
			this.problem.value = undefined
		} catch (err) {
			if (this.closed) return
			if (inside === "" || !(err instanceof Refused)) {
				if (!this.row.peek() || err instanceof Refused) this.problem.value = err as Error
			} else {
				this.graphs.set(inside, { inside, known: false, nodes: [], edges: [], groups: [], total: 0 })
				this.changed(inside)
			}
		} finally {
			this.loading.delete(inside)
		}
	}

	private changed(inside: string): void {
		(this.wanted.includes(inside) ? this.structure : this.explored).value++
	}

	private take(graph: Graph, state: State): void {
		const gone = !!state.run.gone
		graph.nodes.forEach((n, i) => {
			const path = prefixOf(graph) + n.id
			this.statuses.set(path, statusIn(gone, statusOf[state.status[i]] ?? "idle"))
			if (state.attempts[i]) this.attempts.set(path, state.attempts[i])
			const late = state.late_in_ms?.[i]
			if (late === undefined) this.lateAt.delete(path)
			else this.lateAt.set(path, Date.now() + late)
			if (state.insides[i]) {
				if (!n.composite && !this.insides.has(path)) this.structure.value++ // the node's step has returned a graph, so that the node is now a composite
				this.insides.set(path, { ...state.insides[i], counts: countsIn(gone, state.insides[i].counts) })
			}
		})
		this.version.value++
		this.awaitLate()
	}

	// awaitLate reports a new version when the next running node is late.
	private awaitLate(): void {
		clearTimeout(this.nextLate)
		const wait = Math.min(...[...this.lateAt.values()].filter(at => at > Date.now())) - Date.now()
		if (wait < 1e9) { // a browser's timers are shorter than a month
			this.nextLate = window.setTimeout(() => {
				this.version.value++
				this.awaitLate()
			}, wait + 20)
		}
	}

	// apply applies changes from the stream. Data that the stream lacks, such as new waits, is read a little later.
	apply(m: Changes): void {
		if (m.run !== this.id) return
		for (const c of m.nodes) {
			this.statuses.set(c.p, statusOf[c.s] ?? "idle")
			this.lateAt.delete(c.p)
			if (c.n && c.n > 1) this.attempts.set(c.p, c.n)
		}
		this.version.value++
		if (m.lines) this.lines.value++
		this.reading.ask()
	}

	rows(rows: Row[]): void {
		const own = rows.find(r => r.id === this.id)
		if (!own) return
		this.row.value = withValues(own, this.row.peek())
		this.reading.ask()
	}

	// readRow reads the run's row anew, and keeps the last one if that fails: the stream's status says that the server does not answer.
	async readRow(): Promise<void> {
		const row = await get<Row>("run", { run: this.id }).catch(() => undefined)
		if (row && !this.closed) this.row.value = row
	}

	status(path: string): string {
		return this.statuses.get(path) ?? "idle"
	}

	// having returns the paths of the first nodes with a status.
	having(status: string, most: number): string[] {
		const list: string[] = []
		for (const [path, own] of this.statuses) {
			if (own === status && list.push(path) === most) break
		}
		return list
	}

	isLate(path: string): boolean {
		return (this.lateAt.get(path) ?? Infinity) <= Date.now()
	}

	lateNodes(): string[] {
		return [...this.lateAt.keys()].filter(path => this.isLate(path))
	}
}
