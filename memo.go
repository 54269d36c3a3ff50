package kahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Memo gives nodes that ask for it, see [Node.Memo], the output of an earlier run with the same inputs, without calling
// their steps. It is an option, and may be shared by any number of runs: of those that want the same output at the same time
// one asks the Cache and calls the step, and the others wait for its node to end: each holds its slot, but while the node is performed
// by a graph that its step has returned, see [Expand]. Only outputs of completed nodes are kept: after a failure the next run calls the
// step. Nobody waits for a node that waits for a signal because its step returned [Suspend], nor for a run that has been left.
//
// A node that finds its output is not started: its node.completed says Memoized. If the inputs have no JSON form, or the
// Cache fails, the step is called and the node's log says why. A step that was suspended is called when its signal comes,
// which is no input of the node, and its output is not kept. The zero value keeps everything in memory.
//
// The single flight is not that of golang.org/x/sync/singleflight: its DoChan, which a waiter can leave when its context ends,
// calls on a goroutine of its own, where a panic ends the process and a Goexit leaves all waiters waiting; and all waiters share the
// error of the caller, which may have been cancelled or timed out.
type Memo struct {
	// Cache keeps outputs of nodes by key, a hex SHA-256 of the node's path, its Memo, Kind and Config, and its inputs. Values are shared
	// between runs, which must not change them. Its methods are called from the goroutines of steps, with their contexts. Nil: a map in
	// memory that grows with every output.
	Cache interface {
		Get(ctx context.Context, key string) (value any, ok bool, err error)
		Put(ctx context.Context, key string, value any) error
	}

	mu      sync.Mutex // guards what follows
	values  map[string]any
	flights map[string]*flight // by key
}

// flight is one attempt that looks for an output, or produces it, for all attempts that want it at the same time.
type flight struct {
	memo     *Memo
	key      string
	expanded chan struct{} // closed when the step has returned a graph, which may want the slots of those who wait
	landed   chan struct{} // closed at the end of the flight; the fields below are fixed then
	value    any
	ok       bool // there is an output
}

func (m *Memo) apply(c *config) error {
	if m == nil {
		return fmt.Errorf("%w: nil Memo", ErrBadOption)
	}
	c.memo = m
	return nil
}

// errBoardAgain is the result of an attempt whose node waited for a flight without its slots, in vain: it takes them, and boards, again.
var errBoardAgain = errors.New("the output that the node waited for did not come")

// through performs an attempt of a node that is memoized: it finds the output, or calls perform.
func (m *Memo) through(w *worker, perform func() attemptResult) attemptResult {
	s := w.step
	if _, d := s.resumption(); d != nil {
		return perform()
	}
	key, err := s.memoKey()
	if err != nil {
		s.Log(slog.LevelWarn, "not memoized: "+errorText(err))
		return perform()
	}
	for {
		f, first := m.join(key)
		if first {
			return f.fly(w, perform)
		}
		expanded, yielded := f.expanded, false
		for waiting := true; waiting; {
			select {
			case <-f.landed:
				waiting = false
			case <-expanded:
				expanded = nil
				if yielded = s.run.yieldSlots(s); !yielded && s.run.outermost().shared != nil {
					return perform()
				}
			case <-s.Done():
				return attemptResult{err: s.Err()}
			}
		}
		switch {
		case f.ok:
			return attemptResult{value: f.value, memoized: true}
		case yielded:
			return attemptResult{err: errBoardAgain}
		}
	}
}

// yieldSlots releases the slots of an attempt that waits for a flight: the nodes inside of the expanded node may want slots that its run
// shares with this one. An attempt that has started, as a retry has, would have to begin anew to get its slots back, and so keeps them: it does
// not wait where slots are shared.
func (r *Run) yieldSlots(s *Step) bool {
	ok := false
	r.control(func(int64) {
		if ok = r.current(s.ref) == s && r.st.Word(s.ref).Is(machine.WordAdmitting); ok {
			r.st.Expand(s.ref)
		}
	})
	return ok
}

