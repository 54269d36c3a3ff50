import type { Item } from "./draw"
import type { Model } from "./model"
import { isInside } from "./paths"
import { together, type Counts } from "./status"

// Facts is what a picture shows about its boxes.
export class Facts {
	private readonly groups = new Map<string, Counts>()
	private version = -1

	constructor(private readonly model: Model) {}

	status(item: Item): string {
		return item.members ? together(this.counts(item)!) : this.model.status(item.path)
	}

	// counts are the counts of the nodes in a composite or a folded group; undefined while there are none.
	counts(item: Item): Counts | undefined {
		if (!item.members) return this.model.insides.get(item.path)?.counts
		if (this.version !== this.model.version.peek()) {
			this.version = this.model.version.peek()
			this.groups.clear()
		}
		let counts = this.groups.get(item.path)
		if (!counts) {
			counts = {}
			for (const path of item.members) counts[this.model.status(path)] = (counts[this.model.status(path)] ?? 0) + 1
			this.groups.set(item.path, counts)
		}
		return counts
	}

	// first returns the box that an operator most likely looks for: a box that failed, else a running box, else a
	// waiting box.
	first(items: Item[]): Item | undefined {
		const rank = new Map(["failed", "interrupted", "retrying", "running", "suspended", "ready", "waiting"].map((s, i) => [s, i]))
		let best = items[0], least = rank.size
		for (const item of items) {
			const r = item.open ? rank.size : rank.get(this.status(item)) ?? rank.size
			if (r < least) [best, least] = [item, r]
		}
		return best
	}

	iteration(item: Item): number {
		return this.model.insides.get(item.path)?.iteration ?? 0
	}

	late(item: Item): boolean {
		return item.members ? item.members.some(path => this.model.isLate(path)) : this.model.isLate(item.path)
	}

	attempts(item: Item): number {
		return this.model.attempts.get(item.path) ?? 1
	}
}

// folding returns the folded box of a picture that contains a path.
export function folding(items: Item[], path: string): Item | undefined {
	return items.find(i => !i.open && (i.members?.includes(path) || i.members?.some(m => isInside(path, m)) || (i.composite && isInside(path, i.path))))
}
