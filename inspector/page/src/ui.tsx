import type { ComponentChildren } from "preact"
import { useEffect, useLayoutEffect, useRef } from "preact/hooks"
import { signal } from "@preact/signals"
import { Refused, url, type Usage, type Value } from "./api"
import { shape } from "./draw"
import { badgeLetter, hollow, inBar, otherEnds, totalOf, type Counts } from "./status"
import { texts } from "./texts"
import { Trace } from "./trace"
import { visible, visibleLines } from "./visible"

// Components that several views share.

const outlines = new Map<string, string>()

function outline(status: string): string {
	let d = outlines.get(status)
	if (d === undefined) {
		const o = new Trace()
		shape(o, status, 11, 11, 7.5)
		outlines.set(status, (d = o.d))
	}
	return d
}

// Plain shows a text of a run on one line. The text can neither change the direction of the text around it nor hide
// its own content.
export function Plain({ text }: { text?: string }) {
	return <bdi>{visible(text ?? "")}</bdi>
}

export function Badge({ status, quiet, text = status }: { status: string; quiet?: boolean; text?: string }) {
	return (
		<span class={`badge s-${status}`}>
			<svg viewBox="0 0 22 22" width="20" height="20" aria-hidden="true">
				<path d={outline(status)} class={hollow.has(status) ? "hollow" : "full"} />
				<text x="11" y={status === "retrying" ? 14.9 : 14.2} class={hollow.has(status) ? "on-hollow" : "on-full"}>{badgeLetter[status]}</text>
			</svg>
			{quiet ? <span class="hidden">{text}</span> : text}
		</span>
	)
}

// RunBadge shows the status of a run. If the process of a run has died, the badge does not say "running", although the store
// does.
export function RunBadge({ status, gone }: { status: string; gone?: string }) {
	return gone ? <span class="gone"><Badge status="gone" text={texts.gone} /> <span class="meta">{texts.since} <Time at={gone} /></span></span> : <Badge status={status} />
}

// UndoneTag shows the progress of undoing a node or a run.
export function UndoneTag({ state }: { state?: string }) {
	return state ? <span class={state === "failed" ? "tag lost" : "tag"}>{texts.undone[state]}</span> : null
}

// Used shows what a run has used, sorted by name.
export function Used({ usage, most = 100 }: { usage?: Usage; most?: number }) {
	const names = Object.keys(usage ?? {}).sort()
	if (!names.length) return null
	return (
		<span class="used" role="note" aria-label={texts.usage}>
			{names.slice(0, most).map(name => <span key={name}><span class="number">{amount(usage![name]!)}</span> <Plain text={name} /></span>)}
			{names.length > most && <span class="meta">{texts.andMore(names.length - most)}</span>}
		</span>
	)
}

// amount formats a number, for example of tokens or of cents.
export const amount = (n: number): string => (n !== 0 && (n >= 1e15 || n < 1e-4) ? n.toExponential(3) : n.toLocaleString("en", { maximumFractionDigits: n < 1 ? 4 : 2 }))

export function Progress({ counts, total, label }: { counts: Counts; total: number; label: string }) {
	let x = 0
	return (
		<svg class="progress" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={label}>
			<rect class="track" width="100" height="6" />
			{inBar.map(s => {
				const w = total ? ((counts[s] ?? 0) / total) * 100 : 0
				const part = w ? <rect key={s} class={`f-${s}`} x={x} width={w} height="6" /> : null
				x += w
				return part
			})}
		</svg>
	)
}

// tally says how many of all nodes have completed, and how many have ended otherwise.
export const tally = (counts: Counts, total = totalOf(counts)) =>
	[texts.completedOf(counts.completed ?? 0, total), ...otherEnds.filter(s => counts[s]).map(s => `${counts[s]!.toLocaleString("en")} ${s}`)].join(", ")

// InsideProgress shows the progress of the nodes in a composite.
export function InsideProgress({ counts }: { counts?: Counts }) {
	if (!counts) return null
	return <span class="inside"><Progress counts={counts} total={totalOf(counts)} label={texts.insideOf(tally(counts))} /> <span class="meta">{tally(counts)}</span></span>
}

