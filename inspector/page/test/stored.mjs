// Runs of the store that need somebody: how operators find them, what the page says of them, and what it shows of the lives of a run.
import assert from "node:assert/strict"
import { answer, api, base, close, drawn, link, open, overflow, serious, server, stage, textsIn, until } from "./harness.mjs"

const rowsOf = page => page.locator("table.runs tbody tr")
const ids = page => page.locator("table.runs [data-row]").allInnerTexts()

export const stored = {
	async "stored runs that need somebody are announced, come first, and are found from the start page"() {
		const died = await stage("died"), asks = await stage("purchases"), ended = await stage("refunds")
		const page = await open(base)
		const tab = page.locator(".top nav a", { hasText: "Stored" })
		await until("the number of runs that need somebody", async () => Number((await tab.locator(".bubble").innerText().catch(() => "0")).split(/\s/)[0]) >= 2, 15_000)
		assert.match(await tab.locator(".bubble").getAttribute("title"), /^In the store: (1 run waits|\d+ runs wait) for an answer, (1 run has lost its process|\d+ runs have lost their processes)$/)
		const needs = page.locator(".stored-needs")
		assert.match(await needs.innerText(), /^In the store: (1 run waits|\d+ runs wait) for an answer, (1 run has lost its process|\d+ runs have lost their processes)$/)
		assert((await needs.boundingBox()).y < (await page.locator("table.runs, .empty").first().boundingBox()).y)
		await needs.getByRole("link", { name: /lost/ }).click()
		await page.getByRole("link", { name: died, exact: true }).waitFor()
		await page.goBack()
		await needs.getByRole("link", { name: /answer/ }).click()
		await page.locator(".card").filter({ hasText: asks }).first().waitFor()
		await page.goBack()
		await page.getByRole("searchbox", { name: "Search runs" }).fill(died)
		await page.getByText("Only the store has runs that match").waitFor()
		assert.equal(await page.getByText("No run matches the filters").count(), 0)
		await page.getByRole("link", { name: `1 run in the store with an id that begins with “${died}”` }).click()
		await page.getByRole("link", { name: died, exact: true }).waitFor()
		assert.equal(await rowsOf(page).count(), 1)
		await page.goto(base + "#/runs?q=purchase")
		await page.getByRole("link", { name: /run.* in the store of the workflow “purchase”/ }).click()
		await page.getByRole("link", { name: asks, exact: true }).waitFor()
		await page.goto(base + "#/runs?status=cancelled&q=no-such")
		await page.getByText("0 runs in the store with an id that begins with “no-such”").waitFor()
		await page.getByText("No run matches the filters").waitFor()
		assert.deepEqual(await serious(page), [])
		await page.goto(base + "#/stored")
		await page.getByRole("link", { name: ended, exact: true }).waitFor()
		const list = await ids(page)
		assert(list.indexOf(died) < list.indexOf(asks) && list.indexOf(asks) < list.indexOf(ended), list.join())
		assert.equal(new Set(list).size, list.length, "a run is listed twice")
		assert.equal(await overflow(page), 0)
		await page.getByRole("columnheader", { name: "Ended or continues" }).waitFor()
		const overlapping = () => rowsOf(page).evaluateAll(rows => rows.filter(r => [...r.cells].some((c, i) => i + 1 < r.cells.length && getComputedStyle(c).overflow === "visible" && [...c.querySelectorAll(".badge, .tag, .meta, time")].some(e => e.getBoundingClientRect().right > r.cells[i + 1].getBoundingClientRect().left + 1))).map(r => r.innerText.replace(/\s+/g, " ").slice(0, 120)))
		for (const width of [1280, 960]) {
			await page.setViewportSize({ width, height: 800 })
			assert.deepEqual(await overlapping(), [], `at ${width}`)
		}
		await page.setViewportSize({ width: 375, height: 800 })
		const gone = rowsOf(page).filter({ has: page.locator(".gone") }).first()
		const [status, workflow] = await Promise.all([gone.locator(".gone").boundingBox(), gone.locator("td").nth(1).boundingBox()])
		assert(status.x + status.width <= workflow.x + 1 || status.y + status.height <= workflow.y + 1, "the status of a narrow row lies over its workflow")
		assert.equal(await overflow(page), 0)
		await page.setViewportSize({ width: 1280, height: 800 })
		await page.locator(".chips").getByRole("link", { name: "failed" }).click()
		await until("failed runs alone", async () => (await rowsOf(page).count()) > 0 && (await rowsOf(page).locator("td:first-child > .badge").allInnerTexts()).every(t => /failed$/.test(t)))
		await close(page)
	},

	async "one click sorts the runs in trouble to the top"() {
		const failed = await stage("sunk")
		await until("the end", async () => (await api("run", { run: failed })).status === "failed")
		const last = await stage("waiting")
		const page = await open(base)
		await until("the latest run first", async () => (await ids(page))[0] === last)
		await page.getByLabel("Trouble first").check()
		await until("a failed run first", async () => /failed$/.test(await rowsOf(page).first().locator(".badge").innerText()))
		await page.reload()
		await until("a failed run first", async () => /failed$/.test(await rowsOf(page).first().locator(".badge").innerText()))
		await close(page)
	},

	async "the header says what somebody can do about a run without a process, in order, and nothing else"() {
		const asks = await stage("purchases"), died = await stage("died")
		const steps = async page => (await page.getByRole("note", { name: "What you can do" }).getByRole("listitem").allInnerTexts()).map(t => t.replace(/\s+/g, " "))
		const page = await open(link(asks, "/table"))
		const note = page.getByRole("note", { name: "What you can do" })
		await note.getByText("The run waits for 2 answers.").waitFor()
		let list = await steps(page)
		assert.match(list[0], /^Answer here: cfo, legal\. The answer waits in the store for a process\.$/) // the service cannot perform purchases
		assert.match(list[1], /^Or start a service that has the workflow purchase \(version [0-9a-f]{12}\): it continues the run by itself\./)
		await note.getByRole("link", { name: "legal" }).click()
		const panel = page.getByRole("complementary", { name: "Node" })
		await answer(panel, "yes") // the store has the choices of the gate
		await note.getByText("The run waits for an answer.").waitFor()
		await page.goto(link(died, "/table"))
		await note.getByText("The process that performed this run is gone.").waitFor()
		list = await steps(page)
		assert.match(list[0], /^Press “Continue here”/)
		assert.match(list[1], /^Or start a service/)
		const head = await page.locator(".run-head").innerText()
		assert.doesNotMatch(head, /queue|lease|No process performs|It continues when/)
		assert.deepEqual(await serious(page), [])
		await page.goto(link("stored", "/table"))
		await note.getByText("The run has not begun").waitFor()
		await note.getByText("Start a service that has the workflow order").waitFor()
		await close(page)
		const viewer = await open(link(died, "/table", `${server}/view/`), { width: 375 })
		await viewer.getByRole("note", { name: "What you can do" }).waitFor()
		await viewer.getByText("Start a service that has the workflow works").waitFor()
		assert.deepEqual(await steps(viewer), []) // nothing that this client may not do
		assert.equal(await overflow(viewer), 0)
		await close(viewer)
	},

	async "the graph of a run whose process is gone says so, and follows when another process continues the run"() {
		const run = await stage("died")
		const page = await open(link(run, "/graph"))
		await drawn(page, 2)
		const letters = async () => (await textsIn(page)).map(t => t.text).filter(t => t.length === 1).sort().join("")
		await until("an interrupted node", async () => (await letters()) === "!C")
		await page.keyboard.press("n")
		await page.getByRole("row", { name: /^long interrupted/ }).waitFor()
		assert.equal(await page.locator(".badge.s-running").count(), 0)
		await page.locator(".run-progress .f-interrupted").waitFor({ state: "attached" })
		await page.keyboard.press("g")
		await fetch(`${server}/stage/revive?run=${run}`)
		await until("the end", async () => (await letters()) === "CC")
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor()
		await close(page)
	},

	async "a continued run keeps its age, says when it was continued, and its log says what it lacks"() {
		const run = await stage("died"), { started } = await api("run", { run })
		const page = await open(link(run, "/log"))
		await page.getByRole("button", { name: "Continue here" }).click()
		await page.getByRole("dialog").getByRole("button", { name: "Continue here" }).click()
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor()
		const row = await api("run", { run })
		assert.equal(Date.parse(row.started), Date.parse(started))
		assert(Date.parse(row.continued) > Date.parse(started) && row.duration_ms >= Date.parse(row.continued) - Date.parse(started) - 1)
		await page.locator(".run-title .continued", { hasText: "continued here" }).waitFor()
		await page.getByText(/the run is completed after .* after it was continued/).waitFor()
		await page.getByText("The events from before this process continued the run are not kept").waitFor()
		assert.equal(await page.locator(".line", { hasText: "after 0s" }).count(), 0)
		await page.goto(base + "#/runs?q=" + run)
		await page.getByRole("link", { name: run, exact: true }).waitFor()
		assert.equal(Date.parse(await rowsOf(page).first().locator("time").first().getAttribute("dateTime")), Date.parse(started))
		await close(page)
	},

	async "counts say how many nodes have completed, and how many have ended otherwise"() {
		const run = await stage("sixty"), words = "6 of 60 completed, 54 cancelled"
		await until("the gate", async () => (await api("run", { run })).waits === 1)
		const page = await open(link(run))
		await page.locator(".run-progress").getByText("6 of 60 completed", { exact: true }).waitFor()
		await page.getByRole("button", { name: "Cancel", exact: true }).click()
		await page.getByRole("dialog").getByRole("button", { name: "Cancel the run", exact: true }).click()
		await page.locator(".run-progress").getByText(words, { exact: true }).waitFor()
		await page.goto(base + "#/runs?q=" + run)
		await rowsOf(page).first().getByText(words, { exact: true }).waitFor()
		assert.equal(await overflow(page), 0)
		await page.goto(link(await stage("refunds")))
		await page.locator(".run-progress").getByText("1 of 2 completed, 1 failed", { exact: true }).waitFor()
		await close(page)
	},

	async "the counts beside the filter follow the list, without a request"() {
		const page = await open(base)
		const count = () => page.locator(".chips a", { hasText: "suspended" }).locator(".count").innerText().then(Number)
		await until("counts", async () => (await count()) > 0)
		await page.waitForTimeout(1500)
		await page.route("**/api/v1/info", route => route.fulfill({ status: 503, body: "{}" })) // the counts must not need it
		page.problems.length = 0
		const before = await count(), begun = Date.now()
		await stage("waiting")
		await until("one more", async () => (await count()) === before + 1)
		console.log(`   after ${Date.now() - begun} ms`)
		await page.unroute("**/api/v1/info")
		page.problems = page.problems.filter(p => !/503/.test(p))
		await close(page)
	},
}
