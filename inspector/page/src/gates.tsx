import { useSignal, type Signal } from "@preact/signals"
import { useEffect, useId, useLayoutEffect, useMemo, useRef } from "preact/hooks"
import { get, post, Refused, type Answered, type Done, type Gate, type Inbox, type UndoTask } from "./api"
import { asked, countTasks, info, may, mayDo, message, said, undoModes, verbNames } from "./actions"
import { answerOf, fieldsOf, type Field } from "./form"
import { everySoOften, generation, later, now, onRows } from "./live"
import { openRun } from "./route"
import { texts } from "./texts"
import { visible } from "./visible"
import { announced, Badge, duration, Empty, Plain, Problem, Shown, Time, UndoneTag } from "./ui"

// Outcome is what became of an answer that was sent from this page: it was taken, or another answer was first.
export interface Outcome { value: unknown; at: number; requested: boolean; first?: Answered }

const keyOf = (g: Gate) => [g.run, g.path, g.since].join("\n")

// settled returns the gates to show when the list is read again: in the order in which they were shown, so that no card moves under the pointer,
// with the gates that were answered on this page, and then the new gates.
export function settled(shown: Gate[], read: Gate[], answered: (key: string) => boolean): Gate[] {
	const fresh = new Map(read.map(g => [keyOf(g), g])), before = new Set(shown.map(keyOf))
	return [...shown.filter(g => fresh.has(keyOf(g)) || answered(keyOf(g))).map(g => fresh.get(keyOf(g)) ?? g), ...read.filter(g => !before.has(keyOf(g)))]
}

export function Gates() {
	const gates = useSignal<Gate[] | undefined>(undefined), problem = useSignal<Error | undefined>(undefined), total = useSignal(0)
	const outcomes = useSignal<Record<string, Outcome & { height: number }>>({})
	const tasks = useSignal<{ list: UndoTask[]; total: number; note?: string }>({ list: [], total: 0 })
	const load = () => get<Inbox>("gates").then(r => {
		gates.value = settled(gates.peek() ?? [], r.gates, key => !!outcomes.peek()[key])
		total.value = r.total
		tasks.value = { list: r.compensations, total: r.failed, note: r.note }
		problem.value = undefined
	}, err => (problem.value = err))
	useEffect(() => { void load() }, [generation.value])
	useEffect(() => {
		const loading = later(500, load), off = onRows(loading.ask)
		return () => { off(); loading.stop() }
	}, [])
	useEffect(() => (info.value.stored ? everySoOften(load) : undefined), [info.value.stored])
	if (problem.value && !gates.value) return <Problem error={problem.value} again={load} />
	if (!gates.value) return <p class="loading">{texts.loading}</p>
	const waiting = gates.value.filter(g => !outcomes.value[keyOf(g)]).length
	return (
		<main class="page narrow" id="main">
			<h1>{texts.gates}</h1>
			{!gates.value.length && !tasks.value.list.length && <Empty title={texts.noGates}><p>{texts.noGatesHint}</p></Empty>}
			<ul class="cards">
				{gates.value.map(g => {
					const key = keyOf(g), outcome = outcomes.value[key]
					return outcome
						? <AnsweredCard key={key} gate={g} outcome={outcome} dismiss={() => (gates.value = gates.peek()!.filter(other => keyOf(other) !== key))} />
						: <GateCard key={key} gate={g} done={outcome => {
							outcomes.value = { ...outcomes.peek(), [key]: outcome }
							void load()
						}} />
				})}
			</ul>
			{total.value > waiting && <p class="meta">{texts.of(waiting, total.value)}</p>}
			{tasks.value.note && <p class="meta">{tasks.value.note}</p>}
			{tasks.value.list.length > 0 && <h2>{texts.failedRuns}</h2>}
			<ul class="cards">{tasks.value.list.map(t => <Task key={t.run} t={t} />)}</ul>
			{tasks.value.total > tasks.value.list.length && <p class="meta">{texts.of(tasks.value.list.length, tasks.value.total)}</p>}
		</main>
	)
}

