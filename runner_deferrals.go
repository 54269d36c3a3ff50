package kahn

import (
	"slices"
	"sync"
	"time"
)

// deferrals are the runs that [Runner.Serve] does not ask its store for: it is starting them, or they came to rest or failed a moment ago.
// The loop of Serve and the goroutines of its runs use them.
type deferrals struct {
	mu   sync.Mutex
	runs map[string]deferral // by their ids
}

// deferral keeps a run from being started.
type deferral struct {
	failures int       // in a row
	until    time.Time // zero while the run is being started
	request  bool      // or until a request is posted for the run
}

// begin keeps a run apart that is being started, and returns how often in a row it has failed.
func (d *deferrals) begin(id string) (failures int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs == nil {
		d.runs = map[string]deferral{}
	}
	failures = d.runs[id].failures
	d.runs[id] = deferral{}
	return failures
}

// begun forgets a run that has begun: its lease keeps it apart.
func (d *deferrals) begun(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, id)
}

// pause keeps a run apart for some time. failures is how often in a row it has failed.
func (d *deferrals) pause(id string, failures int, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[id] = deferral{failures: failures, until: time.Now().Add(pause)}
}

// untilRequest has a run that is kept apart started when a request is posted for it.
func (d *deferrals) untilRequest(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.runs[id]; !p.until.IsZero() {
		p.request = true
		d.runs[id] = p
	}
}

// request has a run started for which a request was posted, if untilRequest was called.
func (d *deferrals) request(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.runs[id]; p.request {
		p.until, p.request = time.Now(), false
		d.runs[id] = p
	}
}

// except returns the ids of the runs that must not be started now, sorted, how many of them are being started, and the time until the
// first of the others may be started, or most if that is less. Failures of a run that has not been started again for mostRetry are
// forgotten: another process performs it.
func (d *deferrals) except(most time.Duration) (ids []string, starting int, wait time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, p := range d.runs {
		switch rest := p.until.Sub(now); {
		case p.until.IsZero():
			ids = append(ids, id)
			starting++
		case rest > 0:
			ids = append(ids, id)
			most = min(most, rest)
		case p.failures == 0 || -rest > mostRetry:
			delete(d.runs, id)
		}
	}
	slices.Sort(ids)
	return ids, starting, most
}
