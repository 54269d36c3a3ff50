package riverkahn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// ledger records what the steps and the compensations of a run do, in order.
type ledger struct {
	sync.Mutex
	lines []string
}

func (l *ledger) note(format string, args ...any) {
	l.Lock()
	defer l.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *ledger) read() []string {
	l.Lock()
	defer l.Unlock()
	return slices.Clone(l.lines)
}

// TestCompensation: a run that fails undoes its steps. If the process is stopped during the compensations, another process continues, and
// repeats the interrupted compensation under the same key. The effect of a remote step is undone in the process that performs the run.
func TestCompensation(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	var did ledger
	began := make(chan struct{})
	var first sync.Once
	graph := func() *kahn.Graph {
		undo := func(ctx context.Context, s *kahn.Step) error {
			out, certain := s.Compensated()
			did.note("undo %s of %v, certain: %v, %s", s.ID(), out, certain, s.IdempotencyKey())
			if s.ID() != "mail" {
				return nil
			}
			interrupted := false
			first.Do(func() {
				close(began)
				<-ctx.Done()
				interrupted = true
			})
			if interrupted {
				return context.Cause(ctx)
			}
			return nil
		}
		return (&kahn.Graph{Name: "mails"}).Add(
			kahn.Node{ID: "pay", Do: echo, Compensate: undo},
			kahn.Node{ID: "mail", Kind: "mail", Do: riverkahn.Remote{}.Step, Compensate: undo, After: []string{"pay"}},
			kahn.Node{ID: "ship", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no truck") }, After: []string{"mail"}},
		)
	}
	x.serve(t, func(context.Context, *kahn.Step) (any, error) { return "letter 7", nil }, nil)
	workflows := []riverkahn.Workflow{{Graph: graph(), Step: echo}}
	p := &riverkahn.Performer{Workflows: workflows}
	c := x.perform(t, p)
	create(t, c, graph(), "order")
	<-began
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // running steps are interrupted
	require.ErrorIs(t, p.Stop(ctx, c.River), context.Canceled)
	x.reaches(t, "order", kahn.RunSuspended)
	x.perform(t, &riverkahn.Performer{Workflows: workflows})
	x.reaches(t, "order", kahn.RunFailed)
	lines := did.read()
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "undo mail of letter 7, certain: true, ")
	require.Equal(t, lines[0], lines[1], "it is asked for again as it was, under its key")
	require.Contains(t, lines[2], "undo pay of pay, certain: true, ")
	res, err := kahn.ReadResult(t.Context(), graph(), x.store, "order")
	require.ErrorContains(t, err, "no truck")
	for _, id := range []string{"pay", "mail"} {
		n, _ := res.Node(id)
		require.Equal(t, kahn.CompensationDone, n.Compensation)
	}
}

// TestRepairCompensation: an SQL function requests that a failed compensation is repeated, or declares that it was done by hand. A job carries
// out the request.
func TestRepairCompensation(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	schema := x.withFunctions(t)
	var did ledger
	g := (&kahn.Graph{Name: "order"}).Add(
		kahn.Node{ID: "pay", Do: echo, Compensate: func(_ context.Context, s *kahn.Step) error {
			did.note("undo %s", s.ID())
			return kahn.Permanent(errors.New("no such charge"))
		}},
		kahn.Node{ID: "ship", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no truck") }, After: []string{"pay"}},
	)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	create(t, c, g, "order")
	x.reaches(t, "order", kahn.RunFailed)
	state := func() kahn.Compensation {
		res, err := kahn.ReadResult(t.Context(), g, x.store, "order")
		require.Error(t, err)
		n, _ := res.Node("pay")
		return n.Compensation
	}
	require.Equal(t, kahn.CompensationFailed, state())
	for _, row := range []struct {
		request, call string
		want          kahn.Compensation
	}{
		{"again", `post_compensation('order', 'again', actor => 'ann')`, kahn.CompensationFailed},
		{"hand", `post_compensation('order', 'hand', '{pay}', by_hand => true, actor => 'ann')`, kahn.CompensationDone},
	} {
		var posted bool
		require.NoError(t, x.pool.QueryRow(t.Context(), "SELECT "+schema+"."+row.call).Scan(&posted))
		require.True(t, posted)
		require.Eventually(t, func() bool {
			q, err := x.store.FindRequest(t.Context(), "order", row.request)
			return err == nil && q.Status == store.RequestApplied
		}, 15*time.Second, 5*time.Millisecond)
		x.reaches(t, "order", kahn.RunFailed)
		require.Equal(t, row.want, state())
	}
	require.Equal(t, []string{"undo pay", "undo pay"}, did.read())
}
