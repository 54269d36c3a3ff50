package typed

import (
	"context"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// Undo is a function together with the values that it takes. The function undoes a node whose value is a T: see [Val.Compensate].
type Undo[T any] struct {
	missing, each bool
	bind          func(src *source, v view[T]) func(s *kahn.Step, output any) error // returns the function that undoes the node src
}

// Compensate sets the function that undoes the effect of the value's node, and returns the value. Compensate may be called once for each node.
// Before a run ends as failed, cancelled or timed out, the run calls the function: see Compensate of [kahn.Node].
//
//	receipt := typed.Do1(b, "charge", charge, order).Compensate(typed.Undo1(refund, order)) // refund: func(context.Context, Order, Receipt) error
//
// The last parameter of the function is the node's value. If the node failed, timed out or crashed after its start, it is unknown whether the
// node had an effect, and the parameter is the zero T. The Step of the attempt tells the function whether the effect is certain:
//
//	_, certain := kahn.StepOf(ctx).Compensated()
//
// The items of an [Each] need an [UndoEach]. CompensateRetry and CompensateTimeout in the [Options] bound the attempts of the function.
func (v Val[T]) Compensate(u Undo[T]) Val[T] {
	src := v.src
	if src == nil {
		return v
	}
	build := src.block.in.build
	bad := func(text string) { build.report("%q: %w: %s", src.id, kahn.ErrBadValue, text) }
	switch {
	case src.input:
		bad("Compensate is for the values of nodes, and this is an input")
	case build.over(src.id):
	case src.either, src.tries != nil:
		bad("an Either or a Try has no effect to undo: call Compensate for the values that it takes")
	case u.bind == nil:
		bad("Compensate was called with the zero Undo")
	case u.missing:
		bad("the function of its Compensate is nil")
	case src.compensate != nil:
		bad("Compensate was called before")
	case src.over && !u.each:
		bad("the items of an Each are undone one by one: give Compensate an UndoEach")
	case !src.over && u.each:
		bad("UndoEach is for the results of an Each or EachSub, and this node is neither")
	default:
		undo := u.bind(src, v.view)
		src.more().compensate = func(_ context.Context, s *kahn.Step) error {
			output, _ := s.Compensated()
			return undo(s, output)
		}
	}
	return v
}

// undoes returns the Undo of a function. bind connects the function with the values that it takes.
func undoes[T any](missing bool, bind func(src *source) func(*kahn.Step, T) error) Undo[T] {
	return Undo[T]{missing: missing, bind: func(src *source, v view[T]) func(*kahn.Step, any) error {
		undo := bind(src)
		return func(s *kahn.Step, output any) error {
			t, err := made(v, s, src.id, output)
			if err != nil {
				return err
			}
			return undo(s, t)
		}
	}}
}

// The function made returns the node's value for the node's compensation, or the zero T if the node has no output.
func made[T any](v view[T], s *kahn.Step, id string, output any) (t T, err error) {
	if output == nil {
		return t, nil
	}
	return v.read(s, id, output)
}

// The function given returns a value that the node takes, for the node's compensation. The parameter "number" counts the values
// from 1.
func given[T any](src *source, v Val[T], number int) in[T] {
	build := src.block.in.build
	if v.src == nil {
		build.report("node %q: %w: input %d of its Compensate is the zero Val, which no node makes", src.id, kahn.ErrBadValue, number)
		return in[T]{}
	}
	of, ok := src.block.in.reach(v.src)
	if !ok {
		build.elsewhere(src, v.src)
		return in[T]{}
	}
	if of.item && of.from != nil { // the item is also the value of the node of.from, see the method `kept`
		of = of.from
	}
	if slices.Contains(src.takes, of) || slices.ContainsFunc(src.imports, func(in *source) bool { return in.from == of }) {
		return in[T]{name: of.id, root: of.input, view: v.view}
	}
	build.report("node %q: %w: its Compensate takes %q, which the node itself does not take, so the value may not exist when the node is undone", src.id, kahn.ErrBadValue, v.src.id)
	return in[T]{}
}

// UndoEach undoes the items of an [Each] or [EachSub] over the list, one by one: the function gets the item and its result.
//
//	receipts, errs := typed.Each(b, "charge", orders, charge)
//	receipts.Compensate(typed.UndoEach(refund, orders)) // refund: func(context.Context, Order, Receipt) error
func UndoEach[A, T any](undo func(ctx context.Context, item A, made T) error, list Val[[]A]) Undo[[]T] {
	return Undo[[]T]{missing: undo == nil, each: true, bind: func(src *source, _ view[[]T]) func(*kahn.Step, any) error {
		given(src, list, 1)
		v, is := src.result.(view[T])
		if !is {
			src.block.in.build.report("%q: %w: Compensate is for the results of an Each, not for its errors", src.id, kahn.ErrBadValue)
		}
		return func(s *kahn.Step, output any) error {
			item, _ := s.Item()
			a, err := view[A](nil).read(s, itemInput, item)
			if err != nil {
				return err
			}
			t, err := made(v, s, src.id, output)
			if err != nil {
				return err
			}
			return undo(s, a, t)
		}
	}}
}

// Undo0 undoes a node with a function of the node's value.
func Undo0[T any](undo func(ctx context.Context, made T) error) Undo[T] {
	return undoes(undo == nil, func(*source) func(*kahn.Step, T) error {
		return func(s *kahn.Step, t T) error { return undo(s, t) }
	})
}

// Undo1 undoes a node with a function of a value that the node takes, and of the node's own value. [Pipeline.Plan] returns an error for a value
// that the node does not take, since only the values that the node takes are certain to exist.
func Undo1[A, T any](undo func(ctx context.Context, v1 A, made T) error, v1 Val[A]) Undo[T] {
	return undoes(undo == nil, func(src *source) func(*kahn.Step, T) error {
		in1 := given(src, v1, 1)
		return func(s *kahn.Step, t T) error {
			a, err := in1.get(s)
			if err != nil {
				return err
			}
			return undo(s, a, t)
		}
	})
}

// Undo2 is [Undo1] for a function of two values that the node takes.
func Undo2[A, B, T any](undo func(ctx context.Context, v1 A, v2 B, made T) error, v1 Val[A], v2 Val[B]) Undo[T] {
	return undoes(undo == nil, func(src *source) func(*kahn.Step, T) error {
		in1, in2 := given(src, v1, 1), given(src, v2, 2)
		return func(s *kahn.Step, t T) error {
			a, err := in1.get(s)
			if err != nil {
				return err
			}
			b, err := in2.get(s)
			if err != nil {
				return err
			}
			return undo(s, a, b, t)
		}
	})
}

// Undo3 is [Undo1] for a function of three values that the node takes.
func Undo3[A, B, C, T any](undo func(ctx context.Context, v1 A, v2 B, v3 C, made T) error, v1 Val[A], v2 Val[B], v3 Val[C]) Undo[T] {
	return undoes(undo == nil, func(src *source) func(*kahn.Step, T) error {
		in1, in2, in3 := given(src, v1, 1), given(src, v2, 2), given(src, v3, 3)
		return func(s *kahn.Step, t T) error {
			a, err := in1.get(s)
			if err != nil {
				return err
			}
			b, err := in2.get(s)
			if err != nil {
				return err
			}
			c, err := in3.get(s)
			if err != nil {
				return err
			}
			return undo(s, a, b, c, t)
		}
	})
}

// Undo4 is [Undo1] for a function of four values that the node takes.
func Undo4[A, B, C, D, T any](undo func(ctx context.Context, v1 A, v2 B, v3 C, v4 D, made T) error, v1 Val[A], v2 Val[B], v3 Val[C], v4 Val[D]) Undo[T] {
	return undoes(undo == nil, func(src *source) func(*kahn.Step, T) error {
		in1, in2, in3, in4 := given(src, v1, 1), given(src, v2, 2), given(src, v3, 3), given(src, v4, 4)
		return func(s *kahn.Step, t T) error {
			a, err := in1.get(s)
			if err != nil {
				return err
			}
			b, err := in2.get(s)
			if err != nil {
				return err
			}
			c, err := in3.get(s)
			if err != nil {
				return err
			}
			d, err := in4.get(s)
			if err != nil {
				return err
			}
			return undo(s, a, b, c, d, t)
		}
	})
}
