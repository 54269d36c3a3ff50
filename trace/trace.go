// Package trace shows a run in three forms: as a picture of its graph ([Mermaid], [DOT], [SVG]; see [Drawing]), as a timeline for Perfetto or
// Chrome ([WritePerfetto]), and as a report ([NewReport]). The report contains the critical path, the origins of failures, and, for each node
// that did not run, the reason.
//
// Pictures need a plan and, for colours and reasons, a result. Timelines and reports also need the run's events:
//
//	var rec trace.Recorder
//	res, err := kahn.Execute(ctx, g, step, kahn.OnEvent(rec.Event))
//	...
//	trace.WritePerfetto(file, res, rec.Events())
//	trace.NewReport(res, rec.Events()).WriteText(os.Stdout)
package trace

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Recorder records the events that timelines and reports of one run need: all events except deltas and logs. The zero value is ready to use, and
// its methods may be called concurrently.
type Recorder struct {
	mu     sync.Mutex
	events []event.Event
}

// Event records an event. It is a sink for [kahn.OnEvent].
func (r *Recorder) Event(e event.Event) {
	if e.Type == event.NodeDelta || e.Type == event.NodeLog {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns the events recorded so far, in the order in which they were recorded.
func (r *Recorder) Events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.events)
}

// maxLine bounds how many characters of an id, a reason or an error are shown.
const maxLine = 200

// The function clean escapes and shortens a text for one line of a picture or report.
func clean(text string) string { return foreign.Line(text, maxLine) }

// The function list returns a text with the first ids and the number of the other ids: "a, b, c and 2 more".
func list(ids []string) string {
	const most = 3
	var names []string
	for _, id := range ids[:min(most, len(ids))] {
		names = append(names, clean(id))
	}
	text := strings.Join(names, ", ")
	if more := len(ids) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
