package event

import "github.com/seed-c794f7ef/kahn/internal/enum"

// Phase tells which side of a step is judged.
type Phase uint8

// The phases.
const (
	PhaseInput  Phase = iota // the parameters, before the step's first attempt
	PhaseOutput              // what an attempt returned
)

var phaseNames = enum.Of[Phase]("phase", "input", "output")

// String returns "input" or "output".
func (p Phase) String() string { return phaseNames.Name(p) }

// MarshalText encodes p as its name. A value outside the enum is an error that matches [machine.ErrBadValue].
func (p Phase) MarshalText() ([]byte, error) { return phaseNames.Text(p) }

// UnmarshalText decodes a name. Anything else is an error that matches [machine.ErrBadValue].
func (p *Phase) UnmarshalText(text []byte) error { return phaseNames.Parse(p, text) }
