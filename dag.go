package kahn

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// These kinds have a meaning for kahn. Every other Kind belongs to the host.
const (
	// KindEnd marks the end node, which runs exactly once, after all other nodes are terminal, regardless of their statuses.
	KindEnd = "end"
	// KindCondition marks a step whose output is the label of the branch to take. For a step of another Kind, set Node.Routes instead.
	KindCondition = "condition"
	// KindGate marks a node that waits for a signal. The signal's value is the node's output, and selects the branch to take: see [Gate]. With a Do, a
	// node of this kind is an ordinary step whose output is the label of the branch to take.
	KindGate = "gate"
	// KindTrigger marks a node at which a run begins when an event arrives from outside: see [Fire]. A trigger completes at once.
	KindTrigger = "trigger"
)

// Graph is a directed acyclic graph of steps: plain data that holds no run state. Build it with [Graph.Add] and
// [Graph.Connect], in any order: an edge may name a node that is added later. The zero value is an empty graph.
//
// A Graph is compiled when it is first executed. It keeps its [Plan] until the Graph is changed. Several runs may use one Graph at once. Changing a
// Graph while it is in use is a data race, as for a map. A Graph must not be copied, so a function that builds a Graph must return a *Graph.
type Graph struct {
	// Name identifies the workflow in events and errors.
	Name string
	// Defaults are the values of fields that are zero in a node.
	Defaults Defaults
	// Inputs declares the root inputs of a run of this graph. If Inputs is set, a run with an undeclared input, or without a required input, is
	// refused with an [*InputError]. For a composite whose Sub has Inputs, Compile reports parameters that are not inputs of the Sub, and required
	// inputs that nothing provides. The Sub of a map need not declare the list of the map, "item" and "index". If Inputs is empty, a run accepts any
	// inputs. But Compile does not know the names of these inputs, so it reports a required port that has no other source.
	Inputs []Input
	// Groups declares the groups that nodes may name.
	Groups []Group
	// Evaluator parses the texts of a graph: WhenExpr, TestExpr, and the UntilExpr of a [Loop]. A graph with one of these texts needs an Evaluator. If
	// the Sub of a composite has none, the Evaluator of the enclosing graph applies. Compile calls Parse once for each text. The error of Parse says
	// what is wrong with the text. The module kahn/expression provides an Evaluator.
	Evaluator interface {
		Parse(text string) (Expression, error)
	}
	// StrictGuards makes Compile report a WhenExpr that the Evaluator cannot parse. Without StrictGuards, a guard that cannot be parsed fails when it
	// is evaluated, and GuardErrors applies. If the [Expression] of a WhenExpr has a method Check, Compile calls it to find names of undeclared
	// inputs, and of nodes that are not ancestors. A wrong name is a problem with StrictGuards, and a warning without StrictGuards. Set StrictGuards
	// in new graphs.
	StrictGuards bool
	// Schemas compiles schemas into contracts. A graph needs Schemas if an InputSchema, an OutputSchema or the Schema of a [Gate] is not itself a
	// [Contract]. If the Sub of a composite has none, the Schemas of the enclosing graph apply. Graph.Compile calls Schemas.Compile once for each
	// schema. The error of Schemas.Compile says what is wrong with the schema. The module kahn/schema compiles JSON Schema.
	Schemas interface {
		Compile(schema any) (Contract, error)
	}

	nodes  []*node // in the order of their declaration
	space  []node  // memory for the next nodes
	edges  []link  // all edges, in declaration order; values are delivered in this order
	merges map[string]func([]Contribution) (any, error)
	strays []stray // edges in a Node.In that lead to another node: Compile reports them

	version uint64 // counts changes

	mu    sync.Mutex // guards the fields below, since concurrent runs may call Compile
	plan  *Plan
	err   error
	baked settings
	subs  []compiledGraph // the compiled versions of all inner graphs, at any depth: if one of these graphs changes, the Plan is outdated
	fresh bool
}

// The type `settings` holds the values that the exported fields of a Graph had when its plan was compiled. The host sets these fields without
// calling a method, so the Graph's field `version` does not count their changes.
type settings struct {
	name         string
	defaults     Defaults
	inputs       []Input
	groups       []Group
	evaluator    evaluator
	strictGuards bool
	schemas      schemaCompiler
}

// Defaults are the values for node fields that are zero. In the graph of a composite, a zero field of the Defaults takes its value from the
// enclosing graph.
type Defaults struct {
	SkipMode          machine.SkipMode
	OnUpstreamFailure machine.UpstreamPolicy
	GuardErrors       GuardPolicy
	Retry             Retry
	// Timeout bounds each attempt of a step. In a map of steps, it bounds each attempt of an item. It does not apply to other composites, or to
	// conditions with a test. Set [NoTimeout] on a node whose attempts must not be bounded.
	Timeout time.Duration
}

// NoTimeout, as the Timeout of a node, means that the node's attempts are not bounded, even if the graph's Defaults have a Timeout.
const NoTimeout time.Duration = -1

// Input declares a root input of a graph.
type Input struct {
	Name string
	// Optional allows a run to lack the input.
	Optional bool
	// Default is the value of the input in a run that lacks it. An input with a Default need not be Optional. Nil means no
	// default.
	Default any
}

