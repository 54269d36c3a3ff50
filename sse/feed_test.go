package sse_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
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

// counted is a value that counts how often it is encoded.
type counted struct {
	n    *atomic.Int32
	text string
}

func (c counted) MarshalJSON() ([]byte, error) {
	c.n.Add(1)
	return []byte(`"` + c.text + `"`), nil
}

// writes is a ResponseWriter that counts writes and flushes.
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
	time.Sleep(time.Millisecond) // the feed reads the next events before the stream continues
}

// deltas returns a source of n events with values. The value of the second last event is large.
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

// TestEventsAreEncodedOnce: streams of one source share the bytes of its events, unless events are redacted.
func TestEventsAreEncodedOnce(t *testing.T) {
	const clients, events = 20, 100
	for name, row := range map[string]struct {
		redact func(*http.Request, event.Event) (event.Event, bool)
		want   int32
	}{
		"shared":   {nil, events},
		"redacted": {func(_ *http.Request, e event.Event) (event.Event, bool) { return e, true }, events * clients},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var encoded atomic.Int32
				src := deltas(events, &encoded)
				gate := make(chan struct{}) // delays the first event until all streams have joined
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
						time.Sleep(time.Duration(i) * 10 * time.Microsecond) // streams join one after the other
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
				require.Equal(t, row.want, encoded.Load())
			})
		})
	}
}

// TestLateStreamsShareTheBytes: if streams begin long after the events, one after the other and at different positions in the log, they share
// the encoded events. The shared bytes are bounded, and are dropped when the streams have caught up.
func TestLateStreamsShareTheBytes(t *testing.T) {
	const clients, events = 10, 10_000
	inBubble(t, "late", func(t *testing.T) {
		var encoded atomic.Int32
		src := &source{status: kahn.RunRunning, last: events, events: func(ctx context.Context, after uint64, yield func(event.Event, error) bool) {
			for id := after + 1; id <= events; id++ {
				if !yield(event.Event{ID: id, Type: event.NodeDelta, RunID: "r", Node: "a", Path: "a", Payload: event.Delta{Chunk: counted{&encoded, strings.Repeat("x", 100)}}}, nil) {
					return
				}
			}
			<-ctx.Done()
		}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		ctx, hangUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		answers := make([]*writes, clients+1)
		stream := func(i int) {
			answers[i] = &writes{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint("/?afterEventId=", 7*i), nil)
			wg.Go(func() { h.ServeHTTP(answers[i], r) })
		}
		stream(0)
		time.Sleep(time.Minute)
		first, most := encoded.Load(), h.Kept()
		for i := range clients {
			stream(i + 1)
			time.Sleep(3 * ms)
		}
		require.Greater(t, h.Kept(), most, "the streams are behind")
		for range 100 {
			time.Sleep(time.Second)
			require.LessOrEqual(t, h.Kept(), most+1<<20+64<<10)
		}
		require.LessOrEqual(t, h.Kept(), most, "no stream is behind")
		require.Less(t, encoded.Load()-first, int32(events*3/2), "for %d streams", clients)
		hangUp()
		wg.Wait()
		for i, w := range answers {
			require.Equal(t, events-7*i, strings.Count("\n"+w.Body.String(), "\nid: "))
		}
		got := strings.Fields(ids(t, answers[3].Body))
		for i, id := range got {
			require.Equal(t, fmt.Sprint(22+i), id)
		}
	})
}

// TestSegmentOfAStreamThatEnds: a stream waits for another stream to encode a segment, and that stream's client hangs up. The first stream then
// reads the events itself.
func TestSegmentOfAStreamThatEnds(t *testing.T) {
	inBubble(t, "the first client hangs up", func(t *testing.T) {
		var readers atomic.Int32
		src := &source{status: kahn.RunCompleted, last: 100, events: func(ctx context.Context, after uint64, yield func(event.Event, error) bool) {
			second := readers.Add(1) == 2
			for id := after + 1; id <= 100; id++ {
				if second && id == 50 {
					<-ctx.Done() // in the middle of a segment
					return
				}
				if !yield(event.Event{ID: id, Type: event.NodeDelta, RunID: "r", Node: "a", Path: "a", Payload: event.Delta{Chunk: strings.Repeat("x", 20_000)}}, nil) {
					return
				}
			}
			<-ctx.Done()
		}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		ctx, hangUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		ask := func(ctx context.Context) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			wg.Go(func() { h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)) })
			time.Sleep(time.Second)
			synctest.Wait()
			return w
		}
		all, end := context.WithCancel(t.Context())
		ask(all)
		ask(ctx)
		w := ask(all)
		require.Len(t, strings.Fields(ids(t, strings.NewReader(w.Body.String()))), 49-1, "it waits")
		hangUp()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, strings.Fields(ids(t, strings.NewReader(w.Body.String()))), 100)
		end()
		wg.Wait()
	})
}

