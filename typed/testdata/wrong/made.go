package orders

import "github.com/seed-c794f7ef/kahn/typed"

// Only functions of package typed make values.
var _ = typed.New("made", func(b *typed.Block) typed.Val[int] {
	return typed.Val[int]{src: nil} // want `unknown field src in struct literal of type typed.Val\[int\]|cannot refer to unexported field src`
})