// Group is a set of nodes that share a limit or a rate, or that stop when one of them fails.
type Group struct {
	Name string
	// Limit bounds how many members run at the same time in one run. [Shared].Groups sets a common limit for several runs. Zero means no limit.
	Limit int
	// Rate bounds how often attempts of members start in one run. The zero value means no bound.
	Rate Rate
	// When a member without ContinueOnFail fails permanently, CancelOnFailure aborts the unfinished members, including members in sub-graphs. Their
	// cause is sibling_failure. CancelOnFailure stops neither cleanup nodes nor a composite that contains the failed node. As long as this composite
	// may be attempted again, the failure stops only the members inside it. If a map is a member, its items are not members.
	CancelOnFailure bool
}

// Node is one step of a graph. Only ID is required.
type Node struct {
	// ID identifies the node in its graph. It must not be empty. It must not end with #undo or contain #try, since a store uses these marks in its
	// keys. If "S" is a composite of the graph, no ID may begin with "S/", "S[" or "S#", since the paths of nodes inside S begin in this way.
	ID string
	// Kind tells the host's step function what to do; see [Mux]. [KindEnd], [KindCondition], [KindGate] and [KindTrigger] have a meaning for kahn.
	Kind string
	// Label is a name for people. [MergeObject] uses it as the key of the node's value.
	Label string
	// Config is the host's own configuration of the step. kahn passes it on unchanged.
	Config any
	// Params are static values of the step's parameters. A value that an edge delivers takes precedence.
	Params map[string]any

	// After lists the nodes that this node follows. Each id stands for a plain edge: an edge with only From and To set.
	After []string
	// In is a list of further edges into this node. Their To may be empty. Compile reports an edge whose To is another node.
	In []Edge

	// Do performs the step instead of the run's step function.
	Do StepFunc
	// Test makes the node a condition, which the engine evaluates itself. Test returns the label of the branch to take. To take several branches, it
	// returns a value with a method BranchLabels() []string. A value without a label takes the branch "default". Test may look at the statuses, errors
	// and outputs of all ancestors of the node, including failed ancestors, so the join rule defaults to [Boundary]. [If] and [Switch] set Test.
	Test func(View) (any, error)
	// TestExpr is a Test as a text, which the graph's Evaluator parses. Compile reports a text that cannot be parsed.
	TestExpr string
	// Sub makes the node a sub-graph: a nested run performs Sub, with the node's parameters as its root inputs.
	//
	// The node completes when the nested run completes. Its output is the output of Sub's end node. Without an end node, it is the output of Sub's
	// only leaf. If Sub has several leaves, the output maps the id of each completed leaf to the leaf's output. The node is skipped if every node of
	// Sub was skipped. The node fails with [CauseSubrun] when the nested run fails. A retry begins a new nested run. The nested run has the options
	// and the limits of the outer run. The nodes of the nested run take slots; this node itself takes none. This node has no default retry policy: it
	// is retried only if its own Retry is set. With Map or Loop, Sub is performed for each item or iteration.
	Sub *Graph
	// Map performs the node once for each item of a list.
	Map *Map
	// Loop performs Sub repeatedly.
	Loop *Loop
	// Routes marks a step whose output selects the branches to take, like the result of a Test.
	Routes bool
	// NoMatch determines what happens when a condition's label matches no edge and no edge is labelled "default".
	NoMatch NoMatch
	// Choices declares the labels that a condition, or a step with Routes, can return. Compile then reports an edge whose Label is not a choice. If
	// every choice is one of the words "true", "yes", "false" and "no", in upper or lower case, all four words are choices. Otherwise a choice that is
	// one of these words also allows its synonym: "true" and "yes" are synonyms, and so are "false" and "no". [If] sets Choices. For a gate, set
	// Gate.Choices instead.
	Choices []string

	// Gate bounds the wait of a gate and declares its choices. Only a node of [KindGate] without a Do may have a Gate. If Gate is nil, the
	// gate waits forever.
	Gate *Gate

	// Disabled skips the node at the start of the run, without waiting for its predecessors.
	Disabled bool
	// When is a function that guards the node. It is called once, after the node's join is satisfied. If it returns false, the node is skipped.
	// Like Test, When sees only the node's ancestors. GuardErrors determines what happens if When returns an error, panics, or asks for a node
	// that is not an ancestor.
	When func(View) (bool, error)
	// WhenExpr is a guard as a text, which the graph's Evaluator parses. [Truthy] determines which values let the node run. Graph.StrictGuards
	// determines what happens to a text that cannot be parsed.
	WhenExpr string
	// GuardErrors determines what happens when a guard fails to decide. Default: [GuardFail] for When, [GuardAllow] for
	// WhenExpr.
	GuardErrors GuardPolicy

	// Join is the rule that decides from the in-edges whether the node runs. Default: [AllSucceeded]; [Boundary] for a node with
	// a Test; [AllDone] for a Cleanup node.
	Join Join
	// SkipMode determines how skipped predecessors count. Default: [SkipCascade].
	SkipMode machine.SkipMode
	// OnUpstreamFailure determines what happens when the join can no longer be satisfied because of a failure upstream. Default: [UpstreamAbort].
	OnUpstreamFailure machine.UpstreamPolicy
	// Default is the value that a failed or skipped predecessor delivers under [UpstreamSubstitute], if the edge itself has no Default. If both are
	// nil, the value is the empty string.
	Default any
	// Handling determines whether this node, when it runs, handles the failures that reach it or only observes them. By default the end node, cleanup
	// nodes and nodes with the rule AllDone or AllSkipped observe failures; all other nodes handle them.
	Handling Handling

	// When an early join starts this node, CancelLosers stops the unfinished nodes that are no longer needed. A node is no longer needed if each of
	// its successors has a decided join or is itself no longer needed. Waiting nodes are skipped and running nodes are cancelled, with the cause
	// superseded. These stops do not make the run fail.
	CancelLosers bool
	// CancelOnLateFailure aborts the node if a predecessor fails after an early join has started the node. By default the node continues.
	CancelOnLateFailure bool

	// If the node fails, ContinueOnFail lets its dependents continue without its value, and the failure does not fail the run.
	ContinueOnFail bool
	// Fallback produces the output when the step fails permanently. OverallTimeout also bounds Fallback. Fallback is not called if the node was
	// stopped, if its inputs were refused, if OverallTimeout has passed, or if the step called runtime.Goexit. If Fallback fails, the node fails with
	// the cause of the step's failure, and errors.Is and errors.As match both errors. However, the cause is CauseGoexit if Fallback calls
	// runtime.Goexit, and CauseTimeout if OverallTimeout ends Fallback. The error of Fallback has no special meaning: a [Skip], for example, also
	// fails the node.
	Fallback func(ctx context.Context, err error) (any, error)
	// Cleanup makes the node run when all its predecessors are terminal, even while the run is being stopped. A stop of the run does not end the context
	// of the node's step.
	Cleanup bool
	// Compensate undoes the node's effects when the run is about to end failed, cancelled or timed out: see the package documentation. It gets a Step
	// with the inputs of the node, and [Step.Compensated] returns the node's output. For a map, it is called for each item instead. The nodes
	// inside a composite with its own Compensate are undone only if an attempt of the composite fails.
	Compensate func(ctx context.Context, s *Step) error
	// CompensateBy replaces Compensate: the run's step function undoes the node.
	CompensateBy *CompensateBy
	// CompensateRetry is the retry policy of Compensate or CompensateBy. A MaxAttempts of zero means 10.
	CompensateRetry Retry
	// CompensateTimeout bounds each attempt to undo the node. Zero means no bound.
	CompensateTimeout time.Duration
	// Critical stops the whole run when this node fails: unfinished nodes are aborted. In the graph of a composite, Critical stops only the nested
	// run; see [AbortRun].
	Critical bool

	// Memo is the version of the step's code. Set it on a node whose output depends only on this version, the node's Config and the node's inputs. If
	// the run has the option [Memo], and the node had the same version and inputs in an earlier run, the node takes its output from that run. If the
	// run lacks this option, its Result has a warning. For a sub-graph or a loop, Memo is the version of all code inside. For a map, it is the version
	// of the code that performs an item. If Memo is empty, every run calls the step.
	Memo string
	// MemoName replaces the node's path in the key under which a [Memo] keeps the node's output. So nodes with the same MemoName, Memo, Kind and
	// inputs share outputs, even in different graphs. A renamed or moved node finds its earlier outputs.
	MemoName string
	// MemoKey returns a text that contains everything on which the node's output depends. The key of the output consists of this text, Memo, the
	// contents of Files, and MemoName or the path. Without MemoKey the key contains the inputs instead of this text, see [Memo]. MemoKey is called
	// before each attempt. Its result must depend on the Step alone. If it returns an error, the step is called, its output is not kept, and the
	// node's log contains the error.
	MemoKey func(s *Step) (string, error)
	// Files are the names of files that the step reads. Their contents are part of the key of the node's output, even with a MemoKey. Each lookup
	// of the output in a [Memo] reads the files. If a file cannot be read, the step is called, and the node's log contains the error.
	Files []string

	// Retry is the node's retry policy. If Retry is zero, the Retry of the graph's Defaults applies. If both are zero, the run's option [Retry] applies.
	// Default: one attempt.
	Retry Retry
	// Timeout bounds each attempt, from the call of its step. Zero means the Timeout of the graph's Defaults. If both are zero, attempts are not
	// bounded, except by [CleanupTimeout].
	Timeout time.Duration
	// OverallTimeout bounds the node from its first start to its end, including the waits between attempts. Zero means no bound.
	OverallTimeout time.Duration
	// MaxCrashes bounds how often in a row the process may die during attempts of the node. Zero means the bound of the option [MaxCrashes]. A
	// negative number means no bound.
	MaxCrashes int

	// Priority orders ready nodes that compete for slots: a node of higher priority begins first.
	Priority int
	// Estimate is the expected duration of the node. Among ready nodes of equal priority, the node with the longest remaining path begins first. The
	// length of a path is the sum of the Estimates on it. If no node of the graph has an Estimate, every node counts as one unit.
	Estimate time.Duration

	// Groups names the groups to which the node belongs.
	Groups []string
	// Key is the node's concurrency key. The run's KeyLimit bounds how many nodes with the same key run at the same time, and its KeyRate bounds how
	// often they start. If neither the run nor its Runner bounds keys, Key has no effect, and the Result has a warning.
	Key string
	// KeyFrom names the value that is the node's concurrency key, instead of Key. It is the name of a parameter of the node or, if the node has no
	// such parameter, the name of a root input. A path into the value may follow, as in "order.customer". In a map of steps, "item", "index" and paths
	// into the item are possible, too. If the value is a text of at most 1,000 bytes, a number or a boolean, the key is this value as text. Any other
	// value fails the node with [CauseContractInput]. If there is no value, and KeyFrom names an optional port or input, the node runs without a key.
	// Otherwise a missing value fails the node, too. Compile reports a KeyFrom that names neither a parameter nor a possible root input.
	KeyFrom string

	// Ports declares the node's inputs. A node with ports is skipped when a required port has no value.
	Ports []Port
	// Merge is the strategy for edges that share a Param, if none of these edges names a strategy. It is [MergeLast] (the default), [MergeConcat],
	// [MergeArray], [MergeObject], or a name registered with [Graph.RegisterMerge].
	Merge string
	// Outputs declares the ports of the node's output: the names in an [Outputs], or the keys or fields of another output. The Key of an edge must
	// then be "output", one of these ports, or a path into one of them: Compile reports any other Key. If Outputs is empty, an edge may have any Key.
	Outputs []string
	// MergeJSON renders the result of [MergeArray] and [MergeObject] as JSON text.
	MergeJSON bool

	// InputSchema is the contract of the node's parameters, as one object: a [Contract], or data that the graph's Schemas compiles into a Contract.
	// The parameters are checked once, before the first attempt. If they violate the contract, the node fails with [CauseContractInput], and the step
	// is not called.
	InputSchema any
	// OutputSchema is the contract of the node's output. An output that violates the contract fails the attempt with [CauseContractOutput]. The
	// node is retried if RetryOn lists this cause.
	OutputSchema any
	// Moderation selects what the run's moderator judges: the node's inputs, its output or both. See [Moderate]. If the moderator refuses a value, the
	// node fails with [CauseModeration] and is not retried.
	Moderation Moderation
}

