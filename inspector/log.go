package inspector

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// logLine is an event as a line.
type logLine struct {
	ID      uint64         `json:"id"`
	Time    string         `json:"time"`
	Type    kahn.EventType `json:"type"`
	Level   string         `json:"level"`
	Path    string         `json:"path,omitempty"`
	Attempt int            `json:"attempt,omitempty"`
	Text    string         `json:"text"`
}

type logReply struct {
	Lines []logLine `json:"lines"`
	// After is the parameter for the next page; More says that there is one already.
	After uint64 `json:"after"`
	More  bool   `json:"more"`
	// First is the id of the first event that is kept.
	First uint64 `json:"first"`
}

// mostScanned bounds the events that one request looks at.
const mostScanned = 50_000

func (c *call) log() (any, error) {
	first, last := c.target.EventRange()
	reply := logReply{Lines: []logLine{}, After: uint64(c.query.numbers["after"]), First: first}
	path, q := c.query.text("path"), strings.ToLower(c.query.text("q"))
	var least slog.Level
	if level := c.query.text("level"); level != "" {
		_ = least.UnmarshalText([]byte(level)) // it is one of levels
	}
	scanned := 0
	for e := range reached(c.target, reply.After, last) {
		reply.After = e.ID
		if level := levelOf(e); level >= least && beneath(e.Path, path) {
			if line := c.line(e, level); q == "" || strings.Contains(strings.ToLower(line.Text), q) || strings.Contains(strings.ToLower(line.Path), q) {
				reply.Lines = append(reply.Lines, line)
			}
		}
		if scanned++; scanned == mostScanned || len(reply.Lines) == c.query.numbers["limit"] {
			break
		}
	}
	reply.More = reply.After < last
	return reply, nil
}

// beneath reports whether a path is that of a node or of what is inside of it.
func beneath(path, node string) bool {
	if node == "" || path == node {
		return true
	}
	rest, ok := strings.CutPrefix(path, node)
	return ok && strings.ContainsRune("/[#", rune(rest[0]))
}

// levelOf is the level of an event as a line of a log: deltas are for debugging.
func levelOf(e kahn.Event) slog.Level {
	switch p := e.Payload.(type) {
	case kahn.LogRecord:
		return p.Level
	case kahn.Delta, kahn.Wave:
		return slog.LevelDebug
	case kahn.Retried, kahn.TimedOut, kahn.NodeBlocked:
		return slog.LevelWarn
	case kahn.ContractViolated, kahn.ModerationFlagged:
		return slog.LevelError
	case kahn.NodeEnded:
		if e.Type == kahn.EventNodeFailed {
			return slog.LevelError
		}
		return slog.LevelWarn
	case kahn.RunEnded:
		if p.Status != kahn.RunCompleted {
			return slog.LevelError
		}
	case nil:
		if e.Type == kahn.EventNodeQueued {
			return slog.LevelDebug
		}
	}
	return slog.LevelInfo
}

func (c *call) line(e kahn.Event, level slog.Level) logLine {
	shown := c.shownText(Value{Path: e.Path, Kind: Line, Value: lineOf(e)})
	return logLine{ID: e.ID, Time: stamp(e.Time), Type: e.Type, Level: strings.ToLower(level.String()), Path: e.Path, Attempt: e.Attempt, Text: shown}
}

