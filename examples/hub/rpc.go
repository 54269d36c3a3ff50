package main

import (
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/seed-c794f7ef/kahn/machine"
)

// answer is a message about a call. It says that the call has started, or how the call has ended.
type answer struct {
	call   string
	status machine.CallStatus
	final  bool // a failure that must not be retried
}

// rpc answers calls on a channel: in any order, sometimes twice, and sometimes after the call was aborted.
type rpc struct {
	answers chan answer

	mu      sync.Mutex
	rng     *rand.Rand
	aborted map[string]chan struct{} // a channel for each call, by the id of the call; closed when the call is aborted
	pending sync.WaitGroup
}

func newRPC(seed uint64) *rpc {
	return &rpc{answers: make(chan answer), rng: rand.New(rand.NewPCG(seed, 0)), aborted: map[string]chan struct{}{}}
}

// The method `call` starts a call, and does not wait for the answer.
func (r *rpc) call(id, method string, attempt int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	aborted := make(chan struct{})
	r.aborted[id] = aborted
	a := answer{call: id, status: machine.CallCompleted}
	switch {
	case method == "index" && attempt == 1:
		a.status = machine.CallFailed
	case method == "thumbs":
		a.status, a.final = machine.CallFailed, true
	}
	twice := method == "fetch" || r.rng.IntN(2) == 0
	yields := r.rng.IntN(50)
	r.pending.Go(func() {
		if method == "audit" {
			<-aborted
			r.answers <- answer{call: id, status: machine.CallAborted}
			return
		}
		r.answers <- answer{call: id, status: machine.CallRunning}
		for range yields { // the call takes some time
			runtime.Gosched()
		}
		r.answers <- a
		if twice {
			r.answers <- a
		}
	})
}

// abort aborts a call. A call of "audit" then ends. All other calls ignore the abort, and still answer.
func (r *rpc) abort(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.aborted[id]; c != nil {
		close(c)
		r.aborted[id] = nil
	}
}

// hangUp returns the answers that are still on their way.
func (r *rpc) hangUp() <-chan answer {
	go func() {
		r.pending.Wait()
		close(r.answers)
	}()
	return r.answers
}
