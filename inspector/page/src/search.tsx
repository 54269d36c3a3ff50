import { useSignal } from "@preact/signals"
import { useEffect, useMemo, useRef } from "preact/hooks"
import type { Model } from "./model"
import { prefixOf } from "./paths"
import { texts } from "./texts"
import { announced, Plain } from "./ui"

export interface Match { path: string; label: string }

const mostListed = 50

// matching returns the first nodes whose path or label contains a text, the closest first, and the number of all
// matches.
export function matching(graphs: Model["graphs"], text: string): { list: Match[]; total: number } {
	const want = text.toLowerCase(), ranks: Match[][] = [[], [], []] // matches that are equal to the text, begin with it, or contain it
	let total = 0
	for (const graph of graphs.values()) {
		const prefix = prefixOf(graph)
		for (const { id, label = "" } of graph.nodes) {
			const names = [id, label, prefix + id].map(s => s.toLowerCase())
			if (!names.some(n => n.includes(want))) continue
			const list = ranks[names.includes(want) ? 0 : names.some(n => n.startsWith(want)) ? 1 : 2]
			if (total++, list.length < mostListed) list.push({ path: prefix + id, label: label || id })
		}
	}
	return { list: ranks.flat().slice(0, mostListed), total }
}

// Search lists the nodes that match a text, and jumps to the node that the user selects.
export function Search({ model, jump }: { model: Model; jump: (path: string) => void }) {
	const text = useSignal(""), open = useSignal(false), at = useSignal(0), field = useRef<HTMLInputElement>(null)
	const want = text.value.trim()
	const found = useMemo(() => (want ? matching(model.graphs, want) : undefined), [want, model.structure.value, model.explored.value])
	const list = open.value && found ? found.list : []
	useEffect(() => { if (want) void model.explore() }, [!!want])
	useEffect(() => { if (found) announced.value = texts.matches(found.total) }, [found])
	const choose = (m: Match) => {
		open.value = false
		text.value = ""
		field.current!.closest(".graph")!.querySelector<HTMLElement>("canvas.picture")!.focus()
		jump(m.path)
	}
	const move = (by: number) => {
		open.value = true
		if (found?.list.length) at.value = (at.value + by + found.list.length) % found.list.length
		document.getElementById(`found-${at.value}`)?.scrollIntoView({ block: "nearest" })
	}
	return (
		<div class="find">
			<input
				ref={field} type="text" id="search" role="combobox" autocomplete="off" aria-label={texts.searchNodes} placeholder={texts.searchNodes} value={text.value}
				aria-autocomplete="list" aria-expanded={list.length > 0} aria-controls="found" aria-activedescendant={list.length ? `found-${at.value}` : undefined}
				onInput={e => { text.value = e.currentTarget.value; open.value = true; at.value = 0 }}
				onFocus={() => (open.value = true)}
				onBlur={() => (open.value = false)}
				onKeyDown={e => {
					if (e.key === "ArrowDown" || e.key === "ArrowUp") move(e.key === "ArrowDown" ? 1 : -1)
					else if (e.key === "Enter" && found?.list.length) choose(found.list[at.value] ?? found.list[0])
					else if (e.key === "Escape") field.current!.blur()
					else return
					e.preventDefault()
					e.stopPropagation()
				}}
			/>
			{want && <span class="meta">{texts.matches(found!.total)}</span>}
			<div class="found" hidden={!list.length}>
				<ul id="found" role="listbox" aria-label={texts.searchNodes}>
					{list.map((m, i) => (
						<li key={m.path} id={`found-${i}`} role="option" aria-selected={i === at.value} onPointerDown={e => e.preventDefault()} onClick={() => choose(m)}>
							<Plain text={m.label} />{m.label !== m.path && <> <span class="meta"><Plain text={m.path} /></span></>}
						</li>
					))}
				</ul>
				{found && found.total > list.length && <p class="meta">{texts.andMore(found.total - list.length)}</p>}
			</div>
		</div>
	)
}
