package inspector

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// The type `waits` caches the waits of stored runs. To find the waits of a run, the handler must load the whole run, and every page asks for the
// waits.
type waits struct {
	mu   sync.Mutex
	turn chan struct{} // closed when the loads in flight have ended; nil if there are none
	// keep is ten times the duration of the last loads. Loaded runs are kept for this time, but at least for waitTime. So the handler spends at most
	// about a tenth of its time on loading.
	keep time.Duration
	runs map[string]restingRun
}

// restingRun is what the cache contains about a stored run.
type restingRun struct {
	at    time.Time // when the run was loaded
	waits []restingWait
	gone  string // see storedRun.gone
}

// The type `need` says whether a stored run needs a process or an answer. The values are in the order in which lists show such runs.
type need uint8

const (
	needsProcess need = iota + 1 // the run has lost its process
	needsAnswer                  // a node of the run waits for an answer, and none was posted to this node
	needsNobody
)

func (r restingRun) need() need {
	switch {
	case r.gone != "":
		return needsProcess
	case slices.ContainsFunc(r.waits, func(w restingWait) bool { return !w.answered }):
		return needsAnswer
	}
	return needsNobody
}

// restingWait is a node that waits for a signal.
type restingWait struct {
	gate
	info     any // in its stored form
	bases    []rawBasis
	answered bool // an answer was posted, but the run has not applied it yet
}

const (
	waitTime     = 2 * time.Second // minimum time for which a loaded run is kept
	waitPatience = 5 * time.Second // how long one request may spend on loading runs
	mostResting  = 500             // the maximum number of runs that are searched for waits
)

// The method `resting` returns the waits of the given runs of the store. The result `complete` is false if the load of a run failed, or if there was
// no time to load all runs.
func (h *handler) resting(ctx context.Context, ids []string) (found map[string]restingRun, complete bool, err error) {
	x := &h.waits
	for {
		x.mu.Lock()
		turn := x.turn
		if turn == nil {
			break
		}
		x.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	turn := make(chan struct{})
	x.turn = turn
	found, complete = map[string]restingRun{}, true
	oldest := time.Now().Add(-max(waitTime, x.keep))
	var missing []string
	for _, id := range ids {
		if r, ok := x.runs[id]; ok && r.at.After(oldest) {
			found[id] = r
		} else {
			missing = append(missing, id)
		}
	}
	x.mu.Unlock()
	began := time.Now()
	loaded := map[string]restingRun{}
	defer func() { // deferred, since a method of the store may end this goroutine
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(missing) > 0 {
			x.keep = 10 * time.Since(began)
		}
		if x.runs == nil {
			x.runs = map[string]restingRun{}
		}
		for id, r := range x.runs {
			if r.at.Before(oldest) {
				delete(x.runs, id)
			}
		}
		for id, r := range loaded {
			x.runs[id] = r
		}
		x.turn = nil
		close(turn)
	}()
	ctx, cancel := context.WithTimeout(ctx, waitPatience)
	defer cancel()
	for _, id := range missing {
		if ctx.Err() != nil {
			return found, false, err
		}
		s, failed := h.glance(ctx, id)
		if failed != nil { // continue, so that a damaged run does not hide other runs
			complete, err = false, failed
			continue
		}
		r := restingRun{at: time.Now(), waits: h.restingOf(s), gone: s.gone()}
		loaded[id], found[id] = r, r
	}
	return found, complete, err
}

// The method `glance` loads a run without its events.
func (h *handler) glance(ctx context.Context, id string) (*storedRun, error) {
	row, err := h.Store.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, kahn.ErrUnknownRun
	}
	snapshot, err := h.snapshotOf(ctx, row)
	if err != nil {
		return nil, err
	}
	s, err := newStoredRun(row, snapshot, h.workflowOf(row.Spec), h.copyOf(row))
	if err == nil {
		s.requests, err = h.requestsOf(ctx, row)
	}
	if err == nil {
		s.held, err = h.tenureOf(ctx, row)
	}
	return s, err
}

// restingOf returns the waits of a stored run. The result does not refer to s, so the cache does not keep s in memory.
func (h *handler) restingOf(s *storedRun) (list []restingWait) {
	// Clients with different permissions share the cache. So the field `data` is false, and the cached gates contain no values. For each client,
	// addResting adds the values that this client may see.
	in := call{h: h, target: s, data: new(bool), edges: adjacency{}, looked: looked{}}
	for _, wait := range s.Waiting() {
		list = append(list, restingWait{gate: in.gate(wait), info: wait.Info, bases: in.basesOf(wait.Node), answered: s.posted(wait.Node) != nil})
	}
	return list
}

// The method `posted` returns the first waiting request that answers the node with the given path; nil if there is no such request.
func (s *storedRun) posted(path string) *store.PostedRequest {
	for i := range s.requests {
		if q := &s.requests[i]; q.Kind == store.KindSignal && q.Status == store.RequestWaiting && s.pathOf(q.Node) == path {
			return q
		}
	}
	return nil
}

