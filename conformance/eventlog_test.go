package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// read collects the events that Events yields after a cursor.
func read(t testing.TB, run *kahn.Run, after uint64) (events []kahn.Event, err error) {
	t.Helper()
	for e, problem := range run.Events(t.Context(), after) {
		if err != nil {
			t.Errorf("%v after an error", e)
		}
		if err = problem; err == nil {
			events = append(events, e)
		}
	}
	return events, err
}

func ids(events []kahn.Event) string {
	var text []string
	for _, e := range events {
		text = append(text, fmt.Sprint(e.ID))
	}
	return strings.Join(text, " ")
}

func TestEventReaders(t *testing.T) {
	// A chain of three nodes has these events: run.started, three events per node, run.completed.
	three := graph(after("A"), after("B", "A"), after("C", "B"))
	const last = 11

	inBubble(t, "258 late: what comes after the cursor, then the end", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), three, nothing)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			after uint64
			ids   string
		}{
			{0, "1 2 3 4 5 6 7 8 9 10 11"}, {3, "4 5 6 7 8 9 10 11"}, {last - 1, "11"}, {last, ""}, {1000, ""}, {1<<64 - 1, ""},
		} {
			events, err := read(t, run, row.after)
			if got := ids(events); got != row.ids || err != nil {
				t.Errorf("after %d: %s, %v; expected %s", row.after, got, err, row.ids)
			}
		}
		if first, end := run.EventRange(); first != 1 || end != last {
			t.Errorf("range %d to %d", first, end)
		}
	})

	inBubble(t, "each life from where its snapshot was taken", func(t *testing.T) {
		five := graph(after("A"), after("B", "A"), after("C", "B"), after("D", "C"), after("E", "D"))
		var want []string
		var from *kahn.Snapshot
		for life := range 3 {
			rec := newRecorder()
			opts := []kahn.Option{kahn.RunID("r"), kahn.Retain(100), kahn.OnEvent(rec.add)}
			if from != nil {
				opts = append(opts, kahn.Resume(from))
			}
			run, err := kahn.Start(t.Context(), five, takes(time.Second), opts...)
			require.NoError(t, err)
			time.Sleep(1500 * ms)
			seen := len(rec.all())
			if from = run.Snapshot(); life == 2 {
				seen = -1
			}
			_, err = run.Wait() // the run goes on beyond its snapshot, and nobody continues from there
			require.NoError(t, err)
			own := rec.all()
			if seen >= 0 {
				own = own[:seen]
			}
			for _, e := range own {
				want = append(want, fmt.Sprint(e.ID, " ", e.Time.UnixNano(), " ", e))
			}
			events, err := read(t, run, 0)
			require.NoError(t, err)
			if life == 2 {
				var got []string
				for _, e := range events {
					got = append(got, fmt.Sprint(e.ID, " ", e.Time.UnixNano(), " ", e))
				}
				require.Equal(t, want, got)
			}
		}
	})

	inBubble(t, "261 no gap and no duplicate where the past meets the present", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), three, takes(ms))
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		for after := range uint64(last) {
			readers.Go(func() {
				events, err := read(t, run, after)
				if len(events) != last-int(after) || err != nil {
					t.Errorf("after %d: %d events, %v", after, len(events), err)
				}
				for i, e := range events {
					if e.ID != after+uint64(i)+1 {
						t.Errorf("after %d: event %d has id %d", after, i, e.ID)
					}
				}
			})
		}
		readers.Wait()
		if res, err := run.Wait(); err != nil || res.Duration != 3*ms {
			t.Errorf("%v, %v", res.Duration, err)
		}
	})

	inBubble(t, "a reader may leave early", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), three, takes(ms))
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range run.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.ID == 3 {
				break
			}
		}
		if status := run.Status(); status != kahn.RunRunning {
			t.Errorf("event 3 was seen when the run was %v", status)
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
	})

	inBubble(t, "a reader whose context ends stops waiting", func(t *testing.T) {
		release := make(chan struct{})
		run, err := kahn.Start(t.Context(), three, func(context.Context, *kahn.Step) (any, error) {
			<-release
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var problem error
		var seen []kahn.Event
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for e, err := range run.Events(ctx, 0) {
				if problem = err; err == nil {
					seen = append(seen, e)
				}
			}
		}()
		synctest.Wait()
		cancel(enough)
		<-stopped
		if ids(seen) != "1 2 3" || problem != enough {
			t.Errorf("saw %s, %v", ids(seen), problem)
		}
		close(release)
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
	})

	inBubble(t, "262 a cursor older than what is kept", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), three, nothing, kahn.Retain(4))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		for after := range uint64(7) {
			var gap *event.GapError
			if events, err := read(t, run, after); len(events) > 0 || !errors.As(err, &gap) || gap.After != after || gap.First != 8 {
				t.Errorf("after %d: %s, %v", after, ids(events), err)
			}
		}
		if events, err := read(t, run, 7); ids(events) != "8 9 10 11" || err != nil {
			t.Errorf("after 7: %s, %v", ids(events), err)
		}
	})

	inBubble(t, "no log", func(t *testing.T) {
		for _, opts := range [][]kahn.Option{{kahn.Retain(0)}, {kahn.Retain(0), kahn.OnEvent(func(kahn.Event) {})}} {
			run, err := kahn.Start(t.Context(), three, nothing, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if events, err := read(t, run, 0); len(events) > 0 || !errors.Is(err, event.ErrNoLog) {
				t.Errorf("%s, %v", ids(events), err)
			}
			if _, err := run.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A log that keeps few events, or none, still delivers all events to its sinks. A reader that is behind gets a GapError.
func TestRetention(t *testing.T) {
	const nodes = 1000
	for _, retain := range []int{0, 1, 100, 10_000} {
		inBubble(t, fmt.Sprint("retain ", retain), func(t *testing.T) {
			var g kahn.Graph
			for i := range nodes {
				g.Add(kahn.Node{ID: fmt.Sprint(i)})
			}
			release := make(chan struct{})
			rec := newRecorder()
			slow := kahn.OnEvent(func(e kahn.Event) {
				if e.ID == 1 {
					<-release
				}
				rec.add(e)
			})
			run, err := kahn.Start(t.Context(), &g, nothing, kahn.Retain(retain), slow)
			if err != nil {
				t.Fatal(err)
			}
			<-run.Done()
			const last = 3*nodes + 2
			first, end := run.EventRange()
			if want := uint64(max(1, last-retain+1)); first != want || end != last {
				t.Errorf("range %d to %d, expected %d to %d", first, end, want, last)
			}
			close(release)
			res, err := run.Wait()
			if err != nil {
				t.Fatal(err)
			}
			checkEvents(t, &g, res, rec.all())
			if events, err := read(t, run, first-1); retain > 0 && (!slices.EqualFunc(events, rec.all()[first-1:], sameEvent) || err != nil) {
				t.Errorf("the reader and the sink disagree: %d events, %v", len(events), err)
			}
		})
	}
}

func sameEvent(a, b kahn.Event) bool { return a.String() == b.String() && a.Time.Equal(b.Time) }
