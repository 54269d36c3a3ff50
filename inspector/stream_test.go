package inspector

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
)

// tab is a client of the stream that needs no network. It has the messages in the order in which they were flushed.
type tab struct {
	mu       sync.Mutex
	header   http.Header
	code     int
	text     strings.Builder
	cancel   context.CancelFunc
	returned chan struct{}
}

func (p *tab) Header() http.Header { return p.header }
func (p *tab) WriteHeader(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code = code
}
func (p *tab) Flush() {}
func (p *tab) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(data)
}

// openTab opens a stream of a handler.
func openTab(ctx context.Context, h http.Handler, run string) *tab {
	p := &tab{header: http.Header{}, returned: make(chan struct{})}
	path := "/api/v1/stream"
	if run != "" {
		path += queried("run", run)
	}
	ctx, p.cancel = context.WithCancel(ctx)
	q := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	q.RemoteAddr, q.Host = "127.0.0.1:1", "localhost"
	go func() {
		defer close(p.returned)
		h.ServeHTTP(p, q)
	}()
	return p
}

// close closes the tab, and waits until the handler has returned.
func (p *tab) close() {
	p.cancel()
	<-p.returned
}

// messages returns the messages of one kind so far.
func messages[T any](t *testing.T, p *tab, kind string) (list []T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	in := bufio.NewScanner(strings.NewReader(p.text.String()))
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		if in.Text() != "event: "+kind {
			continue
		}
		require.True(t, in.Scan())
		var x T
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(in.Text(), "data: ")), &x))
		list = append(list, x)
	}
	return list
}

// A tab receives the changes in the list and in its run. When all tabs are closed, no goroutine of the handler is left; otherwise synctest fails
// the test.
func TestStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{History: 1}
		h := Handler(free(Options{Runner: rn}))
		g := &kahn.Graph{Name: "g"}
		g.Add(
			kahn.Node{ID: "a", Do: func(ctx context.Context, _ *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, nil }},
			kahn.Node{ID: "b", After: []string{"a"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				if s.Attempt() == 1 {
					return nil, errBroken
				}
				return nil, nil
			}},
		)
		run, err := rn.Start(t.Context(), g, nil, kahn.RunID("one"))
		require.NoError(t, err)
		synctest.Wait()
		tabs := []*tab{openTab(t.Context(), h, ""), openTab(t.Context(), h, "one")}
		_, err = run.Wait()
		require.NoError(t, err)
		time.Sleep(time.Second)
		for i, p := range tabs {
			require.Len(t, messages[struct{}](t, p, "hello"), 1)
			rows := messages[runsMessage](t, p, "runs")
			last := rows[len(rows)-1].Runs[0]
			require.Equal(t, kahn.RunCompleted, last.Status)
			require.Equal(t, 2, last.Done)
			require.Equal(t, counts{"completed": 1}, rows[len(rows)-1].Counts)
			var steps []string
			for _, m := range messages[nodesMessage](t, p, "nodes") {
				for _, n := range m.Nodes {
					if n.Status != "r" { // a step may still be running when the message is made
						steps = append(steps, fmt.Sprint(n.Path, n.Status, n.Attempt))
					}
				}
			}
			require.Equal(t, i > 0, len(steps) > 0)
			if i > 0 {
				require.Equal(t, []string{"ac1", "bt1", "bc2"}, steps)
			}
		}
		// The second run replaces the first in the Runner's memory.
		second, err := rn.Start(t.Context(), g, nil, kahn.RunID("two"))
		require.NoError(t, err)
		_, _ = second.Wait()
		time.Sleep(time.Second)
		rows := messages[runsMessage](t, tabs[0], "runs")
		require.Equal(t, []string{"one"}, rows[len(rows)-1].Removed)
		for _, p := range tabs {
			p.close()
		}
		time.Sleep(time.Second)
	})
}

// A stream checks its permission again and again, and ends when the permission is withdrawn. No more than MaxStreams may be open.
func TestStreamReauthorized(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Bool
		h := Handler(free(Options{Runner: &kahn.Runner{}, MaxStreams: 1, Reauthorize: time.Minute, Authorize: func(*http.Request, Action) error {
			if refused.Load() {
				return errors.New("logged out")
			}
			return nil
		}}))
		p := openTab(t.Context(), h, "")
		synctest.Wait()
		second := openTab(t.Context(), h, "")
		<-second.returned
		require.Equal(t, http.StatusServiceUnavailable, second.code)
		second.cancel()
		refused.Store(true)
		begun := time.Now()
		<-p.returned
		require.LessOrEqual(t, time.Since(begun), time.Minute)
		p.cancel()
		time.Sleep(time.Second)
	})
}

// A tab that reads too slowly gets a reset, and at most maxPending messages are kept for it.
func TestSlowTab(t *testing.T) {
	t.Parallel()
	h := &hub{handler: &handler{Options: Options{Runner: &kahn.Runner{}}}}
	p, ok := h.join("", 1, nil)
	require.True(t, ok)
	defer h.leave(p)
	message := make([]byte, maxPending/4)
	for range 5 {
		h.send(message, func(*page) bool { return true })
	}
	require.Equal(t, [][]byte{reset}, h.take(p))
}

// A tab gets a reset if its run has more changes in one tick than fit into a message, or if the log no longer has the events that it needs.
func TestReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{}
		g := &kahn.Graph{}
		begin := make(chan struct{})
		g.Add(kahn.Node{ID: "first", Do: func(context.Context, *kahn.Step) (any, error) { <-begin; return nil, nil }})
		for i := range maxChanges + 1 {
			g.Add(kahn.Node{ID: fmt.Sprint("n", i), After: []string{"first"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
		}
		for _, opts := range [][]kahn.Option{{kahn.RunID("all")}, {kahn.RunID("few"), kahn.Retain(10)}} {
			run, err := rn.Start(t.Context(), g, nil, opts...)
			require.NoError(t, err)
			p := openTab(t.Context(), Handler(free(Options{Runner: rn})), run.ID())
			time.Sleep(time.Second)
			begin <- struct{}{}
			_, err = run.Wait()
			require.NoError(t, err)
			time.Sleep(time.Second)
			require.NotEmpty(t, messages[struct{}](t, p, "reset"))
			p.close()
		}
		time.Sleep(time.Second)
	})
}

// 50 tabs of a busy run cost as much work as one tab: events are read once, and messages are encoded once.
func TestManyTabs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var steps []int64
		for _, tabs := range []int{1, 50} {
			rn := &kahn.Runner{}
			g := &kahn.Graph{}
			begin := make(chan struct{})
			for i := range 200 {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i), Do: func(context.Context, *kahn.Step) (any, error) {
					<-begin
					time.Sleep(100 * time.Millisecond)
					return nil, nil
				}})
			}
			run, err := rn.Start(t.Context(), g, nil, kahn.Limit(5))
			require.NoError(t, err)
			h := Handler(free(Options{Runner: rn})).(*handler)
			var open []*tab
			for range tabs {
				open = append(open, openTab(t.Context(), h, run.ID()))
			}
			time.Sleep(time.Second) // all tabs are open by now
			close(begin)
			_, err = run.Wait()
			require.NoError(t, err)
			time.Sleep(time.Second)
			for _, p := range open {
				rows := messages[runsMessage](t, p, "runs")
				require.Equal(t, 200, rows[len(rows)-1].Runs[0].Done)
				p.close()
			}
			time.Sleep(time.Second)
			steps = append(steps, h.hub.steps)
		}
		require.Greater(t, steps[0], int64(300))
		require.InDelta(t, steps[0], steps[1], 10) // a tick and events at the same time may come in either order
	})
}
