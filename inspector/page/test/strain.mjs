// A bad network, large graphs and many events.
import assert from "node:assert/strict"
import { api, base, browser, close, data, drawn, ended, link, open, server, stage, until } from "./harness.mjs"
import { measured } from "./yardstick.mjs"

const cutOff = async () => {
	const run = await stage("chain")
	const page = await open(link(run), { quiet: true })
	await drawn(page, 48)
	for (let i = 0; i < 20; i++) {
		await fetch(`${server}/stage/cut`).catch(() => undefined)
		await page.waitForTimeout(220)
	}
	await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 45_000 })
	await page.getByText("48 of 48 completed").waitFor()
	await close(page)
}

const buffered = async () => {
	const run = await stage("chain")
	const page = await open(`${server}/buffered/#/runs/${run}`, { quiet: true })
	await drawn(page, 48)
	await page.getByText("Live updates do not arrive").waitFor()
	await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 45_000 })
	await page.keyboard.press("Escape")
	await page.getByText("Live updates do not arrive").waitFor()
	await page.getByRole("link", { name: run }).waitFor()
	const another = await stage("orders")
	await page.getByRole("link", { name: another }).waitFor()
	await close(page)
}

// lags measures for eight seconds by how many milliseconds a timer of a page is late, and returns the times in ascending order.
const lags = page => page.evaluate(() => new Promise(resolve => {
	const list = [], end = performance.now() + 8000
	const step = () => {
		const at = performance.now()
		setTimeout(() => {
			list.push(performance.now() - at - 50)
			performance.now() < end ? step() : resolve(list.sort((a, b) => a - b))
		}, 50)
	}
	step()
}))

// blank returns a loaded page that has not opened a run yet.
const blank = async () => {
	const page = await open("about:blank")
	await page.goto(base + "#/gates")
	await page.locator("#main").waitFor()
	return page
}

// timesOf opens the graph of a run in a page. It measures the time until the first picture, the fastest of some layouts, and the longest task. It
// also moves the picture and measures the fastest of 12 frames: once with the whole graph in the window, and once zoomed in.
const timesOf = async (page, run, n, most) => {
	const begun = await page.evaluate(to => {
		window.longest = 0 // the duration of the longest task that blocked the page; 0 if no task took more than 50 ms
		new PerformanceObserver(list => list.getEntries().forEach(e => (window.longest = Math.max(window.longest, e.duration)))).observe({ type: "longtask" })
		location.hash = to
		return performance.now()
	}, `#/runs/${run}/graph?by=${most.by}`)
	await drawn(page, n)
	const first = Number(await data(page, "first")) - begun, layouts = [Number(await data(page, "layout"))], longest = await page.evaluate(() => window.longest)
	for (let i = 0; i < (most.repeat ?? 14); i++) { // repeat the layout, because the browser compiles its code only after some calls
		const before = await data(page, "picture")
		await page.getByLabel("All edges").click()
		await until("another picture", async () => (await data(page, "picture")) !== before)
		layouts.push(Number(await data(page, "layout")))
	}
	const layout = Math.min(...layouts)
	const times = [{ name: "first picture", ms: first, of: "js", most: most.first }, { name: "layout", ms: layout, of: "js", most: most.layout }, { name: "longest task", ms: longest, of: "js", most: most.task }]
	const box = await page.locator("canvas.picture").boundingBox()
	for (const zoom of ["fit", "near"]) {
		if (zoom === "near") for (let i = 0; i < 8; i++) await page.getByRole("button", { name: "Zoom in" }).click()
		const frames = []
		await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2)
		for (let i = 0; i < 12; i++) {
			await page.mouse.down()
			await page.mouse.move(box.x + box.width / 2 + (i % 2 ? 12 : -12), box.y + box.height / 2 + 5, { steps: 2 })
			await page.mouse.up()
			frames.push(Number(await data(page, "draw")))
		}
		times.push({ name: `draw ${zoom}`, ms: Math.min(...frames), of: "canvas", most: most[zoom] })
	}
	return times
}

// tasks starts a measurement of the tasks that block a page. The function that it returns tells by how many seconds: { took, ran }. Of the seconds
// `took` the page had a processor for the seconds `ran`; the others went to other programs.
const tasks = async page => {
	const watch = async timeDomain => {
		const session = await page.context().newCDPSession(page)
		await session.send("Performance.enable", { timeDomain })
		const total = async () => (await session.send("Performance.getMetrics")).metrics.find(m => m.name === "TaskDuration").value
		const before = await total()
		return async () => (await total()) - before
	}
	const took = await watch("timeTicks"), ran = await watch("threadTicks")
	return async () => ({ took: await took(), ran: await ran() })
}

