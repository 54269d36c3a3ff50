package sse_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// visit records one request to the server.
type visit struct {
	at    time.Duration // since the first request
	after string
}

// script is a server that answers the n-th request with its n-th part, and all further requests with 404.
type script struct {
	parts  []func(http.ResponseWriter)
	visits []visit
	began  time.Time
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	n := len(s.visits)
	s.visits = append(s.visits, visit{time.Since(s.began), r.Header.Get("Last-Event-ID")})
	if n < len(s.parts) {
		s.parts[n](w)
		return
	}
	http.Error(w, "the script is over", 404)
}

// says responds with a stream.
func says(blocks ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(blocks, ""))
	}
}

func refuses(code int, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for pair := range slices.Chunk(header, 2) {
			w.Header().Set(pair[0], pair[1])
		}
		http.Error(w, "no", code)
	}
}

func answers(kind, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}
}

// block returns an event as the server sends it.
func block(e event.Event) string {
	e.RunID = "run"
	data, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	text := fmt.Sprintf("event: %s\ndata: %s\n\n", e.Type, data)
	if e.ID != 0 {
		text = fmt.Sprintf("id: %d\n", e.ID) + text
	}
	return text
}

func queued(id uint64) string {
	return block(event.Event{ID: id, Type: event.NodeQueued, Node: "A"})
}

func part(id uint64, node string, index int) string {
	return block(event.Event{ID: id, Type: event.NodeDelta, Node: node, Path: node, Payload: event.Delta{Index: index, Chunk: "x"}})
}

func end(id uint64) string {
	return block(event.Event{ID: id, Type: event.RunCompleted, Payload: event.RunEnd{Status: kahn.RunCompleted}})
}

func alive(last uint64) string {
	return block(event.Event{Type: event.Heartbeat, Payload: event.Beat{Last: last}})
}

// withheld returns the frame of an event that the client may not see.
func withheld(id uint64) string { return fmt.Sprintf("id: %d\n\n", id) }

// collect reads to the end of the stream. It returns the ids of the events and, for deltas, the node and the index.
func collect(ctx context.Context, c *sse.Client, after uint64) (string, error) {
	var got []string
	for e, err := range c.Events(ctx, after) {
		if err != nil {
			return strings.Join(got, " "), err
		}
		text := fmt.Sprint(e.ID)
		if d, ok := e.Payload.(event.Delta); ok {
			text += fmt.Sprintf(":%s%d", e.Node, d.Index)
		}
		got = append(got, text)
	}
	return strings.Join(got, " "), nil
}

