import { signal, useSignal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { get, post, Refused, type Action, type Done, type Inbox, type Info, type Preview, type RunVerb, type UndoMode } from "./api"
import { generation } from "./live"
import { openRun } from "./route"
import { texts } from "./texts"
import { announced, clock, Dialog, Plain, valueText } from "./ui"
import { visible, visibleLines } from "./visible"

// The operators' actions. Each action asks for confirmation, and says what will happen.

export const info = signal<Info>({ actions: [], workflows: [], known: [], stored: false, counts: {} })

// tasks is what waits for a person: gates, failed compensations, and stored runs.
export const tasks = signal<Pick<Inbox, "total" | "failed" | "stored_gone" | "stored_waiting">>({ total: 0, failed: 0 })

export const countTasks = () => void get<Inbox>("gates", { limit: 1 }).then(g => (tasks.value = g), () => undefined)

export const may = (a: Action) => info.value.actions.includes(a)

export type Verb = Exclude<RunVerb, "compensate"> | "retry" | "node/cancel" | UndoMode

// undoModes are the actions on failed compensations.
export const undoModes: UndoMode[] = ["repeat", "by_hand"]

const isUndoMode = (verb: Verb): verb is UndoMode => verb === "repeat" || verb === "by_hand"

// needed maps each action to its permission.
const needed: Record<Verb, Action> = { cancel: "cancel", abort: "cancel", leave: "cancel", redrive: "redrive", fork: "redrive", retry: "redrive", "node/cancel": "cancel", repeat: "redrive", by_hand: "redrive" }

export const mayDo = (verb: Verb) => may(needed[verb])

// asked is the action that waits for the operator's confirmation: an action on the run, on a node or, for a redrive, on chosen nodes.
// label is the text of its buttons, if this is not just the name of the verb. goesOn means that a redrive continues a run that has not
// ended. done is called when the service has accepted the action.
export const asked = signal<{ verb: Verb; run: string; node?: string; nodes?: string[]; label?: string; goesOn?: boolean; done?: () => void } | undefined>(undefined)

export const verbNames: Record<Verb, string> = { cancel: texts.cancel, abort: texts.abort, leave: texts.leave, redrive: texts.redrive, fork: texts.fork, retry: texts.retryNow, "node/cancel": texts.cancelNode, repeat: texts.repeatUndo, by_hand: texts.undoneByHand }

// redriven are the redrives for which this page has asked, by run: when the service took the last one, and how many nodes it runs again.
export const redriven = signal<Record<string, { at: string; total: number }>>({})

export const message = (err: unknown) => (err instanceof Refused ? err.message : texts.offline)

// said returns the text that a screen reader reads after an action was accepted.
export const said = (reply: Partial<Done>) => (reply.status === "requested" ? texts.requested : texts.accepted)

export function Confirm() {
	const now = asked.value
	return now ? <ConfirmDialog key={now.verb + now.run + (now.node ?? "")} {...now} /> : null
}

function ConfirmDialog({ verb, run, node, nodes = node ? [node] : undefined, label = (node && texts.confirmNode[verb]) ?? texts.confirm[verb] ?? verbNames[verb], goesOn, done }: { verb: Verb; run: string; node?: string; nodes?: string[]; label?: string; goesOn?: boolean; done?: () => void }) {
	const undo = isUndoMode(verb) ? verb : undefined
	const previewed = verb === "redrive" || verb === "fork" || !!undo
	const reason = useSignal(""), busy = useSignal(false), problem = useSignal("")
	const again = useSignal<Preview | undefined>(undefined), inputs = useSignal("")
	const despite = useSignal(false) // whether the operator, after reading the server's objection, wants to repeat the handled failures
	useEffect(() => {
		if (previewed) get<Preview>(undo ? "redrive" : verb, { run, node: nodes, compensations: undo }).then(p => (again.value = p), err => (problem.value = message(err)))
	}, [])
	const close = () => (asked.value = undefined)
	const perform = async (e: Event) => {
		e.preventDefault()
		let others: unknown
		try {
			if (inputs.value.trim()) others = JSON.parse(inputs.value)
		} catch {
			problem.value = texts.badJSON
			return
		}
		busy.value = true
		try {
			const path = verb === "retry" ? "node/retry" : undo ? "redrive" : verb
			const body = previewed ? { nodes, reason: reason.value, despite_handlers: despite.value || undefined, compensations: undo, inputs: others } : verb === "cancel" || verb === "abort" ? { reason: reason.value } : {}
			const reply = await post<{ run?: string; at?: string } & Partial<Done>>(path, { run, path: path.startsWith("node/") ? node : undefined }, body)
			announced.value = said(reply)
			if (verb === "redrive" && !goesOn && reply.status === "accepted") {
				const own = { at: reply.at!, total: again.value?.total ?? 0 }
				redriven.value = { ...redriven.value, [run]: own }
				announced.value = texts.redrivenAt(clock(new Date(own.at)), info.value.actor ?? "", own.total)
			}
			generation.value++
			done?.()
			close()
			if (verb === "fork" && reply.run) location.hash = openRun(reply.run)
		} catch (err) {
			problem.value = message(err)
			busy.value = false
		}
	}
	const withReason = verb === "cancel" || verb === "abort" || (previewed && !goesOn) // no event of a run that is continued has a reason
	return (
		<Dialog title={label} close={close}>
			<form onSubmit={perform}>
				<p>{texts.explain[goesOn ? "go_on" : verb]}</p>
				<p class="subject"><Plain text={node ?? run} /></p>
				{again.value && (!goesOn || again.value.total > 0) && (
					<div>
						<p><strong>{undo ? texts.failedUndos(again.value.total) : again.value.total ? texts.againCount(again.value.total) : texts.nothingAgain}</strong></p>
						<ul class="list short">{again.value.nodes.map(path => <li key={path}><Plain text={path} /></li>)}</ul>
						{again.value.total > again.value.nodes.length && <p>{texts.andMore(again.value.total - again.value.nodes.length)}</p>}
					</div>
				)}
				{again.value && !goesOn && <><Among title={texts.askAgain} list={again.value.asks} /><Among title={texts.completedAgain} list={again.value.completed} /></>}
				{again.value?.refused && (
					<div class="problem" role="alert">
						<p><Plain text={again.value.refused} /></p>
						<label><input type="checkbox" checked={despite.value} onChange={e => (despite.value = e.currentTarget.checked)} /> {texts.despite}</label>
					</div>
				)}
				{again.value && (verb === "redrive" || verb === "fork") && !goesOn && <InputsAgain list={again.value.inputs} />}
				{verb === "redrive" && !goesOn && again.value && <p class="meta">{texts.inputsFixed(!!again.value.can_fork)}</p>}
				{verb === "fork" && <label class="field">{texts.otherInputs}<textarea rows={2} value={inputs.value} placeholder={texts.otherInputsHint} onInput={e => (inputs.value = e.currentTarget.value)} /></label>}
				{withReason && <label class="field">{texts.reason}<input value={reason.value} onInput={e => (reason.value = e.currentTarget.value)} placeholder={texts.reasonHint} maxLength={500} /></label>}
				{problem.value && <p class="problem" role="alert"><Plain text={problem.value} /></p>}
				<footer>
					<button type="button" onClick={close}>{texts.keep[verb] ?? texts.keep[""]}</button>
					<button type="submit" class={previewed || verb === "retry" ? "primary" : "danger"} disabled={busy.value || (previewed && !goesOn && (!again.value?.total || (!!again.value.refused && !despite.value)))}>{label}</button>
				</footer>
			</form>
		</Dialog>
	)
}

// Among names the first of the nodes that run again and have something in common.
function Among({ title, list = [] }: { title: string; list?: string[] }) {
	if (!list.length) return null
	return <p class="among">{title} {list.slice(0, shownAmong).map((path, i) => <span key={path}>{i > 0 && ", "}<Plain text={path} /></span>)}{list.length > shownAmong && <> {texts.andMore(list.length - shownAmong)}</>}</p>
}

const shownAmong = 5

// InputsAgain shows the inputs of a run with which nodes run again.
function InputsAgain({ list }: { list: Preview["inputs"] }) {
	if (!list?.length) return null
	return (
		<section class="inputs">
			<h3>{texts.inputsAgain}</h3>
			<dl class="bases">{list.map(i => <div key={i.name}><dt><Plain text={i.name} /></dt><dd class="value"><pre tabIndex={0} dir="ltr"><bdi>{i.value && visibleLines(valueText(i.value))}</bdi></pre></dd></div>)}</dl>
		</section>
	)
}

export const starting = signal(false)

export function StartDialog() {
	return starting.value ? <StartForm /> : null
}

function StartForm() {
	const name = useSignal(info.value.workflows[0] ?? ""), inputs = useSignal(""), problem = useSignal(""), busy = useSignal(false)
	const close = () => (starting.value = false)
	const submit = async (e: Event) => {
		e.preventDefault()
		const body: { inputs?: unknown } = {}
		try {
			if (inputs.value.trim()) body.inputs = JSON.parse(inputs.value)
		} catch {
			problem.value = texts.badJSON
			return
		}
		busy.value = true
		try {
			const { run } = await post<{ run: string }>("start", { workflow: name.value }, body)
			close()
			location.hash = openRun(run)
		} catch (err) {
			problem.value = message(err)
			busy.value = false
		}
	}
	return (
		<Dialog title={texts.startTitle} close={close}>
			<form onSubmit={submit}>
				<label class="field">{texts.workflow}
					<select value={name.value} onChange={e => (name.value = e.currentTarget.value)}>{info.value.workflows.map(w => <option key={w} value={w}>{visible(w)}</option>)}</select>
				</label>
				<label class="field">{texts.inputs}<textarea rows={5} value={inputs.value} placeholder={texts.inputsHint} onInput={e => (inputs.value = e.currentTarget.value)} /></label>
				{problem.value && <p class="problem" role="alert"><Plain text={problem.value} /></p>}
				<footer><button type="button" onClick={close}>{texts.close}</button><button type="submit" class="primary" disabled={busy.value}>{texts.start}</button></footer>
			</form>
		</Dialog>
	)
}
