package foreign

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrCyclicError replaces an error whose chain of wrapped errors has no end.
var ErrCyclicError = errors.New("error wraps itself")

// PanicError is a recovered panic of user code. Packages kahn and reactive export it as an alias.
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

// NewPanicError returns an error for the panic value v, with the stack of the calling goroutine. If v is an error, it should come from Bounded, since
// errors.Is calls the methods of v.
func NewPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

// Bounded returns err if its chain of wrapped errors has an end, and if neither its Error method nor an Unwrap method panics. Otherwise it returns a
// replacement. So errors.Is returns for every error that comes from Bounded. Bounded passes the parameter "next" to Walk. The parameter "renders" is
// Renders, or a function with the same meaning.
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
