package inspector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// talks returns a Runner with a run with two nodes. The first node has logged one line, and the second n lines, every 1,000th of them a warning.
func talks(t *testing.T, n int, opts ...kahn.Option) *kahn.Runner {
	t.Helper()
	rn := &kahn.Runner{}
	g := (&kahn.Graph{Name: "talks"}).Add(
		kahn.Node{ID: "early", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelInfo, "here I am")
			return nil, nil
		}},
		kahn.Node{ID: "talker", After: []string{"early"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			for i := range n {
				level := slog.LevelInfo
				if i%1000 == 0 {
					level = slog.LevelWarn
				}
				s.Log(level, fmt.Sprintf("line<%d>", i))
			}
			return nil, nil
		}},
	)
	run, err := rn.Start(t.Context(), g, nil, append(opts, kahn.RunID("r"), kahn.Retain(n+1000))...)
	require.NoError(t, err)
	_, err = run.Wait()
	require.NoError(t, err)
	return rn
}

// A log longer than a page can be read backwards from its end and forwards from its start. No line is missing or repeated, with or without
// filters.
func TestLogPages(t *testing.T) {
	t.Parallel()
	memory := &store.Memory{}
	rn := talks(t, 2_500, kahn.Durable(memory), kahn.StoreEvents())
	for name, d := range map[string]*desk{"live": serveRunner(t, rn, Options{}), "stored": serveRunner(t, nil, Options{Store: memory})} {
		for _, filter := range [][]string{nil, {"q", "LINE<"}, {"level", "warn"}, {"path", "early"}, {"path", "talker", "q", "here"}, {"level", "debug", "q", "<24"}} {
			forward, backward := []logLine{}, []logLine{}
			after, last := uint64(0), uint64(0)
			for more := true; more; {
				page := get[logReply](d, "api/v1/log", append([]string{"run", "r", "limit", "700", "after", fmt.Sprint(after)}, filter...)...)
				forward = append(forward, page.Lines...)
				after, more, last = page.After, page.More, page.Last
			}
			for before := last + 1; before > 0; {
				page := get[logReply](d, "api/v1/log", append([]string{"run", "r", "limit", "700", "before", fmt.Sprint(before)}, filter...)...)
				require.True(t, page.Before < before)
				require.Equal(t, before-1, page.After)
				backward = append(page.Lines, backward...)
				before = page.Before
			}
			require.Equal(t, forward, backward, "%s %v", name, filter)
			want := map[string]int{"[q LINE<]": 2_500, "[level warn]": 3, "[path talker q here]": 0, "[path early]": 3, "[level debug q <24]": 111}[fmt.Sprint(filter)]
			if filter == nil {
				require.GreaterOrEqual(t, len(forward), 2_500)
				continue
			}
			require.Len(t, forward, want, "%s %v", name, filter)
		}
		require.Equal(t, "bad_query", d.refusal(http.StatusBadRequest, http.MethodGet, "api/v1/log"+queried("run", "r", "after", "3", "before", "9"), "").Code)

		code, text, header := d.ask(http.MethodGet, "api/v1/logfile"+queried("run", "r", "q", "line<"), "")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, header.Get("Content-Disposition"), `attachment; filename="log.txt"`)
		require.Len(t, strings.Split(strings.TrimSpace(string(text)), "\n"), 2_500)
		require.Regexp(t, `^\d{4}-\d\d-\d\dT\S+Z warn  talker line<0>\n`, string(text))
		_, data, header := d.ask(http.MethodGet, "api/v1/logfile"+queried("run", "r", "level", "warn", "format", "jsonl"), "")
		require.Contains(t, header.Get("Content-Disposition"), "log.jsonl")
		var lines []logLine
		for one := range bytes.Lines(data) {
			var line logLine
			require.NoError(t, json.Unmarshal(one, &line))
			lines = append(lines, line)
		}
		require.Equal(t, get[logReply](d, "api/v1/log", "run", "r", "level", "warn").Lines, lines)
	}
}