// lineOf puts an event in words.
func lineOf(e kahn.Event) string {
	switch p := e.Payload.(type) {
	case kahn.LogRecord:
		return p.Message
	case kahn.Delta:
		return chunk(p.Chunk)
	case kahn.RunStarted:
		return fmt.Sprintf("the run has begun, with %d nodes", p.TotalNodes)
	case kahn.RunStatusChanged:
		return joined(fmt.Sprintf("the run is %v, it was %v", p.To, p.From), p.Request.String())
	case kahn.RunEnded:
		line := fmt.Sprintf("the run is %v after %v", p.Status, p.Duration.Round(time.Microsecond))
		if p.Degraded {
			line += ", degraded"
		}
		return joined(line, p.Request.String())
	case kahn.NodeCompleted:
		line := "completed"
		if len(p.Labels) > 0 {
			line += ": " + strings.Join(p.Labels, ", ")
		}
		return line + " after " + p.Duration.Round(time.Microsecond).String()
	case kahn.NodeEnded:
		line := strings.TrimPrefix(string(e.Type), "node.") + ": " + p.Cause.String()
		if p.Err != nil {
			line += ": " + text(p.Err)
		}
		return joined(line, p.Request.String())
	case kahn.NodeSkipped:
		return "skipped: " + p.Reason.String()
	case kahn.Retried:
		return fmt.Sprintf("failed: %s; attempted again in %v", text(p.Err), p.Delay)
	case kahn.TimedOut:
		return fmt.Sprintf("timed out after %v", p.Timeout)
	case kahn.NodeSuspended:
		if p.Deadline.IsZero() {
			return "waits for a signal"
		}
		return "waits for a signal until " + stamp(p.Deadline)
	case kahn.NodeSignalled:
		return joined(joined("answered "+chunk(p.Value), p.Actor), p.Comment)
	case kahn.NodePaused:
		return fmt.Sprintf("iteration %d has ended; the next one begins in %v", p.Iteration, p.Delay)
	case kahn.NodeBlocked:
		return fmt.Sprintf("blocked by %s", strings.Join(p.Origins, ", "))
	case kahn.NodeInvalidated:
		return joined("runs again: "+p.Reason, p.Request.String())
	case kahn.ContractViolated:
		return "breaks its contract: " + strings.Join(p.Errors, "; ")
	case kahn.ModerationFlagged:
		return "refused by the moderator: " + strings.Join(p.Errors, "; ")
	case kahn.Wave:
		return fmt.Sprintf("%s of tier %d", strings.TrimPrefix(string(e.Type), "wave."), p.Tier)
	case nil:
		return strings.TrimPrefix(string(e.Type), "node.")
	}
	return string(e.Type)
}

// joined appends a part to a line, if there is one.
func joined(line, part string) string {
	if part == "" {
		return line
	}
	return line + " " + part
}

// chunk is a value of user code in a line.
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

// span is an attempt on the timeline. Times are milliseconds since the run's start.
type span struct {
	Path    string  `json:"path"`
	Attempt int     `json:"n"`
	Queued  float64 `json:"queued_ms"`
	Start   float64 `json:"start_ms"`
	End     float64 `json:"end_ms,omitempty"` // 0: it goes on
	Status  string  `json:"status"`
	ID      uint64  `json:"id"` // of the event that began it
}

type timelineReply struct {
	// Start is the zero of the times.
	Start string  `json:"start,omitempty"`
	Now   float64 `json:"now_ms"`
	Spans []span  `json:"spans"` // in the order of their starts
	// Truncated says that there are more attempts than the answer has.
	Truncated bool `json:"truncated,omitempty"`
}

func (c *call) timeline() (any, error) {
	_, last := c.target.EventRange()
	zero := c.target.Started()
	reply := timelineReply{Start: stamp(zero), Spans: []span{}}
	if zero.IsZero() {
		return reply, nil
	}
	reply.Now = millis(time.Since(zero))
	reply.Spans, reply.Truncated = spansOf(reached(c.target, uint64(c.query.numbers["after"]), last), zero, c.query.numbers["limit"])
	return reply, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// outcomes are the statuses in which an event leaves the attempt that it ends.
var outcomes = map[kahn.EventType]kahn.Status{
	kahn.EventNodeCompleted: kahn.Completed, kahn.EventNodeFailed: kahn.Failed, kahn.EventNodeAborted: kahn.Aborted, kahn.EventNodeCancelled: kahn.Cancelled,
	kahn.EventNodeSkipped: kahn.Skipped, kahn.EventNodeRetried: kahn.Retrying, kahn.EventNodeSuspended: kahn.Suspended,
}

// spansOf assembles the attempts from the events of a run.
func spansOf(events func(func(kahn.Event) bool), zero time.Time, limit int) (spans []span, truncated bool) {
	spans = []span{}
	queued := map[string]float64{}
	open := map[string]int{}
	for e := range events {
		at := millis(e.Time.Sub(zero))
		switch e.Type {
		case kahn.EventNodeQueued:
			queued[e.Path] = at
		case kahn.EventNodeStarted:
			if len(spans) == limit {
				return spans, true
			}
			since, ok := queued[e.Path]
			if !ok {
				since = at
			}
			delete(queued, e.Path)
			open[e.Path] = len(spans)
			spans = append(spans, span{Path: e.Path, Attempt: e.Attempt, Queued: since, Start: at, Status: kahn.Running.String(), ID: e.ID})
		default:
			if i, ok := open[e.Path]; ok {
				if status, ends := outcomes[e.Type]; ends {
					spans[i].End, spans[i].Status = at, status.String()
					delete(open, e.Path)
				}
			}
		}
	}
	return spans, false
}
