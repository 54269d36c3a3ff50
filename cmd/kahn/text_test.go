package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScreenText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":                       "plain",
		"tea\x1b[2J\r\nrun completed": `tea\x1b[2J` + "\n    run completed",
		"\x1b]52;c;eA==\a":            `\x1b]52;c;eA==\a`,
	} {
		require.Equal(t, want, screenText(text))
	}
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"runs.db": "runs.db", "each[1]": "'each[1]'", "": "''", "x' or 1=1": `'x'\'' or 1=1'`, "a\nb": "'a\nb'",
	} {
		require.Equal(t, want, shellWord(text))
	}
}

// An output that has no JSON form does not keep other outputs from being shown.
func TestOutputText(t *testing.T) {
	t.Parallel()
	text := outputText(map[string]any{"ok": "hello", "bad": math.NaN()})
	require.Contains(t, text, `"ok": "hello"`)
	require.Contains(t, text, `"bad": "cannot be shown as JSON: json: unsupported value: NaN"`)
	require.Equal(t, "the output cannot be shown as JSON: json: unsupported value: +Inf", outputText(math.Inf(1)))
}

// The output of a step is indented, so that it cannot look like lines of this program. A jq program whose output is not JSON fails. An
// empty file name is refused.
func TestSlipsOfTexts(t *testing.T) {
	t.Parallel()
	ansi := file(t, "ansi.yaml", `version: 1
nodes:
  - {id: a, kind: fail, config: {message: "tea\e[2J\nrun completed after 1s"}}
`)
	expect(t, exitProblems, `tea\x1b[2J`+"\n    run completed after 1s\n", "", "run", ansi)
	nan := file(t, "nan.yaml", "version: 1\nnodes:\n  - {id: e, kind: jq, config: {query: nan}}\n")
	expect(t, exitProblems, "jq: the output is not JSON", "", "run", nan)
	expect(t, exitUsage, `invalid value "" for flag -store: the name of the file is empty`, "", "run", "-store", "", nan)
}
