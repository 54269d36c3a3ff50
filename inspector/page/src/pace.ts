// These functions call another function less often than it is requested.

// restrained calls a function soon after the first request. While requests continue, it calls the function less and less often, down
// to once every 20 seconds.
export function restrained(ms: number, f: () => void): { ask: () => void; stop: () => void } {
	let due: ReturnType<typeof setTimeout> | undefined, wait = ms, called = 0
	return {
		ask: () => {
			if (due !== undefined) return
			wait = Date.now() - called > 2 * wait ? ms : Math.min(2 * wait, 20_000)
			due = setTimeout(() => {
				due = undefined
				called = Date.now()
				f()
			}, wait)
		},
		stop: () => clearTimeout(due),
	}
}

// later calls a function some time after a request. Requests that come before this call cause no further call.
export function later(ms: number, f: () => void): { ask: () => void; stop: () => void } {
	let due: ReturnType<typeof setTimeout> | undefined
	return {
		ask: () => {
			due ??= setTimeout(() => {
				due = undefined
				f()
			}, ms)
		},
		stop: () => clearTimeout(due),
	}
}
