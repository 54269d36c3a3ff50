import { render } from "preact"
import { useEffect } from "preact/hooks"
import { signal } from "@preact/signals"
import "./style.css"
import { takeToken, TokenForm } from "./token"
import { get, locked, reachable, type Info } from "./api"
import { asked, Confirm, countTasks, info, StartDialog, starting, tasks } from "./actions"
import { Gates } from "./gates"
import { connection, everySoOften, generation, keepLive, listTurns, onRows, restrained } from "./live"
import { route } from "./route"
import { RunView } from "./run"
import { RunsView } from "./runs"
import { SchedulesView } from "./schedules"
import { StoredView } from "./stored"
import { texts } from "./texts"
import { Announcer, Dialog, moveRows, shortcut, ZoneSwitch } from "./ui"
import { visible } from "./visible"

const helping = signal(false)

const Locked = () => (locked.value ? <TokenForm /> : <App />)

function App() {
	useEffect(() => {
		const load = () => {
			get<Info>("info").then(i => (info.value = i), () => undefined)
			countTasks()
		}
		const loading = restrained(700, load)
		const recount = onRows(({ counts }) => { // the rows of the list change at once, and the counts beside it with them
			if (counts && JSON.stringify(counts) !== JSON.stringify(info.peek().counts)) info.value = { ...info.peek(), counts }
		})
		const offs = [listTurns.subscribe(loading.ask), generation.subscribe(loading.ask), loading.stop, recount]
		load()
		return () => offs.forEach(off => off())
	}, [])
	useEffect(() => (info.value.stored ? everySoOften(countTasks) : undefined), [info.value.stored])
	useEffect(() => {
		const leaveField = (e: KeyboardEvent) => {
			if (e.key === "Escape" && document.activeElement instanceof HTMLInputElement && !document.querySelector("dialog[open]")) document.activeElement.blur()
		}
		const off = shortcut(e => {
			if (e.key === "/") document.getElementById("search")?.focus()
			else if (e.key === "j") moveRows(1)
			else if (e.key === "k") moveRows(-1)
			else if (e.key === "?") helping.value = true
			else return false
			return true
		})
		addEventListener("keydown", leaveField)
		return () => { off(); removeEventListener("keydown", leaveField) }
	}, [])
	const r = route.value, { total: gates, failed, stored_gone: gone = 0, stored_waiting: asking = 0 } = tasks.value
	useEffect(() => { // a dialog belongs to the address at which it was opened: after Back, no other view is under it
		const dismiss = () => {
			helping.value = starting.value = false
			asked.value = undefined
		}
		addEventListener("hashchange", dismiss)
		return () => removeEventListener("hashchange", dismiss)
	}, [])
	document.title = r.view === "run" ? `${visible(r.node || r.id)} – ${texts.title}` : `${r.view === "gates" ? texts.gates : r.view === "stored" ? texts.stored : r.view === "schedules" ? texts.schedules : texts.runs} – ${texts.title}`
	return (
		<>
			<header class="top">
				<a class="brand" href="#/runs"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><circle cx="5" cy="12" r="3" /><circle cx="19" cy="5" r="3" /><circle cx="19" cy="19" r="3" /><path d="M7.7 10.7 16.3 6.4M7.7 13.3l8.6 4.3" /></svg>{texts.title}</a>
				<nav>
					<a href="#/runs" class={r.view === "runs" || r.view === "run" ? "on" : ""} aria-current={r.view === "runs" ? "page" : undefined}>{texts.runs}</a>
					<a href="#/gates" class={r.view === "gates" ? "on" : ""} aria-current={r.view === "gates" ? "page" : undefined}>{texts.gates}{gates + failed > 0 && <span class="bubble" title={texts.tasks(gates, failed)}>{gates + failed}</span>}</a>
					{info.value.stored && <a href="#/stored" class={r.view === "stored" ? "on" : ""} aria-current={r.view === "stored" ? "page" : undefined}>{texts.stored}{gone + asking > 0 && <span class="bubble" title={texts.storedNeeds(gone, asking)}>{gone + asking}<span class="hidden"> {texts.storedNeeds(gone, asking)}</span></span>}</a>}
					{info.value.schedules && <a href="#/schedules" class={r.view === "schedules" ? "on" : ""} aria-current={r.view === "schedules" ? "page" : undefined}>{texts.schedules}</a>}
				</nav>
				<span class="spring" />
				{(connection.value !== "stream" || !reachable.value) && <span class="connection" role="status">{connection.value === "poll" && reachable.value ? texts.polling : texts.offline}</span>}
				<ZoneSwitch />
				<button class="quiet" aria-label={texts.keys} title={texts.keys} onClick={() => (helping.value = true)}>?</button>
			</header>
			{r.view === "runs" && <RunsView />}
			{r.view === "gates" && <Gates />}
			{r.view === "stored" && <StoredView />}
			{r.view === "schedules" && <SchedulesView />}
			{r.view === "run" && <RunView key={r.id} id={r.id} />}
			<Confirm />
			<StartDialog />
			{helping.value && (
				<Dialog title={texts.keys} close={() => (helping.value = false)}>
					<dl class="keys">{texts.keyList.map(([k, what]) => <div key={k}><dt><kbd>{k}</kbd></dt><dd>{what}</dd></div>)}</dl>
					<p class="meta"><a href="api/v1/openapi.json">openapi.json</a> · <a href="assets/notices.txt">{texts.notices}</a></p>
				</Dialog>
			)}
			<Announcer />
		</>
	)
}

void takeToken().then(() => {
	if (!locked.value) keepLive()
	render(<Locked />, document.getElementById("app")!)
})
