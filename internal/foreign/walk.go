package foreign

// maxErrors is the largest number of errors that a walk visits. Real errors wrap far fewer errors. For an error that wraps itself, the walk ends
// after about a millisecond.
const maxErrors = 1 << 16

// Next determines how a walk continues after an error.
type Next uint8

// The results of the function "visit" of Walk.
const (
	Descend Next = iota // visit the errors that the error wraps
	Pass                // skip the errors that the error wraps
	Stop                // end the walk
)

// Shape describes the part of a tree of errors that a walk has visited.
type Shape uint8

// The results of a walk.
const (
	Sound   Shape = iota // the walk visited the whole tree or was stopped, and no Unwrap panicked
	Endless              // the tree has more than maxErrors errors, so it probably has no end
	Rude                 // an Unwrap panicked, which ended the walk
)

// Walk calls the function `visit` for err and for all errors that err wraps, depth first. Instead of a shield, it visits the error in the shield and
// the errors that this error wraps.
func Walk(err error, visit func(error) Next) Shape {
	shape, _ := walk(err, visit)
	return shape
}

func walk(err error, visit func(error) Next) (shape Shape, stopped bool) {
	defer func() {
		if recover() != nil {
			shape = Rude
		}
	}()
	stack := append(make([]error, 0, 8), err)
	for seen := 0; len(stack) > 0; seen++ {
		if seen == maxErrors {
			return Endless, false
		}
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if e == nil {
			continue
		}
		if s, ok := e.(*shield); ok {
			if _, stopped := walk(s.err, visit); stopped {
				return Sound, true
			}
			continue
		}
		switch visit(e) {
		case Stop:
			return Sound, true
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
	return Sound, false
}
