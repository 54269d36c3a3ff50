package event

import "github.com/seed-c794f7ef/kahn/internal/enum"

// Phase tells which side of a step is judged.
type Phase uint8

// The phases.
const (
	PhaseInput  Phase = iota // the parameters, before the step's first attempt
	PhaseOutput              // what an attempt returned

	phaseCount
)

var phaseNames = [phaseCount]string{"input", "output"}

// String returns "input" or "output".
func (p Phase) String() string { return enum.Name(phaseNames[:], int(p), "Phase") }

// MarshalText encodes p as its name. A value outside the enum is an error that matches [machine.ErrBadValue].
func (p Phase) MarshalText() ([]byte, error) { return enum.Text(phaseNames[:], int(p), "phase") }

// UnmarshalText decodes a name. Anything else is an error that matches [machine.ErrBadValue].
func (p *Phase) UnmarshalText(text []byte) error { return enum.Parse(p, phaseNames[:], text, "phase") }
