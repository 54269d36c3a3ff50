package event

import "github.com/seed-c794f7ef/kahn/internal/enum"

// Phase says which values of a step a contract or the moderator checks.
type Phase uint8

// The phases.
const (
	PhaseInput  Phase = iota // the parameters, before the step's first attempt
	PhaseOutput              // the output of an attempt
)

var phaseNames = enum.Of[Phase]("phase", "input", "output")

// String returns "input" or "output".
func (p Phase) String() string { return phaseNames.Name(p) }

// MarshalText encodes p as its name. It returns an error that matches [machine.ErrBadValue] for a value outside the enum.
func (p Phase) MarshalText() ([]byte, error) { return phaseNames.Text(p) }

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for any other text.
func (p *Phase) UnmarshalText(text []byte) error { return phaseNames.Parse(p, text) }
