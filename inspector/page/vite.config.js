import { readFileSync } from "node:fs"
import { defineConfig } from "vite"

// Every package whose code is in the bundle, with its licence.
const bundled = ["preact", "@preact/signals", "@preact/signals-core"]

const notices = {
	name: "notices",
	generateBundle() {
		const texts = bundled.map(name => {
			const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"))
			return `${name} ${version}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`
		})
		this.emitFile({
			type: "asset",
			fileName: "assets/notices.txt",
			source: "The page of the inspector contains code of these packages.\n\n" + texts.join("\n----\n\n"),
		})
	},
}

export default defineConfig({
	base: "./",
	plugins: [notices],
	oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
	build: { target: "esnext", modulePreload: false, assetsInlineLimit: 0, emptyOutDir: true, reportCompressedSize: true },
	worker: { format: "es", rolldownOptions: { output: { comments: false } } },
})
