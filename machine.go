package kahn

// NewState returns the state of a run that has not begun: disabled nodes are skipped, roots are ready. It uses these
// options: modes, failure modes, stop modes, suspend modes, [Limit], [KeyLimit], the rates and, for [State.RunStatusSignal], the status rules.
// In place of [Fire] use [Plan.Prune].
func NewState(p *Plan, opts ...Option) (*State, error) {
	var c config
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if !p.isCompiled() {
		return nil, ErrNoGraph
	}
	x := c.setup(p)
	return newState(&p.net, &x), nil
}

// RestoreState returns the State of a run that goes on from a snapshot, with the options of [NewState]. The error matches [ErrGraphChanged] if
// the snapshot is of another plan, and [ErrBadValue] if it has another [StateVersion] or is damaged.
func RestoreState(p *Plan, from StateSnapshot, opts ...Option) (*State, error) {
	var c config
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if !p.isCompiled() {
		return nil, ErrNoGraph
	}
	x := c.setup(p)
	return restoreState(&p.net, &x, &from)
}
