package sse_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// counted is a value of the host that counts how often it is encoded.
type counted struct {
	n    *atomic.Int32
	text string
}

func (c counted) MarshalJSON() ([]byte, error) {
	c.n.Add(1)
	return []byte(`"` + c.text + `"`), nil
}

// writes is a ResponseWriter that counts.
type writes struct {
	*httptest.ResponseRecorder
	writes, flushes int
}

func (w *writes) Write(b []byte) (int, error) {
	w.writes++
	return w.ResponseRecorder.Write(b)
}

func (w *writes) Flush() {
	w.flushes++
	w.ResponseRecorder.Flush()
	time.Sleep(time.Millisecond) // so that the next events have been read when the stream goes on
}

// deltas is a source of n events with a value of the host each, the one before the last large.
func deltas(n int, encoded *atomic.Int32) *source {
	return &source{status: kahn.RunCompleted, last: uint64(n), events: func(_ context.Context, after uint64, yield func(event.Event, error) bool) {
		for id := after + 1; id <= uint64(n); id++ {
			text := "x"
			if id == uint64(n)-1 {
				text = strings.Repeat("x", 40_000)
			}
			if !yield(event.Event{ID: id, Type: event.NodeDelta, RunID: "r", Node: "a", Path: "a", Payload: event.Delta{Chunk: counted{encoded, text}}}, nil) {
				return
			}
		}
	}}
}

// TestEventsAreEncodedOnce: streams of one source share the bytes of its events, unless they are redacted or large.
func TestEventsAreEncodedOnce(t *testing.T) {
	const clients, events = 20, 100
	for name, row := range map[string]struct {
		redact func(*http.Request, event.Event) (event.Event, bool)
		most   int32
	}{
		"shared":   {nil, events + clients},
		"redacted": {func(_ *http.Request, e event.Event) (event.Event, bool) { return e, true }, events * clients},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var encoded atomic.Int32
				src := deltas(events, &encoded)
				gate := make(chan struct{}) // all streams are there before the first event is
				all := src.events
				src.events = func(ctx context.Context, after uint64, yield func(event.Event, error) bool) {
					<-gate
					all(ctx, after, yield)
				}
				h := &sse.Handler{Find: sse.Fixed(src), Redact: row.redact}
				var wg sync.WaitGroup
				answers := make([]*writes, clients)
				for i := range answers {
					answers[i] = &writes{ResponseRecorder: httptest.NewRecorder()}
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 10 * time.Microsecond) // one after the other
						h.ServeHTTP(answers[i], httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
					})
				}
				time.Sleep(100 * time.Millisecond)
				close(gate)
				wg.Wait()
				for _, w := range answers {
					require.Equal(t, answers[0].Body.String(), w.Body.String())
				}
				require.Equal(t, events, strings.Count(answers[0].Body.String(), "\ndata: "))
				if row.redact == nil {
					require.Less(t, encoded.Load(), row.most+events, "some may be encoded by two streams at the same time")
				} else {
					require.Equal(t, row.most, encoded.Load())
				}
			})
		})
	}
}

// TestFramesOfOneFlushAreOneWrite: a burst of events is one write, but for long ones.
func TestFramesOfOneFlushAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var encoded atomic.Int32
		h := &sse.Handler{Find: sse.Fixed(deltas(100, &encoded)), Retry: time.Second}
		w := &writes{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		require.Equal(t, 100, strings.Count(w.Body.String(), "\ndata: "))
		require.Less(t, w.writes, 40, "100 events in bursts of 16")
		require.LessOrEqual(t, w.writes, w.flushes+w.Body.Len()/(32<<10), "more than one write a flush")
		require.Equal(t, int32(100), encoded.Load())
	})
}

// timedWrites notes when each event was written.
type timedWrites struct {
	*httptest.ResponseRecorder
	at map[string]time.Time // by the line of its id
}

func (w *timedWrites) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "id: ") {
			w.at[strings.TrimSpace(line)] = time.Now()
		}
	}
	return w.ResponseRecorder.Write(b)
}

// TestFlushesAreBounded: events in quick succession go out together, none later than 20 ms, and the first one at once.
func TestFlushesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := map[string]time.Time{}
		src := &source{status: kahn.RunCompleted, last: 41, events: func(_ context.Context, _ uint64, yield func(event.Event, error) bool) {
			for id := uint64(1); id <= 41; id++ {
				if id == 21 {
					time.Sleep(time.Second) // a pause
				}
				happened[fmt.Sprintf("id: %d", id)] = time.Now()
				if !yield(event.Event{ID: id, Type: event.NodeStarted, RunID: "r", Node: "a", Path: "a"}, nil) {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}}
		w := &timedWrites{httptest.NewRecorder(), map[string]time.Time{}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		flushes := map[time.Time]bool{}
		require.Len(t, w.at, 41)
		for id, at := range w.at {
			flushes[at] = true
			require.LessOrEqual(t, at.Sub(happened[id]), 20*time.Millisecond, id)
		}
		for _, id := range []string{"id: 1", "id: 21"} {
			require.Equal(t, happened[id], w.at[id], "after a pause")
		}
		require.LessOrEqual(t, len(flushes), 14, "41 events in 205 ms")
	})
}
