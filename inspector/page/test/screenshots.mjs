// Takes the screenshots for the documentation, and writes them to docs. The first argument is the link of a service of examples/live. If there is
// a second argument, the first is the address of the tests' service instead: the screenshots then show large graphs, and the second argument is
// the beginning of their names.
import { chromium } from "playwright-core"

const [base, token] = process.argv[2].split("#token=")
const headers = { Authorization: "Bearer " + token }
const folder = new URL("../../../docs/", import.meta.url).pathname
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] })

const get = async (path, params) => (await fetch(`${base}api/v1/${path}?${new URLSearchParams(params)}`, { headers })).json()

// latest waits until the latest run of a workflow satisfies a condition, and returns the run's id.
const latest = async (workflow, ready) => {
	for (;;) {
		const [run] = (await get("runs", { workflow, limit: 1 })).runs
		if (run && ready(run)) return encodeURIComponent(run.id)
		await new Promise(r => setTimeout(r, 500))
	}
}

const shot = async (name, hash, { scheme = "light", height = 640 } = {}) => {
	const page = await browser.newPage({ viewport: { width: 1200, height }, colorScheme: scheme, extraHTTPHeaders: headers })
	await page.goto(base + hash)
	await page.waitForTimeout(2500)
	await page.screenshot({ path: `${folder}inspector-${name}.png` })
	await page.close()
}

const large = process.argv[3]
if (large) {
	for (const [name, n] of [["tables", 300], ["big5000", 5000]]) {
		const run = await (await fetch(`${base}stage/${name}`)).text()
		for (;;) {
			const { status } = await (await fetch(`${base}debug/kahn/api/v1/run?run=${run}`)).json()
			if (["completed", "failed"].includes(status)) break
			await new Promise(r => setTimeout(r, 500))
		}
		await shot(`${large}-${n}`, `debug/kahn/#/runs/${run}/graph`, { height: 560 })
	}
	await browser.close()
	process.exit()
}

const release = await latest("release", r => r.waits > 0)
await shot("light", `#/runs/${release}/graph?node=approve`)
const nightly = await latest("nightly", r => r.status === "failed")
await shot("dark", `#/runs/${nightly}/graph?node=load`, { scheme: "dark" })
const imports = await latest("import", r => r.done > 0)
await shot("composites", `#/runs/${imports}/graph?open=summary`, { height: 480 })
await browser.close()