// CompensateBy makes the step function of a run undo a node: the function gets a Step with this Kind and this Config. The output of the function
// is dropped.
type CompensateBy struct {
	Kind   string
	Config any
}

// Port declares one input of a node.
type Port struct {
	Name     string
	Required bool
	// Default is the port's value if there is no other value.
	Default any
}

// Edge makes node To follow node From, and determines which value To gets.
//
// Suppose that To has the join rule [AllSucceeded] or [Boundary], and that other in-edges of To have a Label or wait for a failure. A plain edge
// then delivers data only. It delays To, and delivers its value. Under [AllSucceeded] it also blocks To if From fails. But it does not make To run:
// if it did, the labels would have no effect. There is one exception. Suppose that an edge from node X to To has a Label or waits for a failure. If
// another label or outcome of X leads to the plain edge, directly or through other nodes, the plain edge also makes To run. See the package
// documentation. [Plan.Edges] shows which plain edges deliver data only.
type Edge struct {
	From string
	// To may be empty in an edge of Node.In.
	To string
	// On is the outcome of From for which the edge waits. Default: [OnSuccess].
	On On
	// Causes restricts an [OnFailure] edge to failures of these kinds. If Causes is empty, the edge accepts any failure, even if From never
	// ran because an earlier node failed. [CauseUpstreamFailure] and [CauseUpstreamCancelled] count as the same kind.
	Causes []CauseKind
	// Label restricts the edge to one branch of a condition. The branch "default" is taken if no other branch matches. If an edge into the end node
	// has a Label, it delivers its value only if its branch is taken. The end node runs in any case.
	Label string
	// Key selects a port of From's output. Default: the port with the name Label if there is one, and otherwise "output". The Key "output" selects the
	// whole value, unless the output has a port of that name. If the output has no port named Key, Key is a path, as in "user.name". The path leads
	// into maps with string keys and into exported fields of structs, by their JSON or Go names. If From declares Outputs, Key must be "output", one
	// of the Outputs, or a path into one of them.
	Key string
	// Param names the parameter of To that gets the value. Without Param, the value is not a parameter: To gets it by From's id, see [Upstream].
	Param string
	// Merge is the strategy for the edges that share Param. Edges that share a Param must not name different strategies.
	Merge string
	// DataOnly makes the edge deliver a value and delay To until From has ended. The edge does not decide whether To runs.
	DataOnly bool
	// Default is the value that the edge delivers under [UpstreamSubstitute] if From did not complete. If it is nil, the edge delivers the Default of
	// node To.
	Default any
}

