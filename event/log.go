package event

import (
	"context"
	"log/slog"
)

// levels maps event types to the levels at which LogTo logs them. The function levelOf handles two exceptions: events of type node.log, and
// compensations with an error.
var levels = map[Type]slog.Level{
	RunStarted: slog.LevelInfo, RunStatusChanged: slog.LevelInfo, RunRecovered: slog.LevelWarn,
	RunCompleted: slog.LevelInfo, RunFailed: slog.LevelError, RunCancelled: slog.LevelWarn,
	RunTimedOut: slog.LevelError, Heartbeat: slog.LevelDebug, WaveStarted: slog.LevelDebug,
	WaveCompleted: slog.LevelDebug, NodeQueued: slog.LevelDebug, NodeStarted: slog.LevelDebug,
	NodeDelta: slog.LevelDebug, ContractViolated: slog.LevelWarn, ModerationFlagged: slog.LevelWarn,
	NodeTimedOut: slog.LevelWarn, NodeRetried: slog.LevelWarn, NodeBlocked: slog.LevelDebug,
	NodePaused: slog.LevelDebug, NodeSuspended: slog.LevelInfo, NodeSignalled: slog.LevelInfo, NodeMocked: slog.LevelDebug, NodeInvalidated: slog.LevelInfo,
	NodeCompleted: slog.LevelInfo, NodeFailed: slog.LevelError, NodeAborted: slog.LevelWarn,
	NodeCancelled: slog.LevelWarn, NodeSkipped: slog.LevelInfo, NodeCompensating: slog.LevelDebug, NodeCompensated: slog.LevelInfo,
}

// levelOf returns the level at which an event is logged.
func levelOf(e *Event) slog.Level {
	switch p := e.Payload.(type) {
	case LogRecord:
		return p.Level
	case Compensation:
		switch {
		case p.Err == nil:
		case e.Type == NodeCompensated:
			return slog.LevelError
		default:
			return slog.LevelWarn // the previous attempt to undo the node failed: the level is the same as for node.retried
		}
	}
	return levels[e.Type]
}

// LogTo returns a sink that logs every event as one record. The message is the type of the event or, for node.log, the message of the step. The
// record has the time of the event. Failures and the timeout of the run are logged at level Error; stops, retries, recoveries, timeouts of nodes, and
// refusals by a contract or the moderator at Warn; completions, skips, suspensions, answers, redrives and the start of a run at Info; most other
// events at Debug. A nil logger means [slog.Default]. An event costs next to nothing if the logger's handler does not enable the event's level.
//
// The names of the attributes are stable: run_id, trace_id, event_id and, if the graph has a name, workflow. Events of a node also have node (its
// path), attempt and tier. Events of some types have further attributes, such as error and duration. Most of these are omitted if they are empty.
// docs/production.md lists them.
//
// Each function in `more` is called with the event, and returns additional attributes. The option kahn.LogTo adds the kind and the label of the
// event's node, as the attributes kind and label.
func LogTo(logger *slog.Logger, more ...func(Event) []slog.Attr) func(Event) {
	if logger == nil {
		logger = slog.Default()
	}
	handler := logger.Handler()
	return func(e Event) {
		level, message := levelOf(&e), string(e.Type)
		if p, ok := e.Payload.(LogRecord); ok {
			message = p.Message
		}
		ctx := context.Background()
		if !handler.Enabled(ctx, level) {
			return
		}
		r := slog.NewRecord(e.Time, level, message, 0)
		r.AddAttrs(slog.String("run_id", e.RunID), slog.String("trace_id", e.TraceID), slog.Uint64("event_id", e.ID))
		if e.Workflow != "" {
			r.AddAttrs(slog.String("workflow", e.Workflow))
		}
		if e.Node != "" {
			r.AddAttrs(slog.String("node", e.Path), slog.Int("attempt", e.Attempt), slog.Int("tier", e.Tier))
		}
		r.AddAttrs(payloadAttrs(e.Payload)...)
		for _, f := range more {
			r.AddAttrs(f(e)...)
		}
		_ = handler.Handle(ctx, r) // like slog.Logger, drop the error: the caller cannot repair the log
	}
}

