package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// The output of a command is streamed line by line, with or without a final newline, and becomes the output of the step. The error of a failed
// command contains the reason.
func TestExec(t *testing.T) {
	t.Parallel()
	expect(t, exitOK, "a | one\na | two\na | three\n", "", "run", "-v", file(t, "a.yaml", `
version: 1
nodes:
  - id: a
    kind: exec
    config: {command: [sh, -c, 'cat; printf "$THREE"'], stdin: "one\ntwo\n", env: {THREE: three}}
`))
	expect(t, exitProblems, "exit status 3\n    no way", "", "run", file(t, "a.yaml", `
version: 1
nodes:
  - {id: a, kind: exec, config: {command: [sh, -c, 'echo no way >&2; exit 3']}}
`))
	expect(t, exitOK, "true 149797 number\n", // 1 MiB, without the partial lines at the beginning and the end
		"", "run", file(t, "a.yaml", `
version: 1
nodes:
  - {id: a, kind: exec, config: {command: [sh, -c, 'yes numbers | head -n 150000 | sed s/s$//']}}
  - {id: b, kind: jq, after: [{from: a, param: input}], config: {query: '"\(.cut) \(.stdout | split("\n") | length) \(.stdout[0:6])"'}}
`))
}

// The end node needs no step.
func TestEndNode(t *testing.T) {
	t.Parallel()
	expect(t, exitOK, "run completed", "", "run", file(t, "a.yaml", `
version: 1
nodes:
  - {id: a, kind: template, config: {text: x}}
  - {id: last, kind: end}
`))
}

// reply writes the body of a response. It ignores errors: the client may have hung up.
func reply(w io.Writer, body string) { _, _ = io.WriteString(w, body) }

// A request is sent as its config says. The status decides whether the step completes. The content type decides whether the body is parsed.
func TestHTTP(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			text, _ := io.ReadAll(r.Body)
			reply(w, strings.Join([]string{r.Method, r.Header.Get("X-Who"), r.Header.Get("Content-Type"), string(text)}, " "))
		case "/json":
			w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			w.WriteHeader(http.StatusConflict)
			reply(w, `{"n": 9007199254740993, "f": [1.5]}`)
		case "/broken":
			w.Header().Set("Content-Type", "application/json")
			reply(w, `{"n":`)
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/large":
			_, _ = w.Write(make([]byte, maxText+1)) // the client hangs up
		case "/slow":
			<-release
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	defer close(release)
	for _, row := range []struct {
		path   string
		config map[string]any
		body   any
		cause  kahn.CauseKind
	}{
		{"/echo", map[string]any{}, "GET   ", 0},
		{"/echo", map[string]any{"method": "PUT", "headers": map[string]any{"X-Who": `{{param "who"}}`}}, "PUT me  ", 0},
		{"/echo", map[string]any{"body": `a {{param "who"}}`}, "POST   a me", 0},
		{"/echo", map[string]any{"body": map[string]any{"n": 1, "who": `{{param "who"}}`}}, `POST  application/json {"n":1,"who":"me"}`, 0},
		{"/json", map[string]any{"expect": []any{200, "4xx"}}, map[string]any{"n": int64(9007199254740993), "f": []any{1.5}}, 0},
		{"/json", map[string]any{"expect": 409}, map[string]any{"n": int64(9007199254740993), "f": []any{1.5}}, 0},
		{"/json", map[string]any{}, nil, kahn.CauseStepError},
		{"/json", map[string]any{"expect": "4x"}, nil, kahn.CauseStepError},
		{"/echo", map[string]any{"expect": 201}, nil, kahn.CauseStepError},
		{"/broken", map[string]any{}, `{"n":`, 0},
		{"/busy", map[string]any{}, nil, kahn.CauseRateLimit},
		{"/none", map[string]any{}, nil, kahn.CauseStepError},
		{"/large", map[string]any{}, nil, kahn.CauseStepError},
		{"/slow", map[string]any{"timeout": "20ms"}, nil, kahn.CauseTimeout},
		{"/slow", map[string]any{"timeout": "soon"}, nil, kahn.CauseStepError},
	} {
		row.config["url"] = server.URL + row.path
		res, _ := perform(t.Context(), "http", row.config, map[string]any{"who": "me"})
		n, _ := res.Node("n")
		require.Equal(t, row.cause, n.Cause.Kind, "%s %v: %v", row.path, row.config, n.Err)
		if row.cause == 0 {
			output := n.Output.(map[string]any)
			require.Equal(t, row.body, output["body"], "%s %v", row.path, row.config)
			require.NotEmpty(t, output["headers"].(map[string]any)["Date"])
		}
	}
}