func TestClient(t *testing.T) {
	for _, row := range []struct {
		name   string
		after  uint64
		parts  []func(http.ResponseWriter)
		want   string
		cursor string // the client's cursor in each request
		err    string
	}{
		{"one stream", 0, []func(http.ResponseWriter){says(queued(1), queued(2), end(3))}, "1 2 3", "''", ""},
		{"from a cursor", 5, []func(http.ResponseWriter){says(queued(6), end(7))}, "6 7", "'5'", ""},
		{"cut between events", 0, []func(http.ResponseWriter){says(queued(1)), says(queued(2), end(3))}, "1 2 3", "'' '1'", ""},
		{"cut within an event", 0, []func(http.ResponseWriter){says(queued(1), queued(2)[:20]), says(queued(2), end(3))}, "1 2 3", "'' '1'", ""},
		{"cut before the first", 0, []func(http.ResponseWriter){says(), says(queued(1), end(2))}, "1 2", "'' ''", ""},
		{"nothing after the end", 0, []func(http.ResponseWriter){says(queued(1), end(2), queued(3))}, "1 2", "''", ""},
		{"duplicates", 0, []func(http.ResponseWriter){says(queued(1), queued(2), queued(2), queued(1)), says(queued(1), queued(2), queued(3), end(4))}, "1 2 3 4", "'' '2'", ""},
		{"a finished run", 7, []func(http.ResponseWriter){refuses(204)}, "", "'7'", ""},

		{"a hole in ids", 0, []func(http.ResponseWriter){says(queued(1), queued(3), end(4)), says(queued(2), queued(3), end(4))}, "1 2 3 4", "'' '1'", ""},
		{"a hole at the beginning", 5, []func(http.ResponseWriter){says(queued(7), end(8)), says(queued(6), queued(7), end(8))}, "6 7 8", "'5' '5'", ""},
		{"a hole that stays", 0, []func(http.ResponseWriter){says(queued(1), queued(4)), says(queued(4), end(5))}, "1", "'' '1'", "events 2 to 3 are missing"},
		{"two holes", 0, []func(http.ResponseWriter){says(queued(1), queued(3)), says(queued(2), end(4)), says(queued(3), end(4))}, "1 2 3 4", "'' '1' '2'", ""},
		{"a heartbeat tells of a hole", 0, []func(http.ResponseWriter){says(queued(1), alive(2)), says(queued(2), end(3))}, "1 2 3", "'' '1'", ""},
		{"a heartbeat has no id", 0, []func(http.ResponseWriter){says(alive(0), queued(1), alive(1), alive(1), queued(2), end(3))}, "1 2 3", "''", ""},

		{"deltas", 0, []func(http.ResponseWriter){says(part(1, "A", 1), part(2, "B", 1), part(3, "A", 2), end(4))}, "1:A1 2:B1 3:A2 4", "''", ""},
		{"deltas again", 0, []func(http.ResponseWriter){says(part(1, "A", 1), part(2, "A", 2)), says(part(3, "A", 1), part(4, "A", 2), part(5, "A", 3), end(6))}, "1:A1 2:A2 5:A3 6", "'' '2'", ""},
		{"a hole in deltas", 0, []func(http.ResponseWriter){says(part(1, "A", 1), part(2, "A", 3)), says(part(2, "A", 2), part(3, "A", 3), end(4))}, "1:A1 2:A2 3:A3 4", "'' '1'", ""},
		{"a hole in deltas that stays", 0, []func(http.ResponseWriter){says(part(1, "A", 1), part(2, "A", 4)), says(part(2, "A", 4), end(3))}, "1:A1", "'' '1'", `deltas 2 to 3 of node "A" are missing`},
		{"the first delta is missing", 0, []func(http.ResponseWriter){says(part(1, "A", 2)), says(part(1, "A", 2))}, "", "'' ''", `deltas 1 to 1 of node "A" are missing`},
		{"deltas before the cursor", 5, []func(http.ResponseWriter){says(part(6, "A", 9), part(7, "A", 10), end(8))}, "6:A9 7:A10 8", "'5'", ""},
		{"a hole in deltas after a cursor", 5, []func(http.ResponseWriter){says(part(6, "A", 9), part(7, "A", 11)), says(part(7, "A", 10), part(8, "A", 11), end(9))}, "6:A9 7:A10 8:A11 9", "'5' '6'", ""},

		{"events withheld", 0, []func(http.ResponseWriter){says(queued(1), withheld(2), withheld(3), queued(4)), says(withheld(5), end(6))}, "1 4 6", "'' '4'", ""},
		{"the last is withheld", 0, []func(http.ResponseWriter){says(queued(1), withheld(2)), refuses(204)}, "1", "'' '2'", ""},
		{"deltas withheld", 0, []func(http.ResponseWriter){says(part(1, "A", 1), withheld(2), part(3, "A", 3), end(4))}, "1:A1 3:A3 4", "''", ""},
		{"deltas withheld, others lost", 0, []func(http.ResponseWriter){says(withheld(1), part(2, "A", 2), part(3, "A", 4)), says(part(3, "A", 3), end(4))}, "2:A2 3:A3 4", "'' '2'", ""},
		{"a hole before what is withheld", 0, []func(http.ResponseWriter){says(queued(1), withheld(3)), says(queued(2), withheld(3), end(4))}, "1 2 4", "'' '1'", ""},

		{"refused", 0, []func(http.ResponseWriter){refuses(401)}, "", "''", "status 401: no"},
		{"refused later", 0, []func(http.ResponseWriter){says(queued(1)), refuses(403)}, "1", "'' '1'", "status 403: no"},
		{"unavailable", 0, []func(http.ResponseWriter){refuses(503), refuses(500), refuses(429), says(end(1))}, "1", "'' '' '' ''", ""},
		{"events are gone", 3, []func(http.ResponseWriter){refuses(410)}, "", "'3'", "status 410: no"},
		{"events are gone, from when on", 3, []func(http.ResponseWriter){func(w http.ResponseWriter) {
			w.WriteHeader(410)
			_, _ = io.WriteString(w, `{"error":"x","after":3,"first":9}`)
		}}, "", "'3'", "events 4 to 8 are no longer kept"},
		{"no stream", 0, []func(http.ResponseWriter){answers("text/html", "<p>")}, "", "''", `the type "text/html", not`},
		{"no JSON", 0, []func(http.ResponseWriter){says("id: 1\ndata: x\n\n")}, "", "''", "event 1: invalid"},
		{"no id", 0, []func(http.ResponseWriter){says("data: {}\n\n")}, "", "''", `the id ""`},
		{"two ids", 0, []func(http.ResponseWriter){says(strings.Replace(queued(1), "id: 1", "id: 2", 1))}, "", "''", "event 1 has the id 2"},
		{"another run", 0, []func(http.ResponseWriter){says(queued(1)), says(strings.ReplaceAll(end(2), `"run"`, `"ran"`))}, "1", "'' '1'", "belonged to run run and now belongs to run ran"},
		{"too long", 0, []func(http.ResponseWriter){says(queued(1), "data: "+strings.Repeat("x", 5000)+"\n\n")}, "1", "''", "longer than the client's MaxBytes"},

		{"pages", 0, []func(http.ResponseWriter){
			answers("application/json", `{"events":[{"eventId":1,"type":"node.queued","runId":"run"},{"eventId":2}],"lastEventId":2,"more":true}`),
			answers("application/json", `{"events":[{"eventId":3,"type":"node.queued","runId":"run"}],"lastEventId":3}`),
			answers("application/json", `{"events":[],"lastEventId":3}`),
			answers("application/json", `{"events":[{"eventId":4,"type":"run.failed","runId":"run","payload":{"status":"failed"}}],"lastEventId":4,"done":true}`),
		}, "1 3 4", "'' '2' '3' '3'", ""},
		{"a page of the end", 9, []func(http.ResponseWriter){answers("application/json", `{"events":[],"lastEventId":9,"done":true}`)}, "", "'9'", ""},
		{"a hole in a page", 0, []func(http.ResponseWriter){
			answers("application/json", `{"events":[{"eventId":2,"type":"node.queued","runId":"run"}],"lastEventId":2}`), says(queued(1), end(2)),
		}, "1 2", "'' ''", ""},
		{"no page", 0, []func(http.ResponseWriter){answers("application/json", `[]`)}, "", "''", "a page of events"},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			s := &script{parts: row.parts}
			_, client := serve(t, &http.Server{Handler: s})
			got, err := collect(t.Context(), &sse.Client{URL: "http://memory/", HTTP: client, MaxBytes: 4000}, row.after)
			if got != row.want {
				t.Errorf("got      %s\nexpected %s", got, row.want)
			}
			if (err != nil) != (row.err != "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("error %v, expected %q", err, row.err)
			}
			var cursors []string
			for _, v := range s.visits {
				cursors = append(cursors, "'"+v.after+"'")
			}
			if strings.Join(cursors, " ") != row.cursor {
				t.Errorf("it came with %s, expected %s", strings.Join(cursors, " "), row.cursor)
			}
		})
	}
}

