package kahn

import "time"

// envelope writes an event up to its payload.
func (w *jsonWriter) envelope(e *Event, phase string, wave *int) {
	w.open()
	if e.ID != 0 {
		w.id("eventId", e.ID)
		w.id("sequence", e.ID)
	}
	w.text("type", string(e.Type))
	w.text("runId", e.RunID)
	w.textIf("workflowId", e.Workflow)
	w.time("timestamp", e.Time.UTC())
	w.key("correlation")
	w.open()
	w.textIf("traceId", e.TraceID)
	if e.Parent != 0 {
		w.id("parentEventId", e.Parent)
	}
	if wave != nil {
		w.number("wave", *wave)
	}
	w.textIf("phase", phase)
	w.close()
}

// payload writes the members of a payload, in the order of payloadJSON.
func (w *jsonWriter) payload(p *payloadJSON) {
	w.key("payload")
	w.open()
	w.textIf("nodeId", p.Node)
	w.textIf("path", p.Path)
	if p.Attempt != nil {
		w.number("attempt", *p.Attempt)
	}
	if p.Tier != nil {
		w.number("tier", *p.Tier)
	}
	if p.Epoch != 0 {
		w.number("epoch", p.Epoch)
	}
	if p.Workflow != nil {
		w.text("workflowId", *p.Workflow)
	}
	if p.TotalNodes != nil {
		w.number("totalNodes", *p.TotalNodes)
	}
	if p.Mode != nil {
		w.name("mode", modeNames[:], int(*p.Mode), "mode")
	}
	if p.Test != nil {
		w.is("test", *p.Test)
	}
	if p.From != nil {
		w.name("from", runStatusNames, int(*p.From), "run status")
	}
	if p.To != nil {
		w.name("to", runStatusNames, int(*p.To), "run status")
	}
	if p.Waiting != nil {
		w.list("waiting", *p.Waiting)
	}
	if p.AllWaiting != nil {
		w.number("totalWaiting", *p.AllWaiting)
	}
	if p.FromEvent != nil {
		w.id("fromEventId", *p.FromEvent)
	}
	if p.LastEvent != nil {
		w.id("lastEventId", *p.LastEvent)
	}
	if p.Status != nil {
		w.name("status", runStatusNames, int(*p.Status), "run status")
	}
	if p.Degraded != nil {
		w.is("degraded", *p.Degraded)
	}
	if p.ByEnd {
		w.is("evaluated_by_end_step", true)
	}
	if p.TotalSteps != nil {
		w.number("total_steps", *p.TotalSteps)
	}
	if p.FailedSteps != nil {
		w.number("failed_steps_count", *p.FailedSteps)
	}
	if p.Failed != nil {
		w.list("failed", *p.Failed)
	}
	if p.RunTimeout != nil {
		w.milliseconds("timeoutMs", time.Duration(*p.RunTimeout))
	}
	if p.Cancelling {
		w.is("cancellation_requested", true)
	}
	if p.Nodes != nil {
		w.list("nodeIds", *p.Nodes)
	}
	if p.Wave != nil {
		w.number("wave", *p.Wave)
	}
	if p.Cause != 0 {
		w.name("cause", causeNames, int(p.Cause), "cause")
	}
	if p.Origins != nil {
		w.list("origins", *p.Origins)
	}
	if p.Duration != nil {
		w.milliseconds("duration_ms", time.Duration(*p.Duration))
	}
	if p.Iteration != nil {
		w.number("iteration", *p.Iteration)
	}
	if p.DeltaIndex != nil {
		w.number("deltaIndex", *p.DeltaIndex)
	}
	if p.Text != nil {
		w.text("text", *p.Text)
	}
	if len(p.Chunk) > 0 {
		w.json("chunk", p.Chunk)
	}
	w.textIf("level", p.Level)
	if p.Message != nil {
		w.text("message", *p.Message)
	}
	w.textIf("phase", p.Phase)
	if p.Errors != nil {
		w.list("errors", *p.Errors)
	}
	if p.Timeout != nil {
		w.milliseconds("timeout_ms", time.Duration(*p.Timeout))
	}
	w.textIf("scope", p.Scope)
	if p.Delay != nil {
		w.milliseconds("delay_ms", time.Duration(*p.Delay))
	}
	if p.Error != nil {
		w.text("error", *p.Error)
	}
	if p.Policy != nil {
		w.name("policy", upstreamNames, int(*p.Policy), "upstream policy")
	}
	if p.Token != nil {
		w.text("token", *p.Token)
	}
	if len(p.Info) > 0 {
		w.json("info", p.Info)
	}
	if p.Deadline != nil {
		w.time("deadline", *p.Deadline)
	}
	if len(p.Value) > 0 {
		w.json("value", p.Value)
	}
	w.textIf("actor", p.Actor)
	w.textIf("comment", p.Comment)
	if len(p.Reason) > 0 {
		w.json("reason", p.Reason)
	}
	if p.Label != nil {
		w.text("label", *p.Label)
	}
	if len(p.Labels) > 0 {
		w.list("labels", p.Labels)
	}
	if p.Memoized != nil {
		w.is("memoized", *p.Memoized)
	}
	if p.Fallback != nil {
		w.is("fallback", *p.Fallback)
	}
	if p.InputTokens != 0 {
		w.number("input_tokens", p.InputTokens)
	}
	if p.OutputTokens != 0 {
		w.number("output_tokens", p.OutputTokens)
	}
	w.textIf("error_code", p.ErrorCode)
	if p.ErrorMessage != nil {
		w.text("error_message", *p.ErrorMessage)
	}
	if p.Abandoned {
		w.is("abandoned", true)
	}
	if p.RoutedToEnd {
		w.is("routed_to_end", true)
	}
	w.textIf("original_failed_step", p.FirstFailed)
	if len(p.Output) > 0 {
		w.json("output", p.Output)
	}
	if len(p.Aggregation) > 0 {
		w.json("aggregation_data", p.Aggregation)
	}
	if p.OutputBytes != 0 {
		w.number("output_bytes", p.OutputBytes)
	}
	if p.OutputError != nil {
		w.text("output_error", *p.OutputError)
	}
	if p.NoRetry != 0 {
		w.name("no_retry", noRetryNames[:], int(p.NoRetry), "reason for no retry")
	}
	if p.Request != nil {
		w.key("request")
		w.open()
		w.textIf("actor", p.Request.Actor)
		w.textIf("reason", p.Request.Reason)
		w.close()
	}
	w.close()
}
