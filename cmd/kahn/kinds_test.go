package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// perform runs one step of a kind, with parameters.
func perform(ctx context.Context, kind string, config any, params map[string]any) (*kahn.Result, error) {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "n", Kind: kind, Config: config, Params: params})
	var rec kahntest.Recorder
	res, err := kahn.Execute(ctx, &g, steps().Step, kahn.OnEvent(rec.Add))
	if res != nil {
		err = errors.Join(err, kahntest.CheckEvents(&g, res, rec.Events()))
	}
	return res, err
}

// The output of a command is streamed by lines, with and without an end, and is the output of the step; a failing command
// reports why.
func TestExec(t *testing.T) {
	expect(t, exitOK, "a | one\na | two\na | three\n", "", "run", "-v", file(t, "a.yaml", `
version: 1
nodes:
  - id: a
    kind: exec
    config: {command: [sh, -c, 'cat; printf "$THREE"'], stdin: "one\ntwo\n", env: {THREE: three}}
`))
	expect(t, exitProblems, "exit status 3\nno way", "", "run", file(t, "a.yaml", `
version: 1
nodes:
  - {id: a, kind: exec, config: {command: [sh, -c, 'echo no way >&2; exit 3']}}
`))
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
	if err != nil || fmt.Sprint(res.Output.(map[string]any)["body"]) != "PUT me" {
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