// TestFramesOfOneFlushAreOneWrite: a short burst of events is sent in one write.
func TestFramesOfOneFlushAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var encoded atomic.Int32
		h := &sse.Handler{Find: sse.Fixed(deltas(100, &encoded)), Retry: time.Second}
		w := &writes{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		require.Equal(t, 100, strings.Count(w.Body.String(), "\ndata: "))
		require.LessOrEqual(t, w.writes, w.flushes+w.Body.Len()/(32<<10), "more than one write a flush")
		require.Equal(t, int32(100), encoded.Load())
	})
}

// timedWrites records when each event was written.
type timedWrites struct {
	*httptest.ResponseRecorder
	at map[string]time.Time // by the id line of the event
}

func (w *timedWrites) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "id: ") {
			w.at[strings.TrimSpace(line)] = time.Now()
		}
	}
	return w.ResponseRecorder.Write(b)
}

// TestFlushesAreBounded: events in quick succession are sent together, delayed by at most 20 ms. The first event is sent at once.
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

// slowWrites is the ResponseWriter of a slow client that hangs up after some writes.
type slowWrites struct {
	*httptest.ResponseRecorder
	pause time.Duration
	left  int // the number of writes until the client hangs up
}

func (w *slowWrites) Write(b []byte) (int, error) {
	time.Sleep(w.pause)
	if w.left--; w.left < 0 {
		return 0, errors.New("the client is gone")
	}
	return w.ResponseRecorder.Write(b)
}

