package kahn

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var hostile = []string{
	"", "plain", `"quoted" \ back`, "<script>&amp;</script>", "\x00\x01\b\f\n\r\t\x1f\x7f", "é€😀", "\u2028\u2029\ufffd", "\xff\xfe broken \xc3", strings.Repeat("x", 3000),
}

// written is a payload as the jsonWriter writes it, and known as package json does.
func written(p *payloadJSON) (written, known string, err error) {
	w := jsonWriter{data: []byte("{")}
	w.payload(p)
	data, err := json.Marshal(p)
	if w.err != nil && err != nil {
		return "", "", err
	}
	return strings.TrimPrefix(string(w.data), `{"payload":`), string(data), w.err
}

// TestEventsAreWrittenLikeJSON sets every member of a payload, alone and with all others, to values of many kinds: a member that the
// writer forgets, or has in another order, is found here.
func TestEventsAreWrittenLikeJSON(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeOf(payloadJSON{})
	for variant := range 12 {
		all := reflect.New(typ).Elem()
		for i := range typ.NumField() {
			one := reflect.New(typ).Elem()
			vary(t, one.Field(i), variant)
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
	for _, bad := range []payloadJSON{{Cause: causeCount}, {NoRetry: noRetryCount}, {Output: json.RawMessage("{")}} {
		_, _, err := written(&bad)
		require.Error(t, err)
	}
}

// vary sets a value, its exported fields and elements included, to one of many.
func vary(t *testing.T, v reflect.Value, variant int) {
	switch x := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*x = json.RawMessage([]string{`{"a": [1, 2] }`, `"<x>"`, `null`, "1"}[variant%4])
		return
	case *time.Time:
		*x = []time.Time{{}, time.Unix(0, 1).UTC(), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Unix(1e9, 0).In(time.FixedZone("", 3600))}[variant%4]
		return
	case *durationJSON:
		*x = durationJSON([]time.Duration{0, 1, -1, math.MaxInt64, math.MinInt64, time.Millisecond, 1500 * time.Microsecond, time.Hour + 1}[variant%8])
		return
	case *stored:
		*x = stored{raw: json.RawMessage([]string{`{"a": [1, 2] }`, `"<x>"`, `null`, "1"}[variant%4])}
		return
	case *CauseKind, *Mode, *RunStatus, *UpstreamPolicy, *NoRetry, *Status, *SkipKind, *timeoutScope:
		v.SetUint(uint64(variant % 2))
		return
	case *[]nodeState:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		vary(t, v.Elem(), variant)
	case reflect.String:
		v.SetString(hostile[variant%len(hostile)])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, math.MaxInt64}[variant%4])
	case reflect.Int32:
		v.SetInt([]int64{0, 1, -1, math.MaxInt32}[variant%4])
	case reflect.Uint64:
		v.SetUint([]uint64{0, 1, math.MaxUint64}[variant%3])
	case reflect.Bool:
		v.SetBool(variant%2 == 0)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf([][]string{nil, {}, {"a"}, hostile}[variant%4]))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), variant%3, 3))
		for i := range v.Len() {
			vary(t, v.Index(i), variant)
		}
	case reflect.Array:
		vary(t, v.Index(variant%v.Len()), variant)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range hostile[:variant%3] {
			value := reflect.New(v.Type().Elem()).Elem()
			vary(t, value, variant)
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				vary(t, v.Field(i), variant)
			}
		}
	default:
		t.Fatalf("a member of kind %v", v.Kind())
	}
}

// likeJSON compares the encoding of an event with that of package encoding/json for the same fields.
func likeJSON(t *testing.T, e Event) {
	got, err := e.MarshalJSON()
	require.NoError(t, err)
	env := envelopeJSON{
		ID: e.ID, Sequence: e.ID, Type: e.Type, RunID: e.RunID, Workflow: e.Workflow, Time: e.Time.UTC(),
		Correlation: correlationJSON{TraceID: e.TraceID, Parent: e.Parent, Phase: "engine"},
	}
	if e.Type == EventHeartbeat {
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
	for i, s := range hostile {
		now := time.Unix(1_700_000_000, int64(i)).In(time.FixedZone("", -7200))
		likeJSON(t, Event{ID: uint64(i), Type: EventNodeStarted, RunID: s, Workflow: s, TraceID: s, Parent: uint64(i), Node: s, Path: s, Time: now, Attempt: i, Tier: i})
		likeJSON(t, Event{Type: EventHeartbeat, RunID: s, Payload: Heartbeat{Last: 1}})
		likeJSON(t, Event{Type: EventNodeLog, Node: s, Payload: LogRecord{Message: s}})
		likeJSON(t, Event{Type: EventNodeDelta, Node: s, Payload: Delta{Chunk: s}})
		likeJSON(t, Event{Type: EventNodeDelta, Node: s, Payload: json.RawMessage(`{"x": 1}`)})
	}
	_, err := Event{Type: EventNodeStarted, Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}.MarshalJSON()
	require.Error(t, err, "a year that RFC 3339 does not have")
}

func FuzzEventsAreWrittenLikeJSON(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, int64(1), uint64(2))
	}
	f.Fuzz(func(t *testing.T, s string, d int64, id uint64) {
		likeJSON(t, Event{
			ID: id, Type: EventNodeFailed, RunID: s, Workflow: s, Node: s, Path: s, TraceID: s, Time: time.Unix(0, d),
			Payload: NodeEnded{OriginalFailedStep: s, Duration: time.Duration(d), Origins: []string{s, s}, Request: Request{Actor: s}},
		})
		likeJSON(t, Event{ID: id, Type: EventNodeRetried, Node: s, Payload: Retried{Cause: CauseTimeout, Delay: time.Duration(d)}})
		duration := durationJSON(d)
		got, want, err := written(&payloadJSON{Node: s, Duration: &duration, FromEvent: &id})
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// TestAllocationsOfEncoding: an event without values of the host takes its bytes, and little else.
func TestAllocationsOfEncoding(t *testing.T) {
	e := Event{
		ID: 7, Type: EventNodeCompleted, RunID: "0199c2f0-7f5a-7bb1-b7a4-3c6f7e0c5d11", Workflow: "nightly", Node: "fetch", Path: "fetch", Attempt: 1, Parent: 5,
		Time: time.Unix(1_700_000_000, 123_456_789), Payload: NodeCompleted{Duration: 1500 * time.Microsecond},
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if _, err := e.MarshalJSON(); err != nil {
			t.Error(err)
		}
	}), 4.0)
}

func BenchmarkEncode(b *testing.B) {
	e := Event{
		ID: 7, Type: EventNodeCompleted, RunID: "0199c2f0-7f5a-7bb1-b7a4-3c6f7e0c5d11", Workflow: "nightly", Node: "fetch", Path: "fetch", Attempt: 1, Parent: 5,
		Time: time.Unix(1_700_000_000, 123_456_789), Payload: NodeCompleted{Duration: 1500 * time.Microsecond},
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = e.MarshalJSON()
	}
}
