package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// Group shows several runs at once: the runs of a [kahn.Runner], or other runs.
//
//	g := progress.NewGroup(os.Stderr, progress.Auto)
//	defer g.Close()
//	runner := kahn.Runner{Options: g.Options()}
//
// On a terminal each run that runs or waits has a part of the picture, with its own header. A run that has ended, or that this process no longer
// performs, moves above the picture and stays there. In a log every line names its run. In JSON the events of all runs are mixed. The Group
// keeps the state of a run until the run has ended or was left. The methods of a Group may be called concurrently.
type Group struct {
	display
	runs runs // guarded by the display's lock
}

// NewGroup returns a Group that writes to w. Nothing else should write to the same terminal until Close: see [Group.Write].
func NewGroup(w io.Writer, mode Mode) *Group {
	g := &Group{}
	g.init(w, mode, &g.runs)
	g.runs.drawn = g.mode == TTY
	return g
}

// Options returns the options that make a run show its progress in the group: see [Progress.Options].
func (g *Group) Options() []kahn.Option {
	return g.options(func(r *kahn.Run) func(*kahn.Result) {
		m := newMember(r.ID(), r.Name())
		m.source = r
		g.locked(func() { g.runs.begin(m) })
		return func(*kahn.Result) { g.locked(func() { g.runs.left(m) }) } // called after all events
	})
}

// member is one life of a run in a group: from the run's start or continuation in this process until the run ends or is left.
type member struct {
	state
	id, name string
}

func newMember(id, workflow string) *member {
	return &member{id: id, name: strings.TrimSpace(workflow + " " + id)}
}

// runs holds the runs of a group, as far as events describe them.
type runs struct {
	drawn  bool // whether frames are drawn; the display then calls above() before each frame
	start  time.Time
	byID   map[string]*member
	live   []*member // unfinished runs that have had an event, in the order of their first events
	ended  []*member // runs that have ended or were left since the last frame; empty unless drawn is set
	latest *member   // the run of the latest event
	total  [kahn.RunCancelled + 1]int
}

// begin adds a life of a run. It removes an earlier life of the same run, which must be over.
func (r *runs) begin(m *member) {
	if earlier := r.byID[m.id]; earlier != nil {
		r.left(earlier)
	}
	if r.byID == nil {
		r.byID = map[string]*member{}
	}
	r.byID[m.id] = m
}

// The method `left` removes a life that is over because the run is suspended or was left. If the run has ended, the method does nothing.
func (r *runs) left(m *member) { r.remove(m, kahn.RunSuspended) }

// The method `remove` removes a life that is over, and counts its run under the given status.
func (r *runs) remove(m *member, status kahn.RunStatus) {
	if r.byID[m.id] != m {
		return
	}
	delete(r.byID, m.id)
	i := slices.Index(r.live, m)
	if i < 0 { // no event of the run has arrived, so the run is not in live
		return
	}
	r.live = slices.Delete(r.live, i, i+1)
	r.total[status]++
	if r.drawn {
		r.ended = append(r.ended, m)
	}
}

// The method `member` returns the current life of an event's run. It adds this life if the group does not know it.
func (r *runs) member(e event.Event) *member {
	m := r.byID[e.RunID]
	if m == nil {
		m = newMember(e.RunID, e.Workflow)
		r.begin(m)
	}
	return m
}

func (r *runs) of(e event.Event) *state { return &r.member(e).state }

func (r *runs) record(e event.Event) {
	if r.start.IsZero() {
		r.start = e.Time
	}
	m := r.member(e)
	if m.now.IsZero() { // its first event
		r.live = append(r.live, m)
	}
	m.record(e)
	if r.latest = m; m.over {
		r.remove(m, m.state.ended.Status)
	}
}

// The method `line` returns the line of an event, with the name of its run in front. The event e must be the event that was recorded last.
func (r *runs) line(e event.Event) string {
	if line := r.latest.line(e); line != "" {
		return r.latest.name + " " + line
	}
	return ""
}

func (r *runs) itemsLine(e event.Event) string {
	if line := r.latest.itemsLine(e); line != "" {
		return r.latest.name + " " + line
	}
	return ""
}

func (r *runs) began() time.Time { return r.start }

func (r *runs) finished() bool { return false }

// The method `summary` returns the numbers of runs: "3 runs running, 2 completed, 1 failed".
func (r *runs) summary() string {
	waiting := 0
	for _, m := range r.live {
		if m.running.Len() == 0 && m.waiting.Len() > 0 {
			waiting++
		}
	}
	text := plural(len(r.live)-waiting, "run") + " running"
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

// The method `above` returns the last frames of the runs that have ended or were left.
func (r *runs) above(width, height int) (rows []row) {
	for _, m := range r.ended {
		rows = append(rows, m.part(m.now, width, height)...)
	}
	r.ended = nil
	return rows
}

// frame divides the lines among the runs. Runs with failed nodes come first, and then the other runs, each in the order of their first events. The
// last row counts the runs that get no line.
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
		rows = append(rows, row{text: fit("... and "+plural(more, "more run"), width)})
	}
	return rows
}

// The method `part` returns the frame of one run. The header of this frame begins with the run's name.
func (m *member) part(now time.Time, width, height int) []row {
	now = m.at(now)
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
