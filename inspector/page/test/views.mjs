// Lists, tables and texts: what they show, and that a reload restores it.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { answer, api, base, browser, close, completed, confirming, data, drawn, link, open, overflow, serious, server, stage, tabTo, until } from "./harness.mjs"

export const views = {
	async "what a run has used is in its header, in lists and with its nodes, live and stored"() {
		const amounts = ["0.25 cents", "1,202 input_tokens", "300 output_tokens"]
		for (const [name, list] of [["spent", "#/runs"], ["spends", "#/stored"]]) {
			const run = await stage(name)
			await until("use by " + run, async () => (await api("run", { run })).usage?.cents === 0.25)
			for (const width of [1280, 375]) {
				const page = await open(base + list, { width, height: 800 })
				const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: run, exact: true }) })
				const inRow = row.getByRole("note", { name: "Used" })
				await inRow.waitFor()
				assert.match(await inRow.innerText(), /0\.25\s+cents/)
				await inRow.getByText("and 2 more").waitFor()
				for (const [hash, at] of [["", "header"], ["/table?node=ask", ".panel"]]) {
					await page.goto(link(run, hash))
					const note = page.locator(at).getByRole("note", { name: "Used" })
					await note.waitFor()
					const texts = (await note.locator(":scope > span").allInnerTexts()).map(t => t.replace(/\s+/g, " "))
					assert.equal(texts.length, 5)
					for (const amount of amounts) assert(texts.includes(amount), `${amount} in ${texts}`)
					assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width)
				}
				await page.goto(base + list)
				await inRow.waitFor()
				assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width)
				assert.deepEqual(await page.evaluate(() => { const m = document.querySelector("#main"); return m.scrollWidth <= m.clientWidth ? [] : [...m.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > m.clientWidth).map(e => e.outerHTML.slice(0, 120)) }), [], "what overflows at " + width)
				await close(page)
			}
		}
	},

	async "the cause stands first, whole and as a link; a running run says that nodes have failed; a long error is shown once, folded"() {
		const sunk = await stage("sunk"), sinking = await stage("sinking"), cause = "the first line of the cause"
		await until("the end", async () => (await api("run", { run: sunk })).status === "failed")
		await until("a failure", async () => (await api("run", { run: sinking })).counts.failed === 1)
		assert.equal((await api("run", { run: sinking })).status, "running")
		for (const width of [1280, 375]) {
			const page = await open(base, { width, height: 800 })
			const row = id => page.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) })
			await row(sinking).getByRole("link", { name: "1 failed" }).waitFor()
			assert.equal(await overflow(page), 0)
			if (width > 700) await row(sunk).getByText(cause).waitFor()
			await page.goto(link(sinking, "/table"))
			await page.locator(".run-title").getByRole("link", { name: "1 failed" }).click()
			await until("one row", async () => (await page.locator(".tableview tbody tr").count()) === 1)
			await page.goto(link(sunk, "/table"))
			const red = page.locator("header").getByRole("link", { name: cause })
			await red.waitFor()
			assert((await red.innerText()).startsWith(cause))
			const shown = await red.locator("span").first().evaluate(e => e.scrollWidth <= e.clientWidth && e.getBoundingClientRect().right <= innerWidth)
			assert(shown, "the cause is cut off")
			const path = red.locator(".path")
			assert(await path.evaluate(e => e.scrollWidth > e.clientWidth), "the path is not cut off, so this proves nothing")
			await red.click()
			const panel = page.getByRole("complementary", { name: "Node" }), text = panel.locator(".failure pre")
			await text.waitFor()
			assert.match(await text.innerText(), /^the first line of the cause\nline 2 of the trace\n/)
			assert.doesNotMatch(await text.innerText(), /line 41/)
			assert.equal((await panel.innerText()).split("line 2 of the trace").length - 1, 1, "times that the error is shown")
			await panel.getByRole("button", { name: "Show all" }).click()
			assert.match(await text.innerText(), /line 41 of the trace$/)
			await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
			await panel.getByRole("button", { name: "Copy error" }).click()
			await panel.getByRole("button", { name: "Copied" }).waitFor()
			assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^the first line of the cause\n[^]*line 41 of the trace$/)
			assert.deepEqual(await serious(page), [])
			await close(page)
		}
	},

	async "the list is live, filtered and searched"() {
		const page = await open(base)
		await page.getByRole("row", { name: /orders/ }).first().waitFor()
		const run = await stage("orders")
		await page.getByRole("link", { name: run }).waitFor() // without a reload
		await page.getByRole("row", { name: run }).getByText("1 of 6 completed").waitFor()
		await page.locator(".chips").getByRole("link", { name: /cancelled/ }).click()
		await page.getByText("No run matches the filters").waitFor()
		assert.match(page.url(), /status=cancelled/)
		await page.reload()
		await page.getByText("No run matches the filters").waitFor()
		await page.getByRole("link", { name: "Clear filters" }).click()
		await page.keyboard.press("/")
		await page.keyboard.type(run)
		await until("one row", async () => (await page.locator("table.runs tbody tr").count()) === 1)
		await page.keyboard.press("Escape")
		await page.keyboard.press("j")
		await page.keyboard.press("Enter")
		await page.getByRole("heading", { name: "orders" }).waitFor()
		await drawn(page, 6)
		await close(page)
	},

	async "a node says why, by mouse and by keyboard, and a link opens it"() {
		const run = await stage("orders")
		const page = await open(link(run))
		await drawn(page, 6)
		await page.locator("canvas.picture").focus()
		for (const key of ["ArrowRight", "ArrowRight", "ArrowDown"]) await page.keyboard.press(key)
		await until("a node in the address", () => /node=/.test(page.url()))
		await page.goto(link(run, "/graph?node=flaky"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await panel.getByText(/it is attempted again at/).waitFor()
		await panel.getByText("the disk is full", { exact: false }).first().waitFor()
		await panel.getByRole("link", { name: "last" }).click()
		await panel.getByText("it waits for each, flaky").waitFor()
		await page.reload()
		await panel.getByText("it waits for each, flaky").waitFor()
		await page.goto(link(run, "/graph?node=fetch"))
		await panel.getByText("The first part of").waitFor()
		const [download] = await Promise.all([page.waitForEvent("download"), panel.getByRole("link", { name: "Download all of it" }).click()])
		assert.equal(download.suggestedFilename(), "value.json")
		await page.keyboard.press("Escape")
		await panel.waitFor({ state: "detached" })
		for (const [key, tab] of [["t", "Timeline"], ["l", "Log"], ["n", "Nodes"], ["g", "Graph"]]) {
			await page.keyboard.press(key)
			await page.locator(`.tabs a[aria-current=page]`, { hasText: tab }).waitFor()
		}
		await page.keyboard.press("?")
		await page.getByRole("dialog", { name: "Keyboard" }).waitFor()
		await page.keyboard.press("Escape")
		await close(page)
	},

	async "the table mirrors the graph, the log follows, the timeline has lanes"() {
		const run = await stage("orders")
		const page = await open(link(run, "/table"))
		await page.getByRole("row", { name: /flaky retrying 1/ }).waitFor()
		await page.getByLabel("Status").selectOption("suspended")
		await until("two rows", async () => (await page.locator(".tableview tbody tr").count()) === 2)
		await page.goto(link(run, "/log"))
		await page.getByText("slow <b>disk</b>").waitFor()
		await page.getByLabel("Search the log").fill("the next attempt begins")
		await until("one line", async () => (await page.locator(".line").count()) === 1)
		await page.getByLabel("Search the log").fill("")
		await page.getByLabel("Level").selectOption("debug")
		await page.getByText("part", { exact: true }).waitFor()
		await page.goto(link(run, "/timeline"))
		await until("spans", async () => Number(await page.locator(".track-box canvas").evaluate(c => c.dataset.spans)) >= 5)
		for (const way of ["slots", "none", "deps"]) await page.getByLabel("Critical path by dependencies").selectOption(way)
		await close(page)
	},

	async "the log follows the run until somebody scrolls up"() {
		const run = await stage("chain")
		const page = await open(link(run, "/log"), { height: 420 })
		const place = () => page.locator(".lines").evaluate(e => ({ top: e.scrollTop, below: e.scrollHeight - e.scrollTop - e.clientHeight, lines: e.querySelectorAll(".line").length }))
		await until("lines below", async () => { const p = await place(); return p.top > 200 && p.below < 5 })
		await page.locator(".lines").hover()
		await page.mouse.wheel(0, -150)
		await until("scrolling", async () => (await place()).below > 60)
		const before = await place()
		await until("further lines", async () => (await place()).lines > before.lines)
		assert.equal((await place()).top, before.top)
		assert.equal(await page.getByLabel("Follow").isChecked(), false)
		await page.getByLabel("Follow").check()
		await until("the end", async () => (await place()).below < 5)
		await close(page)
	},

	async "a long log is read by pages, searched from its start, followed at 2,000 lines a second, and downloaded"() {
		const run = await stage("chatter")
		const page = await open(link(run, "/log"))
		const place = () => page.locator(".lines").evaluate(e => ({ below: e.scrollHeight - e.scrollTop - e.clientHeight, lines: e.querySelectorAll(".line").length, last: e.querySelector(".line:last-of-type .text")?.textContent }))
		await page.getByText(/^line \d+$/).first().waitFor()
		for (let i = 0; i < 10; i++) { // the log follows, because nobody has scrolled it
			await page.waitForTimeout(200)
			assert.equal(await page.getByLabel("Follow").isChecked(), true)
		}
		await until("the end in view", async () => (await place()).below < 5)
		await page.locator(".lines").hover()
		await page.mouse.wheel(0, -400)
		await until("a stop", async () => !(await page.getByLabel("Follow").isChecked()))
		const inView = () => page.locator(".lines").evaluate(e => { const top = e.getBoundingClientRect().top; const row = [...e.querySelectorAll(".line")].find(r => r.getBoundingClientRect().bottom > top); return row.dataset.id + " " + Math.round(row.getBoundingClientRect().top - top) })
		const held = await inView()
		await page.waitForTimeout(1500) // meanwhile the run logs 3,000 further lines
		assert.equal(await inView(), held)
		await page.locator(".lines").evaluate(e => (e.scrollTop = 0))
		const topmost = () => page.locator(".line").first().getAttribute("data-id").then(Number)
		const oldest = await topmost(), at = () => page.locator(".lines").evaluate((e, id) => Math.round(e.querySelector(`[data-id="${id}"]`).getBoundingClientRect().top - e.getBoundingClientRect().top), oldest)
		const before = await at()
		await page.getByRole("button", { name: "Load earlier" }).click()
		await until("earlier lines", async () => (await topmost()) < oldest)
		const moved = Math.abs((await at()) - before)
		assert(moved < 3, `the line moved by ${moved} px`)
		await until("end of the run", async () => (await api("run", { run })).status === "completed", 20_000)

		await page.goto(link(run, "/log?node=early"))
		await page.getByText("the needle").waitFor()
		await until("started, the line, completed", async () => (await place()).lines === 3)
		await page.goto(link(run, "/log?q=needle"))
		await until("the line that was searched", async () => { const p = await place(); return p.lines === 1 && p.last === "the needle" })
		await page.goto(link(run, "/log?node=talker"))
		await page.getByText("before 0", { exact: true }).waitFor()
		assert.equal(await page.getByLabel("Follow").isChecked(), false)
		await page.getByRole("button", { name: "Load later" }).click()
		await until("a second page", async () => (await place()).lines === 2000)
		await page.getByLabel("Follow").check()
		await page.getByText("line 11999", { exact: true }).waitFor()

		const [text] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "as text" }).click()])
		const lines = readFileSync(await text.path(), "utf8").trim().split("\n")
		assert.equal(lines.length, 20_002)
		assert.match(lines[1], /^\d{4}-\d\d-\d\dT\S+Z info  talker before 0$/)
		const [json] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "as JSON Lines" }).click()])
		assert.equal(JSON.parse(readFileSync(await json.path(), "utf8").split("\n")[1]).text, "before 0")
		await close(page)
		const narrow = await open(link(run, "/log?node=talker"), { width: 375, height: 700 })
		await narrow.getByRole("button", { name: "Load later" }).waitFor()
		assert.equal(await overflow(narrow), 0)
		await close(narrow)
	},

	async "times are local with the zone named, and in UTC by a switch"() {
		const run = await stage("short")
		await until("end", async () => (await api("run", { run })).status === "failed")
		const context = await browser.newContext({ timezoneId: "Asia/Kolkata", viewport: { width: 1280, height: 800 } })
		const page = await context.newPage()
		await page.goto(link(run, "/log"))
		const time = page.locator(".line time").first()
		await time.waitFor()
		const at = new Date(await time.getAttribute("dateTime")), shifted = new Date(at.getTime() + 5.5 * 3600_000)
		const clock = d => d.toISOString().slice(11, 23)
		assert.equal((await time.textContent()).slice(-12), clock(shifted))
		await page.getByRole("button", { name: /Times are in GMT\+5:30/ }).click()
		await until("UTC", async () => (await time.textContent()).slice(-12) === clock(at))
		await page.reload()
		await until("UTC again", async () => (await time.textContent()).slice(-12) === clock(at))
		assert.match(await time.getAttribute("title"), /UTC$/)
		await page.goto(link(run, "/table?node=breaks"))
		const began = page.locator(".tries time").first()
		await began.waitFor()
		assert.match(await began.textContent(), new RegExp(clock(new Date(await began.getAttribute("dateTime"))).slice(0, 8) + "$"))
		await page.clock.setFixedTime(new Date(at.getTime() + 3 * 86400_000)) // seen three days later
		await page.goto(link(run, "/log"))
		await page.reload()
		await until("the date", async () => (await time.textContent()) === at.toISOString().slice(0, 10) + " " + clock(at))
		await context.close()
	},

	async "runs that no service continues are marked, and say what helps"() {
		const run = await stage("elsewhere")
		const page = await open(base + "#/stored?q=elsewhere")
		const row = page.getByRole("row", { name: run })
		await row.getByText("no service", { exact: true }).waitFor()
		await row.getByText(/version [0-9a-f]{12}/).waitFor()
		await page.getByText("start a service that has these workflows").waitFor()
		await page.getByLabel("Only runs that no service continues").check()
		await until("the filter in the address", () => /queue=unclaimable/.test(page.url()))
		await page.reload()
		await row.waitFor()
		assert.equal(await page.locator("table.runs tbody tr").count(), await page.locator("table.runs tr:has(.tag.lost, .gone)").count())
		await row.getByRole("link", { name: run }).click()
		await page.locator(".run-head .queues").getByText("order", { exact: true }).waitFor()
		await close(page)
	},

	async "the list of stored runs shows whose they are, and is narrowed to one key"() {
		const page = await open(base + "#/stored")
		const row = page.getByRole("row", { name: /order .* stored key acme priority 7/ })
		await row.getByRole("link", { name: "acme", exact: true }).click()
		await until("the filter in the address", () => /key=acme/.test(page.url()))
		await until("one row", async () => (await page.locator("table.runs tbody tr").count()) === 1)
		await page.reload()
		await row.waitFor()
		assert.equal(await page.getByLabel("Key", { exact: true }).inputValue(), "acme")
		await page.getByLabel("Key", { exact: true }).fill("acm")
		await page.getByLabel("Key", { exact: true }).press("Enter")
		await page.getByText("No run matches the filters").waitFor()
		await close(page)
	},

	async "the store lists what no process here has"() {
		const page = await open(base)
		await page.getByRole("link", { name: "Stored" }).click()
		await page.getByRole("row", { name: /pending no service order .* stored/ }).waitFor()
		await page.getByLabel("Beginning of the id").fill("none")
		await page.getByText("No run matches the filters").waitFor()
		await page.reload()
		await page.getByText("No run matches the filters").waitFor()
		await page.getByLabel("Beginning of the id").fill("sto")
		await page.getByRole("link", { name: "stored", exact: true }).click()
		await page.locator(".run-title .badge", { hasText: "pending" }).waitFor()
		await drawn(page, 6)
		await page.keyboard.press("Escape")
		await page.getByRole("row", { name: /pending no service order .* stored/ }).waitFor()
		await close(page)
	},

	async "a run of another process is shown from the store, and goes on here when its gate is answered"() {
		const run = await stage("elsewhere")
		const page = await open(link(run, "/graph?open=review&node=fetch"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await page.locator(".run-title .tag", { hasText: "Stored" }).waitFor()
		await drawn(page, 8)
		assert.equal(await data(page, "lines"), "6") // five edges in the run's graph, and one edge in review
		await panel.getByText("The first part of").waitFor()
		await panel.getByText("The store does not have the inputs of steps").waitFor()
		await page.keyboard.press("l")
		await page.getByText("The store does not have the events of the run").waitFor()
		await page.keyboard.press("t")
		await until("attempts", async () => Number(await page.locator(".track canvas").evaluate(c => c.dataset.spans)) >= 4)
		await page.keyboard.press("n")
		await page.getByRole("row", { name: /review.* nodes inside: 1 of 2 completed.*suspended/ }).waitFor()
		for (const name of ["Abort", "Leave"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name)
		await page.goto(link(run, "/graph?node=review%2Fapprove"))
		await answer(panel, "ship")
		await panel.getByText("ann answered ship").waitFor()
		await page.locator(".run-title .tag", { hasText: "Stored" }).waitFor({ state: "detached" })
		await page.getByRole("button", { name: "Abort", exact: true }).waitFor()
		await close(page)
	},

	async "a run whose process has died says so, and goes on here"() {
		const run = await stage("died")
		const page = await open(base + "#/stored?q=" + run)
		const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: run, exact: true }) })
		await row.getByText("its process is gone").waitFor()
		await page.goto(link(run, "/graph?node=long"))
		const head = page.locator(".run-head")
		await head.getByText("its process is gone").waitFor()
		assert.equal(await head.locator(".badge.s-running").count(), 0)
		await page.getByRole("complementary", { name: "Node" }).getByText("its process is gone").waitFor()
		const took = () => head.locator(".run-title > .meta").innerText()
		const before = await took()
		assert.notEqual(before, "")
		await page.waitForTimeout(2100) // the clock of the page ticks each second
		assert.equal(await took(), before)
		assert.equal(await page.getByRole("button", { name: "Redrive", exact: true }).count(), 0)
		await page.getByRole("button", { name: "Continue here" }).click()
		const dialog = page.getByRole("dialog")
		await dialog.getByText("This process performs the rest of the run").waitFor()
		assert.equal(await dialog.getByLabel("Reason").count(), 0) // nothing would keep it
		await dialog.getByRole("button", { name: "Continue here" }).click()
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor()
		await close(page)
		const narrow = await open(link(await stage("died")), { width: 375, height: 700 })
		await narrow.locator(".run-head").getByText("its process is gone").waitFor()
		assert.equal(await overflow(narrow), 0)
		await close(narrow)
	},

	async "what took less than a millisecond has its time, and a cleanup node was reached"() {
		const run = await stage("short")
		await until("end", async () => (await api("run", { run })).status === "failed")
		const page = await open(link(run, "/graph?node=tidy"))
		assert.match(await page.locator(".run-title > .meta").innerText(), /\d (ms|s)$/)
		const panel = page.getByRole("complementary", { name: "Node" })
		await panel.locator(".edge.taken").waitFor()
		assert.match(await panel.locator(".tries tbody td:nth-child(3)").innerText(), /\d (ms|s)$/)
		assert.equal(await panel.getByText("<nil>").count(), 0)
		await page.goto(base + "#/runs?q=" + run)
		assert.match(await page.getByRole("row", { name: run }).locator("td.number").innerText(), /\d (ms|s)$/)
		await close(page)
	},

	async "a stored run is cancelled, redriven and forked"() {
		const run = await stage("elsewhere")
		const page = await open(link(run))
		const act = async name => {
			await page.getByRole("button", { name, exact: true }).click()
			const dialog = page.getByRole("dialog")
			await dialog.getByLabel("Reason").fill("a test")
			await dialog.getByRole("button", { name: confirming(name), exact: true }).click()
			await dialog.waitFor({ state: "detached" })
		}
		await act("Cancel")
		await page.locator(".run-title .badge", { hasText: /cancelled|failed/ }).waitFor()
		await act("Redrive")
		await page.locator(".run-title .badge", { hasText: /running|suspended/ }).waitFor()
		await page.getByRole("button", { name: "Fork", exact: true }).click()
		await page.getByRole("dialog").getByText(/nodes? runs? again/).waitFor()
		await page.getByRole("dialog").getByRole("button", { name: "Fork the run", exact: true }).click()
		await until("another run", () => !page.url().includes(run))
		await drawn(page, 6)
		await close(page)
	},

	async "what another process does with a stored run is seen without a reload"() {
		const run = await stage("elsewhere")
		const page = await open(link(run))
		await page.locator(".run-title .badge", { hasText: "suspended" }).or(page.locator(".run-title .badge", { hasText: "running" })).waitFor()
		await stage(`take?run=${encodeURIComponent(run)}`)
		await page.locator(".run-title .badge", { hasText: /cancelled|failed/ }).waitFor()
		await page.locator(".run-title .tag", { hasText: "Stored" }).waitFor()
		await close(page)
	},

	async "a stored run whose plan is not known has no edges, and is asked by requests alone"() {
		const run = await stage("foreign")
		const page = await open(link(run, "/graph?node=each"))
		await page.getByText("The edges are not known").waitFor()
		await drawn(page, 4) // only nodes that have begun
		assert.equal(await data(page, "lines"), "0")
		await page.getByRole("complementary").getByText("3 suspended").waitFor()
		for (const [name, n] of [["Cancel", 1], ["Cancel node", 1], ["Redrive", 0], ["Fork", 0]]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), n, name)
		await close(page)
	},

	async "the timeline has both critical paths, and is used by keyboard"() {
		const run = await completed("paths")
		const page = await open(link(run, "/timeline"))
		const trail = async () => (await page.locator(".trail a").allInnerTexts()).join(" ")
		await until("path by dependencies", async () => (await trail()) === "fetch write")
		await page.getByLabel("Critical path by dependencies").selectOption("slots")
		await until("path by slots", async () => (await trail()) === "fetch other write")
		await page.reload()
		await until("path by slots again", async () => (await trail()) === "fetch other write")
		await page.getByLabel("Critical path by dependencies").selectOption("none")
		await page.locator(".trail").waitFor({ state: "detached" })
		for (const [key, node] of [["ArrowRight", "fetch"], ["ArrowRight", "other"], ["ArrowRight", "write"], ["ArrowLeft", "other"]]) { // the run has one slot, so all attempts are in one lane
			await page.keyboard.press(key)
			await until(node, () => page.url().includes(`node=${node}`))
		}
		const range = () => page.evaluate(() => new Promise(done => setTimeout(() => done(history.state?.range), 600))) // wait, because the page saves the range with a delay
		await page.keyboard.press("+")
		const near = await range()
		assert(near.to - near.from < 0.7)
		await page.keyboard.press("Shift+ArrowRight")
		assert((await range()).from > near.from)
		await page.evaluate(() => {
			window.saves = 0
			const replace = history.replaceState.bind(history)
			history.replaceState = (...entry) => { window.saves++; replace(...entry) }
		})
		const track = await page.locator(".track canvas").boundingBox()
		await page.mouse.move(track.x + 400, track.y + 30)
		await page.mouse.down()
		await page.mouse.move(track.x + 100, track.y + 30, { steps: 200 })
		await page.mouse.up()
		const dragged = await range()
		assert(dragged.from > near.from)
		const saves = await page.evaluate(() => window.saves)
		assert(saves > 0 && saves < 20, `${saves} entries were saved`) // Safari refuses more than 100 in 30 s
		await page.reload()
		await page.locator(".track canvas").waitFor()
		await page.keyboard.press("+")
		const nearer = await range()
		assert(nearer.to - nearer.from < 0.5) // the zoom continues from the range before the reload
		await page.keyboard.press("0")
		assert.deepEqual(await range(), { from: 0, to: 1 })
		await close(page)
	},

	async "a reload of every view comes back to the same place"() {
		const run = await stage("orders"), at = encodeURIComponent(run)
		await until("gate", async () => (await api("run", { run })).waits === 4)
		const page = await open(base)
		await page.addInitScript(() => { // counts the requests in flight: a view with a request in flight has not settled
			const call = window.fetch
			window.pending = 0
			window.fetch = (...args) => { window.pending++; return call(...args).finally(() => window.pending--) }
		})
		await page.reload()
		const address = () => page.evaluate(() => location.hash)
		const shown = () => page.evaluate(() => [...document.querySelectorAll("#main h1, #main .tabs .on, .panel h2, .tools input, .tools select, .bar input, .bar select, .chips .on, .tools .meta, tbody a")].map(e => (e.type === "checkbox" ? e.checked : e.value ?? e.textContent.replace(/\d/g, ""))).join("|"))
		for (const hash of ["#/runs?status=running&workflow=orders&q=orders", "#/gates", "#/stored?status=pending&workflow=order&q=sto", "#/runs/stored/table",
			`#/runs/${at}/graph?node=flaky&failed=1&edges=all`, `#/runs/${at}/graph?inside=each&node=each%5B1%5D&open=each%5B0%5D`, `#/runs/${at}/timeline?node=fetch&critical=slots`,
			`#/runs/${at}/log?node=flaky&level=warn&q=disk`, `#/runs/${at}/table?node=approve&status=suspended&q=a`, `#/runs/${at}?node=last`]) {
			await page.goto(base + hash)
			await page.locator("#main h1").waitFor()
			const settled = async () => { // returns what is shown once that no longer changes
				let before = ""
				return until("settled page", async () => { const now = await shown(); await page.waitForTimeout(120); const same = now === before && await page.evaluate(() => window.pending) === 0; before = now; return same && now })
			}
			const before = await settled()
			await page.reload()
			await page.locator("#main h1").waitFor()
			assert.equal(await settled(), before, hash)
			assert.equal(await address(), hash)
		}
		await close(page)
	},

	async "the keyboard alone leads from the list to the answer of a gate"() {
		const run = await stage("orders")
		const page = await open(`${base}#/runs?q=${run}`)
		await page.getByRole("link", { name: run }).waitFor()
		await page.keyboard.press("j")
		await page.keyboard.press("Enter")
		await drawn(page, 6)
		for (const key of ["ArrowRight", "ArrowRight"]) await page.keyboard.press(key) // selects the first node, and then a successor
		for (let i = 0; i < 4 && !page.url().includes("node=approve"); i++) await page.keyboard.press("ArrowDown")
		for (let i = 0; i < 4 && !page.url().includes("node=approve"); i++) await page.keyboard.press("ArrowUp")
		await page.getByRole("complementary").getByRole("button", { name: "ship" }).waitFor()
		await tabTo(page, "Comment")
		await page.keyboard.type("by keyboard")
		await tabTo(page, "ship")
		await page.keyboard.press("Enter")
		await tabTo(page, "Answer ship")
		await page.keyboard.press("Enter")
		await page.getByRole("complementary").getByText("by keyboard").waitFor()
		await tabTo(page, "Cancel")
		await page.keyboard.press("Enter")
		await tabTo(page, "Reason")
		await page.keyboard.type("enough")
		await page.keyboard.press("Enter")
		await page.locator(".run-title .badge", { hasText: /failed|cancelled/ }).waitFor()
		await close(page)
	},

	async "a user who may only view sees no values and no actions"() {
		const run = await stage("orders")
		const page = await open(`${server}/view/#/runs/${run}/graph?node=approve`, { quiet: true })
		await page.getByText("You may not see values, errors and logs.").waitFor()
		for (const name of ["ship", "Cancel", "Abort", "Leave", "Cancel node"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name)
		await page.keyboard.press("l")
		await page.getByText("You may not see this.").waitFor()
		await page.goto(`${server}/view/#/runs`)
		await page.getByRole("link", { name: run }).waitFor()
		assert.equal(await page.getByRole("button", { name: "Start a run" }).count(), 0)
		await close(page)
	},

	async "without the token the page asks for it, and a link with it opens the page and leaves no trace of it"() {
		const token = "0123456789abcdef-token", asked = []
		const page = await open(`${server}/token/`, { quiet: true })
		page.on("request", r => asked.push(r.url() + JSON.stringify(r.headers())))
		await page.getByRole("heading", { name: "This page asks for a token" }).waitFor()
		assert.deepEqual(await serious(page), [])
		assert.equal(await overflow(page), 0)
		await page.getByLabel("Token").fill("wrong")
		await page.getByRole("button", { name: "Open" }).click()
		await page.getByText("The service has another token.").waitFor()
		await page.getByLabel("Token").fill(token)
		await page.getByRole("button", { name: "Open" }).click()
		await page.locator("table.runs").waitFor()
		await page.locator(".connection").waitFor({ state: "detached" }) // the stream has the cookie, too
		await page.reload()
		await page.locator("table.runs").waitFor()
		assert.equal(await page.evaluate(() => document.cookie), "")
		await close(page)

		const linked = await open(`${server}/token/#token=${token}`, { quiet: true, width: 375, height: 700 })
		linked.on("request", r => asked.push(r.url() + JSON.stringify(r.headers())))
		await linked.locator("table.runs").waitFor()
		assert.equal(new URL(linked.url()).hash, "#/runs")
		await linked.reload()
		await linked.locator("table.runs").waitFor()
		assert(!asked.some(text => text.includes(token)), "an address or a header has the token")
		const cookies = await linked.context().cookies(`${server}/token/api/v1/info`)
		assert.deepEqual(cookies.map(c => [c.httpOnly, c.sameSite, c.path, c.value.includes(token)]), [[true, "Strict", "/token/api/v1", false]])
		await close(linked)
	},

	async "schedules show their ticks, and are run, paused and resumed"() {
		const page = await open(base)
		await page.getByRole("link", { name: "Schedules" }).click()
		const row = page.getByRole("row", { name: /<b>nightly/ })
		await row.getByText("30 2 * * *").waitFor()
		await row.getByText("Europe/Berlin").waitFor()
		assert.equal(await row.locator("td:nth-child(3) time").count(), 5)
		const before = await row.locator("td:nth-child(4) li").count()
		await row.getByRole("button", { name: "Run now: <b>nightly" }).click()
		await until("the run", async () => (await row.locator("td:nth-child(4) li").count()) > before)
		await row.locator("td:nth-child(4) .badge", { hasText: "completed" }).first().waitFor()
		await row.getByRole("button", { name: "Pause <b>nightly" }).click()
		await row.getByText("paused").waitFor()
		assert.equal(await row.locator("td:nth-child(3) time").count(), 0)
		await page.reload()
		await row.getByRole("button", { name: "Resume <b>nightly" }).click()
		await until("ticks", async () => (await row.locator("td:nth-child(3) time").count()) === 5)
		assert.deepEqual(await serious(page), [])
		assert.equal(await overflow(page), 0)
		await row.locator("td:nth-child(4) a").first().click()
		await page.getByRole("heading", { name: "report" }).waitFor()
		await close(page)
		const viewer = await open(`${server}/view/#/schedules`)
		await viewer.getByRole("row", { name: /<b>nightly/ }).waitFor()
		assert.equal(await viewer.getByRole("button", { name: "Pause <b>nightly" }).count(), 0)
		await close(viewer)
	},
}
