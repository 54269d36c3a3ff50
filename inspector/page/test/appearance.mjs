// What the page looks like: for screen readers, in dark and light, narrow and wide, with and without motion, and with hostile values.
import assert from "node:assert/strict"
import { api, base, close, disruptive, drawn, link, open, overflow, serious, server, stage, until } from "./harness.mjs"

// screens lists the views, each with an element that is on it when the view is complete.
const screens = run => {
	const at = `#/runs/${encodeURIComponent(run)}`
	return [
		["#/runs", "table.runs"], ["#/runs?q=none", ".empty"], ["#/gates", ".card"], ["#/stored", "table.runs"], ["#/runs/stored/log", ".empty"], ["#/runs/none", ".empty"],
		[`${at}/graph?node=flaky`, ".panel .tries"], [`${at}/graph?node=each&open=each`, ".panel .inside-counts"], [`${at}/timeline?node=fetch`, ".trail"], [`${at}/log`, ".line"], [`${at}/table?node=approve`, ".answer button"],
	]
}

// dialogs lists a view for each dialog, and a function that opens the dialog.
const dialogs = [
	["#/runs", page => page.getByRole("button", { name: "Start a run" }).click()],
	["#/runs", page => page.keyboard.press("?")],
]

export const appearance = {
	async "axe finds nothing serious on any screen, in light and dark"() {
		const run = await stage("orders")
		for (const scheme of ["light", "dark"]) {
			const page = await open(base, { scheme, quiet: true })
			for (const [hash, ready] of screens(run)) {
				await page.goto(base + hash)
				await page.locator(ready).first().waitFor()
				assert.deepEqual(await serious(page, scheme), [], `${scheme} ${hash}`)
			}
			for (const [hash, act] of [...dialogs, [`#/runs/${encodeURIComponent(run)}`, p => p.getByRole("button", { name: "Cancel", exact: true }).click()]]) {
				await page.goto(base + hash)
				await page.locator("#main h1").waitFor()
				await act(page)
				await page.getByRole("dialog").waitFor()
				assert.deepEqual(await serious(page, scheme), [], `${scheme} dialog on ${hash}`)
				await page.keyboard.press("Escape")
				await page.getByRole("dialog").waitFor({ state: "detached" })
			}
			await close(page)
		}
	},

	async "a narrow window and a wide one have no overflow, and motion is only for those who want it"() {
		const run = await stage("orders")
		for (const width of [375, 2560]) {
			const page = await open(base, { width, height: 900, motion: "reduce", quiet: true })
			for (const [hash, ready] of screens(run)) {
				await page.goto(base + hash)
				await page.locator(ready).first().waitFor()
				const over = await overflow(page)
				assert(over <= 0, `${width} ${hash}: ${over} px too wide`)
				assert.equal(await page.evaluate(() => document.getAnimations().length), 0, hash)
			}
			if (width === 375) { // in a narrow window, where the graph would be too small, a run opens with the table
				await page.goto(link(run))
				await page.locator(".tableview tbody tr").first().waitFor()
				await page.goto(link(run, "/table?node=approve"))
				await page.locator(".answer button").first().waitFor()
				assert.deepEqual(await serious(page), [])
			}
			await close(page)
		}
		const page = await open(link(run, "/table"))
		await page.locator(".tableview tbody tr").first().waitFor()
		await until("motion", () => page.evaluate(() => document.getAnimations().length > 0))
		await close(page)
	},

	async "dark and light differ, on canvases too"() {
		const run = await stage("orders")
		const page = await open(link(run, "/graph"))
		await drawn(page, 6)
		const colours = () => page.evaluate(() => {
			const c = document.querySelector("canvas.picture"), g = c.getContext("2d"), seen = new Set()
			const { data } = g.getImageData(0, 0, c.width, c.height)
			for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2])
			return [getComputedStyle(document.body).backgroundColor, seen.has(0xffffff)]
		})
		const light = await colours()
		assert.equal(light[1], true) // boxes are white
		await page.emulateMedia({ colorScheme: "dark" })
		await until("dark boxes", async () => { const dark = await colours(); return dark[0] !== light[0] && !dark[1] })
		await close(page)
	},

	async "hostile values are text, wherever they are"() {
		const run = await stage("hostile"), at = server + "/hostile/"
		await until("gates", async () => (await api("run", { run })).waits === 2)
		const page = await open(link(run, "", at), { quiet: true })
		await drawn(page, 9)
		const check = async where => {
			assert.deepEqual(await disruptive(page), [], where)
			assert.equal(await page.evaluate(() => window.broken), undefined, where)
			assert.equal(await page.locator("#app img, #app script").count(), 0, where)
			const over = await overflow(page)
			assert(over <= 0, `${where}: ${over} px too wide`)
			const [top, header] = await page.evaluate(() => [".top", "#main header, #main .bar"].map(s => document.querySelector(s)?.getBoundingClientRect().height ?? 0))
			assert(top <= 60 && header <= 200, `${where}: the header is ${top} and ${header} px high`)
		}
		await check("graph")
		const { nodes } = await api("nodes", { run })
		assert.equal(nodes.length, 9)
		for (const n of nodes) {
			await page.goto(link(run, "/graph?" + new URLSearchParams({ node: n.path }), at))
			await page.locator(".panel .why").waitFor()
			await check("node " + n.path.slice(0, 60))
		}
		const sub = nodes.find(n => n.path.startsWith("inside")).path
		const group = "rtl\u202egnp.exe\u2066\x1b[2J\u200b"
		for (const [tab, ready] of [["/graph?" + new URLSearchParams({ open: sub, fold: group }), ".groups"], ["/graph?" + new URLSearchParams({ inside: sub }), ".stage"], ["/log?level=debug", ".line"], ["/table", "tbody tr"], ["/timeline", ".trail"], ["/timeline?critical=slots", ".trail"]]) {
			await page.goto(link(run, tab, at))
			await page.locator(ready).first().waitFor()
			if (ready === ".groups") await page.locator(".groups summary").click()
			await page.waitForTimeout(200)
			await check(tab.slice(0, 12))
		}
		for (const [hash, ready] of [["#/gates", ".card"], ["#/runs", "table.runs"], ["#/stored", "table.runs tbody tr"]]) {
			await page.goto(at + hash)
			await page.locator(ready).first().waitFor()
			await until("markup as text", async () => (await page.locator("#main").innerText()).includes("<img src=x"))
			await check(hash)
		}
		await page.locator("table.runs tbody a").first().click()
		await page.locator(".tabs").waitFor()
		await check("stored run")
		await page.goto(at)
		await page.getByRole("button", { name: "Start a run" }).click()
		await page.getByRole("dialog").waitFor()
		await check("start")
		await page.goto(link(run, "/graph?node=asks", at))
		await page.getByRole("complementary").getByRole("button", { name: /^<img/ }).click()
		await page.getByRole("complementary").getByRole("button", { name: "Answer", exact: true }).click()
		await page.getByRole("complementary").locator(".notice", { hasText: "answered" }).waitFor()
		await check("answer")
		await page.goto(link(run, "/graph?" + new URLSearchParams({ node: "none\u202e" + "x".repeat(100_000) }), at))
		await page.locator(".panel .problem").waitFor()
		await check("a node that does not exist")
		await close(page)
	},
}
