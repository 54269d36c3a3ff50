package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestOutages: a run survives an outage of its store that is shorter than its lease, regardless of the error. After a longer outage the run is
// left. It calls no step after its lease has expired, and continues as soon as the store works again.
func TestOutages(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		lasts time.Duration
		err   error
		all   bool
		left  time.Duration // time from the start of the outage until the run is left; 0 if it is not left
	}{
		{lasts: 25 * time.Second, err: errDisk},
		{lasts: 25 * time.Second, err: context.DeadlineExceeded},
		{lasts: 12 * time.Second, err: errDisk, all: true},
		{lasts: time.Hour, err: errDisk, left: 30 * time.Second},
		{lasts: time.Hour, err: errDisk, all: true, left: 29500 * ms}, // the lease was renewed half a second before
		{lasts: time.Hour, err: fmt.Errorf("no table: %w", kahn.ErrUnusable), left: ms},
		{lasts: time.Hour, err: fmt.Errorf("no table: %w", kahn.ErrUnusable), all: true, left: ms},
	} {
		inBubble(t, fmt.Sprintf("%v of %v, leases too: %v", row.lasts, row.err, row.all), func(t *testing.T) {
			begin := time.Now()
			store := &outage{Memory: new(store.Memory), err: row.err, all: row.all, from: begin.Add(10500 * ms)}
			store.to = store.from.Add(row.lasts)
			var g kahn.Graph
			for i := range 30 {
				g.Add(kahn.Node{ID: fmt.Sprint("n", i)})
				if i > 0 {
					g.Connect(kahn.Edge{From: fmt.Sprint("n", i-1), To: fmt.Sprint("n", i)})
				}
			}
			var c calls
			step := c.count(func(ctx context.Context, s *kahn.Step) (any, error) {
				if now := time.Now(); row.left != 0 && now.After(store.from) && now.Before(store.to) {
					t.Errorf("%s was called %v after the outage began", s.ID(), now.Sub(store.from))
				}
				return takes(time.Second)(ctx, s)
			})
			opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
			r := try(t, &g, step, opts...)
			if row.left == 0 {
				if r.Status != kahn.RunCompleted || store.calls == 0 || store.calls > 40 {
					t.Errorf("%v, %v after %d calls", r.Status, r.err, store.calls)
				}
				for i := range 30 {
					if n := c.of(fmt.Sprint("n", i)); n != 1 {
						t.Errorf("n%d was called %d times", i, n)
					}
				}
				return
			}
			if !r.Left || !errors.Is(r.err, row.err) {
				t.Errorf("%v, %v", r.Status, r.err)
			}
			if after := time.Since(store.from); after < min(row.left, 29*time.Second) || after > row.left+time.Second {
				t.Errorf("it was left after %v", after)
			}
			store.to = time.Now()
			time.Sleep(31 * time.Second)
			if r = try2(t, &g, step, opts...); r.Status != kahn.RunCompleted {
				t.Errorf("%v, %v", r.Status, r.err)
			}
			again := 0
			for i := range 30 {
				again += c.of(fmt.Sprint("n", i)) - 1
			}
			if again != 1 { // the attempt that was running is repeated
				t.Errorf("%d steps were called again", again)
			}
		})
	}
}

// TestFirstWrite: the first write of a life is not repeated. If it fails, no step is called, no event is published, and the lease is released.
func TestFirstWrite(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := &outage{Memory: new(store.Memory), err: errDisk, from: time.Now(), to: time.Now().Add(time.Hour)}
		g := graph(after("A"), gate("G", "A"), after("B", "G"))
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
		r := try(t, g, neverStep(t), opts...)
		r.expect("A:idle G:idle B:idle", "suspended")
		if store.calls != 1 || len(r.events) > 0 || !errors.Is(r.err, errDisk) {
			t.Errorf("%d calls, %v, %v", store.calls, r.err, eventText(r.events))
		}
		store.to = store.from
		r = pause(t, g, takes(0), opts...)
		r.expect("A:ok G:suspended B:waiting", "suspended")
		store.from, store.to, store.calls = time.Now(), time.Now().Add(time.Hour), 0
		res, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.EarlySignals(map[string]any{"G": true}))...)
		if !res.Left || store.calls != 1 || !errors.Is(err, errDisk) {
			t.Errorf("%v, %v, %d calls", res.Status, err, store.calls)
		}
		(trial{res, t, err, nil}).expect("A:ok G:suspended B:waiting", "suspended")
		if len(res.Waiting) != 1 || res.Waiting[0].Node != "G" {
			t.Errorf("it waits for %+v", res.Waiting)
		}
		store.to = store.from
		try2(t, g, takes(0), append(opts, kahn.EarlySignals(map[string]any{"G": true}))...).expect("A:ok G:ok B:ok", "completed")
	})
}

