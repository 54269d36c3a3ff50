// A bad network, large graphs and many events.
import assert from "node:assert/strict"
import { api, base, close, data, drawn, link, open, server, stage, until } from "./harness.mjs"

const cutOff = async () => {
	const run = await stage("chain")
	const page = await open(link(run), { quiet: true })
	await drawn(page, 48)
	for (let i = 0; i < 20; i++) {
		await fetch(`${server}/stage/cut`).catch(() => undefined)
		await page.waitForTimeout(220)
	}
	await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 15_000 })
	await page.getByText("48/48").waitFor()
	await close(page)
}

const buffered = async () => {
	const run = await stage("chain")
	const page = await open(`${server}/buffered/#/runs/${run}`, { quiet: true })
	await drawn(page, 48)
	await page.getByText("Live updates do not arrive").waitFor()
	await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 15_000 })
	await page.keyboard.press("Escape")
	await page.getByText("Live updates do not arrive").waitFor()
	await page.getByRole("link", { name: run }).waitFor()
	const another = await stage("orders")
	await page.getByRole("link", { name: another }).waitFor()
	await close(page)
}

// lags measures for eight seconds by how much a timer of a page is late, and returns it in order.
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

export const strain = {
	async "a run stays right while the connection is cut 20 times, and behind a proxy that buffers"() {
		await Promise.all([cutOff(), buffered()])
	},

	async "1,000 and 10,000 nodes are drawn in time"() {
		for (const [name, n, most] of [["wide", 1000, { first: 900, draw: 24 }], ["huge", 10_000, { first: 12_000, draw: 120 }]]) {
			const run = await stage(name)
			await until("end", async () => (await api("run", { run })).status === "completed")
			const page = await open("about:blank")
			await page.goto(base + "#/gates") // the page is loaded; then the run is opened
			await page.locator("#main").waitFor()
			const begun = await page.evaluate(run => { location.hash = "#/runs/" + run; return performance.now() }, run)
			await drawn(page, n)
			const first = Number(await data(page, "first")) - begun, layout = Number(await data(page, "layout"))
			const medians = []
			const box = await page.locator("canvas.picture").boundingBox()
			for (const zoom of ["fit", "near"]) { // all nodes as coloured boxes, then some with their names
				if (zoom === "near") for (let i = 0; i < 8; i++) await page.getByRole("button", { name: "Zoom in" }).click()
				const times = []
				await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2)
				for (let i = 0; i < 12; i++) {
					await page.mouse.down()
					await page.mouse.move(box.x + box.width / 2 + (i % 2 ? 12 : -12), box.y + box.height / 2 + 5, { steps: 2 })
					await page.mouse.up()
					times.push(Number(await data(page, "draw")))
				}
				medians.push(times.sort((a, b) => a - b)[times.length >> 1])
			}
			console.log(`   ${n} nodes: first picture after ${first.toFixed(0)} ms, layout ${layout} ms, draw ${medians.join(" and ")} ms at the median`)
			const median = Math.max(...medians)
			assert(first <= most.first, `the first picture of ${n} nodes takes ${first} ms`)
			assert(median <= most.draw, `to draw ${n} nodes takes ${median} ms`)
			await close(page)
		}
	},

	async "10,000 events a second leave the page responsive, and it ends right"() {
		const run = await stage("storm")
		const page = await open(link(run, "/log"))
		await page.getByLabel("Level").selectOption("debug")
		const blank = await open("about:blank") // is as late as the machine is busy
		const [lag, usual] = await Promise.all([lags(page), lags(blank)])
		await close(blank)
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 20_000 })
		await page.getByText("11/11").waitFor()
		const { last } = await api("run", { run })
		const late = list => list[Math.floor(list.length * 0.95)]
		console.log(`   ${last} events; a timer is late by ${lag[lag.length >> 1].toFixed(0)} ms at the median, ${late(lag).toFixed(0)} ms at the 95th percentile, of a blank page ${late(usual).toFixed(0)} ms`)
		assert(last > 100_000)
		assert(late(lag) < late(usual) + 1000, `late by ${late(lag)} ms`)
		await close(page)
	},
}
