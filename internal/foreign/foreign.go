// Package foreign isolates the engine from user code: functions of the host, and the methods of its errors and values. Such
// a function may panic or end its goroutine. Such an error may be a typed nil pointer whose methods panic, may have a
// message of any size, and may wrap itself, so that errors.Is never returns.
package foreign

// Contain calls f and returns its error. If f panics, Contain calls the function panicked with the panic value, and returns the error of
// panicked. Contain calls panicked while the stack still shows where the panic began. Contain does not recover from a panic in panicked.
//
// runtime.Goexit in f cannot be stopped: it ends the goroutine, and Contain does not return. So the caller must hold no lock, and must
// defer everything that has to happen afterwards.
func Contain(f func() error, panicked func(value any) error) error {
	returned, err := contained(f, panicked)
	if !returned { // f has called panic(nil) under GODEBUG=panicnil=1, so recover returned nil; after Goexit in f this line is not reached
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
