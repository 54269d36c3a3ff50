package sse

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
)

// LostError means that events, or deltas of a node, were missing in a stream, and that the next connection did not deliver them either. Either the
// server is broken, or a proxy drops parts of streams.
type LostError struct {
	Node string // the node whose delta is missing; "" for an event
	Last uint64 // the last index or id that was seen before the gap
	Next uint64 // the first index or id after the gap
}

// Error names the missing events or deltas.
func (e *LostError) Error() string {
	if e.Node != "" {
		return fmt.Sprintf("sse: deltas %d to %d of node %q are missing", e.Last+1, e.Next-1, e.Node)
	}
	return fmt.Sprintf("sse: events %d to %d are missing", e.Last+1, e.Next-1)
}

// reader is the state of one call of Events.
type reader struct {
	c     *Client
	yield func(event.Event, error) bool
	run   string        // the id of the run, once known
	start uint64        // the initial cursor
	last  uint64        // the id of the last event that was seen
	alive bool          // whether the connection has delivered an event, a heartbeat or a page
	torn  bool          // whether the reader has closed a connection because of a gap, and has received no new event since then
	wait  time.Duration // the shortest wait before the next connection
	// deltas maps a node to its last delta. If all deltas of a node were before the initial cursor, the node has no entry yet.
	deltas   map[string]delta
	withheld uint64 // the id of the last withheld event, which may have been a delta
}

type delta struct {
	index uint64
	event uint64
}

// The method `message` handles one block of a stream.
func (r *reader) message(m message) error {
	if m.event == string(event.Heartbeat) {
		return r.heartbeat(m.data)
	}
	id, err := strconv.ParseUint(m.id, 10, 64)
	if err != nil {
		return final(fmt.Errorf("sse: an event of the stream has the id %q, which is not a number", m.id))
	}
	if !m.hasData {
		return r.withheldEvent(id)
	}
	var e event.Event
	if err := e.UnmarshalJSON(m.data); err != nil {
		return final(fmt.Errorf("sse: event %d: %w", id, err))
	}
	if e.ID != id {
		return final(fmt.Errorf("sse: event %d has the id %d in its stream", e.ID, id))
	}
	return r.event(e)
}

// The method `heartbeat` handles a heartbeat, which contains the id of the last event before it.
func (r *reader) heartbeat(data []byte) error {
	var e event.Event
	if err := e.UnmarshalJSON(data); err != nil {
		return final(fmt.Errorf("sse: a heartbeat: %w", err))
	}
	r.alive = true
	if beat, _ := e.Payload.(event.Beat); beat.Last > r.last {
		return r.lost(&LostError{Last: r.last, Next: beat.Last + 1})
	}
	return r.sameRun(e.RunID)
}

// withheldEvent handles the id of an event that the client may not see.
func (r *reader) withheldEvent(id uint64) error {
	if id > r.last+1 {
		return r.lost(&LostError{Last: r.last, Next: id})
	}
	if id > r.last {
		r.seen(id)
		r.withheld = id
	}
	return nil
}

// The method `event` handles one event of the run's log.
func (r *reader) event(e event.Event) error {
	if err := r.sameRun(e.RunID); err != nil {
		return err
	}
	if e.ID <= r.last {
		return nil // the event is not after the cursor: the server has begun its response too early
	}
	if e.ID > r.last+1 {
		return r.lost(&LostError{Last: r.last, Next: e.ID})
	}
	if d, ok := e.Payload.(event.Delta); ok && d.Index > 0 {
		fresh, err := r.delta(e, uint64(d.Index))
		if err != nil {
			return err
		}
		if !fresh {
			r.seen(e.ID)
			return nil
		}
	}
	r.seen(e.ID)
	if !r.yield(e, nil) {
		return errDone
	}
	switch e.Type {
	case event.RunCompleted, event.RunFailed, event.RunCancelled, event.RunTimedOut:
		return errDone
	}
	return nil
}

func (r *reader) seen(id uint64) { r.last, r.alive, r.torn = id, true, false }

// The method `delta` reports whether a delta of a node is fresh. The reader drops a delta that is not fresh, since it is a duplicate. If deltas of
// the node are missing before this delta, the method returns an error, even if no event id is missing.
func (r *reader) delta(e event.Event, index uint64) (fresh bool, err error) {
	node := cmp.Or(e.Path, e.Node)
	was, known := r.deltas[node]
	switch {
	case known && index <= was.index:
		return false, nil
	case index == was.index+1 || r.withheld > was.event || !known && r.start > 0:
		r.deltas[node] = delta{index, e.ID}
		return true, nil
	}
	return false, r.lost(&LostError{Node: node, Last: was.index, Next: index})
}

// The method `lost` returns the error for a gap. The reader then closes the connection and connects again. If the next connection has a gap before it
// has delivered a new event, the error is final.
func (r *reader) lost(err *LostError) error {
	if r.torn {
		return final(err)
	}
	r.torn = true
	return err
}

// sameRun returns an error if the URL now belongs to another run: the reader's cursor has no meaning in another run.
func (r *reader) sameRun(id string) error {
	if r.run = cmp.Or(r.run, id); id != "" && r.run != id {
		return final(fmt.Errorf("sse: the stream belonged to run %s and now belongs to run %s", r.run, id))
	}
	return nil
}
