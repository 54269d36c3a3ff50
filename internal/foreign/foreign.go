// Package foreign isolates the engine from user code: functions of the host, and methods of the host's errors and values. A function may panic or
// call Goexit. An error may have methods that panic, for example if it is a typed nil pointer. Its message may have any size. It may wrap itself,
// and errors.Is never returns for such an error.
package foreign

// Contain calls f and returns its error. If f panics, Contain calls the function `panicked` with the panic value, and returns the error of this
// call. During the call, the stack still shows where the panic of f began. Contain does not recover if `panicked` itself panics.
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