// payloadAttrs returns the attributes of an event's payload.
func payloadAttrs(payload any) []slog.Attr {
	switch p := payload.(type) {
	case Start:
		return append([]slog.Attr{slog.Int("total", p.TotalNodes), slog.String("mode", modeNames.Name(*modeOf(p.Waves)))}, some(slog.String("forked_from", p.Forked))...)
	case StatusChange:
		attrs := []slog.Attr{slog.String("from", p.From.String()), slog.String("to", p.To.String()), slog.Any("waiting", p.Waiting),
			slog.Int("total_waiting", p.TotalWaiting)}
		return append(attrs, p.Request.attrs()...)
	case RunEnd:
		return append(some(
			slog.String("status", p.Status.String()), slog.Bool("degraded", p.Degraded), slog.String("cause", p.Cause.String()),
			slog.Int("total", p.TotalSteps), names("failed", p.Failed), slog.Duration("duration", p.Duration), slog.Duration("timeout", p.Timeout),
			slog.Bool("cancellation_requested", p.CancellationRequested), slog.Int("output_bytes", p.Aggregation.Bytes), usageAttr(p.Usage),
		), p.Request.attrs()...)
	case Wave:
		return []slog.Attr{slog.Int("tier", p.Tier), slog.Int("nodes", len(p.Nodes))}
	case Delta:
		return []slog.Attr{slog.Int("index", p.Index)}
	case Breach:
		return []slog.Attr{slog.String("phase", p.Phase.String()), slog.Any("errors", p.Errors)}
	case Refusal:
		return []slog.Attr{slog.String("phase", p.Phase.String()), slog.Any("errors", p.Errors)}
	case Timeout:
		scope := "attempt"
		if p.Overall {
			scope = "overall"
		}
		return []slog.Attr{slog.Duration("timeout", p.Timeout), slog.String("scope", scope)}
	case Retry:
		return some(slog.String("cause", p.Cause.String()), slog.Duration("delay", p.Delay), errorAttr(p.Err))
	case Block:
		return []slog.Attr{slog.Any("origins", p.Origins), slog.String("policy", p.Policy.String())}
	case Pause:
		return some(slog.Int("iteration", p.Iteration), slog.Duration("delay", p.Delay))
	case Suspension:
		attrs := some(slog.String("token", p.Token))
		if !p.Deadline.IsZero() {
			attrs = append(attrs, slog.Time("deadline", p.Deadline))
		}
		return attrs
	case Answer:
		return some(slog.String("actor", p.Actor), slog.String("comment", p.Comment), slog.String("signal_id", p.ID))
	case Invalidation:
		return append([]slog.Attr{slog.String("reason", p.Reason)}, p.Request.attrs()...)
	case Compensation:
		return append(some(slog.Bool("certain", p.Certain), errorAttr(p.Err), slog.Duration("duration", p.Duration)), p.Request.attrs()...)
	case Completion:
		return some(
			slog.Duration("duration", p.Duration), names("labels", p.Labels), slog.Bool("fallback", p.Fallback),
			slog.Bool("memoized", p.Memoized), p.Hit.attr(), errorAttr(p.Err), slog.Int("input_tokens", p.InputTokens),
			slog.Int("output_tokens", p.OutputTokens), slog.Int("output_bytes", p.Output.Bytes), usageAttr(p.Usage),
		)
	case NodeEnd:
		err := slog.Attr{}
		if p.Err != nil {
			err = slog.String("error", p.message())
		}
		return append(some(
			slog.String("cause", p.Cause.String()), err, names("origins", p.Origins), slog.Duration("duration", p.Duration),
			slog.Bool("abandoned", p.Abandoned), slog.String("no_retry", p.NoRetry.String()),
			slog.Bool("routed_to_end", p.RoutedToEnd), slog.String("original_failed_step", p.OriginalFailedStep), usageAttr(p.Usage),
		), p.Request.attrs()...)
	case Skip:
		return []slog.Attr{slog.String("reason", p.Reason.String())}
	}
	return nil
}

// The function `some` removes empty values: empty texts, zeros and false.
func some(attrs ...slog.Attr) []slog.Attr {
	kept := attrs[:0]
	for _, a := range attrs {
		switch v := a.Value; v.Kind() {
		case slog.KindString:
			if v.String() == "" {
				continue
			}
		case slog.KindBool:
			if !v.Bool() {
				continue
			}
		case slog.KindInt64:
			if v.Int64() == 0 {
				continue
			}
		case slog.KindDuration:
			if v.Duration() == 0 {
				continue
			}
		case slog.KindAny:
			if v.Any() == nil {
				continue
			}
		}
		kept = append(kept, a)
	}
	return kept
}

// The method `attrs` returns the attributes of a request.
func (q Request) attrs() []slog.Attr {
	return some(slog.String("actor", q.Actor), slog.String("request_reason", q.Reason))
}

func names(key string, list []string) slog.Attr {
	if len(list) == 0 {
		return slog.Attr{}
	}
	return slog.Any(key, list)
}

func usageAttr(usage map[string]float64) slog.Attr {
	if len(usage) == 0 {
		return slog.Attr{}
	}
	return slog.Any("usage", usage)
}

func errorAttr(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String("error", messageOf(err))
}

func (h *Hit) attr() slog.Attr {
	if h == nil {
		return slog.Attr{}
	}
	return slog.Group("hit", slog.String("run", h.Run), slog.Time("at", h.At))
}
