package event

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/jsonwrite"
	"github.com/seed-c794f7ef/kahn/internal/vary"
	"github.com/seed-c794f7ef/kahn/machine"
)

// written returns a payload as the writer encodes it, and as package json encodes it.
func written(p *payloadJSON) (written, known string, err error) {
	w := writer{jsonwrite.Writer{Data: []byte("{")}}
	w.payload(p)
	data, err := json.Marshal(p)
	if w.Err != nil && err != nil {
		return "", "", err
	}
	return strings.TrimPrefix(string(w.Data), `{"payload":`), string(data), w.Err
}

// TestEventsAreWrittenLikeJSON sets every member of a payload, alone and together with all others, to values of many kinds. It fails if the
// writer omits a member or writes members in another order than package json.
func TestEventsAreWrittenLikeJSON(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeOf(payloadJSON{})
	for variant := range 12 {
		all := reflect.New(typ).Elem()
		for i := range typ.NumField() {
			one := reflect.New(typ).Elem()
			vary.Set(t, one.Field(i), variant, ofEvent)
			all.Field(i).Set(one.Field(i))
			p := one.Addr().Interface().(*payloadJSON)
			got, want, err := written(p)
			require.NoError(t, err, typ.Field(i).Name)
			require.Equal(t, want, got, typ.Field(i).Name)
		}
		got, want, err := written(all.Addr().Interface().(*payloadJSON))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, bad := range []payloadJSON{{Cause: 255}, {NoRetry: noRetryCount}, {Output: json.RawMessage("{")}} {
		_, _, err := written(&bad)
		require.Error(t, err)
	}
}

// ofEvent sets fields whose types occur only in events.
func ofEvent(at any, variant int) bool {
	switch x := at.(type) {
	case *durationJSON:
		*x = durationJSON([]time.Duration{0, 1, -1, math.MaxInt64, math.MinInt64, time.Millisecond, 1500 * time.Microsecond, time.Hour + 1}[variant%8])
	case *machine.CauseKind:
		*x = machine.CauseKind(variant % 2)
	case *modeJSON:
		*x = modeJSON(variant % 2)
	case *machine.RunStatus:
		*x = machine.RunStatus(variant % 2)
	case *machine.UpstreamPolicy:
		*x = machine.UpstreamPolicy(variant % 2)
	case *NoRetry:
		*x = NoRetry(variant % 2)
	default:
		return false
	}
	return true
}

// likeJSON compares the encoding of an event with package encoding/json's encoding of the same fields.
func likeJSON(t *testing.T, e Event) {
	got, err := e.MarshalJSON()
	require.NoError(t, err)
	env := envelopeJSON{
		ID: e.ID, Sequence: e.ID, Type: e.Type, RunID: e.RunID, Workflow: e.Workflow, Time: e.Time.UTC(),
		Correlation: correlationJSON{TraceID: e.TraceID, Parent: e.Parent, Phase: "engine"},
	}
	if e.Type == Heartbeat {
		env.Correlation.Phase = "transport"
	}
	if e.Node != "" {
		env.Correlation.Wave = &e.Tier
	}
	if raw, ok := e.Payload.(json.RawMessage); ok {
		env.Payload = raw
	} else {
		var p payloadJSON
		if e.Node != "" {
			p.Node, p.Path, p.Attempt, p.Tier, p.Epoch = e.Node, e.Path, &e.Attempt, &e.Tier, e.Epoch
		}
		require.NoError(t, p.encode(&e))
		env.Payload, err = json.Marshal(&p)
		require.NoError(t, err)
	}
	want, err := json.Marshal(env)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestEnvelopesAreWrittenLikeJSON(t *testing.T) {
	t.Parallel()
	for i, s := range vary.Texts {
		now := time.Unix(1_700_000_000, int64(i)).In(time.FixedZone("", -7200))
		likeJSON(t, Event{ID: uint64(i), Type: NodeStarted, RunID: s, Workflow: s, TraceID: s, Parent: uint64(i), Node: s, Path: s, Time: now, Attempt: i, Tier: i})
		likeJSON(t, Event{Type: Heartbeat, RunID: s, Payload: Beat{Last: 1}})
		likeJSON(t, Event{Type: NodeLog, Node: s, Payload: LogRecord{Message: s}})
		likeJSON(t, Event{Type: NodeDelta, Node: s, Payload: Delta{Chunk: s}})
		likeJSON(t, Event{Type: NodeDelta, Node: s, Payload: json.RawMessage(`{"x": 1}`)})
	}
	_, err := Event{Type: NodeStarted, Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}.MarshalJSON()
	require.Error(t, err, "a year that RFC 3339 does not have")
}

func FuzzEventsAreWrittenLikeJSON(f *testing.F) {
	for _, s := range vary.Texts {
		f.Add(s, int64(1), uint64(2))
	}
	f.Fuzz(func(t *testing.T, s string, d int64, id uint64) {
		likeJSON(t, Event{
			ID: id, Type: NodeFailed, RunID: s, Workflow: s, Node: s, Path: s, TraceID: s, Time: time.Unix(0, d),
			Payload: NodeEnd{OriginalFailedStep: s, Duration: time.Duration(d), Origins: []string{s, s}, Request: Request{Actor: s}},
		})
		likeJSON(t, Event{ID: id, Type: NodeRetried, Node: s, Payload: Retry{Cause: machine.CauseTimeout, Delay: time.Duration(d)}})
		duration := durationJSON(d)
		got, want, err := written(&payloadJSON{Node: s, Duration: &duration, FromEvent: &id})
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// TestAllocationsOfEncoding: encoding an event without host values allocates little more memory than the encoded bytes need.
func TestAllocationsOfEncoding(t *testing.T) {
	e := Event{
		ID: 7, Type: NodeCompleted, RunID: "0199c2f0-7f5a-7bb1-b7a4-3c6f7e0c5d11", Workflow: "nightly", Node: "fetch", Path: "fetch", Attempt: 1, Parent: 5,
		Time: time.Unix(1_700_000_000, 123_456_789), Payload: Completion{Duration: 1500 * time.Microsecond},
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if _, err := e.MarshalJSON(); err != nil {
			t.Error(err)
		}
	}), 4.0)
}

func BenchmarkEncode(b *testing.B) {
	e := Event{
		ID: 7, Type: NodeCompleted, RunID: "0199c2f0-7f5a-7bb1-b7a4-3c6f7e0c5d11", Workflow: "nightly", Node: "fetch", Path: "fetch", Attempt: 1, Parent: 5,
		Time: time.Unix(1_700_000_000, 123_456_789), Payload: Completion{Duration: 1500 * time.Microsecond},
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = e.MarshalJSON()
	}
}
