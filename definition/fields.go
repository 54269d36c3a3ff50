package definition

import (
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// graph is an object of the document that describes a graph. The decoder adds the nodes and edges to the Graph after it has read the object. The
// function `declare` puts the edges in order.
type graph struct {
	*kahn.Graph
	nodes    []node
	edges    []kahn.Edge
	schedule *Schedule // the schedule of the document; only the outermost graph has one
}

// node is an object of the document that describes a node, with the edges written in it.
type node struct {
	kahn.Node
	// The field `computes` is the kind that the form of the expression implies, or "" for a node without an expression. The
	// field `expression` is the text of the expression. The method `compute` puts this text into TestExpr.
	computes, expression string

	after    []kahn.Edge
	next     []kahn.Edge
	branches []kahn.Edge
}

// The objects of a document. The function init sets these variables, since they refer to one another.
var (
	documentRecord   record[graph] // the outermost graph
	graphRecord      record[graph]
	nodeRecord       record[node]
	defaultsRecord   record[kahn.Defaults]
	inputRecord      record[kahn.Input]
	groupRecord      record[kahn.Group]
	rateRecord       record[kahn.Rate]
	mapRecord        record[kahn.Map]
	loopRecord       record[kahn.Loop]
	gateRecord       record[kahn.Gate]
	compensateRecord record[kahn.CompensateBy]
	portRecord       record[kahn.Port]
	retryRecord      record[kahn.Retry]
	edgeRecord       record[kahn.Edge]

	// The record of an edge that is written in a node lacks the fields whose values follow from the edge's place.
	afterRecord, nextRecord, branchRecord *record[kahn.Edge]
)

func init() {
	graphRecord = record[graph]{fields: []field[graph]{
		name("name", func(g *graph) *string { return &g.Name }),
		inner("defaults", &defaultsRecord, func(g *graph) *kahn.Defaults { return &g.Defaults }),
		flag("strict_guards", func(g *graph) *bool { return &g.StrictGuards }),
		inputList("inputs"),
		many("groups", &groupRecord, func(g *graph) *[]kahn.Group { return &g.Groups }),
		nodeList("nodes"),
		edgeList("edges"),
	}}
	documentRecord = record[graph]{required: []string{"version"}, fields: append([]field[graph]{
		{name: "$schema", read: func(d *decoder, v *Value, _ *graph) { d.expect(v, Text) }}, // editors find the schema by this field
		{name: "version", read: func(*decoder, *Value, *graph) {}, show: func(*encoder, *graph) (Value, bool) {
			return Value{Type: Number, Text: versionText}, true
		}},
	}, append(slices.Clone(graphRecord.fields), scheduleField("schedule"))...)}
	defaultsRecord = record[kahn.Defaults]{fields: []field[kahn.Defaults]{
		enum("skip_mode", func(d *kahn.Defaults) *machine.SkipMode { return &d.SkipMode }),
		enum("on_upstream_failure", func(d *kahn.Defaults) *machine.UpstreamPolicy { return &d.OnUpstreamFailure }),
		enum("guard_errors", func(d *kahn.Defaults) *kahn.GuardPolicy { return &d.GuardErrors }),
		inner("retry", &retryRecord, func(d *kahn.Defaults) *kahn.Retry { return &d.Retry }),
		bound("timeout", func(d *kahn.Defaults) *time.Duration { return &d.Timeout }),
	}}
	inputRecord = record[kahn.Input]{required: []string{"name"}, fields: []field[kahn.Input]{
		name("name", func(in *kahn.Input) *string { return &in.Name }),
		flag("optional", func(in *kahn.Input) *bool { return &in.Optional }),
		data("default", func(in *kahn.Input) *any { return &in.Default }),
	}}
	groupRecord = record[kahn.Group]{required: []string{"name"}, fields: []field[kahn.Group]{
		name("name", func(g *kahn.Group) *string { return &g.Name }),
		count("limit", func(g *kahn.Group) *int { return &g.Limit }),
		inner("rate", &rateRecord, func(g *kahn.Group) *kahn.Rate { return &g.Rate }),
		flag("cancel_on_failure", func(g *kahn.Group) *bool { return &g.CancelOnFailure }),
	}}
	rateRecord = record[kahn.Rate]{required: []string{"starts", "per"}, fields: []field[kahn.Rate]{
		count("starts", func(r *kahn.Rate) *int { return &r.Starts }),
		duration("per", func(r *kahn.Rate) *time.Duration { return &r.Per }),
		count("burst", func(r *kahn.Rate) *int { return &r.Burst }),
	}}
	nodeRecord = record[node]{required: []string{"id"}, code: []string{"Do", "Test", "When", "Fallback", "Compensate", "MemoKey"}, fields: []field[node]{
		id("id", func(n *node) *string { return &n.ID }),
		name("kind", func(n *node) *string { return &n.Kind }),
		name("label", func(n *node) *string { return &n.Label }),
		data("config", func(n *node) *any { return &n.Config }),
		dataMap("params", func(n *node) *map[string]any { return &n.Params }),

		afterEdges("after"),
		needsEdges("needs"),
		nextEdges("next"),
		branchEdges("branches"),

		unlessComputed(prose("test", func(n *node) *string { return &n.TestExpr })),
		expressionField("expression"),
		flag("routes", func(n *node) *bool { return &n.Routes }),
		enum("no_match", func(n *node) *kahn.NoMatch { return &n.NoMatch }),
		names("choices", func(n *node) *[]string { return &n.Choices }),
		subgraph("graph", func(n *node) **kahn.Graph { return &n.Sub }),
		optional("map", &mapRecord, func(n *node) **kahn.Map { return &n.Map }),
		optional("loop", &loopRecord, func(n *node) **kahn.Loop { return &n.Loop }),
		optional("gate", &gateRecord, func(n *node) **kahn.Gate { return &n.Gate }),
		flag("disabled", func(n *node) *bool { return &n.Disabled }),
		prose("when", func(n *node) *string { return &n.WhenExpr }),
		enum("guard_errors", func(n *node) *kahn.GuardPolicy { return &n.GuardErrors }),

		unlessComputed(enum("join", func(n *node) *kahn.Join { return &n.Join })),
		enum("skip_mode", func(n *node) *machine.SkipMode { return &n.SkipMode }),
		enum("on_upstream_failure", func(n *node) *machine.UpstreamPolicy { return &n.OnUpstreamFailure }),
		data("default", func(n *node) *any { return &n.Default }),
		enum("handling", func(n *node) *kahn.Handling { return &n.Handling }),
		flag("cancel_losers", func(n *node) *bool { return &n.CancelLosers }),
		flag("cancel_on_late_failure", func(n *node) *bool { return &n.CancelOnLateFailure }),
		flag("continue_on_fail", func(n *node) *bool { return &n.ContinueOnFail }),
		flag("cleanup", func(n *node) *bool { return &n.Cleanup }),
		flag("critical", func(n *node) *bool { return &n.Critical }),

		inner("retry", &retryRecord, func(n *node) *kahn.Retry { return &n.Retry }),
		bound("timeout", func(n *node) *time.Duration { return &n.Timeout }),
		duration("overall_timeout", func(n *node) *time.Duration { return &n.OverallTimeout }),
		optional("compensate", &compensateRecord, func(n *node) **kahn.CompensateBy { return &n.CompensateBy }),
		inner("compensate_retry", &retryRecord, func(n *node) *kahn.Retry { return &n.CompensateRetry }),
		duration("compensate_timeout", func(n *node) *time.Duration { return &n.CompensateTimeout }),
		integer("max_crashes", func(n *node) *int { return &n.MaxCrashes }),
		integer("priority", func(n *node) *int { return &n.Priority }),
		duration("estimate", func(n *node) *time.Duration { return &n.Estimate }),
		names("groups", func(n *node) *[]string { return &n.Groups }),
		name("key", func(n *node) *string { return &n.Key }),
		name("key_from", func(n *node) *string { return &n.KeyFrom }),
		name("memo", func(n *node) *string { return &n.Memo }),
		name("memo_name", func(n *node) *string { return &n.MemoName }),
		names("files", func(n *node) *[]string { return &n.Files }),

		many("ports", &portRecord, func(n *node) *[]kahn.Port { return &n.Ports }),
		names("outputs", func(n *node) *[]string { return &n.Outputs }),
		name("merge", func(n *node) *string { return &n.Merge }),
		flag("merge_json", func(n *node) *bool { return &n.MergeJSON }),

		contract("input_schema", func(n *node) *any { return &n.InputSchema }),
		contract("output_schema", func(n *node) *any { return &n.OutputSchema }),
		enum("moderation", func(n *node) *kahn.Moderation { return &n.Moderation }),
	}}
	mapRecord = record[kahn.Map]{alone: "over", required: []string{"over"}, code: []string{"Key", "Estimate"}, fields: []field[kahn.Map]{
		name("over", func(m *kahn.Map) *string { return &m.Over }),
		count("limit", func(m *kahn.Map) *int { return &m.Limit }),
		count("tolerated_count", func(m *kahn.Map) *int { return &m.ToleratedCount }),
		factor("tolerated_percent", func(m *kahn.Map) *float64 { return &m.ToleratedPercent }),
		flag("fail_fast", func(m *kahn.Map) *bool { return &m.FailFast }),
		flag("compact", func(m *kahn.Map) *bool { return &m.Compact }),
	}}
	loopRecord = record[kahn.Loop]{required: []string{"until", "max_iterations"}, code: []string{"While", "Until"}, fields: []field[kahn.Loop]{
		prose("until", func(l *kahn.Loop) *string { return &l.UntilExpr }),
		count("max_iterations", func(l *kahn.Loop) *int { return &l.MaxIterations }),
		enum("on_limit", func(l *kahn.Loop) *kahn.LoopLimit { return &l.OnLimit }),
		flag("collect", func(l *kahn.Loop) *bool { return &l.Collect }),
		duration("pause", func(l *kahn.Loop) *time.Duration { return &l.Pause }),
	}}
	gateRecord = record[kahn.Gate]{code: []string{"Check"}, fields: []field[kahn.Gate]{
		duration("timeout", func(g *kahn.Gate) *time.Duration { return &g.Timeout }),
		enum("on_timeout", func(g *kahn.Gate) *kahn.GateTimeout { return &g.OnTimeout }),
		names("choices", func(g *kahn.Gate) *[]string { return &g.Choices }),
		contract("schema", func(g *kahn.Gate) *any { return &g.Schema }),
	}}
	compensateRecord = record[kahn.CompensateBy]{alone: "kind", required: []string{"kind"}, fields: []field[kahn.CompensateBy]{
		name("kind", func(c *kahn.CompensateBy) *string { return &c.Kind }),
		data("config", func(c *kahn.CompensateBy) *any { return &c.Config }),
	}}
	portRecord = record[kahn.Port]{required: []string{"name"}, fields: []field[kahn.Port]{
		name("name", func(p *kahn.Port) *string { return &p.Name }),
		flag("required", func(p *kahn.Port) *bool { return &p.Required }),
		data("default", func(p *kahn.Port) *any { return &p.Default }),
	}}
	retryRecord = record[kahn.Retry]{alone: "max_attempts", fields: []field[kahn.Retry]{
		count("max_attempts", func(r *kahn.Retry) *int { return &r.MaxAttempts }),
		delay("initial_delay", func(r *kahn.Retry) *time.Duration { return &r.InitialDelay }),
		factor("multiplier", func(r *kahn.Retry) *float64 { return &r.Multiplier }),
		delay("max_delay", func(r *kahn.Retry) *time.Duration { return &r.MaxDelay }),
		enum("jitter", func(r *kahn.Retry) *kahn.Jitter { return &r.Jitter }),
		causes("retry_on", true, retryCauses, causesOfRetry, func(r *kahn.Retry) *[]kahn.CauseKind { return &r.RetryOn }),
		duration("max_retry_after", func(r *kahn.Retry) *time.Duration { return &r.MaxRetryAfter }),
	}}
	edgeRecord = record[kahn.Edge]{required: []string{"from", "to"}, fields: []field[kahn.Edge]{
		endpoint("from", func(e *kahn.Edge) *string { return &e.From }),
		endpoint("to", func(e *kahn.Edge) *string { return &e.To }),
		enum("outcome", func(e *kahn.Edge) *kahn.On { return &e.On }),
		causes("causes", false, nil, causesOfEdge, func(e *kahn.Edge) *[]kahn.CauseKind { return &e.Causes }),
		name("label", func(e *kahn.Edge) *string { return &e.Label }),
		name("key", func(e *kahn.Edge) *string { return &e.Key }),
		name("param", func(e *kahn.Edge) *string { return &e.Param }),
		name("merge", func(e *kahn.Edge) *string { return &e.Merge }),
		flag("data_only", func(e *kahn.Edge) *bool { return &e.DataOnly }),
		data("default", func(e *kahn.Edge) *any { return &e.Default }),
	}}
	afterRecord = edgeRecord.without("to")
	nextRecord = edgeRecord.without("from")
	branchRecord = edgeRecord.without("from", "label")
}
