import type { Posted } from "./api"
import { AnsweredText } from "./gates"
import { texts } from "./texts"
import { Plain, Time } from "./ui"

// Requests lists the requests that a run in another process has not applied yet, or has refused.
export function Requests({ list }: { list?: Posted[] }) {
	if (!list?.length) return null
	return (
		<ul class="requests" aria-label={texts.requests}>{list.map((q, i) => (
			<li key={i} class="notice">
				{texts.requestKind[q.compensations ?? q.kind]} {q.path && <><Plain text={q.path} />{" "}</>}{q.kind === "redrive" ? <Redriving q={q} /> : <AnsweredText answer={q} />} <Plain text={texts.requestedBy(q.by ?? "")} /> <Time at={q.posted} />,{" "}
				{q.status === "waiting" ? texts.requestWaits : <span class="problem">{texts.requestRefused}{q.refused && <>: <Plain text={q.refused} /></>}</span>}
			</li>
		))}</ul>
	)
}

// Redriving says which nodes a redrive names, and why it was requested.
function Redriving({ q }: { q: Posted }) {
	const { nodes } = (q.value?.json ?? {}) as { nodes?: string[] }
	return <>{nodes?.map(path => <span key={path}><Plain text={path} /> </span>)}<AnsweredText answer={{ ...q, value: undefined }} /></>
}
