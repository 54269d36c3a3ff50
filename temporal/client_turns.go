package temporal

import (
	"context"
	"sync"
)

// maxUpdates is the most updates that a process has in flight for one workflow. While ten updates of a workflow are in flight, Temporal
// refuses further updates. The SDK then repeats an update after pauses that grow to 10 s, and gives up after a minute.
const maxUpdates = 5

// The type turns limits how many updates are in flight for each workflow.
type turns struct {
	mu sync.Mutex
	of map[string]*turn // by the id of the workflow
}

// turn counts the updates of one workflow.
type turn struct {
	places chan struct{} // has an element for each update in flight
	users  int           // how many updates are in flight or wait; guarded by turns.mu
}

// updating limits the updates that this process sends.
var updating turns

// take waits until the caller may send an update, or until ctx ends. The caller must call the result "done" when its update has ended.
func (t *turns) take(ctx context.Context, id string) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	of := t.of[id]
	if of == nil {
		of = &turn{places: make(chan struct{}, maxUpdates)}
		t.of[id] = of
	}
	of.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(t.of, id)
		}
	}
	select {
	case of.places <- struct{}{}:
		return func() { <-of.places; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
