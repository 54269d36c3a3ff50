package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// hostile contains characters that control a terminal: an escape sequence, a C1 control, a mark that reverses the direction of text, a backspace,
// a carriage return that does not end a line, a delete, and a tag above the basic plane. spelledOut is the same text in visible form.
const (
	hostile    = "x\x1b[2J\u009b2J\u202e\b\ry\x7f\U000e0001"
	spelledOut = `x\x1b[2J\u009b2J\u202e\b y\x7f\U000e0001`
	inJSON     = `x\u001b[2J\u009b2J\u202e\b\ry\u007f\udb40\udc01`
)

// obeyed returns the characters in a text that would control a terminal. The picture of -progress tty begins each frame with a carriage return,
// and has its own escape sequences, which obeyed ignores.
func obeyed(text string, picture bool) string {
	if picture {
		for _, own := range []string{"\x1b[?25l", "\x1b[?25h", "\x1b[?7l", "\x1b[?7h", "\x1b[K", "\x1b[J", "\x1b[31m", "\x1b[m", "\r"} {
			text = strings.ReplaceAll(text, own, "")
		}
		for up := range 40 {
			text = strings.ReplaceAll(text, fmt.Sprintf("\x1b[%dA", up), "")
		}
	}
	var bad []string
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			bad = append(bad, fmt.Sprintf("%q", r))
		}
	}
	return strings.Join(bad, " ")
}

