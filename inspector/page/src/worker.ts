import type { Graph } from "./api"
import { place } from "./place"
import { pictureOf, sceneOf, treeOf, type Choice } from "./scene"

// The worker makes pictures of graphs, so that the page does not wait for them.

// Asked is a request for a picture. graphs are the graphs, as JSON, that the worker does not have yet. The other fields say which part of
// which graph is shown: statuses are the statuses that the choice needs, and insides the paths of the composites that have begun.
export interface Asked extends Omit<Choice, "open"> { graphs: [string, string][]; inside: string; open: string[]; all: boolean; statuses: [string, string][]; insides: string[] }

const graphs = new Map<string, Graph>()

onmessage = (e: MessageEvent<Asked>) => {
	const asked = e.data, statuses = new Map(asked.statuses)
	for (const [path, text] of asked.graphs) graphs.set(path, JSON.parse(text))
	const scene = sceneOf({ graphs, insides: new Set(asked.insides), status: path => statuses.get(path) ?? "idle" }, asked.inside, { ...asked, open: new Set(asked.open) })!
	const begun = performance.now(), drawn = place(treeOf(scene, asked.all))
	drawn.ms = performance.now() - begun
	postMessage(pictureOf(scene, drawn))
}
