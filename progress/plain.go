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

// line returns the line of plain mode for an event, or "" if the event has none.
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
		text := fmt.Sprintf("%s: completed in %s", path(e), seconds(payload.Duration))
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
		return fmt.Sprintf("%s: skipped: %v", path(e), payload.Reason)
	}
	if e.Type != event.NodeStarted {
		return ""
	}
	if e.Attempt > 1 {
		return fmt.Sprintf("%s: attempt %d started", path(e), e.Attempt)
	}
	return path(e) + ": started"
}

// undoLine returns the line for an attempt to undo a node, or for the end of the compensation.
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

// awaited returns a text that names nodes for which a suspended run waits: those that have begun to wait since the run was last suspended
// or, if there are none, the first of those that still wait.
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

// warns reports whether a record is a warning of the engine: that a guard could not decide and let its node run, or that the answer of a
// condition matches no edge.
func warns(e event.Event, r event.LogRecord) bool {
	astray := strings.HasPrefix(r.Message, kahn.ErrNoMatch.Error())
	return r.Level >= slog.LevelWarn && (e.Attempt == 0 || astray)
}

// reminder lists the steps that are still running, and the nodes that wait.
func (s *state) reminder(now time.Time) string {
	const most = 5
	running, waiting := s.running.Len(), s.waiting.Len()
	text := "still running: " + s.summary()
	if running == 0 && (waiting > 0 || s.rests) {
		text = "waiting: " + s.summary()
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

// several lists the given names, and says how many more there are in total.
func several(names []string, total int) string {
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
