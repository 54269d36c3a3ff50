package sse_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// answer is the response of a handler to one request.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request to a handler whose response ends by itself. Headers are given as pairs.
func ask(t testing.TB, h http.Handler, method, target string, headers ...string) answer {
	t.Helper()
	req := httptest.NewRequest(method, target, nil)
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return answer{rec.Code, rec.Header(), rec.Body.String()}
}

func TestCursor(t *testing.T) {
	// There are 11 events: run.started, three for each node, and run.completed.
	all := &sse.Handler{Find: sse.Fixed(finished(t, chain(3), nothing))}
	// This run keeps the last four of the same events.
	late := &sse.Handler{Find: sse.Fixed(finished(t, chain(3), nothing, kahn.Retain(4)))}

	for _, row := range []struct {
		name    string
		handler http.Handler
		query   string
		header  string
		code    int
		ids     string
	}{
		{"258 no cursor", all, "", "", 200, "1 2 3 4 5 6 7 8 9 10 11"},
		{"258 the query", all, "?afterEventId=3", "", 200, "4 5 6 7 8 9 10 11"},
		{"258 the header", all, "", "3", 200, "4 5 6 7 8 9 10 11"},
		{"258 the query beats the header", all, "?afterEventId=8", "3", 200, "9 10 11"},
		{"258 also if it is 0", all, "?afterEventId=0", "9", 200, "1 2 3 4 5 6 7 8 9 10 11"},
		{"258 the last event", all, "?afterEventId=10", "", 200, "11"},
		{"258 nothing after the last event", all, "?afterEventId=11", "", 200, ""},
		{"258 nor far beyond", all, "?afterEventId=18446744073709551615", "", 200, ""},
		{"258 who reconnects to that is told to stop", all, "", "11", 204, ""},
		{"260 a malformed header is ignored", all, "", "abc", 200, "1 2 3 4 5 6 7 8 9 10 11"},
		{"260 a negative header is ignored", all, "", "-1", 200, "1 2 3 4 5 6 7 8 9 10 11"},
		{"260 a malformed query", all, "?afterEventId=abc", "", 400, ""},
		{"260 also with a good header", all, "?afterEventId=abc", "3", 400, ""},
		{"260 a query that cannot be read", all, "?afterEventId=3;x", "", 400, ""},
		{"260 also where there is no cursor", all, "?%zz", "3", 400, ""},
		{"260 a negative query", all, "?afterEventId=-1", "", 400, ""},
		{"260 an empty query", all, "?afterEventId=", "", 400, ""},
		{"260 a query out of range", all, "?afterEventId=18446744073709551616", "", 400, ""},
		{"262 older than what is kept", late, "?afterEventId=6", "", 410, ""},
		{"262 by the header", late, "", "6", 410, ""},
		{"262 from the beginning", late, "", "", 410, ""},
		{"262 the oldest that is kept", late, "?afterEventId=7", "", 200, "8 9 10 11"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var headers []string
			if row.header != "" {
				headers = []string{"Last-Event-ID", row.header}
			}
			a := ask(t, row.handler, "GET", "/"+row.query, headers...)
			if a.code != row.code {
				t.Fatalf("status %d, expected %d", a.code, row.code)
			}
			if row.code != 200 {
				return
			}
			if got := ids(t, strings.NewReader(a.body)); got != row.ids {
				t.Errorf("events %q, expected %q", got, row.ids)
			}
		})
	}
}

