package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// slowStore counts how often runs are loaded, and may return damaged runs.
type slowStore struct {
	*store.Memory
	loads  int
	damage func(*store.Run) error
}

func (s *slowStore) Load(ctx context.Context, id string) (*store.Run, error) {
	s.loads++
	time.Sleep(50 * time.Millisecond)
	run, err := s.Memory.Load(ctx, id)
	if err == nil && s.damage != nil {
		err = s.damage(run)
	}
	return run, err
}

// When several pages ask for the same run at once, the run is loaded once. The details of the store's errors go to the log, and not to clients.
func TestStoredRunIsLoadedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, audit := &slowStore{Memory: &store.Memory{}}, &syncBuffer{}
		_, err := kahn.Execute(t.Context(), order(), nil, kahn.RunID("r"), kahn.Durable(db.Memory))
		require.NoError(t, err)
		h := Handler(free(Options{Store: db, Log: slog.New(slog.NewTextHandler(audit, nil))}))
		ask := func(ctx context.Context, id string) (int, string) {
			q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/run"+queried("run", id), nil)
			q.RemoteAddr, q.Host = "127.0.0.1:1", "localhost"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q)
			return w.Code, w.Body.String()
		}
		shelved := func() int {
			x := &h.(*handler).shelf
			x.mu.Lock()
			defer x.mu.Unlock()
			return len(x.loads)
		}
		gone, leave := context.WithCancel(t.Context())
		var pages sync.WaitGroup
		for i := range 50 {
			pages.Go(func() {
				ctx := t.Context()
				if i == 0 {
					ctx = gone
				}
				if code, body := ask(ctx, "r"); i > 0 {
					require.Equal(t, http.StatusOK, code, body)
				}
			})
		}
		leave() // the other requests must still get the response
		pages.Wait()
		require.Equal(t, 1, db.loads)
		time.Sleep(2 * shelfTime)
		require.Zero(t, shelved())
		for want, damage := range map[string]func(*store.Run) error{
			"store":   func(*store.Run) error { return errors.New("password in the connection string") },
			"damaged": func(r *store.Run) error { r.Record = json.RawMessage(`{"version":"password"}`); return nil },
			"panic":   func(*store.Run) error { panic("password") },
			"goexit":  func(*store.Run) error { runtime.Goexit(); return nil },
		} {
			db.damage = damage
			done := make(chan struct{})
			go func() {
				defer close(done)
				code, body := ask(t.Context(), "r")
				require.Equal(t, http.StatusBadGateway, code, want)
				require.NotContains(t, body, "password")
			}()
			<-done
			time.Sleep(2 * shelfTime)
			require.Zero(t, shelved(), want)
		}
		require.Contains(t, audit.String(), "password in the connection string")
	})
}

// If two people answer a stored run at the same time, the second one learns who was first. Answers to two gates are both accepted.
func TestStoredAnswersAtTheSameTime(t *testing.T) {
	t.Parallel()
	g := (&kahn.Graph{Name: "order"}).Add(kahn.Node{ID: "one", Kind: kahn.KindGate}, kahn.Node{ID: "two", Kind: kahn.KindGate}, kahn.Node{ID: "review", Kind: kahn.KindGate}, kahn.Node{ID: "flaky", Kind: kahn.KindGate})
	x := newElsewhere(t, g, nil)
	type outcome struct {
		code int
		body string
	}
	got := make(chan outcome, 3)
	for _, path := range []string{"one", "two", "one"} {
		go func() {
			code, body, _ := x.ask(http.MethodPost, "api/v1/signal"+queried("run", "order 17", "path", path), `{"value":1}`, as("ann"))
			got <- outcome{code, string(body)}
		}()
	}
	codes := map[int]int{}
	for range 3 {
		o := <-got
		if codes[o.code]++; o.code == http.StatusConflict {
			require.Contains(t, o.body, `"code":"answered"`)
			require.Contains(t, o.body, "ann has answered")
		}
	}
	require.Equal(t, map[int]int{http.StatusAccepted: 2, http.StatusConflict: 1}, codes)
}

