// Large graphs: search, neighbourhoods, files and paper.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { api, close, completed, data, drawn, ended, link, open, serious, server, stage, textsIn, until } from "./harness.mjs"

const param = (page, name) => new URLSearchParams(page.url().split("?")[1]).get(name)

// readable waits until the name of a box is in the window and large enough to read.
const readable = (page, name) => until(`name ${name}`, async () => (await textsIn(page).catch(() => [])).some(t => t.inside && t.size >= 12 && t.text.startsWith(name)))

const said = (page, text) => page.locator("[role=status]", { hasText: text }).first().waitFor({ state: "attached" })

const tables = () => ended("tables", "failed")

// around counts the nodes in the neighbourhood of a node: up to some levels of predecessors and of successors, and the node itself.
const around = ({ nodes, edges }, id, up, down) => {
	const keep = new Set([id])
	for (const [levels, from, to] of [[up, "to", "from"], [down, "from", "to"]]) {
		let last = new Set([id])
		for (let k = 0; k < levels && last.size; k++) {
			last = new Set(edges.filter(e => last.has(nodes[e[from]].id)).map(e => nodes[e[to]].id))
			for (const n of last) keep.add(n)
		}
	}
	return keep.size
}

// saved clicks on a button that saves a file, and returns the file.
const saved = async (page, name) => {
	if (!(await page.getByRole("button", { name }).isVisible())) await page.getByText("Export", { exact: true }).click()
	const [file] = await Promise.all([page.waitForEvent("download", { timeout: 60_000 }), page.getByRole("button", { name }).click({ timeout: 60_000 })])
	return { name: file.suggestedFilename(), data: readFileSync(await file.path()) }
}

