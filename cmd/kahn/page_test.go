package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shown runs the program with -ui in the background. It returns the URL that the program prints, and its exit code.
func shown(t *testing.T, ctx context.Context, args ...string) (url string, code <-chan int) {
	t.Helper()
	read, write := io.Pipe()
	lines := make(chan string, 100)
	done := make(chan int, 1)
	go func() {
		defer func() { _ = write.Close() }() // closing a pipe never fails
		done <- kahnCommand(ctx, append([]string{"run"}, args...), newTerminal(strings.NewReader(""), io.Discard, write))
	}()
	go func() {
		defer close(lines)
		text := ""
		buffer := make([]byte, 1024)
		for {
			n, err := read.Read(buffer)
			if text += string(buffer[:n]); err != nil {
				return
			}
			if found := linked(text); found != "" {
				lines <- found
				text = ""
			}
		}
	}()
	select {
	case url = <-lines:
	case <-time.After(20 * time.Second):
		t.Fatal("no URL was printed")
	}
	return url, done
}

var tokens sync.Map // the tokens of pages, by address

// linked returns the address in the link that a command printed, or "" without a link. It stores the token of the link for do.
func linked(text string) string {
	found := regexp.MustCompile(`open (http://(\S+)/)#token=(\S+)\n`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	tokens.Store(found[2], found[3])
	return found[1]
}

// do makes a request with the token of the page.
func do(t *testing.T, req *http.Request) *http.Response {
	t.Helper()
	token, known := tokens.Load(req.URL.Host)
	require.True(t, known)
	req.Header.Set("Authorization", "Bearer "+token.(string))
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	return resp
}

// get returns the JSON of an endpoint.
func get(t *testing.T, url string, to any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	resp := do(t, req)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(to))
}

// post sends JSON to an endpoint.
func post(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", url)
	resp := do(t, req)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, resp.StatusCode, "%s", text)
}

// waiting waits until a run waits at a gate, and returns the run and the path of the gate.
func waiting(t *testing.T, url string) (run, path string) {
	t.Helper()
	until(t, nil, "a run that waits", func() bool {
		var answer struct{ Gates []struct{ Run, Path string } }
		get(t, url+"api/v1/gates", &answer)
		if len(answer.Gates) == 0 {
			return false
		}
		run, path = answer.Gates[0].Run, answer.Gates[0].Path
		return true
	})
	return run, path
}

// outcome waits for the end of a run and returns its status.
func outcome(t *testing.T, url, run string) string {
	t.Helper()
	var state struct{ Status string }
	until(t, nil, "the end of the run", func() bool {
		get(t, url+"api/v1/run?run="+run, &state)
		return state.Status == "completed" || state.Status == "failed"
	})
	return state.Status
}

// If the page redrives a run, templates in the items of a map can read the run's root inputs, with the given values and the defaults. It does
// not matter whether this process or an earlier one performed the run before.
func TestInputsOfRedrivenRuns(t *testing.T) {
	t.Parallel()
	definition := file(t, "inside.yaml", `
version: 1
inputs: [who, {name: of, default: Turing}]
nodes:
  - {id: ask, kind: gate}
  - {id: list, kind: jq, after: ask, params: {input: [1]}, config: {query: '[.]'}}
  - {id: M, kind: template, after: {from: list, param: items}, map: {over: items}, config: {text: '{{input "who"}} {{input "of"}}'}}
`)
	args := []string{"-store", filepath.Join(t.TempDir(), "runs.db"), definition}
	earlier := append([]string{"run", "-run", "earlier", "-input", "who=Ada", "-answer", "ask=yes"}, args...)
	expect(t, exitOK, `"Ada Turing"`, "", earlier...)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	present := append([]string{"-run", "present", "-input", "who=Alan"}, args...)
	url, code := shown(t, ctx, append(present, "-ui", ":0", "-ui-stay")...)
	waiting(t, url)
	post(t, url+"api/v1/signal?run=present&path=ask", `{"value": "yes"}`)
	require.Equal(t, "completed", outcome(t, url, "present"))
	for _, run := range []string{"earlier", "present"} {
		post(t, url+"api/v1/redrive?run="+run, `{"nodes": ["list"]}`)
		require.Equal(t, "completed", outcome(t, url, run), run)
	}
	interrupt()
	require.Equal(t, exitOK, <-code)
	expect(t, exitOK, `"Ada Turing"`, "", earlier...)
	expect(t, exitOK, `"Alan Turing"`, "", append([]string{"run"}, present...)...)
}

// On the page a user answers a gate. The run continues, with and without a store, and the program ends with the run. With -ui-stay the page
// remains until Ctrl-C.
func TestPage(t *testing.T) {
	t.Parallel()
	const definition = "definitions/approval.yaml"
	for name, args := range map[string][]string{
		"memory": nil,
		"store":  {"-store", filepath.Join(t.TempDir(), "runs.db"), "-run", "note-1"},
		"stay":   {"-ui-stay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			out := t.TempDir()
			url, code := shown(t, ctx, append([]string{"-ui", ":0", "-progress", "json", "-input", "out=" + out, definition}, args...)...)
			run, path := waiting(t, url)
			require.Equal(t, "approve", path)
			if name == "store" {
				require.Equal(t, "note-1", run)
			}
			post(t, url+"api/v1/signal?run="+run+"&path=approve", `{"value": "approved"}`)
			if name == "stay" {
				require.Equal(t, "completed", outcome(t, url, run))
				interrupt()
			}
			require.Equal(t, exitOK, <-code)
			contains(t, filepath.Join(out, "note.txt"), "version 2 is out")
			_, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(url, "http:"), "/"))
			require.Error(t, err, "the page is gone")
		})
	}
}

// The result is written before the command waits for Ctrl-C, even if the run ended in an earlier process.
func TestResultBeforeThePageStays(t *testing.T) {
	t.Parallel()
	definition := file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: template, config: {text: hello}}]\n")
	db := filepath.Join(t.TempDir(), "runs.db")
	for range 2 {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		read, write := io.Pipe()
		done := make(chan int, 1)
		go func() {
			defer func() { _ = write.Close() }() // closing a pipe never fails
			args := []string{"run", "-run", "R", "-store", db, "-ui", ":0", "-ui-stay", "-progress", "json", definition}
			done <- kahnCommand(ctx, args, newTerminal(strings.NewReader(""), write, io.Discard))
		}()
		lines := bufio.NewReader(read)
		for _, want := range []string{"run completed after ", "hello\n"} {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(line, want), line)
		}
		select {
		case code := <-done:
			t.Errorf("the page does not stay: exit code %d", code)
		default:
		}
		interrupt()
		_, _ = io.Copy(io.Discard, read) // until the command has ended
		require.Equal(t, exitOK, <-done)
	}
}

// A page that other machines can reach needs the flag -ui-remote. With this flag the page answers requests that name this machine as the host.
func TestPageRemote(t *testing.T) {
	t.Parallel()
	p := page{addr: "0.0.0.0:0", remote: true}
	listener, err := p.listen()
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	require.Contains(t, p.hosts(), "127.0.0.1")
	require.Empty(t, page{addr: ":0"}.hosts())
	for _, addr := range []string{":0", "localhost:0", "127.0.0.1:0", "[::1]:0"} {
		listener, err := page{addr: addr}.listen()
		if err != nil && strings.HasPrefix(addr, "[") {
			continue // this machine has no IPv6
		}
		require.NoError(t, err, addr)
		require.True(t, listener.Addr().(*net.TCPAddr).IP.IsLoopback(), addr)
		require.NoError(t, listener.Close())
	}
}
