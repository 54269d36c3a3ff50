package sse

// Kept returns the bytes of frames that the feeds of a handler keep for streams.
func (h *Handler) Kept() (bytes int) {
	h.feeds.mu.Lock()
	defer h.feeds.mu.Unlock()
	for _, f := range h.feeds.bySource {
		f.mu.Lock()
		for i := range f.chunks {
			bytes += f.chunks[i].size()
		}
		f.mu.Unlock()
		f.segments.mu.Lock()
		bytes += f.segments.bytes
		f.segments.mu.Unlock()
	}
	return bytes
}
