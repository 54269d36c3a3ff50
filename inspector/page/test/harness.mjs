// What the scenarios share: the browser, pages whose errors fail the scenario, and functions that read from these pages.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { chromium } from "playwright-core"

export const server = process.argv[2]
export const base = server + "/debug/kahn/"
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]
export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags })

// stage starts a run of a graph that the service provides for the scenarios, and returns the run's id.
export const stage = async name => (await fetch(`${server}/stage/${name}`)).text()

export const api = async (path, params) => (await fetch(`${base}api/v1/${path}?${new URLSearchParams(params)}`)).json()

export const link = (run, rest = "", at = base) => `${at}#/runs/${encodeURIComponent(run)}${rest}`

export const until = async (what, check, patience = 30_000) => {
	const end = Date.now() + patience
	for (;;) {
		const got = await check()
		if (got) return got
		assert(Date.now() < end, `no ${what} within ${patience} ms`)
		await new Promise(r => setTimeout(r, 50))
	}
}

// ended starts a run and waits until it has a final status.
export const ended = async (name, status) => {
	const run = await stage(name)
	await until("end of " + run, async () => (status ? [status] : ["completed", "failed"]).includes((await api("run", { run })).status), 60_000)
	return run
}

export const completed = name => ended(name, "completed")

// watch runs in the page. It reports violations of the content security policy, and texts drawn on canvases that could reorder the text around
// them.
const watch = () => {
	addEventListener("securitypolicyviolation", e => console.error("CSP " + e.violatedDirective + " " + e.blockedURI))
	const { fillText } = CanvasRenderingContext2D.prototype
	CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
		if (/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(text)) console.error("drawn: " + JSON.stringify(text))
		return fillText.call(this, text, ...rest)
	}
}

// open opens a page. Errors on the page fail the scenario when close is called. If quiet is set, requests may fail.
export const open = async (url, { width = 1280, height = 800, scheme = "light", user = "ann", quiet = false, motion = "no-preference" } = {}) => {
	const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: motion, extraHTTPHeaders: { "X-User": user } })
	context.setDefaultTimeout(30_000)
	const page = await context.newPage()
	page.problems = []
	page.on("pageerror", err => page.problems.push(err.message))
	page.on("console", m => m.type() === "error" && !(quiet && /Failed to load resource|ERR_/.test(m.text())) && page.problems.push(m.text()))
	page.on("dialog", d => { page.problems.push("dialog " + d.message()); void d.dismiss() })
	await page.addInitScript(watch)
	await page.goto(url)
	return page
}

export const close = async page => {
	assert.deepEqual(page.problems, [])
	await page.context().close()
}

// data returns a fact about the graph's picture, which the page writes into the canvas's data attributes.
export const data = (page, name) => page.locator("canvas.picture").evaluate((c, n) => c.dataset[n], name)

// confirming returns the name of the button that confirms an action.
export const confirming = name => ({ Cancel: "Cancel the run", Abort: "Abort the run", Leave: "Leave the run", Redrive: "Redrive the run", Fork: "Fork the run", "Cancel node": "Cancel the node", "Retry now": "Retry the node now" })[name] ?? name

// answer chooses an answer of a gate, and confirms it.
export const answer = async (at, name) => {
	await at.getByRole("button", { name, exact: true }).click()
	await at.getByRole("button", { name: `Answer ${name}`, exact: true }).click()
}

// drawn waits for a picture of n boxes.
export const drawn = (page, n) => until(`picture of ${n} boxes`, async () => (await data(page, "items").catch(() => "")) === String(n), 20_000)

// textsIn returns the texts that the picture draws: their sizes in pixels, and whether they begin in the window.
export const textsIn = page => page.evaluate(() => new Promise(resolve => {
	const { fillText } = CanvasRenderingContext2D.prototype, found = [], shown = document.querySelector("canvas.picture")
	CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
		const m = this.getTransform(), size = parseFloat(this.font.replace(/^\d+ /, "")) * m.a, left = m.a * x + m.e, top = m.d * y + m.f
		if (this.canvas === shown) found.push({ text, size: size / devicePixelRatio + 0.01, inside: left >= 0 && top >= 0 && left < this.canvas.width && top < this.canvas.height })
		return fillText.call(this, text, x, y)
	}
	requestAnimationFrame(() => requestAnimationFrame(() => {
		CanvasRenderingContext2D.prototype.fillText = fillText
		resolve(found)
	}))
	dispatchEvent(new Event("resize"))
}))

// steady waits until the camera no longer moves, and returns its position and zoom.
export const steady = async page => {
	let before = ""
	return until("steady picture", async () => {
		const camera = await data(page, "camera")
		await page.waitForTimeout(120)
		const same = camera === before
		before = camera
		return same && camera.split(" ").map(Number)
	})
}

// clickBox clicks on the box of a node in the graph. It finds the box by moving the mouse over the picture, as a user does.
export const clickBox = async (page, path, clicks = 1) => {
	const canvas = page.locator("canvas.picture"), { x, y, width, height } = await canvas.boundingBox()
	const middle = height / 2, rows = Array.from({ length: Math.floor(height / 18) }, (_, i) => 8 + 18 * i).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))
	for (const dy of rows) {
		for (let dx = 30; dx < width; dx += 60) {
			await page.mouse.move(x + dx, y + dy)
			if ((await canvas.evaluate(c => c.style.cursor)) !== "pointer") continue
			await page.mouse.click(x + dx, y + dy, { clickCount: clicks })
			if (new URLSearchParams(page.url().split("?")[1]).get("node") === path) return
		}
	}
	assert.fail(`no box of ${path}`)
}

// tabTo presses the tabulator key until the focus is on the element with the given text or name.
export const tabTo = async (page, name) => {
	for (let i = 0; i < 60; i++) {
		await page.keyboard.press("Tab")
		const at = await page.evaluate(() => {
			const e = document.activeElement
			return e?.getAttribute("aria-label") || e?.labels?.[0]?.textContent || e?.textContent
		})
		if (at?.trim() === name) return
	}
	assert.fail(`the tabulator key does not lead to ${name}`)
}

// serious returns the findings of axe with a serious or critical impact. For the dark scheme only the contrast is checked, because only colours
// depend on the scheme.
export const serious = async (page, scheme = "light") => {
	await page.evaluate(axe)
	const found = await page.evaluate(runOnly => window.axe.run(document, { resultTypes: ["violations"], ...runOnly }), scheme === "dark" ? { runOnly: ["color-contrast"] } : {})
	return found.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(" | ")}`)
}

// overflow returns by how many pixels the page is wider than its window.
export const overflow = page => page.evaluate(() => document.documentElement.scrollWidth - innerWidth)

// disruptive returns the texts and names on the page that have characters which could reorder the text around them, or which have no glyph.
export const disruptive = page => page.evaluate(() => {
	const bad = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]/, found = []
	const walk = document.createTreeWalker(document, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT)
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		if (n.nodeType === Node.TEXT_NODE && bad.test(n.data)) found.push(JSON.stringify(n.data.slice(0, 80)))
		else for (const name of ["title", "aria-label", "placeholder"]) if (n.getAttribute?.(name) && bad.test(n.getAttribute(name))) found.push(`${name}: ${JSON.stringify(n.getAttribute(name).slice(0, 80))}`)
	}
	if (bad.test(document.title)) found.push("title of the document")
	return found
})
