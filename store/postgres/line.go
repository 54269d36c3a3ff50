package postgres

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"
)

// The bounds of a batch.
const (
	maxBatch      = 1000    // the most calls of a batch
	maxBatchBytes = 8 << 20 // the most bytes of data in a batch; a single call may have more
)

// The type `call` is a call that waits in a line or is being performed.
type call[T any] struct {
	arg  T
	run  string // the id of the run
	size int    // in bytes
	err  error
	done chan struct{}

	until time.Time     // if the row is still locked at this time, the call fails; zero if the row was never locked
	pause time.Duration // before the next try
}

// errLocked is returned if a call was not performed because another transaction has locked the row of the run, or because a statement has left out
// the commit that ends an awaited run.
var errLocked = errors.New("another transaction has locked the run")

// The pauses after which a call tries a locked row again.
const (
	minLockPause = time.Millisecond
	maxLockPause = 50 * time.Millisecond
)

// The type `line` collects calls so that one statement performs several of them. While a batch is performed, new calls wait for the next batch. So
// all runs of the process share statements. The longer a statement takes, the more calls the next statement performs. A goroutine performs batches as
// long as calls wait.
//
// A statement for commits, renewals or releases leaves out rows that other transactions have locked, so a locked row delays no other run. A call
// whose row was locked returns to the line after a pause. The call fails if the row stays locked for as long as a statement may take. A statement for
// acquisitions waits for locked rows. It locks the rows in the order of the ids, so no two of these statements wait for one another.
type line[T any] struct {
	perform func(batch []*call[T]) // sets the error of each call; a batch has at most one call for each run, and is sorted by run
	workers *sync.WaitGroup
	timeout time.Duration // a limit for each statement

	mu      sync.Mutex // guards the fields below
	waiting []*call[T]
	away    map[string]bool // the runs with a pausing call, whose row was locked
	busy    bool
	closed  bool
}

// The method `do` performs a call. If the context ends while the call waits in the line, `do` withdraws the call. If the context ends while the call
// is performed, the effect of the call is unknown.
func (l *line[T]) do(ctx context.Context, c *call[T]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.done = make(chan struct{})
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.waiting = append(l.waiting, c)
	if !l.busy {
		l.busy = true
		l.workers.Go(l.work)
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *call[T]) bool { return w == c })
	return ctx.Err()
}

// The method `work` performs batches until no call waits.
func (l *line[T]) work() {
	runtime.Gosched() // other goroutines may add their calls to this batch
	for {
		batch := l.take()
		if len(batch) == 0 {
			return
		}
		l.perform(batch)
		for _, c := range batch {
			if c.err != errLocked || !l.pause(c) {
				close(c.done)
			}
		}
	}
}

// The method `pause` reports whether a call may be tried again. If so, a goroutine returns the call to the line after c.pause. The result is false if
// the call has waited for as long as a statement may take.
func (l *line[T]) pause(c *call[T]) bool {
	now := time.Now()
	if c.until.IsZero() {
		c.until, c.pause = now.Add(l.timeout), minLockPause
	}
	if !now.Before(c.until) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away == nil {
		l.away = map[string]bool{}
	}
	l.away[c.run] = true
	l.workers.Go(func() {
		time.Sleep(c.pause)
		l.comeBack(c)
	})
	return true
}

// comeBack puts a call at the front of the line, before the later calls of the same run.
func (l *line[T]) comeBack(c *call[T]) {
	c.pause, c.err = min(2*c.pause, maxLockPause), nil
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.away, c.run)
	l.waiting = slices.Insert(l.waiting, 0, c)
	if !l.busy {
		l.busy = true
		l.workers.Go(l.work)
	}
}

// The method `take` takes the next batch out of the line: the first call of each run without a pausing call, as far as the bounds of a batch allow.
// If the batch is empty, the line is no longer busy.
func (l *line[T]) take() (batch []*call[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs, bytes := map[string]bool{}, 0
	maps.Copy(runs, l.away)
	var rest []*call[T]
	for _, c := range l.waiting {
		fits := len(batch) < maxBatch && (len(batch) == 0 || bytes+c.size <= maxBatchBytes)
		if !fits || runs[c.run] {
			runs[c.run] = true // a later call of the run does not overtake this one
			rest = append(rest, c)
			continue
		}
		runs[c.run] = true
		batch, bytes = append(batch, c), bytes+c.size
	}
	l.waiting, l.busy = rest, len(batch) > 0
	slices.SortStableFunc(batch, func(a, b *call[T]) int { return compareIDs(a.run, b.run) })
	return batch
}

// The method `close` refuses all calls from now on.
func (l *line[T]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}
