package event

import (
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/jsonwrite"
	"github.com/seed-c794f7ef/kahn/machine"
)

// writer writes events as JSON.
type writer struct{ jsonwrite.Writer }

var (
	runStatusNames = enum.Names[machine.RunStatus]()
	causeNames     = enum.Names[machine.CauseKind]()
	upstreamNames  = enum.Names[machine.UpstreamPolicy]()
)

// The method `envelope` writes the part of an event before its payload.
func (w *writer) envelope(e *Event, phase string, wave *int) {
	w.Open()
	if e.ID != 0 {
		w.ID("eventId", e.ID)
		w.ID("sequence", e.ID)
	}
	w.Text("type", string(e.Type))
	w.Text("runId", e.RunID)
	w.TextIf("workflowId", e.Workflow)
	w.Time("timestamp", e.Time.UTC())
	w.Key("correlation")
	w.Open()
	w.TextIf("traceId", e.TraceID)
	if e.Parent != 0 {
		w.ID("parentEventId", e.Parent)
	}
	if wave != nil {
		w.Number("wave", *wave)
	}
	w.TextIf("phase", phase)
	w.Close()
}

// The method `payload` writes the members of a payload, in the order of payloadJSON.
func (w *writer) payload(p *payloadJSON) {
	w.Key("payload")
	w.Open()
	w.TextIf("nodeId", p.Node)
	w.TextIf("path", p.Path)
	if p.Attempt != nil {
		w.Number("attempt", *p.Attempt)
	}
	if p.Tier != nil {
		w.Number("tier", *p.Tier)
	}
	if p.Epoch != 0 {
		w.Number("epoch", p.Epoch)
	}
	if p.Workflow != nil {
		w.Text("workflowId", *p.Workflow)
	}
	if p.TotalNodes != nil {
		w.Number("totalNodes", *p.TotalNodes)
	}
	if p.Mode != nil {
		w.Name("mode", modeNames.Names(), int(*p.Mode), "mode")
	}
	if p.Test != nil {
		w.Is("test", *p.Test)
	}
	w.TextIf("forkedFrom", p.Forked)
	if p.From != nil {
		w.Name("from", runStatusNames, int(*p.From), "run status")
	}
	if p.To != nil {
		w.Name("to", runStatusNames, int(*p.To), "run status")
	}
	if p.Waiting != nil {
		w.List("waiting", *p.Waiting)
	}
	if p.AllWaiting != nil {
		w.Number("totalWaiting", *p.AllWaiting)
	}
	if p.FromEvent != nil {
		w.ID("fromEventId", *p.FromEvent)
	}
	if p.LastEvent != nil {
		w.ID("lastEventId", *p.LastEvent)
	}
	if p.Status != nil {
		w.Name("status", runStatusNames, int(*p.Status), "run status")
	}
	if p.Degraded != nil {
		w.Is("degraded", *p.Degraded)
	}
	if p.ByEnd {
		w.Is("evaluated_by_end_step", true)
	}
	if p.TotalSteps != nil {
		w.Number("total_steps", *p.TotalSteps)
	}
	if p.FailedSteps != nil {
		w.Number("failed_steps_count", *p.FailedSteps)
	}
	if p.Failed != nil {
		w.List("failed", *p.Failed)
	}
	if p.RunTimeout != nil {
		w.Milliseconds("timeoutMs", time.Duration(*p.RunTimeout))
	}
	if p.Cancelling {
		w.Is("cancellation_requested", true)
	}
	if p.Nodes != nil {
		w.List("nodeIds", *p.Nodes)
	}
	if p.Wave != nil {
		w.Number("wave", *p.Wave)
	}
	if p.Cause != 0 {
		w.Name("cause", causeNames, int(p.Cause), "cause")
	}
	if p.Origins != nil {
		w.List("origins", *p.Origins)
	}
	if p.Duration != nil {
		w.Milliseconds("duration_ms", time.Duration(*p.Duration))
	}
	if p.Iteration != nil {
		w.Number("iteration", *p.Iteration)
	}
	if p.DeltaIndex != nil {
		w.Number("deltaIndex", *p.DeltaIndex)
	}
	if p.Text != nil {
		w.Text("text", *p.Text)
	}
	if len(p.Chunk) > 0 {
		w.JSON("chunk", p.Chunk)
	}
	w.TextIf("level", p.Level)
	if p.Message != nil {
		w.Text("message", *p.Message)
	}
	w.TextIf("phase", p.Phase)
	if p.Errors != nil {
		w.List("errors", *p.Errors)
	}
	if p.Timeout != nil {
		w.Milliseconds("timeout_ms", time.Duration(*p.Timeout))
	}
	w.TextIf("scope", p.Scope)
	if p.Delay != nil {
		w.Milliseconds("delay_ms", time.Duration(*p.Delay))
	}
	if p.Error != nil {
		w.Text("error", *p.Error)
	}
	if p.Certain != nil {
		w.Is("certain", *p.Certain)
	}
	if p.Policy != nil {
		w.Name("policy", upstreamNames, int(*p.Policy), "upstream policy")
	}
	if p.Token != nil {
		w.Text("token", *p.Token)
	}
	if len(p.Info) > 0 {
		w.JSON("info", p.Info)
	}
	if p.Deadline != nil {
		w.Time("deadline", *p.Deadline)
	}
	if len(p.Value) > 0 {
		w.JSON("value", p.Value)
	}
	w.TextIf("actor", p.Actor)
	w.TextIf("comment", p.Comment)
	w.TextIf("signal_id", p.SignalID)
	if len(p.Reason) > 0 {
		w.JSON("reason", p.Reason)
	}
	if p.Label != nil {
		w.Text("label", *p.Label)
	}
	if len(p.Labels) > 0 {
		w.List("labels", p.Labels)
	}
	if p.Memoized != nil {
		w.Is("memoized", *p.Memoized)
	}
	if p.Hit != nil {
		w.JSON("hit", p.Hit)
	}
	if p.Fallback != nil {
		w.Is("fallback", *p.Fallback)
	}
	if p.InputTokens != 0 {
		w.Number("input_tokens", p.InputTokens)
	}
	if p.OutputTokens != 0 {
		w.Number("output_tokens", p.OutputTokens)
	}
	if len(p.Usage) > 0 {
		w.JSON("usage", p.Usage)
	}
	w.TextIf("error_code", p.ErrorCode)
	if p.ErrorMessage != nil {
		w.Text("error_message", *p.ErrorMessage)
	}
	if p.Abandoned {
		w.Is("abandoned", true)
	}
	if p.RoutedToEnd {
		w.Is("routed_to_end", true)
	}
	w.TextIf("original_failed_step", p.FirstFailed)
	if len(p.Output) > 0 {
		w.JSON("output", p.Output)
	}
	if len(p.Aggregation) > 0 {
		w.JSON("aggregation_data", p.Aggregation)
	}
	if p.OutputBytes != 0 {
		w.Number("output_bytes", p.OutputBytes)
	}
	if p.OutputError != nil {
		w.Text("output_error", *p.OutputError)
	}
	if p.NoRetry != 0 {
		w.Name("no_retry", noRetryNames.Names(), int(p.NoRetry), "reason for no retry")
	}
	if p.Request != nil {
		w.Key("request")
		w.Open()
		w.TextIf("actor", p.Request.Actor)
		w.TextIf("reason", p.Request.Reason)
		w.Close()
	}
	w.Close()
}
