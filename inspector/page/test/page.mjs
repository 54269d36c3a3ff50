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
const scenarios = Object.entries({ ...functions, ...views, ...graph, ...large, ...estimates, ...actions, ...acting, ...operating, ...stored, ...appearance, ...strain })

// perform runs a scenario, and returns what is wrong, or undefined.
const perform = async ([name, scenario]) => {
	const begun = Date.now()
	try {
		await scenario()
		console.log(`ok ${name} (${Date.now() - begun} ms)`)
	} catch (err) {
		const wrong = `${name}: ${err.message}\n${(err.stack ?? "").split("\n").filter(l => l.includes(".mjs")).slice(0, 3).join("\n")}`
		console.log(`FAILED ${wrong}`)
		for (const context of browser.contexts()) {
			for (const page of context.pages()) console.log(`   ${page.url().slice(0, 200)} ${JSON.stringify(page.problems ?? []).slice(0, 600)}`)
			await context.close()
		}
		return wrong
	}
}

const failures = async list => {
	const found = []
	for (const one of list) {
		const wrong = await perform(one)
		if (wrong) found.push({ one, wrong })
	}
	return found
}

let failed = await failures(scenarios.filter(([name]) => !only || name.includes(only)))
if (failed.length && failed.length < 4 && !process.env.KAHN_LONG) { // another job may have starved the browser of CPU; the long mode performs each scenario once
	console.log(`${failed.length} scenarios have failed and are performed once more: ${failed.map(f => f.one[0]).join("; ")}`)
	failed = await failures(failed.map(f => f.one))
}
await browser.close()
if (failed.length) console.log(`\n${failed.length} scenarios have failed:\n${failed.map(f => "FAILED " + f.wrong.slice(0, 600)).join("\n")}`)
process.exit(failed.length ? 1 : 0)
