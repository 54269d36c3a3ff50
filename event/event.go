// Package event defines the events of a run. A sink is a function that kahn calls with each event:
//
//	kahn.Execute(ctx, g, step, kahn.OnEvent(func(e event.Event) {
//		switch p := e.Payload.(type) {
//		case event.Retry:
//			log.Printf("%s: attempt %d has failed, the next one follows in %v", e.Path, e.Attempt, p.Delay)
//		case event.RunEnd:
//			log.Printf("%v in %v", p.Status, p.Duration)
//		}
//	}))
//
// The option kahn.OnEvent adds a sink to a run. With Run.Events of package kahn, a program reads the past events and waits for later ones. Each
// constant of [Type], such as [NodeRetried], says what happened. Each payload has a Go type with a noun as its name, such as [Retry]. Events of
// different Types may have payloads of the same Go type.
//
// The names by task:
//
//   - An event: [Event], [Type], [ExecutionTag], [TraceID]; for package log/slog, [LogTo].
//   - Payloads of the run: [Start], [StatusChange], [Recovery], [RunEnd], [Wave], [Beat].
//   - Payloads of attempts: [Delta], [LogRecord], [Breach], [Refusal], [Timeout], [Retry], [Pause], [Suspension], [Answer].
//   - Payloads of nodes: [Block], [Completion] with [Output] and [Hit], [NodeEnd], [Skip], [Invalidation], [Compensation].
//   - Reasons: [SkipReason], [NoRetry], [Phase], [Request], [NodeError].
//   - Readers: [GapError], [ErrNoLog].
package event

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Event reports one fact about a run. The events of a run have one total order: run.started is the first, and the event that ends the run is the
// last. The events of a node are in the order in which they happened. If the end of a node leads to events of other nodes, the end comes first.
//
// In JSON an event is an envelope with the keys eventId, sequence, type, runId, workflowId, timestamp, correlation and payload. The file schema.json
// of this package describes the envelope.
type Event struct {
	ID       uint64 // 1, 2, 3, ... without gaps; 0 for a heartbeat, which is not kept
	Type     Type
	RunID    string
	Workflow string // the graph's Name
	Time     time.Time
	// TraceID is the same for all events of a run, see kahn.TraceID.
	TraceID string
	// Parent is the id of the event that led to this one, or 0. For the first event of a node in an epoch, the parent is the start of the node's wave,
	// the end of the predecessor that decided the node's join, or the start of the run or of the composite around the node. For a later event of the
	// node, the parent is the node's previous event, not counting deltas, logs and compensations. If the node was stopped because of another node, the
	// parent of the node's end may be an event of that other node. The parent may come from an earlier process that performed the run.
	Parent uint64
	// Node, Path, Attempt, Tier and Epoch are set in the events of nodes. Outside composites, Path is the node's id. Inside a composite, Path begins
	// with the path of the composite: "S/x" is node x of sub-graph S, "M[2]" the third item of map M, and "L#1/x" node x in the first iteration of loop
	// L. Epoch is 1 before the first redrive, and grows by one with each redrive.
	Node    string
	Path    string
	Attempt int
	Tier    int
	Epoch   int
	// The comment of each [Type] constant names the Go type of the Payload; "none" means that the Payload is nil. If a decoded event has an unknown
	// Type, its Payload is a json.RawMessage.
	Payload any
}

// String renders the event as one line without its time, for logs and tests. It shows only the length of an output. It shows a user value as text,
// shortened to about a kilobyte, if the value is a text, a number, a boolean, an error or a fmt.Stringer. It shows only the type of any other user
// value.
func (e Event) String() string {
	text := fmt.Sprintf("%d %s", e.ID, e.Type)
	if e.Node != "" {
		text += " " + e.Path
	}
	if e.Attempt > 1 {
		text += fmt.Sprintf(" #%d", e.Attempt)
	}
	payload := e.Payload
	switch p := payload.(type) { // a user value may contain itself, and package fmt would then not return
	case nil:
		return text
	case Delta:
		if p.Chunk != nil {
			p.Chunk = foreign.ValueText(p.Chunk)
		}
		payload = p
	case Suspension:
		if p.Info != nil {
			p.Info = foreign.ValueText(p.Info)
		}
		payload = p
	case Completion:
		p.Output.Value = nil // Bytes holds the length of the value
		payload = p
	case RunEnd:
		p.Aggregation.Value = nil
		payload = p
	case Answer:
		if p.Value != nil {
			p.Value = foreign.ValueText(p.Value)
		}
		payload = p
	}
	return text + fmt.Sprintf(" %+v", payload)
}
