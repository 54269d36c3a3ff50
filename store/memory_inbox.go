package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

var _ Inbox = (*Memory)(nil)

// inbox holds the requests for a run in memory.
type inbox struct {
	requests []PostedRequest // in the order of their numbers, without their statuses
	answers  []*string       // the answer to each request; nil if no commit has answered the request
	numbers  map[string]uint64
}

// Post implements [Inbox].
func (m *Memory) Post(ctx context.Context, run string, r Request) (posted bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	if posted, err = m.post(ctx, run, r); posted {
		m.watch.Tell(run)
	}
	return posted, err
}

func (m *Memory) post(ctx context.Context, run string, q Request) (bool, error) {
	r, unlock, err := m.lockRun(ctx, run)
	if err != nil {
		return false, err
	}
	defer unlock()
	var stored *Request
	if number := r.inbox.numbers[q.ID]; number > 0 {
		stored = &r.inbox.requests[number-1].Request
	}
	if write, err := q.Judge(&r.Run, stored); err != nil || !write {
		return false, err
	}
	r.add(q)
	return true, nil
}

// The method `add` adds a request to the inbox, and makes the run due if the request wakes it.
func (r *memoryRun) add(q Request) {
	r.Posted++
	if r.inbox.numbers == nil {
		r.inbox.numbers = map[string]uint64{}
	}
	r.inbox.numbers[q.ID] = r.Posted
	r.inbox.requests = append(r.inbox.requests, PostedRequest{Request: q, Number: r.Posted, Posted: time.Now()})
	r.inbox.answers = append(r.inbox.answers, nil)
	r.refer(BlobKeys(q.Value))
	if q.Wakes(r.Sequence > 0) {
		r.wakeNow()
	}
}

// lockRun locks m.mu and returns a stored run. If the run is not stored, the error matches ErrUnknownRun. If lockRun returns an error, it leaves
// m.mu unlocked.
func (m *Memory) lockRun(ctx context.Context, run string) (r *memoryRun, unlock func(), err error) {
	if unlock, err = m.lock(ctx); err != nil {
		return nil, nil, err
	}
	if r = m.runs[run]; r == nil {
		unlock()
		return nil, nil, fmt.Errorf("%w: %s", ErrUnknownRun, foreign.Quote(run))
	}
	return r, unlock, nil
}

// wakeNow makes the run due.
func (r *memoryRun) wakeNow() {
	if now := time.Now(); r.WakeAt.IsZero() || r.WakeAt.After(now) {
		r.WakeAt = now
	}
}

// The method `answer` stores the answers of a commit, after the rest of the commit was applied.
func (r *memoryRun) answer(c *Commit) {
	for i := range c.Taken {
		r.inbox.answers[c.Taken[i].Number-1] = &c.Taken[i].Refused
	}
	r.Taken += uint64(len(c.Taken))
	switch {
	case c.Status.Terminal():
		r.Taken = r.Posted
	case r.Taken < r.Posted:
		r.wakeNow()
	}
}

// The method `request` returns a request with its status.
func (r *memoryRun) request(number uint64) PostedRequest {
	q := r.inbox.requests[number-1]
	q.Settle(r.Taken, r.inbox.answers[number-1])
	return q
}

// LoadRequests implements [Inbox].
func (m *Memory) LoadRequests(ctx context.Context, run string, after uint64, limit int) (list []PostedRequest, err error) {
	r, unlock, err := m.lockRun(ctx, run)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for number := after + 1; number > after && number <= r.Posted && len(list) < limit; number++ {
		list = append(list, r.request(number))
	}
	return list, nil
}

// FindRequest implements [Inbox].
func (m *Memory) FindRequest(ctx context.Context, run, id string) (PostedRequest, error) {
	r, unlock, err := m.lockRun(ctx, run)
	if err != nil {
		return PostedRequest{}, err
	}
	defer unlock()
	number := r.inbox.numbers[id]
	if number == 0 {
		return PostedRequest{}, fmt.Errorf("%w: %s for run %s", ErrUnknownRequest, foreign.Quote(id), foreign.Quote(run))
	}
	return r.request(number), nil
}

// WatchRequests implements [Inbox].
func (m *Memory) WatchRequests(run string, arrived func(run string)) (stop func()) {
	stop = m.watch.Add(run, arrived)
	for _, id := range m.waiting(run) {
		arrived(id)
	}
	return stop
}

// The method `waiting` returns the ids of the runs that have waiting requests. If the parameter "run" is not "", the method considers only that run.
func (m *Memory) waiting(run string) (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.runs {
		if r.Taken < r.Posted && (run == "" || run == id) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}
