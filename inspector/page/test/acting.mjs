// What a person needs to act: Escape closes one thing, an answer is asked for twice, and what to act on is named first.
import assert from "node:assert/strict"
import { answer, api, base, close, completed, drawn, ended, link, open, overflow, serious, stage, tabTo, textsIn, until } from "./harness.mjs"

const focused = page => page.evaluate(() => document.activeElement.textContent.trim())
const inRun = (page, run) => page.url().includes(`#/runs/${run}`)

export const acting = {
	async "Escape closes the innermost thing only, and the focus returns to its button"() {
		const run = await completed("crews")
		const page = await open(link(run, "/graph"))
		await drawn(page, 6)
		for (const [name, act] of [["Groups", () => page.getByLabel("Fold db").check()], ["Export", () => page.getByRole("button", { name: "Save as PNG" }).focus()]]) {
			const menu = page.locator("details.menu", { hasText: name })
			await menu.locator("summary").click()
			await act()
			await page.keyboard.press("Escape")
			await until(`${name} closed`, async () => !(await menu.evaluate(m => m.open)))
			assert(inRun(page, run), name)
			await until(`focus on ${name}`, async () => (await focused(page)).startsWith(name))
			await menu.locator("summary").click()
			const list = menu.locator(":scope > div"), { x, width } = await list.boundingBox()
			assert(width >= 140 && x + width <= 1280, `${name} is ${width} px wide`)
			await page.locator(".run-title h1").click() // a click outside closes it, too
			await until(`${name} closed again`, async () => !(await menu.evaluate(m => m.open)))
		}
		await page.setViewportSize({ width: 400, height: 800 })
		for (const name of ["Groups", "Export"]) {
			const menu = page.locator("details.menu", { hasText: name })
			await menu.locator("summary").click()
			const { x, y, width, height } = await menu.locator(":scope > div").boundingBox(), own = await menu.locator("summary").boundingBox()
			assert(x >= 0 && x + width <= 400 && y >= own.y + own.height && y + height <= 800, `${name} is at ${x} ${y}, ${width} px wide`)
			await page.keyboard.press("Escape")
		}
		await page.setViewportSize({ width: 1280, height: 800 })
		await page.keyboard.press("?")
		await page.getByRole("dialog").waitFor()
		await page.keyboard.press("Escape")
		await page.getByRole("dialog").waitFor({ state: "detached" })
		assert(inRun(page, run), "dialog")
		await page.goto(link(run, "/log"))
		await page.getByRole("searchbox", { name: "Search the log" }).focus()
		await page.keyboard.press("Escape")
		await page.waitForTimeout(100)
		assert(inRun(page, run), "field")
		await page.goto(link(run, "/graph?node=think"))
		await page.getByRole("complementary", { name: "Node" }).waitFor()
		await page.keyboard.down("Escape")
		await page.keyboard.down("Escape") // the key is held
		await page.keyboard.up("Escape")
		await page.getByRole("complementary", { name: "Node" }).waitFor({ state: "detached" })
		assert(inRun(page, run), "held")
		await page.keyboard.press("Escape")
		await page.locator("table.runs").waitFor()
		await close(page)
	},

	async "Escape deselects a cluster before it leaves the run, and Back closes a dialog"() {
		const run = await ended("tables", "failed")
		const page = await open(link(run, "/graph?by=layer"))
		await page.locator("canvas.picture").focus()
		await until("a selected cluster", async () => {
			await page.keyboard.press("ArrowRight")
			return (await page.getByRole("button", { name: "Unfold", exact: true }).count()) === 1
		})
		await page.keyboard.press("Escape")
		await page.getByRole("button", { name: "Unfold", exact: true }).waitFor({ state: "detached" })
		await page.waitForTimeout(100)
		assert(inRun(page, run))
		await page.locator(".tabs").getByRole("link", { name: "Timeline" }).click()
		await page.getByRole("button", { name: "Redrive", exact: true }).click()
		await page.getByRole("dialog").waitFor()
		await page.goBack()
		await page.getByRole("dialog").waitFor({ state: "detached" })
		await page.locator("canvas.picture").waitFor()
		assert(inRun(page, run))
		await page.keyboard.press("Escape")
		await page.locator("table.runs").waitFor()
		await close(page)
	},

	async "an answer is sent after the page has shown it and asked, and the gate says where it leads and until when it waits"() {
		const run = await stage("leading")
		await until("gates", async () => (await api("run", { run })).waits === 4)
		const page = await open(link(run, "/graph"))
		await page.locator(".run-head .attention.waits").getByRole("link", { name: "labels", exact: true }).click()
		const panel = page.getByRole("complementary", { name: "Node" }), waits = async () => (await api("node", { run, path: "labels" })).status === "suspended"
		await panel.getByText("it waits for an answer").waitFor()
		await panel.getByText("without an answer the gate then answers timeout by itself").waitFor()
		assert.deepEqual((await panel.getByRole("list", { name: "Where the answers lead" }).getByRole("listitem").allInnerTexts()).map(t => t.trim()),
			["approve leads to order", "reject leads to tell", "later skips order, tell, nobody", "timeout leads to nobody"])
		const choice = panel.getByRole("button", { name: "approve", exact: true }), question = panel.getByRole("group", { name: new RegExp(`Answer approve to gate labels of run ${run}`) })
		await panel.getByLabel("Comment").fill("fine")
		await choice.click()
		await question.waitFor()
		await until("focus on the question", async () => (await focused(page)).startsWith("Answer approve to gate labels")) // what a screen reader reads
		assert.deepEqual(await serious(page), [])
		await panel.getByRole("button", { name: "Back" }).click()
		await until("focus on the choice", async () => (await focused(page)) === "approve")
		assert.equal(await panel.getByLabel("Comment").inputValue(), "fine")
		await choice.click()
		await page.keyboard.press("Escape") // the question only
		await choice.waitFor()
		await choice.dblclick()
		await question.waitFor()
		await page.keyboard.press("Escape")
		await choice.focus()
		for (let i = 0; i < 3; i++) await page.keyboard.down("Enter") // the key is held
		await page.keyboard.up("Enter")
		await question.waitFor()
		await page.waitForTimeout(300)
		assert(await waits(), "the gate is answered without a confirmation")
		await tabTo(page, "Answer approve")
		await page.keyboard.press("Enter")
		await panel.getByText("ann answered approve").waitFor()
		await panel.getByText("fine").waitFor()
		await page.goto(link(run, "/log"))
		await page.getByText('ann answered approve, with the comment "fine"').waitFor()
		await page.getByText(/completed.* after .*s of waiting for an answer/).first().waitFor()
		await page.getByText(/waits for an answer until/).first().waitFor()

		await page.goto(base + "#/gates")
		const card = page.locator(".card", { hasText: run }).filter({ has: page.getByRole("link", { name: "plain", exact: true }) })
		await card.getByText("without an answer the gate then fails, and the nodes that need its answer do not run").waitFor()
		await card.getByText("colour then decides: red leads to paint").waitFor()
		await card.getByText("a failure leads to alarm").waitFor()
		await answer(card, "red")
		await page.locator(".card.done", { hasText: run }).filter({ hasText: "plain" }).getByText("answered red at").waitFor()
		await page.goto(link(run, "/table?node=sleeper"))
		await panel.getByText("without an answer the step then goes on").waitFor()
		await close(page)
	},

	async "the heading of the panel shows a long name whole"() {
		const name = "deep-".repeat(40), page = await open(link(await ended("sunk", "failed"), `/graph?node=${name}`))
		const heading = page.getByRole("complementary", { name: "Node" }).getByRole("heading", { level: 2 })
		await heading.getByText(name).waitFor()
		assert(await heading.evaluate(h => h.scrollWidth <= h.clientWidth && h.scrollHeight <= h.clientHeight))
		await close(page)
	},

	async "the toolbar of the graph keeps one row beside the panel, names are whole where there is room, and letters are explained"() {
		const page = await open(link(await completed("crews"), "/graph?node=think"))
		const rows = () => page.locator(".graph > .tools").first().evaluate(t => new Set([...t.children].filter(c => c.offsetHeight).map(c => Math.round(c.offsetTop + c.offsetHeight / 2))).size)
		await drawn(page, 6)
		await page.getByRole("complementary", { name: "Node" }).waitFor()
		assert.equal(await rows(), 1)
		await page.getByRole("list", { name: "Statuses in the graph" }).getByText("completed").waitFor()
		const run = await ended("tables", "failed")
		await page.goto(link(run, "/graph?failed=1"))
		await drawn(page, 5)
		await page.goto(link(run, "/graph?by=layer&node=table_00_00_customer_orders_daily"))
		await until("a whole name", async () => (await textsIn(page).catch(() => [])).some(t => t.inside && t.text === "table_00_00_customer_orders_daily"))
		assert.equal(await rows(), 1)
		assert.deepEqual(await page.getByRole("list", { name: "Statuses in the graph" }).locator("li").allInnerTexts().then(list => list.map(t => t.trim().split(/\s/).at(-1))), ["failed", "aborted", "completed"])
		await close(page)
	},

	async "a long step without a History says for how long it runs, that there is no estimate, and what bounds it"() {
		const run = await stage("migrating")
		await until("step", async () => (await api("run", { run })).counts.running === 1)
		const page = await open(link(run, "/graph?node=migrate"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await panel.getByText(/running for \d/).waitFor()
		await panel.getByText("no estimate: no History knows how long it takes").waitFor()
		await panel.getByText("an attempt may take 2 h 0 min").waitFor()
		assert.match(await panel.locator(".why").innerText(), /it is running since [\d:]+, stopped at [\d: -]+ if it has not ended \(timeout 2 h 0 min\)/)
		const tag = panel.locator(".tag", { hasText: "group db: 1 of 1 slots in use" })
		assert.match(await tag.getAttribute("title"), /Only 1 node of the group runs at a time/)
		await panel.locator(".tag", { hasText: "group all: no limit, stops as a whole" }).waitFor()
		await page.locator(".run-title").getByText("no estimate").waitFor()
		await page.goto(link(run, "/graph?node=vacuum"))
		await panel.getByText("it waits for a slot of the group db, held by migrate").waitFor()
		await page.goto(link(run, "/table"))
		await page.locator(".tableview").getByRole("row", { name: /vacuum/ }).getByText("waits for a slot of group db").waitFor()
		assert.match(await page.locator(".run-title .at-work").innerText(), /^runs: Migrate the database$/)
		await page.goto(base + "#/runs")
		const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: run, exact: true }) })
		await row.getByRole("link", { name: "Migrate the database" }).click()
		await panel.getByText("running for").waitFor()
		await close(page)
	},

	async "a redrive shows the inputs that it uses again, and says that it cannot change them; a fork can be given others"() {
		const run = await ended("paying", "failed")
		const page = await open(link(run))
		await page.getByRole("button", { name: "Redrive", exact: true }).click()
		const dialog = page.getByRole("dialog")
		await dialog.getByText("The inputs that are used again").waitFor()
		assert.equal(await dialog.locator(".inputs pre").innerText(), "wrong")
		await dialog.getByText("A redrive cannot change the inputs").waitFor()
		assert.deepEqual(await serious(page), [])
		await page.keyboard.press("Escape")
		await dialog.waitFor({ state: "detached" })
		await until("focus on the button", async () => (await focused(page)) === "Redrive")
		await page.getByRole("button", { name: "Fork", exact: true }).click()
		await dialog.getByLabel("Other inputs").fill('{"eur":"12"}')
		await dialog.getByRole("button", { name: "Fork the run", exact: true }).click()
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor()
		assert(!page.url().includes(run))
		await close(page)
	},

	async "after a redrive the page says who redrove what and when, and that the run has failed again"() {
		const run = await ended("paying", "failed")
		const page = await open(link(run))
		await page.evaluate(() => { // what a screen reader reads
			window.read = []
			new MutationObserver(() => window.read.push(document.querySelector("[aria-live]").textContent)).observe(document.querySelector("[aria-live]"), { childList: true, characterData: true, subtree: true })
		})
		assert.equal(await page.getByText("failed again").count(), 0)
		await page.getByRole("button", { name: "Redrive", exact: true }).click()
		await page.getByRole("dialog").getByRole("button", { name: "Redrive the run", exact: true }).click()
		await page.locator(".run-head").getByText(/redriven at \d\d:\d\d:\d\d by ann: \d nodes? runs? again/).waitFor()
		await page.locator(".run-error").getByText(/failed again at \d\d:\d\d:\d\d/).waitFor()
		await until("an announcement", () => page.evaluate(() => window.read.some(t => /redriven at .* by ann/.test(t))))
		await page.goto(base)
		await page.goto(link(run, "/table"))
		assert.deepEqual(await serious(page), [])
		await close(page)

		const bought = await stage("purchase")
		await until("gates", async () => (await api("run", { run: bought })).waits === 2)
		const at = await open(link(bought, "/graph?node=cfo"))
		const panel = at.getByRole("complementary", { name: "Node" })
		await answer(panel, "approve")
		await at.goto(link(bought, "/graph?node=legal"))
		await answer(panel, "yes")
		await at.locator(".run-title .badge", { hasText: "completed" }).waitFor()
		for (const name of ["Redrive", "Fork"]) assert.equal(await at.locator(".run-head").getByRole("button", { name, exact: true }).count(), 0) // nothing would run again
		await panel.getByRole("button", { name: "Redrive", exact: true }).click()
		const dialog = at.getByRole("dialog")
		await dialog.getByText("Gates that ask again: legal").waitFor()
		await dialog.getByText("Nodes that have completed and run again: order, file").waitFor()
		await dialog.getByText("For other inputs start a new one.").waitFor() // nobody can fork this run here
		await dialog.getByRole("button", { name: "Redrive the node", exact: true }).click()
		await panel.getByRole("button", { name: "yes", exact: true }).waitFor()
		await fetch(`${base}api/v1/cancel?run=${bought}`, { method: "POST", headers: { "Content-Type": "application/json", "Idempotency-Key": bought }, body: "{}" })
		await close(at)
	},

	async "what was stopped with a cancelled run is no box without a name"() {
		const run = await stage("waiting")
		const page = await open(link(run, "/graph"))
		await drawn(page, 1)
		await page.getByRole("button", { name: "Cancel", exact: true }).click()
		await page.getByRole("dialog").getByRole("button", { name: "Cancel the run", exact: true }).click()
		await page.locator(".run-title .badge", { hasText: "cancelled" }).waitFor()
		const two = await stage("purchase")
		await until("gates", async () => (await api("run", { run: two })).waits === 2)
		await fetch(`${base}api/v1/cancel?run=${two}`, { method: "POST", headers: { "Content-Type": "application/json", "Idempotency-Key": two }, body: "{}" })
		await until("the end", async () => (await api("run", { run: two })).status === "cancelled")
		await page.goto(link(two, "/graph?failed=1"))
		await until("the box", async () => (await textsIn(page).catch(() => [])).some(t => t.text === "stopped with the run"))
		await close(page)
	},

	async "in a narrow window the cause comes first, and then the nodes to act on, which lead into the graph"() {
		const page = await open(base, { width: 400, height: 800 })
		const failed = await ended("tables", "failed")
		await page.goto(link(failed))
		const cause = page.locator(".run-head .cause")
		await cause.waitFor()
		const list = page.locator(".run-head .failures a").first(), tabs = await page.locator(".tabs").boundingBox()
		const at = async l => (await l.boundingBox()).y
		assert(await at(page.locator(".run-title")) < await at(cause) && await at(cause) < await at(list) && await at(list) < await at(page.locator(".run-progress")) && await at(list) < tabs.y)
		assert(await at(list) < 250, `the list begins at ${await at(list)} px`)
		assert.equal(await overflow(page), 0)
		await list.click()
		assert.match(page.url(), /\/graph\?node=table_06_04_customer_orders_daily/)
		await page.locator("canvas.picture").waitFor()
		const run = await stage("purchase")
		await until("gates", async () => (await api("run", { run })).waits === 2)
		await page.goto(link(run))
		await page.locator(".run-head .waits").getByRole("link", { name: "cfo" }).click()
		await page.getByRole("complementary", { name: "Node" }).getByRole("button", { name: "approve" }).waitFor()
		assert.match(page.url(), /\/graph\?node=cfo/)
		assert.deepEqual(await serious(page), [])
		await close(page)
	},
}
