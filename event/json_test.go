package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// exampleEvents returns the example events, one per line of the file.
func exampleEvents(t testing.TB) [][]byte {
	t.Helper()
	data, err := os.ReadFile("testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(data), []byte("\n"))
}

// declaredTypes returns the event types that type.go declares, with the payload types in their comments.
func declaredTypes(t testing.TB) map[event.Type]string {
	t.Helper()
	file, err := goparser.ParseFile(token.NewFileSet(), "type.go", nil, goparser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	types := map[event.Type]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 {
			if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Type" {
				name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				payload, _, _ := strings.Cut(strings.TrimSpace(spec.Comment.Text()), ";")
				types[event.Type(name)] = payload
			}
		}
		return true
	})
	return types
}

// TestEventExamples: every event type has an example. The example decodes into the payload type that the comment of the constant names, and
// encodes to the same text.
func TestEventExamples(t *testing.T) {
	missing := declaredTypes(t)
	if len(missing) < 20 {
		t.Fatalf("%d types of event are declared", len(missing))
	}
	payloads := declaredTypes(t)
	for _, line := range exampleEvents(t) {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		delete(missing, e.Type)
		got := "none"
		if e.Payload != nil {
			got = reflect.TypeOf(e.Payload).Name()
		}
		if want, ok := payloads[e.Type]; !ok || got != want {
			t.Errorf("%s has a payload %s, its constant says %q", e.Type, got, want)
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !reflect.DeepEqual(decoded(t, line), decoded(t, again)) {
			t.Errorf("%s\nbecame\n%s", line, again)
		}
	}
	for missing := range missing {
		t.Errorf("no example of %s", missing)
	}
}

func decoded(t testing.TB, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

// TestEventDecoding checks each field of the decoded examples, for the types with the most fields.
func TestEventDecoding(t *testing.T) {
	examples := map[event.Type]event.Event{}
	for _, line := range exampleEvents(t) {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		examples[e.Type] = e
	}
	e := examples[event.NodeAborted]
	if e.ID != 13 || e.RunID != "018f3c1e-7a2b-7c3d-8e4f-5a6b7c8d9e0f" || e.Workflow != "order" || e.TraceID != "018f3c1e7a2b7c3d8e4f5a6b7c8d9e0f" ||
		e.Parent != 12 || e.Node != "ship" || e.Path != "ship" || e.Attempt != 0 || e.Tier != 1 || e.Epoch != 1 ||
		!e.Time.Equal(time.Date(2026, 1, 2, 3, 4, 6, 3e8, time.UTC)) {
		t.Errorf("the envelope is %#v", e)
	}
	for kind, want := range map[event.Type]any{
		event.RunStarted:   event.Start{TotalNodes: 9, Waves: true, Test: true, Forked: "order-16"},
		event.NodeSkipped:  event.Skip{Reason: event.SkipReason{Kind: machine.SkipConditionBranch, Node: "paid?", Label: "false", Answer: "true"}},
		event.NodeTimedOut: event.Timeout{Timeout: 500 * time.Millisecond},
		event.NodeRetried: event.Retry{
			Cause: machine.CauseContractOutput, Delay: 500 * time.Millisecond, Err: errors.New("output_contract_violation: /amount: missing"),
		},
		event.NodeFailed: event.NodeEnd{
			Cause: machine.CauseTimeout, Origins: []string{}, Err: errors.New("timed out after 500ms"), Duration: 1299999 * time.Microsecond, NoRetry: event.NoRetryAttempts,
			RoutedToEnd: true, OriginalFailedStep: "pay",
		},
		event.NodeCompleted: event.Completion{
			Duration: 20 * time.Millisecond, Labels: []string{"many"}, Fallback: true, Err: errors.New("no stock"), InputTokens: 12, OutputTokens: 34,
			Output: event.Output{Value: json.RawMessage(`{"$type":"int","value":7}`), Bytes: 25},
		},
		event.RunFailed: event.RunEnd{
			Status: machine.RunFailed, Cause: machine.CauseFailFast, TotalSteps: 8, FailedSteps: 2, Failed: []string{"pay", "ship"}, Duration: 26 * time.Second,
			Aggregation: event.Output{Bytes: 123456},
		},
		event.NodeSuspended: event.Suspension{
			Token: "approve", Info: map[string]any{"ask": "Ship it?"}, Deadline: time.Date(2026, 1, 3, 3, 4, 7, 0, time.UTC),
		},
		event.NodeSignalled: event.Answer{Value: map[string]any{"branch": "approved"}, Actor: "ann@example.com", Comment: "Looks good.", ID: "7"},
		event.RunTimedOut: event.RunEnd{
			Status: machine.RunFailed, Cause: machine.CauseRunTimeout, TotalSteps: 8, Failed: []string{}, Duration: 26 * time.Second,
			Timeout: 25999500 * time.Microsecond,
		},
		event.Heartbeat: event.Beat{Last: 24},
	} {
		got := examples[kind].Payload
		if got, want := fmt.Sprintf("%T %+v", got, got), fmt.Sprintf("%T %+v", want, want); got != want {
			t.Errorf("%s: %s, expected %s", kind, got, want)
		}
	}
}

// TestSkipReasonJSON: every skip reason is encoded with exactly the members of its kind.
func TestSkipReasonJSON(t *testing.T) {
	for _, row := range []struct {
		reason event.SkipReason
		json   string
	}{
		{event.SkipReason{Kind: machine.SkipAnnotation}, `{"kind":"annotation"}`},
		{event.SkipReason{Kind: machine.SkipWhenGuard, Expression: "a > b"}, `{"kind":"when_guard","expression":"a \u003e b"}`},
		{event.SkipReason{Kind: machine.SkipConditionBranch, Node: "c", Label: "no", Answer: "yes"}, `{"kind":"condition_branch","conditionNodeId":"c","label":"no","answer":"yes"}`},
		{event.SkipReason{Kind: machine.SkipConditionBranch, Node: "c"}, `{"kind":"condition_branch","conditionNodeId":"c","label":"","answer":""}`},
		{event.SkipReason{Kind: machine.SkipNullPropagation, Node: "a", Port: "rows"}, `{"kind":"null_propagation","sourceNodeId":"a","portId":"rows"}`},
		{event.SkipReason{Kind: machine.SkipNullPropagation, Port: "rows"}, `{"kind":"null_propagation","sourceNodeId":"","portId":"rows"}`},
		{event.SkipReason{Kind: machine.SkipUpstreamSkipped, Node: "a"}, `{"kind":"upstream_skipped","sourceNodeId":"a"}`},
		{event.SkipReason{Kind: machine.SkipParentFailure, Node: "a"}, `{"kind":"parent_failure","sourceNodeId":"a"}`},
		{event.SkipReason{Kind: machine.SkipRuleUnsatisfied, Rule: "one_failed"}, `{"kind":"rule_unsatisfied","rule":"one_failed"}`},
		{event.SkipReason{Kind: machine.SkipSelf, Message: "done already"}, `{"kind":"self","message":"done already"}`},
		{event.SkipReason{Kind: machine.SkipSuperseded, Node: "join"}, `{"kind":"superseded","by":"join"}`},
	} {
		data, err := json.Marshal(row.reason)
		if err != nil || !reflect.DeepEqual(decoded(t, data), decoded(t, []byte(row.json))) {
			t.Errorf("%s, %v; expected %s", data, err, row.json)
		}
		var again event.SkipReason
		if err := json.Unmarshal([]byte(row.json), &again); err != nil || again != row.reason {
			t.Errorf("%s: %#v, %v", row.json, again, err)
		}
	}
	var r event.SkipReason
	if err := json.Unmarshal([]byte(`{"kind":"whim"}`), &r); !errors.Is(err, machine.ErrBadValue) {
		t.Errorf("an unknown kind: %v", err)
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("MarshalJSON") }
func (panics) Error() string                { panic("Error") }

// TestEventsOfForeignMatter: an event can be encoded with any values and errors of user code.
func TestEventsOfForeignMatter(t *testing.T) {
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	for _, chunk := range []any{cyclic, panics{}, math.NaN(), make(chan int), func() {}, nil, "\xff", []byte("bytes"), 1 << 60} {
		for _, payload := range []any{event.Delta{Index: 1, Chunk: chunk}, event.Suspension{Info: chunk}, event.Answer{Value: chunk}} {
			e := event.Event{ID: 1, Type: event.NodeDelta, Node: "A", Path: "A", Payload: payload}
			data, err := json.Marshal(e)
			if err != nil {
				t.Errorf("%T: %v", chunk, err)
				continue
			}
			var again event.Event
			if err := json.Unmarshal(data, &again); err != nil {
				t.Errorf("%T: %s: %v", chunk, data, err)
			}
		}
	}
	big := errors.New(strings.Repeat("x", 1<<20))
	for _, err := range []error{panics{}, (*panics)(nil), big, &event.NodeError{Err: big}, &event.NodeError{}} {
		for _, payload := range []any{event.NodeEnd{Err: err}, event.Retry{Err: err}, event.Completion{Err: err}} {
			data, problem := json.Marshal(event.Event{ID: 1, Type: event.NodeFailed, Node: "A", Payload: payload})
			if problem != nil || len(data) > 2000 {
				t.Errorf("%T in %T: %d bytes, %v", err, payload, len(data), problem)
			}
		}
	}
}

// TestUnknownEvents: an event of an unknown type is passed on unchanged.
func TestUnknownEvents(t *testing.T) {
	const line = `{"eventId":7,"sequence":7,"type":"node.teleported","runId":"r","timestamp":"2026-01-02T03:04:05Z",` +
		`"correlation":{"traceId":"t","parentEventId":6,"wave":2,"phase":"engine"},` +
		`"payload":{"nodeId":"A","path":"S/A","attempt":3,"tier":2,"epoch":1,"to":["Mars"]}}`
	var e event.Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatal(err)
	}
	if _, raw := e.Payload.(json.RawMessage); !raw || e.ID != 7 || e.Parent != 6 || e.Node != "A" || e.Path != "S/A" || e.Attempt != 3 || e.Tier != 2 || e.Epoch != 1 {
		t.Errorf("%#v", e)
	}
	again, err := json.Marshal(e)
	if err != nil || !reflect.DeepEqual(decoded(t, again), decoded(t, []byte(line))) {
		t.Errorf("%s, %v", again, err)
	}
	for _, bad := range []string{
		`[]`, `{"type":"run.started","payload":[]}`, `{"type":"run.started","payload":{"mode":"wild"}}`,
		`{"type":"node.retried","payload":{"delay_ms":1e300}}`, `{"type":"node.skipped","payload":{"reason":{"kind":"whim"}}}`,
		`{"type":"node.log","payload":{"level":"shout"}}`, `{"type":"node.invalidated","payload":{"reason":{}}}`,
	} {
		if err := json.Unmarshal([]byte(bad), &e); err == nil {
			t.Errorf("%s was accepted as %v", bad, e)
		}
	}
	if _, err := json.Marshal(event.Event{Payload: 42}); !errors.Is(err, machine.ErrBadValue) {
		t.Errorf("a payload of no event: %v", err)
	}
}

// TestEventsWithHostileValues: values that steps emit may contain themselves, or be nested deeper than package json can read.
func TestEventsWithHostileValues(t *testing.T) {
	self, list, deep := map[string]any{}, []any{nil}, any("bottom")
	self["self"], list[0] = self, list
	for range 10_000 {
		deep = []any{deep}
	}
	for text, v := range map[string]any{"<map[string]interface {}>": self, "<[]interface {}>": list, "<func()>": func() {}} {
		for _, e := range []event.Event{
			{ID: 1, Type: event.NodeDelta, Node: "a", Path: "a", Payload: event.Delta{Index: 1, Chunk: v}},
			{ID: 1, Type: event.NodeSuspended, Node: "a", Path: "a", Payload: event.Suspension{Info: v}},
			{ID: 1, Type: event.NodeSignalled, Node: "a", Path: "a", Payload: event.Answer{Value: v}},
		} {
			if got := e.String(); !strings.Contains(got, text) {
				t.Errorf("%q does not name %s", got, text)
			}
			data, err := json.Marshal(e)
			if shown, _ := json.Marshal(text); err != nil || !bytes.Contains(data, shown) {
				t.Errorf("%s: %v, expected %s", data, err, text)
			}
		}
	}
	for levels := range 5 { // each round removes one level; one of the rounds has the greatest depth that an event allows
		data, err := json.Marshal(event.Event{Type: event.NodeDelta, Node: "a", Payload: event.Delta{Chunk: deep}})
		if err != nil || !json.Valid(data) {
			t.Errorf("%d levels less: %v", levels, err)
		}
		deep = deep.([]any)[0]
	}
}

func FuzzEventJSON(f *testing.F) {
	for _, line := range exampleEvents(f) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e, again event.Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		first, err := json.Marshal(e)
		if err != nil {
			return // RFC 3339 cannot express the year
		}
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s\nbecame\n%s, %v", first, second, err)
		}
	})
}