// TestResetAhead: a client has seen events that a crash has lost. The response must make the client reset, since otherwise it would miss the
// new events with the same ids.
func TestResetAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		run := start(t, chain(1), func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil })
		synctest.Wait()
		h := &sse.Handler{Find: sse.Fixed(run)}
		_, last := run.EventRange()
		for _, accept := range []string{"application/json", "text/event-stream"} { // a stream would not end
			var body struct{ After, First uint64 }
			a := ask(t, h, "GET", fmt.Sprintf("/?afterEventId=%d", last+1), "Accept", accept)
			if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.code != 410 || body.After != last+1 || body.First != 1 {
				t.Errorf("%s: %d %s", accept, a.code, a.body)
				break
			}
		}
		if a := ask(t, h, "GET", fmt.Sprintf("/?afterEventId=%d", last), "Accept", "application/json"); a.code != 200 {
			t.Errorf("the last event: %d %s", a.code, a.body)
		}
		close(release)
		if _, err := run.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestReset(t *testing.T) {
	h := &sse.Handler{Find: sse.Fixed(finished(t, chain(3), nothing, kahn.Retain(4)))}
	var body struct {
		Error        string
		After, First uint64
	}
	for _, accept := range []string{"text/event-stream", "application/json"} {
		a := ask(t, h, "GET", "/?afterEventId=2", "Accept", accept)
		if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.code != 410 || body.After != 2 || body.First != 8 || body.Error == "" {
			t.Fatalf("%s: %d %s", accept, a.code, a.body)
		}
	}
	a := ask(t, h, "GET", fmt.Sprintf("/?afterEventId=%d", body.First-1))
	if got := ids(t, strings.NewReader(a.body)); got != "8 9 10 11" {
		t.Errorf("after the reset: %s", got)
	}
}

func TestHeaders(t *testing.T) {
	h := &sse.Handler{Find: sse.Fixed(finished(t, chain(1), nothing))}
	for _, method := range []string{"GET", "HEAD"} {
		a := ask(t, h, method, "/")
		for name, value := range map[string]string{
			"Content-Type":      "text/event-stream; charset=utf-8",
			"Cache-Control":     "no-cache, no-transform",
			"Connection":        "keep-alive",
			"X-Accel-Buffering": "no",
			"Transfer-Encoding": "",
		} {
			if got := a.header.Get(name); got != value {
				t.Errorf("%s: %s is %q, expected %q", method, name, got, value)
			}
		}
		if method == "HEAD" && a.body != "" {
			t.Errorf("HEAD has the body %q", a.body)
		}
	}
}

func TestFrames(t *testing.T) {
	run := finished(t, chain(1), nothing)
	a := ask(t, &sse.Handler{Find: sse.Fixed(run), Retry: 1500 * ms}, "GET", "/")
	var want strings.Builder
	want.WriteString("retry: 1500\n")
	for e, err := range run.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)
	}
	if a.body != want.String() {
		t.Errorf("got\n%s\nexpected\n%s", a.body, &want)
	}
}

