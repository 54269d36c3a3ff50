package sse

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/seed-c794f7ef/kahn/event"
)

// A feed reads the events of one source for all streams of the source. It reads and encodes each event once, not once for each stream, and all its
// streams share one timer. A stream takes one chunk after the other. Streams that need events older than the kept chunks share segments. A handler
// with Redact has a feed for each stream. There the stream encodes the events, so that Redact runs on the request's goroutine.
//
// When the open chunk is full, the feed stops reading until a stream takes the chunk. So if all clients stall, the feed soon stops reading.
type feed struct {
	h    *Handler // encodes the events; nil if the stream encodes them
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine that reads the source has returned

	streams int // the number of streams of the feed; guarded by feeds.mu

	segments segments // older events that are no longer in chunks

	mu      sync.Mutex
	chunks  []chunk // the latest chunks, in order
	upTo    uint64  // the id of the last event in chunks; before the first chunk, the id after which the feed began
	open    chunk   // the chunk for the next events, which no stream has taken yet
	ready   bool    // whether streams may take the open chunk
	changed chan struct{}
	room    chan struct{} // receives a value when a stream has taken the open chunk
	taken   time.Time     // when a stream last took an open chunk
	due     *time.Timer   // the timer that makes the open chunk ready
	ended   bool          // whether the source has ended or failed
	err     error
}

// A chunk holds the events with ids from after+1 to last. After a stream has taken the chunk, it does not change.
type chunk struct {
	after, last uint64
	frames      []byte
	events      []event.Event // the events instead of frames, if the stream encodes them
}

// The method `size` returns the number of bytes of the chunk, without the values to which its events refer.
func (c *chunk) size() int { return len(c.frames) + len(c.events)*int(unsafe.Sizeof(event.Event{})) }

const (
	// flushEvery is the minimum time between chunks that are not full. An event after a pause is sent at once; events in quick succession are sent
	// together.
	flushEvery = 20 * time.Millisecond
	// fullChunk is the number of bytes at which a chunk is full. A full chunk is sent at once.
	fullChunk = 32 << 10
	// keptChunks and keptBytes bound the chunks that a feed keeps for slower streams. The latest chunk is kept even if it exceeds keptBytes.
	keptChunks, keptBytes = 8, 2 * 8 * fullChunk
)

// The type `feeds` holds a feed for each source that has streams.
type feeds struct {
	mu       sync.Mutex
	bySource map[Source]*feed
}

