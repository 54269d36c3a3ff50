package typed

import (
	"context"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Options are the fields of a [kahn.Node] that the host may set for a typed node. They have the same meaning as in kahn.Node. The pipeline sets the
// other fields itself.
type Options struct {
	Kind, Label string
	Config      any

	// After lists nodes that must end before this node runs; the node does not take their values.
	After []Handle
	// Join decides, from the statuses of the preceding nodes, whether this node runs. In a branch only kahn.AllSucceeded is allowed; for an [Either],
	// kahn.AnySucceeded is allowed in any block. Rules that may decide before all preceding nodes have ended are allowed only for nodes that take no
	// values. If a rule lets a node run although one of its values does not exist, the node ends as skipped.
	Join                              kahn.Join
	OnUpstreamFailure                 machine.UpstreamPolicy // kahn.UpstreamSubstitute is an error, because its defaults have no type
	Handling                          kahn.Handling
	CancelLosers, CancelOnLateFailure bool
	ContinueOnFail, Cleanup, Critical bool
	Memo, MemoName                    string
	MemoKey                           func(s *kahn.Step) (string, error)
	Files                             []string
	Retry                             kahn.Retry
	Timeout, OverallTimeout           time.Duration
	CompensateBy                      *kahn.CompensateBy // needs the step function of the run; [Val.Compensate] sets a Go function instead
	CompensateRetry                   kahn.Retry
	CompensateTimeout                 time.Duration
	MaxCrashes, Priority              int
	Estimate                          time.Duration
	Groups                            []string
	Key, KeyFrom                      string
	Gate                              *kahn.Gate
	OutputSchema                      any
}

// The method set applies the options to a node.
func (o *Options) set(n *kahn.Node) {
	n.Kind, n.Label, n.Config = o.Kind, o.Label, o.Config
	n.Join, n.OnUpstreamFailure, n.Handling = o.Join, o.OnUpstreamFailure, o.Handling
	n.CancelLosers, n.CancelOnLateFailure = o.CancelLosers, o.CancelOnLateFailure
	n.ContinueOnFail, n.Cleanup, n.Critical = o.ContinueOnFail, o.Cleanup, o.Critical
	n.MemoName, n.MemoKey, n.Files = o.MemoName, o.MemoKey, o.Files
	n.Memo, n.Retry, n.Timeout, n.OverallTimeout = o.Memo, o.Retry, o.Timeout, o.OverallTimeout
	n.CompensateBy, n.CompensateRetry, n.CompensateTimeout = o.CompensateBy, o.CompensateRetry, o.CompensateTimeout
	n.MaxCrashes, n.Priority, n.Estimate = o.MaxCrashes, o.Priority, o.Estimate
	n.Groups, n.Key, n.KeyFrom, n.OutputSchema = o.Groups, o.Key, o.KeyFrom, o.OutputSchema
}

// The method gate returns the gate of a node that has the options o. If the function [Gate] made the node, its gate first checks the type of an
// answer, and then calls the Check of o.Gate, if there is one.
func (o *Options) gate(typed *kahn.Gate) *kahn.Gate {
	switch {
	case o == nil || o.Gate == nil:
		return typed
	case typed == nil:
		return o.Gate
	}
	both := *o.Gate
	both.Check = func(answer any) error {
		if err := typed.Check(answer); err != nil || o.Gate.Check == nil {
			return err
		}
		return o.Gate.Check(answer)
	}
	return &both
}

// With sets the options of the node that makes the value, and returns the value. With may be called once for each node:
//
//	paid := typed.Do1(b, "pay", pay, order).With(typed.Options{Retry: kahn.RetryStandard(), Timeout: time.Minute})
func (v Val[T]) With(o Options) Val[T] {
	src := v.src
	if src == nil {
		return v
	}
	build := src.block.in.build
	switch {
	case src.input:
		build.report("input %q: %w: With is for the values of nodes, and this is an input", src.id, kahn.ErrBadValue)
		return v
	case src.opts != nil:
		build.report("node %q: %w: With was called before: give all options at once", src.id, kahn.ErrBadValue)
		return v
	case build.over(src.id):
		return v
	}
	src.more().opts = &o
	for i, h := range o.After {
		src.follow(h, i+1)
	}
	src.checkOptions()
	return v
}

// Fallback sets the function that produces the value if the node has failed after all retries: see Fallback of [kahn.Node].
func (v Val[T]) Fallback(f func(ctx context.Context, err error) (T, error)) Val[T] {
	switch {
	case v.src == nil:
	case v.src.input, f == nil:
		v.src.block.in.build.report("%q: %w: Fallback needs the value of a node, and a function that is not nil", v.src.id, kahn.ErrBadValue)
	case v.src.block.in.build.over(v.src.id):
	default:
		v.src.more().fallback = func(ctx context.Context, err error) (any, error) {
			t, err := f(ctx, err)
			if err != nil {
				return nil, err
			}
			return t, nil
		}
	}
	return v
}

// follow makes the node run after another node. The parameter "number" is the position of the handle in its list, from 1.
func (src *source) follow(h Handle, number int) {
	build := src.block.in.build
	var of *source
	if h != nil {
		of = h.source()
	}
	switch {
	case of == nil:
		build.report("node %q: %w: number %d of its After is the zero Val, which no node makes", src.id, kahn.ErrBadValue, number)
	case of.input:
		build.report("node %q: %w: its After lists the input %q, but a node can follow only nodes", src.id, kahn.ErrBadValue, of.id)
	case of.block.in != src.block.in:
		build.report("node %q follows %q, %w: a node can follow only nodes of its own pipeline, such as the node of a sub-pipeline", src.id, of.id, ErrElsewhere)
	default:
		more := src.more()
		more.follows = append(more.follows, of)
	}
}

// laterJoins are the join rules under which a node runs only after all preceding nodes have ended.
var laterJoins = []kahn.Join{0, kahn.AllSucceeded, kahn.AllDone, kahn.AllDoneMinOne, kahn.NoneFailed, kahn.NoneSkipped}

// checkOptions reports options that do not fit the node.
func (src *source) checkOptions() {
	o, build := src.opts, src.block.in.build
	bad := func(format string, args ...any) {
		build.report("node %q: %w: "+format, append([]any{src.id, kahn.ErrBadValue}, args...)...)
	}
	if o.OnUpstreamFailure == kahn.UpstreamSubstitute {
		bad("OnUpstreamFailure %v delivers defaults that have no type: use Try", o.OnUpstreamFailure)
	}
	if o.Gate != nil && o.Gate.OnTimeout == kahn.GateLabel && !src.text {
		bad("under OnTimeout %v the value of the gate can be \"timeout\", but the type of its value is not a string", o.Gate.OnTimeout)
	}
	if src.gate != nil && o.Kind != "" {
		bad("the Kind of a Gate is always %q: leave Kind empty", kahn.KindGate)
	}
	if o.Kind == kahn.KindEnd || o.Kind == kahn.KindTrigger || o.Kind == kahn.KindGate && src.gate == nil {
		bad("Kind %q has a meaning of its own: see Block.Graph and Gate", o.Kind)
	}
	if src.tries != nil && (o.Join != 0 || o.Cleanup) {
		bad("a Try cannot have a Join or be a Cleanup")
	}
	early := !slices.Contains(laterJoins, o.Join)
	if src.either && (o.Cleanup || o.Join != 0 && o.Join != kahn.AllSucceeded && o.Join != kahn.AnySucceeded) {
		bad("the Join of an Either is %v or %v, not %v", kahn.AllSucceeded, kahn.AnySucceeded, o.Join)
	} else if !src.either && early && len(src.takes)+len(src.imports) > 0 {
		bad("Join %v would let the node run before it has all its values: take the values by Either, or only list their nodes in After", o.Join)
	}
	if !src.either && src.ownJoin() && src.block.parent != nil {
		bad("its Join or Cleanup would let it run even if %v is not taken: add it to the surrounding block, or to a sub-pipeline", src.block)
	}
}

// ownJoin reports whether the node has a join rule other than AllSucceeded. A cleanup node has such a rule.
func (src *source) ownJoin() bool {
	o := src.opts
	return o != nil && (o.Cleanup || o.Join != 0 && o.Join != kahn.AllSucceeded)
}
