package inspector

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// rests returns a graph with a gate after a step that takes a while.
func rests() *kahn.Graph {
	return (&kahn.Graph{Name: "rests"}).Add(
		kahn.Node{ID: "first", Do: func(context.Context, *kahn.Step) (any, error) {
			<-time.After(30 * time.Millisecond)
			return nil, nil
		}},
		kahn.Node{ID: "ok", Kind: kahn.KindGate, After: []string{"first"}},
		kahn.Node{ID: "last", After: []string{"ok"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
	)
}

// A run that this process continues has the age of the whole run, not the age since it was continued. Its log begins with the events of the
// process that performed the run before, if they were stored; otherwise the log says that they are missing.
func TestContinuedRun(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kahn.Option{"stored": {kahn.StoreEvents()}, "lost": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory, rn := &store.Memory{}, &kahn.Runner{}
			before, err := kahn.Start(t.Context(), rests(), nil, append(opts, kahn.RunID("r"), kahn.Durable(memory))...)
			require.NoError(t, err)
			_, err = before.WaitFor(t.Context(), "ok", kahn.Suspended)
			require.NoError(t, err)
			before.Leave()
			_, _ = before.Wait()
			began, left := before.Started(), time.Now()

			run, err := rn.Start(t.Context(), rests(), nil, kahn.RunID("r"), kahn.Durable(memory))
			require.NoError(t, err)
			d := serveRunner(t, rn, Options{Store: memory})
			check := func() (row runRow) {
				row = get[runRow](d, "api/v1/run", "run", "r")
				require.Equal(t, []string{stamp(run.FirstStarted()), stamp(run.FirstStarted()), stamp(run.Started())}, []string{row.Arrived, row.Started, row.Continued})
				return row
			}
			check()
			require.WithinRange(t, run.FirstStarted(), began, left)
			require.WithinRange(t, run.Started(), left, time.Now())
			require.NoError(t, run.Signal(t.Context(), "ok", true))
			_, err = run.Wait()
			require.NoError(t, err)
			require.Greater(t, *check().Millis, 30.0)

			log := get[logReply](d, "api/v1/log", "run", "r")
			require.Regexp(t, `^the run is completed after .*ms, which is .*ms after it was continued$`, log.Lines[len(log.Lines)-1].Text)
			last := get[logReply](d, "api/v1/log", "run", "r", "before", "1000")
			require.Equal(t, log.Lines, last.Lines)
			line := get[timelineReply](d, "api/v1/timeline", "run", "r")
			if opts == nil {
				require.Greater(t, log.First, uint64(1))
				require.Equal(t, []string{noPast, noPast}, []string{log.Note, last.Note})
				return
			}
			require.Equal(t, uint64(1), log.First)
			require.Equal(t, "the run has begun, with 3 nodes", log.Lines[0].Text)
			require.Empty(t, log.Note)
			for i, l := range log.Lines[1:] {
				require.Greater(t, l.ID, log.Lines[i].ID)
			}
			require.Equal(t, "first", line.Spans[0].Path)
			require.Len(t, get[logReply](d, "api/v1/log", "run", "r", "after", "1", "limit", "1").Lines, 1)
			require.Empty(t, get[logReply](d, "api/v1/log", "run", "r", "after", strconv.FormatUint(log.Last-1, 10)).Note, "this page does not begin with the first line")
		})
	}
}