function GateCard({ gate, done }: { gate: Gate; done: (outcome: Outcome & { height: number }) => void }) {
	const card = useRef<HTMLLIElement>(null)
	return (
		<li class="card" ref={card}>
			<header>
				<Badge status="suspended" quiet />
				<h2><a data-row href={openRun(gate.run, { node: gate.path })}><Plain text={gate.label || gate.path} /></a></h2>
				<span class="meta"><Plain text={gate.workflow} /> · <Plain text={gate.run} /></span>{gate.stored && <span class="tag">{texts.stored}</span>}
			</header>
			<p class="meta">
				{gate.label && <span><Plain text={gate.path} /></span>}
				{gate.since && <span>{texts.since} <Time at={gate.since} /> ({duration(now.value - Date.parse(gate.since))})</span>}
			</p>
			<Question gate={gate} done={outcome => done({ ...outcome, height: card.current?.getBoundingClientRect().height ?? 0 })} />
		</li>
	)
}

// AnsweredCard says in the place of a gate what became of the answer, until it is dismissed or the view is left. It has the height of the gate's
// card, so that the cards below it stay where they are, and takes over the focus that the card had.
function AnsweredCard({ gate, outcome, dismiss }: { gate: Gate; outcome: Outcome & { height: number }; dismiss: () => void }) {
	const card = useRef<HTMLLIElement>(null)
	useLayoutEffect(() => {
		card.current!.style.minHeight = `${outcome.height}px`
		if (document.activeElement === document.body) card.current!.focus({ preventScroll: true })
	}, [])
	return (
		<li class="card done" ref={card} tabIndex={-1}>
			{outcome.first ? <First answer={outcome.first} /> : <p class="notice">{texts.answered} <strong><Plain text={answerText(outcome.value)} /></strong> {texts.at} <Time at={new Date(outcome.at).toISOString()} />{outcome.requested && <>, {texts.requestWaits}</>}</p>}
			<p class="meta"><span><Plain text={gate.label || gate.path} /></span> <span><Plain text={gate.workflow} /> · <Plain text={gate.run} /></span></p>
			<p class="buttons"><a class="button" data-row href={openRun(gate.run, { node: gate.path })}>{texts.openRun}</a><button onClick={dismiss}>{texts.dismiss}</button></p>
		</li>
	)
}

// First says who has answered a gate before the answer of this page.
const First = ({ answer }: { answer: Answered }) => <p class="notice" role="alert"><Plain text={answer.by || texts.somebody} /> {texts.alreadyAnswered}: <AnsweredText answer={answer} /></p>

// Task is a run with a failed compensation.
function Task({ t }: { t: UndoTask }) {
	return (
		<li class="card">
			<header>
				<Badge status={t.status} quiet />
				<h3><a data-row href={openRun(t.run)}><Plain text={t.run} /></a></h3>
				<span class="meta"><Plain text={t.workflow} /></span><UndoneTag state="failed" />
			</header>
			{t.ended && <p class="meta">{texts.ended} <Time at={t.ended} /></p>}
			<p class="buttons">{undoModes.filter(mayDo).map(verb => <button key={verb} onClick={() => (asked.value = { verb, run: t.run })}>{verbNames[verb]}</button>)}</p>
		</li>
	)
}

// Question shows what a person needs to answer a gate: the values on which to decide, what happens at the deadline, where the answers lead, and
// the form of the answer.
export function Question({ gate, done }: { gate: Gate; done: (outcome: Outcome) => void }) {
	return (
		<>
			{gate.info && <Shown untyped value={gate.info} run={gate.run} path={gate.path} of="info" />}
			{gate.bases && <Bases gate={gate} />}
			<Deadline gate={gate} />
			<Leads gate={gate} />
			<AnswerForm key={keyOf(gate)} gate={gate} done={done} />
		</>
	)
}

// Deadline says until when a gate waits, and what happens then.
function Deadline({ gate }: { gate: Gate }) {
	if (!gate.deadline) return <p class="meta">{texts.noDeadline}</p>
	const left = Date.parse(gate.deadline) - now.value
	return <p class="meta deadline"><span>{texts.deadline} <Time at={gate.deadline} /> ({left > 0 ? texts.timeUntil(duration(left)) : texts.deadlinePassed}){gate.on_deadline && <>: {texts.onDeadline[gate.on_deadline]}</>}</span></p>
}