// TestEngineNames: EngineName returns names that engines use for their own events.
func TestEngineNames(t *testing.T) {
	produced := map[string]event.Type{}
	for kind := range declaredTypes(t) {
		name := kind.EngineName()
		if name == string(kind) && kind != event.Heartbeat || strings.Contains(name, ".") {
			t.Errorf("%s has no engine-side name: %s", kind, name)
		}
		if produced[name] != "" {
			t.Errorf("%s is both %s and %s", name, kind, produced[name])
		}
		produced[name] = kind
		for _, text := range []string{name, string(kind)} {
			if got, ok := event.ParseType(text); !ok || got != kind {
				t.Errorf("%s is read as %s, %v", text, got, ok)
			}
		}
	}
	for name, kind := range map[string]event.Type{
		"execution_complete": event.RunCompleted, "workflow_completed": event.RunCompleted, "playbook_completed": event.RunCompleted,
		"workflow_failed": event.RunFailed, "playbook_failed": event.RunFailed, "tier_start": event.WaveStarted,
		"tier_complete": event.WaveCompleted, "node_start": event.NodeStarted, "node_started": event.NodeStarted,
		"step_started": event.NodeStarted, "partial": event.NodeDelta, "node_retry": event.NodeRetried,
		"node_retried": event.NodeRetried, "node_complete": event.NodeCompleted, "node_completed": event.NodeCompleted,
		"step.exit": event.NodeCompleted, "node_failed": event.NodeFailed, "step_failed": event.NodeFailed,
		"node_cancelled": event.NodeCancelled, "node_skipped": event.NodeSkipped, "timed_out": event.NodeTimedOut,
		"node_waiting": event.NodeSuspended, "node_signalled": event.NodeSignalled, "node_mocked": event.NodeMocked,
		"moderation_flagged": event.ModerationFlagged, "contract_violated": event.ContractViolated,
	} {
		if got, ok := event.ParseType(name); !ok || got != kind {
			t.Errorf("%s is read as %q, expected %s", name, got, kind)
		}
	}
	if got, ok := event.ParseType("node_teleported"); ok || event.Type("x").EngineName() != "x" {
		t.Errorf("an unknown name is read as %s", got)
	}
}

