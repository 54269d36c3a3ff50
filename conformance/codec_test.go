package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

type order struct {
	ID    int64    `json:"id"`
	Lines []string `json:"lines"`
}

func TestTypesGiveBackWhatWasWritten(t *testing.T) {
	types := kahn.Types{"order": order{}, "orderRef": (*order)(nil)}
	self := map[string]any{}
	self["me"] = self
	for _, v := range []any{
		nil, true, "text", "", "\xff\x00", 1.5, math.Inf(-1), 7, int8(-3), int64(math.MaxInt64), uint64(math.MaxUint64), float32(0.1),
		float32(math.Inf(1)), []byte{0, 255}, []byte(nil), json.Number("12345678901234567890.10"), json.RawMessage(`{"a":1}`), time.Minute,
		time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), []any{}, []any(nil), map[string]any{}, map[string]any(nil),
		map[string]any{"a": 1, "b": []any{2.5, nil, int64(3)}, "c": map[string]any{"$type": "int", "value": "no"}},
		map[string]any{"$Type": "int", "value": 5.0}, map[string]any{"$TYPE": 5.0}, []any{map[string]any{"$Type": nil}, map[string]any{"$type": nil}},
		map[string]any{"$type": "int", "$Type": "string", "value": 5.0, "Value": "x"}, map[string]any{"$type": 5.0},
		[]string{"a", "\xfe", ""}, []string(nil), []int{1, 2}, []float64{1, math.MaxFloat64, math.Inf(1)}, map[string]string{"k": "v"},
		map[string]int{"k": 1 << 60}, [][]int{{1}, nil, {}}, []map[string]any{{"x": 1}, nil}, map[string][]order{"k": {{ID: 9}}},
		kahn.Outputs{"output": 3, "more": []string{"x"}}, kahn.EndVerdict{Status: kahn.RunFailed, Output: []int{1}},
		order{7, []string{"a"}}, &order{ID: 1 << 62}, []order{{ID: 1}}, []*order{{ID: 2}, nil}, []float32{1, 2.5}, []bool{true},
	} {
		data, err := types.Encode(v)
		if err != nil {
			t.Errorf("%#v: %v", v, err)
			continue
		}
		if !json.Valid(data) {
			t.Errorf("%#v: %s", v, data)
		}
		back, err := types.Decode(data)
		if err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%#v became %#v, %v, by way of %s", v, back, err, data)
		}
	}
	for _, v := range []any{
		struct{}{}, make(chan int), func() {}, self, map[int]string{1: "a"}, [2]int{}, map[string]any{"\xff": 1},
		[]any{order{}, func() {}}, new(int), time.UTC,
	} {
		if data, err := types.Encode(v); !errors.Is(err, kahn.ErrNotEncodable) {
			t.Errorf("%T: %s, %v", v, data, err)
		}
	}
	type loop struct{ Next *loop } // may be registered, but package json cannot encode it
	circle := new(loop)
	circle.Next = circle
	if data, err := (kahn.Types{"loop": circle}).Encode([]any{circle}); !errors.Is(err, kahn.ErrNotEncodable) {
		t.Errorf("a circle: %s, %v", data, err)
	}
	if _, err := (kahn.Types)(nil).Encode(order{}); !errors.Is(err, kahn.ErrNotEncodable) {
		t.Error(err)
	}
}

func TestTypesKeepErrors(t *testing.T) {
	own := &kahn.NodeError{Node: "A", Attempt: 2, Kind: kahn.CauseTimeout, Err: fmt.Errorf("slow: %w", context.DeadlineExceeded)}
	for _, err := range []error{errors.New("plain"), own, &kahn.UpstreamError{Node: "B", Kind: kahn.CauseUpstreamFailure, Origins: []string{"A"}},
		fmt.Errorf("wrapped: %w", kahn.ErrTimeout)} {
		data, e := (kahn.Types{}).Encode([]any{err})
		if e != nil {
			t.Fatal(e)
		}
		list, e := (kahn.Types{}).Decode(data)
		if e != nil {
			t.Fatal(e)
		}
		back, ok := list.([]any)[0].(error)
		if !ok || back.Error() != err.Error() || errors.Is(back, context.DeadlineExceeded) != errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v became %v by way of %s", err, back, data)
		}
		var node *kahn.NodeError
		if err == own && (!errors.As(back, &node) || node.Attempt != 2 || node.Kind != kahn.CauseTimeout) {
			t.Errorf("%v became %#v", err, back)
		}
	}
}