// between returns the milliseconds between two times. Times in responses have nanoseconds.
export function between(start: string, end: string): number {
	const below = (at: string) => Number("0." + (/\.\d{3}(\d+)/.exec(at)?.[1] ?? "0"))
	return Date.parse(end) - Date.parse(start) + below(end) - below(start)
}

// duration formats a duration. Below a millisecond the digits only show how busy the machine was, except on a time axis.
export function duration(ms: number, exact = false): string {
	if (!Number.isFinite(ms) || ms < 0) return ""
	if (ms < 1) return ms && exact ? `${Math.max(1, Math.round(ms * 1000))} µs` : "< 1 ms"
	if (ms < 1000) return `${Math.round(ms)} ms`
	const s = ms / 1000
	if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`
	const minutes = Math.floor(s / 60)
	if (minutes < 60) return `${minutes} min ${Math.floor(s % 60)} s`
	const hours = Math.floor(minutes / 60)
	return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`
}

// roughly formats an expected duration.
export function roughly(ms: number): string {
	const s = Math.max(1, Math.ceil(ms / 1000)), minutes = Math.round(s / 60)
	return s < 60 ? `${s} s` : minutes < 60 ? `${minutes} min` : duration(minutes * 60_000)
}

// inUTC says whether times are shown in UTC instead of the browser's zone. The browser stores the choice.
export const inUTC = signal(remembersUTC())

function remembersUTC(): boolean {
	try { return localStorage.getItem("kahn-utc") === "1" } catch { return false } // a browser may refuse to store anything
}

export function switchUTC(): void {
	inUTC.value = !inUTC.peek()
	try { localStorage.setItem("kahn-utc", inUTC.peek() ? "1" : "0") } catch { /* until the page is closed */ }
}

// zoneOf returns the name of the zone at a time, such as CET or GMT+2.
export function zoneOf(date: Date): string {
	return new Intl.DateTimeFormat("en-GB", { timeZone: inUTC.value ? "UTC" : undefined, timeZoneName: "short" }).formatToParts(date).find(p => p.type === "timeZoneName")?.value ?? "UTC"
}

// clock formats a time: with the date unless it is today, and with milliseconds if it is exact.
export function clock(date: Date, exact = false): string {
	const two = (n: number) => String(n).padStart(2, "0")
	const day = (d: Date) => inUTC.value ? `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}` : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`
	const time = (inUTC.value ? [date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds()] : [date.getHours(), date.getMinutes(), date.getSeconds()]).map(two).join(":")
	return (day(date) === day(new Date()) ? "" : day(date) + " ") + time + (exact ? "." + String(date.getMilliseconds()).padStart(3, "0") : "")
}

export function Time({ at, exact }: { at?: string; exact?: boolean }) {
	if (!at) return null
	const date = new Date(at)
	return <time dateTime={at} title={`${clock(date, true)} ${zoneOf(date)}`}>{clock(date, exact)}</time>
}

// ZoneSwitch names the zone of all times, and changes it.
export function ZoneSwitch() {
	const zone = zoneOf(new Date())
	return <button class="zone" title={inUTC.value ? texts.timesToLocal : texts.timesToUTC} aria-label={`${texts.timesIn(zone)}. ${inUTC.value ? texts.timesToLocal : texts.timesToUTC}`} onClick={switchUTC}>{zone}</button>
}

export function bytes(n: number): string {
	return n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`
}

// valueText returns a value as text, with line breaks.
export const valueText = (value: Value) => value.json !== undefined ? (typeof value.json === "string" ? value.json : JSON.stringify(value.json, null, 2)) : value.text ?? ""