// On is an outcome of an edge's source. The edge waits for this outcome.
type On uint8

// The outcomes an edge can wait for.
const (
	OnSuccess On = iota // the source completed
	OnFailure           // a catch edge: the source failed or was aborted; if a catch edge accepts the failure, the source's OnSuccess edges are dead
	OnAlways            // the source ended, in any status

	onCount
)

var onNames = enum.Of[On]("on", "success", "failure", "always")

// String returns "success", "failure" or "always".
func (o On) String() string { return onNames.Name(o) }

// MarshalText encodes o as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (o On) MarshalText() ([]byte, error) { return onNames.Text(o) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (o *On) UnmarshalText(text []byte) error { return onNames.Parse(o, text) }

// stray is an edge that the In of a node contains, although the edge leads to another node.
type stray struct {
	node string
	edge Edge
}

// link is an Edge as a graph stores it. Edges that set only From and To share noTerms.
type link struct {
	from, to string
	*terms
}

// terms are the fields of an Edge except From and To.
type terms struct {
	On                       On
	DataOnly                 bool
	Causes                   []CauseKind
	Label, Key, Param, Merge string
	Default                  any
}

var noTerms terms

// hasTerms reports whether a field other than From and To is set.
func (e *Edge) hasTerms() bool {
	return e.On != OnSuccess || e.DataOnly || e.Causes != nil || e.Label != "" || e.Key != "" || e.Param != "" || e.Merge != "" || e.Default != nil
}