// Leads lists the nodes to which the answers lead.
function Leads({ gate }: { gate: Gate }) {
	if (!gate.leads?.length) return null
	return (
		<ul class="leads" aria-label={texts.leads}>{gate.leads.map((l, i) => (
			<li key={i}>
				{l.by && <><NodeLink run={gate.run} path={l.by} /> {texts.thenDecides}{" "}</>}
				{l.on ? texts.leadOn[l.on] : l.answer ? <strong><Plain text={l.answer} /></strong> : texts.anyAnswer}{" "}
				{l.to?.length ? <>{texts.leadsTo} {l.to.map((path, k) => <span key={path}>{k > 0 && ", "}<NodeLink run={gate.run} path={path} /></span>)}{l.more ? <> {texts.andMore(l.more)}</> : null}</> : l.skips?.length ? <>{texts.skips} {l.skips.map((path, k) => <span key={path}>{k > 0 && ", "}<NodeLink run={gate.run} path={path} /></span>)}</> : texts.leadsNowhere}
			</li>
		))}</ul>
	)
}

const NodeLink = ({ run, path }: { run: string; path: string }) => <a href={openRun(run, { node: path })}><Plain text={path} /></a>

// Bases are the values on which a person decides.
function Bases({ gate }: { gate: Gate }) {
	return (
		<dl class="bases">{gate.bases!.map(b => (
			<div key={b.name}>
				<dt>{b.path ? <a href={openRun(gate.run, { node: b.path })}><Plain text={b.name} /></a> : <Plain text={b.name} />}</dt>
				<dd><Shown untyped value={b.value} run={gate.run} path={b.path ?? gate.path} of={b.path ? "output" : "input"} name={b.path ? undefined : b.name} /></dd>
			</div>
		))}</dl>
	)
}

// AnswerForm shows the choices of a gate as buttons, the fields of the gate's schema, or a field for any answer. An answer is sent after a second
// press: the form first shows the answer and asks.
function AnswerForm({ gate, done }: { gate: Gate; done: (outcome: Outcome) => void }) {
	const name = useId() // with each button, a screen reader reads the name of the gate
	const schema = JSON.stringify(gate.schema), fields = useMemo(() => (schema ? fieldsOf(JSON.parse(schema)) : undefined), [schema])
	const filled = useSignal<string[]>(fields?.map(f => f.start) ?? [])
	const comment = useSignal(""), text = useSignal("true"), busy = useSignal(false), problem = useSignal(""), first = useSignal<Answered | undefined>(undefined)
	const chosen = useSignal<{ value: unknown } | undefined>(undefined), form = useRef<HTMLFormElement>(null), pressed = useRef(-1) // pressed is the number of the last pressed button
	useLayoutEffect(() => { // before the next key
		if (!chosen.value) form.current?.querySelectorAll("button")[pressed.current]?.focus()
	}, [chosen.value])
	if (!may("signal")) return null
	const choose = (value: unknown, button = 0) => {
		problem.value = ""
		pressed.current = button
		chosen.value = { value }
	}
	const send = async (value: unknown) => {
		busy.value = true
		try {
			const reply = await post<Done>("signal", { run: gate.run, path: gate.path }, { value, comment: comment.value })
			announced.value = `${texts.answered} ${visible(answerText(value))}: ${said(reply)}`
			countTasks()
			done({ value, at: Date.now(), requested: reply.status === "requested" })
		} catch (err) {
			problem.value = message(err)
			if (err instanceof Refused && err.fault.answered) {
				first.value = err.fault.answered
				done({ value, at: Date.now(), requested: false, first: err.fault.answered })
			}
			chosen.value = undefined
		}
		busy.value = false
	}
	if (first.value) return <First answer={first.value} />
	if (chosen.value) return <Sending gate={gate} value={chosen.value.value} comment={comment.value} busy={busy.value} send={send} back={() => (chosen.value = undefined)} />
	return (
		<form class="answer" ref={form} onSubmit={e => {
			e.preventDefault()
			if (gate.choices) return
			let answer: unknown
			try {
				answer = fields ? answerOf(fields, filled.value) : JSON.parse(text.value)
			} catch (err) {
				problem.value = fields ? texts.noValue((err as Error).message) : texts.badJSON
				return
			}
			choose(answer)
		}}>
			<span class="hidden" id={name}><Plain text={texts.answerTo(gate.label || gate.path)} /> <Plain text={gate.run} /></span>
			<input aria-label={texts.comment} aria-describedby={name} placeholder={texts.comment} value={comment.value} maxLength={500} onInput={e => (comment.value = e.currentTarget.value)} />
			{gate.choices
				? gate.choices.map((choice, i) => <button type="button" key={choice} aria-describedby={name} onClick={() => choose(choice, i)}><Plain text={choice} /></button>)
				: fields ? <><FormFields fields={fields} filled={filled} /><button class="primary" aria-describedby={name}>{texts.send}</button></>
				: <><input aria-label={texts.answer} aria-describedby={name} title={texts.answerHint} value={text.value} onInput={e => (text.value = e.currentTarget.value)} /><button class="primary" aria-describedby={name}>{texts.send}</button></>}
			{problem.value && <p class="problem" role="alert"><Plain text={problem.value} /></p>}
		</form>
	)
}

