package kahn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
)

// Memo gives nodes that ask for it, see [Node.Memo], the output that an earlier run with the same inputs had, without calling
// their steps. It is an option, and may be shared by any number of runs: of those that want the same output at the same time
// one calls the step, and the others wait for it, each holding its slot. Only what has completed is kept: after a failure the
// next one calls.
//
// A node that finds its output is not started: its node.completed says Memoized. Inputs that have no JSON form, and a Cache
// that fails, make the step be called, and are logged with the node. A step that was suspended is called when its signal comes,
// which is no input of the node, and what it returns is not kept. The zero value keeps everything in memory.
//
// The single flight is not that of golang.org/x/sync/singleflight: its DoChan, which a waiter can leave when its context ends,
// calls on a goroutine of its own, on which a panic ends the process and after a Goexit nobody who waits is ever told; and all
// share the error of the one that called, who may have been cancelled or have run out of its own time.
type Memo struct {
	// Cache keeps the outputs. Nil: a map in memory that grows with every output.
	Cache Cache

	mu      sync.Mutex // guards what follows
	values  map[string]any
	flights map[string]chan struct{} // by key: closed when whoever calls the step has returned
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

// through performs an attempt of a node that is memoized: it finds the output, or perform makes it.
func (m *Memo) through(s *Step, perform func() attemptResult) attemptResult {
	if _, _, resumed := s.resumption(); resumed {
		return perform()
	}
	key, err := s.memoKey()
	if err != nil {
		s.Log(slog.LevelWarn, "not memoized: "+errorText(err))
		return perform()
	}
	for {
		value, ok, err := m.get(s, key)
		if err != nil {
			s.Log(slog.LevelWarn, "memo: "+errorText(err))
			return perform()
		}
		if ok {
			s.run.st.mu.Lock()
			s.run.extra(s.ref).memoized = true
			s.run.st.refund(s.ref)
			s.run.st.mu.Unlock()
			return attemptResult{value: value}
		}
		flight, first := m.board(key)
		if first {
			return m.perform(s, key, perform)
		}
		select {
		case <-flight:
		case <-s.Done():
			return attemptResult{err: s.Err()}
		}
	}
}

// board returns the flight for a key, and whether the caller is the one to fly.
func (m *Memo) board(key string) (chan struct{}, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if flight, ok := m.flights[key]; ok {
		return flight, false
	}
	if m.flights == nil {
		m.flights = map[string]chan struct{}{}
	}
	m.flights[key] = make(chan struct{})
	return m.flights[key], true
}

// perform makes the output and keeps it. The flight has landed also if the step panics or ends its goroutine.
func (m *Memo) perform(s *Step, key string, perform func() attemptResult) attemptResult {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(m.flights[key])
		delete(m.flights, key)
	}()
	res := perform()
	if res.err == nil && s.Err() == nil { // a value after the end of its time is none
		if err := m.put(s, key, res.value); err != nil {
			s.Log(slog.LevelWarn, "memo: "+errorText(err))
		}
	}
	return res
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

// memoKey identifies what the step is going to make.
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