// TestLostWithSlots: if a run is left because of a store failure, it returns the slots that it shares with other runs, including the slots of
// abandoned steps.
func TestLostWithSlots(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		rn := &kahn.Runner{Limit: 1}
		store := &outage{Memory: new(store.Memory), err: errDisk, all: true, from: time.Now().Add(time.Second), to: time.Now().Add(time.Hour)}
		deaf := func(context.Context, *kahn.Step) (any, error) { time.Sleep(time.Hour); return nil, nil }
		run, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A"}), deaf, kahn.Durable(store), kahn.RunID("r"), kahn.Lease("", 10*time.Second))
		require.NoError(t, err)
		synctest.Wait()
		other, err := rn.Start(t.Context(), graph(kahn.Node{ID: "X"}), takes(0))
		require.NoError(t, err)
		res, err := run.Wait()
		require.ErrorIs(t, err, kahn.ErrStore)
		require.True(t, res.Left)
		require.Equal(t, []string{"A"}, res.Abandoned)
		require.Empty(t, heldSlots(run))
		_, err = other.Wait()
		require.NoError(t, err)
		require.Less(t, time.Since(store.from), time.Minute)
		time.Sleep(time.Hour) // the abandoned step returns
	})
}

// outCodec is a codec that, while it is down, fails to encode a text that it has encoded before.
type outCodec struct {
	kahn.Types
	text  string
	calls int
	down  bool
}

func (c *outCodec) Encode(value any) (json.RawMessage, error) {
	if value == c.text {
		if c.calls++; c.calls > 1 && c.down {
			return nil, errDown
		}
	}
	return c.Types.Encode(value)
}

// TestCodecOutage: a loop's value was encoded when its node ended, and cannot be encoded again for the next iteration. The run does not fail.
func TestCodecOutage(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		codec := &outCodec{text: "x", down: true}
		twice := func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }
		g := graph(kahn.Node{ID: "A", Sub: graph(after("x")), Loop: &kahn.Loop{MaxIterations: 3, While: twice}}, after("B", "A"))
		opts := []kahn.Option{kahn.Durable(new(store.Memory)), kahn.RunID("r"), kahn.Encoding(codec)}
		r := try(t, g, takes(0), opts...)
		if r.Status != kahn.RunSuspended || !r.Left || !errors.Is(r.err, errDown) || r.node("B").Status.Terminal() {
			t.Errorf("%v, %v, %v", r.Status, r.Left, r.err)
		}
		codec.down = false
		try2(t, g, takes(0), opts...).expect("A:ok B:ok", "completed")
	})
}

// TestPendingLease: a pending run keeps its lease. A run that was refused, left or cancelled before it started has no lease.
func TestPendingLease(t *testing.T) {
	t.Parallel()
	inBubble(t, "it begins after a long time", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		first, err := rn.Start(t.Context(), graph(after("A")), takes(5*time.Minute))
		require.NoError(t, err)
		store := new(store.Memory)
		run, err := rn.Start(t.Context(), graph(after("B")), takes(0), kahn.Durable(store), kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(4 * time.Minute)
		require.Equal(t, kahn.RunPending, run.Status())
		_, _, err = store.Acquire(t.Context(), "r", "another", time.Minute)
		require.ErrorIs(t, err, kahn.ErrLeased)
		for _, r := range []*kahn.Run{first, run} {
			res, err := r.Wait()
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
		}
		_, _, err = store.Acquire(t.Context(), "r", "another", time.Minute)
		require.NoError(t, err)
	})

	inBubble(t, "its lease was lost meanwhile", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		first, err := rn.Start(t.Context(), graph(after("A")), takes(5*time.Minute))
		require.NoError(t, err)
		store := &outage{Memory: new(store.Memory), err: errDisk, all: true, from: time.Now().Add(time.Minute), to: time.Now().Add(2 * time.Minute)}
		run, err := rn.Start(t.Context(), graph(after("B")), neverStep(t), kahn.Durable(store), kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(3 * time.Minute)
		_, _, err = store.Acquire(t.Context(), "r", "another", time.Hour)
		require.NoError(t, err)
		_, err = first.Wait()
		require.NoError(t, err)
		_, err = run.Wait()
		require.ErrorIs(t, err, kahn.ErrFenced)
	})

	inBubble(t, "it is refused", func(t *testing.T) {
		rn := new(kahn.Runner)
		first, err := rn.Start(t.Context(), graph(after("A")), takes(time.Minute), kahn.RunID("r"))
		require.NoError(t, err)
		store := new(store.Memory)
		_, err = rn.Start(t.Context(), graph(after("B")), neverStep(t), kahn.Durable(store), kahn.RunID("r"))
		require.ErrorIs(t, err, kahn.ErrDuplicateRun)
		_, _, err = store.Acquire(t.Context(), "r", "another", time.Minute)
		require.NoError(t, err)
		_, err = first.Wait()
		require.NoError(t, err)
	})

	inBubble(t, "it is left or cancelled while it is pending", func(t *testing.T) {
		for name, end := range map[string]func(*kahn.Run){"left": (*kahn.Run).Leave, "cancelled": func(r *kahn.Run) { r.Cancel() }} {
			rn := &kahn.Runner{MaxRuns: 1}
			first, err := rn.Start(t.Context(), graph(after("A")), takes(5*time.Minute))
			require.NoError(t, err)
			store := new(store.Memory)
			run, err := rn.Start(t.Context(), graph(after("B")), neverStep(t), kahn.Durable(store), kahn.RunID("r"))
			require.NoError(t, err)
			time.Sleep(2 * time.Minute)
			end(run)
			_, err = run.Wait()
			require.False(t, errors.Is(err, kahn.ErrStore), "%s: %v", name, err)
			_, _, err = store.Acquire(t.Context(), "r", "another", time.Minute)
			require.NoError(t, err)
			_, err = first.Wait()
			require.NoError(t, err)
		}
	})
}