// After an unexpected status, the status decides whether another attempt follows. The length of the body does not matter. The error contains
// the beginning of the body.
func TestUnexpectedStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status   int
		header   string
		attempts int
		cause    kahn.CauseKind
	}{
		{http.StatusInternalServerError, "", 2, kahn.CauseStepError},
		{http.StatusTooManyRequests, "0", 2, kahn.CauseRateLimit},
		{http.StatusServiceUnavailable, "1", 1, kahn.CauseRateLimit},
		{http.StatusServiceUnavailable, "", 2, kahn.CauseStepError},
		{http.StatusNotFound, "", 1, kahn.CauseStepError},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", row.header)
			w.WriteHeader(row.status)
			reply(w, "why"+strings.Repeat("!", maxText+1))
		}))
		g := new(kahn.Graph).Add(kahn.Node{ID: "n", Kind: "http", Config: map[string]any{"url": server.URL}, Retry: kahn.Retry{
			MaxAttempts: 2, InitialDelay: time.Millisecond, MaxRetryAfter: time.Millisecond,
		}})
		var rec kahntest.Recorder
		res, _ := kahn.Execute(t.Context(), g, steps().Step, kahn.OnEvent(rec.Add))
		server.Close()
		require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()))
		n, _ := res.Node("n")
		require.Equal(t, row.cause, n.Cause.Kind, "%+v", row)
		require.Equal(t, row.attempts, n.Attempts, "%+v: %v", row, n.Err)
		require.ErrorContains(t, n.Err, fmt.Sprintf("GET %s: %d %s\nwhy!", server.URL, row.status, http.StatusText(row.status)))
		require.Less(t, len(n.Err.Error()), 700)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "10000000000": maxRetryAfter, "99999999999999999999": maxRetryAfter,
		"Wed, 02 Jan 2030 03:05:35 GMT": 90 * time.Second, "Wed, 02 Jan 2030 03:00:00 GMT": 0, "Sat, 02 Jan 2060 03:00:00 GMT": maxRetryAfter,
	} {
		require.Equal(t, want, retryAfter(header, now), header)
	}
}

// If a text is too long, the error says which text.
func TestTextsThatAreTooLong(t *testing.T) {
	t.Parallel()
	long := file(t, "long", strings.Repeat("x", maxText+1))
	_, err := perform(t.Context(), "read", map[string]any{"path": long}, nil)
	require.ErrorContains(t, err, "the file "+long+" is longer than 1048576 bytes")
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(long))))
	defer server.Close()
	_, err = perform(t.Context(), "http", map[string]any{"url": server.URL + "/long"}, nil)
	require.ErrorContains(t, err, "the body of GET "+server.URL+"/long is longer than 1048576 bytes")
}

// The names in a list of checksums are relative to the folder that contains all matches, so sha256sum finds the files in this folder.
func TestChecksum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"linux/app", "windows/app"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	for pattern, want := range map[string][]string{"*/app": {"linux/app", "windows/app"}, "linux/*": {"app"}, "windows/app": {"app"}} {
		res, err := perform(t.Context(), "checksum", map[string]any{"files": filepath.Join(dir, pattern)}, nil)
		require.NoError(t, err)
		var names []string
		for line := range strings.Lines(res.Output().(string)) {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			names = append(names, filepath.ToSlash(name))
		}
		require.Equal(t, want, names, pattern)
	}
}

