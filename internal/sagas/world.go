// Package sagas performs random graphs whose nodes have compensations, and reports defects. Examples of defects are an effect that should have been
// undone and is not reported, a node that was undone before its successors, and a wrong idempotency key.
package sagas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

const ms = time.Millisecond

var errSoldOut = errors.New("sold out")

// World is the outside world, which steps change. For each node that may be undone, World records whether the node has an effect. The steps and
// compensations of a graph from [World.Graph] change the World. They also record the defects of their calls.
type World struct {
	Seed uint64
	// Adapt, if not nil, changes a node of a random graph. Graph calls Adapt with `whole` false. Then Graph may turn the node into a composite, and
	// calls Adapt with `whole` true. For a cleanup node, Graph makes only the second call.
	Adapt func(n *kahn.Node, whole bool)
	// Graphs are the graphs that steps return. Each of these steps gives the index of its graph to Expand, as the state.
	Graphs []*kahn.Graph

	Mu     sync.Mutex      // guards the fields below
	Has    map[string]bool // effects that happened and were not undone
	Undone map[string]int  // calls of compensations
	Begun  map[string]int  // by path: the value of Clock when the first attempt of the node's latest compensation began
	Ended  map[string]int
	Clock  int
	Wrong  []string

	life int  // the number of processes that have died
	dead bool // whether the process has died; if so, its steps have no effects
	keys map[string]*keysOf
	// By path: the last attempt that returned a graph, the process in which it did so, and the number of later calls for the same graph.
	expanded map[string]*expansion
}

type expansion struct{ attempt, life, again int }

// keysOf holds the idempotency keys of the calls for a node.
type keysOf struct {
	does, undoes string // the last key of each kind of call
	undone       bool   // whether the node was undone since the last call of its step
	life         int    // World.life when the node was undone
	spent        map[string]bool
}

// New returns a world in which nothing has happened. The seed, and the times at which steps are stopped, determine what happens.
func New(seed uint64) *World {
	return &World{Seed: seed, Has: map[string]bool{}, Undone: map[string]int{}, Begun: map[string]int{}, Ended: map[string]int{}, keys: map[string]*keysOf{}, expanded: map[string]*expansion{}}
}

// Called records the idempotency key of a call. Until the node is undone, all calls of its step must have the same key. All calls that undo the node
// must also have the same key, which must differ from the key of the step.
func (w *World) Called(s *kahn.Step) {
	k, key := w.keys[s.Path()], s.IdempotencyKey()
	if k == nil {
		k = &keysOf{spent: map[string]bool{}}
		w.keys[s.Path()] = k
	}
	bad := func(what string) {
		w.Wrong = append(w.Wrong, fmt.Sprintf("%s, attempt %d: %s", s.Path(), s.Attempt(), what))
	}
	if s.Compensating() {
		// If the node is undone again under a new key, a composite around it has had a new attempt, which did not call the node's step.
		if k.undone && key != k.undoes {
			k.spent[k.does], k.spent[k.undoes], k.undone, k.undoes = true, true, false, ""
		}
		switch {
		case k.spent[key], key == k.does:
			bad("it is undone under a key that is spent")
		case k.undone && k.life >= w.life:
			bad("it is undone twice in one life")
		case !k.undone && k.undoes != "" && key != k.undoes:
			bad("the attempts to undo it have different keys")
		}
		k.undoes = key
		return
	}
	switch {
	case k.undone:
		if key == k.does || k.spent[key] {
			bad("it is performed again under the key of what was undone")
		}
		k.spent[k.does], k.spent[k.undoes] = true, true
		k.undone, k.undoes = false, ""
	case k.does != "" && key != k.does:
		bad("its attempts have different keys")
	}
	k.does = key
}

// HasUndone records that the effect of a node was undone.
func (w *World) HasUndone(path string) {
	delete(w.Has, path)
	if k := w.keys[path]; k != nil {
		k.undone, k.life = true, w.life
	}
}

// forgets reports whether a step that has returned a graph fails now that another process calls it again for this graph. Sometimes it does.
func (w *World) forgets(s *kahn.Step) bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	x := w.expanded[s.Path()]
	if x == nil || x.attempt != s.Attempt() {
		w.expanded[s.Path()] = &expansion{attempt: s.Attempt(), life: w.life}
		return false
	}
	if x.life == w.life {
		return false
	}
	x.again++
	return w.rng(s, uint64(2+x.again)).IntN(3) == 0
}

// The method `dies` lets the process die if `dead` is true. Otherwise it begins the next process.
func (w *World) dies(dead bool) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.dead = dead; !dead {
		w.life++
	}
}

func (w *World) rng(s *kahn.Step, what uint64) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(s.Path()) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.Seed, h^uint64(s.Attempt())<<40^what<<60))
}

func (w *World) do(ctx context.Context, s *kahn.Step) (any, error) {
	r := w.rng(s, 0)
	effect := func() {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		if !w.dead {
			w.Has[s.Path()] = true
		}
	}
	if w.Mu.Lock(); !w.dead {
		w.Called(s)
	}
	w.Mu.Unlock()
	d, early, fate := time.Duration(r.IntN(20))*ms, r.IntN(2) == 0, r.IntN(14)
	if fate == 0 {
		return nil, kahn.NoEffect(errSoldOut)
	}
	if early {
		effect()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		if r.IntN(2) == 0 {
			return nil, ctx.Err()
		}
	}
	switch fate {
	case 1:
		return nil, errSoldOut
	case 2:
		panic("oh")
	case 3:
		effect()
		return nil, errSoldOut
	}
	effect()
	return fmt.Sprint("output of ", s.Path()), nil
}

func (w *World) undo(ctx context.Context, s *kahn.Step) error {
	r := w.rng(s, 1)
	w.Mu.Lock()
	if w.dead {
		w.Mu.Unlock()
		return errors.New("the process has died")
	}
	w.Called(s)
	w.Clock++
	w.Undone[s.Path()]++
	if w.Begun[s.Path()] == 0 || w.Ended[s.Path()] != 0 {
		w.Begun[s.Path()], w.Ended[s.Path()] = w.Clock, 0
	}
	if output, certain := s.Compensated(); certain != (output != nil) || certain && output != fmt.Sprint("output of ", s.Path()) {
		w.Wrong = append(w.Wrong, fmt.Sprintf("%s: output %v, certain %v", s.Path(), output, certain))
	}
	w.Mu.Unlock()
	time.Sleep(time.Duration(r.IntN(10)) * ms)
	fate := r.IntN(8)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.dead {
		return errors.New("the process has died")
	}
	if fate == 0 && w.Seed%4 == 0 {
		return kahn.Permanent(errors.New("for good"))
	}
	if fate == 1 {
		return errors.New("busy")
	}
	w.Clock++
	w.Ended[s.Path()] = w.Clock
	w.HasUndone(s.Path())
	return nil
}