// edge returns the Edge with these terms.
func (t *terms) edge(from, to string) Edge {
	return Edge{
		From: from, To: to, On: t.On, Causes: t.Causes, Label: t.Label, Key: t.Key, Param: t.Param, Merge: t.Merge,
		DataOnly: t.DataOnly, Default: t.Default,
	}
}

// connect appends edge e. The parameter `to` is the id of the edge's target. If the edge has terms, connect stores them in the first element of the
// slice `room`. It returns the unused part of `room`.
func (g *Graph) connect(e *Edge, to string, room []terms) []terms {
	l := link{e.From, to, &noTerms}
	if e.hasTerms() {
		l.terms, room = &room[0], room[1:]
		*l.terms = terms{e.On, e.DataOnly, e.Causes, e.Label, e.Key, e.Param, e.Merge, e.Default}
	}
	g.edges = append(g.edges, l)
	return room
}

// countTerms counts the edges that set fields other than From and To.
func countTerms(edges []Edge) (n int) {
	for i := range edges {
		if edges[i].hasTerms() {
			n++
		}
	}
	return n
}

// reserve makes room for n more elements. If the capacity of the slice is too small, reserve makes room for at least len(s) more elements, so that
// building a graph node by node takes linear time.
func reserve[T any](s []T, n int) []T {
	if cap(s)-len(s) < n {
		s = slices.Grow(s, max(n, len(s)))
	}
	return s
}

// Add appends nodes and their edges: for each node, first the edges of its After, then the edges of its In. Add validates nothing: Compile does.
// Add copies the edges, but keeps the other slices and maps of a node: do not change them afterwards.
func (g *Graph) Add(nodes ...Node) *Graph {
	g.changed()
	edges, with := 0, 0
	for i := range nodes {
		edges += len(nodes[i].After) + len(nodes[i].In)
		with += countTerms(nodes[i].In)
	}
	if len(g.space) < len(nodes) {
		g.space = make([]node, max(len(nodes), min(len(g.nodes), 64)))
	}
	g.nodes, g.edges = reserve(g.nodes, len(nodes)), reserve(g.edges, edges)
	room := make([]terms, with)
	for i := range nodes {
		n, kept := &nodes[i], &g.space[i]
		for _, from := range n.After {
			g.edges = append(g.edges, link{from, n.ID, &noTerms})
		}
		for j := range n.In {
			e := &n.In[j]
			if e.To != "" && e.To != n.ID {
				g.strays = append(g.strays, stray{n.ID, *e})
			}
			room = g.connect(e, n.ID, room)
		}
		kept.keep(n)
		g.nodes = append(g.nodes, kept)
	}
	g.space = g.space[len(nodes):]
	return g
}

// Connect appends edges to the graph, after the edges that the graph already has.
func (g *Graph) Connect(edges ...Edge) *Graph {
	g.changed()
	g.edges = reserve(g.edges, len(edges))
	room := make([]terms, countTerms(edges))
	for i := range edges {
		room = g.connect(&edges[i], edges[i].To, room)
	}
	return g
}

// RegisterMerge registers fn as the merge strategy with the given name, for edges that share a parameter. fn gets at least one delivered value. The
// order of the values is the order in which their edges were declared. An error or a panic of fn fails the node with [CauseMergeError]. Compile
// reports a nil fn, and a name that is already used.
func (g *Graph) RegisterMerge(name string, fn func([]Contribution) (any, error)) *Graph {
	g.changed()
	if g.merges == nil {
		g.merges = map[string]func([]Contribution) (any, error){}
	}
	if _, taken := g.merges[name]; taken || builtinMerge(name) {
		fn = nil
	}
	g.merges[name] = fn
	return g
}

// Nodes returns a copy of the graph's nodes in the order of their declaration. Their After and In are empty: all edges
// are in Edges.
func (g *Graph) Nodes() []Node {
	nodes := make([]Node, len(g.nodes))
	for i, n := range g.nodes {
		nodes[i] = n.whole()
	}
	return nodes
}