// rendering returns the processor time of all pages until now, in milliseconds. Unlike wall-clock time, processor time does not grow with the
// load of the machine.
const rendering = async () => {
	const session = await browser.newBrowserCDPSession()
	const { processInfo } = await session.send("SystemInfo.getProcessInfo")
	await session.detach()
	return processInfo.filter(p => p.type === "renderer").reduce((sum, p) => sum + p.cpuTime * 1000, 0)
}

export const strain = {
	async "a run stays right while the connection is cut 20 times, and behind a proxy that buffers"() {
		await Promise.all([cutOff(), buffered()])
	},

	async "1,000 and 10,000 nodes and the clusters of 5,000 and 20,000 are drawn in time"() {
		for (const [name, n, most] of [
			["big5000", 13, { by: "", first: 120, layout: 0.1, task: 20, fit: 1.5, near: 1.5 }], ["big20000", 15, { by: "", repeat: 2, first: 250, layout: 0.1, task: 20, fit: 1.5, near: 1.5 }],
			["wide", 1000, { by: "none", first: 120, layout: 0.4, task: 20, fit: 3.2, near: 1.8 }], ["huge", 10_000, { by: "none", first: 250, layout: 5, task: 40, fit: 18, near: 7 }],
		]) {
			const run = await ended(name)
			const { shown, late } = await measured(blank, page => timesOf(page, run, n, most), close)
			console.log(`   ${name}, ${n} boxes: ${shown.join(", ")}`)
			assert.deepEqual(late, [])
		}
	},

	async "10,000 events a second leave the page responsive, and it ends right"() {
		const run = await stage("storm")
		const page = await open(link(run, "/log"))
		await page.getByLabel("Level").selectOption("debug")
		const blank = await open("about:blank") // the timers of this page show how busy the machine is
		const blocked = await tasks(page)
		const [lag, usual] = await Promise.all([lags(page), lags(blank)])
		const { took, ran } = await blocked()
		await close(blank)
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 45_000 })
		await page.getByText("11 of 11 completed").waitFor()
		const { last } = await api("run", { run })
		const late = list => list[Math.floor(list.length * 0.95)]
		console.log(`   ${last} events; a timer is late by ${lag[lag.length >> 1].toFixed(0)} ms at the median, ${late(lag).toFixed(0)} ms at the 95th percentile, of a blank page ${late(usual).toFixed(0)} ms; of eight seconds tasks took ${took.toFixed(1)} s, with a processor ${ran.toFixed(1)} s`)
		assert(last > 100_000)
		// If other programs took the processor from the page, its timers are late, however little it does.
		assert(late(lag) < late(usual) + 1000 || took - ran > 2.5, `late by ${late(lag)} ms`)
		await close(page)
	},

	async "beside a run of 2,000 events a second an open list of 50 runs rests"() {
		for (let i = 0; i < 50; i++) await stage("waiting")
		const page = await open(base)
		await until("50 rows", async () => (await page.locator("table.runs tbody tr").count()) === 50)
		const run = await stage("chatter")
		await page.getByRole("link", { name: run, exact: true }).waitFor()
		await page.getByRole("row", { name: run }).getByText("1 of 2 completed").waitFor()
		await page.waitForTimeout(1500) // wait until the page has read the counts again, because a run has arrived
		const requests = []
		page.on("request", r => requests.push(r.url().replace(/.*v1/, "")))
		const cdp = await page.context().newCDPSession(page)
		await cdp.send("Performance.enable")
		const look = async () => {
			const { metrics } = await cdp.send("Performance.getMetrics")
			const own = ["ScriptDuration", "LayoutDuration", "RecalcStyleDuration"].reduce((sum, name) => sum + metrics.find(m => m.name === name).value, 0)
			return { at: Date.now(), own: own * 1000, all: await rendering(), last: (await api("run", { run })).last }
		}
		const before = await look()
		await page.waitForTimeout(4000) // the run logs for six seconds
		const after = await look(), took = after.at - before.at
		const rate = ((after.last - before.last) / took) * 1000, share = (100 * (after.own - before.own)) / took
		console.log(`   ${requests.length} requests in ${took} ms beside ${rate.toFixed(0)} events a second; scripts, styles and layout took ${share.toFixed(1)} % of a core, with painting ${((100 * (after.all - before.all)) / took).toFixed(1)} %`)
		assert(rate > 250, `only ${rate} events a second`) // a low limit, since the machine may be busy
		assert(requests.length <= 4, `requests: ${requests}`) // the list and the counts once, because a run has arrived, and the store's gates every ten seconds
		assert(share < 10, `${share} % of a core`)
		assert.equal(await page.evaluate(() => document.getAnimations().length), 0) // a moving part would be drawn all the time
		await close(page)
	},
}
