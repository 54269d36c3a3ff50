package kahn

import (
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// NewState returns the state of a run that has not begun: disabled nodes are skipped, roots are ready. It uses these
// options: modes, failure modes, stop modes, suspend modes, [Limit], [KeyLimit], the rates and, for [machine.State.RunStatusSignal], the status rules.
// In place of [Fire] use [Plan.Prune].
func NewState(p *Plan, opts ...Option) (*machine.State, error) {
	var c config
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if !p.isCompiled() {
		return nil, ErrNoGraph
	}
	x := c.setup(p)
	return machine.New(&p.net, &x), nil
}

// RestoreState returns the State of a run that goes on from a snapshot, with the options of [NewState]. The [Mode] has to be that of the State
// that was taken. Any other option may have another value, which is in force from now on: a limit below the number of nodes that run lets
// none start until enough have ended. Gates that were handed out and not reported come first, by Ref, then those that were not, in the
// order in which they became ready.
//
// The error matches [ErrGraphChanged] if the snapshot is of another plan, and [ErrBadValue] if it has another [machine.StateVersion], was taken
// in the other mode, or is damaged: each word is held against those of the predecessors.
func RestoreState(p *Plan, from machine.StateSnapshot, opts ...Option) (*machine.State, error) {
	var c config
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if !p.isCompiled() {
		return nil, ErrNoGraph
	}
	x := c.setup(p)
	return machine.RestoreState(&p.net, &x, &from)
}

// The properties of a node that its State does not read.
const (
	factTimed = machine.FlagHost << iota // it has a timeout of its own
	factOwn                              // it has a Do, a Test or inputs to judge: an attempt is more than a call of the host's step function
	factJudge                            // its output is judged
	factOnce                             // its mock is called once: there is no retry
)

// Values that a State and its vocabulary define, by the names that this package gives them.
const (
	noRef = machine.NoRef

	statusCount     = machine.Skipped + 1
	causeCount      = machine.CauseSuperseded + 1
	skipModeCount   = machine.SkipStrict + 1
	upstreamCount   = machine.UpstreamSubstitute + 1
	joinDefault     = Join(0)
	skipModeDefault = SkipMode(0)
	upstreamDefault = UpstreamPolicy(0)
)

var (
	skipModeNames = enum.Names[SkipMode]()
	upstreamNames = enum.Names[UpstreamPolicy]()
)