// TestExecutionTags: the tags match the table execution_tags, with the documented metadata.
func TestExecutionTags(t *testing.T) {
	want := map[string]string{
		"node.queued":        `node_queued {"attempt":1,"wave":0}`,
		"node.started":       `node_started {"attempt":1,"wave":0}`,
		"node.retried":       `node_retried {"attempt":1,"cause":"contract_violated","delay_ms":500}`,
		"moderation.flagged": `moderation_flagged {"errors":["violence"],"phase":"input"}`,
		"contract.violated":  `contract_violated {"errors":["/amount: missing"],"phase":"output"}`,
		"node.timed_out":     `timed_out {"timeout_ms":500}`,
		"node.failed":        `node_failed {"error_code":"timeout","error_message":"timed out after 500ms"}`,
		"node.completed":     `node_completed {"duration_ms":20,"input_tokens":12,"output_tokens":34}`,
		"node.cancelled":     `node_cancelled {}`,
		"node.aborted":       `node_cancelled {}`,
		"node.blocked":       `node_blocked {"origins":["pay"],"policy":"abort"}`,
		"node.skipped":       `node_skipped {"answer":"true","label":"false","node":"paid?","reason":"condition_branch"}`,
		"node.suspended":     `node_suspended {"deadline":"2026-01-03T03:04:07Z","token":"approve"}`,
	}
	var nodes []string
	for _, line := range exampleEvents(t) {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		tag, ok := e.ExecutionTag()
		if !ok {
			if want[string(e.Type)] != "" {
				t.Errorf("%s has no tag", e.Type)
			}
			continue
		}
		metadata, err := json.Marshal(tag.Metadata)
		if got := tag.Tag + " " + string(metadata); got != want[string(e.Type)] || err != nil {
			t.Errorf("%s: %s, expected %s", e.Type, got, want[string(e.Type)])
		}
		if tag.RunID != e.RunID || tag.Node != e.Node {
			t.Errorf("%s: the tag is of %s in %s", e.Type, tag.Node, tag.RunID)
		}
		nodes = append(nodes, string(e.Type))
	}
	if slices.Sort(nodes); len(nodes) != len(want) {
		t.Errorf("tags for %v", nodes)
	}
}
