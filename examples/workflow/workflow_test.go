package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// workflow runs the program and returns its exit code and what it wrote.
func workflow(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append([]string{"-progress", "plain"}, args...), strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

// expect runs the program and checks its exit code and a part of what it wrote.
func expect(t *testing.T, code int, part, stdin string, args ...string) {
	t.Helper()
	got, stdout, stderr := workflow(t, stdin, args...)
	if got != code || !strings.Contains(stdout+stderr, part) {
		t.Fatalf("exit code %d, not %d, or no %q in:\n%s%s", got, code, part, stdout, stderr)
	}
}

// file writes a file in a directory of its own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// contains checks that a file has a text.
func contains(t *testing.T, path, part string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), part) {
		t.Errorf("%s has no %q:\n%s", path, part, text)
	}
}

func missing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s: %v", path, err)
	}
}

// A release that fails is reported by the step behind the error boundary, builds nothing, and fails.
func TestReleaseThatFails(t *testing.T) {
	module, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.com/broken\n\ngo 1.25.0\n",
		"main.go":      "package main\n\nfunc main() {}\n",
		"main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestMain2(t *testing.T) { t.Error(\"it is broken\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, exitFailed, "the release failed: see "+out, "", "-input", "module="+module, "-input", "out="+out, "definitions/release.yaml")
	contains(t, filepath.Join(out, "report.txt"), "test      failed")
	contains(t, filepath.Join(out, "report.txt"), "it is broken")
	contains(t, filepath.Join(out, "report.txt"), "linux     aborted")
	missing(t, filepath.Join(out, "SHA256SUMS"))
	missing(t, filepath.Join(out, "release-linux-amd64"))
}

// One file of the survey does not exist; the run completes all the same, and says so.
func TestSurvey(t *testing.T) {
	code, stdout, stderr := workflow(t, "", "definitions/survey.json")
	if code != exitCompleted {
		t.Fatal(code, stdout, stderr)
	}
	for _, part := range []string{"roadmap: failed", "run completed, in spite of failures", "readme: ", "all: "} {
		if !strings.Contains(stdout, part) {
			t.Errorf("no %q in:\n%s", part, stdout)
		}
	}
}

// A gate can be answered by a flag, on the terminal, or in a later process, with the spellings that gates accept.
func TestApproval(t *testing.T) {
	const definition = "definitions/approval.yaml"
	note := func(out string) string { return filepath.Join(out, "note.txt") }
	t.Run("flag", func(t *testing.T) {
		out := t.TempDir()
		expect(t, exitCompleted, "run completed", "", "-input", "out="+out, "-input", "reader=Ada", "-answer", "approve=yes", definition)
		contains(t, note(out), "Dear Ada, version 2 is out.")
	})
	t.Run("terminal", func(t *testing.T) {
		out := t.TempDir()
		expect(t, exitCompleted, "run completed", "approved\n", "-input", "out="+out, "-ask", definition)
		contains(t, note(out), "Dear reader")
	})
	t.Run("no", func(t *testing.T) {
		out := t.TempDir()
		expect(t, exitCompleted, "Not published: not yet", "\nnot yet\n", "-input", "out="+out, "-ask", definition)
		missing(t, note(out))
	})
	t.Run("end of input", func(t *testing.T) {
		expect(t, exitWaiting, "approve: waits for an answer", "", "-ask", definition)
	})
	t.Run("later", func(t *testing.T) {
		out, state := t.TempDir(), filepath.Join(t.TempDir(), "run.json")
		args := []string{"-input", "out=" + out, "-state", state, definition}
		expect(t, exitWaiting, "run suspended", "", args...)
		expect(t, exitWaiting, "run suspended", "", args...) // still
		missing(t, note(out))
		expect(t, exitCompleted, "run completed", "", append([]string{"-answer", "approve=true"}, args...)...)
		contains(t, note(out), "version 2 is out")
		missing(t, state)
	})
}

// All problems of a definition are reported before anything runs, with their places.
func TestBadDefinitions(t *testing.T) {
	for name, row := range map[string]struct{ file, text, want string }{
		"no file":         {"", "", "no such file"},
		"not YAML":        {"a.yaml", "version: 1\nnodes: [\n", "line 3, column 1"},
		"not JSON":        {"a.json", "version: 1\n", "line 1, column 1"},
		"unknown field":   {"a.yml", "version: 1\nnodes:\n  - {id: a, Kind: exec}\n", `line 3, column 13: $.nodes[0].Kind: node "a": unknown field "Kind"; did you mean "kind"?`},
		"unknown kind":    {"a.json", `{"version": 1, "nodes": [{"id": "a", "kind": "shell"}]}`, `node "a": unknown kind: "shell" (there is "checksum", "exec", `},
		"inside":          {"a.json", `{"version": 1, "nodes": [{"id": "a", "graph": {"nodes": [{"id": "b"}]}}]}`, `node "a/b": unknown kind: "" (there is `},
		"a cycle":         {"a.json", `{"version": 1, "nodes": [{"id": "a", "kind": "sleep", "next": "b"}, {"id": "b", "kind": "sleep", "next": "a"}]}`, "cycle"},
		"malformed guard": {"a.yaml", "version: 1\nnodes: [{id: a, kind: sleep, when: '((('}]\n", "node \"a\""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "missing.json")
			if row.file != "" {
				path = file(t, row.file, row.text)
			}
			expect(t, exitUsage, row.want, "", path)
		})
	}
	expect(t, exitUsage, "usage", "")
	expect(t, exitUsage, `-answer: there is no gate "aprove"; gates are approve`, "", "-answer", "aprove=yes", "definitions/approval.yaml")
	expect(t, exitUsage, `-input: there is no input "redaer"; inputs are out, reader; did you mean "reader"?`, "", "-input", "redaer=x", "definitions/approval.yaml")
	expect(t, exitUsage, `flag provided but not defined: -inptu`, "", "-inptu", "out=x", "definitions/approval.yaml")
	inside := file(t, "inside.yaml", `version: 1
nodes:
  - {id: g, graph: {nodes: [{id: ok, kind: gate}]}}
  - {id: t, kind: template, config: {text: hello}, when: "$inputs.name == 'x'"}
`)
	expect(t, exitUsage, `gates are g/ok`, "", "-answer", "g/okay=yes", inside)
	expect(t, exitUsage, `inputs are name`, "", "-input", "nmae=yes", inside)
	expect(t, exitCompleted, `run completed`, "", "-answer", "g/ok=yes", "-input", "name=x", inside)
	expect(t, exitUsage, "expected name=value", "", "-input", "x", "definitions/survey.json")
}