func TestClientErrors(t *testing.T) {
	inBubble(t, "have types", func(t *testing.T) {
		ask := func(part func(http.ResponseWriter), url string) error {
			_, client := serve(t, &http.Server{Handler: &script{parts: []func(http.ResponseWriter){part, part}}})
			_, err := collect(t.Context(), &sse.Client{URL: url, HTTP: client}, 0)
			return err
		}
		var status *sse.StatusError
		if err := ask(refuses(402), "http://memory/"); !errors.As(err, &status) || status.Code != 402 {
			t.Errorf("%v", err)
		}
		var lost *sse.LostError
		if err := ask(says(queued(3)), "http://memory/"); !errors.As(err, &lost) || *lost != (sse.LostError{Last: 0, Next: 3}) {
			t.Errorf("%v", err)
		}
		for _, url := range []string{"memory/events", "://", "/events"} {
			if err := ask(says(end(1)), url); err == nil {
				t.Errorf("%q is taken for a URL", url)
			}
		}
	})

	inBubble(t, "the end of a context", func(t *testing.T) {
		run := start(t, chain(1), takes(time.Hour))
		_, client := serve(t, &http.Server{Handler: &sse.Handler{Find: sse.Fixed(run)}})
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		if got, err := collect(ctx, &sse.Client{URL: "http://memory/", HTTP: client}, 0); got != "1 2 3" || err != enough {
			t.Errorf("while it reads: %s, %v", got, err)
		}
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		began := time.Now()
		refused := &http.Client{Transport: &http.Transport{DialContext: (&network{done: closedChannel()}).dial}}
		_, err := collect(ctx, &sse.Client{URL: "http://memory/", HTTP: refused}, 0)
		if err != enough || time.Since(began) != time.Minute {
			t.Errorf("while it waits: %v after %v", err, time.Since(began))
		}
		run.Cancel()
		_, _ = run.Wait()
	})
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestClientWaits(t *testing.T) {
	waits := func(t *testing.T, c sse.Client, parts ...func(http.ResponseWriter)) (between []time.Duration, err error) {
		t.Helper()
		s := &script{parts: parts}
		_, c.HTTP = serve(t, &http.Server{Handler: s})
		c.URL = "http://memory/"
		_, err = collect(t.Context(), &c, 0)
		for i := 1; i < len(s.visits); i++ {
			between = append(between, s.visits[i].at-s.visits[i-1].at)
		}
		return between, err
	}
	inBubble(t, "a second by default", func(t *testing.T) {
		got, err := waits(t, sse.Client{}, says(queued(1)), says(queued(2)), says(end(3)))
		if err != nil || !slices.Equal(got, []time.Duration{time.Second, time.Second}) {
			t.Errorf("%v, %v", got, err)
		}
	})
	inBubble(t, "as long as the server says", func(t *testing.T) {
		got, err := waits(t, sse.Client{Wait: time.Minute}, says("retry: 250\n", queued(1)), says(queued(2)), says("retry: 5000\n\n", queued(3)), says(end(4)))
		if err != nil || !slices.Equal(got, []time.Duration{250 * ms, 250 * ms, 5 * time.Second}) {
			t.Errorf("%v, %v", got, err)
		}
	})
	inBubble(t, "longer and longer if nothing comes, and anew when something came", func(t *testing.T) {
		no := refuses(503)
		got, err := waits(t, sse.Client{}, no, no, no, no, no, no, no, no, says(alive(0)), no, says(queued(1)), says(end(2)))
		if err != nil {
			t.Fatal(err)
		}
		for i, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30, 1, 2, 1} {
			if got[i] < time.Second || got[i] > most*time.Second {
				t.Errorf("wait %d is %v, expected 1s to %ds", i, got[i], most)
			}
		}
	})
	inBubble(t, "as Retry-After says", func(t *testing.T) {
		at := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
		got, err := waits(t, sse.Client{}, refuses(503, "Retry-After", "40"), refuses(429, "Retry-After", at), refuses(503, "Retry-After", "x"), says(end(1)))
		if err != nil || got[0] != 40*time.Second || got[1] != 50*time.Second || got[2] > 4*time.Second {
			t.Errorf("%v, %v", got, err)
		}
	})
	inBubble(t, "for pages, which may be empty", func(t *testing.T) {
		none := answers("application/json", `{"events":[],"lastEventId":0}`)
		got, err := waits(t, sse.Client{Attempts: 3}, none, none, none, none, none, says(end(1)))
		if second := time.Second; err != nil || !slices.Equal(got, []time.Duration{second, second, second, second, second}) {
			t.Errorf("%v, %v", got, err)
		}
	})
	inBubble(t, "not for the next page, if there is one", func(t *testing.T) {
		more := answers("application/json", `{"events":[{"eventId":1,"type":"node.queued","runId":"run"}],"lastEventId":1,"more":true}`)
		got, err := waits(t, sse.Client{}, more, says(end(2)))
		if err != nil || !slices.Equal(got, []time.Duration{0}) {
			t.Errorf("%v, %v", got, err)
		}
	})
	inBubble(t, "not more often than it is told", func(t *testing.T) {
		got, err := waits(t, sse.Client{Attempts: 3}, refuses(503), says(queued(1)), refuses(502), refuses(503), says(end(2)))
		var status *sse.StatusError
		if len(got) != 3 || !errors.As(err, &status) || status.Code != 503 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestClientLeaves(t *testing.T) {
	inBubble(t, "and the server knows", func(t *testing.T) {
		run := start(t, chain(1), takes(time.Hour))
		h := &sse.Handler{Find: sse.Fixed(run)}
		served := 0
		_, client := serve(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			served++
		})})
		c := &sse.Client{URL: "http://memory/", HTTP: client}
		for e, err := range c.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.ID == 2 {
				break
			}
		}
		synctest.Wait()
		if served != 1 {
			t.Error("the stream goes on")
		}
		run.Cancel()
		_, _ = run.Wait()
	})
}

