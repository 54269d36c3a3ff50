package progress

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The method `line` returns the line that plain mode writes for an event, or "" if plain mode writes none.
func (s *state) line(e event.Event) string {
	switch payload := e.Payload.(type) {
	case event.Start:
		return "run started: " + plural(payload.TotalNodes, "node")
	case event.RunEnd:
		return fmt.Sprintf("%s in %s", s.summary(), seconds(payload.Duration))
	case event.Retry:
		return fmt.Sprintf("%s: attempt %d failed, the next one in %s: %v: %s",
			path(e), e.Attempt, seconds(payload.Delay), payload.Cause, causeless(payload.Cause, payload.Err))
	case event.LogRecord:
		if !warns(e, payload) {
			return path(e) + " | " + payload.Message
		}
		return path(e) + ": " + payload.Message
	case event.StatusChange:
		if payload.To != kahn.RunSuspended {
			return ""
		}
		return "run suspended: waits for " + s.awaited(payload)
	case event.Completion:
		if s.amongMany(path(e)) && !payload.Fallback {
			return ""
		}
		text := fmt.Sprintf("%s: completed in %s", path(e), seconds(payload.Duration))
		if n := s.latest; n != nil && n.inside != nil && n.inside.items {
			text += ", " + n.inside.text(e.Time, s.pacing())
		}
		if len(payload.Labels) > 0 {
			text += ", on to " + strings.Join(payload.Labels, ", ")
		}
		if payload.Fallback {
			text += ", by its fallback for: " + errorText(payload.Err)
		}
		return text
	case event.NodeEnd:
		text := fmt.Sprintf("%s: %v", path(e), nodeStatus[e.Type])
		if e.Attempt > 0 {
			text += " after " + seconds(payload.Duration)
		}
		return text + ": " + describe(payload)
	case event.Compensation:
		return undoLine(e, payload)
	case event.Pause:
		return fmt.Sprintf("%s: iteration %d has ended, the next one in %s", path(e), payload.Iteration, seconds(payload.Delay))
	case event.Suspension:
		text := path(e) + ": suspended"
		if !payload.Deadline.IsZero() {
			text += " until " + clock(payload.Deadline.Sub(s.start))
		}
		return text
	case event.Answer:
		text := path(e) + ": answered"
		if payload.Actor != "" {
			text += fmt.Sprintf(" by %.60q", payload.Actor)
		}
		if payload.Comment != "" {
			text += fmt.Sprintf(": %.200q", payload.Comment)
		}
		return text
	case event.Skip:
		if s.amongMany(path(e)) {
			return ""
		}
		return fmt.Sprintf("%s: skipped: %v", path(e), payload.Reason)
	}
	if e.Type != event.NodeStarted {
		return ""
	}
	if e.Attempt > 1 {
		return fmt.Sprintf("%s: attempt %d started", path(e), e.Attempt)
	}
	if s.amongMany(path(e)) {
		return ""
	}
	return path(e) + ": started"
}

// If a map has more than manyItems items, plain mode writes no lines when nodes inside the map start, complete without a fallback, or are skipped.
const manyItems = 100

// amongMany reports whether a node is inside a map that has more than manyItems items.
func (s *state) amongMany(path string) bool {
	for at := range enclosing(path) {
		if n := s.live[at]; n != nil && n.inside != nil && n.inside.items && max(n.inside.total, n.inside.seen) > manyItems {
			return true
		}
	}
	return false
}

// itemsLine returns a line that says how many items of the live maps have ended. The line is due if a node ends while a map is live, and at least
// the time countEvery has passed since the last line of this kind. For the first line, this time counts from the beginning of the first map. If no
// line is due, itemsLine returns "".
func (s *state) itemsLine(e event.Event) string {
	const most = 5
	if len(s.maps) == 0 {
		s.listed = time.Time{}
		return ""
	}
	if s.listed.IsZero() {
		s.listed = e.Time
	}
	if s.latest == nil || !s.latest.status.Terminal() || e.Time.Sub(s.listed) < countEvery {
		return ""
	}
	s.listed = e.Time
	var names []string
	for _, m := range s.maps[:min(len(s.maps), most)] {
		names = append(names, m.path+" "+m.inside.text(e.Time, s.pacing()))
	}
	return several(names, len(s.maps))
}

// undoLine returns the line for the start of an attempt to undo a node, or for the end of the node's compensation.
func undoLine(e event.Event, p event.Compensation) string {
	switch {
	case e.Type == event.NodeCompensated && p.Err != nil:
		return fmt.Sprintf("%s: compensation failed after %s: %s", path(e), seconds(p.Duration), errorText(p.Err))
	case e.Type == event.NodeCompensated:
		return fmt.Sprintf("%s: compensated in %s", path(e), seconds(p.Duration))
	case p.Err != nil:
		return fmt.Sprintf("%s: compensation, attempt %d, after: %s", path(e), e.Attempt, errorText(p.Err))
	case !p.Certain:
		return path(e) + ": compensating, its effect is unknown"
	}
	return path(e) + ": compensating"
}

// The method `awaited` returns a text that names nodes for which a suspended run waits. If nodes have begun to wait since the run's previous
// change of status, awaited names these nodes. Otherwise it names the nodes that have waited longest for a signal.
func (s *state) awaited(c event.StatusChange) string {
	const most = 5
	names := slices.Clip(c.Waiting)
	for el := s.waiting.Front(); el != nil && len(c.Waiting) == 0 && len(names) < most; el = el.Next() {
		if n := el.Value.(*live); n.signal {
			names = append(names, n.path)
		}
	}
	if len(names) > 0 {
		return several(names, c.TotalWaiting)
	}
	return plural(c.TotalWaiting, "node")
}

// The function `warns` reports whether a log record is a warning of the engine. The engine warns if a guard cannot decide and therefore lets its
// node run, or if the answer of a condition matches no edge.
func warns(e event.Event, r event.LogRecord) bool {
	astray := strings.HasPrefix(r.Message, kahn.ErrNoMatch.Error())
	return r.Level >= slog.LevelWarn && (e.Attempt == 0 || astray)
}

// The method `reminder` returns a summary of the run, followed by the names of the steps that have run longest and of the nodes that have waited
// longest.
func (s *state) reminder(now time.Time) string {
	const most = 5
	running, waiting := s.running.Len(), s.waiting.Len()
	now = s.at(now)
	text := "still running: " + s.summaryAt(now)
	if running == 0 && (waiting > 0 || s.rests) {
		text = "waiting: " + s.summaryAt(now)
	}
	if !s.gone.IsZero() {
		text = "no process performs the run: " + s.summaryAt(now)
	}
	var names []string
	for _, n := range first(&s.running, most) {
		what := ""
		if n.undo {
			what = " compensating"
		}
		names = append(names, n.path+what+" "+tenths(now.Sub(n.since)))
	}
	for _, n := range first(&s.waiting, most-len(names)) {
		names = append(names, n.path+" waits")
	}
	if len(names) > 0 {
		text += ": " + several(names, running+waiting)
	}
	return text
}

// The function `several` returns the given names as text. If total, the number of all names, is greater, the text ends with the number of further
// names.
func several(names []string, total int) string {
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
