package sqlite

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRecord: a record is the same when its members have been taken apart, and those that have columns are in them.
func TestRecord(t *testing.T) {
	t.Parallel()
	start, end := time.Date(2026, 11, 22, 11, 42, 13, 462670135, time.UTC), time.Date(2026, 11, 22, 11, 42, 13, 500000000, time.UTC)
	for _, row := range []struct {
		key, record string
		want        record // rest and whole apart
	}{
		{
			"S/c0", `{"id":"c0","event":6,"hash":"2510f3cc","status":"completed","reached":true,"start":"2026-11-22T11:42:13.462670135Z","end":"2026-11-22T11:42:13.5Z","value":{"status":"x"},"latest":4}`,
			record{split: true, shape: 3<<shapeLength | shapeStart | shapeEnd, status: "completed", hash: []byte{0x25, 0x10, 0xf3, 0xcc}, start: start, end: end, value: `{"status":"x"}`},
		},
		{"a", `{"status":"failed","cause":"timeout","value":null}`, record{split: true, status: "failed", cause: "timeout", value: "null"}},
		{"a", `{"start":"2026-11-22T12:42:13.462670135+01:00"}`, record{split: true, start: start}},
		{"a", `{"start":"2026-11-22T11:42:13.500Z","end":"3026-11-22T11:42:13Z","id":"b","hash":"2X","status":5,"cause":"\u0041"}`, record{split: true, start: end}},
		{"a", `{"end":"0001-01-01T00:00:00Z","id":"","status":"","x":"}{][,\"\\"}`, record{split: true}},
		{"a", `{"value":"é\u0000,}","nested":{"a":[1,{"b":"]"}]},"status":"ready"}`, record{split: true, value: `"é\u0000,}"`, status: "ready"}},
		{"a", `{"status":"ready","status":"ready"}`, record{}},
		{"a", `{"status": "ready"}`, record{split: true}},
		{"a", `{ "status":"ready"}`, record{}},
		{"a", `{"status":"ready"} `, record{}},
		{"a", `{}`, record{}},
		{"a", `[1,2]`, record{}},
		{"a", `"text"`, record{}},
		{"a", `{"a`, record{}},
		{"a", "\xff\x00", record{}},
	} {
		got := splitRecord(row.key, []byte(row.record))
		back := string(got.json(row.key))
		if json.Valid([]byte(row.record)) {
			require.JSONEq(t, row.record, back)
		} else {
			require.Equal(t, row.record, back)
		}
		require.True(t, got.start.Equal(row.want.start), row.record)
		row.want.rest, row.want.whole, row.want.start = got.rest, got.whole, got.start
		require.True(t, got.end.Equal(row.want.end), row.record)
		row.want.end = got.end
		require.Equal(t, row.want, got, row.record)
		require.Equal(t, !row.want.split, got.whole != nil, row.record)
	}
	none := splitRecord("a", nil)
	require.Nil(t, none.json("a"))
}

// FuzzRecord takes records apart that somebody else has written.
func FuzzRecord(f *testing.F) {
	for _, record := range []string{
		`{"id":"a","status":"completed","start":"2026-11-22T11:42:13.462670135Z","value":[1,{"x":"}"}]}`, `{"a":{"b":"\""},"hash":"00ff"}`, `{"a":1}x`, `[]`, "",
	} {
		f.Add("k/a", []byte(record))
	}
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		r := splitRecord(key, data)
		back := r.json(key)
		if len(data) == 0 {
			require.Nil(t, back)
			return
		}
		if !json.Valid(data) {
			require.Len(t, back, len(data), "%s", data)
			return
		}
		var want, got any
		require.NoError(t, json.Unmarshal(data, &want))
		require.NoError(t, json.Unmarshal(back, &got), "%s", back)
		require.Equal(t, want, got)
	})
}
