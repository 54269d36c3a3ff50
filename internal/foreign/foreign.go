// Package foreign isolates the engine from user code: functions of the host, and methods of the host's errors and values. A function may panic or
// call Goexit. An error may have methods that panic, for example if it is a typed nil pointer. The message of an error may have any size. An error
// may wrap itself, and then errors.Is never returns.
package foreign

// Contain calls f and returns its error. If f panics, Contain calls the function `panicked` with the panic value, and returns the result of this
// call. While `panicked` runs, the stack still shows where f panicked. If `panicked` itself panics, Contain does not recover.
//
// runtime.Goexit in f cannot be stopped: it ends the goroutine, and Contain does not return. So the caller must hold no lock, and must defer all
// cleanup.
func Contain(f func() error, panicked func(value any) error) error {
	returned, err := contained(f, panicked)
	if !returned { // recover returned nil, because f called panic(nil) under GODEBUG=panicnil=1. (Goexit in f ends the goroutine before this line.)
		err = panicked(nil)
	}
	return err
}

func contained(f func() error, panicked func(any) error) (returned bool, err error) {
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				returned, err = true, panicked(v)
			}
		}
	}()
	err = f()
	return true, err
}
