package kahn

import "time"

// node is a Node as graphs and plans store it, without its edges. A Node is large and most of its fields are zero: the less common
// ones are in nodeExtras, and all nodes without any of them share noExtras. The nodes of a graph are never written to once they are
// added, since plans refer to them.
type node struct {
	ID, Kind, Label   string
	Config            any
	Params            map[string]any
	Do                StepFunc
	Test              func(View) (any, error)
	When              func(View) (bool, error)
	Timeout           time.Duration
	Estimate          time.Duration
	Priority          int
	Key               string
	Join              Join
	SkipMode          SkipMode
	OnUpstreamFailure UpstreamPolicy
	GuardErrors       GuardPolicy
	NoMatch           NoMatch
	Moderation        Moderation

	Routes, Disabled, HandlesFailure, CancelLosers, CancelOnLateFailure, ContinueOnFail, Cleanup, Critical, MergeJSON bool

	*nodeExtras
}

// nodeExtras are the fields of a Node that few nodes have.
type nodeExtras struct {
	TestExpr, WhenExpr        string
	Sub                       *Graph
	Map                       *Map
	Loop                      *Loop
	Choices                   []string
	Gate                      *Gate
	Default                   any
	Fallback                  FallbackFunc
	Memo                      string
	Retry                     Retry
	OverallTimeout            time.Duration
	MaxCrashes                int
	Groups                    []string
	Ports                     []Port
	Merge                     string
	Outputs                   []string
	InputSchema, OutputSchema any
}

var noExtras nodeExtras

// hasExtras reports whether a node has some of the less common fields.
func (n *Node) hasExtras() bool {
	return n.TestExpr != "" || n.WhenExpr != "" || n.Sub != nil || n.Map != nil || n.Loop != nil || n.Choices != nil || n.Gate != nil ||
		n.Default != nil || n.Fallback != nil || n.Memo != "" || !n.Retry.isZero() || n.OverallTimeout != 0 || n.MaxCrashes != 0 || n.Groups != nil ||
		n.Ports != nil || n.Merge != "" || n.Outputs != nil || n.InputSchema != nil || n.OutputSchema != nil
}

// keep stores the fields of a Node in n, which is zero.
func (n *node) keep(from *Node) {
	n.ID, n.Kind, n.Label, n.Config, n.Params = from.ID, from.Kind, from.Label, from.Config, from.Params
	n.Do, n.Test, n.When, n.Timeout, n.Estimate, n.Priority, n.Key = from.Do, from.Test, from.When, from.Timeout, from.Estimate, from.Priority, from.Key
	n.Join, n.SkipMode, n.OnUpstreamFailure, n.GuardErrors = from.Join, from.SkipMode, from.OnUpstreamFailure, from.GuardErrors
	n.NoMatch, n.Moderation = from.NoMatch, from.Moderation
	n.Routes, n.Disabled, n.HandlesFailure, n.CancelLosers = from.Routes, from.Disabled, from.HandlesFailure, from.CancelLosers
	n.CancelOnLateFailure, n.ContinueOnFail, n.Cleanup = from.CancelOnLateFailure, from.ContinueOnFail, from.Cleanup
	n.Critical, n.MergeJSON = from.Critical, from.MergeJSON
	if n.nodeExtras = &noExtras; from.hasExtras() {
		n.nodeExtras = &nodeExtras{
			TestExpr: from.TestExpr, WhenExpr: from.WhenExpr, Sub: from.Sub, Map: from.Map, Loop: from.Loop, Choices: from.Choices,
			Gate: from.Gate, Default: from.Default, Fallback: from.Fallback, Memo: from.Memo, Retry: from.Retry,
			OverallTimeout: from.OverallTimeout, MaxCrashes: from.MaxCrashes, Groups: from.Groups, Ports: from.Ports, Merge: from.Merge, Outputs: from.Outputs,
			InputSchema: from.InputSchema, OutputSchema: from.OutputSchema,
		}
	}
}

// whole returns the Node, with After and In empty.
func (n *node) whole() Node {
	return Node{
		ID: n.ID, Kind: n.Kind, Label: n.Label, Config: n.Config, Params: n.Params, Do: n.Do, Test: n.Test, When: n.When,
		Timeout: n.Timeout, Estimate: n.Estimate, Priority: n.Priority, Key: n.Key, Join: n.Join, SkipMode: n.SkipMode,
		OnUpstreamFailure: n.OnUpstreamFailure, GuardErrors: n.GuardErrors, NoMatch: n.NoMatch, Moderation: n.Moderation,
		Routes: n.Routes, Disabled: n.Disabled, HandlesFailure: n.HandlesFailure, CancelLosers: n.CancelLosers,
		CancelOnLateFailure: n.CancelOnLateFailure, ContinueOnFail: n.ContinueOnFail, Cleanup: n.Cleanup, Critical: n.Critical,
		MergeJSON: n.MergeJSON,
		TestExpr:  n.TestExpr, WhenExpr: n.WhenExpr, Sub: n.Sub, Map: n.Map, Loop: n.Loop, Choices: n.Choices,
		Gate: n.Gate, Default: n.Default, Fallback: n.Fallback, Memo: n.Memo, Retry: n.Retry,
		OverallTimeout: n.OverallTimeout, MaxCrashes: n.MaxCrashes, Groups: n.Groups, Ports: n.Ports, Merge: n.Merge, Outputs: n.Outputs,
		InputSchema: n.InputSchema, OutputSchema: n.OutputSchema,
	}
}

// own returns the plan's own copy of a node, which may be written to.
func (c *compiler) own(r Ref) *node {
	n := &c.p.nodes[r]
	if declared := c.g.nodes[c.p.decl[r]]; *n == declared {
		own := *declared
		*n = &own
	}
	return *n
}

// setRetry replaces the Retry of a node. All nodes without extras that get the default Retry share one nodeExtras.
func (c *compiler) setRetry(r Ref, retry Retry, isDefault bool) {
	n := c.own(r)
	if isDefault && n.nodeExtras == &noExtras && c.defaulted != nil {
		n.nodeExtras = c.defaulted
		return
	}
	extras := *n.nodeExtras
	extras.Retry = retry
	if isDefault && n.nodeExtras == &noExtras {
		c.defaulted = &extras
	}
	n.nodeExtras = &extras
}