// The line of a gate's end says how long the gate has waited, and not how long its last attempt took.
func TestGateWaitInLog(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	run, err := d.rn.Start(t.Context(), (&kahn.Graph{Name: "asks"}).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}), nil, kahn.RunID("r"))
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "ask", kahn.Suspended)
	require.NoError(t, err)
	since := run.Waiting()[0].Since
	require.Eventually(t, func() bool { return time.Since(since) > 20*time.Millisecond }, 10*time.Second, time.Millisecond)
	require.NoError(t, run.Signal(t.Context(), "ask", "yes"))
	_, err = run.Wait()
	require.NoError(t, err)
	lines := get[logReply](d, "api/v1/log", "run", "r", "path", "ask").Lines
	require.Regexp(t, `^completed.* after (\d{2,}ms|[\d.]+s) of waiting for an answer$`, lines[len(lines)-1].Text)
}

// The last line of the log says why the run failed or was stopped.
func TestLastLineHasTheCause(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("duplicate key\nat line 7") }
	stays := func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	sub := (&kahn.Graph{}).Add(kahn.Node{ID: "load", Do: fails})
	for id, g := range map[string]*kahn.Graph{
		"fails":   (&kahn.Graph{Name: "fails"}).Add(kahn.Node{ID: "S", Sub: sub}),
		"expires": (&kahn.Graph{Name: "expires"}).Add(kahn.Node{ID: "n", Do: stays}),
	} {
		run, err := rn.Start(t.Context(), g, nil, kahn.RunID(id), kahn.Timeout(50*time.Millisecond))
		require.NoError(t, err)
		_, err = run.Wait()
		require.Error(t, err)
	}
	d := serveRunner(t, rn, Options{})
	last := func(id string) string {
		lines := get[logReply](d, "api/v1/log", "run", id).Lines
		return lines[len(lines)-1].Text
	}
	require.Regexp(t, `^the run is failed after .*: S/load: duplicate key$`, last("fails"))
	require.Regexp(t, `^the run is failed after .*: run_timeout$`, last("expires"))
}

// Nothing waits for an event that has not happened: neither the timeline of a pending run, which is empty, nor the timeline and the log of a
// continued run whose first new event the store has not confirmed.
func TestNothingWaitsForAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		h := Handler(free(Options{Runner: rn}))
		read := func(path, run string, reply any) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/"+path+queried("run", run), nil)
			q.RemoteAddr, q.Host = "127.0.0.1:1", "localhost"
			w, began := httptest.NewRecorder(), time.Now()
			h.ServeHTTP(w, q)
			require.Zero(t, time.Since(began), "it answers at once")
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), reply))
		}
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
			kahn.Node{ID: "b", Kind: kahn.KindGate, After: []string{"a"}},
		)
		db := &stuckStore{Memory: &store.Memory{}}
		past, err := kahn.Start(t.Context(), g, nil, kahn.RunID("continued"), kahn.Durable(db))
		require.NoError(t, err)
		synctest.Wait()
		past.Leave()
		_, _ = past.Wait()
		time.Sleep(time.Hour)

		db.stuck = make(chan struct{})
		release := sync.OnceFunc(func() { close(db.stuck) })
		defer func() {
			release()
			for run := range rn.Runs() {
				_ = run.Cancel() // returns an error if the run has ended
			}
			require.NoError(t, rn.Shutdown(context.Background()))
		}()
		_, err = rn.Start(t.Context(), g, nil, kahn.RunID("continued"), kahn.Durable(db))
		require.NoError(t, err)
		synctest.Wait()
		run, ok := rn.Run("continued")
		require.True(t, ok)
		first, last := run.EventRange()
		require.Equal(t, []any{last + 1, true, time.Hour}, []any{first, last > 0, run.Started().Sub(run.FirstStarted())}, "the store has not confirmed an event")
		var log logReply
		read("log", "continued", &log)
		require.Empty(t, log.Lines)
		var timeline timelineReply
		read("timeline", "continued", &timeline)
		require.Equal(t, timelineReply{Start: stamp(run.Started()), Spans: []span{}}, timeline)
		release()

		busy := new(kahn.Graph).Add(kahn.Node{ID: "n", Do: func(ctx context.Context, _ *kahn.Step) (any, error) { <-ctx.Done(); return nil, ctx.Err() }})
		for _, id := range []string{"busy", "pending"} {
			_, err = rn.Start(t.Context(), busy, nil, kahn.RunID(id))
			require.NoError(t, err)
			synctest.Wait()
		}
		pending, ok := rn.Run("pending")
		require.True(t, ok)
		require.Equal(t, kahn.RunPending, pending.Status())
		timeline = timelineReply{}
		read("timeline", "pending", &timeline)
		require.Equal(t, timelineReply{Spans: []span{}}, timeline)
	})
}