export const large = {
	async "a search jumps to a node, also in clusters and composites"() {
		const page = await open(link(await tables(), "/graph"))
		await until("picture", async () => Number(await data(page, "items").catch(() => 0)) > 2)
		await page.keyboard.press("/")
		await page.keyboard.type("TABLE_08_0")
		await said(page, "10 nodes match")
		await page.getByRole("combobox", { name: "Search nodes", expanded: true }).waitFor()
		assert.deepEqual(await serious(page), [])
		await page.keyboard.press("ArrowDown")
		await page.getByRole("option", { name: "table_08_01_customer_orders_daily", selected: true }).waitFor()
		await page.keyboard.press("Enter")
		assert.equal(param(page, "node"), "table_08_01_customer_orders_daily")
		await readable(page, "table_08_01")
		await page.getByRole("option").first().waitFor({ state: "hidden" })
		await page.keyboard.press("ArrowDown") // the focus is on the picture again
		await until("another node", () => /^table_08_04/.test(param(page, "node")))
		await said(page, "table_08_04") // the page has drawn the selection
		await page.keyboard.press("ArrowLeft") // follows an edge to another cluster
		await said(page, "table_07…: 20 nodes folded into one box")
		await page.keyboard.press("/")
		await page.keyboard.type("nothing has this name")
		await said(page, "0 nodes match")
		await page.keyboard.press("Escape")
		assert.match(page.url(), /\/graph\?/)
		await page.goto(link(await completed("composites"), "/graph"))
		await drawn(page, 4)
		await page.getByRole("combobox").fill("each[1]/paste") // the node is in an item of a map in a sub-graph, and both are folded
		await page.getByRole("option", { name: /sub\/each\[1\]\/paste/ }).click()
		await readable(page, "paste")
		assert.equal(param(page, "node"), "sub/each[1]/paste")
		await close(page)
	},

	async "the neighbourhood of a node has some levels, and a link shows the same"() {
		const run = await tables(), graph = await api("graph", { run }), id = "table_07_03_customer_orders_daily"
		const page = await open(link(run, `/graph?by=none&node=${id}`))
		await drawn(page, 300)
		await page.getByRole("button", { name: "Neighbourhood" }).click()
		await drawn(page, around(graph, id, 1, 1))
		await readable(page, "table_07_03")
		await page.getByLabel("Levels of predecessors").selectOption("2")
		await drawn(page, around(graph, id, 2, 1))
		await page.getByLabel("Levels of successors").selectOption("0")
		await drawn(page, around(graph, id, 2, 0))
		await said(page, `${around(graph, id, 2, 0)} boxes in the neighbourhood`)
		await page.reload()
		await drawn(page, around(graph, id, 2, 0))
		await page.getByRole("combobox", { name: "Search nodes" }).fill("table_14_00") // the node is not in the neighbourhood
		await page.keyboard.press("Enter")
		await drawn(page, 300)
		await page.goto(link(run, `/graph?around=${id}&up=all&down=all`))
		await until("clusters", async () => Number(await data(page, "items").catch(() => 0)) > 2)
		assert(around(graph, id, Infinity, Infinity) > 100 && Number(await data(page, "items")) <= 48)
		await page.getByRole("button", { name: /Whole graph/ }).click()
		assert.equal(param(page, "around"), null)
		await page.goto(link(await completed("composites"), "/graph?open=sub&around=sub%2Flist&down=0"))
		await drawn(page, 2) // the node, and the sub-graph that contains it
		await page.goto(link(run, "/graph?around=none"))
		await page.getByText("The graph has no such node.").waitFor()
		await close(page)
	},

	async "a picture is saved whole as SVG and PNG, and printed on pages with readable names"() {
		const page = await open(link(await tables(), "/graph?by=none"))
		await drawn(page, 300)
		const svg = await saved(page, "Save as SVG"), text = svg.data.toString()
		assert.match(svg.name, /^tables.*\.svg$/)
		assert.doesNotMatch(text, /style=|NaN|undefined/)
		const names = await page.evaluate(text => {
			const doc = new DOMParser().parseFromString(text, "image/svg+xml")
			return doc.querySelector("parsererror") ? ["wrong XML"] : [...doc.querySelectorAll("text")].map(t => t.textContent).filter(t => t.startsWith("table_"))
		}, text)
		assert.deepEqual([names.length, new Set(names).size], [300, 300])
		assert(names.every(n => /_customer_orders_daily$/.test(n)), "a name that is cut has its whole as title")
		const size = name => Number(new RegExp(` ${name}="([\\d.]+)"`).exec(text)[1])
		const png = (await saved(page, "Save as PNG")).data
		assert.equal(png.subarray(1, 4).toString(), "PNG")
		assert(png.readUInt32BE(16) > size("width") && png.readUInt32BE(20) > size("height"), "a PNG has two pixels a unit")
		const sheets = await page.evaluate(() => {
			dispatchEvent(new Event("beforeprint"))
			const list = [...document.querySelectorAll(".sheet")].map(s => [...s.querySelectorAll("text")].map(t => t.textContent))
			dispatchEvent(new Event("afterprint"))
			return list
		})
		assert(sheets.length > 3, `${sheets.length} pages`)
		assert.equal(new Set(sheets.flat().filter(t => t.startsWith("table_")).map(t => t.slice(0, 11))).size, 300)
		const pdf = (await page.pdf({ preferCSSPageSize: true })).toString("latin1")
		assert.equal(pdf.match(/\/Type \/Page\b/g).length, sheets.length)
		await close(page)
	},

	async "20,000 nodes: search, neighbourhood, failed part, the whole and files"() {
		const run = await ended("big20000", "failed"), graph = await api("graph", { run })
		const page = await open(link(run, "/graph"))
		const few = () => until("few boxes", async () => {
			const n = Number(await data(page, "items").catch(() => 0))
			return n > 2 && n <= 200 && n
		}, 20_000)
		await few()
		await page.keyboard.press("/")
		await page.keyboard.type("n42.17")
		await said(page, "11 nodes match") // n42.17, and n42.170 to n42.179
		await page.keyboard.press("Enter")
		await readable(page, "n42.17")
		assert.equal(param(page, "node"), "n42.17")
		await page.getByRole("button", { name: "Neighbourhood" }).click()
		await drawn(page, around(graph, "n42.17", 1, 1))
		await page.getByLabel("Levels of predecessors").selectOption("all")
		await few()
		await page.getByLabel("Failed part").check()
		await readable(page, "n90.0")
		const failed = await few()
		await page.getByRole("button", { name: /Fit/ }).click()
		assert.equal(Number(await data(page, "items")), failed)
		await page.goto(link(run, "/graph?by=none"))
		await drawn(page, 20_000)
		const png = (await saved(page, "Save as PNG")).data
		assert(png.readUInt32BE(16) <= 8192 && png.readUInt32BE(20) <= 8192)
		await page.getByText("The picture is too large for a PNG").waitFor()
		assert.equal((await saved(page, "Save as SVG")).data.toString().match(/<text[^>]*>n\d+\.\d+<\/text>/g).length, 20_000)
		await close(page)
	},

	async "files and pages of hostile texts are text"() {
		const page = await open(link(await stage("hostile"), "/graph", server + "/hostile/"), { quiet: true })
		await drawn(page, 9)
		const text = (await saved(page, "Save as SVG")).data.toString()
		assert.doesNotMatch(text, /<img|<script|[\u0000-\u0008\u200b\u202a-\u202e\u2066-\u2069]/)
		assert.match(text, /&lt;img src=x/)
		const found = await page.evaluate(text => {
			dispatchEvent(new Event("beforeprint"))
			const doc = new DOMParser().parseFromString(text, "image/svg+xml")
			return [doc.querySelectorAll("parsererror, img, script").length, document.querySelectorAll(".sheet svg").length, document.querySelectorAll(".sheet img, .sheet script, .sheet parsererror").length, window.broken]
		}, text)
		assert(found[1] > 0)
		assert.deepEqual(found.toSpliced(1, 1), [0, 0, undefined])
		await close(page)
	},
}
