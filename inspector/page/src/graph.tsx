import { signal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import { mostBoxes } from "./cluster"
import type { Item } from "./draw"
import { folding } from "./facts"
import { Export } from "./export"
import type { Model } from "./model"
import { isInside } from "./paths"
import { ofRoute, usePicture } from "./picture"
import { go, route } from "./route"
import { stopped } from "./scene"
import { Search } from "./search"
import { Canvas, neighbour, useStage } from "./stage"
import { nodeStatuses, type Counts } from "./status"
import { texts } from "./texts"
import { announced, Badge, Empty, Menu, Plain, shortcut } from "./ui"
import { visible } from "./visible"

// picked is the path of the selected folded group or cluster, which is not in the address.
export const picked = signal("")

// GraphView is the graph of a run on a canvas, with unfolded composites.
export function GraphView({ model }: { model: Model }) {
	const { inside, open, fold, failed, edges, by, node, around, up, down } = route.value
	const picture = usePicture(model)
	useEffect(() => () => void (picked.value = ""), [])
	const selected = node || picked.value
	const stage = useStage(model, picture.value, selected)
	useEffect(() => model.want([inside, ...open.filter(p => !p.includes("\n"))]), [inside, open.join("\n")])
	useEffect(() => {
		if (node) announced.value = texts.nowIs(visible(node), model.status(node))
	}, [node])

	const revealed = useRef("") // the node that was unfolded because it is selected; if the user folds it again, it stays folded
	const sought = node || around
	useEffect(() => {
		if (!sought || sought === revealed.current || picture.value?.of !== ofRoute(route.peek())) return // the picture of another part does not tell
		const box = picture.value.items.some(i => i.path === sought) ? undefined : folding(picture.value.items, sought)
		if (!box) revealed.current = sought
		else unfold(box)
	}, [sought, picture.value])
	useEffect(() => {
		if (around && picture.value) announced.value = texts.aroundHas(picture.value.items.length)
	}, [picture.value?.of])
	const jump = (path: string) => { // jumps to a node that the search has found
		const items = picture.value?.items ?? [], seen = items.some(i => i.path === path) || folding(items, path)
		revealed.current = picked.value = ""
		stage.bring(path)
		go(seen ? { node: path } : { node: path, inside: "", around: "", failed: "" })
	}

	const select = (item: Item | undefined) => {
		picked.value = item?.members ? item.path : ""
		if (item?.members) announced.value = texts.groupOf(item.label, item.members.length)
		go({ node: item && !item.members ? item.path : "" }, true)
	}
	const current = picture.value?.items.find(i => i.path === selected)
	const toggle = (item: Item | undefined) => {
		if (item?.type === "cluster") toggleComposite(item.path)
		else if (item?.members && item.group === stopped) go({ failed: "all" }, true)
		else if (item?.members) toggleGroup(item.group)
		else if (item?.composite) toggleComposite(item.path)
	}
	const keys = useRef<(e: KeyboardEvent) => boolean>(() => false)
	keys.current = e => {
		switch (e.key) {
			case "+": case "=": stage.zoom(1.25); return true
			case "-": stage.zoom(0.8); return true
			case "0": stage.fit(); return true
			case "u": toggle(current); return true
			case "Enter":
				if (!current?.members || document.activeElement?.closest("button, a, select, input, summary, aside")) return false
				toggle(current)
				return true
		}
		if (!arrows[e.key] || document.activeElement?.closest("aside, .tools, .tabs, .top")) return false
		if (e.shiftKey) return stage.pan(...arrows[e.key]), true
		const next = picture.value && neighbour(picture.value, selected, e.key)
		if (next) select(next)
		return true
	}
	useEffect(() => shortcut(e => keys.current(e)), [])

	const graph = model.graphs.get(inside)
	const groups = useMemo(() => [...new Set(graph?.nodes.map(n => n.groups?.[0] ?? "").filter(Boolean))].sort(), [graph])
	return (
		<div class="graph">
			<div class="tools">
				{(inside || around) && <button onClick={() => go({ inside: "", around: "", up: "", down: "", node: inside ? "" : node })}>← {texts.wholeGraph}</button>}
				{inside && <span class="meta">{texts.inside} <Plain text={inside} /></span>}
				<Search model={model} jump={jump} />
				{around && <span class="meta">{texts.around} <Plain text={around} /></span>}
				{around && <Levels label={texts.levelsUp} name={texts.up} value={up || "1"} change={up => go({ up })} />}
				{around && <Levels label={texts.levelsDown} name={texts.down} value={down || "1"} change={down => go({ down })} />}
				<label class="check"><input type="checkbox" checked={!!failed} onChange={e => go({ failed: e.currentTarget.checked ? "1" : "", around: "" })} /> {texts.failedOnly}</label>
				{failed === "all" && <button onClick={() => go({ failed: "1" }, true)}>{texts.foldStopped}</button>}
				<label class="check"><input type="checkbox" checked={!!edges} onChange={e => go({ edges: e.currentTarget.checked ? "all" : "" })} /> {texts.allEdges}</label>
				{graph && graph.nodes.length > mostBoxes && <select aria-label={texts.clusters} value={by} onChange={e => go({ by: e.currentTarget.value })}>
					{["", ...(groups.length ? ["group"] : []), "prefix", "layer", "none"].map(b => <option key={b} value={b}>{texts.by[b]}</option>)}
				</select>}
				{groups.length > 0 && <Groups names={groups} folded={fold} />}
				{current && (current.composite || current.members) && <button aria-expanded={current.open} onClick={() => toggle(current)}>{current.open ? texts.fold : texts.unfold}</button>}
				{open.length > 1 && <button onClick={() => go({ open: [] })}>{texts.foldAll}</button>}
				{graph && graph.total > graph.nodes.length && <span class="meta">{texts.firstNodes(graph.nodes.length, graph.total)}</span>}
				<span class="spring" />
				<Export model={model} picture={picture.value} facts={stage.facts} />
			</div>
			{graph?.note && <p class="trail meta"><Plain text={graph.note} /></p>}
			<div class="stage">
				<Canvas stage={stage} boxes={picture.value?.items.length ?? 0} select={select} toggle={toggle} />
				<canvas
					ref={stage.mini} class="minimap" tabIndex={0} role="application" aria-label={texts.minimap}
					onPointerDown={e => { e.currentTarget.setPointerCapture(e.pointerId); stage.look(e.offsetX, e.offsetY) }}
					onPointerMove={e => e.buttons && stage.look(e.offsetX, e.offsetY)}
					onKeyDown={e => {
						if (!arrows[e.key]) return
						e.preventDefault()
						e.stopPropagation()
						stage.pan(...arrows[e.key])
					}}
				/>
				{graph && !graph.known && <div class="over"><Empty title={texts.noGraph} /></div>}
				{around && picture.value && !picture.value.items.length && <div class="over"><Empty title={texts.noNode} /></div>}
				{failed && !around && picture.value && !picture.value.items.length && <div class="over"><Empty title={texts.noFailed} /></div>}
			</div>
			<div class="tools foot">
				<Legend counts={(inside ? model.insides.get(inside)?.counts : model.row.value?.counts) ?? {}} />
				<span class="spring" />
				<button aria-label={texts.zoomOut} onClick={() => stage.zoom(0.8)}>−</button>
				<button onClick={stage.fit}>{texts.fit}</button>
				<button aria-label={texts.zoomIn} onClick={() => stage.zoom(1.25)}>+</button>
			</div>
		</div>
	)
}

const arrows: Record<string, [number, number]> = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }

function toggleComposite(path: string): void {
	const { open } = route.peek()
	go({ open: open.includes(path) ? open.filter(p => p !== path && !isInside(p, path)) : [...open, path] }, true)
}

// unfold unfolds a box. If the address already lists the box as unfolded, its content is still being loaded, and unfold does nothing.
function unfold(box: Item): void {
	const { open, fold } = route.peek()
	if (box.type === "group") go(box.group === stopped ? { failed: "all" } : { fold: fold.filter(g => g !== box.group) }, true)
	else if (!open.includes(box.path)) go({ open: [...open, box.path] }, true)
}

function toggleGroup(name: string): void {
	const { fold } = route.peek()
	go({ fold: fold.includes(name) ? fold.filter(g => g !== name) : [...fold, name] }, true)
}

// Legend explains the shapes and letters of the statuses that a graph has.
function Legend({ counts }: { counts: Counts }) {
	return <ul class="legend" aria-label={texts.legend}>{nodeStatuses.filter(s => counts[s]).map(s => <li key={s}><Badge status={s} /></li>)}</ul>
}

// Levels chooses how many levels of predecessors or successors are shown.
function Levels({ label, name, value, change }: { label: string; name: (n: string) => string; value: string; change: (n: string) => void }) {
	const list = ["0", "1", "2", "3", "4", "5", "10", "all"]
	return (
		<select aria-label={label} value={value} onChange={e => change(e.currentTarget.value)}>
			{(list.includes(value) ? list : [value, ...list]).map(n => <option key={n} value={n}>{name(n)}</option>)}
		</select>
	)
}

// Groups is a menu of the groups that can be folded.
function Groups({ names, folded }: { names: string[]; folded: string[] }) {
	return (
		<Menu kind="groups" label={<>{texts.groups}{folded.length > 0 && <span class="count"> {folded.length}</span>}</>}>
			{names.map(name => <label class="check" key={name}><input type="checkbox" checked={folded.includes(name)} onChange={() => toggleGroup(name)} /> {texts.fold} <Plain text={name} /></label>)}
		</Menu>
	)
}
