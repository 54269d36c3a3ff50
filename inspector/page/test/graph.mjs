// The graph: what folds and unfolds in it, how it is moved, and what it shows at which size.
import assert from "node:assert/strict"
import { clickBox, close, completed, data, drawn, link, open, stage, steady, until } from "./harness.mjs"

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
		await page.getByRole("complementary").getByText("it waits for a signal").waitFor()
		await page.getByRole("button", { name: /Whole graph/ }).click()
		await drawn(page, 6)
		await page.getByLabel("Failed part").check()
		await drawn(page, 2) // flaky, and fetch before it
		await close(page)
	},

	async "sub-graphs, maps, loops and expanded nodes fold into their progress"() {
		const run = await completed("composites")
		const page = await open(link(run, "/graph?node=loop"))
		const panel = page.getByRole("complementary", { name: "Node" })
		await drawn(page, 4)
		await panel.getByRole("img", { name: "2 of 2 nodes inside have ended" }).waitFor()
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
		await page.keyboard.press("u") // with all that is inside of it, but not sub2
		await drawn(page, 8)
		await page.getByRole("button", { name: "Fold all" }).click()
		await drawn(page, 4)
		await page.goto(link(run, "/table"))
		await page.getByRole("row", { name: /sub 2 of 2 nodes inside have ended/ }).waitFor()
		await close(page)
	},

	async "an unfolded loop shows its latest iteration, and what has not begun has paths of its own"() {
		const run = await stage("rounds")
		const page = await open(link(run, "/graph?open=loop&open=last"), { quiet: true })
		await drawn(page, 4)
		// below is the node to which the arrow key leads from a composite: the one inside of it.
		const below = async path => {
			await page.evaluate(hash => (location.hash = hash), `#/runs/${run}/graph?open=loop&open=last&node=${path}`)
			await steady(page)
			await page.keyboard.press("ArrowDown")
			return new URLSearchParams(page.url().split("?")[1]).get("node")
		}
		assert.equal(await below("last"), "last/loop")
		for (const iteration of [1, 2, 3]) {
			await until(`iteration ${iteration}`, async () => (await below("loop")) === `loop#${iteration}/ask`)
			await page.getByRole("complementary").getByRole("button", { name: "again" }).click()
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
		await page.locator(".menu summary").click()
		await page.getByLabel("Fold db").check()
		await drawn(page, 4) // those before and those after what is not in the group
		assert.equal(await data(page, "lines"), "3")
		await page.getByLabel("Fold mail").check() // of one node
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

	async "the picture and its minimap are moved by mouse and keyboard, and a reload finds them where they were"() {
		const run = await completed("wide")
		const page = await open(link(run, "/graph?node=n0.0"))
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
