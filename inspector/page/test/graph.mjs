// The graph: what the user can fold and unfold, how the user moves the picture, and what the picture shows at each zoom.
import assert from "node:assert/strict"
import { answer, api, clickBox, close, completed, data, drawn, link, open, stage, steady, textsIn, until } from "./harness.mjs"

export const graph = {
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
		await page.getByRole("complementary").getByText("it waits for an answer").waitFor()
		await page.getByRole("button", { name: /Whole graph/ }).click()
		await drawn(page, 6)
		await page.getByLabel("Failed part").check()
		await drawn(page, 2) // flaky, and its predecessor fetch
		await close(page)
	},

	async "sub-graphs, maps, loops and expanded nodes fold into their progress"() {
		const run = await completed("composites")
		const page = await open(link(run, "/graph?node=loop"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await drawn(page, 4)
		await panel.getByRole("img", { name: "nodes inside: 2 of 2 completed" }).waitFor()
		await panel.getByText("2 completed").waitFor()
		for (const [node, boxes] of [["sub", 6], ["sub/each", 9], ["sub/each[1]", 11], ["loop", 13], ["sub2", 15]]) {
			await page.evaluate(node => (location.hash = location.hash.replace(/node=[^&]*/, "node=" + encodeURIComponent(node))), node)
			await page.getByRole("button", { name: "Unfold" }).click()
			await drawn(page, boxes)
		}
		await page.reload()
		await drawn(page, 15)
		await page.evaluate(() => (location.hash = location.hash.replace(/node=[^&]*/, "node=sub")))
		await page.getByRole("button", { name: "Fold", exact: true }).waitFor()
		await page.keyboard.press("u") // folds sub and everything unfolded inside it, but not sub2
		await drawn(page, 8)
		await page.getByRole("button", { name: "Fold all" }).click()
		await drawn(page, 4)
		await page.goto(link(run, "/table"))
		await page.getByRole("row", { name: /sub nodes inside: 2 of 2 completed/ }).waitFor()
		await close(page)
	},

	async "an unfolded loop shows its latest iteration, and what has not begun has paths of its own"() {
		const run = await stage("rounds")
		const page = await open(link(run, "/graph?open=loop&open=last"), { quiet: true })
		await drawn(page, 4)
		// below returns the node to which the arrow down leads from a composite. It should be the node inside the composite.
		const below = async path => {
			await page.evaluate(hash => (location.hash = hash), `#/runs/${run}/graph?open=loop&open=last&node=${path}`)
			await steady(page)
			await page.keyboard.press("ArrowDown")
			return new URLSearchParams(page.url().split("?")[1]).get("node")
		}
		assert.equal(await below("last"), "last/loop")
		for (const iteration of [1, 2, 3]) {
			await until(`iteration ${iteration}`, async () => (await below("loop")) === `loop#${iteration}/ask`)
			await answer(page.getByRole("complementary"), "again")
		}
		await page.locator(".run-title .badge", { hasText: "completed" }).waitFor()
		assert.equal(await below("last"), "last/loop")
		await page.locator(".panel .why .badge", { hasText: "completed" }).waitFor()
		await close(page)
	},

	async "groups fold into boxes that are in no cycle"() {
		const run = await completed("crews")
		const page = await open(link(run, "/graph"))
		await drawn(page, 6)
		await page.locator(".groups summary").click()
		await page.getByLabel("Fold db").check()
		await drawn(page, 4) // one box for the members before the node outside the group, and one box for the members after it
		assert.equal(await data(page, "lines"), "3")
		await page.getByLabel("Fold mail").check() // this group has one node
		await drawn(page, 4)
		await page.reload()
		await drawn(page, 4)
		await page.locator("canvas.picture").focus()
		await page.keyboard.press("ArrowRight")
		await page.locator("[role=status]", { hasText: "db: 2 nodes folded into one box" }).waitFor({ state: "attached" })
		await page.keyboard.press("u")
		await drawn(page, 6)
		await close(page)
	},

	async "a box is opened by mouse, and edges that a longer path replaces are drawn on demand"() {
		const run = await completed("composites")
		const page = await open(link(run, "/graph"))
		await drawn(page, 4)
		await steady(page)
		assert.equal(await data(page, "lines"), "4")
		await page.getByLabel("All edges").check()
		await until("another line", async () => (await data(page, "lines")) === "5")
		await page.reload()
		await until("another line again", async () => (await data(page, "lines")) === "5")
		await steady(page)
		await clickBox(page, "sub")
		await page.getByRole("complementary", { name: "Node" }).getByRole("heading", { name: "sub" }).waitFor()
		await page.getByRole("button", { name: "Unfold" }).waitFor()
		await steady(page)
		await clickBox(page, "sub", 2)
		await drawn(page, 6)
		await close(page)
	},

	async "300, 5,000 and 20,000 nodes are clusters with readable names, and what failed is in view at the start"() {
		for (const [name, ends, part] of [["tables", "failed", "failed"], ["big5000", "completed", ""], ["big20000", "failed", "failed"]]) {
			const run = await stage(name)
			await until("end of " + run, async () => (await api("run", { run })).status === ends, 60_000)
			const page = await open(link(run, "/graph"))
			await until("picture", async () => Number(await data(page, "items").catch(() => 0)) > 2, 20_000)
			const boxes = Number(await data(page, "items"))
			assert(boxes <= 48, `${boxes} boxes`)
			const texts = await textsIn(page)
			const named = texts.filter(t => t.size >= 12 && t.inside && /[a-z]/.test(t.text))
			assert(named.length >= Math.min(boxes, 4), `${name}: ${named.length} of ${boxes} names: ${JSON.stringify(texts.slice(0, 8))}`)
			if (part) assert(texts.some(t => t.inside && /^F \d/.test(t.text)), `${name}: ${JSON.stringify(texts)}`)
			await page.getByLabel("Clusters").selectOption("layer")
			await until("layers", async () => (await textsIn(page)).some(t => /^layers? \d/.test(t.text)))
			await page.reload()
			await until("layers again", async () => (await textsIn(page).catch(() => [])).some(t => /^layers? \d/.test(t.text)))
			await close(page)
		}
	},

	async "clusters unfold one level, and a link to a node unfolds what it is in and marks it"() {
		const run = await stage("tables")
		const page = await open(link(run, "/graph?by=layer"))
		await drawn(page, 15)
		await page.locator("canvas.picture").focus()
		await page.keyboard.press("ArrowRight")
		await page.locator("[role=status]", { hasText: "20 nodes folded into one box" }).waitFor({ state: "attached" })
		await page.keyboard.press("Enter")
		await drawn(page, 35)
		assert((await textsIn(page)).some(t => t.inside && t.size >= 12 && t.text.startsWith("table_00")))
		await page.keyboard.press("u")
		await drawn(page, 15)
		const path = "table_08_03_customer_orders_daily"
		await page.goto(link(run, "/graph?node=" + path))
		await page.reload()
		const seen = async () => (await textsIn(page).catch(() => [])).some(t => t.inside && t.size >= 12 && t.text.startsWith("table_08_03"))
		await until("the node of the link", seen)
		await page.goto(link(await completed("composites"), "/graph?node=sub%2Flist"))
		await page.reload()
		await drawn(page, 6)
		await until("the node in a composite", async () => (await textsIn(page)).some(t => t.inside && t.text === "list"))
		await close(page)
	},

	async "the failed part shows the root, and what it stopped as one box"() {
		const run = await stage("tables")
		await until("end", async () => (await api("run", { run })).status === "failed")
		const { counts } = await api("run", { run })
		assert(counts.failed === 1 && counts.aborted > 50, JSON.stringify(counts))
		const page = await open(link(run, "/graph?failed=1&by=none"))
		await drawn(page, 5) // the failed node, its three predecessors, and the box of the stopped nodes
		await page.locator("canvas.picture").focus()
		const box = page.locator("[role=status]", { hasText: `stopped by table_06_04_customer_orders_daily: ${counts.aborted} nodes` })
		await until("box of the stopped nodes", async () => {
			await page.keyboard.press("ArrowRight")
			return (await box.count()) > 0
		})
		await page.keyboard.press("u")
		await drawn(page, 4 + counts.aborted)
		await page.reload()
		await drawn(page, 4 + counts.aborted)
		await page.getByRole("button", { name: "Fold the stopped nodes" }).click()
		await drawn(page, 5)
		await close(page)
	},

	async "the text of an edge is near its source where two edges meet"() {
		const run = await stage("purchase")
		const page = await open(link(run, "/graph"))
		await drawn(page, 5)
		const drew = await page.evaluate(() => new Promise(resolve => { // maps each text of the next frame to its height in the picture
			const { fillText } = CanvasRenderingContext2D.prototype, found = {}
			CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
				found[text] = y
				return fillText.call(this, text, x, y)
			}
			dispatchEvent(new KeyboardEvent("keydown", { key: "0" }))
			requestAnimationFrame(() => requestAnimationFrame(() => resolve(found)))
		}))
		const near = (text, name, other) => assert(Math.abs(drew[text] - drew[name]) < Math.abs(drew[text] - drew[other]) / 2, JSON.stringify(drew))
		near("yes", "legal", "cfo")
		near("approve", "cfo", "legal")
		await close(page)
	},

	async "the picture and its minimap are moved by mouse and keyboard, and a reload finds them where they were"() {
		const run = await completed("wide")
		const page = await open(link(run, "/graph?by=none&node=n0.0"))
		await drawn(page, 1000)
		const minimap = page.getByRole("application", { name: /Overview/ })
		const [, , whole] = await steady(page)
		await minimap.waitFor({ state: "hidden" })
		const details = [await data(page, "detail")]
		for (let i = 0; i < 14; i++) {
			await page.keyboard.press("+")
			await page.waitForTimeout(40)
			const detail = await data(page, "detail")
			if (detail !== details.at(-1)) details.push(detail)
		}
		assert.deepEqual(details, ["boxes", "letters", "names", "facts"])
		await minimap.waitFor()
		const moved = async (what, act, check) => {
			const before = await steady(page)
			await act()
			const after = await steady(page)
			assert(check(before, after), `${what}: ${before} ${after}`)
			assert.equal(after[2], before[2])
		}
		await minimap.focus()
		await moved("right", () => page.keyboard.press("ArrowRight"), (a, b) => b[0] > a[0] && b[1] === a[1])
		await moved("up", () => page.keyboard.press("ArrowUp"), (a, b) => b[1] < a[1] && b[0] === a[0])
		const box = await minimap.boundingBox()
		await moved("a click", () => page.mouse.click(box.x + 20, box.y + box.height - 20), (a, b) => b[0] < a[0] && b[1] > a[1])
		await moved("a drag in the minimap", async () => {
			await page.mouse.move(box.x + 20, box.y + box.height - 20)
			await page.mouse.down()
			await page.mouse.move(box.x + box.width - 20, box.y + 20, { steps: 4 })
			await page.mouse.up()
		}, (a, b) => b[0] > a[0] && b[1] < a[1])
		await page.locator("canvas.picture").focus()
		await moved("the picture by keyboard", () => page.keyboard.press("Shift+ArrowLeft"), (a, b) => b[0] < a[0])
		const before = await steady(page)
		await page.setViewportSize({ width: 1200, height: 760 })
		assert.deepEqual(await steady(page), before)
		await page.reload()
		await drawn(page, 1000)
		assert.deepEqual(await steady(page), before)
		await page.keyboard.press("0")
		await page.setViewportSize({ width: 1280, height: 800 })
		assert.equal((await steady(page))[2], whole)
		await close(page)
	},
}