// TestNoEmptyEvents reads streams like a client that delivers an event for every block of lines with a field.
func TestNoEmptyEvents(t *testing.T) {
	withheld := func(_ *http.Request, e event.Event) (event.Event, bool) { return e, e.Type != event.Heartbeat }
	for name, h := range map[string]*sse.Handler{
		"events":               {Retry: 1500 * ms},
		"heartbeats":           {Retry: 1500 * ms, Heartbeat: 20 * time.Second},
		"heartbeats withheld":  {Retry: 1500 * ms, Heartbeat: 20 * time.Second, Redact: withheld},
		"no retry":             {Heartbeat: 20 * time.Second, Redact: withheld},
		"none but heartbeats":  {Retry: 1500 * ms, Heartbeat: 20 * time.Second},
		"nothing for a minute": {Retry: 1500 * ms, Heartbeat: 20 * time.Second, Redact: withheld},
	} {
		inBubble(t, name, func(t *testing.T) {
			run := start(t, chain(1), takes(time.Minute))
			h.Find = sse.Fixed(run)
			target := "/"
			if name == "none but heartbeats" || name == "nothing for a minute" { // the client has no event yet
				synctest.Wait()
				target = "/?afterEventId=3"
			}
			body := ask(t, h, "GET", target).body
			events := 0
			for block := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
				fields := map[string]bool{}
				for line := range strings.SplitSeq(block, "\n") {
					if field, _, ok := strings.Cut(line, ":"); ok && field != "" {
						fields[field] = true
					}
				}
				if !fields["event"] || !fields["data"] {
					t.Errorf("an event without type or data: %q", block)
				}
				events++
			}
			if events < 2 {
				t.Errorf("%d events in %q", events, body)
			}
			if h.Retry > 0 != strings.HasPrefix(body, "retry: 1500\n") {
				t.Errorf("it begins with %.20q", body)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	run := finished(t, chain(1), nothing)
	fixed := sse.Fixed(run)
	deny := func(err error) *sse.Handler {
		return &sse.Handler{
			Authorize: func(*http.Request) error { return err },
			Find: func(*http.Request) (sse.Source, error) {
				t.Error("Find was asked for a request that is not authorised")
				return run, nil
			},
		}
	}
	find := func(err error) *sse.Handler {
		return &sse.Handler{Find: func(*http.Request) (sse.Source, error) { return nil, err }}
	}
	open := &sse.Handler{Find: fixed, Authorize: func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer me" {
			return &sse.StatusError{Code: 401, Message: "who are you?"}
		}
		return nil
	}}
	for _, row := range []struct {
		name    string
		handler http.Handler
		method  string
		headers []string
		code    int
		body    string
	}{
		{"reading is allowed", &sse.Handler{Find: fixed}, "GET", nil, 200, "id: 1\n"},
		{"asking for headers too", &sse.Handler{Find: fixed}, "HEAD", nil, 200, ""},
		{"posting is not", &sse.Handler{Find: fixed}, "POST", nil, 405, ""},
		{"nor anything else", &sse.Handler{Find: fixed}, "DELETE", nil, 405, ""},
		{"whatever the hook says", open, "PUT", []string{"Authorization", "Bearer me"}, 405, ""},
		{"the hook lets pass", open, "GET", []string{"Authorization", "Bearer me"}, 200, "id: 1\n"},
		{"the hook denies with a status", open, "GET", nil, 401, "who are you?\n"},
		{"also HEAD", open, "HEAD", nil, 401, ""},
		{"also pages", open, "GET", []string{"Accept", "application/json"}, 401, "who are you?\n"},
		{"any error denies", deny(errors.New("the database is at db:5432")), "GET", nil, 403, "Forbidden\n"},
		{"a wrapped status counts", deny(fmt.Errorf("x: %w", &sse.StatusError{Code: 402})), "GET", nil, 402, "Payment Required\n"},
		{"a status that allows is not a status", deny(&sse.StatusError{Code: 200}), "GET", nil, 403, "Forbidden\n"},
		{"nor is nil in disguise", deny((*sse.StatusError)(nil)), "GET", nil, 403, "Forbidden\n"},
		{"no such run", find(errors.New("the database is at db:5432")), "GET", nil, 404, "Not Found\n"},
		{"a lookup that fails otherwise", find(&sse.StatusError{Code: 503, RetryAfter: 1500 * ms}), "GET", nil, 503, ""},
		{"a run that keeps no events", &sse.Handler{Find: sse.Fixed(finished(t, chain(1), nothing, kahn.Retain(0)))}, "GET", nil, 404, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := ask(t, row.handler, row.method, "/", row.headers...)
			if a.code != row.code {
				t.Errorf("status %d, expected %d", a.code, row.code)
			}
			if !strings.HasPrefix(a.body, row.body) || strings.Contains(a.body, "database") || row.code != 200 && strings.Contains(a.body, "data:") {
				t.Errorf("body %q, expected %q", a.body, row.body)
			}
			if allow := a.header.Get("Allow"); row.code == 405 && allow != "GET, HEAD" {
				t.Errorf("Allow: %q", allow)
			}
			if after := a.header.Get("Retry-After"); row.code == 503 && after != "2" {
				t.Errorf("Retry-After: %q", after)
			}
		})
	}
}

// redactedID is the id that secretive gives to events. The id is long, so that it cannot occur by chance in a time or a trace id.
const redactedID = 4711471147114711

// secretive withholds node.queued, hides all names, and tries to change fields that Redact must not change.
func secretive(_ *http.Request, e event.Event) (event.Event, bool) {
	if e.Node != "" {
		e.Node, e.Path = "hidden", "hidden"
	}
	visible := e.Type != event.NodeQueued
	e.ID, e.Type = redactedID, "made.up"
	return e, visible
}

