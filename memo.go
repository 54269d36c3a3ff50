package kahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
)

// Memo gives nodes that ask for it, see [Node.Memo], the output of an earlier run with the same inputs, without calling
// their steps. It is an option, and may be shared by any number of runs: of those that want the same output at the same time
// one asks the Cache and calls the step, and the others wait for it, each holding its slot. Only outputs of completed
// attempts are kept: after a failure the next run calls the step.
//
// A node that finds its output is not started: its node.completed says Memoized. If the inputs have no JSON form, or the
// Cache fails, the step is called and the node's log says why. A step that was suspended is called when its signal comes,
// which is no input of the node, and its output is not kept. The zero value keeps everything in memory.
//
// The single flight is not that of golang.org/x/sync/singleflight: its DoChan, which a waiter can leave when its context ends,
// calls on a goroutine of its own, where a panic ends the process and a Goexit leaves all waiters waiting; and all waiters share the
// error of the caller, which may have been cancelled or timed out.
type Memo struct {
	// Cache keeps the outputs. Nil: a map in memory that grows with every output.
	Cache Cache

	mu      sync.Mutex // guards what follows
	values  map[string]any
	flights map[string]*flight // by key
}

// flight is one attempt that looks for an output, or produces it, for all attempts that want it at the same time.
type flight struct {
	landed chan struct{} // closed at the end of the flight; the fields below are fixed then
	value  any
	ok     bool // there is an output
}

// Cache keeps outputs of nodes by key, a hex SHA-256 of the node's path, its Memo, Kind and Config, and its inputs. Values are
// shared between runs, which must not change them. Its methods are called from the goroutines of steps, with their contexts.
type Cache interface {
	Get(ctx context.Context, key string) (value any, ok bool, err error)
	Put(ctx context.Context, key string, value any) error
}

func (m *Memo) apply(c *config) error {
	if m == nil {
		return fmt.Errorf("%w: nil Memo", ErrBadOption)
	}
	c.memo = m
	return nil
}

// through performs an attempt of a node that is memoized: it finds the output, or calls perform.
func (m *Memo) through(s *Step, perform func() attemptResult) attemptResult {
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
			return m.fly(s, key, f, perform)
		}
		select {
		case <-f.landed:
			if f.ok {
				return attemptResult{value: f.value, memoized: true}
			}
		case <-s.Done():
			return attemptResult{err: s.Err()}
		}
	}
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
	f := &flight{landed: make(chan struct{})}
	m.flights[key] = f
	return f, true
}

// fly finds the output, or produces and keeps it. The flight lands also if the step panics or ends its goroutine.
func (m *Memo) fly(s *Step, key string, f *flight, perform func() attemptResult) attemptResult {
	defer m.land(key, f)
	value, ok, err := m.get(s, key)
	switch {
	case err != nil:
		m.land(key, f) // the waiting attempts go on, each by itself
		s.Log(slog.LevelWarn, "memo: "+errorText(err))
		return perform()
	case ok:
		f.value, f.ok = value, true
		return attemptResult{value: value, memoized: true}
	}
	res := perform()
	if res.err == nil && s.Err() == nil { // a value after the timeout does not count
		f.value, f.ok = res.value, true
		if err := m.put(s, key, res.value); err != nil {
			s.Log(slog.LevelWarn, "memo: "+errorText(err))
		}
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
func (m *Memo) land(key string, f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flights[key] == f {
		delete(m.flights, key)
		close(f.landed)
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
