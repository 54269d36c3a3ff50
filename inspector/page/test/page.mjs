// Drives the page against the service whose address is given: every screen and action, what a screen reader and a narrow window need, and
// what a bad network and hostile values do. It prints a line for each scenario, and exits with 1 if one has failed.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { chromium } from "playwright-core"

const server = process.argv[2]
const only = process.argv[3]
const base = server + "/debug/kahn/"
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags })

const stage = async name => (await fetch(`${server}/stage/${name}`)).text()
const api = async (path, params) => (await fetch(`${base}api/v1/${path}?${new URLSearchParams(params)}`)).json()
const link = (run, rest = "") => `${base}#/runs/${encodeURIComponent(run)}${rest}`
const until = async (what, check, patience = 10_000) => {
	const end = Date.now() + patience
	for (;;) {
		const got = await check()
		if (got) return got
		assert(Date.now() < end, `no ${what} within ${patience} ms`)
		await new Promise(r => setTimeout(r, 50))
	}
}

// open opens a page on which nothing may go wrong unnoticed.
const open = async (url, { width = 1280, height = 800, scheme = "light", user = "ann", quiet = false, motion = "no-preference" } = {}) => {
	const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: motion, extraHTTPHeaders: { "X-User": user } })
	context.setDefaultTimeout(10_000)
	const page = await context.newPage()
	page.problems = []
	page.on("pageerror", err => page.problems.push(err.message))
	page.on("console", m => m.type() === "error" && !(quiet && /Failed to load resource|ERR_/.test(m.text())) && page.problems.push(m.text()))
	page.on("dialog", d => { page.problems.push("dialog " + d.message()); void d.dismiss() })
	await page.addInitScript(() => addEventListener("securitypolicyviolation", e => console.error("CSP " + e.violatedDirective + " " + e.blockedURI)))
	await page.goto(url)
	return page
}
const close = async page => {
	assert.deepEqual(page.problems, [])
	await page.context().close()
}
const data = (page, name) => page.locator("canvas.picture").evaluate((c, n) => c.dataset[n], name)
const drawn = (page, n) => until(`picture of ${n} nodes`, async () => (await data(page, "items").catch(() => "")) === String(n), 20_000)

