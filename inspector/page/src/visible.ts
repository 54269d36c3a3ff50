// Texts of runs are shown unchanged, except for characters that would change how the text around them is read: control
// characters, marks that reorder a line, and characters without a glyph. Visible signs replace these characters.

const disruptive = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu

function sign(c: string): string {
	const code = c.codePointAt(0)!
	if (code < 0x20) return String.fromCharCode(0x2400 + code)
	return `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`
}

const longest = 300

// visible returns a text for one line, cut if it is long.
export function visible(text: string, most = longest): string {
	const short = text.length > most ? text.slice(0, most).replace(/[\ud800-\udbff]$/, "") + "…" : text
	return short.replace(disruptive, sign)
}

// visibleLines returns a text of several lines, however long.
export function visibleLines(text: string): string {
	return text.replace(disruptive, c => (c === "\n" || c === "\t" ? c : sign(c)))
}
