package progress

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// Group shows several runs at once: those of a [kahn.Runner], or any others.
//
//	g := progress.NewGroup(os.Stderr, progress.Auto)
//	defer g.Close()
//	runner := kahn.Runner{Options: g.Options()}
//
// On a terminal each run that is at work or waits has a part of the picture, with a header of its own. A run that has ended moves above the
// picture, where it stays, and so does one that Execute has left suspended. In a log every line names its run. The methods of a Group may be called concurrently.
type Group struct {
	display display
	runs    runs // guarded by the display's lock
}

// NewGroup returns a Group that writes to w. Nothing else should write to the same terminal until Close: see [Progress.Write].
func NewGroup(w io.Writer, mode Mode) *Group {
	g := &Group{}
	g.display.init(w, mode, &g.runs)
	return g
}

// Options returns the options by which a run shows its progress in the group: see [Progress.Options].
func (g *Group) Options() []kahn.Option {
	return []kahn.Option{kahn.OnEvent(g.Event), kahn.Around(func(_ context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
		id := r.ID()
		var m *member
		g.display.locked(func() {
			m = g.runs.of(id, r.Name())
			m.source = r
		})
		return nil, func(*kahn.Result) { g.display.locked(func() { m.returned = true }) }
	})}
}

// Event records an event of any run. It is a sink for [kahn.OnEvent], and does not wait for the writer.
func (g *Group) Event(e event.Event) {
	g.display.catchUp(e, func() *state { return &g.runs.of(e.RunID, e.Workflow).state })
	g.display.event(e)
}

// Write shows the host's own output above the picture: see [Progress.Write].
func (g *Group) Write(text []byte) (int, error) { return g.display.Write(text) }

// Close ends the display, and returns when everything is written, with the first error of the writer. Runs that have not ended stay on
// the screen as they are. Closing again is harmless.
func (g *Group) Close() error { return g.display.Close() }

// member is a run of a group.
type member struct {
	state
	id, name string
	returned bool // nobody performs it any more: it has ended, or goes on in a later life
}

// runs are the runs of a group, according to their events.
type runs struct {
	start time.Time
	byID  map[string]*member
	live  []*member // those that have had an event and have not ended, in the order in which they began
	ended []*member // those that have ended since the last frame
	total [kahn.RunCancelled + 1]int
}

// of returns the run with an id.
func (r *runs) of(id, workflow string) *member {
	m, ok := r.byID[id]
	if !ok {
		m = &member{id: id, name: strings.TrimSpace(workflow + " " + id)}
		if r.byID == nil {
			r.byID = map[string]*member{}
		}
		r.byID[id] = m
	}
	return m
}

func (r *runs) record(e event.Event) {
	if r.start.IsZero() {
		r.start = e.Time
	}
	m := r.of(e.RunID, e.Workflow)
	if m.start.IsZero() {
		r.live = append(r.live, m)
	}
	m.record(e)
	if m.over {
		r.remove(func(other *member) bool { return other == m }, m.ended.Status)
	}
}

// remove moves runs to those that have ended. One that goes on under its id later is another member.
func (r *runs) remove(which func(*member) bool, status kahn.RunStatus) {
	r.live = slices.DeleteFunc(r.live, func(m *member) bool {
		if !which(m) {
			return false
		}
		delete(r.byID, m.id)
		r.ended = append(r.ended, m)
		r.total[status]++
		return true
	})
}

// line is that of the run, with its name. The name of a run that has just ended is in its last event, too.
func (r *runs) line(e event.Event) string {
	m := r.byID[e.RunID]
	if _, ended := e.Payload.(event.RunEnd); ended {
		m = r.ended[len(r.ended)-1]
		r.ended = nil // a log has no frames
	}
	if line := m.line(e); line != "" {
		return m.name + " " + line
	}
	return ""
}

func (r *runs) began() time.Time { return r.start }

func (r *runs) finished() bool { return false }

// summary counts the runs: "3 runs at work, 2 completed, 1 failed".
func (r *runs) summary() string {
	waiting := 0
	for _, m := range r.live {
		if m.running.Len() == 0 && m.waiting.Len() > 0 {
			waiting++
		}
	}
	text := fmt.Sprintf("%d runs at work", len(r.live)-waiting)
	if waiting > 0 {
		text += fmt.Sprintf(", %d waiting", waiting)
	}
	for status := kahn.RunSuspended; status <= kahn.RunCancelled; status++ {
		if n := r.total[status]; n > 0 {
			text += fmt.Sprintf(", %d %v", n, status)
		}
	}
	return text
}

// above returns the last frames of the runs that have ended, and of those that were suspended or left and that nobody performs.
func (r *runs) above(width, height int) (rows []row) {
	r.remove(func(m *member) bool { return m.returned && m.running.Len() == 0 }, kahn.RunSuspended)
	for _, m := range r.ended {
		rows = append(rows, m.part(m.now, width, height)...)
	}
	r.ended = nil
	return rows
}

// frame divides the lines among the runs: those that failed something come first, then the oldest. Runs without a line are counted.
func (r *runs) frame(now time.Time, width, height int) []row {
	elapsed := clock(now.Sub(r.start))
	rows := []row{{text: fit(fit(r.summary(), max(width-len(elapsed)-1, 0))+" "+elapsed, width)}}
	lines := max(height-2, 0)
	live := slices.Clone(r.live)
	slices.SortStableFunc(live, func(a, b *member) int { return min(b.counts[kahn.Failed], 1) - min(a.counts[kahn.Failed], 1) })
	shown := share(len(live), lines)
	more := len(live) - shown
	if more > 0 {
		lines--
	}
	for i, m := range live[:shown] {
		part := m.part(now, width, lines/(shown-i)+1)
		lines -= len(part)
		rows = append(rows, part...)
	}
	if more > 0 && height > 2 {
		rows = append(rows, row{text: fit(fmt.Sprintf("... and %d more runs", more), width)})
	}
	return rows
}

// part is the frame of one run, below a header with its name.
func (m *member) part(now time.Time, width, height int) []row {
	if m.over {
		now = m.now
	}
	rows := m.frame(now, width, height)
	name := clean(m.name) + " "
	rows[0].failed = m.over && m.ended.Status == kahn.RunFailed
	rows[0].text = fit(name+m.header(now, max(width-uniseg.StringWidth(name), 0)), width)
	return rows
}

func (r *runs) reminder(now time.Time) string {
	const most = 5
	var names []string
	for _, m := range r.live[:min(len(r.live), most)] {
		names = append(names, m.name+" "+m.done())
	}
	text := r.summary()
	if len(names) > 0 {
		text += ": " + several(names, len(r.live))
	}
	return text
}
