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