func TestRedact(t *testing.T) {
	h := &sse.Handler{Find: sse.Fixed(finished(t, chain(1), nothing, kahn.RunID("run"))), Redact: secretive}
	a := ask(t, h, "GET", "/")
	var got []string
	_ = frames(strings.NewReader(a.body), func(f frame) bool {
		got = append(got, f.id+" "+f.event)
		return true
	})
	want := "1 run.started,2 ,3 node.started,4 node.completed,5 run.completed"
	if strings.Join(got, ",") != want || strings.Contains(a.body, `"n0"`) || strings.Contains(a.body, fmt.Sprint(redactedID)) {
		t.Errorf("a stream of %s\n%s", strings.Join(got, ","), a.body)
	}
	h = &sse.Handler{Find: h.Find, Redact: func(_ *http.Request, e event.Event) (event.Event, bool) {
		e.Payload = func() {}
		return e, true
	}}
	if a := ask(t, h, "GET", "/"); a.body != "id: 1\n\nid: 2\n\nid: 3\n\nid: 4\n\nid: 5\n\n" {
		t.Errorf("a payload that cannot be encoded: %s", a.body)
	}
}

func TestRedactHeartbeat(t *testing.T) {
	inBubble(t, "a heartbeat that is withheld is a comment", func(t *testing.T) {
		h := &sse.Handler{
			Find: sse.Fixed(start(t, chain(1), takes(time.Minute))), Heartbeat: 45 * time.Second,
			Redact: func(_ *http.Request, e event.Event) (event.Event, bool) { return e, false },
		}
		if a := ask(t, h, "GET", "/"); a.body != "id: 1\n\nid: 2\n\nid: 3\n\n:\nid: 4\n\nid: 5\n\n" {
			t.Errorf("%q", a.body)
		}
	})
}

// TestRedactGoroutine: Redact runs only on the request's goroutine. So a Redact with state for each request needs no lock, and a panic ends the
// request as in any other handler.
func TestRedactGoroutine(t *testing.T) {
	inBubble(t, "events and heartbeats", func(t *testing.T) {
		now, most, calls := atomic.Int32{}, int32(0), 0
		src := &source{status: kahn.RunCompleted, last: 3, events: func(_ context.Context, after uint64, yield func(event.Event, error) bool) {
			for id := after + 1; id <= 3; id++ {
				time.Sleep(time.Second)
				if !yield(event.Event{ID: id, Type: event.NodeQueued, RunID: "run"}, nil) {
					return
				}
			}
			time.Sleep(time.Second)
		}}
		h := &sse.Handler{Find: sse.Fixed(src), Heartbeat: 300 * ms, Redact: func(_ *http.Request, e event.Event) (event.Event, bool) {
			most = max(most, now.Add(1))
			calls++
			time.Sleep(500 * ms)
			now.Add(-1)
			return e, true
		}}
		if a := ask(t, h, "GET", "/"); ids(t, strings.NewReader(a.body)) != "1 2 3" || strings.Count(a.body, "event: heartbeat") < 2 {
			t.Errorf("%s", a.body)
		}
		if most != 1 || calls < 5 {
			t.Errorf("%d of %d calls at the same time", most, calls)
		}
	})
	inBubble(t, "a panic", func(t *testing.T) {
		h := &sse.Handler{Find: sse.Fixed(finished(t, chain(1), nothing)), Redact: func(*http.Request, event.Event) (event.Event, bool) { panic("no") }}
		defer func() {
			if v := recover(); v != "no" {
				t.Errorf("the server gets %v", v)
			}
		}()
		ask(t, h, "GET", "/")
	})
}

func TestRedactPage(t *testing.T) {
	h := &sse.Handler{Find: sse.Fixed(finished(t, chain(1), nothing, kahn.RunID("run"))), Redact: secretive}
	p := readPage(t, h, "/")
	if len(p.Events) != 5 || string(p.Events[1]) != `{"eventId":2}` || strings.Contains(p.text, `"n0"`) || strings.Contains(p.text, fmt.Sprint(redactedID)) {
		t.Errorf("a page of %s", p.text)
	}
}