// TestStreamsOfOneSource: fast and slow streams join at any time and anywhere in the log. Each stream gets each event once and in order,
// whatever the other streams do.
func TestStreamsOfOneSource(t *testing.T) {
	const events = 600
	for seed := range uint64(30) {
		inBubble(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			began := time.Now()
			at := make([]time.Duration, events+1) // by id: when the event happens
			for id := 1; id <= events; id++ {
				at[id] = at[id-1] + []time.Duration{0, ms, 4 * ms, time.Second}[min(rnd.IntN(30), 3)]/2
			}
			src := &source{status: kahn.RunCompleted, last: events, events: func(ctx context.Context, after uint64, yield func(event.Event, error) bool) {
				for id := after + 1; id <= events; id++ {
					select {
					case <-time.After(time.Until(began.Add(at[id]))):
					case <-ctx.Done():
						return
					}
					text := strings.Repeat("x", 1+2_000*(int(id)%7/6))
					if !yield(event.Event{ID: id, Type: event.NodeDelta, RunID: "r", Node: "a", Path: "a", Payload: event.Delta{Chunk: text}}, nil) {
						return
					}
				}
			}}
			h := &sse.Handler{Find: sse.Fixed(src), WriteTimeout: time.Hour}
			var wg sync.WaitGroup
			for range 12 {
				joins := time.Duration(rnd.Int64N(int64(at[events]) + 1))
				happened, _ := slices.BinarySearch(at, joins+1)
				after := uint64(rnd.IntN(happened))
				w := &slowWrites{httptest.NewRecorder(), []time.Duration{0, 0, 30 * ms, 2 * time.Second}[rnd.IntN(4)], 1 << 30}
				if rnd.IntN(4) == 0 {
					w.left = rnd.IntN(20)
				}
				wg.Go(func() {
					time.Sleep(joins)
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprint("/?afterEventId=", after), nil))
					got := strings.Fields(ids(t, w.Body))
					for i, id := range got {
						if id != fmt.Sprint(after+1+uint64(i)) {
							t.Fatalf("after %d: event %d is %s", after, i, id)
						}
					}
					if w.left >= 0 && len(got) != events-int(after) {
						t.Errorf("after %d: %d events", after, len(got))
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestStalledStreamsStopTheFeed: while all clients of a source stall, the feed does not read its events.
func TestStalledStreamsStopTheFeed(t *testing.T) {
	inBubble(t, "one client", func(t *testing.T) {
		var yielded atomic.Int32
		src := &source{status: kahn.RunCompleted, last: 10_000, events: func(_ context.Context, after uint64, yield func(event.Event, error) bool) {
			for id := after + 1; id <= 10_000; id++ {
				yielded.Add(1)
				if !yield(event.Event{ID: id, Type: event.NodeQueued, RunID: "r", Node: "a", Path: "a"}, nil) {
					return
				}
			}
		}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		n, client := serve(t, &http.Server{Handler: h})
		stuck := connect(t, n, 0)
		defer stuck.Close()
		if _, err := io.ReadFull(bufio.NewReaderSize(stuck, 16), make([]byte, 400)); err != nil { // reads into the first events
			t.Fatal(err)
		}
		synctest.Wait()
		if n := yielded.Load(); n < 100 || n > 1_000 { // about 33,000 bytes of frames for the stream, and as many in the feed
			t.Errorf("%d events were read for a client that does not read", n)
		}
		resp, err := client.Get("http://memory/?afterEventId=9000") // begins far ahead of the stalled stream
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := len(strings.Fields(ids(t, resp.Body))); got != 1_000 {
			t.Errorf("%d events after 9000", got)
		}
	})
}

// TestSourceThatPanicsForALateStream: the feed no longer keeps some events, so a stream reads them from the source, which panics. The stream
// ends, and the server continues.
func TestSourceThatPanicsForALateStream(t *testing.T) {
	inBubble(t, "late", func(t *testing.T) {
		readers := 0
		src := &source{status: kahn.RunRunning, last: 50, events: func(ctx context.Context, after uint64, yield func(event.Event, error) bool) {
			if readers++; readers > 1 {
				panic("no")
			}
			for id := after + 1; id <= 50; id++ {
				if !yield(event.Event{ID: id, Type: event.NodeQueued, RunID: "r", Node: "a", Path: "a"}, nil) {
					return
				}
			}
			<-ctx.Done()
		}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		first, hangUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(first, http.MethodGet, "/?afterEventId=10", nil))
		})
		synctest.Wait()
		if a := ask(t, h, "GET", "/"); a.code != 200 || a.body != "" { // the feed has no event yet
			t.Errorf("%d %s", a.code, a.body)
		}
		hangUp()
		wg.Wait()
	})
}

// TestStreamAfterAFailure: the source fails while a stream is still writing earlier events. A stream that joins after the failure reads the
// source from the beginning.
func TestStreamAfterAFailure(t *testing.T) {
	inBubble(t, "the source fails once", func(t *testing.T) {
		failed := false
		src := &source{status: kahn.RunCompleted, last: 4, events: func(_ context.Context, after uint64, yield func(event.Event, error) bool) {
			for id := after + 1; id <= 4; id++ {
				if id == 3 && !failed {
					failed = true
					yield(event.Event{}, errors.New("the store does not answer"))
					return
				}
				if !yield(event.Event{ID: id, Type: event.NodeQueued, RunID: "r", Node: "a", Path: "a"}, nil) {
					return
				}
			}
		}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		slow := &slowWrites{httptest.NewRecorder(), time.Second, 100}
		var wg sync.WaitGroup
		wg.Go(func() {
			h.ServeHTTP(slow, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		})
		synctest.Wait()
		if got := ids(t, strings.NewReader(ask(t, h, "GET", "/").body)); got != "1 2 3 4" {
			t.Errorf("events %q after the failure", got)
		}
		wg.Wait()
		if got := ids(t, slow.Body); got != "1 2" {
			t.Errorf("events %q before it", got)
		}
	})
}

// TestLargeEventsAreNotKept: for slow streams a feed keeps a bounded number of bytes, however large its events are.
func TestLargeEventsAreNotKept(t *testing.T) {
	inBubble(t, "deltas of a megabyte, with pauses", func(t *testing.T) {
		src := &source{status: kahn.RunRunning, last: 20, events: func(ctx context.Context, after uint64, yield func(event.Event, error) bool) {
			for id := after + 1; id <= 20; id++ {
				text := "x"
				if id <= 10 {
					text = strings.Repeat("x", 1<<20)
				}
				if !yield(event.Event{ID: id, Type: event.NodeDelta, RunID: "r", Node: "a", Path: "a", Payload: event.Delta{Chunk: text}}, nil) {
					return
				}
				time.Sleep(time.Second)
			}
			<-ctx.Done()
		}}
		h := &sse.Handler{Find: sse.Fixed(src)}
		ctx, hangUp := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		var wg sync.WaitGroup
		wg.Go(func() { h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)) })
		for i := range 20 {
			time.Sleep(time.Second)
			kept := h.Kept()
			if i < 9 && kept > 2<<20 || i == 19 && (kept == 0 || kept > 1<<20) {
				t.Errorf("after %d s: %d bytes", i+1, kept)
			}
		}
		hangUp()
		wg.Wait()
		if got := len(strings.Fields(ids(t, w.Body))); got != 20 {
			t.Errorf("%d events", got)
		}
	})
}
