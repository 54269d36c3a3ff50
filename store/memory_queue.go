package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

var (
	_ TurnStore   = (*Memory)(nil)
	_ LeaseReader = (*Memory)(nil)
)

// The type `server` is a process that has called Announce.
type server struct {
	owner string
	until time.Time
}

// The method `over` reports whether the run has ended and no redrive waits for it.
func (r *memoryRun) over() bool { return r.Status.Terminal() && r.Taken == r.Posted }

// The method `due` returns the time at which a run becomes due. The result "ok" is false if the run is over, or if the run is suspended and has no
// WakeAt.
func (r *memoryRun) due() (at time.Time, ok bool) {
	switch at = r.WakeAt; {
	case r.over():
		return at, false
	case r.Status == machine.RunRunning, r.Status == machine.RunPending && at.IsZero():
		at = r.Created
	case at.IsZero():
		return at, false
	}
	if r.lease.Owner != "" && r.expires.After(at) {
		at = r.expires
	}
	return at, true
}

// Due implements [QueueStore].
func (m *Memory) Due(ctx context.Context, q DueQuery) (page DuePage, err error) {
	if err := q.Check(); err != nil {
		return page, err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return page, err
	}
	defer unlock()
	var list []DueRun
	for id, r := range m.runs {
		at, ok := r.due()
		if _, asked := slices.BinarySearchFunc(q.Queues, r.Queue(), Queue.Compare); !asked || r.over() {
			continue
		}
		page.Keyed = page.Keyed || r.Key != ""
		if ok && !slices.Contains(q.Except, id) && !slices.Contains(q.Full, r.Key) {
			list = append(list, DueRun{r.listed(), at.UnixNano(), time.Until(at), m.turns[r.Key]})
		}
	}
	page.Fill(list, q.Limit, 0)
	return page, nil
}

// AcquireTurn implements [TurnStore].
func (m *Memory) AcquireTurn(ctx context.Context, run, owner string, ttl time.Duration, t Turn) (Lease, *Run, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return Lease{}, nil, err
	}
	defer unlock()
	r := m.runs[run]
	if r == nil || r.Key != t.Key {
		return Lease{}, nil, fmt.Errorf("%w: %s with the key %s", ErrUnknownRun, foreign.Quote(run), foreign.Quote(t.Key))
	}
	if t.Most > 0 {
		others := 0
		for _, o := range m.runs {
			if o != r && o.Key == t.Key && o.leased() && !o.Status.Terminal() {
				others++
			}
		}
		if others >= t.Most {
			return Lease{}, nil, KeyFull(t)
		}
	}
	lease, stored, err := m.acquire(run, owner, ttl)
	if err == nil {
		if m.turns == nil {
			m.turns = map[string]int64{}
		}
		m.turn++
		m.turns[t.Key] = m.turn
	}
	return lease, stored, err
}

// LeasedKeys implements [TurnStore].
func (m *Memory) LeasedKeys(ctx context.Context) (map[string]int, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	keys := map[string]int{}
	for _, r := range m.runs {
		if r.Key != "" && r.leased() && !r.Status.Terminal() {
			keys[r.Key]++
		}
	}
	return keys, nil
}

// Announce implements [QueueStore].
func (m *Memory) Announce(ctx context.Context, a Announcement) error {
	if err := a.Check(); err != nil {
		return err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	if a.Owner != "" && len(a.Queues) > 0 {
		for _, servers := range m.served {
			for process, s := range servers {
				if process != a.Process && s.owner == a.Owner && s.until.Sub(now) > a.TTL/2 {
					return OwnerInUse(a.Owner)
				}
			}
		}
	}
	if m.served == nil {
		m.served = map[Queue]map[string]server{}
	}
	for _, servers := range m.served {
		if s, ok := servers[a.Process]; ok && s.until.After(now) {
			servers[a.Process] = server{s.owner, now}
		}
	}
	for _, q := range a.Queues {
		if m.served[q] == nil {
			m.served[q] = map[string]server{}
		}
		m.served[q][a.Process] = server{a.Owner, now.Add(a.TTL)}
	}
	for _, servers := range m.served { // drop the dead servers of each queue, except the server that died last
		last := servedUntil(servers)
		maps.DeleteFunc(servers, func(_ string, s server) bool { return !s.until.After(now) && s.until.Before(last) })
	}
	return nil
}

func servedUntil(servers map[string]server) (last time.Time) {
	for _, s := range servers {
		if s.until.After(last) {
			last = s.until
		}
	}
	return last
}

// Queues implements [QueueStore].
func (m *Memory) Queues(ctx context.Context) ([]QueueState, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, states := time.Now(), map[Queue]*QueueState{}
	for _, r := range m.runs {
		q := r.Queue()
		if r.over() || q == (Queue{}) && r.Sequence == 0 {
			continue
		}
		s := states[q]
		if s == nil {
			s = &QueueState{Queue: q, Served: servedUntil(m.served[q])}
			s.Live = s.Served.After(now)
			states[q] = s
		}
		s.Runs++
		if at, ok := r.due(); ok && (s.Due.IsZero() || at.Before(s.Due)) {
			s.Due = at
		}
	}
	var list []QueueState
	for _, s := range states {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b QueueState) int { return a.Queue.Compare(b.Queue) })
	return list, nil
}
