package sse

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
)

// feed reads the events of one source for all of its streams: each event is read, encoded and timed once, not once for every client.
// A stream takes one chunk after the other, and reads by itself what it misses: see stream.catchUp. Handlers that redact events have a
// feed for each stream.
//
// The reader reads on when a stream has taken what it has read, so a feed whose clients all have stalled stands still.
type feed struct {
	render func(event.Event) []byte // the frame of an event
	stop   context.CancelFunc
	done   chan struct{} // closed when the reader has returned

	streams int // guarded by the lock of feeds

	mu      sync.Mutex
	chunks  []chunk // the latest ones, in order
	upTo    uint64  // the id of the last event in chunks, or where the feed began
	open    chunk   // of the events after those; no stream has it yet
	ready   bool    // the open chunk may be taken
	changed chan struct{}
	room    chan struct{} // gets a value when the open chunk was taken
	taken   time.Time     // when that was
	due     *time.Timer   // makes the open chunk ready
	ended   bool          // the source has ended, or failed
	err     error
}

// chunk is the frames of the events with ids above after, up to last.
type chunk struct {
	after, last uint64
	data        []byte // immutable once the chunk is taken
}

const (
	// flushEvery is how often chunks are taken at most: an event after a pause goes out at once, and events in quick succession together.
	flushEvery = 20 * time.Millisecond
	// fullChunk is how many bytes of frames go out without waiting for that.
	fullChunk = 32 << 10
	// keptChunks is how many chunks a feed keeps for streams that are slower than others.
	keptChunks = 8
)

// feeds has the feed of every source that has streams.
type feeds struct {
	mu       sync.Mutex
	bySource map[Source]*feed
}

// join returns a feed of a source for one more stream, which calls leave when it ends. A new feed begins after the given event. The answer to r
// has a feed of its own if h redacts its events, or if the source cannot be the key of a map.
func (fs *feeds) join(src Source, after uint64, h *Handler, r *http.Request) (f *feed, leave func()) {
	if h.Redact != nil || !reflect.ValueOf(src).Comparable() {
		f = newFeed(src, after, func(e event.Event) []byte { return h.frame(r, e) })
		return f, f.close
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f = fs.bySource[src]; f == nil || f.over() {
		if fs.bySource == nil {
			fs.bySource = map[Source]*feed{}
		}
		f = newFeed(src, after, func(e event.Event) []byte { return h.frame(nil, e) })
		fs.bySource[src] = f
	}
	f.streams++
	return f, func() { fs.leave(src, f) }
}

func (fs *feeds) leave(src Source, f *feed) {
	fs.mu.Lock()
	f.streams--
	last := f.streams == 0
	if last && fs.bySource[src] == f {
		delete(fs.bySource, src)
	}
	fs.mu.Unlock()
	if last {
		f.close()
	}
}

// newFeed starts to read a source.
func newFeed(src Source, after uint64, render func(event.Event) []byte) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{
		render: render, stop: cancel, done: make(chan struct{}),
		upTo: after, open: chunk{after: after, last: after}, changed: make(chan struct{}), room: make(chan struct{}, 1),
	}
	f.due = time.AfterFunc(time.Hour, f.mayBeTaken)
	f.due.Stop()
	go f.read(ctx, src, after)
	return f
}

// close stops the reader and waits for it.
func (f *feed) close() {
	f.stop()
	<-f.done
	f.due.Stop()
}

// over reports whether a stream that joins could miss events that the source has.
func (f *feed) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// read runs on a goroutine of its own. It ends when the source does, or ctx.
func (f *feed) read(ctx context.Context, src Source, after uint64) {
	defer close(f.done)
	f.end(f.pass(ctx, src, after))
}

// pass adds the events of a source to the feed. It returns the error that has ended them.
func (f *feed) pass(ctx context.Context, src Source, after uint64) (err error) {
	defer contain(&err) // on a goroutine of its own a panic would take the process down
	for e, failed := range src.Events(ctx, after) {
		if failed != nil {
			return failed
		}
		if !f.add(ctx, e.ID, f.render(e)) {
			break
		}
	}
	return nil
}

// add appends a frame to the open chunk, once there is room for it. It reports false if ctx has ended.
func (f *feed) add(ctx context.Context, id uint64, frame []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.open.data) >= fullChunk {
		f.mu.Unlock()
		select {
		case <-f.room:
			f.mu.Lock()
		case <-ctx.Done():
			f.mu.Lock()
			return false
		}
	}
	if f.open.data == nil {
		f.open.data = make([]byte, 0, max(len(frame), 1<<10))
	}
	f.open.data, f.open.last = append(f.open.data, frame...), id
	if f.ready {
		return true
	}
	if wait := flushEvery - time.Since(f.taken); wait > 0 && len(f.open.data) < fullChunk {
		if len(f.open.data) == len(frame) { // the first frame of the chunk
			f.due.Reset(wait)
		}
		return true
	}
	f.announce()
	return true
}

// announce wakes the streams that wait for the open chunk. The caller holds the lock.
func (f *feed) announce() {
	f.ready = true
	close(f.changed)
	f.changed = make(chan struct{})
}

// mayBeTaken runs on the goroutine of the timer. The timer may be late, so the chunk may have been taken meanwhile.
func (f *feed) mayBeTaken() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ready && len(f.open.data) > 0 {
		f.announce()
	}
}

// end notes that nothing follows.
func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.err = true, err
	f.announce()
}

// next is the answer to a stream that has read up to some event. Exactly one of its parts is set.
type next struct {
	chunk  []byte          // the frames that follow
	last   uint64          // the last event in chunk, or the one up to which the stream has to read by itself
	behind bool            // the chunk that follows is not kept any more, or the stream is in the middle of it
	wait   <-chan struct{} // closed when it is worth to ask again
	ended  bool            // nothing follows
	err    error           // why
}

// after returns what follows an event.
func (f *feed) after(id uint64) next {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for i := len(f.chunks) - 1; i >= 0 && f.chunks[i].after >= id; i-- {
			if f.chunks[i].after == id {
				return next{chunk: f.chunks[i].data, last: f.chunks[i].last}
			}
		}
		switch {
		case f.upTo > id:
			return next{behind: true, last: f.upTo}
		case len(f.open.data) > 0 && f.ready:
			f.take()
		case f.ended:
			return next{ended: true, err: f.err}
		default:
			return next{wait: f.changed}
		}
	}
}

// take makes the open chunk one of those that streams get. The caller holds the lock.
func (f *feed) take() {
	if len(f.chunks) == keptChunks {
		f.chunks = append(f.chunks[:0], f.chunks[1:]...)
	}
	f.chunks = append(f.chunks, f.open)
	f.upTo = f.open.last
	f.open = chunk{after: f.upTo, last: f.upTo}
	f.ready, f.taken = f.ended, time.Now()
	f.due.Stop()
	select {
	case f.room <- struct{}{}:
	default:
	}
}
