package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/graphs"
)

// The page of page_test.go shows running runs, and its code has at most 150 lines.
func TestPage(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(source, []byte("\n")), 150)

	rn := &kahn.Runner{}
	var mended atomic.Bool
	g := graph(
		kahn.Node{ID: "fetch", Do: func(context.Context, *kahn.Step) (any, error) { return []string{"a", "b"}, nil }},
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "rows"}, In: []kahn.Edge{{From: "fetch", Param: "rows"}}, Sub: graph(gate("ask"), after("then", "ask"))},
		kahn.Node{ID: "flaky", Label: "Flaky one", After: []string{"fetch"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour}, Do: func(context.Context, *kahn.Step) (any, error) {
			if mended.Load() {
				return nil, nil
			}
			return nil, errStep
		}},
		after("last", "each", "flaky"),
	)
	g.Name = "orders"
	run, err := rn.Start(t.Context(), g, nothing, kahn.RunID("r1"))
	require.NoError(t, err)
	server := httptest.NewServer(newPage(rn))
	defer server.Close()
	ask := func(method, path string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	get := func(path string, want ...string) {
		t.Helper()
		code, body := ask(http.MethodGet, path)
		require.Equal(t, http.StatusOK, code, body)
		for _, text := range want {
			require.Contains(t, body, text)
		}
	}
	for _, path := range []string{"flaky", "each"} {
		_, err := run.WaitFor(t.Context(), path, kahn.Retrying, kahn.Suspended)
		require.NoError(t, err)
	}
	get("/", "r1", "orders", "running", "map[waiting:1 retrying:1 suspended:1 completed:1]", "each[0]/ask each[1]/ask")
	get("/runs/r1", `class="retrying"`, "flaky: retrying (tier 1, 1 attempts): it is attempted again at", "last: waiting", "it waits for each, flaky", "fetch &rarr; each", `href="?in=each"`)
	get("/runs/r1?in=each", "each[0]: suspended", `href="?in=each%5b0%5d"`)
	get("/runs/r1?in=each%5b0%5d", "each[0]/then: waiting", "ask &rarr; then")
	get("/runs/r1/node?path=flaky", `"label":"Flaky one"`, `"status":"retrying"`, `"Number":1`)
	get("/runs/r1/node?path=each%5b1%5d", `"item":"b"`, `"index":1`)
	get("/runs/r1/why?path=each%5b1%5d/ask", `"kind":"signal"`)
	get("/runs/r1/why?path=last", `"nodes":["each","flaky"]`)
	code, body := ask(http.MethodGet, "/runs/r1/node?path=flakey")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, `did you mean "flaky"?`)
	code, _ = ask(http.MethodPost, "/runs/r1/redrive")
	require.Equal(t, http.StatusConflict, code)

	// A reader follows the events and the changes of the list. When the run is redriven, the reader continues with its cursor.
	follow := func(path string, until func(map[string]any) bool) (lines []map[string]any) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		defer res.Body.Close()
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			var line map[string]any
			require.NoError(t, json.Unmarshal(in.Bytes(), &line))
			if lines = append(lines, line); until(line) {
				break
			}
		}
		return lines
	}
	code, body = ask(http.MethodPost, "/runs/r1/retry?path=flaky")
	require.Equal(t, http.StatusOK, code, body)
	for _, gate := range []string{"each[0]/ask", "each[1]/ask"} {
		require.NoError(t, run.Signal(context.Background(), gate, "yes"))
	}
	_, _ = run.Wait()
	before := follow("/runs/r1/events", func(map[string]any) bool { return false })
	require.Equal(t, "run.failed", before[len(before)-1]["type"])
	get("/runs/r1", "last: aborted", "a failure upstream: flaky")
	mended.Store(true)
	code, body = ask(http.MethodPost, "/runs/r1/redrive")
	require.Equal(t, http.StatusOK, code, body)
	changes := follow("/changes", func(line map[string]any) bool { return line["status"] == "completed" })
	require.Equal(t, "r1", changes[len(changes)-1]["id"])
	after := follow(fmt.Sprint("/runs/r1/events?after=", before[len(before)-2]["eventId"]), func(map[string]any) bool { return false })
	require.Equal(t, before[len(before)-1], after[0])
	require.Equal(t, "run.completed", after[len(after)-1]["type"])
	get("/", "completed", "map[completed:4]")
	again, _ := rn.Run("r1")
	res, _ := again.Wait()
	checkEvents(t, g, res, readAll(t, again, 0))
}

func wideGraph(layers, width int, do kahn.StepFunc) *kahn.Graph {
	g := graph()
	for id, before := range graphs.Layered(layers, width) {
		g.Add(kahn.Node{ID: id, After: before, Do: do})
	}
	return g
}

