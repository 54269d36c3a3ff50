package definition_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/definition"
)

// node returns a document with one node of these fields. The fields begin in the first column of the second line.
func node(fields string) string {
	return "{\"version\": 1, \"nodes\": [{\"id\": \"n\",\n" + fields + "}]}"
}

// Every problem is reported with kind, path, line and column.
func TestProblems(t *testing.T) {
	for name, row := range map[string]struct {
		text         string
		kind         definition.ErrorKind
		path         string
		line, column int
	}{
		"empty":                    {"", definition.ErrSyntax, "$", 1, 1},
		"spaces":                   {" \n ", definition.ErrSyntax, "$", 2, 2},
		"cut off":                  {`{"version": 1, "nodes": [`, definition.ErrSyntax, "$.nodes[0]", 1, 26},
		"no end of text":           {`{"version": 1, "name": "x`, definition.ErrSyntax, "$.name", 1, 26},
		"trailing comma":           {`{"version": 1, "nodes": [{"id": "a"},]}`, definition.ErrSyntax, "$.nodes", 1, 38},
		"comment":                  {`{"version": 1 /* one */}`, definition.ErrSyntax, "$", 1, 15},
		"single quotes":            {`{'version': 1}`, definition.ErrSyntax, "$", 1, 2},
		"goes on":                  {`{"version": 1} {}`, definition.ErrSyntax, "$", 1, 16},
		"NUL after the end":        {"{\"version\": 1}\x00", definition.ErrSyntax, "$", 1, 15},
		"number with a zero":       {node(`"priority": 01`), definition.ErrSyntax, "$.nodes[0]", 2, 14},
		"hexadecimal":              {node(`"priority": 0x1f`), definition.ErrSyntax, "$.nodes[0]", 2, 14},
		"NaN":                      {node(`"config": NaN`), definition.ErrSyntax, "$.nodes[0].config", 2, 11},
		"newline in a text":        {node("\"label\": \"a\nb\""), definition.ErrSyntax, "$.nodes[0].label", 2, 12},
		"bad escape":               {node(`"label": "ä\x"`), definition.ErrSyntax, "$.nodes[0].label", 2, 12},
		"lone surrogate":           {node(`"label": "\ud800"`), definition.ErrEncoding, "$.nodes[0].label", 2, 11},
		"surrogates the other way": {node(`"label": "\udc00\ud800"`), definition.ErrEncoding, "$.nodes[0].label", 2, 11},
		"invalid UTF-8":            {node("\"label\": \"a\xff\""), definition.ErrEncoding, "$", 2, 12},
		"byte order mark":          {"\uFEFF{\"version\": 1}", definition.ErrEncoding, "$", 1, 1},
		"UTF-16":                   {"\xff\xfe{\x00}\x00", definition.ErrEncoding, "$", 1, 1},
		"a list":                   {"[]", definition.ErrType, "$", 1, 1},
		"no version":               {`{"nodes": []}`, definition.ErrVersion, "$", 1, 1},
		"version of the future":    {`{"version": 2, "steps": []}`, definition.ErrVersion, "$.version", 1, 13},
		"version as text":          {`{"version": "1"}`, definition.ErrVersion, "$.version", 1, 13},
		"version twice":            {`{"version": 1, "version": 1}`, definition.ErrDuplicate, "$.version", 1, 16},
		"unknown field":            {node(`"retries": 3`), definition.ErrUnknownField, "$.nodes[0].retries", 2, 1},
		"other case":               {node(`"Kind": "x"`), definition.ErrUnknownField, "$.nodes[0].Kind", 2, 1},
		"field twice":              {node(`"kind": "x", "kind": "x"`), definition.ErrDuplicate, "$.nodes[0].kind", 2, 14},
		"field twice, escaped":     {node(`"kind": "x", "k\u0069nd": "x"`), definition.ErrDuplicate, "$.nodes[0].kind", 2, 14},
		"id twice in a node":       {node(`"id": "n"`), definition.ErrDuplicate, "$.nodes[0].id", 2, 1},
		"key twice in a config":    {node(`"config": {"a": {"b": 1, "b": 2}}`), definition.ErrDuplicate, "$.nodes[0].config.a.b", 2, 26},
		"label twice":              {node(`"branches": {"x": "n", "x": "n"}`), definition.ErrDuplicate, "$.nodes[0].branches.x", 2, 24},
		"node twice":               {`{"version": 1, "nodes": [{"id": "a"}, {"id": "a"}]}`, definition.ErrDuplicate, "$.nodes[1].id", 1, 46},
		"after and needs":          {node(`"after": [], "needs": []`), definition.ErrValue, "$.nodes[0].needs", 2, 14},
		"no id":                    {`{"version": 1, "nodes": [{"kind": "x"}]}`, definition.ErrMissing, "$.nodes[0]", 1, 26},
		"group without a name":     {`{"version": 1, "groups": [{}]}`, definition.ErrMissing, "$.groups[0]", 1, 27},
		"edge to nowhere":          {`{"version": 1, "nodes": [{"id": "a"}], "edges": [{"from": "a"}]}`, definition.ErrMissing, "$.edges[0]", 1, 50},
		"edge with its own from":   {node(`"next": {"from": "n", "to": "n"}`), definition.ErrUnknownField, "$.nodes[0].next.from", 2, 10},
		"unknown node":             {node(`"after": ["m"]`), definition.ErrReference, "$.nodes[0].after[0]", 2, 11},
		"number as an edge":        {node(`"after": [1]`), definition.ErrType, "$.nodes[0].after[0]", 2, 11},
		"null as a text":           {node(`"kind": null`), definition.ErrType, "$.nodes[0].kind", 2, 9},
		"null as a default":        {node(`"default": null`), definition.ErrType, "$.nodes[0].default", 2, 12},
		"text as a flag":           {node(`"disabled": "false"`), definition.ErrType, "$.nodes[0].disabled", 2, 13},
		"fraction":                 {node(`"priority": 1.0`), definition.ErrValue, "$.nodes[0].priority", 2, 13},
		"integer too large":        {node(`"priority": 9223372036854775808`), definition.ErrValue, "$.nodes[0].priority", 2, 13},
		"float too large":          {node(`"config": 1e999`), definition.ErrValue, "$.nodes[0].config", 2, 11},
		"negative count":           {node(`"retry": {"max_attempts": -1}`), definition.ErrValue, "$.nodes[0].retry.max_attempts", 2, 27},
		"negative factor":          {node(`"retry": {"multiplier": -1}`), definition.ErrValue, "$.nodes[0].retry.multiplier", 2, 25},
		"duration as a number":     {node(`"timeout": 30`), definition.ErrType, "$.nodes[0].timeout", 2, 12},
		"duration without a unit":  {node(`"timeout": "30"`), definition.ErrValue, "$.nodes[0].timeout", 2, 12},
		"negative duration":        {node(`"timeout": "-1s"`), definition.ErrValue, "$.nodes[0].timeout", 2, 12},
		"negative first delay":     {node(`"retry": {"initial_delay": "-10s"}`), definition.ErrValue, "$.nodes[0].retry.initial_delay", 2, 28},
		"negative greatest delay":  {node(`"retry": {"max_delay": "-1ns"}`), definition.ErrValue, "$.nodes[0].retry.max_delay", 2, 24},
		"no overall timeout":       {node(`"overall_timeout": "none"`), definition.ErrValue, "$.nodes[0].overall_timeout", 2, 20},
		"enum in another case":     {node(`"join": "All_Done"`), definition.ErrValue, "$.nodes[0].join", 2, 9},
		"enum that is empty":       {node(`"join": ""`), definition.ErrValue, "$.nodes[0].join", 2, 9},
		"enum with a zero":         {node(`"join": "at_least(02)"`), definition.ErrValue, "$.nodes[0].join", 2, 9},
		"no causes":                {node(`"next": {"to": "n", "causes": []}`), definition.ErrValue, "$.nodes[0].next.causes", 2, 31},
		"text as a schema":         {node(`"input_schema": "object"`), definition.ErrType, "$.nodes[0].input_schema", 2, 17},
		"id that is empty":         {`{"version": 1, "nodes": [{"id": ""}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"id __proto__":             {`{"version": 1, "nodes": [{"id": "__proto__"}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"id with HTML":             {`{"version": 1, "nodes": [{"id": "<script>alert(1)</script>"}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"id with a newline":        {`{"version": 1, "nodes": [{"id": "a\nb"}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"id with NUL":              {`{"version": 1, "nodes": [{"id": "a\u0000"}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"id with an escape code":   {`{"version": 1, "nodes": [{"id": "\u001b[31m"}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"id that runs backwards":   {`{"version": 1, "nodes": [{"id": "a\u202eb"}]}`, definition.ErrValue, "$.nodes[0].id", 1, 33},
		"label with a newline":     {node(`"branches": {"a\nb": "n"}`), definition.ErrValue, `$.nodes[0].branches["a\nb"]`, 2, 14},
		"version in a sub-graph":   {node(`"graph": {"version": 1}`), definition.ErrUnknownField, "$.nodes[0].graph.version", 2, 11},
		"node of the outer graph":  {node(`"graph": {"nodes": [{"id": "a", "after": "n"}]}`), definition.ErrReference, "$.nodes[0].graph.nodes[0].after", 2, 42},
		"node of an inner graph":   {node(`"graph": {"nodes": [{"id": "a"}]}, "after": "a"`), definition.ErrReference, "$.nodes[0].after", 2, 45},
		"map over nothing":         {node(`"map": {}`), definition.ErrMissing, "$.nodes[0].map", 2, 8},
		"loop without a bound":     {node(`"graph": {}, "loop": {"until": "true"}`), definition.ErrMissing, "$.nodes[0].loop", 2, 22},
		"null as a sub-graph":      {node(`"graph": null`), definition.ErrType, "$.nodes[0].graph", 2, 10},
		"column counts characters": {node(`"config": "ääß😀", "x": 1`), definition.ErrUnknownField, "$.nodes[0].x", 2, 19},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := definition.Decode([]byte(row.text), definition.Limits{})
			require.Nil(t, g)
			require.ErrorIs(t, err, row.kind)
			var e *definition.Error
			require.ErrorAs(t, err, &e)
			p := e.Problems[0]
			at := fmt.Sprint(p.Path, " ", p.Position.Line, ":", p.Position.Column)
			require.Equal(t, fmt.Sprint(row.path, " ", row.line, ":", row.column), at, err.Error())
			require.Equal(t, row.kind, p.Kind)
			lines := strings.SplitAfter(row.text, "\n")[:row.line]
			last := []rune(lines[row.line-1])
			require.Equal(t, len(strings.Join(lines[:row.line-1], ""))+len(string(last[:min(row.column-1, len(last))])), min(p.Position.Offset, len(row.text)))
		})
	}
}

// Decode reports all problems of a document at once.
func TestAllProblems(t *testing.T) {
	_, err := definition.Decode([]byte(`{"version": 1, "colour": "red", "nodes": [
		{"id": "a", "timeout": 30, "after": ["b", "c"], "retry": {"jitter": "lots", "maxAttempts": 1}},
		{"id": "b", "disabled": "no"}]}`), definition.Limits{})
	var e *definition.Error
	require.ErrorAs(t, err, &e)
	var paths []string
	for _, p := range e.Problems {
		paths = append(paths, p.Path)
	}
	require.Equal(t, []string{
		"$.colour", "$.nodes[0].timeout", "$.nodes[0].after[1]", "$.nodes[0].retry.jitter", "$.nodes[0].retry.maxAttempts", "$.nodes[1].disabled",
	}, paths)
	require.Contains(t, err.Error(), `did you mean "max_attempts"?`)
	require.Contains(t, err.Error(), `"lots" is none of half, none, full`)
}

// A problem inside a sub-graph has the ids of all nodes around it.
func TestProblemInSubgraph(t *testing.T) {
	_, err := definition.Decode([]byte(node(`"graph": {"nodes": [{"id": "m", "graph": {"nodes": [{"id": "o", "x": 1}]}}]}`)), definition.Limits{})
	var p *definition.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, "n/m/o", p.Node)
	require.Equal(t, "$.nodes[0].graph.nodes[0].graph.nodes[0].x", p.Path)
}

// Each limit rejects a document that exceeds it by one. A negative limit accepts the document.
func TestLimits(t *testing.T) {
	text := `{"version": 1, "name": "seven77", "nodes": [{"id": "a"}, {"id": "b", "after": ["a"], "config": [[1]]}], "edges": [{"from": "a", "to": "b", "key": "k"}]}`
	const depth, values, nodes, edges, name = 5, 18, 2, 2, 7
	for what, row := range map[string]struct {
		count int
		set   func(*definition.Limits, int)
	}{
		"bytes":  {len(text), func(l *definition.Limits, n int) { l.Bytes = n }},
		"depth":  {depth, func(l *definition.Limits, n int) { l.Depth = n }},
		"values": {values, func(l *definition.Limits, n int) { l.Values = n }},
		"nodes":  {nodes, func(l *definition.Limits, n int) { l.Nodes = n }},
		"edges":  {edges, func(l *definition.Limits, n int) { l.Edges = n }},
		"name":   {name, func(l *definition.Limits, n int) { l.NameBytes = n }},
	} {
		t.Run(what, func(t *testing.T) {
			var l definition.Limits
			row.set(&l, row.count)
			_, err := definition.Decode([]byte(text), l)
			require.NoError(t, err)
			row.set(&l, row.count-1)
			_, err = definition.Decode([]byte(text), l)
			require.ErrorIs(t, err, definition.ErrLimit)
			row.set(&l, -1)
			_, err = definition.Decode([]byte(text), l)
			require.NoError(t, err)
		})
	}
}

// Decode rejects a document that would need too much memory, before it allocates this memory.
func TestMemoryIsBounded(t *testing.T) {
	huge := strings.Repeat("x", 1<<20-100)
	for name, text := range map[string]string{
		"deep lists":        node(`"config": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)),
		"deep objects":      node(`"config": ` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)),
		"deep sub-graphs":   `{"version": 1, "nodes": [` + strings.Repeat(`{"id": "a", "graph": {"nodes": [`, 30_000) + strings.Repeat(`]}}`, 30_000) + `]}`,
		"deep, without end": strings.Repeat("[", 1<<20),
		"long id":           `{"version": 1, "nodes": [{"id": "` + huge + `"}]}`,
		"long field":        `{"version": 1, "` + huge + `": 1}`,
		"long enum":         node(`"join": "` + huge + `"`),
		"long number":       node(`"priority": ` + strings.Repeat("1", len(huge))),
		"many values":       node(`"config": [` + strings.Repeat("1,", 500_000) + "1]"),
		"many empty nodes":  `{"version": 1, "nodes": [` + strings.Repeat("{},", 300_000) + "{}]}",
		"many problems":     `{"version": 1, "nodes": [` + strings.Repeat(`{"":0},`, 40_000) + "{}]}",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := definition.Decode([]byte(text), definition.Limits{})
			runtime.ReadMemStats(&after)
			var e *definition.Error
			require.ErrorAs(t, err, &e)
			require.Less(t, len(err.Error()), 100_000)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(96<<20))
		})
	}
	t.Run("no limit on depth is a limit", func(t *testing.T) {
		_, err := definition.Decode([]byte(node(`"config": `+strings.Repeat("[", 500_000)+strings.Repeat("]", 500_000))),
			definition.Limits{Depth: -1, Bytes: -1, Values: -1})
		require.ErrorIs(t, err, definition.ErrLimit)
	})
	t.Run("a gigabyte", func(t *testing.T) {
		_, err := definition.Decode(make([]byte, 1<<30), definition.Limits{})
		require.ErrorIs(t, err, definition.ErrLimit)
	})
}

// FromTree applies the limits of Decode, although parts of a tree may be shared. FromTree also reports the problems that the reader of the
// format has put into the tree.
func TestFromTree(t *testing.T) {
	config := func(v definition.Value) *definition.Value {
		v.Key = "config"
		return &definition.Value{Type: definition.Object, Items: []definition.Value{
			{Key: "version", Type: definition.Number, Text: "1"},
			{Key: "nodes", Type: definition.List, Items: []definition.Value{
				{Type: definition.Object, Items: []definition.Value{{Key: "id", Type: definition.Text, Text: "n"}, v}},
			}},
		}}
	}
	deep, wide := definition.Value{Type: definition.List}, definition.Value{Type: definition.List}
	for range 200 {
		deep = definition.Value{Type: definition.List, Items: []definition.Value{deep}}
	}
	for range 60 {
		wide = definition.Value{Type: definition.List, Items: []definition.Value{wide, wide}}
	}
	for name, v := range map[string]definition.Value{"depth": deep, "values": wide} {
		_, err := definition.FromTree(config(v), definition.Limits{})
		require.ErrorIs(t, err, definition.ErrLimit, name)
	}
	_, err := definition.FromTree(config(deep), definition.Limits{Depth: 204})
	require.NoError(t, err)
	_, err = definition.FromTree(config(deep), definition.Limits{Depth: 203})
	require.ErrorIs(t, err, definition.ErrLimit)

	found := &definition.Problem{Kind: definition.ErrAmbiguous, Position: definition.Position{Line: 3, Column: 4}, Message: "what is this?"}
	_, err = definition.FromTree(config(definition.Value{Problem: found}), definition.Limits{})
	require.ErrorIs(t, err, definition.ErrAmbiguous)
	require.EqualError(t, err, `definition: line 3, column 4: $.nodes[0].config: node "n": what is this?`)
	_, err = definition.FromTree(&definition.Value{Problem: found}, definition.Limits{})
	require.EqualError(t, err, `definition: line 3, column 4: $: what is this?`)
}

// FuzzDecode: any text is either rejected with a typed error, or read into a graph that is written and read again
// unchanged. Every accepted text is JSON.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"version": 1}`, node(`"config": {"a": [1, 2.5, "x\u00e4\ud83d\ude00", null, true, 123456789012345678901234567890]}`),
		node(`"retry": {"initial_delay": "none"}, "branches": {"x": ["n"], "y": {"to": "n", "param": "p"}}`),
		node(`"after": "n", "next": "n", "timeout": "1h2m3.5s", "join": "at_least(2)"`),
	} {
		f.Add([]byte(seed))
	}
	full, err := os.ReadFile("testdata/full.json")
	require.NoError(f, err)
	f.Add(full)
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := definition.Decode(data, definition.Limits{Bytes: 1 << 16})
		if err != nil {
			var e *definition.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Problems)
			require.NotEmpty(t, err.Error())
			if !json.Valid(data) {
				return
			}
			for _, p := range e.Problems {
				require.NotEqual(t, definition.ErrSyntax, p.Kind, "this is JSON: %v", err)
			}
			return
		}
		require.True(t, json.Valid(data))
		text, err := definition.Encode(g)
		require.NoError(t, err)
		again, err := definition.Decode(text, definition.Limits{})
		require.NoError(t, err)
		require.Equal(t, g.Nodes(), again.Nodes())
		require.Equal(t, g.Edges(), again.Edges())
		twice, err := definition.Encode(again)
		require.NoError(t, err)
		require.Equal(t, string(text), string(twice))
	})
}