// TestLeft: Result.Left is true for a run that was left, and false for a run that only waits.
func TestLeft(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		g := graph(gate("G"), kahn.Node{ID: "A", Do: takes(time.Second)}, after("B", "A"))
		require.False(t, pause(t, g, takes(0)).Left)
		run, err := kahn.Start(t.Context(), g, takes(0))
		require.NoError(t, err)
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		require.True(t, res.Left)
		run, err = kahn.Start(t.Context(), graph(after("A")), takes(0))
		require.NoError(t, err)
		run.Leave() // may be too late
		res, err = run.Wait()
		require.NoError(t, err)
		require.Equal(t, res.Status == kahn.RunSuspended, res.Left)
	})
}

// moody is a store that refuses to renew leases for a while, and records the calls of Renew.
type moody struct {
	store.Memory
	begin time.Time
	fails int // the number of renewals that fail
	asked []time.Duration
}

func (m *moody) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	m.asked = append(m.asked, time.Since(m.begin))
	if len(m.asked) <= m.fails {
		return errDisk
	}
	return m.Memory.Renew(ctx, l, ttl)
}

// TestRenewalIsRepeated: a lease is renewed after a third of its length. A failed renewal is repeated after a tenth of the lease's length,
// but at the latest after a second.
func TestRenewalIsRepeated(t *testing.T) {
	t.Parallel()
	for lease, asked := range map[time.Duration][]time.Duration{
		3 * time.Second:  {1000 * ms, 1300 * ms, 1600 * ms, 2600 * ms},
		30 * time.Second: {10 * time.Second, 11 * time.Second, 12 * time.Second, 22 * time.Second},
	} {
		inBubble(t, lease.String(), func(t *testing.T) {
			m := &moody{begin: time.Now(), fails: 2}
			r := try(t, graph(after("A")), takes(lease), kahn.Durable(m), kahn.Lease("p", lease))
			r.expect("A:ok", "completed")
			require.Equal(t, asked, m.asked)
		})
	}
}

// TestLostRunWithAGate: a gate's deadline neither ends nor delays a run whose store has failed.
func TestLostRunWithAGate(t *testing.T) {
	t.Parallel()
	inBubble(t, "a gate", func(t *testing.T) {
		begin := time.Now()
		db := &outage{Memory: new(store.Memory), err: errDisk, all: true, from: begin.Add(10 * time.Second), to: begin.Add(24 * time.Hour)}
		g := graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}}, kahn.Node{ID: "A", Do: untilStopped})
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), g, nop, kahn.Durable(db), kahn.Lease("p", 30*time.Second), kahn.OnEvent(rec.add))
		require.ErrorIs(t, err, kahn.ErrStore)
		require.Less(t, time.Since(begin), time.Minute)
		n, _ := res.Node("G")
		require.False(t, n.Status.Terminal(), "%v", n.Status)
		for _, e := range rec.all() {
			require.NotContains(t, []event.Type{event.NodeTimedOut, event.NodeFailed}, e.Type, e.String())
		}
	})
}

// slowlyDecoded is a value whose decoding takes ten minutes.
type slowlyDecoded struct{}

func (*slowlyDecoded) UnmarshalJSON([]byte) error { time.Sleep(10 * time.Minute); return nil }

// TestFencedLeaseIsNotRenewed: once the store has said that another process holds the lease, it is not asked to renew it again and again,
// but once while the values of the stored run are decoded, and once by the run.
func TestFencedLeaseIsNotRenewed(t *testing.T) {
	asked := 0
	opts := func(db *eventStore) []kahn.Option {
		return []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Encoding(kahn.Types{"slow": slowlyDecoded{}})}
	}
	fenced := func() error { asked++; return kahn.ErrFenced }
	inBubble(t, "at work", func(t *testing.T) {
		asked = 0
		_, err := kahn.Execute(t.Context(), graph(after("a")), takes(10*time.Minute), opts(&eventStore{renew: fenced})...)
		require.ErrorIs(t, err, kahn.ErrFenced)
		require.Equal(t, 1, asked)
	})
	inBubble(t, "while decoding", func(t *testing.T) {
		asked = 0
		db := new(eventStore)
		g := graph(kahn.Node{ID: "a", Do: succeeds(slowlyDecoded{})}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"a"}})
		res, err := kahn.Execute(t.Context(), g, nil, opts(db)...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		db.renew = fenced
		_, err = kahn.Execute(t.Context(), g, nil, opts(db)...)
		require.ErrorIs(t, err, kahn.ErrFenced)
		require.Equal(t, 2, asked)
	})
}
