import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { theme, type Picture } from "./draw"
import type { Facts } from "./facts"
import type { Model } from "./model"
import { pagesOf, pngOf, pngScale, svgOf } from "./paper"
import { texts } from "./texts"
import { Menu } from "./ui"
import { visible } from "./visible"

// Export saves the whole picture as a file, and prints it.
export function Export({ model, picture, facts }: { model: Model; picture?: Picture; facts: Facts }) {
	const note = useSignal(""), sheets = useRef<HTMLDivElement>(null), shown = useRef(picture)
	shown.current = picture
	useEffect(() => {
		const fill = () => shown.current && sheets.current!.replaceChildren(...sheetsOf(shown.current, facts, [model.row.peek()?.workflow, model.id].filter(Boolean).join(" · ")))
		const clear = () => sheets.current!.replaceChildren()
		addEventListener("beforeprint", fill)
		addEventListener("afterprint", clear)
		return () => { removeEventListener("beforeprint", fill); removeEventListener("afterprint", clear) }
	}, [facts])
	const save = (ending: string, blob: Blob) => {
		const link = document.createElement("a")
		link.href = URL.createObjectURL(blob)
		link.download = `${model.id.replace(/[^\w.-]+/g, "_").slice(0, 80)}.${ending}`
		link.click()
		setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
	}
	const saveSVG = () => save("svg", new Blob([svgOf(picture!, facts, theme())], { type: "image/svg+xml" }))
	const savePNG = async () => {
		try {
			save("png", await pngOf(picture!, facts, theme()))
			const scale = pngScale(picture!)
			note.value = scale < 1 ? texts.pngReduced(scale) : ""
		} catch {
			note.value = texts.pngFailed
		}
	}
	return (
		<>
			<Menu label={texts.export} kind="right">
				<button disabled={!picture} onClick={saveSVG}>{texts.saveSVG}</button>
				<button disabled={!picture} onClick={savePNG}>{texts.savePNG}</button>
				<button disabled={!picture} onClick={() => print()}>{texts.print}</button>
				<p class="meta" role="status">{note.value}</p>
			</Menu>
			<div ref={sheets} class="sheets" />
		</>
	)
}

// sheetsOf returns the pages of a picture, in the colours for paper, without empty pages.
function sheetsOf(p: Picture, facts: Facts, name: string): HTMLElement[] {
	const boxes = p.items.filter(i => !i.open), t = theme(true)
	const parts = pagesOf(p, { w: Math.max(0, ...boxes.map(b => b.w)), h: Math.max(0, ...boxes.map(b => b.h)) }).filter(a =>
		p.items.some(i => i.x < a.x + a.w && i.x + i.w > a.x && i.y < a.y + a.h && i.y + i.h > a.y))
	return parts.map((part, i) => {
		const sheet = document.createElement("section"), caption = document.createElement("p")
		sheet.className = "sheet"
		caption.textContent = `${visible(name)} · ${texts.page(i + 1, parts.length)}${parts.length > 1 ? ` · ${texts.pagePlace(part.row, part.rows, part.column, part.columns)}` : ""}`
		sheet.append(caption, document.importNode(new DOMParser().parseFromString(svgOf(p, facts, t, part), "image/svg+xml").documentElement, true))
		return sheet
	})
}
