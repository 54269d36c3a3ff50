import { signal, useSignal } from "@preact/signals"
import { locked, Refused, url } from "./api"
import { texts } from "./texts"
import { Plain } from "./ui"

// A link may end in #token= and the token. Browsers do not send the fragment of an address, so logs of requests do not contain the
// token. The page first removes the token from the address, so that the history does not keep it.

const inAddress = /^#token=(.+)$/

export const refused = signal("")

// unlock sends the token to the service, which responds with a cookie. It reports whether the token was right.
async function unlock(token: string): Promise<boolean> {
	refused.value = ""
	try {
		const response = await fetch(url("session"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) })
		if (response.ok) return true
		const body = await response.json().catch(() => undefined)
		throw new Refused(response.status, body?.error ?? { code: "unreadable", message: `status ${response.status}` })
	} catch (err) {
		refused.value = err instanceof Refused ? (err.status === 401 ? texts.wrongToken : err.message) : texts.offline
		return false
	}
}

// takeToken passes the token in the address, if there is one, to unlock.
export async function takeToken(): Promise<void> {
	const found = inAddress.exec(location.hash)
	if (!found) return
	history.replaceState(null, "", location.pathname + location.search + "#/runs")
	let token = found[1]!
	try { token = decodeURIComponent(token) } catch { /* the token is not encoded */ }
	if (!(await unlock(token))) locked.value = true
}

addEventListener("hashchange", () => { if (inAddress.test(location.hash)) void takeToken().then(() => location.reload()) })

// TokenForm asks for the token.
export function TokenForm() {
	const token = useSignal(""), busy = useSignal(false)
	const submit = async (e: Event) => {
		e.preventDefault()
		busy.value = true
		if (await unlock(token.value.trim())) location.reload()
		else busy.value = false
	}
	return (
		<main class="page narrow" id="main">
			<form class="token" onSubmit={submit}>
				<h1>{texts.tokenTitle}</h1>
				<p>{texts.tokenHint}</p>
				<label class="field">{texts.token}<input type="password" autocomplete="off" required value={token.value} onInput={e => (token.value = e.currentTarget.value)} /></label>
				{refused.value && <p class="problem" role="alert"><Plain text={refused.value} /></p>}
				<footer><button type="submit" class="primary" disabled={busy.value}>{texts.open}</button></footer>
			</form>
		</main>
	)
}