// The method `join` returns a feed of a source for a new stream. The stream calls leave when it ends. A new feed begins with the event after the id
// `after`. If h redacts events, or the source is not comparable, the stream gets its own feed.
func (fs *feeds) join(src Source, after uint64, h *Handler) (f *feed, leave func()) {
	if h.Redact != nil || !reflect.ValueOf(src).Comparable() {
		own := h
		if h.Redact != nil {
			own = nil
		}
		f = newFeed(src, after, own)
		return f, f.close
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f = fs.bySource[src]; f == nil || f.over() {
		if fs.bySource == nil {
			fs.bySource = map[Source]*feed{}
		}
		f = newFeed(src, after, h)
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

// newFeed starts to read a source. The Handler h encodes the events; if h is nil, the stream encodes them.
func newFeed(src Source, after uint64, h *Handler) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{
		h: h, stop: cancel, done: make(chan struct{}),
		upTo: after, open: chunk{after: after, last: after}, changed: make(chan struct{}), room: make(chan struct{}, 1),
	}
	f.due = time.AfterFunc(time.Hour, f.mayBeTaken)
	f.due.Stop()
	go f.read(ctx, src, after)
	return f
}

// The method `close` stops the goroutine that reads the source, and waits for it.
func (f *feed) close() {
	f.stop()
	<-f.done
	f.due.Stop()
}

// The method `over` reports whether the feed has ended. A new stream must not join an ended feed, since the source may now have further events.
func (f *feed) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// The method `read` runs on the feed's goroutine. It returns when the events of the source end, or when ctx ends.
func (f *feed) read(ctx context.Context, src Source, after uint64) {
	defer close(f.done)
	f.end(f.pass(ctx, src, after))
}

// The method `pass` adds the events of a source to the feed. It returns the error with which the sequence of events ended, or nil.
func (f *feed) pass(ctx context.Context, src Source, after uint64) (err error) {
	defer contain(&err) // a panic on this goroutine would crash the process
	for e, failed := range src.Events(ctx, after) {
		if failed != nil {
			return failed
		}
		var frame []byte
		if f.h != nil {
			frame = f.h.frame(nil, e)
		}
		if !f.add(ctx, e, frame) {
			break
		}
	}
	return nil
}

// The method `add` waits for room in the open chunk. Then it appends the event or, if the feed encodes events, the event's frame. It returns false if
// ctx has ended.
func (f *feed) add(ctx context.Context, e event.Event, frame []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.open.size() >= fullChunk {
		f.mu.Unlock()
		select {
		case <-f.room:
			f.mu.Lock()
		case <-ctx.Done():
			f.mu.Lock()
			return false
		}
	}
	first := f.open.size() == 0
	switch {
	case f.h == nil:
		f.open.events = append(f.open.events, e)
	case first:
		f.open.frames = append(make([]byte, 0, max(len(frame), 1<<10)), frame...)
	default:
		f.open.frames = append(f.open.frames, frame...)
	}
	f.open.last = e.ID
	if f.ready {
		return true
	}
	if wait := flushEvery - time.Since(f.taken); wait > 0 && f.open.size() < fullChunk {
		if first {
			f.due.Reset(wait)
		}
		return true
	}
	f.announce()
	return true
}

// The method `announce` makes the open chunk ready, and wakes the streams that wait. The caller holds f.mu.
func (f *feed) announce() {
	f.ready = true
	close(f.changed)
	f.changed = make(chan struct{})
}

// mayBeTaken makes the open chunk ready when the timer fires. When a late timer fires, a stream may have taken the timer's chunk already, and the
// open chunk may be empty.
func (f *feed) mayBeTaken() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ready && f.open.size() > 0 {
		f.announce()
	}
}

// The method `end` records that the feed gets no further events.
func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.err = true, err
	f.announce()
}

// The type `next` tells a stream what to do next. Exactly one of chunk, behind, wait and ended is set.
type next struct {
	chunk  *chunk          // the next events
	upTo   uint64          // if behind is set: the id up to which the stream must catch up
	behind bool            // the stream's next event is in no kept chunk, or is not the first event of its chunk
	wait   <-chan struct{} // closed when the stream should call the method `after` again
	ended  bool            // there are no further events
	err    error           // why there are no further events
}

// The method `after` returns what a stream must do next if it has read the events up to the given id.
func (f *feed) after(id uint64) next {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for i := len(f.chunks) - 1; i >= 0 && f.chunks[i].after >= id; i-- {
			if f.chunks[i].after == id {
				c := f.chunks[i]
				return next{chunk: &c}
			}
		}
		switch {
		case f.upTo > id:
			return next{behind: true, upTo: f.upTo}
		case f.open.size() > 0 && f.ready:
			f.take()
		case f.ended:
			return next{ended: true, err: f.err}
		default:
			return next{wait: f.changed}
		}
	}
}

// The method `take` appends the open chunk to f.chunks, from which streams read. It drops the oldest chunks, so that keptChunks and keptBytes are not
// exceeded. The caller holds f.mu.
func (f *feed) take() {
	kept, first := f.open.size(), len(f.chunks) // first will be the index of the oldest chunk to keep
	for first > 0 && len(f.chunks)-first+1 < keptChunks && kept+f.chunks[first-1].size() <= keptBytes {
		first--
		kept += f.chunks[first].size()
	}
	f.chunks = append(slices.Delete(f.chunks, 0, first), f.open)
	f.upTo = f.open.last
	f.open = chunk{after: f.upTo, last: f.upTo}
	f.ready, f.taken = f.ended, time.Now()
	f.due.Stop()
	select {
	case f.room <- struct{}{}:
	default:
	}
}
