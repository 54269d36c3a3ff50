// Further tasks of operators: redriving chosen items, and seeing places in line, outputs from the cache, and schedules that no process serves.
import assert from "node:assert/strict"
import { api, base, close, completed, link, open, overflow, serious, server, stage, until } from "./harness.mjs"

export const operating = {
	async "chosen items of a map are redriven, after a preview, and the others stay as they are"() {
		const run = await completed("letters")
		const page = await open(link(run, "/graph?node=each"), { quiet: true })
		const failed = async () => (await api("nodes", { run, inside: "each", status: "failed" })).nodes.map(n => n.path)
		assert.equal((await failed()).length, 5)
		await page.getByRole("complementary", { name: "Node" }).getByRole("link", { name: "Choose items" }).click()
		await until("the failed items alone", async () => (await page.locator(".tableview tbody tr").count()) === 5)
		await page.getByLabel("Choose each[3]", { exact: true }).check()
		await page.getByRole("searchbox", { name: "Search nodes" }).fill("each[7]")
		await until("one row", async () => (await page.locator(".tableview tbody tr").count()) === 1)
		await page.getByLabel("Choose all shown nodes").check() // each[3] stays chosen, although the filter hides it
		const name = "Redrive 2 chosen nodes"
		await page.getByRole("button", { name, exact: true }).click()
		const dialog = page.getByRole("dialog")
		await dialog.getByText("4 nodes run again").waitFor()
		assert.deepEqual(await dialog.getByRole("listitem").allTextContents(), ["each", "each[3]", "each[7]", "sum"])
		assert.deepEqual(await serious(page), [])
		await dialog.getByLabel("Reason").fill("they have moved")
		await dialog.getByRole("button", { name, exact: true }).click()
		await dialog.waitFor({ state: "detached" })
		await until("the end", async () => (await api("run", { run })).status === "completed" && (await failed()).length === 3)
		assert.deepEqual(await failed(), ["each[1]", "each[5]", "each[9]"])
		await page.getByRole("button", { name, exact: true }).waitFor({ state: "detached" }) // after the redrive nothing is chosen
		await page.getByRole("searchbox", { name: "Search nodes" }).fill("")
		await until("the rest", async () => (await page.locator(".tableview tbody tr").count()) === 3)
		await close(page)
		const viewer = await open(link(run, "/table?inside=each", `${server}/view/`))
		await viewer.getByRole("link", { name: "each[1]", exact: true }).waitFor()
		assert.equal(await viewer.locator(".tableview table").getByRole("checkbox").count(), 0)
		await close(viewer)
	},

	async "a pending run shows its key, its priority and its place in line"() {
		await stage("line")
		const page = await open(link("lined-3"))
		const line = page.locator(".run-head .line")
		await line.getByText("key initech").waitFor()
		await line.getByText("waits for its turn: 2 runs with its key begin before it, 0 run now").waitFor()
		await page.goto(link("lined-1"))
		await line.getByText("1 run with its key begins before it").waitFor()
		await page.goto(link("lined-4"))
		await line.getByText("begins no earlier than").waitFor()
		await page.goto(link("lined-2"))
		await line.getByText("no run with its key begins before it").waitFor()
		await line.getByText("priority 5").waitFor()
		assert.equal(await overflow(page), 0)
		await line.getByRole("link", { name: "initech" }).click()
		await until("the runs of the key", async () => (await page.locator("table.runs tbody tr").count()) === 4)
		await close(page)
	},

	async "an output from the cache says from which run it is: in the panel, the table, the log and the timeline"() {
		const first = await completed("cached"), run = await completed("cached")
		const page = await open(link(run, "/table?node=load"))
		await page.locator(".tableview").getByRole("row", { name: /load/ }).getByText("from cache").waitFor()
		const panel = page.getByRole("complementary", { name: "Node" })
		await panel.getByText("from cache").waitFor()
		await page.goto(link(run, "/timeline"))
		await page.getByText("1 output from the cache").waitFor()
		await page.goto(link(run, "/log"))
		await page.getByText(`completed, with the output of run ${first} of`).waitFor()
		await page.goto(link(run, "/table?node=load"))
		await panel.locator(".hit").getByRole("link", { name: first, exact: true }).click()
		await page.locator(".run-id", { hasText: first }).waitFor()
		assert.equal(await panel.getByText("from cache").count(), 0)
		await close(page)
	},

	async "lists and headers say who cancelled or aborted a run, and why"() {
		const page = await open(base)
		for (const [verb, said] of [["cancel", "cancelled by ann: wrong input"], ["abort", "aborted by ann: wrong input"]]) {
			const run = await stage("waiting")
			await page.goto(link(run))
			await page.getByRole("button", { name: verb === "cancel" ? "Cancel" : "Abort", exact: true }).click()
			const dialog = page.getByRole("dialog")
			await dialog.getByLabel("Reason").fill("wrong input")
			await dialog.getByRole("button", { name: "Keep running", exact: true }).waitFor()
			await dialog.getByRole("button", { name: `${verb === "cancel" ? "Cancel" : "Abort"} the run`, exact: true }).click()
			await until(said, async () => (await page.locator(".run-head .stopped").allInnerTexts()).map(t => t.replace(/["“”]/g, "")).includes(said))
			await page.goto(base + "#/runs?q=" + run)
			const cell = page.getByRole("row").filter({ has: page.getByRole("link", { name: run, exact: true }) }).locator(".stopped")
			await cell.waitFor()
			assert.equal((await cell.innerText()).replace(/["“”]/g, ""), said)
		}
		await page.goto(`${server}/view/#/runs?workflow=waiting&status=failed`)
		await page.locator("table.runs .stopped").first().waitFor()
		assert.equal(await page.locator("table.runs .stopped").first().innerText(), "aborted") // a client that may only view does not see who stopped the run, or why
		await close(page)
	},

	async "nodes in trouble come first, unless the order of the graph is chosen"() {
		const run = await stage("tables")
		await until("the end", async () => (await api("run", { run })).status === "failed")
		const page = await open(link(run, "/table"))
		const first = page.locator(".tableview tbody tr").first()
		await first.locator(".badge.s-failed").waitFor()
		await page.getByLabel("Trouble first").uncheck()
		await page.locator(".tableview tbody tr").first().getByText("table_00_00_customer_orders_daily").waitFor()
		await page.reload()
		await page.locator(".tableview tbody tr").first().getByText("table_00_00_customer_orders_daily").waitFor()
		await close(page)
	},

	async "in a narrow window the header of a run wraps, rows say the status and the reason first, and the nodes keep their statuses"() {
		const failed = await stage("tables"), asks = await stage("purchase"), late = await stage("stuck")
		await stage("hostile") // its long texts must not push other rows out of the window, nor make them high
		await stage("sinking")
		await until("the end", async () => (await api("run", { run: failed })).status === "failed" && (await api("run", { run: asks })).waits === 2 && (await api("run", { run: late })).late_ms > 1000)
		for (const width of [375, 800, 1280]) {
			const page = await open(base, { width, height: 800 })
			const row = id => page.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) })
			for (const [id, reason] of [[failed, "duplicate key"], [asks, "waits for"]]) {
				const [status, why, name] = await Promise.all([row(id).locator(".badge").boundingBox(), row(id).getByText(reason).first().boundingBox(), row(id).locator("[data-row]").boundingBox()])
				assert((width >= 900 || (status.y < why.y && why.y < name.y)) && why.x + why.width <= width, `${reason} at ${width}`)
			}
			const large = await page.locator("table.runs tbody tr").evaluateAll((rows, w) => rows.map(r => [r.getBoundingClientRect(), r.innerText]).filter(([b]) => b.height > 260 || b.right > w).map(([b, text]) => `${b.right} ${b.height} ${text.slice(0, 80)}`), width)
			assert.deepEqual(large, [], `rows at ${width}`)
			assert.equal(await overflow(page), 0)
			for (const id of [failed, asks, late]) {
				await page.goto(link(id, "/table"))
				await page.locator(".tableview tbody tr .badge").first().waitFor()
				const [title, badge, view] = await Promise.all([".run-title h1", ".run-title .badge", ".tableview tbody tr .badge"].map(s => page.locator(s).first().boundingBox()))
				assert(title.width > 60, `the title of ${id} at ${width} has ${title.width} px`)
				if (width < 700) assert(title.y + title.height <= badge.y + 1)
				assert(view.x + view.width <= width)
				const cut = await page.locator(".run-title > *").evaluateAll((all, w) => all.filter(e => e.getBoundingClientRect().right > w || (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" && e.tagName !== "H1")).map(e => e.outerHTML.slice(0, 80)), width)
				assert.deepEqual(cut, [], `at ${width}`)
				const took = await page.locator(".run-title > .meta").first().evaluate(e => e.getClientRects().length)
				assert.equal(took, 1, "the duration is on one line")
				assert.equal(await overflow(page), 0)
				assert.deepEqual(await serious(page), [])
			}
			await close(page)
		}
	},

	async "a schedule that no process serves is marked, and what is refused says why"() {
		const page = await open(base + "#/schedules", { quiet: true })
		const row = page.getByRole("row", { name: /weekly audit/ })
		await row.getByText("no service").waitFor()
		await row.getByText("no missed tick runs, runs may overlap").waitFor()
		await row.getByRole("button", { name: "Run now: weekly audit" }).click()
		await row.getByText("this process does not serve the schedule").waitFor()
		const served = page.getByRole("row", { name: /<b>nightly/ })
		assert.equal(await served.getByText("no service").count(), 0)
		await served.getByRole("button", { name: "Run now: <b>nightly" }).click()
		await served.locator("td:nth-child(5) a").click()
		await page.locator(".run-title").getByText("completed").waitFor()
		await close(page)
	},
}