// serious are the findings of axe that keep somebody from using the page.
const serious = async page => {
	await page.evaluate(axe)
	const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }))
	return found.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(" | ")}`)
}

const scenarios = {
	async "the list is live, filtered and searched"() {
		const page = await open(base)
		await page.getByRole("row", { name: /orders/ }).first().waitFor()
		const run = await stage("orders")
		await page.getByRole("link", { name: run }).waitFor() // without a reload
		await page.getByRole("row", { name: run }).getByText("1/6").waitFor()
		await page.locator(".chips").getByRole("link", { name: /failed/ }).click()
		await page.getByText("No run matches the filters").waitFor()
		assert.match(page.url(), /status=failed/)
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

	async "composites unfold, and are looked into"() {
		const run = await stage("orders")
		const page = await open(link(run, "/graph?node=each"))
		await drawn(page, 6)
		await page.getByRole("button", { name: "Unfold" }).click()
		await drawn(page, 9)
		await page.reload()
		await drawn(page, 9)
		await page.getByRole("button", { name: "Fold", exact: true }).click()
		await drawn(page, 6)
		await page.getByRole("button", { name: "Inside" }).click()
		await drawn(page, 3)
		await page.goto(link(run, "/graph?inside=each%5B1%5D&node=each%5B1%5D%2Fask"))
		await drawn(page, 2)
		await page.getByRole("complementary").getByText("it waits for a signal").waitFor()
		await page.getByRole("button", { name: /Whole graph/ }).click()
		await drawn(page, 6)
		await page.getByLabel("Failed part").check()
		await drawn(page, 2) // flaky, and fetch before it
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
		await page.getByLabel("Search the log").fill("attempted again")
		await until("one line", async () => (await page.locator(".line").count()) === 1)
		await page.getByLabel("Search the log").fill("")
		await page.getByLabel("Level").selectOption("debug")
		await page.getByText("part", { exact: true }).waitFor()
		await page.goto(link(run, "/timeline"))
		await until("spans", async () => Number(await page.locator(".track-box canvas").evaluate(c => c.dataset.spans)) >= 5)
		for (const way of ["slots", "none", "deps"]) await page.getByLabel("Critical path by dependencies").selectOption(way)
		await close(page)
	},

	async "two answer one gate: the second is told who was first"() {
		const run = await stage("orders")
		const ann = await open(base + "#/gates"), bob = await open(link(run, "/graph?node=approve"), { user: "bob", quiet: true })
		const card = ann.locator(".card", { hasText: run }).filter({ has: ann.getByRole("link", { name: "approve", exact: true }) })
		await card.waitFor()
		await bob.getByRole("button", { name: "hold" }).waitFor()
		await bob.route("**/api/v1/node?**", r => r.abort()) // bob's page does not hear of it in time
		await card.getByLabel("Comment").fill("looks good")
		await card.getByRole("button", { name: "ship" }).click()
		await card.waitFor({ state: "detached" })
		await bob.getByRole("button", { name: "hold" }).click()
		await bob.getByText("ann was first").waitFor()
		await bob.getByText("looks good").waitFor()
		await close(ann)
		await close(bob)
		const ship = await until("ship", async () => { const n = await api("node", { run, path: "ship" }); return n.status === "completed" && n })
		assert.equal(ship.upstream[0].edge, "taken")
	},

	async "the store lists what no process here has"() {
		const page = await open(base)
		await page.getByRole("link", { name: "Stored" }).click()
		await page.getByRole("row", { name: /pending orders stored/ }).waitFor()
		await page.getByLabel("What the id begins with").fill("none")
		await page.getByText("No run matches the filters").waitFor()
		await page.reload()
		await page.getByText("No run matches the filters").waitFor()
		await page.getByLabel("What the id begins with").fill("sto")
		await page.getByRole("link", { name: "stored", exact: true }).click()
		await page.getByText("Nothing has been written of this run yet").waitFor()
		await close(page)
	},

	async "every action asks first, and does what it says"() {
		const run = await stage("orders")
		const page = await open(link(run, "/graph?node=flaky"))
		const act = async (name, reason) => {
			await page.getByRole("button", { name, exact: true }).first().click()
			const dialog = page.getByRole("dialog")
			if (reason) await dialog.getByLabel("Reason").fill(reason)
			await dialog.getByRole("button", { name, exact: true }).click()
			await dialog.waitFor({ state: "detached" })
		}
		await act("Retry now")
		await page.locator(".panel .why .badge", { hasText: /failed$/ }).waitFor()
		await page.goto(link(run, "/graph?node=each"))
		await act("Cancel node")
		await page.goto(link(run, "/graph"))
		await act("Cancel", "wrong input")
		await page.locator(".run-title .badge", { hasText: /failed|cancelled/ }).waitFor()
		await page.getByRole("button", { name: "Redrive" }).click()
		await page.getByText(/5 nodes run again/).waitFor()
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

	async "axe finds nothing serious, in light and dark"() {
		const run = await stage("orders")
		for (const scheme of ["light", "dark"]) {
			const page = await open(base, { scheme })
			for (const [hash, ready] of [["#/runs", "table.runs"], ["#/gates", ".card"], ["#/stored", "table.runs"], [`#/runs/${encodeURIComponent(run)}/graph?node=flaky`, ".panel .tries"], [`#/runs/${encodeURIComponent(run)}/timeline`, ".track-box canvas"],
				[`#/runs/${encodeURIComponent(run)}/log`, ".line"], [`#/runs/${encodeURIComponent(run)}/table?node=approve`, ".answer button"]]) {
				await page.goto(base + hash)
				await page.locator(ready).first().waitFor()
				assert.deepEqual(await serious(page), [], `${scheme} ${hash}`)
			}
			await page.getByRole("button", { name: "Cancel", exact: true }).click()
			await page.getByRole("dialog").waitFor()
			assert.deepEqual(await serious(page), [], scheme + " dialog")
			await close(page)
		}
	},

	async "a narrow window and a wide one have no overflow"() {
		const run = await stage("orders")
		for (const width of [375, 2560]) {
			const page = await open(base, { width, height: 900, motion: "reduce" })
			for (const hash of ["#/runs", "#/gates", ...["", "/graph", "/timeline", "/log", "/table"].map(tab => `#/runs/${encodeURIComponent(run)}${tab}?node=approve`)]) {
				await page.goto(base + hash)
				await page.locator("#main").waitFor()
				await page.waitForTimeout(150)
				const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
				assert(over <= 0, `${width} ${hash}: ${over} px too wide`)
			}
			if (width === 375) await page.goto(link(run)).then(() => page.locator(".tableview tbody tr").first().waitFor()) // the table is there first
			assert.equal(await page.evaluate(() => document.getAnimations().length), 0)
			await close(page)
		}
	},

	async "hostile values are text"() {
		const run = await stage("hostile")
		await until("gate", async () => (await api("run", { run })).waits === 1)
		const page = await open(link(run), { quiet: true })
		await drawn(page, 6)
		const nodes = (await api("nodes", { run })).nodes
		for (const n of nodes) {
			await page.goto(link(run, "/graph?" + new URLSearchParams({ node: n.path })))
			await page.locator(".panel .why").waitFor()
		}
		for (const tab of ["/log", "/table", "/timeline"]) {
			await page.goto(link(run, tab))
			await page.waitForTimeout(300)
		}
		for (const hash of ["#/gates", "#/runs"]) {
			await page.goto(base + hash)
			await page.waitForTimeout(300)
			assert((await page.locator("#main").innerText()).includes("<img src=x"))
		}
		assert.equal(await page.evaluate(() => window.broken), undefined)
		assert.equal(await page.locator("#app img, #app script").count(), 0)
		await close(page)
	},

	async "a run stays right while the connection is cut 20 times"() {
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
	},

	async "behind a proxy that buffers the page asks again and again"() {
		const run = await stage("chain")
		const page = await open(`${server}/buffered/#/runs/${run}`, { quiet: true })
		await drawn(page, 48)
		await page.getByText("Live updates are cut off").waitFor()
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 15_000 })
		await close(page)
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
		const lag = await page.evaluate(() => new Promise(resolve => {
			const lags = [], end = performance.now() + 8000
			const step = () => {
				const at = performance.now()
				setTimeout(() => {
					lags.push(performance.now() - at - 50)
					performance.now() < end ? step() : resolve(lags.sort((a, b) => a - b))
				}, 50)
			}
			step()
		}))
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor({ timeout: 20_000 })
		await page.getByText("11/11").waitFor()
		const { last } = await api("run", { run })
		console.log(`   ${last} events; a timer is late by ${lag[lag.length >> 1].toFixed(0)} ms at the median, ${lag.at(-1).toFixed(0)} ms at most`)
		assert(last > 100_000)
		assert(lag[Math.floor(lag.length * 0.95)] < 600, `late by ${lag[Math.floor(lag.length * 0.95)]} ms`)
		await close(page)
	},
}

let failed = 0
for (const [name, scenario] of Object.entries(scenarios)) {
	if (only && !name.includes(only)) continue
	const begun = Date.now()
	try {
		await scenario()
		console.log(`ok ${name} (${Date.now() - begun} ms)`)
	} catch (err) {
		failed++
		console.log(`FAILED ${name}: ${err.message}\n${(err.stack ?? "").split("\n").filter(l => l.includes("page.mjs")).slice(0, 3).join("\n")}`)
		for (const context of browser.contexts()) {
			for (const page of context.pages()) console.log(`   ${page.url().slice(0, 200)} ${JSON.stringify(page.problems ?? []).slice(0, 600)}`)
			await context.close()
		}
	}
}
await browser.close()
process.exit(failed ? 1 : 0)