// The method `forget` drops the cached waits of a run.
func (x *waits) forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.runs, id)
}

// restingRuns returns the runs of the store that may wait for an answer or may have lost their process. It returns only runs that match the filter,
// that the client may see, and that this process does not perform. Suspended runs come first. The result `more` is true if there may be further runs.
func (c *call) restingRuns(ctx context.Context, f store.Filter) (list []store.Run, more bool, err error) {
	statuses := f.Statuses
	for _, status := range []kahn.RunStatus{kahn.RunSuspended, kahn.RunRunning} {
		if len(statuses) > 0 && !slices.Contains(statuses, status) {
			continue
		}
		f.Statuses = []kahn.RunStatus{status}
		page, err := c.h.Store.List(ctx, store.Query{Filter: f, Limit: mostResting - len(list)})
		if err != nil {
			return nil, false, err
		}
		for _, run := range page.Runs {
			if !c.h.hasAtWork(run.ID) && c.h.seesStored(c.r, &run) {
				list = append(list, run)
			}
		}
		if more = more || page.Next != ""; len(list) >= mostResting {
			return list, true, nil
		}
	}
	return list, more, nil
}

func idsOf(runs []store.Run) []string {
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	return ids
}

// hasAtWork reports whether the Runner has the run and has not left it. For a run that the Runner has left, the state in the store may
// be newer, since another process may continue the run.
func (h *handler) hasAtWork(id string) bool {
	run, ok := h.Runner.Run(id)
	return ok && !wasLeft(run)
}

// wasLeft reports whether the Runner left a run before the run ended.
func wasLeft(run *kahn.Run) bool { return over(run) && !run.Status().Terminal() }

// addResting adds the gates of stored runs, except gates to which an answer was posted. The gates that have waited longest come first.
// addResting also counts the runs that need an operator.
func (c *call) addResting(reply *gatesReply, limit int) {
	if c.h.Store == nil {
		return
	}
	var all []restingWait
	complete := true
	err := c.h.contain(c.r, "Store", func() error {
		runs, more, err := c.restingRuns(c.r.Context(), store.Filter{})
		if err != nil {
			return err
		}
		ids := idsOf(runs)
		found, loaded, err := c.h.resting(c.r.Context(), ids)
		complete = loaded && !more
		for _, id := range ids {
			switch found[id].need() {
			case needsProcess:
				reply.StoredGone++
			case needsAnswer:
				reply.StoredWaiting++
			}
			for _, wait := range found[id].waits {
				if !wait.answered {
					all = append(all, wait)
				}
			}
		}
		return err
	})
	if err != nil {
		_ = c.h.storeFault(c.r.Context(), err) // called for its side effect, a record in the log
		reply.note("The store did not answer all queries: gates of stored runs may be missing.")
	} else if !complete {
		reply.note("Gates of further stored runs are not counted, since these runs are not loaded.")
	}
	slices.SortStableFunc(all, func(a, b restingWait) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Path, b.Path))
	})
	reply.Total += len(all)
	for _, wait := range all {
		if len(reply.Gates) == limit {
			return
		}
		g := wait.gate
		if wait.info != nil {
			g.Info = c.shown(Value{RunID: g.Run, Path: g.Path, Kind: Info, Value: wait.info})
		}
		g.Bases = c.bases(g.Run, g.Path, wait.bases)
		reply.Gates = append(reply.Gates, g)
	}
}

// storedWait is a wait of a stored run, in a list.
type storedWait struct {
	Path     string `json:"path"`
	Label    string `json:"label,omitempty"`
	Since    string `json:"since,omitempty"`
	Deadline string `json:"deadline,omitempty"`
	Answered bool   `json:"answered,omitempty"` // an answer was posted, but the run has not applied it yet
}

// addWaits sets the fields Waiting, Waits and Gone in the rows of suspended and running runs that this process does not perform. If a run cannot be
// loaded, the fields of its row stay empty.
func (c *call) addWaits(rows []storedRow) {
	var ids []string
	for _, row := range rows {
		if (row.Status == kahn.RunSuspended || row.Status == kahn.RunRunning) && !c.h.hasAtWork(row.ID) {
			ids = append(ids, row.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	var found map[string]restingRun
	err := c.h.contain(c.r, "Store", func() (err error) {
		found, _, err = c.h.resting(c.r.Context(), ids)
		return err
	})
	if err != nil {
		_ = c.h.storeFault(c.r.Context(), err)
	}
	for i := range rows {
		list := found[rows[i].ID].waits
		rows[i].Waits, rows[i].Gone = len(list), found[rows[i].ID].gone
		for _, w := range list[:min(few, len(list))] {
			rows[i].Waiting = append(rows[i].Waiting, storedWait{w.Path, w.Label, w.Since, w.Deadline, w.answered})
		}
	}
}