func TestJQ(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]any{
		".n":             9007199254740993,
		".list[]":        []any{1, 2.5, "x"},
		"empty":          nil,
		".list | length": 3,
		".n, halt, 7":    9007199254740993,
	} {
		res, err := perform(t.Context(), "jq", map[string]any{"query": query},
			map[string]any{"input": map[string]any{"n": int64(9007199254740993), "list": []any{int64(1), 2.5, "x"}}})
		if err != nil || fmt.Sprintf("%#v", res.Output()) != fmt.Sprintf("%#v", want) {
			t.Errorf("%s: %#v, %v", query, res.Output(), err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	res, _ := perform(ctx, "jq", map[string]any{"query": "last(repeat(1))"}, nil)
	if n, _ := res.Node("n"); n.Status != kahn.Cancelled {
		t.Errorf("a program without end: %v, %v", n.Status, n.Err)
	}
	for query, want := range map[string]string{`"x" | halt_error`: "halt error: x", `null | halt_error`: "halt error"} {
		if _, err := perform(t.Context(), "jq", map[string]any{"query": query}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
	if _, err := perform(t.Context(), "jq", map[string]any{"query": "((("}, nil); err == nil {
		t.Error("no program")
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{param "x"}}`: "1", `{{param "y"}}`: "", `{{input "z"}}`: "", `{{input "z" "else"}}`: "else", `{{json (param "l")}}`: `["a"]`, `{{`: "",
		`{{status "other"}}`: "", `{{error "other"}}`: "", `{{define "t"}}{{template "t"}}{{end}}{{template "t"}}`: "",
	} {
		res, err := perform(t.Context(), "template", map[string]any{"text": text}, map[string]any{"x": 1, "l": []any{"a"}})
		if (err != nil) != (want == "") || err == nil && res.Output() != want {
			t.Errorf("%s: %v, %v", text, res.Output(), err)
		}
	}
}

// An error names the file, the pattern or the URL that it is about.
func TestErrorsNameTheirSubjects(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxText+1)) }))
	defer server.Close()
	large, pipe := file(t, "large", strings.Repeat("x", maxText+1)), filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, exec.Command("mkfifo", pipe).Run())
	for _, row := range []struct {
		kind   string
		config map[string]any
		want   string
	}{
		{"read", map[string]any{"path": large}, large + " is longer than 1048576 bytes"},
		{"http", map[string]any{"url": server.URL + "/large"}, " is longer than 1048576 bytes"},
		{"checksum", map[string]any{"files": "["}, "[: syntax error in pattern"},
		{"template", map[string]any{"text": "{{range $i := 3000000}}x{{end}}"}, "the text is longer than 1048576 bytes"},
		{"read", map[string]any{"path": pipe}, pipe + " is a named pipe"},
		{"checksum", map[string]any{"files": pipe}, pipe + " is a named pipe"},
		{"write", map[string]any{"path": pipe, "text": "x"}, pipe + " is a named pipe"},
	} {
		_, err := perform(t.Context(), row.kind, row.config, nil)
		require.ErrorContains(t, err, row.want, row.kind)
	}
}

// nested returns templates that write nothing. Each executes the next one twice, down to the given depth.
func nested(depth int) string {
	b := strings.Builder{}
	for i := range depth {
		fmt.Fprintf(&b, `{{define "t%d"}}{{template "t%d"}}{{template "t%[2]d"}}{{end}}`, i, i+1)
	}
	fmt.Fprintf(&b, `{{define "t%d"}}{{end}}{{template "t0"}}`, depth)
	return b.String()
}

// A step ends at its timeout, whatever it is doing. This includes a step that expands many templates which write nothing, and of which none
// exceeds the limit of a single template.
func TestStepsEndWithTheirTimeout(t *testing.T) {
	t.Parallel()
	check := func(kind string, config any) {
		var g kahn.Graph
		g.Add(kahn.Node{ID: "n", Kind: kind, Config: config, Timeout: 20 * time.Millisecond, Retry: kahn.Retry{MaxAttempts: 1}})
		var rec kahntest.Recorder
		res, err := kahn.Execute(t.Context(), &g, steps().Step, kahn.OnEvent(rec.Add), kahn.CancelGrace(time.Minute))
		require.Error(t, err)
		require.NoError(t, kahntest.CheckEvents(&g, res, rec.Events()))
		n, _ := res.Node("n")
		require.Equal(t, kahn.CauseTimeout, n.Cause.Kind, "%v", n.Cause.Err)
		require.False(t, n.Abandoned)
	}
	check("checksum", map[string]any{"files": "/dev/zero"})
	for _, text := range []string{
		"{{range $i := 45000}}{{print}}{{end}}" /* print counts as a turn, too */, "{{range 90000}}{{end}}", "{{range 90000}}{{continue}}{{end}}",
		"{{range 300}}{{if true}}{{with 1}}{{range 290}}{{end}}{{end}}{{end}}{{end}}", nested(15),
	} {
		check("exec", map[string]any{"command": slices.Repeat([]any{text}, 1000)})
	}
}

// A template fails if its loops take too many turns, or if its variables grow too long. The same holds in a dry run.
func TestBoundsOfTemplates(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{{range 2000000000}}{{end}}", "{{range 2000000000}}{{continue}}{{end}}", nested(60),
		"{{if false}}{{else}}{{range 100000}}{{with 1}}{{range 100000}}{{if true}}{{range 100000}}{{end}}{{end}}{{end}}{{end}}{{end}}{{end}}",
	} {
		_, err := perform(t.Context(), "template", map[string]any{"text": text}, nil)
		require.ErrorContains(t, err, "more than 100000 turns of loops and templates", text)
	}
	for _, double := range []string{`print $x $x`, `printf "%s%s" $x $x`, `println $x $x`, `html $x $x "&"`, `js $x $x`, `urlquery $x $x`, `json (print $x $x)`} {
		_, err := perform(t.Context(), "template", map[string]any{"text": `{{$x := "x"}}{{range 60}}{{$x = ` + double + `}}{{end}}`}, nil)
		require.ErrorContains(t, err, "a function makes a text that is longer than 1048576 bytes", double)
	}
	for _, text := range []string{`{{$x := "x"}}{{range 20}}{{$x = print $x $x}}{{end}}{{$x}}`, "{{range 1000000}}x{{end}}"} { // one turn for each byte
		_, err := perform(t.Context(), "template", map[string]any{"text": text}, nil)
		require.NoError(t, err, text)
	}
	definition := file(t, "bomb.yaml", "version: 1\nnodes: [{id: a, kind: template, config: {text: '"+nested(60)+"'}}]\n")
	expect(t, exitOK, "a: failed: node \"a\": ", "", "run", "-dry", definition)
}

// A dry run ends at its timeout and on Ctrl-C, even while templates are expanded. The expansion takes long in this test.
func TestDryRunIsStopped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("'{{range 90000}}{{end}}', ", 2000)
	definition := file(t, "long.yaml", "version: 1\nnodes: [{id: a, kind: exec, config: {command: ["+long+"]}}, {id: b, kind: exec, after: a, config: {command: [x]}}]\n")
	expect(t, exitProblems, "no step was run; the dry run was stopped\n", "", "run", "-dry", "-timeout", "20ms", definition)
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, interrupt)
	var out, errs bytes.Buffer
	require.Equal(t, exitCancelled, kahnCommand(ctx, []string{"run", "-dry", definition}, newTerminal(strings.NewReader(""), &out, &errs)))
	require.Contains(t, out.String(), "a: cancelled: ")
	require.NotContains(t, out.String(), "would run")
}

// A template fails where it would write "<no value>": at a field that a map lacks, and at null. The error names the place, the field and the fields there
// are. The function `get` reads an optional field.
func TestTemplatesWriteNoMissingValue(t *testing.T) {
	t.Parallel()
	who := map[string]any{"name": "ann", "none": nil, "tags": []any{"x"}, "in": map[string]any{"a": "b"}}
	for text, want := range map[string]string{
		`Dear {{(param "who").nmae}}`:                             `config.text:1:`,
		`{{(param "who").nmae}}`:                                  `no field "nmae"; it has in, name, none, tags; did you mean "name"?`,
		`{{index (param "who") "nmae"}}`:                          `no field "nmae"; it has in, name, none, tags; did you mean "name"?`,
		`{{index (param "who").in "c"}}`:                          `no field "c"; it has a`,
		`{{(param "who").in.c}}`:                                  `no field "c"; it has a`,
		`{{$x := param "who"}}{{$x.in.c}}`:                        `no field "c"; it has a`,
		`{{with param "who"}}{{.in.c}}{{end}}`:                    `no field "c"; it has a`,
		`{{with param "who"}}{{$.x}}{{end}}`:                      `the value is null`,
		`{{if (param "who").nmae}}x{{end}}`:                       `no field "nmae"`,
		`{{range (param "who").nmae}}x{{end}}`:                    `no field "nmae"`,
		`{{json (param "who").nmae}}`:                             `no field "nmae"`,
		`{{print (param "who").nmae}}`:                            `no field "nmae"`,
		`{{eq "x" (param "who").nmae}}`:                           `no field "nmae"`,
		`{{template "t" (param "who").c}}{{define "t"}}{{end}}`:   `no field "c"`,
		`{{template "t" param "who"}}{{define "t"}}{{.c}}{{end}}`: `no field "c"`,
		`{{(param "who").none}}`:                                  `the value is null`,
		`{{print (param "who").none}}`:                            `the value is null`,
		`{{printf "%v" (param "who").none}}`:                      `the value is null`,
		`{{get (param "who") "nick"}}`:                            `the value is null`,
		`{{get "x" "nick"}}`:                                      `a value of type string has no fields`,
		`{{index (param "who").tags 1}}`:                          `there is no item 1: the length is 1`,
		`{{index (param "who").tags "x"}}`:                        `the index x is no whole number`,
		`{{index 1 "x"}}`:                                         `a value of type int has no fields and no items`,
		`{{param "whom"}}`:                                        `"whom"`,
	} {
		_, err := perform(t.Context(), "template", map[string]any{"text": text}, map[string]any{"who": who})
		if assert.ErrorContains(t, err, want, text) {
			require.NotContains(t, err.Error(), "executing", text)
		}
	}
	for text, want := range map[string]string{
		`{{with get (param "who") "nick"}}{{.}}{{else}}you{{end}}`:               "you",
		`{{or (get (param "who") "nick") "you"}}`:                                "you",
		`{{get (get (param "who") "in") "a"}}`:                                   "b",
		`{{or (get (get (param "who") "nick") "a") "you"}}`:                      "you",
		`{{index (param "who") "in" "a"}}`:                                       "b",
		`{{index (param "who").tags 0}}`:                                         "x",
		`{{range $k, $v := (param "who").in}}{{$k}}{{$v}}{{end}}`:                "ab",
		`{{$x := param "who"}}{{$x.in.a}}{{with $x}}{{.name}}{{$x.name}}{{end}}`: "bannann",
		`{{with (param "who").none}}x{{end}}{{json (param "who").none}}`:         "null",
		`{{(param "who").in | json}}`:                                            `{"a":"b"}`,
		`<no value>`:                                                             "<no value>",
	} {
		res, err := perform(t.Context(), "template", map[string]any{"text": text}, map[string]any{"who": who})
		require.NoError(t, err, text)
		require.Equal(t, want, res.Output(), text)
	}
}
