// What operators do: they answer gates, and use every action.
import assert from "node:assert/strict"
import { answer, api, base, close, confirming, drawn, link, open, overflow, serious, stage, until } from "./harness.mjs"

export const actions = {
	async "two answer one gate: the second is told who was first"() {
		const run = await stage("orders")
		const ann = await open(base + "#/gates"), bob = await open(link(run, "/graph?node=approve"), { user: "bob", quiet: true })
		const card = ann.locator(".card", { hasText: run }).filter({ has: ann.getByRole("link", { name: "approve", exact: true }) })
		await card.waitFor()
		await bob.getByRole("button", { name: "hold" }).waitFor()
		await bob.route("**/api/v1/node?**", r => r.abort()) // bob's page does not learn of ann's answer in time
		await card.getByLabel("Comment").fill("looks good")
		const badge = () => ann.locator(".top nav a", { hasText: "Gates" }).locator(".bubble").innerText().then(Number)
		await until("the badge", async () => (await badge()) === (await api("gates", { limit: 1 })).total + (await api("gates", { limit: 1 })).failed)
		const tasks = await badge()
		await card.getByRole("button", { name: "ship", exact: true }).click()
		const before = await card.boundingBox()
		await card.getByRole("button", { name: "Answer ship", exact: true }).click()
		const done = ann.locator(".card.done", { hasText: run }) // in its place, so that no other card moves
		await done.getByText(/answered ship at \d\d:/).waitFor()
		await until("the badge", async () => (await badge()) === tasks - 1)
		await ann.waitForTimeout(1500) // the list is read again
		await done.getByRole("link", { name: "Open the run" }).waitFor()
		assert(Math.abs((await done.boundingBox()).height - before.height) < 0.1, `${(await done.boundingBox()).height} px high, and not ${before.height} px`) // the cards below it stay where they are
		assert.deepEqual(await serious(ann), [])
		await done.getByRole("button", { name: "Dismiss" }).click()
		await done.waitFor({ state: "detached" })
		await answer(bob, "hold")
		await bob.getByText("ann was first").waitFor()
		await bob.getByText("looks good").waitFor()
		await close(ann)
		await close(bob)
		const ship = await until("ship", async () => { const n = await api("node", { run, path: "ship" }); return n.status === "completed" && n })
		assert.equal(ship.upstream[0].edge, "taken")
	},

	async "a gate offers the declared words, its question's data, and the form of its schema"() {
		const run = await stage("asking")
		const page = await open(base + "#/gates")
		const card = id => page.locator(".card", { hasText: run }).filter({ has: page.getByRole("link", { name: id, exact: true }) })
		await card("one").waitFor()
		assert.deepEqual(await card("one").locator("form").getByRole("button").allInnerTexts(), ["approved", "rejected"])
		await card("one").getByText("1200").waitFor() // the offer on which the person decides
		await card("declared").getByRole("link", { name: "risk" }).waitFor()
		assert.equal(await card("one").getByText(/interface|map\[|float64/).count(), 0) // Go types
		const form = card("form")
		await form.getByLabel("Amount").fill("much")
		await form.getByLabel("currency").selectOption("USD")
		await form.getByLabel("urgent").check()
		await form.getByLabel("Comment").fill("once")
		await form.getByRole("button", { name: "Send" }).click()
		await page.getByText('The field "Amount" has no valid value.').waitFor()
		await form.getByLabel("Amount").fill("12.5")
		await form.getByRole("button", { name: "Send" }).click()
		await form.getByText('Answer {"amount":12.5,"currency":"USD","urgent":true} to gate form').waitFor()
		await form.getByRole("button", { name: "Answer", exact: true }).click()
		await form.waitFor({ state: "detached" })
		const node = await api("node", { run, path: "form" })
		assert.deepEqual([node.status, node.decision.value.json, node.decision.comment], ["completed", { amount: 12.5, currency: "USD", urgent: true }, "once"])
		await card("data").getByLabel("Answer").fill("7")
		await card("data").getByRole("button", { name: "Send" }).click()
		await card("data").getByRole("button", { name: "Answer 7" }).click()
		await card("data").waitFor({ state: "detached" })
		assert.equal((await api("node", { run, path: "data" })).decision.value.json, 7)
		await page.locator("button.primary").first().hover() // the button's text must be readable under the pointer, too
		let found
		await until("accessible page", async () => !(found = await serious(page)).length).catch(err => assert.fail(`${err.message}: ${found}`)) // repeat the check, because a button that was just pressed is pale
		await close(page)
		await fetch(`${base}api/v1/cancel?run=${encodeURIComponent(run)}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" })
	},

	async "every action asks first, and does what it says"() {
		const run = await stage("orders")
		const page = await open(link(run, "/graph?node=flaky"))
		const act = async (name, reason) => {
			await page.getByRole("button", { name, exact: true }).first().click()
			const dialog = page.getByRole("dialog")
			if (reason) await dialog.getByLabel("Reason").fill(reason)
			await dialog.getByRole("button", { name: confirming(name), exact: true }).click()
			await dialog.waitFor({ state: "detached" })
		}
		await page.getByRole("button", { name: "Retry now", exact: true }).click()
		await page.getByRole("dialog").waitFor()
		await page.evaluate(() => (location.hash = "#/gates"))
		await page.getByRole("dialog").waitFor({ state: "detached" }) // the dialog closes, because its run is no longer shown
		await page.goBack()
		await act("Retry now")
		await page.locator(".panel .why .badge", { hasText: /failed$/ }).waitFor()
		await page.goto(link(run, "/graph?node=each"))
		await act("Cancel node")
		await page.goto(link(run, "/graph"))
		await act("Cancel", "wrong input")
		await page.locator(".run-title .badge", { hasText: /failed|cancelled/ }).waitFor()
		await page.getByRole("button", { name: "Redrive" }).click()
		await page.getByText(/11 nodes run again/).waitFor() // from the map each, only its three items and their gates
		await page.getByRole("dialog").getByLabel("Reason").fill("again")
		await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).click()
		await page.locator(".run-title .badge", { hasText: "running" }).waitFor()
		await act("Abort", "enough")
		await page.locator(".run-title .badge", { hasText: "failed" }).waitFor()
		await page.goto(base)
		await page.getByRole("button", { name: "Start a run" }).click()
		await page.getByLabel("Inputs").fill("{")
		await page.getByRole("dialog").getByRole("button", { name: "Start a run" }).click()
		await page.getByText("This is not JSON.").waitFor()
		await page.getByLabel("Inputs").fill('{"n":1}')
		await page.getByRole("dialog").getByRole("button", { name: "Start a run" }).click()
		await drawn(page, 6)
		await act("Leave")
		await page.locator(".run-title .tag", { hasText: "left" }).waitFor()
		await close(page)
	},

	async "the items of a map that failed are redriven, after a preview"() {
		const run = await stage("mailing")
		const page = await open(link(run, "/graph?node=each"))
		await page.locator(".run-title .tag", { hasText: "degraded" }).waitFor()
		const name = "Redrive 2 failed items of 10,000"
		await page.getByRole("complementary", { name: "Node" }).getByRole("button", { name, exact: true }).click()
		const dialog = page.getByRole("dialog")
		await dialog.getByText("4 nodes run again").waitFor()
		assert.deepEqual(await dialog.getByRole("listitem").allTextContents(), ["each", "each[7]", "each[4200]", "sum"])
		await dialog.getByLabel("Reason").fill("they have moved")
		await dialog.getByRole("button", { name, exact: true }).click()
		await dialog.waitFor({ state: "detached" })
		await page.getByRole("button", { name, exact: true }).waitFor({ state: "detached" })
		await page.getByRole("complementary", { name: "Node" }).getByRole("button", { name: "Redrive", exact: true }).waitFor()
		const row = await until("the end", async () => { const r = await api("run", { run }); return r.status === "completed" && !r.degraded && r })
		assert.deepEqual(row.counts, { completed: 2 })
		const { nodes } = await api("nodes", { run, inside: "each", q: "each[7]" })
		assert.deepEqual(nodes.filter(r => r.path === "each[7]").map(r => [r.status, r.attempts]), [["completed", 1]])
		await page.goto(link(run, "/table?inside=each&node=each%5B3%5D"))
		await page.getByRole("complementary", { name: "Node" }).getByRole("button", { name: "Redrive", exact: true }).click()
		await dialog.getByText("3 nodes run again").waitFor() // the item, its map, and the node after the map
		await close(page)
	},

	async "a run that another process performs is asked by requests"() {
		const run = await stage("elsewhere")
		await stage(`hold?run=${run}`)
		const page = await open(link(run, "/graph?node=review%2Fapprove"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await answer(panel, "ship")
		await panel.getByText("waits for the process that performs the run").waitFor()
		await panel.getByRole("button", { name: "ship" }).waitFor({ state: "detached" }) // a second answer is not offered, because the first one counts
		await page.getByRole("button", { name: "Cancel", exact: true }).click()
		const dialog = page.getByRole("dialog")
		await dialog.getByLabel("Reason").fill("out of stock")
		await dialog.getByRole("button", { name: "Cancel the run", exact: true }).click()
		await page.locator(".run-head").getByText("out of stock").waitFor()
		await stage(`take?run=${run}`)
		await page.locator(".run-title .badge", { hasText: "cancelled" }).waitFor()
		await panel.getByText("ann answered ship").waitFor()
		await page.locator(".requests").first().waitFor({ state: "detached" })
		await close(page)
	},

	async "gates of stored runs are in the inbox, its badge and the list, and the second person reads who was first"() {
		const run = await stage("elsewhere")
		await stage(`hold?run=${run}`)
		const ann = await open(base + "#/gates"), bob = await open(base + "#/gates", { user: "bob", quiet: true })
		const card = page => page.locator(".card", { hasText: run }).filter({ has: page.getByRole("link", { name: "review/approve", exact: true }) })
		await card(ann).waitFor()
		await card(bob).waitFor()
		const { total } = await api("gates", { limit: 1 })
		assert(total > 0)
		await ann.locator(".top nav a", { hasText: "Gates" }).locator(".bubble").waitFor()
		await card(ann).getByText("Stored").waitFor()
		await card(ann).locator("time").first().waitFor() // the time since which the gate waits
		const described = await card(ann).getByRole("button", { name: "ship" }).evaluate(b => document.getElementById(b.getAttribute("aria-describedby")).textContent)
		assert.match(described, new RegExp(`Answer to review/approve.*${run}`)) // what a screen reader says after the button's name
		await answer(card(ann), "ship")
		await ann.locator(".card.done", { hasText: run }).getByText("waits for the process that performs the run").waitFor()
		await answer(card(bob), "hold")
		await bob.getByText("ann was first").waitFor()
		await close(bob)
		await ann.goto(base + "#/stored?q=" + run)
		const row = ann.getByRole("row").filter({ has: ann.getByRole("link", { name: run, exact: true }) })
		await row.getByRole("link", { name: "review/approve" }).waitFor()
		await row.getByText("waits for the process that performs the run").waitFor()
		assert.equal(await overflow(ann), 0)
		await close(ann)
		const narrow = await open(base + "#/stored", { width: 375, height: 700 })
		await narrow.getByRole("link", { name: "review/approve" }).first().waitFor()
		assert.equal(await overflow(narrow), 0)
		await close(narrow)
	},

	async "a compensation that has failed is an operator's task: retried, and then done by hand"() {
		const run = await stage("refund")
		const page = await open(base + "#/gates")
		const card = page.locator(".card", { has: page.getByRole("link", { name: run, exact: true }) })
		await card.getByText("compensation failed").waitFor()
		const act = async (from, name, reason, what) => {
			await from.getByRole("button", { name, exact: true }).click()
			const dialog = page.getByRole("dialog")
			await dialog.getByText("1 compensation has failed:").waitFor()
			assert.deepEqual(await dialog.getByRole("listitem").allTextContents(), ["pay"])
			await dialog.getByLabel("Reason").fill(reason)
			await dialog.getByRole("button", { name, exact: true }).click()
			await dialog.waitFor({ state: "detached" })
		}
		await page.goto(link(run, "/graph?node=pay"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await panel.getByText("the bank does not answer", { exact: true }).waitFor()
		await panel.getByText("whether it had an effect is unknown").waitFor()
		await act(panel, "Retry compensation", "they are back")
		await panel.getByText("the account is closed", { exact: true }).waitFor()
		await page.goto(base + "#/runs?undone=failed")
		await page.getByRole("link", { name: run, exact: true }).waitFor()
		await page.goto(base + "#/gates")
		await act(card, "Done by hand", "called the bank")
		await card.waitFor({ state: "detached" })
		await page.goto(link(run, "/graph?node=pay"))
		await panel.getByText("by hand, by ann").waitFor()
		await panel.getByText("called the bank").waitFor()
		await page.locator(".run-title .tag", { hasText: "compensated" }).waitFor()
		assert.equal(await page.getByRole("button", { name: "Done by hand" }).count(), 0)
		await page.goto(link(run, "/log"))
		await page.getByText(/undone by hand.*ann.*called the bank/).waitFor()
		await page.goto(base + "#/runs?undone=failed")
		await page.getByRole("heading", { name: "Runs" }).waitFor()
		await page.getByRole("link", { name: run, exact: true }).waitFor({ state: "detached" })
		await close(page)
	},

	async "of a run that another process performs, done by hand is a request"() {
		const run = await stage("refunds")
		const page = await open(base + "#/stored?undone=failed", { width: 375, height: 700 })
		await page.getByRole("link", { name: run, exact: true }).click()
		const name = "Done by hand"
		await page.getByRole("button", { name, exact: true }).click()
		const dialog = page.getByRole("dialog")
		await dialog.getByLabel("Reason").fill("called the bank")
		await dialog.getByRole("button", { name, exact: true }).click()
		await dialog.waitFor({ state: "detached" })
		await page.locator(".requests").getByText("waits for the process that performs the run").waitFor()
		await page.locator(".requests").getByText("called the bank").waitFor()
		await page.goto(base + "#/gates")
		await page.locator(".card", { hasText: run }).waitFor()
		for (const [hash, ready] of [["#/gates", ".card .tag"], ["#/runs", "#main h1"], ["#/stored", "#main td .tag"], ["#/runs/" + encodeURIComponent(run) + "/table?node=pay", ".panel .undone"]]) {
			await page.goto(base + hash)
			await page.locator(ready).first().waitFor()
			assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 375, hash)
		}
		await close(page)
	},

	async "a start whose answer is lost is performed once, however often it is asked for"() {
		const page = await open(base, { quiet: true })
		const keys = []
		await page.route("**/api/v1/start?**", async route => {
			keys.push(route.request().headers()["idempotency-key"])
			if (keys.length > 1) return route.continue()
			await route.fetch()
			return route.fulfill({ status: 504, contentType: "text/plain", body: "" })
		})
		const before = (await api("runs", {})).total
		const start = () => page.getByRole("dialog").getByRole("button", { name: "Start a run" }).click()
		await page.getByRole("button", { name: "Start a run" }).click()
		await start()
		await until("the start", () => keys.length === 1)
		await until("the button", () => page.getByRole("dialog").getByRole("button", { name: "Start a run" }).isEnabled())
		await start()
		await page.getByRole("dialog").waitFor({ state: "detached" })
		assert.equal((await api("runs", {})).total, before + 1)
		await page.goto(base)
		await page.getByRole("button", { name: "Start a run" }).click()
		await start()
		await page.getByRole("dialog").waitFor({ state: "detached" })
		assert.equal((await api("runs", {})).total, before + 2)
		assert.deepEqual([keys.length, keys[0] === keys[1], keys[1] === keys[2]], [3, true, false])
		await close(page)
	},
}