// join returns the flight for a key, and whether the caller leads it. Join before asking the cache: then only the leader can
// find that there is no output, and produces it.
func (m *Memo) join(key string) (*flight, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.flights[key]; ok {
		return f, false
	}
	if m.flights == nil {
		m.flights = map[string]*flight{}
	}
	f := &flight{memo: m, key: key, expanded: make(chan struct{}), landed: make(chan struct{})}
	m.flights[key] = f
	return f, true
}

// fly finds the output, or produces and keeps it. The flight lands also if the step panics or ends its goroutine. If the step has returned
// a graph, the worker has the flight afterwards.
func (f *flight) fly(w *worker, perform func() attemptResult) attemptResult {
	m, s := f.memo, w.step
	defer func() {
		if w.flight == nil {
			f.land()
		}
	}()
	value, ok, err := m.get(s, f.key)
	switch {
	case err != nil:
		f.land() // the waiting attempts go on, each by itself
		s.Log(slog.LevelWarn, "memo: "+errorText(err))
		return perform()
	case ok:
		f.value, f.ok = value, true
		return attemptResult{value: value, memoized: true}
	}
	res := perform()
	switch {
	case res.err == nil && s.Err() == nil: // a value after the timeout does not count
		f.value, f.ok = res.value, true
		if err := m.put(s, f.key, res.value); err != nil {
			s.Log(slog.LevelWarn, "memo: "+errorText(err))
		}
	case res.err != nil && inspectError(res.err).expand != nil:
		close(f.expanded)
		w.flight = f
	}
	return res
}

// keep keeps the output of a step that was expanded.
func (m *Memo) keep(s *Step, value any) {
	key, err := s.memoKey()
	if err == nil {
		err = m.put(s, key, value)
	}
	if err != nil {
		s.Log(slog.LevelWarn, "memo: "+errorText(err))
	}
}

// land ends a flight, once.
func (f *flight) land() {
	m := f.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flights[f.key] == f {
		delete(m.flights, f.key)
		close(f.landed)
	}
}

// dropFlight ends the flight of an attempt whose node is not going to be expanded.
func (w *worker) dropFlight() {
	if f := w.flight; f != nil {
		w.flight = nil
		f.land()
	}
}

// board notes that a node which has been expanded has a flight, with the lock held. f may be nil.
func (t *tree) board(at place, f *flight) {
	switch {
	case f == nil:
		return
	case t.flights == nil:
		t.flights = map[place]*flight{}
	}
	t.flights[at] = f
}

// landFlight ends the flight of a node that was expanded, with the lock held: the node has ended, is attempted again, or is left. It comes
// with the output of a node that has completed.
func (r *Run) landFlight(ref machine.Ref, output any, ok bool) {
	if r.tree == nil {
		return
	}
	at := place{r, ref}
	if f := r.tree.flights[at]; f != nil {
		delete(r.tree.flights, at)
		f.value, f.ok = output, ok
		f.land()
	}
}

// landFlights ends the flights of all nodes of a tree whose run ends without having ended them. Its map iterator has no room in the frame
// of conclude: see attemptAndFinish.
//
//go:noinline
func (t *tree) landFlights() {
	for at, f := range t.flights {
		delete(t.flights, at)
		f.land()
	}
}

func (m *Memo) get(s *Step, key string) (value any, ok bool, err error) {
	if m.Cache != nil {
		return m.Cache.Get(s, key)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok = m.values[key]
	return value, ok, nil
}

func (m *Memo) put(s *Step, key string, value any) error {
	if m.Cache != nil {
		return m.Cache.Put(s, key, value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[string]any{}
	}
	m.values[key] = value
	return nil
}

// memoKey identifies the output that the step is going to produce.
func (s *Step) memoKey() (string, error) {
	n := s.node()
	inputs := map[string]any{} // of a nested run they are the parameters of its composite
	s.run.eachInput(func(name string) {
		if v, ok := s.run.input(name); ok {
			inputs[name] = v
		}
	})
	data, err := canonical(map[string]any{
		"node": s.Path(), "memo": n.Memo, "kind": n.Kind, "config": n.Config, "params": s.Params(), "upstream": s.UpstreamAll(),
		"inputs": inputs,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
