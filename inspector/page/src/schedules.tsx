import { useSignal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { get, post, type Schedule, type ScheduleRun } from "./api"
import { may, message } from "./actions"
import { generation, later, onRows } from "./live"
import { Since } from "./queues"
import { openRun } from "./route"
import { texts } from "./texts"
import { announced, Badge, Empty, Plain, Problem, Time } from "./ui"

// SchedulesView lists the schedules, with their next ticks, their last runs and the operators' actions.
export function SchedulesView() {
	const list = useSignal<Schedule[] | undefined>(undefined), problem = useSignal<Error | undefined>(undefined)
	const load = () => get<{ schedules: Schedule[] }>("schedules").then(r => {
		list.value = r.schedules
		problem.value = undefined
	}, err => (problem.value = err))
	useEffect(() => { void load() }, [generation.value])
	useEffect(() => {
		const loading = later(1000, load)
		const off = onRows(loading.ask)
		const again = setInterval(load, 5_000) // ticks pass, and other processes perform runs
		return () => { off(); loading.stop(); clearInterval(again) }
	}, [])
	return (
		<main class="page" id="main">
			<div class="bar"><h1>{texts.schedules}</h1></div>
			{!list.value && (problem.value ? <Problem error={problem.value} again={load} /> : <p class="loading">{texts.loading}</p>)}
			{list.value?.length === 0 && <Empty title={texts.noSchedules} />}
			{list.value && list.value.length > 0 && (
				<table class="runs schedules">
					<thead><tr><th scope="col">{texts.schedule}</th><th scope="col">{texts.when}</th><th scope="col">{texts.nextTicks}</th><th scope="col">{texts.lastRuns}</th><th scope="col"><span class="hidden">{texts.actionsOf}</span></th></tr></thead>
					<tbody>{list.value.map(s => <ScheduleRow key={s.name} s={s} load={load} />)}</tbody>
				</table>
			)}
		</main>
	)
}

function ScheduleRow({ s, load }: { s: Schedule; load: () => Promise<unknown> }) {
	const busy = useSignal(false), problem = useSignal(""), begun = useSignal("")
	const act = async (path: string) => {
		busy.value = true
		problem.value = ""
		try {
			begun.value = (await post<{ run?: string }>(`schedule/${path}`, { schedule: s.name }, {})).run ?? ""
			announced.value = texts.accepted
		} catch (err) {
			problem.value = message(err)
		}
		await load()
		busy.value = false
	}
	return (
		<tr>
			<td class="name"><Plain text={s.name} />{s.paused && <span class="tag">{texts.paused}</span>}{s.queue && <span class="tag lost" title={texts.unclaimableRuns(s.queue.runs)}>{texts.unclaimable}</span>}{s.queue && <div class="meta"><Since queue={s.queue} /></div>}{s.workflow !== s.name && <div class="meta"><Plain text={s.workflow} /></div>}</td>
			<td><code><Plain text={s.cron ?? texts.every(s.every ?? "")} /></code><div class="meta"><Plain text={s.zone ?? ""} /></div><div class="meta">{texts.missed[s.missed]}{s.overlap === "allow" && `, ${texts.overlaps}`}</div></td>
			<td><ul class="list short">{s.next.map(at => <li key={at}><Time at={at} /></li>)}</ul></td>
			<td><ul class="list short">{s.last.map(r => <LastRun key={r.id} r={r} />)}</ul></td>
			<td>
				{may("schedule") && <button disabled={busy.value} aria-label={texts.runNowOf(s.name)} onClick={() => act("run")}>{texts.runNow}</button>}{" "}
				{may("schedule") && <button disabled={busy.value} aria-label={(s.paused ? texts.resumeOf : texts.pauseOf)(s.name)} onClick={() => act(s.paused ? "resume" : "pause")}>{s.paused ? texts.resume : texts.pause}</button>}
				{begun.value && <p class="meta">{texts.created} <a href={openRun(begun.value)}><Plain text={begun.value} /></a></p>}
				{problem.value && <p class="problem" role="alert"><Plain text={problem.value} /></p>}
			</td>
		</tr>
	)
}

function LastRun({ r }: { r: ScheduleRun }) {
	return (
		<li>
			<a data-row href={openRun(r.id)}><Badge status={r.status} /> <Time at={r.tick} /></a>
			{r.kind && <span class="meta"> <Plain text={r.kind} /></span>}
			{r.left_out && <span class="meta"> {texts.leftOut} <Plain text={r.left_out} /></span>}
		</li>
	)
}
