// Tests the page in a browser. The first argument is the address of the service. The scenarios cover every screen and action, screen readers,
// narrow windows, bad networks and hostile values. This program prints a line for each scenario, and exits with 1 if a scenario has failed. If
// there is a second argument, only scenarios whose names contain it run.
import { acting } from "./acting.mjs"
import { actions } from "./actions.mjs"
import { appearance } from "./appearance.mjs"
import { estimates } from "./estimates.mjs"
import { functions } from "./functions.mjs"
import { graph } from "./graph.mjs"
import { browser } from "./harness.mjs"
import { large } from "./large.mjs"
import { operating } from "./operating.mjs"
import { stored } from "./stored.mjs"
import { strain } from "./strain.mjs"
import { views } from "./views.mjs"

const only = process.argv[3]
let failed = 0
for (const [name, scenario] of Object.entries({ ...functions, ...views, ...graph, ...large, ...estimates, ...actions, ...acting, ...operating, ...stored, ...appearance, ...strain })) {
	if (only && !name.includes(only)) continue
	const begun = Date.now()
	try {
		await scenario()
		console.log(`ok ${name} (${Date.now() - begun} ms)`)
	} catch (err) {
		failed++
		console.log(`FAILED ${name}: ${err.message}\n${(err.stack ?? "").split("\n").filter(l => l.includes(".mjs")).slice(0, 3).join("\n")}`)
		for (const context of browser.contexts()) {
			for (const page of context.pages()) console.log(`   ${page.url().slice(0, 200)} ${JSON.stringify(page.problems ?? []).slice(0, 600)}`)
			await context.close()
		}
	}
}
await browser.close()
process.exit(failed ? 1 : 0)
