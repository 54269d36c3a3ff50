// The form of an answer that a JSON Schema describes. The service checks the answer; this file only determines the fields of the form.

export interface Schema { type?: string | string[]; title?: string; description?: string; default?: unknown; enum?: unknown[]; const?: unknown; oneOf?: Schema[]; anyOf?: Schema[]; properties?: Record<string, Schema>; required?: string[]; minimum?: number; maximum?: number; maxLength?: number; [more: string]: unknown }

// Field is one part of the answer: the member with this name or, without a name, the whole answer.
export interface Field { name?: string; title: string; hint: string; type: "text" | "number" | "flag" | "choice" | "json"; required: boolean; start: string; choices: unknown[] }

// fieldsOf returns the fields of a schema. A part that fits no other type of field gets a field for JSON.
export function fieldsOf(schema: unknown): Field[] {
	if (typeof schema !== "object" || schema === null) return [fieldOf(undefined, {}, true)]
	const s = schema as Schema, properties = s.properties
	if (typesOf(s).includes("object") && properties && typeof properties === "object" && Object.keys(properties).length) {
		const required = Array.isArray(s.required) ? s.required : []
		return Object.entries(properties).map(([name, part]) => fieldOf(name, typeof part === "object" && part ? part : {}, required.includes(name)))
	}
	return [fieldOf(undefined, s, true)]
}

const typesOf = (s: Schema) => (Array.isArray(s.type) ? s.type : s.type ? [s.type] : s.properties ? ["object"] : []).filter(t => t !== "null")

function fieldOf(name: string | undefined, s: Schema, required: boolean): Field {
	const types = typesOf(s), choices = choicesOf(s)
	const type = choices.length ? "choice" : types.length !== 1 ? "json" : types[0] === "string" ? "text" : types[0] === "number" || types[0] === "integer" ? "number" : types[0] === "boolean" ? "flag" : "json"
	const start = s.default === undefined ? "" : type === "choice" ? String(choices.findIndex(c => JSON.stringify(c) === JSON.stringify(s.default))) : type === "text" ? String(s.default) : JSON.stringify(s.default)
	return { name, title: typeof s.title === "string" && s.title ? s.title : name ?? "", hint: typeof s.description === "string" ? s.description : "", type, required, start: start === "-1" && type === "choice" ? "" : start, choices }
}

// choicesOf returns the values of an enum, or of alternatives that are all constants.
function choicesOf(s: Schema): unknown[] {
	if (Array.isArray(s.enum)) return s.enum
	if (s.const !== undefined) return [s.const]
	const list = s.oneOf ?? s.anyOf
	return Array.isArray(list) && list.length && list.every(x => x && x.const !== undefined) ? list.map(x => x.const) : []
}

// answerOf makes the answer from the texts of the fields. If a text is not a value of its field, it throws an Error with the title of
// the first such field. An optional field without a text is left out.
export function answerOf(fields: Field[], texts: string[]): unknown {
	const value = (f: Field, text: string): unknown => {
		if (f.type === "text") return text
		if (f.type === "flag") return text === "true"
		if (f.type === "choice" && f.choices[Number(text || "x")] !== undefined) return f.choices[Number(text)]
		const number = Number(text)
		if (f.type === "number" && text.trim() !== "" && Number.isFinite(number)) return number
		try {
			if (f.type === "json") return JSON.parse(text)
		} catch { /* reported below */ }
		throw new Error(f.title)
	}
	if (fields.length === 1 && fields[0].name === undefined) return value(fields[0], texts[0])
	return Object.fromEntries(fields.flatMap((f, i) => (texts[i] === "" && !f.required && f.type !== "flag" ? [] : [[f.name!, value(f, texts[i])]])))
}
