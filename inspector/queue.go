package inspector

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// queueRow describes a queue that no live process serves. A queue consists of the stored runs with the same workflow and the same plan.
type queueRow struct {
	Workflow string `json:"workflow"`
	Plan     string `json:"plan,omitempty"`
	// Runs is the number of the queue's runs that have not ended, or for which a redrive waits. Lists do not count the runs that this process
	// performs. The row of a single run counts them, too.
	Runs  int    `json:"runs"`
	Since string `json:"since,omitempty"` // until when a process served the queue; empty if no process has served it
}

func queueRowOf(q store.QueueState) *queueRow {
	return &queueRow{Workflow: q.Workflow, Plan: q.Plan, Runs: q.Runs, Since: stamp(q.Served)}
}

// The type `queues` caches the queues that no live process serves.
type queues struct {
	mu   sync.Mutex
	at   time.Time
	list []store.QueueState
}

// queueTime is the time for which the queues are cached. Without a cache, the store might have to count many runs very often, since every page
// requests the queues repeatedly.
const queueTime = 2 * time.Second

// The method `unclaimable` returns the queues that no live process serves, sorted. It does not count the runs that this process performs. If a
// queue has no other runs, it leaves out the queue.
func (h *handler) unclaimable(ctx context.Context) ([]store.QueueState, error) {
	list, err := h.unserved(ctx)
	return h.withoutOwn(list), err
}

// The method `unserved` returns the queues that no live process serves, sorted. It returns nil if the store cannot list such queues.
func (h *handler) unserved(ctx context.Context) ([]store.QueueState, error) {
	from, ok := h.Store.(store.QueueStore)
	if !ok {
		return nil, nil
	}
	x := &h.queues
	x.mu.Lock()
	list, fresh := x.list, time.Since(x.at) < queueTime
	x.mu.Unlock()
	if !fresh {
		var err error
		if list, err = store.Unclaimable(ctx, from); err != nil {
			return nil, err
		}
		x.mu.Lock()
		x.at, x.list = time.Now(), list
		x.mu.Unlock()
	}
	return list, nil
}

// withoutOwn subtracts the runs that this process performs from the number of runs of each queue. It drops the queues in which no run is left.
func (h *handler) withoutOwn(list []store.QueueState) []store.QueueState {
	if len(list) == 0 {
		return nil
	}
	own := map[store.Queue]int{}
	for run := range h.Runner.Runs() {
		if run.Stored() && run.Status() != kahn.RunPending && !over(run) {
			own[store.Queue{Workflow: run.Name(), Plan: run.Plan().Hash()}]++
		}
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Runs -= own[list[i].Queue]
	}
	return slices.DeleteFunc(list, func(q store.QueueState) bool { return q.Runs <= 0 })
}

// queueOf returns the queue of an unfinished run if no live process serves the queue and this process does not perform the run. Otherwise it
// returns nil.
func (h *handler) queueOf(run *store.Run, unclaimable []store.QueueState) *queueRow {
	at, found := slices.BinarySearchFunc(unclaimable, run.Queue(), func(q store.QueueState, of store.Queue) int { return q.Compare(of) })
	if !found || run.Status.Terminal() {
		return nil
	}
	if own, here := h.Runner.Run(run.ID); here && !over(own) {
		return nil
	}
	return queueRowOf(unclaimable[at])
}

// queueCursor says where the next page begins in a list that contains the runs of several queues.
type queueCursor struct {
	store.Queue
	After string // the cursor within the queue
}

func (x queueCursor) String() string {
	data, _ := json.Marshal(x) // cannot fail: x contains only texts
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseQueueCursor(text string) (x queueCursor, err error) {
	if text == "" {
		return x, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &x)
	}
	if err != nil {
		return x, errNoCursor
	}
	return x, nil
}

// listUnclaimable returns a page of the runs for which queueOf returns a queue, one queue after the other. The argument `list` contains the
// queues that no live process serves.
func (h *handler) listUnclaimable(ctx context.Context, q store.Query, list []store.QueueState) (page store.Page, err error) {
	from, err := parseQueueCursor(q.After)
	if err != nil {
		return page, err
	}
	workflow, limit := q.Workflow, q.Limit
	if q.Statuses = unended(q.Statuses); len(q.Statuses) == 0 {
		return page, nil
	}
	for _, x := range list {
		at := x.Compare(from.Queue)
		if at < 0 || workflow != "" && workflow != x.Workflow {
			continue
		}
		if q.After = ""; at == 0 {
			q.After = from.After
		}
		if q.Limit = limit - len(page.Runs); q.Limit == 0 {
			page.Next = queueCursor{Queue: x.Queue}.String()
			return page, nil
		}
		q.Workflow, q.Plan = x.Workflow, x.Plan
		part, err := h.Store.List(ctx, q)
		if err != nil {
			return page, err
		}
		for i := range part.Runs {
			if h.queueOf(&part.Runs[i], list) != nil && part.Runs[i].Queue() == x.Queue { // if q has no workflow, List returns the runs of all queues
				page.Runs = append(page.Runs, part.Runs[i])
			}
		}
		if part.Next != "" {
			page.Next = queueCursor{x.Queue, part.Next}.String()
			return page, nil
		}
	}
	return page, nil
}

// The function `unended` returns the given statuses, except the statuses of ended runs. If no statuses are given, it returns all statuses of
// unfinished runs.
func unended(statuses []kahn.RunStatus) (list []kahn.RunStatus) {
	for s := kahn.RunPending; s <= kahn.RunCancelled; s++ {
		if !s.Terminal() && (len(statuses) == 0 || slices.Contains(statuses, s)) {
			list = append(list, s)
		}
	}
	return list
}