// If the host's Perform function hangs, an action on its run waits until the client gives up. Actions on other runs do not wait.
func TestPerformThatHangs(t *testing.T) {
	t.Parallel()
	hangs, free := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) {
		perform := o.Workflows[0].Perform
		var first atomic.Bool
		o.Workflows[0].Perform = func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			if first.CompareAndSwap(false, true) {
				close(hangs)
				<-free
			}
			return perform(ctx, opts...)
		}
		run, err := kahn.Start(t.Context(), x.graph, nil, kahn.RunID("order 18"), kahn.Durable(x.memory))
		require.NoError(t, err)
		_, err = run.WaitFor(t.Context(), "flaky", kahn.Retrying)
		require.NoError(t, err)
		run.Leave()
		_, _ = run.Wait()
	})
	cancel := func(ctx context.Context, id string) (int, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, x.server.URL+"/debug/kahn/api/v1/cancel"+queried("run", id), strings.NewReader("{}"))
		require.NoError(t, err)
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Idempotency-Key", fmt.Sprint("key ", x.keys.Add(1)))
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	answered := make(chan int, 1)
	go func() {
		code, _ := cancel(t.Context(), "order 17")
		answered <- code
	}()
	<-hangs
	soon, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	code, err := cancel(soon, "order 18")
	require.NoError(t, err, "another run waits")
	require.Equal(t, http.StatusAccepted, code)
	gone, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	_, err = cancel(gone, "order 17")
	require.ErrorIs(t, err, context.DeadlineExceeded, "it is performed twice")
	require.Empty(t, answered)
	release()
	require.Equal(t, http.StatusAccepted, <-answered)
	code, err = cancel(t.Context(), "order 17")
	require.NoError(t, err)
	require.Contains(t, []int{http.StatusAccepted, http.StatusConflict}, code, "the turn has come")
}

// If a request fails with a temporary error, a later request with the same key is performed.
func TestRepeatedAfterALease(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = noInbox{x.memory} })
	lease, _, err := x.memory.Acquire(t.Context(), "order 17", "another process", time.Hour)
	require.NoError(t, err)
	key := func(q *http.Request) { q.Header.Set("Idempotency-Key", "k") }
	path := "api/v1/signal" + queried("run", "order 17", "path", "review/approve")
	require.Equal(t, "leased", x.refusal(http.StatusConflict, http.MethodPost, path, `{"value":"ship"}`, key).Code)
	require.NoError(t, x.memory.Release(t.Context(), lease))
	code, body, header := x.ask(http.MethodPost, path, `{"value":"ship"}`, key)
	require.Equal(t, http.StatusAccepted, code, "%s", body)
	require.Empty(t, header.Get("Idempotent-Replay"))
}

// stuckStore is a store whose Commit does not return while it is stuck.
type stuckStore struct {
	*store.Memory
	stuck chan struct{} // closed to release the store; nil if the store is not stuck
}

func (s *stuckStore) Commit(ctx context.Context, lease store.Lease, c store.Commit) (store.Applied, error) {
	if s.stuck != nil {
		<-s.stuck
	}
	return s.Memory.Commit(ctx, lease, c)
}

// If the store takes too long to confirm an answer, the client gets no confirmation. If the client repeats the answer, it counts as the same
// answer.
func TestAnswerThatIsConfirmedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &stuckStore{Memory: &store.Memory{}}
		rn := &kahn.Runner{}
		run, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}), nil, kahn.RunID("r"), kahn.Durable(db), kahn.Lease("", time.Hour))
		require.NoError(t, err)
		synctest.Wait()
		h := Handler(free(Options{Runner: rn, Log: slog.New(slog.DiscardHandler)}))
		answer := func() (int, string) {
			q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/signal?run=r&path=g", strings.NewReader(`{"value":1}`))
			q.RemoteAddr, q.Host = "127.0.0.1:1", "localhost"
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q)
			return w.Code, w.Body.String()
		}
		db.stuck = make(chan struct{})
		begun := time.Now()
		code, body := answer()
		require.Equal(t, http.StatusGatewayTimeout, code, body)
		require.Equal(t, loadTime, time.Since(begun))
		close(db.stuck)
		synctest.Wait()
		code, body = answer()
		require.Equal(t, http.StatusAccepted, code, body)
		res, err := run.Wait()
		require.NoError(t, err)
		require.Equal(t, 1.0, res.Output())
	})
}
