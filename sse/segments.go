package sse

import (
	"fmt"
	"sync"
)

// The type `segments` serves streams that are behind: it holds frames of events that are no longer in the feed's chunks. The first stream that needs
// a segment reads and encodes its events. Other streams wait until the segment is encoded. When no stream is behind, all segments are dropped.
type segments struct {
	mu      sync.Mutex
	behind  int // the number of streams that are behind
	byAfter map[uint64]*segment
	kept    []*segment // encoded segments, the oldest first
	bytes   int        // the size of the kept segments
}

// A segment holds the frames of the events with ids from after+1 to last. Normally `last` is a multiple of segmentEvents, so that streams that
// began at different positions soon need the same segments. A segment ends earlier if its frames reach fullChunk bytes, or if the stream that encodes
// it needs no later events.
type segment struct {
	after, last uint64
	frames      []byte
	done        chan struct{} // closed when the segment is encoded or encoding has failed
	encoded     bool          // whether the segment was encoded; streams read this field after done is closed
}

const (
	segmentEvents = 64
	// keptSegments bounds the bytes of the encoded segments that are kept. The latest segment is kept even if it exceeds the bound.
	keptSegments = 1 << 20
)

// The method `next` returns the segment that begins after the event with the given id. If the result `mine` is true, the caller must encode the
// segment and then call ss.done.
func (ss *segments) next(after uint64) (g *segment, mine bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if g = ss.byAfter[after]; g != nil {
		return g, false
	}
	g = &segment{after: after, last: after, done: make(chan struct{})}
	if ss.byAfter == nil {
		ss.byAfter = map[uint64]*segment{}
	}
	ss.byAfter[after] = g
	return g, true
}

// The method `done` wakes the streams that wait for a segment. If encoding has failed, one of these streams tries again.
func (ss *segments) done(g *segment, encoded bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	defer close(g.done)
	if !encoded {
		delete(ss.byAfter, g.after)
		return
	}
	g.encoded = true
	ss.kept, ss.bytes = append(ss.kept, g), ss.bytes+len(g.frames)
	for ss.bytes > keptSegments && len(ss.kept) > 1 {
		old := ss.kept[0]
		ss.kept, ss.bytes = ss.kept[1:], ss.bytes-len(old.frames)
		delete(ss.byAfter, old.after)
	}
}

func (ss *segments) enter() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.behind++
}

func (ss *segments) leave() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.behind--; ss.behind == 0 {
		ss.byAfter, ss.kept, ss.bytes = nil, nil, 0
	}
}

// catchUp writes the events up to the id upTo. The source must already have these events.
func (s *stream) catchUp(src Source, ss *segments, upTo uint64) error {
	ss.enter()
	defer ss.leave()
	for s.last < upTo {
		g, mine := ss.next(s.last)
		if mine {
			if err := s.encode(src, ss, g, upTo); err != nil {
				return err
			}
			continue
		}
		select {
		case <-g.done:
		case <-s.r.Context().Done():
			return s.r.Context().Err()
		}
		if g.encoded {
			if err := s.send(g.frames); err != nil {
				return err
			}
			s.last = g.last
		}
	}
	return nil
}

// The method `encode` encodes a segment and writes it. It continues with the following segments up to the event upTo. It returns earlier if another
// stream encodes, or has encoded, the next segment.
func (s *stream) encode(src Source, ss *segments, g *segment, upTo uint64) (err error) {
	defer func() {
		if g != nil {
			ss.done(g, false)
		}
	}()
	defer contain(&err)
	for e, err := range src.Events(s.r.Context(), s.last) {
		if err != nil {
			return err
		}
		g.frames, g.last = append(g.frames, s.h.frame(s.r, e)...), e.ID
		if e.ID < upTo && e.ID%segmentEvents != 0 && len(g.frames) < fullChunk {
			continue
		}
		ss.done(g, true)
		frames, last := g.frames, g.last
		g = nil // other streams can use the segment before it is written to this client
		if err := s.send(frames); err != nil {
			return err
		}
		if s.last = last; last >= upTo {
			return nil
		}
		next, mine := ss.next(last)
		if !mine {
			return nil
		}
		g = next
	}
	if err := s.r.Context().Err(); err != nil {
		return err
	}
	return fmt.Errorf("sse: a source has ended after event %d, although it has event %d", s.last, upTo)
}