// lookOn starts lookers. Until the run ends, each looker asks the run every 10 ms for its counts, for one node and for one reason, and every
// second for all nodes. lookOn returns the number of answers.
func lookOn(run *kahn.Run, lookers int) (looks, nodes *atomic.Int64, done chan struct{}) {
	looks, nodes, done = new(atomic.Int64), new(atomic.Int64), make(chan struct{}, lookers)
	for k := range lookers {
		go func() {
			defer func() { done <- struct{}{} }()
			tick := time.NewTicker(10 * ms)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-run.Done():
					return
				case <-tick.C:
				}
				path := fmt.Sprintf("n%d.%d", (i+k)%100, (7*i+k)%100)
				counts := run.Counts()
				total := 0
				for _, n := range counts {
					total += n
				}
				_, err := run.Node(path)
				_, err2 := run.Why(path)
				if err == nil && err2 == nil && total == 10_000 {
					looks.Add(3)
				}
				if i%100 == k%100 {
					for range run.Nodes() {
						nodes.Add(1)
					}
				}
			}
		}()
	}
	return looks, nodes, done
}

// Fifty lookers get all their answers. By the clock of the bubble a run of 10,000 steps takes no longer with lookers: no step waits for them.
func TestLookersCostLittle(t *testing.T) {
	t.Parallel()
	inBubble(t, "lookers", func(t *testing.T) {
		g := wideGraph(100, 100, takes(1*ms))
		var took [2]time.Duration
		for i, lookers := range []int{0, 50} {
			begun := time.Now()
			run, err := kahn.Start(t.Context(), g, nil, kahn.Limit(10))
			require.NoError(t, err)
			looks, nodes, done := lookOn(run, lookers)
			_, err = run.Wait()
			require.NoError(t, err)
			took[i] = time.Since(begun)
			for range lookers {
				<-done
			}
			if lookers > 0 {
				ticks := int64(took[i]/(10*ms)) - 1 // the last tick may coincide with the end of the run
				require.GreaterOrEqual(t, looks.Load(), 3*50*ticks)
				require.GreaterOrEqual(t, nodes.Load(), 50*10_000*int64(took[i]/time.Second))
			}
		}
		require.Equal(t, time.Second, took[0])
		require.Equal(t, took[0], took[1])
	})
}

// The number of allocations of a call of Run.Counts, Run.Node or Run.Why does not grow with the size of the run. For Run.Nodes it grows only with
// the number of running nodes. The test is not parallel, since allocations of other tests would be counted.
func TestLookAllocations(t *testing.T) {
	allocs := func(nodes int) (look, all int64) {
		run, err := kahn.Start(t.Context(), wideGraph(nodes/100, 100, untilStopped), nil)
		require.NoError(t, err)
		defer func() { run.Cancel(); _, _ = run.Wait() }()
		for range 100 { // until the measured state is stable
			if run.Counts()[kahn.Running] == 100 {
				break
			}
			time.Sleep(ms)
		}
		look = mallocs(func() {
			_ = run.Counts()
			_, _ = run.Node("n0.1")
			_, _ = run.Why("n1.1")
		})
		all = mallocs(func() {
			for range run.Nodes() {
			}
		})
		return look, all
	}
	small, smallAll := allocs(200)
	large, largeAll := allocs(4_000)
	require.LessOrEqual(t, small, int64(40), "allocations of three looks")
	require.LessOrEqual(t, large, int64(40), "allocations of three looks")
	require.LessOrEqual(t, smallAll, int64(200))
	require.LessOrEqual(t, largeAll, int64(200), "a look at all nodes allocates for those that are at work")
}

// mallocs returns the number of allocations of a call: the minimum of several calls.
func mallocs(f func()) int64 {
	var counts []int64
	for range 5 {
		counts = append(counts, int64(testing.AllocsPerRun(3, f)))
	}
	return slices.Min(counts)
}

// BenchmarkLookers measures by the wall clock how much fifty lookers slow down a run of 10,000 steps of 1 ms.
func BenchmarkLookers(b *testing.B) {
	g := wideGraph(100, 100, takes(1*ms))
	for _, lookers := range []int{0, 50} {
		b.Run(fmt.Sprint(lookers), func(b *testing.B) {
			for b.Loop() {
				run, err := kahn.Start(b.Context(), g, nil, kahn.Limit(10))
				require.NoError(b, err)
				looks, nodes, done := lookOn(run, lookers)
				_, err = run.Wait()
				require.NoError(b, err)
				for range lookers {
					<-done
				}
				b.ReportMetric(float64(looks.Load()), "looks")
				b.ReportMetric(float64(nodes.Load()), "nodes")
			}
		})
	}
}