// Shown shows a value. A person who answers a gate does not see the value's Go type.
export function Shown({ value, run, path, of, name, untyped }: { value: Value; run: string; path: string; of: string; name?: string; untyped?: boolean }) {
	return (
		<div class="value">
			<pre tabIndex={0} dir="ltr"><bdi>{visibleLines(valueText(value))}</bdi></pre>
			<p class="meta">
				{!untyped && <span><Plain text={value.type} /></span>} <span>{bytes(value.bytes)}</span>
				{value.truncated && <span>{texts.truncated(bytes(value.bytes))}</span>}{" "}
				{value.truncated && <a href={url("value", { run, path, of, name })} download>{texts.download}</a>}
			</p>
		</div>
	)
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
	return <div class="empty"><p class="empty-title">{title}</p>{children}</div>
}

export function Problem({ error, again }: { error: Error; again?: () => void }) {
	const refused = error instanceof Refused ? error : undefined
	const message = refused?.status === 404 ? texts.unknownRun : refused?.status === 403 ? texts.refused : refused ? refused.message : texts.offline
	return (
		<div class="empty" role="alert">
			<p class="empty-title"><Plain text={message} /></p>
			{refused?.status === 404 ? <p><a href="#/runs">{texts.backToRuns}</a></p> : again && <p><button onClick={again}>{texts.retry}</button></p>}
		</div>
	)
}

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
	const ref = useRef<HTMLDialogElement>(null)
	useLayoutEffect(() => { // before the next key
		const before = document.activeElement as HTMLElement | null, own = ref.current!
		own.showModal()
		return () => {
			own.close() // as long as the dialog is open, nothing outside it can have the focus
			before?.focus?.()
		}
	}, [])
	return (
		<dialog ref={ref} aria-labelledby="dialog-title" onClose={close} onCancel={close} onClick={e => e.target === ref.current && close()}>
			<div class="dialog">
				<header><h2 id="dialog-title">{title}</h2><button class="quiet" aria-label={texts.close} onClick={close}>×</button></header>
				{children}
			</div>
		</dialog>
	)
}

// Menu is a button that opens a list of controls. Escape closes the list and moves the focus to the button; a click or the focus outside closes
// the list, too.
export function Menu({ label, kind = "", children }: { label: ComponentChildren; kind?: string; children: ComponentChildren }) {
	const ref = useRef<HTMLDetailsElement>(null)
	useEffect(() => {
		const menu = ref.current!
		const leave = (e: Event) => { if (!menu.contains(e.target as Node)) menu.open = false }
		const escape = (e: KeyboardEvent) => {
			if (e.key !== "Escape" || !menu.open || document.querySelector("dialog[open]")) return
			e.preventDefault()
			menu.open = false
			menu.querySelector("summary")!.focus()
		}
		addEventListener("keydown", escape, true) // captures the event, so that shortcuts see it as used
		addEventListener("pointerdown", leave)
		addEventListener("focusin", leave)
		return () => { removeEventListener("keydown", escape, true); removeEventListener("pointerdown", leave); removeEventListener("focusin", leave) }
	}, [])
	return <details ref={ref} class={`menu ${kind}`}><summary class="button">{label}</summary><div>{children}</div></details>
}

// announced is the next text for the screen reader.
export const announced = signal("")

export function Announcer() {
	return <div class="hidden" role="status" aria-live="polite">{announced}</div>
}

const typing = (at: EventTarget | null) =>
	(at instanceof HTMLInputElement && at.type !== "checkbox") || at instanceof HTMLTextAreaElement || at instanceof HTMLSelectElement || !!document.querySelector("dialog[open]")

// shortcut calls a handler for keys that are not typed into a field and that nothing else has used, until the returned function is called. The
// handler reports whether it used the key. Escape counts once however long it is held, since each use closes one thing.
export function shortcut(handler: (e: KeyboardEvent) => boolean): () => void {
	const keys = (e: KeyboardEvent) => {
		if (e.defaultPrevented || (e.key === "Escape" && e.repeat)) return
		if (!typing(e.target) && !e.ctrlKey && !e.metaKey && !e.altKey && handler(e)) e.preventDefault()
	}
	addEventListener("keydown", keys)
	return () => removeEventListener("keydown", keys)
}

// moveRows moves the focus among the links of a table's rows, for the keys j and k.
export function moveRows(by: number): void {
	const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")]
	const at = rows.indexOf(document.activeElement as HTMLElement)
	rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus()
}
