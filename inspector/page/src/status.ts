// The page's knowledge of statuses: their order in a bar, their letters, and which of them are final.

// statusOf maps the letters in responses to statuses.
export const statusOf: Record<string, string> = {
	i: "idle", w: "waiting", q: "ready", r: "running", t: "retrying", s: "suspended", c: "completed", f: "failed", a: "aborted", x: "cancelled", k: "skipped",
}

// badgeLetter maps statuses to the letters that pictures show.
export const badgeLetter: Record<string, string> = {
	idle: "I", waiting: "W", ready: "Q", running: "R", retrying: "T", suspended: "G", completed: "C", failed: "F", aborted: "A", cancelled: "X", skipped: "S", pending: "P", gone: "!",
}

export const runStatuses = ["pending", "running", "suspended", "completed", "failed", "cancelled"]
export const nodeStatuses = ["running", "retrying", "suspended", "failed", "aborted", "ready", "waiting", "idle", "completed", "skipped", "cancelled"]

// inBar is the order of the statuses in progress bars. Nodes in other statuses leave the bar empty.
export const inBar = ["completed", "running", "retrying", "suspended", "failed", "aborted", "cancelled", "skipped"]

const final = new Set(["completed", "failed", "aborted", "cancelled", "skipped"])

export const ended = (status: string) => final.has(status)

// hollow statuses are drawn as an outline: the node has done nothing yet.
export const hollow = new Set(["idle", "waiting", "ready", "pending", "gone"])

// Counts maps each status to the number of nodes in it.
export type Counts = Record<string, number>

export const totalOf = (counts: Counts) => Object.values(counts).reduce((sum, n) => sum + n, 0)

export const doneOf = (counts: Counts) => Object.entries(counts).reduce((sum, [status, n]) => sum + (ended(status) ? n : 0), 0)

const pressing = ["failed", "aborted", "retrying", "suspended", "running", "ready", "waiting", "idle", "cancelled", "completed", "skipped"]

// together returns one status for several nodes: the status that matters most to an operator.
export const together = (counts: Counts) => pressing.find(status => counts[status]) ?? "idle"
