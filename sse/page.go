package sse

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// The type `page` is the JSON response to a client that gets no stream.
type page struct {
	Events      []json.RawMessage `json:"events"`
	LastEventID uint64            `json:"lastEventId"`
	More        bool              `json:"more"`
	Done        bool              `json:"done"`
}

// pageSize is the number of bytes of events after which a page is full.
const pageSize = 1 << 18

// The method `page` responds with the events after a cursor.
func (h *Handler) page(w http.ResponseWriter, r *http.Request, src Source, after uint64) {
	p := page{Events: []json.RawMessage{}, LastEventID: after}
	ended := src.Status().Terminal() // the status is read before the range: if it is terminal, the range is final
	_, last := src.EventRange()
	if after < last {
		size := 0
		for e, err := range src.Events(r.Context(), after) {
			if err != nil {
				refuse(w, err, http.StatusInternalServerError)
				return
			}
			p.LastEventID = e.ID
			data := h.render(r, e)
			if data == nil {
				data = fmt.Appendf(nil, `{"eventId":%d}`, e.ID)
			}
			p.Events = append(p.Events, data)
			if size += len(data); e.ID >= last || size >= pageSize {
				break
			}
		}
	}
	p.More = p.LastEventID < last
	p.Done = ended && !p.More
	data, err := json.Marshal(p)
	if err != nil {
		refuse(w, err, http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", jsonType)
	header.Set("Cache-Control", "no-store")
	_, _ = w.Write(data) // an error means that the client is gone
}