// Edges returns a copy of the graph's edges in the order of their declaration.
func (g *Graph) Edges() []Edge {
	edges := make([]Edge, len(g.edges))
	for i := range g.edges {
		l := &g.edges[i]
		edges[i] = l.edge(l.from, l.to)
	}
	return edges
}

// Merges returns the names of the registered merge strategies, sorted.
func (g *Graph) Merges() []string {
	if len(g.merges) == 0 {
		return nil // slices.Sorted would also return nil, but allocates three times
	}
	return slices.Sorted(maps.Keys(g.merges))
}

// The method `changed` counts a change of the graph and drops the plan. It takes no lock, since callers must not change a graph while it is in use.
func (g *Graph) changed() {
	g.version++
	if g.fresh {
		g.fresh, g.plan, g.err, g.subs = false, nil, nil, nil
	}
}

// Compile validates the graph and prepares it for execution. The graph keeps its Plan until it changes, so calling Compile again costs little.
//
// The error of Compile is a [*GraphError] with all problems that Compile has found. Some problems hide others: Compile reports the others when the
// first problems are solved. errors.Is and errors.As find each problem. The problems match [ErrCycle], [ErrUnknownNode], [ErrDuplicateNode],
// [ErrDuplicateEdge], [ErrBadValue], [ErrBadEdge], [ErrBadJoin], [ErrBadEnd], [ErrMergeConflict], [ErrUnboundPort], [ErrUnknownInput],
// [ErrMissingInput], [ErrNoEvaluator], [ErrBadExpression], [ErrNoSchemas] or [ErrBadSchema]. If g is nil, the error is [ErrNoGraph].
func (g *Graph) Compile() (*Plan, error) {
	if g == nil {
		return nil, ErrNoGraph
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current() {
		return g.plan, g.err
	}
	p, subs, err := g.compileUnlocked()
	if g.current() { // another goroutine has compiled the graph meanwhile, and all callers get the same plan
		return g.plan, g.err
	}
	g.plan, g.subs, g.err, g.fresh = p, subs, err, true
	g.baked = g.settings()
	return p, err
}

// The method `current` reports whether the plan is up to date. The caller holds g.mu.
func (g *Graph) current() bool {
	return g.fresh && g.baked.of(g) && !slices.ContainsFunc(g.subs, func(x compiledGraph) bool { return x.changed() })
}

func (g *Graph) settings() settings {
	return settings{g.Name, g.Defaults, slices.Clone(g.Inputs), slices.Clone(g.Groups), g.Evaluator, g.StrictGuards, g.Schemas}
}

// compileUnlocked compiles the graph. The caller holds g.mu. compileUnlocked releases g.mu meanwhile, because it calls user code: the evaluator and
// the schema compiler.
func (g *Graph) compileUnlocked() (*Plan, []compiledGraph, error) {
	g.mu.Unlock()
	defer g.mu.Lock()
	var n nesting
	n.within = n.outermost[:0]
	p, err := n.compileAll(g)
	return p, n.seen, err
}

// The method `of` reports whether the graph still has the settings s.
func (s *settings) of(g *Graph) bool {
	return s.name == g.Name && sameDefaults(s.defaults, g.Defaults) && slices.EqualFunc(s.inputs, g.Inputs, sameInput) && slices.Equal(s.groups, g.Groups) &&
		same(s.evaluator, g.Evaluator) && s.strictGuards == g.StrictGuards && same(s.schemas, g.Schemas)
}

// The function `same` reports whether two values of user types are equal. Values that are not comparable count as different.
func same(a, b any) bool {
	return a == nil && b == nil || reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// The method `or` returns a copy of d in which the fields of outer replace the zero fields.
func (d Defaults) or(outer *Defaults) Defaults {
	d.SkipMode = cmp.Or(d.SkipMode, outer.SkipMode)
	d.OnUpstreamFailure = cmp.Or(d.OnUpstreamFailure, outer.OnUpstreamFailure)
	d.GuardErrors = cmp.Or(d.GuardErrors, outer.GuardErrors)
	if d.Retry.isZero() {
		d.Retry = outer.Retry
	}
	d.Timeout = cmp.Or(d.Timeout, outer.Timeout)
	return d
}

func sameDefaults(a, b Defaults) bool {
	return a.SkipMode == b.SkipMode && a.OnUpstreamFailure == b.OnUpstreamFailure && a.GuardErrors == b.GuardErrors && a.Timeout == b.Timeout &&
		a.Retry.equal(b.Retry)
}

// InputError reports that the root inputs of a run are not the inputs that the graph declares: see Graph.Inputs. It matches [ErrUnknownInput] if
// Unknown is not empty, and [ErrMissingInput] if Missing is not empty.
type InputError struct {
	Unknown  []string // inputs that were given but are not declared, sorted
	Missing  []string // inputs that were not given, are not Optional and have no Default, in the order of declaration
	Declared []string // all declared inputs, in the order of declaration
}

// Error names at most five unknown and five missing inputs. For an unknown input it lists the declared inputs and
// suggests a similar name.
func (e *InputError) Error() string {
	const most = 5
	var parts []string
	add := func(kind error, names []string, rest func(name string) string) {
		for i, name := range names {
			if i == most {
				parts = append(parts, fmt.Sprintf("%v: %d more", kind, len(names)-most))
				break
			}
			parts = append(parts, fmt.Sprintf("%v: %s%s", kind, quoteID(name), rest(name)))
		}
	}
	add(ErrUnknownInput, e.Unknown, func(name string) string { return instead(name, e.Declared) })
	add(ErrMissingInput, e.Missing, func(string) string { return "" })
	return strings.Join(parts, "; ")
}

// Is returns true for [ErrUnknownInput] if Unknown is not empty, and for [ErrMissingInput] if Missing is not empty.
func (e *InputError) Is(target error) bool {
	return target == ErrUnknownInput && len(e.Unknown) > 0 || target == ErrMissingInput && len(e.Missing) > 0
}

// The method `required` reports whether the host must give a run the input.
func (in *Input) required() bool { return !in.Optional && in.Default == nil }

// sameInput reports whether two declarations are equal. If a Default is a map or a slice, both declarations share it, so sameInput does not
// notice a change of an element. The host must not change such a Default after Compile.
func sameInput(a, b Input) bool {
	return a.Name == b.Name && a.Optional == b.Optional && reflect.DeepEqual(a.Default, b.Default)
}

// checkInputs reports inputs in the map `given` that are not declared, and required inputs that are missing from the map `has`. The two maps differ
// if the run continues from a snapshot or a store.
func (p *Plan) checkInputs(given, has map[string]any) error {
	if len(p.inputs) == 0 {
		return nil
	}
	var e InputError
	for name := range given {
		if p.input(name) == nil {
			e.Unknown = append(e.Unknown, name)
		}
	}
	for i := range p.inputs {
		in := &p.inputs[i]
		if _, ok := has[in.Name]; !ok && in.required() {
			e.Missing = append(e.Missing, in.Name)
		}
	}
	if len(e.Unknown)+len(e.Missing) == 0 {
		return nil
	}
	slices.Sort(e.Unknown)
	e.Declared = p.inputNames()
	return &e
}

// input returns the declared input with this name, or nil.
func (p *Plan) input(name string) *Input {
	if i, ok := p.inputIndex[name]; ok {
		return &p.inputs[i]
	}
	return nil
}

// notInput returns an error if no run of the graph can have a root input with this name, and otherwise nil. A graph that does not declare its
// Inputs accepts any name. The nested runs of a map or a loop also have the inputs that the engine adds, such as "item".
func (p *Plan) notInput(name string) error {
	if len(p.inputs) == 0 || p.input(name) != nil {
		return nil
	}
	switch name {
	case inputItem, inputIndex, inputIteration, inputPrevious:
		return nil
	}
	return fmt.Errorf("%w: %s%s", ErrUnknownInput, quoteID(name), instead(name, p.inputNames()))
}

// inputNames lists the declared inputs.
func (p *Plan) inputNames() []string {
	names := make([]string, len(p.inputs))
	for i := range p.inputs {
		names[i] = p.inputs[i].Name
	}
	return names
}

// indexInputs validates Graph.Inputs.
func (c *compiler) indexInputs() {
	if len(c.g.Inputs) == 0 {
		return
	}
	inputs := slices.Clone(c.g.Inputs)
	index := make(map[string]int, len(inputs))
	for i := range inputs {
		name := inputs[i].Name
		_, taken := index[name]
		if text, is := named("input", i+1, name, taken); is {
			c.add("Inputs: %w: %s", ErrBadValue, text).Field = fmt.Sprintf("Inputs[%d]", i)
		}
		index[name] = i
	}
	c.inputs, c.inputIndex = inputs, index
}

// checkOver reports a map if its Over names a parameter that no edge, static value or port provides. A map with neither ports nor in-edges gets the
// root inputs of its run, so a root input may also provide the parameter of this map.
func (c *compiler) checkOver(r machine.Ref) {
	p, n := c.p, c.p.node(r)
	if c.isPruned || n.Map.Over == "" {
		return
	}
	given := c.givenTo(r)
	if given[n.Map.Over] {
		return
	}
	if len(n.Ports) == 0 && len(p.net.In(r)) == 0 {
		if p.notInput(n.Map.Over) == nil {
			return
		}
		for _, name := range p.inputNames() {
			given[name] = true
		}
	}
	if p.input(n.Map.Over) != nil {
		c.ofNode(n.ID, "Map.Over", "%w: Map.Over names the root input %s, but a node with Ports or predecessors gets a root input only by a port: add a port with this name", ErrBadValue,
			quoteID(n.Map.Over))
		return
	}
	end := ""
	if p.follows(r, n.Map.Over) {
		end = nameless(n.Map.Over)
	}
	c.ofNode(n.ID, "Map.Over", "%w: Map.Over names the parameter %s, which nothing provides%s%s", ErrBadValue, quoteID(n.Map.Over),
		c.instead(n.Map.Over, func() []string { return slices.Sorted(maps.Keys(given)) }), end)
}

func (c *compiler) checkKey(n *node, bad report) {
	switch {
	case n.KeyFrom == "":
	case n.Key != "":
		bad(ErrBadValue, "KeyFrom", "it has both a Key and a KeyFrom")
	case n.Map != nil && n.Map.Key != nil:
		bad(ErrBadValue, "KeyFrom", "it has both a Map.Key and a KeyFrom")
	case !n.ownStep():
		bad(ErrBadValue, "KeyFrom", "KeyFrom is for steps and maps of steps: this node never holds a slot")
	}
}

// bindKeys finds, for each KeyFrom, the parameter with this name or, if there is none, the root input. It warns of a Key that looks like a
// template.
func (c *compiler) bindKeys() {
	p := c.p
	for _, r := range p.declared {
		n := p.node(r)
		if strings.Contains(n.Key, "{{") {
			c.warn(problemOf(n.ID, "Key", "%w: Key %s is not expanded like a template, so all runs have this same key: to take the key from a value, name the value in KeyFrom", ErrBadValue, quoteID(n.Key)))
		}
		if n.KeyFrom == "" {
			continue
		}
		if p.keySources == nil {
			p.rare().keySources = map[machine.Ref]keySource{}
		}
		p.keySources[r] = c.keySource(r, c.givenTo(r))
	}
}

// keySource finds where a node's key comes from. A dot in KeyFrom may be part of a name, or may separate a name from a path into its value. So
// keySource chooses the longest name for which there is a value.
func (c *compiler) keySource(r machine.Ref, given map[string]bool) keySource {
	p, n := c.p, c.p.node(r)
	takes := func(name string) (x keySource, ok bool) {
		switch {
		case n.Map != nil && (name == inputItem || name == inputIndex):
			return keySource{item: true}, true
		case given[name]:
			port := slices.IndexFunc(n.Ports, func(port Port) bool { return port.Name == name })
			return keySource{optional: port >= 0 && !n.Ports[port].Required}, true
		case p.input(name) != nil:
			return keySource{root: true, optional: !p.input(name).required()}, true
		}
		return keySource{root: true}, false
	}
	for end := len(n.KeyFrom); end > 0; end = strings.LastIndexByte(n.KeyFrom[:end], '.') {
		if x, ok := takes(n.KeyFrom[:end]); ok {
			x.name, x.path = n.KeyFrom[:end], strings.TrimPrefix(n.KeyFrom[end:], ".")
			return x
		}
	}
	name, path, _ := strings.Cut(n.KeyFrom, ".")
	if p.notInput(name) != nil && !c.isPruned {
		c.ofNode(n.ID, "KeyFrom", "%w: KeyFrom names %s, which nothing provides%s", ErrBadValue, quoteID(name), c.instead(name, func() []string {
			return append(slices.Sorted(maps.Keys(given)), p.inputNames()...)
		}))
	}
	return keySource{name: name, path: path, root: true}
}

// The method `follows` reports whether an edge leads from the node named id to ref.
func (p *Plan) follows(ref machine.Ref, id string) bool {
	return slices.ContainsFunc(p.net.In(ref), func(i int32) bool { return p.names[p.net.Source(i)] == id })
}

// nameless returns the end of an error message about an unknown parameter whose name is the id of a predecessor.
func nameless(id string) string {
	return "; the edge from " + quoteID(id) + " needs a Param to deliver a parameter"
}

// givenTo returns the names of the parameters that edges, static values and ports provide to a node.
func (c *compiler) givenTo(r machine.Ref) map[string]bool {
	p, n := c.p, c.p.node(r)
	given := map[string]bool{}
	if in := p.inputsOf(r); in != nil {
		for i := range in.params {
			given[in.params[i].name] = true
		}
	}
	for name := range n.Params {
		given[name] = true
	}
	for i := range n.Ports {
		given[n.Ports[i].Name] = true
	}
	return given
}

// checkInputsOf compares the parameters of a composite with the inputs that the composite's graph declares, since the parameters become the inputs
// of the nested runs. A composite with neither in-edges nor ports passes the inputs of its own run to its nested runs.
func (c *compiler) checkInputsOf(r machine.Ref, sub *Plan) {
	if len(sub.inputs) == 0 {
		return
	}
	p := c.p
	n := p.node(r)
	given := c.givenTo(r)
	handsOn := len(n.Ports) == 0 && len(p.net.In(r)) == 0
	for i := range sub.inputs {
		in := &sub.inputs[i]
		if !in.required() || given[in.Name] || n.instanceInput(in.Name) || c.isPruned {
			continue
		}
		outer := p.input(in.Name)
		switch {
		case !handsOn || outer == nil:
			c.ofNode(n.ID, "", "%w: nothing provides the input %s of its graph", ErrUnboundPort, quoteID(in.Name))
		case outer.Optional && outer.Default == nil:
			c.ofNode(n.ID, "", "%w: its graph requires the input %s, but the surrounding graph declares this input as Optional and without a Default", ErrUnboundPort, quoteID(in.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if sub.input(name) == nil && (n.Map == nil || name != n.Map.Over) {
			c.ofNode(n.ID, "", "%w of its graph: %s%s", ErrUnknownInput, quoteID(name), c.instead(name, sub.inputNames))
		}
	}
}
