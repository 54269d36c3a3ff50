package sse

import (
	"reflect"
	"sync"
)

// frames are the latest encoded events of one source, for all of its streams: each event is encoded once, not once for every client.
// Handlers that redact events do not share them.
type frames struct {
	streams int // guarded by the lock of sharing

	mu     sync.Mutex
	recent []frame // by id, modulo its length; nil as long as there is one stream only
}

type frame struct {
	id   uint64
	data []byte // immutable
}

const (
	recentFrames = 128
	largestFrame = 8 << 10 // larger ones are not kept, which bounds what a source holds by a megabyte
)

// sharing has the frames of every source that has streams.
type sharing struct {
	mu     sync.Mutex
	frames map[Source]*frames
}

// join returns the frames of a source for one more stream, which calls leave when it ends. They are nil for a source that cannot be the
// key of a map.
func (s *sharing) join(src Source) (f *frames, leave func()) {
	if !reflect.ValueOf(src).Comparable() {
		return nil, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.frames[src]; f == nil {
		if s.frames == nil {
			s.frames = map[Source]*frames{}
		}
		f = &frames{}
		s.frames[src] = f
	}
	if f.streams++; f.streams == 2 {
		f.mu.Lock()
		f.recent = make([]frame, recentFrames)
		f.mu.Unlock()
	}
	return f, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.streams--; f.streams == 0 {
			delete(s.frames, src)
		}
	}
}

// of returns the frame of an event, and encodes it unless another stream has done so lately.
func (f *frames) of(id uint64, encode func() []byte) []byte {
	if f == nil {
		return encode()
	}
	f.mu.Lock()
	if f.recent == nil {
		f.mu.Unlock()
		return encode()
	}
	at := &f.recent[id%recentFrames]
	if at.id == id && at.data != nil {
		data := at.data
		f.mu.Unlock()
		return data
	}
	f.mu.Unlock()
	data := encode() // methods of the host's values: not under the lock
	if len(data) <= largestFrame {
		f.mu.Lock()
		*at = frame{id, data}
		f.mu.Unlock()
	}
	return data
}