const longestOnButton = 24

// Sending asks whether an answer is to be sent. The focus is on the question, so that a screen reader reads it, and so that a key that is held does
// not press a button.
function Sending({ gate, value, comment, busy, send, back }: { gate: Gate; value: unknown; comment: string; busy: boolean; send: (value: unknown) => void; back: () => void }) {
	const id = useId(), question = useRef<HTMLParagraphElement>(null)
	useLayoutEffect(() => question.current?.focus(), [])
	const text = answerText(value)
	return (
		<div class="answer sending" role="group" aria-labelledby={id} onKeyDown={e => {
			if (e.key !== "Escape") return
			e.preventDefault()
			back()
		}}>
			<p id={id} ref={question} tabIndex={-1}>{texts.answerWith} <strong><Plain text={text} /></strong> {texts.toGate} <strong><Plain text={gate.label || gate.path} /></strong> {texts.ofRun} <span class="mono"><Plain text={gate.run} /></span>?{comment && <q><Plain text={comment} /></q>}</p>
			<button class="primary" disabled={busy} aria-describedby={id} onClick={e => e.detail < 2 && send(value) /* not the second click of a double click on a choice */}>{texts.answerWith}{text.length <= longestOnButton && <> <Plain text={text} /></>}</button>
			<button disabled={busy} onClick={back}>{texts.back}</button>
		</div>
	)
}

const answerText = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value))

function FormFields({ fields, filled }: { fields: Field[]; filled: Signal<string[]> }) {
	const id = useId()
	return <>{fields.map((f, i) => {
		const title = f.title || texts.answer, set = (text: string) => (filled.value = filled.value.map((old, k) => (k === i ? text : old)))
		const own = { "aria-describedby": f.hint ? `${id}-${i}` : undefined, required: f.required && f.type !== "flag", value: filled.value[i], onInput: (e: { currentTarget: { value: string } }) => set(e.currentTarget.value) }
		return (
			<label class="field" key={f.name ?? ""}>
				<span>{f.type === "flag" && <input type="checkbox" aria-describedby={own["aria-describedby"]} checked={filled.value[i] === "true"} onInput={e => set(String(e.currentTarget.checked))} />}<Plain text={title} />{f.required || f.type === "flag" ? "" : ` (${texts.optional})`}</span>
				{f.type === "text" && <input {...own} />}
				{f.type === "number" && <input inputMode="decimal" {...own} />}
				{f.type === "json" && <input placeholder={texts.answerHint} {...own} />}
				{f.type === "choice" && <select {...own}><option value="" />{f.choices.map((c, k) => <option key={k} value={String(k)}>{visible(typeof c === "string" ? c : JSON.stringify(c))}</option>)}</select>}
				{f.hint && <span class="hint" id={`${id}-${i}`}><Plain text={f.hint} /></span>}
			</label>
		)
	})}</>
}

export function AnsweredText({ answer }: { answer: Answered }) {
	const value = answer.value?.json
	return <span>{value !== undefined && <strong><Plain text={answerText(value)} /></strong>}{answer.comment && <q><Plain text={answer.comment} /></q>}</span>
}
