// The page's knowledge of statuses: their order in a bar, their letters, and which of them are final.

// statusOf maps the letters in responses to statuses.
export const statusOf: Record<string, string> = {
	i: "idle", w: "waiting", q: "ready", r: "running", t: "retrying", s: "suspended", c: "completed", f: "failed", a: "aborted", x: "cancelled", k: "skipped",
}

// badgeLetter maps statuses to the letters that pictures show.
export const badgeLetter: Record<string, string> = {
	idle: "I", waiting: "W", ready: "Q", running: "R", retrying: "T", suspended: "G", completed: "C", failed: "F", aborted: "A", cancelled: "X", skipped: "S", pending: "P", gone: "!", interrupted: "!",
}

export const runStatuses = ["pending", "running", "suspended", "completed", "failed", "cancelled"]
export const nodeStatuses = ["running", "retrying", "suspended", "failed", "aborted", "ready", "waiting", "idle", "completed", "skipped", "cancelled"]

// inBar is the order of the statuses in progress bars. Nodes in other statuses leave the bar empty.
export const inBar = ["completed", "running", "interrupted", "retrying", "suspended", "failed", "aborted", "cancelled", "skipped"]

const final = new Set(["completed", "failed", "aborted", "cancelled", "skipped"])

export const ended = (status: string) => final.has(status)

// hollow statuses are drawn as an outline: the node has done nothing yet.
export const hollow = new Set(["idle", "waiting", "ready", "pending", "gone", "interrupted"])

// Counts maps each status to the number of nodes in it.
export type Counts = Record<string, number>

// A node of a run that has lost its process is not running, although the store still says so: nobody knows how far its step came.
export const statusIn = (gone: boolean, status: string) => (gone && status === "running" ? "interrupted" : status)

export const countsIn = (gone: boolean, counts: Counts): Counts => {
	if (!gone || !counts.running) return counts
	const { running, ...rest } = counts
	return { ...rest, interrupted: running }
}

export const totalOf = (counts: Counts) => Object.values(counts).reduce((sum, n) => sum + n, 0)

// otherEnds are the statuses of nodes that have ended without completing.
export const otherEnds = ["failed", "aborted", "cancelled", "skipped"]

const pressing = ["failed", "aborted", "interrupted", "retrying", "suspended", "running", "ready", "waiting", "idle", "cancelled", "completed", "skipped"]

// together returns one status for several nodes: the status that matters most to an operator.
export const together = (counts: Counts) => pressing.find(status => counts[status]) ?? "idle"