// The output of a command is streamed by lines, with and without an end, and is the output of the step; a failing command
// reports why.
func TestExec(t *testing.T) {
	expect(t, exitCompleted, "a | one\na | two\na | three\n", "", "-v", file(t, "a.yaml", `
version: 1
nodes:
  - id: a
    kind: exec
    config: {command: [sh, -c, 'cat; printf "$THREE"'], stdin: "one\ntwo\n", env: {THREE: three}}
`))
	expect(t, exitFailed, "exit status 3\nno way", "", file(t, "a.yaml", `
version: 1
nodes:
  - {id: a, kind: exec, config: {command: [sh, -c, 'echo no way >&2; exit 3']}}
`))
	expect(t, exitFailed, "there is no command", "", file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: exec, config: {}}]\n"))
	expect(t, exitFailed, `unknown field "cmd"`, "", file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: exec, config: {cmd: [ls]}}]\n"))
}

// perform runs one step of a kind, with parameters.
func perform(ctx context.Context, kind string, config any, params map[string]any) (*kahn.Result, error) {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "n", Kind: kind, Config: config, Params: params})
	var rec kahntest.Recorder
	res, err := kahn.Execute(ctx, &g, kinds().Step, kahn.OnEvent(rec.Add))
	if res != nil {
		err = errors.Join(err, kahntest.CheckEvents(&g, res, rec.Events()))
	}
	return res, err
}

func TestHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, r.Method, " ", r.Header.Get("X-Who"))
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/large":
			_, _ = w.Write(make([]byte, maxText+1)) // the client hangs up
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	res, err := perform(t.Context(), "http", map[string]any{"url": server.URL + "/ok", "method": "PUT", "headers": map[string]any{"X-Who": `{{param "who"}}`}},
		map[string]any{"who": "me"})
	if err != nil || fmt.Sprint(res.Output) != "map[body:PUT me status:200]" {
		t.Error(res.Output, err)
	}
	for path, want := range map[string]kahn.CauseKind{"/busy": kahn.CauseRateLimit, "/none": kahn.CauseStepError, "/large": kahn.CauseStepError} {
		res, _ := perform(t.Context(), "http", map[string]any{"url": server.URL + path}, nil)
		if n, _ := res.Node("n"); n.Cause.Kind != want {
			t.Error(path, n.Cause)
		}
	}
}

func TestJQ(t *testing.T) {
	for query, want := range map[string]any{
		".n":             9007199254740993,
		".list[]":        []any{1, 2.5, "x"},
		"empty":          nil,
		".list | length": 3,
	} {
		res, err := perform(t.Context(), "jq", map[string]any{"query": query},
			map[string]any{"input": map[string]any{"n": int64(9007199254740993), "list": []any{int64(1), 2.5, "x"}}})
		if err != nil || fmt.Sprintf("%#v", res.Output) != fmt.Sprintf("%#v", want) {
			t.Errorf("%s: %#v, %v", query, res.Output, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := perform(ctx, "jq", map[string]any{"query": "last(repeat(1))"}, nil); err == nil {
		t.Error("a program without end has ended")
	}
	if _, err := perform(t.Context(), "jq", map[string]any{"query": "((("}, nil); err == nil {
		t.Error("no program")
	}
}

func TestTemplates(t *testing.T) {
	for text, want := range map[string]string{
		`{{param "x"}}`: "1", `{{param "y"}}`: "", `{{input "z"}}`: "", `{{input "z" "else"}}`: "else", `{{json (param "l")}}`: `["a"]`, `{{`: "",
		`{{status "other"}}`: "", `{{define "t"}}{{template "t"}}{{end}}{{template "t"}}`: "",
	} {
		res, err := perform(t.Context(), "template", map[string]any{"text": text}, map[string]any{"x": 1, "l": []any{"a"}})
		if (err != nil) != (want == "") || err == nil && res.Output != want {
			t.Errorf("%s: %v, %v", text, res.Output, err)
		}
	}
}
