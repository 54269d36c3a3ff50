// Forecasts: how long a run with a History still takes, and which nodes are late. A run without a History shows no forecast.
import assert from "node:assert/strict"
import { api, base, close, link, open, overflow, serious, stage, until } from "./harness.mjs"

const secondsLeft = async page => Number(/about (\d+) s left/.exec(await page.locator(".run-title [data-expected]").innerText())?.[1])

export const estimates = {
	async "a run with a History shows how long it will take, counted down without reading; without one it shows nothing"() {
		for (const width of [1280, 375]) {
			const run = await stage("expected"), plain = await stage("unaware")
			const page = await open(link(run, "/graph"), { width, height: 800 })
			await until("time left", () => page.locator(".run-title [data-expected]").isVisible())
			await page.waitForTimeout(1500) // wait until the page has read what it requests after the first changes
			let asked = 0
			page.on("request", q => { if (q.url().includes("/api/")) asked++ })
			const before = await secondsLeft(page)
			assert(before > 15 && before <= 58, `${before} s left`)
			await until("a countdown", async () => (await secondsLeft(page)) <= before - 2)
			assert.equal(asked, 0, "requests")
			assert.equal(await page.getByText(/\blate\b/).count(), 0)
			assert.equal(await overflow(page), 0)
			assert.deepEqual(await serious(page), [])
			await page.goto(base + "#/runs")
			const row = id => page.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) })
			await row(run).getByText(/about \d+ s left/).waitFor()
			await row(plain).waitFor()
			assert.equal(await row(plain).locator("[data-expected]").count(), 0)
			assert.equal(await overflow(page), 0)
			for (const view of ["graph", "timeline", "table?node=load"]) {
				await page.goto(link(plain, "/" + view))
				await page.locator(".run-title").waitFor()
				await page.waitForTimeout(300)
				assert.equal(await page.locator("span[data-expected], [data-end]").count(), 0)
				assert.doesNotMatch(await page.locator("main").innerText(), /\blate\b|about \d|\bexpected\b/)
			}
			await close(page)
		}
	},

	async "a node that takes much longer than expected is marked in the header, table, timeline and panel, and the run is later than expected"() {
		const run = await stage("overdue")
		const page = await open(link(run, "/table?node=slow"))
		const title = page.locator(".run-title"), row = page.locator(".tableview tbody tr").filter({ hasText: "slow" })
		await row.waitFor()
		await title.getByText(/^end unknown: slow has run \d+ s instead of about 1 s$/).waitFor()
		await row.getByText("late").waitFor()
		await title.getByRole("link", { name: "1 late" }).waitFor()
		const panel = page.getByRole("complementary", { name: "Node" })
		await panel.getByText("late").waitFor()
		assert.match(await panel.innerText(), /of about 1 s/)
		assert.deepEqual(await serious(page), [])
		await page.goto(link(run, "/timeline"))
		await until("late span", async () => (await page.locator(".track canvas").getAttribute("data-late")) === "slow")
		await close(page)
	},

	async "while a step is late, the end is unknown, and the page names the step, in the header, the list and the timeline"() {
		const run = await stage("stuck") // the step slow is expected to take 0.5 s, and report 30 s after it
		const page = await open(link(run, "/table"))
		const said = /^end unknown: Count the rows has run (\d+) s instead of about 1 s\s+at least 30 s of other steps follow$/
		const seconds = async () => Number(said.exec(await page.locator(".run-title [data-expected]").innerText())?.[1])
		await until("lateness", seconds, 15_000)
		const before = await seconds()
		await until("growing lateness", async () => (await seconds()) >= before + 2)
		await page.reload()
		assert((await until("lateness again", seconds)) >= before + 2, "the lateness begins again at a reload")
		await page.locator(".run-title [data-expected]").getByRole("link", { name: "Count the rows" }).click()
		await page.getByRole("complementary", { name: "Node" }).getByText("is running").first().waitFor()
		await page.goto(base + "#/runs")
		const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: run, exact: true }) })
		assert.match(await row.locator("[data-expected]").innerText(), said)
		assert.equal(await row.locator("[data-expected]").getByRole("link", { name: "Count the rows" }).getAttribute("href"), `#/runs/${run}?node=slow`)
		assert.deepEqual(await serious(page), [])
		for (const width of [1280, 375]) {
			await page.setViewportSize({ width, height: 800 })
			assert.equal(await overflow(page), 0, `at ${width}`)
		}
		await page.goto(link(run, "/timeline"))
		const end = page.locator("[data-end]"), times = new Set()
		await end.waitFor()
		for (let i = 0; i < 8; i++, await page.waitForTimeout(500)) times.add(await end.innerText())
		assert.deepEqual([...times], ["end unknown: slow is late"]) // nothing in it moves with the clock
		assert.equal(await page.locator(".track canvas").getAttribute("data-expected"), "")
		await close(page)
	},

	async "the timeline shows the expected end"() {
		const run = await stage("expected"), ends = await until("forecast", async () => (await api("timeline", { run })).remaining_ms)
		assert(ends > 50_000, `${ends} ms`)
		const page = await open(link(run, "/timeline"))
		const end = page.locator("[data-end]")
		await end.waitFor()
		assert.match(await end.innerText(), /expected end \d\d:\d\d:\d\d/)
		assert.equal(await page.locator(".track canvas").getAttribute("data-expected"), "", "far beyond the axis")
		const near = await stage("near")
		await page.goto(link(near, "/timeline"))
		const line = await until("line", async () => Number(await page.locator(".track canvas").getAttribute("data-expected").catch(() => 0)))
		assert(line > 4000 && line < 8000, `${line} ms`)
		await close(page)
	},

	async "a run that waits for an answer says so instead of a time"() {
		const run = await stage("answering")
		await until("wait", async () => (await api("run", { run })).status === "suspended")
		const page = await open(link(run, "/table"))
		await page.locator(".run-title").getByText("waits for an answer, then about 40 s").waitFor()
		await page.waitForTimeout(2200)
		assert.match(await page.locator(".run-title [data-expected]").innerText(), /then about 40 s/, "the time does not go by")
		await close(page)
	},
}