type page struct {
	Events      []json.RawMessage
	LastEventID uint64
	More, Done  bool
	text        string
}

func readPage(t *testing.T, h http.Handler, target string) (p page) {
	t.Helper()
	a := ask(t, h, "GET", target, "Accept", "application/json")
	if a.code != 200 || a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", a.code, a.header)
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatal(err)
	}
	p.text = a.body
	return p
}

func TestPage(t *testing.T) {
	run := finished(t, chain(3), nothing)
	h := &sse.Handler{Find: sse.Fixed(run)}
	for _, row := range []struct {
		target string
		events int
		last   uint64
	}{{"/", 11, 11}, {"/?afterEventId=4", 7, 11}, {"/?afterEventId=11", 0, 11}} {
		p := readPage(t, h, row.target)
		if len(p.Events) != row.events || p.LastEventID != row.last || !p.Done || p.More {
			t.Errorf("%s: %s", row.target, p.text)
		}
	}
	if p := readPage(t, h, "/?afterEventId=11"); !strings.Contains(p.text, `"events":[]`) {
		t.Errorf("no events are %s", p.text)
	}

	t.Run("many of them", func(t *testing.T) {
		large := strings.Repeat("x", 10_000)
		run := finished(t, chain(1), func(_ context.Context, s *kahn.Step) (any, error) {
			for range 100 {
				s.Emit(large)
			}
			return nil, nil
		})
		h := &sse.Handler{Find: sse.Fixed(run)}
		var after, pages uint64
		for done := false; !done; pages++ {
			p := readPage(t, h, fmt.Sprintf("/?afterEventId=%d", after))
			if len(p.text) > 300_000 || p.LastEventID != after+uint64(len(p.Events)) || p.More == p.Done || pages > 10 {
				t.Fatalf("after %d: %d events up to %d, %d bytes, more %v, done %v", after, len(p.Events), p.LastEventID, len(p.text), p.More, p.Done)
			}
			after, done = p.LastEventID, p.Done
		}
		if after != 105 || pages < 4 {
			t.Errorf("%d events on %d pages", after, pages)
		}
	})

	inBubble(t, "while the run goes on", func(t *testing.T) {
		run := start(t, chain(1), takes(time.Second))
		h := &sse.Handler{Find: sse.Fixed(run)}
		synctest.Wait()
		if p := readPage(t, h, "/"); len(p.Events) != 3 || p.LastEventID != 3 || p.Done || p.More {
			t.Errorf("%s", p.text)
		}
		if p := readPage(t, h, "/?afterEventId=3"); len(p.Events) != 0 || p.LastEventID != 3 || p.Done || p.More {
			t.Errorf("%s", p.text)
		}
		_, _ = run.Wait()
		if p := readPage(t, h, "/?afterEventId=3"); len(p.Events) != 2 || p.LastEventID != 5 || !p.Done || p.More {
			t.Errorf("%s", p.text)
		}
	})
}

// plain is a ResponseWriter without optional methods.
type plain struct{ http.ResponseWriter }

func TestUnflushable(t *testing.T) {
	run := finished(t, chain(3), nothing)
	h := &sse.Handler{Find: sse.Fixed(run)}
	a := ask(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(plain{w}, r) }), "GET", "/?afterEventId=8",
		"Accept", "text/event-stream")
	var p page
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.code != 200 || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s", a.code, a.header, a.body)
	}
	if len(p.Events) != 3 || !p.Done || a.header.Get("X-Accel-Buffering") != "" {
		t.Errorf("%v %s", a.header, a.body)
	}
}

