package foreign

// maxErrors bounds how much of a tree of wrapped errors is looked at: far more than people wrap and join, and still a matter
// of a millisecond for an error that never ends.
const maxErrors = 1 << 16

// Next is how a walk goes on after an error.
type Next uint8

const (
	Descend Next = iota // to what the error wraps
	Pass                // to the next error, without what this one wraps
	Stop                // nowhere: the walk has found what it looks for
)

// Walk calls visit for err and what it wraps, depth first. It reports whether the tree has an end, as far as the walk goes.
// An Unwrap that panics ends the walk.
func Walk(err error, visit func(error) Next) (bounded bool) {
	defer func() {
		if recover() != nil {
			bounded = true
		}
	}()
	stack := append(make([]error, 0, 8), err)
	for seen := 0; len(stack) > 0; seen++ {
		if seen == maxErrors {
			return false
		}
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if e == nil {
			continue
		}
		switch visit(e) {
		case Stop:
			return true
		case Pass:
			continue
		}
		switch w := e.(type) {
		case interface{ Unwrap() error }:
			stack = append(stack, w.Unwrap())
		case interface{ Unwrap() []error }:
			children := w.Unwrap()
			for i := len(children) - 1; i >= 0; i-- {
				stack = append(stack, children[i])
			}
		}
	}
	return true
}
