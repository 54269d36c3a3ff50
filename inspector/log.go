package inspector

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// logLine is a line of the log. It describes one event.
type logLine struct {
	ID      uint64     `json:"id"`
	Time    string     `json:"time"`
	Type    event.Type `json:"type"`
	Level   string     `json:"level"`
	Path    string     `json:"path,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Text    string     `json:"text"`
}

type logReply struct {
	Lines []logLine `json:"lines"`
	// After is the value of the parameter "after" for the next page. More is true if the run has events after this page.
	After uint64 `json:"after"`
	More  bool   `json:"more"`
	// Before is set only if the request had the parameter "before". It is the value of this parameter for the preceding page, or 0 if there is no
	// such page.
	Before uint64 `json:"before,omitempty"`
	// First and Last are the ids of the first and the last kept event.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Note  string `json:"note,omitempty"` // why there are no lines, or no earlier lines
}

const (
	mostScanned = 50_000 // the maximum number of events that are read for one page of the log
	scanWindow  = 2_000  // the number of events that addEarlier reads at once
)

const (
	noEvents = "The store does not have the events of the run: kahn.StoreEvents writes them."
	noPast   = "The events from before this process continued the run are not kept: kahn.StoreEvents would store them."
)

// The type `lines` describes which lines of the log a request selects.
type lines struct {
	path, q string
	least   slog.Level
}

func (c *call) lines() lines {
	l := lines{path: c.query.text("path"), q: strings.ToLower(c.query.text("q"))}
	if level := c.query.text("level"); level != "" {
		_ = l.least.UnmarshalText([]byte(level)) // cannot fail: the route has checked the level
	}
	return l
}

// The method `chosen` reports whether `l` selects an event. If so, it also returns the event's line.
func (c *call) chosen(l lines, e kahn.Event) (line logLine, ok bool) {
	level := levelOf(e)
	if level < l.least || !beneath(e.Path, l.path) {
		return line, false
	}
	line = c.line(e, level)
	return line, l.q == "" || strings.Contains(strings.ToLower(line.Text), l.q) || strings.Contains(strings.ToLower(line.Path), l.q)
}

func (c *call) log() (any, error) {
	after, before := uint64(c.query.numbers["after"]), uint64(c.query.numbers["before"])
	if after > 0 && before > 0 {
		return nil, badQuery("the parameters after and before cannot be combined")
	}
	run := c.target
	first, last := run.EventRange()
	if before > 0 || after+1 < first {
		run = c.withPast()
		first, _ = run.EventRange()
	}
	reply := logReply{Lines: []logLine{}, After: after, First: first, Last: last}
	if c.stored() != nil && last == 0 {
		reply.Note = noEvents
		return reply, nil
	}
	if began := run.FirstStarted(); (before > 0 || after < first) && began.Before(run.Started()) {
		if e, ok := eventAt(c.r.Context(), run, first); ok && e.Time.After(began) {
			reply.Note = noPast
		}
	}
	if before > 0 {
		return reply, c.addEarlier(run, &reply, min(before, last+1))
	}
	chosen := c.lines()
	scanned := 0
	var failed error
	for e := range reached(c.r.Context(), run, reply.After, last, &failed) {
		reply.After = e.ID
		if line, ok := c.chosen(chosen, e); ok {
			reply.Lines = append(reply.Lines, line)
		}
		if scanned++; scanned == mostScanned || len(reply.Lines) == c.query.numbers["limit"] {
			break
		}
	}
	reply.More = reply.After < last
	return reply, c.eventFault(failed)
}

// addEarlier adds the last selected lines before the event with the id `before`. Events can only be read forwards. So addEarlier reads the events
// in windows: first the latest window, then the preceding windows.
func (c *call) addEarlier(run subject, reply *logReply, before uint64) error {
	chosen, limit, least := c.lines(), c.query.numbers["limit"], max(reply.First, 1)
	reply.After, reply.More = before-1, before-1 < reply.Last
	for scanned := uint64(0); before > least && len(reply.Lines) < limit && scanned < mostScanned; {
		from := max(least, before-min(before, scanWindow))
		var part []logLine
		var failed error
		for e := range reached(c.r.Context(), run, from-1, before-1, &failed) {
			if line, ok := c.chosen(chosen, e); ok {
				part = append(part, line)
			}
		}
		if failed != nil {
			return c.eventFault(failed)
		}
		scanned += before - from
		if more := len(part) + len(reply.Lines) - limit; more > 0 {
			part = part[more:]
			from = part[0].ID
		}
		if before = from; len(part) > 0 {
			reply.Lines = append(part, reply.Lines...)
		}
	}
	if before > least {
		reply.Before = before
	}
	return nil
}

// logFile responds with all lines that a request selects, as a download.
func (c *call) logFile() (any, error) {
	_, last := c.target.EventRange()
	if c.stored() != nil && last == 0 {
		return nil, &fault{Status: http.StatusNotFound, Code: "no_value", Message: noEvents}
	}
	header, asJSON := c.w.Header(), c.query.text("format") == "jsonl"
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Content-Disposition", `attachment; filename="log.txt"`)
	if asJSON {
		header.Set("Content-Type", "application/jsonl")
		header.Set("Content-Disposition", `attachment; filename="log.jsonl"`)
	}
	if c.r.Method == http.MethodHead {
		return nil, nil
	}
	out, rc, chosen := bufio.NewWriterSize(c.w, 64<<10), http.NewResponseController(c.w), c.lines()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	var failed, gone error
	n := 0
	for e := range reached(c.r.Context(), c.withPast(), 0, last, &failed) {
		if n++; n%scanWindow == 1 {
			_ = rc.SetWriteDeadline(time.Now().Add(streamWrite)) // set a new deadline for each part, since the file may be long and the client slow
		}
		line, ok := c.chosen(chosen, e)
		switch {
		case !ok:
		case asJSON:
			gone = encoder.Encode(line)
		default:
			_, gone = fmt.Fprintf(out, "%s %-5s %s\n", line.Time, line.Level, joined(line.Path, strings.ReplaceAll(line.Text, "\n", "\n\t")))
		}
		if gone != nil {
			return nil, nil // the client is gone
		}
	}
	if failed != nil {
		_ = c.eventFault(failed) // called for its side effect, a record in the service's log
		end := logLine{Time: stamp(time.Now()), Level: "error", Text: "the log is cut off here: its events cannot be read further"}
		if asJSON {
			_ = encoder.Encode(end)
		} else {
			_, _ = fmt.Fprintf(out, "%s error %s\n", end.Time, end.Text)
		}
	}
	_ = out.Flush()
	_ = rc.SetWriteDeadline(time.Time{})
	return nil, nil
}

// eventFault returns the error for the client if the events of a run cannot be read further. For a run of the Runner it returns nil: then the
// reply only lacks the events that the Runner no longer keeps.
func (c *call) eventFault(err error) error {
	if err == nil || c.stored() == nil {
		return nil
	}
	return c.h.storeFault(c.r.Context(), err)
}

// The function `beneath` reports whether a path leads to the given node, or to a node inside it. If `node` is empty, it returns true.
func beneath(path, node string) bool {
	if node == "" || path == node {
		return true
	}
	rest, ok := strings.CutPrefix(path, node)
	return ok && strings.ContainsRune("/[#", rune(rest[0]))
}

// levelOf returns the log level of an event.
func levelOf(e kahn.Event) slog.Level {
	switch p := e.Payload.(type) {
	case event.LogRecord:
		return p.Level
	case event.Delta, event.Wave:
		return slog.LevelDebug
	case event.Retry, event.Timeout, event.Block:
		return slog.LevelWarn
	case event.Breach, event.Refusal:
		return slog.LevelError
	case event.NodeEnd:
		if e.Type == event.NodeFailed {
			return slog.LevelError
		}
		return slog.LevelWarn
	case event.Compensation:
		switch {
		case e.Type == event.NodeCompensated && p.Err != nil:
			return slog.LevelError
		case p.Err != nil:
			return slog.LevelWarn
		}
	case event.RunEnd:
		if p.Status != kahn.RunCompleted {
			return slog.LevelError
		}
	case nil:
		if e.Type == event.NodeQueued {
			return slog.LevelDebug
		}
	}
	return slog.LevelInfo
}

func (c *call) line(e kahn.Event, level slog.Level) logLine {
	line := lineOf(e)
	if p, ok := e.Payload.(event.Completion); ok {
		if res, err := c.target.Node(e.Path); p.Memoized {
			line += c.hitLine(p)
		} else if err == nil && res.Kind == kahn.KindGate {
			line = completed(p) + c.waited(e)
		}
	}
	if p, ok := e.Payload.(event.RunEnd); ok {
		line = c.endLine(e, p)
	}
	shown := c.shownText(Value{Path: e.Path, Kind: Line, Value: line})
	return logLine{ID: e.ID, Time: stamp(e.Time), Type: e.Type, Level: strings.ToLower(level.String()), Path: e.Path, Attempt: e.Attempt, Text: shown}
}

// lineOf describes an event in words.
func lineOf(e kahn.Event) string {
	switch p := e.Payload.(type) {
	case event.LogRecord:
		return p.Message
	case event.Delta:
		return chunk(p.Chunk)
	case event.Start:
		return fmt.Sprintf("the run has begun, with %d nodes", p.TotalNodes)
	case event.StatusChange:
		return joined(fmt.Sprintf("the run changed from %v to %v", p.From, p.To), p.Request.String())
	case event.Recovery:
		return "the run continues: the process that performed it has died"
	case event.Completion:
		if p.Memoized {
			return completed(p) // no step was called; the caller adds the result of hitLine
		}
		return completed(p) + " after " + lasted(p.Duration)
	case event.NodeEnd:
		line := strings.TrimPrefix(string(e.Type), "node.") + ": " + p.Cause.String()
		if p.Err != nil {
			line += ": " + text(p.Err)
		}
		return joined(line, p.Request.String())
	case event.Compensation:
		return undoLine(e.Type, p)
	case event.Skip:
		return "skipped: " + p.Reason.String()
	case event.Retry:
		return fmt.Sprintf("failed: %s; the next attempt begins in %v", text(p.Err), p.Delay)
	case event.Timeout:
		return fmt.Sprintf("timed out after %v", p.Timeout)
	case event.Suspension:
		if p.Deadline.IsZero() {
			return "waits for an answer"
		}
		return "waits for an answer until " + stamp(p.Deadline)
	case event.Answer:
		line := strings.TrimSpace(clip(p.Actor, shownText) + " answered " + chunk(p.Value))
		if p.Comment != "" {
			line += fmt.Sprintf(", with the comment %q", p.Comment)
		}
		return line
	case event.Pause:
		return fmt.Sprintf("iteration %d has ended; the next one begins in %v", p.Iteration, p.Delay)
	case event.Block:
		return fmt.Sprintf("blocked by %s", strings.Join(p.Origins, ", "))
	case event.Invalidation:
		return joined("runs again: "+p.Reason, p.Request.String())
	case event.Breach:
		return "violates its contract: " + strings.Join(p.Errors, "; ")
	case event.Refusal:
		return "refused by the moderator: " + strings.Join(p.Errors, "; ")
	case event.Wave:
		return fmt.Sprintf("tier %d %s", p.Tier, strings.TrimPrefix(string(e.Type), "wave."))
	case nil:
		return strings.TrimPrefix(string(e.Type), "node.")
	}
	return string(e.Type)
}

// The function `completed` describes in words how a node completed, without the duration.
func completed(p event.Completion) string {
	if len(p.Labels) == 0 {
		return "completed"
	}
	return "completed: " + strings.Join(p.Labels, ", ")
}

// The method `waited` returns a text that says how long a gate waited until the event e completed it. The method looks for the beginning of the
// wait in the scanWindow events before e. If it does not find the beginning, it returns "". It also returns "" after it was called mostWaits
// times for one request.
func (c *call) waited(e kahn.Event) string {
	if c.waits++; c.waits > mostWaits {
		return ""
	}
	var asked time.Time
	var failed error // not used: if the events cannot be read, the line lacks the duration
	for x := range reached(c.r.Context(), c.target, e.ID-min(e.ID, scanWindow), e.ID-1, &failed) {
		if x.Type == event.NodeSuspended && x.Path == e.Path {
			asked = x.Time
		}
	}
	if asked.IsZero() {
		return ""
	}
	return " after " + lasted(e.Time.Sub(asked)) + " of waiting for an answer"
}

const mostWaits = 20

// endLine describes the end of the run in words. If the run was continued, p.Duration counts only from the last continuation. Then the text also
// contains the time since the run first started.
func (c *call) endLine(e kahn.Event, p event.RunEnd) string {
	line := fmt.Sprintf("the run is %v after %v", p.Status, lasted(p.Duration))
	if first := c.target.FirstStarted(); !first.IsZero() && first.Before(e.Time.Add(-p.Duration-continuedLater)) {
		line = fmt.Sprintf("the run is %v after %v, which is %v after it was continued", p.Status, lasted(e.Time.Sub(first)), lasted(p.Duration))
	}
	if p.Degraded {
		line += ", degraded"
	}
	// A run that was redriven has ended several times. Only the last end gets its cause, since the nodes no longer have the errors of the earlier
	// ends.
	if _, last := c.target.EventRange(); e.ID == last {
		line += c.endCause(p)
	}
	return joined(line, p.Request.String())
}

// endCause describes in words the failure that ended a run. If there is no such failure, it returns the cause for which the whole run was
// stopped, or "" if the run was not stopped.
func (c *call) endCause(p event.RunEnd) string {
	if len(p.Failed) > 0 {
		if res, err := c.target.Node(p.Failed[0]); err == nil && res.Err != nil {
			path, cause := causeOf(p.Failed[0], res.Err)
			return ": " + path + ": " + firstLine(c.shownError(path, cause))
		}
	}
	if p.Cause != kahn.CauseNone {
		return ": " + p.Cause.String()
	}
	return ""
}

// A run counts as continued if it first started more than continuedLater before its last process began to perform it. A smaller difference may
// come from imprecise clocks.
const continuedLater = 10 * time.Millisecond

// The function `lasted` returns a duration as a text. It leaves out fractions of a millisecond, which would only show how busy the machine was.
func lasted(d time.Duration) string {
	if d < time.Millisecond {
		return "less than 1ms"
	}
	return d.Round(time.Millisecond).String()
}

// undoLine describes in words how far the undoing of a node is.
func undoLine(t event.Type, p event.Compensation) string {
	switch {
	case t == event.NodeCompensated && p.Err != nil:
		return "compensation failed: " + text(p.Err)
	case t == event.NodeCompensated && p.Request.String() != "":
		return joined("undone by hand", p.Request.String())
	case t == event.NodeCompensated:
		return "compensated after " + lasted(p.Duration)
	}
	line := "compensating"
	if !p.Certain {
		line += ", its effect is unknown"
	}
	if p.Err != nil {
		line += "; the previous attempt failed: " + text(p.Err)
	}
	return line
}

// The function `joined` returns the line followed by a space and the text `part`. If `part` is empty, it returns the line alone.
func joined(line, part string) string {
	if part == "" {
		return line
	}
	return line + " " + part
}

// The function `chunk` returns a value of user code as a text for a line.
func chunk(v any) string {
	if text, ok := v.(string); ok {
		return clip(text, shownText)
	}
	data, err := encode(v)
	if err != nil {
		return foreign.ValueText(v)
	}
	return clip(string(data), shownText)
}

// A span is an attempt on the timeline. The times are milliseconds after timelineReply.Start.
type span struct {
	Path    string  `json:"path"`
	Attempt int     `json:"n"`
	Queued  float64 `json:"queued_ms"`
	Start   float64 `json:"start_ms"`
	End     float64 `json:"end_ms,omitempty"` // 0 if the attempt has not ended
	Status  string  `json:"status"`
	ID      uint64  `json:"id"` // the id of the event with which the attempt started; 0 if the store has no events
	// Late is the time at which the node begins to count as late. It is set only if the node runs and has an estimate.
	Late *float64 `json:"late_ms,omitempty"`
}

type timelineReply struct {
	// Start is the beginning of the timeline: the beginning of the run or, if the first kept event came earlier, the time of this event. All
	// other times count from Start. Now is the end of the timeline: the current time or, if the run has ended, the end of the run. For a stored
	// run that has lost its process, Now is the time at which the process was last heard of. If the run has not begun, Start is missing and
	// Now is 0.
	Start string  `json:"start,omitempty"`
	Now   float64 `json:"now_ms"`
	// Remaining is an estimate of the time between Now and the end of a live run. It is nil if there is no estimate, or if the run has to wait
	// for an answer or for another run before it ends.
	Remaining *float64 `json:"remaining_ms,omitempty"`
	// Late is the longest time by which a running step exceeds its estimate; nil if no step does. If Late is set, Remaining is only a lower
	// bound.
	Late *float64 `json:"late_ms,omitempty"`
	// LateNode is the path of the step that exceeds its estimate by Late.
	LateNode string `json:"late_node,omitempty"`
	Spans    []span `json:"spans"` // in the order of their starts
	// Memoized is the number of nodes whose outputs come from earlier runs. These nodes had no attempts.
	Memoized int `json:"memoized,omitempty"`
	// Truncated is true if Spans lacks some attempts of the run.
	Truncated bool   `json:"truncated,omitempty"`
	Note      string `json:"note,omitempty"` // what the response lacks
}

func (c *call) timeline() (any, error) {
	run := c.withPast()
	zero, end := c.period(run)
	if zero.IsZero() { // the run has not begun
		return timelineReply{Spans: []span{}}, nil
	}
	reply := timelineReply{Start: stamp(zero), Now: millis(end.Sub(zero)), Spans: []span{}}
	_, last := c.target.EventRange()
	if s := c.stored(); s != nil && last == 0 {
		reply.Spans, reply.Truncated = s.spans(zero, c.query.numbers["limit"])
		for _, x := range s.places {
			if x.Memoized {
				reply.Memoized++
			}
		}
		reply.Note = "The store does not record when the attempts were queued."
		return reply, nil
	}
	var failed error
	reply.Spans, reply.Memoized, reply.Truncated = spansOf(reached(c.r.Context(), run, 0, last, &failed), zero, c.query.numbers["limit"])
	addLateness(c.target, reply.Spans)
	if live, ok := c.target.(*kahn.Run); ok {
		if f, ok := live.Forecast(); ok && !f.Waits {
			reply.Remaining, reply.Late, reply.LateNode = expectedMillis(f.Left), lateBy(f), f.LateNode
		}
	}
	return reply, c.eventFault(failed)
}

// The method `period` returns the times at which the run began and ended. If the first kept event is earlier than the beginning of the run, the
// period begins with this event. If the run has not ended, the period ends now. If the run has lost its process, the period ends when the process
// was last heard of.
func (c *call) period(run subject) (zero, end time.Time) {
	zero, end = run.Started(), time.Now()
	first, last := run.EventRange()
	if e, ok := eventAt(c.r.Context(), run, first); ok && e.Time.Before(zero) {
		zero = e.Time
	}
	if s := c.stored(); s != nil && s.lost() {
		return zero, s.heard
	}
	if !over(c.target) {
		return zero, end
	}
	if e, ok := eventAt(c.r.Context(), c.target, last); ok {
		return zero, e.Time
	}
	if s := c.stored(); s != nil {
		return zero, s.row.Ended
	}
	return zero, lastEnd(c.target, zero)
}

// lastEnd returns the time at which the last node of a run ended, or the argument `end` if `end` is later.
func lastEnd(run subject, end time.Time) time.Time {
	for n := range run.Nodes() {
		if x := n.Start.Add(n.Duration); n.Attempts > 0 && x.After(end) {
			end = x
		}
	}
	return end
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// outcomes maps each type of event that ends a node or an attempt to the status that the node has after the event.
var outcomes = map[event.Type]kahn.Status{
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted, event.NodeCancelled: kahn.Cancelled,
	event.NodeSkipped: kahn.Skipped, event.NodeRetried: kahn.Retrying, event.NodeSuspended: kahn.Suspended,
}

// spansOf reads the events of a run, and returns the attempts in the order of their starts, but at most `limit`. The result `memoized` says how
// many nodes took their outputs from earlier runs. The result `truncated` is true if there are further attempts.
func spansOf(events func(func(kahn.Event) bool), zero time.Time, limit int) (spans []span, memoized int, truncated bool) {
	spans = []span{}
	queued := map[string]float64{}
	open := map[string]int{}
	for e := range events {
		at := millis(e.Time.Sub(zero))
		switch e.Type {
		case event.NodeQueued:
			queued[e.Path] = at
		case event.NodeStarted:
			if len(spans) == limit {
				if truncated = true; len(open) == 0 {
					return spans, memoized, true
				}
				delete(open, e.Path) // a new attempt has begun, so the preceding span has ended even if its end is missing
				continue
			}
			since, ok := queued[e.Path]
			if !ok {
				since = at
			}
			delete(queued, e.Path)
			open[e.Path] = len(spans)
			spans = append(spans, span{Path: e.Path, Attempt: e.Attempt, Queued: since, Start: at, Status: kahn.Running.String(), ID: e.ID})
		default:
			if p, ok := e.Payload.(event.Completion); ok && p.Memoized {
				memoized++
			}
			if i, ok := open[e.Path]; ok {
				if status, ends := outcomes[e.Type]; ends {
					spans[i].End, spans[i].Status = at, status.String()
					delete(open, e.Path)
				}
			}
		}
	}
	return spans, memoized, truncated
}
