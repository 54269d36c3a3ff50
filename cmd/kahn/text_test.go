package main

import (
	"bytes"
	"math"
	"strings"
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

// An output without a JSON form does not hide other outputs.
func TestOutputText(t *testing.T) {
	t.Parallel()
	text := outputText(map[string]any{"ok": "hello", "bad": math.NaN()})
	require.Contains(t, text, `"ok": "hello"`)
	require.Contains(t, text, `"bad": "cannot be shown as JSON: json: unsupported value: NaN"`)
	require.Equal(t, "the output cannot be shown as JSON: json: unsupported value: +Inf", outputText(math.Inf(1)))
}

// The output of a step cannot be mistaken for lines of the program, a jq program whose output is not JSON fails, and an empty file name is
// refused.
func TestSlipsOfTexts(t *testing.T) {
	t.Parallel()
	ansi := file(t, "ansi.yaml", `version: 1
nodes:
  - {id: a, kind: fail, config: {message: "tea\e[2J\nrun completed after 1s"}}
`)
	expect(t, exitProblems, `tea\x1b[2J`+"\n    run completed after 1s\n", "", "run", ansi)
	nan := file(t, "nan.yaml", "version: 1\nnodes:\n  - {id: e, kind: jq, config: {query: nan}}\n")
	expect(t, exitProblems, "jq: the output is not JSON", "", "run", nan)
	expect(t, exitUsage, `invalid value "" for flag -store: no name of a file`, "", "run", "-store", "", nan)
}

// The output of a run cannot control the terminal: escape sequences are spelled out there, also the C1 set in JSON. A file or a pipe gets
// the output unchanged.
func TestOutputOnTerminals(t *testing.T) {
	t.Parallel()
	definition := file(t, "a.yaml", `version: 1
nodes:
  - {id: text, kind: template, config: {text: "a\tb\e[2J\nc\u009b2J"}}
  - {id: list, kind: jq, after: {from: text, param: input}, config: {query: '[.]'}}
`)
	lines := file(t, "b.yaml", `version: 1
nodes:
  - {id: shout, kind: exec, config: {command: [sh, -c, 'printf "a\033[2J\n"']}}
  - {id: last, kind: template, after: shout, config: {text: "a\tb\e[2J\nc\u009b2J"}}
`)
	for _, row := range []struct {
		terminal      bool
		want, refused string
		args          []string
	}{
		{true, "\"a\\tb\\u001b[2J\\nc" + `\u009b2J"`, "\u009b", []string{"run", definition}},
		{false, "\"a\\tb\\u001b[2J\\nc\u009b2J\"", `\u009b`, []string{"run", definition}},
		{true, "a\tb" + `\x1b[2J` + "\nc" + `\u009b2J`, "\x1b", []string{"run", "-v", lines}},
		{false, "a\tb\x1b[2J\nc\u009b2J", `\x1b`, []string{"run", "-v", lines}},
		{true, `shout | a\x1b[2J`, "\x1b", []string{"run", "-v", lines}},
		{true, `\u009b2J"}`, "\u009b", []string{"run", "-dry", lines}},
		{false, "\u009b2J\"}", `\u009b`, []string{"run", "-dry", lines}},
	} {
		var out, errs bytes.Buffer
		console := newTerminal(strings.NewReader(""), &out, &errs)
		console.showsOut = row.terminal
		require.Equal(t, exitOK, kahnCommand(t.Context(), row.args, console), "%s", &errs)
		require.Contains(t, out.String(), row.want)
		require.NotContains(t, out.String(), row.refused)
	}
}

// The standard error gets no escape sequences either.
func TestErrorsOnTerminals(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"vet", "run", "test", "draw"} {
		_, stdout, stderr := invoke(t, "", command, "missing\x1b[2J.test.yaml")
		require.NotContains(t, stdout+stderr, "\x1b")
		require.Contains(t, stderr, `missing\x1b[2J.test.yaml: no such file`)
	}
}
