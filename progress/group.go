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

// Group shows several runs at once, for example the runs of a [kahn.Runner].
//
//	g := progress.NewGroup(os.Stderr, progress.Auto)
//	defer g.Close()
//	runner := kahn.Runner{Options: g.Options()}
//
// On a terminal each live run has a part of the picture, with its own header. When a run ends, or this process no longer performs it, its part
// moves above the picture and stays there. In a log each line about a run begins with the run's name. In mode JSON the events of all runs come in
// one stream. The Group drops the state of a run when the run ends or this process no longer performs it. The methods of a Group may be called
// concurrently.
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

// member is one life of a run in a group. The life begins when the run starts or continues in this process, and ends when this process no longer
// performs the run.
type member struct {
	state
	id, name string
}

func newMember(id, workflow string) *member {
	return &member{id: id, name: strings.TrimSpace(workflow + " " + id)}
}

// runs holds the states of a group's runs.
type runs struct {
	drawn  bool // whether the display draws frames; if so, it calls above() before each frame
	start  time.Time
	byID   map[string]*member
	live   []*member // runs that are not over and have had an event, in the order of their first events
	ended  []*member // runs whose lives have ended since the last frame; empty if drawn is false
	latest *member   // the run of the latest event
	total  [kahn.RunCancelled + 1]int
}

// begin adds a life of a run. If the group still contains an earlier life of the run, begin removes the earlier life, because it must be over.
func (r *runs) begin(m *member) {
	if earlier := r.byID[m.id]; earlier != nil {
		r.left(earlier)
	}
	if r.byID == nil {
		r.byID = map[string]*member{}
	}
	r.byID[m.id] = m
}

// The method `left` removes a life when this process no longer performs the run. If the run has ended, its life was removed before, and `left`
// does nothing.
func (r *runs) left(m *member) { r.remove(m, kahn.RunSuspended) }

// The method `remove` removes a life that is over, and counts the run under the given status, unless no event of the run has arrived.
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

// The method `member` returns the current life of an event's run. If the group has none, `member` adds one.
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
	if m.now.IsZero() { // this is the first event of m
		r.live = append(r.live, m)
	}
	m.record(e)
	if r.latest = m; m.over {
		r.remove(m, m.state.ended.Status)
	}
}

// The method `line` returns the run's name and the line of e, which must be the event that was recorded last.
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

// The method `summary` returns how many runs are running, are waiting and are over: "3 runs running, 2 completed, 1 failed".
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

// The method `above` returns the last frames of the runs whose lives have ended since the last call.
func (r *runs) above(width, height int) (rows []row) {
	for _, m := range r.ended {
		rows = append(rows, m.part(m.now, width, height)...)
	}
	r.ended = nil
	return rows
}

// frame divides the lines among the runs. Runs with failed nodes come first, followed by the other runs. Both kinds are in the order of their
// first events. If some runs get no line, the last row shows their number.
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
