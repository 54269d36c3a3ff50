package foreign

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrCyclicError replaces an error whose chain of wrapped errors has no end.
var ErrCyclicError = errors.New("error wraps itself")

// PanicError is a recovered panic of user code. Other packages export this type under their own names.
type PanicError struct {
	Value any
	Stack []byte // the stack of the goroutine that panicked, as runtime/debug.Stack returns it
}

// Error renders the panic value, shortened to about a kilobyte, without the stack.
func (e *PanicError) Error() string { return "panic: " + ValueText(e.Value) }

// Unwrap returns the panic value if it is an error, and otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// NewPanicError returns the error for a panic value, with the stack of the caller. If the value is an error, it must come from Bounded.
func NewPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

// Bounded returns err if its methods do not panic and its chain of wrapped errors has an end. Otherwise it returns a replacement. So errors.Is ends
// for every error that Bounded has returned. Bounded passes the parameter "next" to Walk. The parameter "renders" is a function like Renders.
func Bounded(err error, next func(error) Next, renders func(error) bool) error {
	if err == nil {
		return nil
	}
	switch shape := Walk(err, next); {
	case shape == Endless:
		return fmt.Errorf("%T: %w", err, ErrCyclicError)
	case shape == Rude || !renders(err):
		return Shield(err)
	}
	return err
}
