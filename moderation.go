package kahn

import (
	"context"
	"fmt"
	"strings"
)

// Moderator judges what goes into steps and what comes out of them, for the nodes that ask for it: see Node.Moderation and
// [Moderate].
type Moderator interface {
	// Check returns nil to let a value pass, and [Flag] to refuse it. Any other error, a panic included, means that it could
	// not judge: the value does not pass then either. In PhaseInput the value is the map of parameters, in PhaseOutput what
	// the step returned; it must not be changed. The context is that of the attempt: it ends with the attempt's timeout and
	// when the node or the run is stopped.
	Check(ctx context.Context, phase Phase, node *Step, value any) error
}

// Flag is what a [Moderator] returns to refuse a value.
func Flag(reasons ...string) error { return &flagError{reasons} }

type flagError struct{ reasons []string }

func (e *flagError) Error() string { return "flagged: " + strings.Join(e.reasons, "; ") }

// ModerationError is the error of a node of kind [CauseModeration].
type ModerationError struct {
	Phase Phase
	// Reasons are what the moderator flagged the value for.
	Reasons []string
	// Err is what kept the moderator from judging, nil if it flagged the value.
	Err error
}

// Error tells what the moderator said.
func (e *ModerationError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("moderation of the %v failed: %s", e.Phase, errorText(e.Err))
	}
	return shorten(fmt.Sprintf("%v flagged: %s", e.Phase, strings.Join(e.Reasons, "; ")))
}

// Unwrap returns Err.
func (e *ModerationError) Unwrap() error { return e.Err }

// Moderation tells which sides of a step the run's [Moderator] judges.
type Moderation uint8

// The choices.
const (
	ModerateNone Moderation = iota
	ModerateInput
	ModerateOutput
	ModerateBoth

	moderationCount
)

var moderationNames = [moderationCount]string{"none", "input", "output", "both"}

// String returns "none", "input", "output" or "both".
func (m Moderation) String() string { return enumName(moderationNames[:], int(m), "Moderation") }

// MarshalText encodes m as its name. A value outside the enum is an error that matches [ErrBadValue].
func (m Moderation) MarshalText() ([]byte, error) {
	return enumText(moderationNames[:], int(m), "moderation")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (m *Moderation) UnmarshalText(text []byte) error {
	return enumParse(m, moderationNames[:], text, "moderation")
}