// Whatever a run prints cannot control a terminal: names, outputs, errors, logs of commands, answers and inputs. JSON stays JSON with the same
// values.
func TestHostileText(t *testing.T) {
	t.Parallel()
	quoted, err := json.Marshal(hostile)
	require.NoError(t, err)
	write := func(name, text string) string {
		return file(t, name, strings.NewReplacer("HOSTILE", strings.Trim(string(quoted), `"`), "SHELL", `x\\033[2J\\302\\2332J\\342\\200\\256\\b\\ry\\177\\363\\240\\200\\201`).Replace(text))
	}
	// Names, labels and choices cannot contain such characters: vet refuses the definition.
	text := write("text.json", `{"version": 1, "nodes": [{"id": "a", "kind": "template", "config": {"text": "HOSTILE"}}]}`)
	value := write("value.json", `{"version": 1, "nodes": [{"id": "a", "kind": "template", "config": {"text": "HOSTILE"}}, {"id": "b", "kind": "jq", "after": {"from": "a", "param": "input"}, "config": {"query": "[.]"}}]}`)
	fails := write("fails.json", `{"version": 1, "nodes": [{"id": "a", "kind": "fail", "config": {"message": "HOSTILE"}}]}`)
	retried := write("retried.json", `{"version": 1, "nodes": [{"id": "a", "kind": "exec", "retry": {"max_attempts": 2, "initial_delay": "1ms"}, "config": {"command": ["sh", "-c", "printf 'SHELL\\n'; exit 3"]}}]}`)
	shouts := write("shouts.json", `{"version": 1, "nodes": [{"id": "a", "kind": "exec", "config": {"command": ["sh", "-c", "printf 'SHELL\\n'; printf 'SHELL' >&2"]}}]}`)
	items := write("items.json", `{"version": 1, "inputs": ["list"], "nodes": [{"id": "a", "kind": "fail", "map": {"over": "list"}, "config": {"message": "HOSTILE"}}]}`)
	gate := write("gate.json", `{"version": 1, "nodes": [{"id": "a", "kind": "gate", "gate": {"choices": ["yes", "no"]}}]}`)
	tests := write("cases.test.json", `{"definition": "`+text+`", "cases": [{"name": "HOSTILE", "mocks": {"a": {"error": "HOSTILE"}}, "expect": {"status": "completed"}}]}`)
	for _, row := range []struct {
		name  string
		code  int
		want  string // a text in the output; if empty, the output must contain none of the three texts
		stdin string
		args  []string
	}{
		{"output as text", exitOK, spelledOut, "", []string{"run", text}},
		{"output as JSON", exitOK, inJSON, "", []string{"run", value}},
		{"error", exitProblems, spelledOut, "", []string{"run", fails}},
		{"attempt that is repeated", exitProblems, spelledOut, "", []string{"run", "-v", retried}},
		{"lines of a command", exitOK, "a | " + spelledOut, "", []string{"run", "-v", shouts}},
		{"lines of a command, JSON", exitOK, inJSON, "", []string{"run", "-v", "-progress", "json", shouts}},
		{"lines of a command, picture", exitOK, spelledOut, "", []string{"run", "-v", "-progress", "tty", shouts}},
		{"error in the picture", exitProblems, spelledOut, "", []string{"run", "-progress", "tty", fails}},
		{"error in JSON", exitProblems, inJSON, "", []string{"run", "-progress", "json", fails}},
		{"items", exitProblems, spelledOut, "", []string{"run", "-input", "list:=[1, 2]", items}},
		{"dry run", exitOK, inJSON, "", []string{"run", "-dry", text}},
		{"answer that is refused", exitWaiting, `no such choice: "x\x1b[2J`, hostile + "\n", []string{"run", "-ask", gate}},
		{"answer of a flag", exitWaiting, `no such choice: "x\x1b[2J`, "", []string{"run", "-answer", "a=" + hostile, gate}},
		{"gate that does not exist", exitUsage, "", "", []string{"run", "-answer", hostile + "=1", gate}},
		{"input", exitUsage, "", "", []string{"run", "-input", hostile + "=1", items}},
		{"run that waits", exitWaiting, spelledOut, "", []string{"run", "-store", "new.db", "-run", hostile, gate}},
		{"run that has ended", exitOK, spelledOut, "", []string{"run", "-store", "old.db", "-run", hostile, text}},
		{"list of runs", exitOK, "", "", []string{"list", "-store", "old.db"}},
		{"redrive of an unknown run", exitUsage, spelledOut, "", []string{"run", "-store", "old.db", "-run", hostile + "1", "-redrive", text}},
		{"test", exitProblems, spelledOut, "", []string{"test", "-v", tests}},
		{"file that is missing", exitUsage, "", "", []string{"run", hostile}},
		{"flag", exitUsage, "", "", []string{"run", "-" + hostile, text}},
		{"command", exitUsage, "", "", []string{hostile}},
	} {
		for _, terminal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, terminal %v", row.name, terminal), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				args := make([]string, len(row.args))
				for i, arg := range row.args {
					if args[i] = arg; strings.HasSuffix(arg, ".db") {
						args[i] = filepath.Join(dir, arg)
					}
					if arg == "old.db" {
						code, _, stderr := invoke(t, "", "run", "-store", args[i], "-run", hostile, text)
						require.Equal(t, exitOK, code, stderr)
					}
				}
				var out, errs bytes.Buffer
				console := newTerminal(strings.NewReader(row.stdin), &out, &errs)
				console.both = terminal
				require.Equal(t, row.code, kahnCommand(t.Context(), args, console), "%s%s", &out, &errs)
				require.Empty(t, obeyed(out.String(), false), "standard output: %q", &out)
				require.Empty(t, obeyed(errs.String(), strings.Contains(strings.Join(args, " "), "tty")), "standard error: %q", &errs)
				require.Contains(t, out.String()+errs.String(), row.want)
				if row.name == "output as JSON" {
					var values []string
					_, text, _ := strings.Cut(out.String(), "\n") // after the line with the status
					require.NoError(t, json.Unmarshal([]byte(text), &values))
					require.Equal(t, []string{hostile}, values)
				}
				if strings.HasSuffix(row.name, "JSON") && row.name != "output as JSON" {
					for line := range strings.Lines(errs.String()) {
						require.True(t, json.Valid([]byte(line)), "%s", line)
					}
				}
			})
		}
	}
}

// No command that reads files writes escape sequences to the standard error.
func TestErrorsOnTerminals(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"vet", "run", "test", "draw"} {
		_, stdout, stderr := invoke(t, "", command, "missing\x1b[2J.test.yaml")
		require.NotContains(t, stdout+stderr, "\x1b")
		require.Contains(t, stderr, `missing\x1b[2J.test.yaml: no such file`)
	}
}