// cutting is a ResponseWriter whose connection breaks after some events, in the middle of the next event. This may be in the middle of a
// write with several events.
type cutting struct {
	http.ResponseWriter
	left *int
}

func (c cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c cutting) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		rest := b[written:]
		end := bytes.Index(rest, []byte("\n\n")) + 2
		switch {
		case end < 2: // only a field, before the first event
			end = len(rest)
		case *c.left == 0:
			_, _ = c.ResponseWriter.Write(rest[:end/2])
			_ = http.NewResponseController(c.ResponseWriter).Flush()
			panic(http.ErrAbortHandler)
		default:
			*c.left--
		}
		n, err := c.ResponseWriter.Write(rest[:end])
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// cuts breaks each connection after n events.
func cuts(h http.Handler, n int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := n
		h.ServeHTTP(cutting{w, &left}, r)
	})
}

// The client yields the same events as the run's own log, wherever connections break.
func TestClientAgainstHandler(t *testing.T) {
	deltas := func(_ context.Context, s *kahn.Step) (any, error) {
		for i := range 100 {
			s.Emit(i)
			if i%10 == 0 {
				time.Sleep(ms)
			}
		}
		return nil, nil
	}
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"as it is":                   func(h http.Handler) http.Handler { return h },
		"cut after every 150":        func(h http.Handler) http.Handler { return cuts(h, 150) },
		"cut after every single one": func(h http.Handler) http.Handler { return cuts(h, 1) },
		"through what does not flush": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(plain{w}, r) })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			g := chain(10)
			run := start(t, g, deltas)
			_, client := serve(t, &http.Server{Handler: wrap(&sse.Handler{Find: sse.Fixed(run), Retry: ms})})
			var got, want []event.Event
			for e, err := range (&sse.Client{URL: "http://memory/", HTTP: client}).Events(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e)
			}
			for e, err := range run.Events(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				data, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				var decoded event.Event
				if err := json.Unmarshal(data, &decoded); err != nil {
					t.Fatal(err)
				}
				want = append(want, decoded)
			}
			if len(want) != 10*103+2 || !reflect.DeepEqual(got, want) {
				t.Errorf("%d events, expected %d", len(got), len(want))
			}
		})
	}
}

func TestClientRedacted(t *testing.T) {
	inBubble(t, "what is withheld is no hole", func(t *testing.T) {
		run := start(t, chain(3), takes(ms))
		for _, wrap := range []func(http.ResponseWriter) http.ResponseWriter{
			func(w http.ResponseWriter) http.ResponseWriter { return w },
			func(w http.ResponseWriter) http.ResponseWriter { return plain{w} },
		} {
			h := &sse.Handler{Find: sse.Fixed(run), Redact: secretive}
			_, client := serve(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrap(w), r) })})
			if got, err := collect(t.Context(), &sse.Client{URL: "http://memory/", HTTP: client}, 0); got != "1 3 4 6 7 9 10 11" || err != nil {
				t.Errorf("%s, %v", got, err)
			}
		}
	})
}
