import { useSignal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import type { Graph } from "./api"
import type { Picture } from "./draw"
import type { Model } from "./model"
import { aroundOf, route, type Route } from "./route"
import { notable } from "./scene"
import { texts } from "./texts"
import type { Asked } from "./worker"

// ofRoute identifies the part of the graph that an address shows.
export const ofRoute = (r: Route) => [r.inside, !!r.failed, r.by, r.around, r.up, r.down].join("|")

// usePicture lets a worker make the picture of a run's graph, whenever the graph or its shown part has changed.
export function usePicture(model: Model) {
	const picture = useSignal<Picture | undefined>(undefined)
	const worker = useMemo(() => new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), [])
	useEffect(() => () => worker.terminate(), [])
	const { inside, open, fold, failed, edges, by, around, up, down } = route.value
	const asked = useRef(false), again = useRef(false), count = useRef(0)
	const sent = useRef(new Map<string, Graph>()) // the graphs that the worker has
	const ask = () => { // requests one picture at a time. If the graph changes faster than pictures are made, some of its states are not shown
		if (asked.current) return void (again.current = true)
		const r = route.peek()
		if (!model.graphs.has(r.inside)) return
		const graphs = [r.inside, ...r.open].flatMap((path): [string, string][] => {
			const graph = model.graphs.get(path)
			if (!graph || sent.current.get(path) === graph) return []
			sent.current.set(path, graph)
			return [[path, graph.text ?? JSON.stringify(graph)]]
		})
		asked.current = true
		worker.onmessage = (e: MessageEvent<Omit<Picture, "of" | "n">>) => {
			picture.value = { ...e.data, of: ofRoute(r), n: ++count.current }
			asked.current = false
			if (again.current) {
				again.current = false
				ask()
			}
		}
		worker.postMessage({
			graphs, inside: r.inside, open: r.open, fold: r.fold, failed: r.failed, by: r.by, all: !!r.edges, stopped: texts.stopped, around: aroundOf(r),
			insides: [...model.insides.keys()],
			statuses: r.failed ? [...model.statuses].filter(([, status]) => notable.has(status)) : [],
		} as Asked)
	}
	useEffect(ask, [JSON.stringify([model.structure.value, inside, open, fold, edges, by, around, up, down, failed, failed && model.version.value])])
	return picture
}
