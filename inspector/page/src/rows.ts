import { batch, signal, type Signal } from "@preact/signals"
import { withValues, type Row } from "./api"
import { later } from "./pace"

const changesEvery = 300 // ms

// shown is what a list shows of a row. The events of a run alone change nothing that is shown.
const shown = (row: Row) => JSON.stringify({ ...row, first: 0, last: 0 })

// Rows has the rows of a list, each in a signal of its own: a change renders one row, not the list. Changes from the stream are shown a few
// times a second at most, and only if a row then shows something else.
export class Rows {
	readonly ids = signal<string[] | undefined>(undefined) // in the order of the list; undefined until the list was read
	private readonly rows = new Map<string, Signal<Row>>()
	private readonly changed = new Map<string, Row>()
	private readonly showing = later(changesEvery, () => batch(() => {
		for (const row of this.changed.values()) if (this.rows.has(row.id)) this.set(withValues(row, this.row(row.id).peek()))
		this.changed.clear()
	}))

	row(id: string): Signal<Row> {
		return this.rows.get(id)!
	}

	// read takes over a list that was read.
	read(list: Row[]): void {
		const ids = list.map(r => r.id)
		batch(() => {
			list.forEach(r => this.set(r))
			if (String(ids) !== String(this.ids.peek())) this.ids.value = ids
		})
		for (const id of this.rows.keys()) if (!ids.includes(id)) this.rows.delete(id)
	}

	// apply takes rows from the stream. Rows that are not in the list are ignored.
	apply(list: Row[]): void {
		for (const r of list) if (this.rows.has(r.id)) this.changed.set(r.id, r)
		if (this.changed.size) this.showing.ask()
	}

	stop(): void {
		this.showing.stop()
	}

	private set(row: Row): void {
		const own = this.rows.get(row.id)
		if (!own) this.rows.set(row.id, signal(row))
		else if (shown(own.peek()) !== shown(row)) own.value = row
	}
}
