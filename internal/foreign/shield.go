package foreign

import "reflect"

// shield wraps an error that has a panicking method. Calls of errors.Is and errors.As for a shield do not panic. They compare the target with the
// wrapped error, and with the errors that this error wraps. The comparison ends when an Unwrap method panics.
type shield struct{ err error }

// Shield returns an error whose methods do not panic. This error has the text that ErrorText returns for err, and matches the same errors as err.
func Shield(err error) error {
	if s, ok := err.(*shield); ok {
		return s
	}
	return &shield{err}
}

// Renders reports whether the Error method of err returns without a panic.
func Renders(err error) (ok bool) {
	_ = Contain(func() error {
		_ = err.Error()
		ok = true
		return nil
	}, func(any) error { return nil })
	return ok
}

func (s *shield) Error() string { return ErrorText(s.err) }

func (s *shield) Is(target error) bool {
	return s.find(func(err error) bool {
		if reflect.TypeOf(target).Comparable() && err == target {
			return true
		}
		x, ok := err.(interface{ Is(error) bool })
		return ok && x.Is(target)
	})
}

// Before errors.As calls the method As, it checks that target is a pointer to an interface or to a type that implements error.
func (s *shield) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	return s.find(func(err error) bool {
		if v := reflect.ValueOf(err); v.Type().AssignableTo(to.Type()) {
			to.Set(v)
			return true
		}
		x, ok := err.(interface{ As(any) bool })
		return ok && x.As(target)
	})
}

// find reports whether the function `match` returns true for the error in the shield, or for an error that this error wraps.
func (s *shield) find(match func(error) bool) (found bool) {
	Walk(s.err, func(err error) Next {
		_ = Contain(func() error {
			found = match(err)
			return nil
		}, func(any) error { return nil })
		if found {
			return Stop
		}
		return Descend
	})
	return found
}