func TestTypesRefuseWhatTheyDoNotKnow(t *testing.T) {
	for _, text := range []string{
		``, `{`, `[1,`, `{"$type":"order","value":{}}`, `{"$type":"int","value":1.5}`, `{"$type":"int8","value":300}`,
		`{"$type":"[]int","value":{"a":1}}`, `{"$type":"[]int","value":["x"]}`, `{"$type":"string","value":"%%"}`, `{"$type":7}`,
		`{"$type":"int"}`, `{"$type":"float64","value":"x"}`, `{"$type":"verdict","value":{"status":"so so"}}`, `nul`,
		`{"$type":"[]string","value":[1]}`, strings.Repeat("[", 1100) + strings.Repeat("]", 1100),
	} {
		if v, err := (kahn.Types{}).Decode(json.RawMessage(text)); !errors.Is(err, kahn.ErrBadValue) {
			t.Errorf("%s: %#v, %v", text, v, err)
		}
	}
}

func FuzzTypes(f *testing.F) {
	for _, text := range []string{`{"$type":"map[string][]int","value":{"a":[1,2]}}`, `[1,{"a":null}]`, `{"$type":"outputs","value":{"x":1}}`} {
		f.Add([]byte(text))
	}
	types := kahn.Types{"order": order{}}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := types.Decode(data)
		if err != nil {
			return
		}
		again, err := types.Encode(v)
		if err != nil {
			t.Fatalf("%s decodes to %#v: %v", data, v, err)
		}
		twin, _ := types.Decode(data)
		holdsNaN := !reflect.DeepEqual(twin, v) // NaN is not equal to itself
		if back, err := types.Decode(again); err != nil || !holdsNaN && !reflect.DeepEqual(back, v) {
			t.Fatalf("%#v became %#v, %v", v, back, err)
		}
	})
}

// The Types option sets the codec of a run that has no other codec. Types encodes only registered types.
func TestTypesAsOption(t *testing.T) {
	type private struct{ N int }
	types := kahn.Types{"private": private{}}
	graph := func(out any) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) { return out, nil }})
	}
	ctx := context.Background()
	encode := func(out any, opts ...kahn.Option) (string, error) {
		res, err := kahn.Execute(ctx, graph(out), nil, opts...)
		if err != nil {
			return "", err
		}
		data, err := json.Marshal(res.Snapshot())
		return string(data), err
	}
	if data, err := encode(private{7}, types); err != nil || !strings.Contains(data, `{"$type":"private","value":{"N":7}}`) {
		t.Errorf("%s, %v", data, err)
	}
	if _, err := encode(private{7}, kahn.Types(nil)); !errors.Is(err, kahn.ErrNotEncodable) {
		t.Errorf("%v", err)
	}
	for _, opts := range [][]kahn.Option{
		{types, kahn.Encoding(kahn.Types{"other": private{}})},
		{kahn.Encoding(kahn.Types{"other": private{}}), types},
	} {
		if data, err := encode(private{7}, opts...); err != nil || !strings.Contains(data, `"other"`) {
			t.Errorf("%s, %v", data, err)
		}
	}
	if _, err := kahn.Execute(ctx, graph(func() {}), nil, types); err != nil {
		t.Errorf("an output that nobody wants as JSON: %v", err)
	}
	if _, err := kahn.Execute(ctx, graph(func() {}), nil, kahn.Encoding(types)); !errors.Is(err, kahn.ErrNotEncodable) {
		t.Errorf("%v", err)
	}
	if _, err := kahn.Execute(ctx, graph(1), nil, nil); !errors.Is(err, kahn.ErrBadOption) {
		t.Errorf("%v", err)
	}
}

// TestTypesThatNeverCount: a run refuses Types with a useless registration: under a reserved name, or of nil.
func TestTypesThatNeverCount(t *testing.T) {
	for _, types := range []kahn.Types{{"int": uint8(0)}, {"mine": nil}, {"error": 1}, {"outputs": 1}} {
		for _, opt := range []kahn.Option{types, kahn.Encoding(types)} {
			_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "a"}), func(context.Context, *kahn.Step) (any, error) { return 1, nil }, opt)
			if !errors.Is(err, kahn.ErrBadOption) {
				t.Errorf("%v: %v", types, err)
			}
		}
	}
}
