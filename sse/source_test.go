package sse_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/sse"
)

// source is a run whose state the test sets.
type source struct {
	status kahn.RunStatus
	last   uint64
	events func(ctx context.Context, after uint64, yield func(event.Event, error) bool)
}

func (s *source) Status() kahn.RunStatus           { return s.status }
func (s *source) EventRange() (first, last uint64) { return 1, s.last }
func (s *source) Heartbeat() event.Event {
	return event.Event{Type: event.Heartbeat, RunID: "run", Payload: event.Beat{Last: s.last + 1}} // as if another event had happened just before the heartbeat
}
func (s *source) Events(ctx context.Context, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) { s.events(ctx, after, yield) }
}

func TestSources(t *testing.T) {
	inBubble(t, "a handler outlives the reading of its source", func(t *testing.T) {
		reading := atomic.Bool{}
		src := &source{status: kahn.RunRunning, events: func(ctx context.Context, _ uint64, _ func(event.Event, error) bool) {
			reading.Store(true)
			<-ctx.Done()
			time.Sleep(time.Second)
			reading.Store(false)
		}}
		served := make(chan bool, 1)
		h := &sse.Handler{Find: sse.Fixed(src)}
		n, _ := serve(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			served <- !reading.Load()
		})})
		conn := connect(t, n, 0)
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		conn.Close()
		if !<-served {
			t.Error("the source is still being read")
		}
	})

	for name, events := range map[string]func(yield func(event.Event, error) bool){
		"a source that fails ends the stream, which can be resumed": func(yield func(event.Event, error) bool) { yield(event.Event{}, errors.New("no")) },
		"a source that panics too":                                  func(func(event.Event, error) bool) { panic("no") },
	} {
		inBubble(t, name, func(t *testing.T) {
			src := &source{status: kahn.RunRunning, last: 2, events: func(_ context.Context, after uint64, yield func(event.Event, error) bool) {
				for id := after + 1; id <= 2; id++ {
					if !yield(event.Event{ID: id, Type: event.NodeQueued, RunID: "run"}, nil) {
						return
					}
				}
				events(yield)
			}}
			h := &sse.Handler{Find: sse.Fixed(src)}
			if a := ask(t, h, "GET", "/"); a.code != 200 || ids(t, strings.NewReader(a.body)) != "1 2" {
				t.Errorf("%d %s", a.code, a.body)
			}
			_, client := serve(t, &http.Server{Handler: h})
			got, err := collect(t.Context(), &sse.Client{URL: "http://memory/", HTTP: client, Attempts: 3}, 0)
			if got != "1 2" || err == nil {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// A run is left while it waits for a signal, and is later continued from its snapshot. The stream continues with the
// next ids.
func TestSuspended(t *testing.T) {
	inBubble(t, "a stream stays open until the run goes on, and then to its end", func(t *testing.T) {
		log := func(upto uint64, last event.Type) func(context.Context, uint64, func(event.Event, error) bool) {
			return func(_ context.Context, after uint64, yield func(event.Event, error) bool) {
				for id := after + 1; id <= upto; id++ {
					e := event.Event{ID: id, Type: event.NodeQueued, RunID: "run"}
					if id == upto {
						e.Type = last
						e.Payload = map[event.Type]any{
							event.RunStatusChanged: event.StatusChange{}, event.RunCompleted: event.RunEnd{},
						}[last]
					}
					if !yield(e, nil) {
						return
					}
				}
			}
		}
		left := &source{status: kahn.RunSuspended, last: 3, events: log(3, event.RunStatusChanged)}
		resumed := &source{status: kahn.RunCompleted, last: 6, events: log(6, event.RunCompleted)}
		began := time.Now()
		h := &sse.Handler{Find: func(*http.Request) (sse.Source, error) {
			if time.Since(began) < time.Hour {
				return left, nil
			}
			return resumed, nil
		}}
		connections := 0
		_, client := serve(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connections++
			h.ServeHTTP(w, r)
		})})
		got, err := collect(t.Context(), &sse.Client{URL: "http://memory/", HTTP: client}, 0)
		if got != "1 2 3 4 5 6" || err != nil || connections != 1 {
			t.Errorf("%s, %v, over %d connections", got, err, connections)
		}
		if d := time.Since(began); d < time.Hour || d > time.Hour+2*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestResumed(t *testing.T) {
	inBubble(t, "265 event ids and delta indices continue, on the stream that was open", func(t *testing.T) {
		var g kahn.Graph
		g.Add(kahn.Node{ID: "A", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("x")
			s.Emit("y")
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("token", nil, nil)
			}
			return nil, nil
		}})
		first := start(t, &g, nil)
		var now atomic.Pointer[kahn.Run]
		now.Store(first)
		connections := 0
		h := &sse.Handler{Find: func(*http.Request) (sse.Source, error) { return now.Load(), nil }}
		_, client := serve(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connections++
			h.ServeHTTP(w, r)
		})})
		go func() {
			time.Sleep(time.Hour) // the run is suspended, and still in memory
			first.Leave()
			res, err := first.Wait()
			if err != nil || res.Status != kahn.RunSuspended {
				t.Errorf("%v, %v", res, err)
			}
			time.Sleep(time.Hour) // the run is suspended, and only in the snapshot
			now.Store(start(t, &g, nil, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"A": "go on"})))
		}()
		got, err := collect(t.Context(), &sse.Client{URL: "http://memory/", HTTP: client}, 0)
		var deltas []string
		for i, text := range strings.Fields(got) {
			id, delta, ok := strings.Cut(text, ":")
			if id != fmt.Sprint(i+1) {
				t.Errorf("event %d has the id %s", i+1, id)
			}
			if ok {
				deltas = append(deltas, delta)
			}
		}
		if err != nil || connections != 1 || strings.Join(deltas, " ") != "A1 A2 A3 A4" {
			t.Errorf("%s, %v, over %d connections", got, err, connections)
		}
		var whole []event.Event
		for _, run := range []*kahn.Run{first, now.Load()} {
			for e, err := range run.Events(t.Context(), uint64(len(whole))) {
				if err != nil {
					t.Fatal(err)
				}
				whole = append(whole, e)
			}
		}
		res, _ := now.Load().Wait()
		if err := kahntest.CheckEvents(&g, res, whole); err != nil {
			t.Errorf("the events of both lives: %v", err)
		}
		_, last := now.Load().EventRange()
		if n := len(strings.Fields(got)); uint64(n) != last {
			t.Errorf("%d events of %d", n, last)
		}
	})
}
