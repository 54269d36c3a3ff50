package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// The method `stops` performs a run in life after life until the run has ended. At random it signals the run, cancels nodes, and leaves, shuts down
// or stops the run.
func (r *trial) stops(t *testing.T) {
	s := r.open(t)
	var mu sync.Mutex
	var events []kahn.Event
	opts := append(slices.Clone(r.opts), kahn.Durable(s), kahn.RunID("r"), kahn.StopMode(r.random.IntN(2)), kahn.CancelGrace(time.Second),
		kahn.OnEvent(func(e kahn.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}))
	most := 1 + r.random.IntN(5)
	var acts []string
	for life := 1; ; life++ {
		rn := new(kahn.Runner)
		run, err := rn.Start(t.Context(), r.g, r.step, opts...)
		if err != nil {
			t.Fatalf("%s: life %d, after %s: %v", r.name, life, strings.Join(acts, ", "), err)
		}
		acts = append(acts, r.act(rn, run, life >= most)...)
		said := fmt.Sprintf("%s: life %d, %s", r.name, life, strings.Join(acts, ", "))
		select {
		case <-run.Done():
		case <-time.After(time.Minute): // a minute is plenty: steps take about 20 ms
			t.Fatalf("%s: the run does not end, and is %v; cancelled: %v", said, run.Status(), run.Cancel())
		}
		res, err := run.Wait()
		if errors.Is(err, kahn.ErrStore) || len(res.Warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", said, err, res.Warnings)
		}
		stored, err := s.Load(t.Context(), "r")
		switch {
		case err != nil:
			t.Errorf("%s: %v", said, err)
		case stored.Status.Terminal() != res.Status.Terminal() || res.Status.Terminal() && stored.Status != res.Status:
			t.Errorf("%s: the run is %v, and stored as %v", said, res.Status, stored.Status)
		}
		mu.Lock()
		err = r.check(r.g, res, events)
		mu.Unlock()
		if err != nil {
			t.Errorf("%s: %v", said, err)
		}
		if res.Status.Terminal() || t.Failed() {
			return
		}
		acts = append(acts, "the next life")
	}
}

// The method `act` signals and cancels nodes of a run. Then it leaves the run or shuts the Runner down; in the last life, it cancels or aborts the
// run instead. It returns a description of each action.
func (r *trial) act(rn *kahn.Runner, run *kahn.Run, last bool) (acts []string) {
	did := func(what string, args ...any) { acts = append(acts, fmt.Sprintf(what, args...)) }
	for range r.random.IntN(8) {
		pause := time.Duration(r.random.IntN(20)) * time.Millisecond
		did("%v", pause)
		time.Sleep(pause)
		if w := run.Waiting(); len(w) > 0 && r.random.IntN(4) > 0 {
			token := w[r.random.IntN(len(w))].Token
			did("signal %s", token)
			_ = run.Signal(context.Background(), token, "answer to "+token) // the run may have ended meanwhile
		} else if r.random.IntN(6) == 0 {
			id := fmt.Sprint("n", r.random.IntN(5))
			did("cancel %s", id)
			_ = run.CancelNode(id) // the node may have ended, or may not exist
		}
	}
	switch kind := r.random.IntN(3); {
	case last && kind == 0:
		did("abort")
		_ = run.AbortAll(errors.New("enough")) // AbortAll is refused if the run is suspended or over
	case last:
		did("cancel")
		_ = run.Cancel() // Cancel is refused if the run is suspended or over
	case kind == 0:
		patience := time.Duration(r.random.IntN(20)) * time.Millisecond
		did("shut down, patience %v", patience)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = rn.Shutdown(ctx) // an error means that ctx ended first
	default:
		did("leave")
		run.Leave()
	}
	return acts
}