func TestSeam(t *testing.T) {
	inBubble(t, "261 subscribers who come while the run emits", func(t *testing.T) {
		const last = 3*20 + 2
		run := start(t, chain(20), takes(ms))
		_, client := serve(t, &http.Server{Handler: &sse.Handler{Find: sse.Fixed(run)}})
		var readers sync.WaitGroup
		for i := range 60 {
			readers.Go(func() {
				after := i % 7
				resp, err := client.Get(fmt.Sprintf("http://memory/?afterEventId=%d", after))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				var want []string
				for id := after + 1; id <= last; id++ {
					want = append(want, fmt.Sprint(id))
				}
				if got := ids(t, resp.Body); got != strings.Join(want, " ") {
					t.Errorf("after %d: %s", after, got)
				}
			})
			time.Sleep(300 * time.Microsecond)
		}
		readers.Wait()
	})
}

func TestHeartbeat(t *testing.T) {
	inBubble(t, "264 heartbeats have no ids and are not replayed", func(t *testing.T) {
		run := start(t, chain(2), takes(25*time.Second))
		_, client := serve(t, &http.Server{Handler: &sse.Handler{Find: sse.Fixed(run), Heartbeat: 10 * time.Second}})
		began := time.Now()
		resp, err := client.Get("http://memory/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		// The test records each heartbeat with the silence before it. Events in quick succession are sent in one write or in two, 20 ms apart.
		// The silence begins with the last event that the client got.
		var got []string
		last := began
		_ = frames(resp.Body, func(f frame) bool {
			now := time.Now()
			silence := now.Sub(last)
			last = now
			if f.event != "heartbeat" {
				got = append(got, f.id)
				return true
			}
			var beat struct {
				EventID   *uint64
				Type      string
				RunID     string
				Timestamp time.Time
				Payload   struct{ LastEventID uint64 }
			}
			if err := json.Unmarshal([]byte(f.data), &beat); err != nil {
				t.Error(err)
			}
			if f.id != "" || beat.EventID != nil || beat.Type != "heartbeat" || beat.RunID != run.ID() || !beat.Timestamp.Equal(now) {
				t.Errorf("a heartbeat is %+v", f)
			}
			got = append(got, fmt.Sprintf("%v:%d", silence, beat.Payload.LastEventID))
			return true
		})
		if want := "1 2 3 10s:3 10s:3 4 5 6 10s:6 10s:6 7 8"; strings.Join(got, " ") != want {
			t.Errorf("got      %s\nexpected %s", strings.Join(got, " "), want)
		}
		again, err := client.Get("http://memory/?afterEventId=2")
		if err != nil {
			t.Fatal(err)
		}
		defer again.Body.Close()
		text, _ := io.ReadAll(again.Body)
		if strings.Contains(string(text), "heartbeat") || ids(t, strings.NewReader(string(text))) != "3 4 5 6 7 8" {
			t.Errorf("replayed:\n%s", text)
		}
	})
}

func TestBounds(t *testing.T) {
	inBubble(t, "the number of streams, in all and of one key", func(t *testing.T) {
		run := start(t, chain(1), takes(time.Hour))
		h := &sse.Handler{
			Find: sse.Fixed(run), MaxStreams: 3, MaxStreamsPerKey: 2,
			Key: func(r *http.Request) string { return r.URL.Query().Get("user") },
		}
		_, client := serve(t, &http.Server{Handler: h})
		open := func(user string, code int) func() {
			t.Helper()
			ctx, hangUp := context.WithCancel(t.Context())
			var status int
			var after string
			go func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://memory/?user="+user, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				status, after = resp.StatusCode, resp.Header.Get("Retry-After")
				<-ctx.Done()
			}()
			synctest.Wait()
			if status != code {
				t.Errorf("%s: status %d, expected %d", user, status, code)
			}
			if code == 503 && after != "5" {
				t.Errorf("Retry-After: %q", after)
			}
			return func() { hangUp(); synctest.Wait() }
		}
		one := open("ann", 200)
		two := open("ann", 200)
		open("ann", 503)()
		three := open("bob", 200)
		open("bob", 503)() // 503 because of the bound on all streams
		two()
		open("bob", 200)()
		open("ann", 200)()
		one()
		three()
		run.Cancel()
		_, _ = run.Wait()
	})
}
