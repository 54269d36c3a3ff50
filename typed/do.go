package typed

import (
	"context"

	"github.com/seed-c794f7ef/kahn"
)

// Do0 adds a node that calls the function "do", and returns the node's value. The function is called like the Do of a [kahn.Node]: see
// [kahn.StepFunc] for errors with a special meaning, such as [kahn.Skip] and [kahn.Permanent]. If do passes its context, or a derived context, to
// [kahn.StepOf], do gets the [*kahn.Step] of the attempt:
//
//	key := kahn.StepOf(ctx).IdempotencyKey()
//
// The id names the node in the graph, in events and in errors. Options.After lists further nodes that must have ended before the node runs. The
// node does not take the values of these nodes.
func Do0[T any](b *Block, id string, do func(context.Context) (T, error)) Val[T] {
	node := b.add(id, do == nil)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) { return output(do(s)) })
}

// Do1 is [Do0] for a function of one value. The new node runs when the value exists. If the node that makes the value is skipped, the new node is
// skipped, too. If the node that makes the value fails or is aborted, the new node is aborted; but if a [Try] takes the value, too, the new node is
// skipped.
func Do1[A, T any](b *Block, id string, do func(context.Context, A) (T, error), v1 Val[A]) Val[T] {
	node := b.add(id, do == nil)
	in1 := input(node, v1, 1)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a))
	})
}

// Do2 is [Do1] for a function of two values. The node runs when all of these values exist.
func Do2[A, B, T any](b *Block, id string, do func(context.Context, A, B) (T, error), v1 Val[A], v2 Val[B]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2 := input(node, v1, 1), input(node, v2, 2)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b))
	})
}

// Do3 is [Do1] for a function of three values. The node runs when all of these values exist.
func Do3[A, B, C, T any](b *Block, id string, do func(context.Context, A, B, C) (T, error), v1 Val[A], v2 Val[B], v3 Val[C]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2, in3 := input(node, v1, 1), input(node, v2, 2), input(node, v3, 3)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		c, err := in3.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b, c))
	})
}

// Do4 is [Do1] for a function of four values. The node runs when all of these values exist.
func Do4[A, B, C, D, T any](b *Block, id string, do func(context.Context, A, B, C, D) (T, error), v1 Val[A], v2 Val[B], v3 Val[C], v4 Val[D]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2, in3, in4 := input(node, v1, 1), input(node, v2, 2), input(node, v3, 3), input(node, v4, 4)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		c, err := in3.get(s)
		if err != nil {
			return nil, failure(err)
		}
		d, err := in4.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b, c, d))
	})
}

// Do5 is [Do1] for a function of five values. The node runs when all of these values exist.
func Do5[A, B, C, D, E, T any](b *Block, id string, do func(context.Context, A, B, C, D, E) (T, error), v1 Val[A], v2 Val[B], v3 Val[C], v4 Val[D], v5 Val[E]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2, in3, in4, in5 := input(node, v1, 1), input(node, v2, 2), input(node, v3, 3), input(node, v4, 4), input(node, v5, 5)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		c, err := in3.get(s)
		if err != nil {
			return nil, failure(err)
		}
		d, err := in4.get(s)
		if err != nil {
			return nil, failure(err)
		}
		e, err := in5.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b, c, d, e))
	})
}

// Do6 is [Do1] for a function of six values. The node runs when all of these values exist.
func Do6[A, B, C, D, E, F, T any](b *Block, id string, do func(context.Context, A, B, C, D, E, F) (T, error), v1 Val[A], v2 Val[B], v3 Val[C], v4 Val[D], v5 Val[E], v6 Val[F]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2, in3, in4, in5, in6 := input(node, v1, 1), input(node, v2, 2), input(node, v3, 3), input(node, v4, 4), input(node, v5, 5), input(node, v6, 6)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		c, err := in3.get(s)
		if err != nil {
			return nil, failure(err)
		}
		d, err := in4.get(s)
		if err != nil {
			return nil, failure(err)
		}
		e, err := in5.get(s)
		if err != nil {
			return nil, failure(err)
		}
		f, err := in6.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b, c, d, e, f))
	})
}

// Do7 is [Do1] for a function of seven values. The node runs when all of these values exist.
func Do7[A, B, C, D, E, F, G, T any](b *Block, id string, do func(context.Context, A, B, C, D, E, F, G) (T, error), v1 Val[A], v2 Val[B], v3 Val[C], v4 Val[D], v5 Val[E], v6 Val[F], v7 Val[G]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2, in3, in4, in5, in6, in7 := input(node, v1, 1), input(node, v2, 2), input(node, v3, 3), input(node, v4, 4), input(node, v5, 5), input(node, v6, 6), input(node, v7, 7)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		c, err := in3.get(s)
		if err != nil {
			return nil, failure(err)
		}
		d, err := in4.get(s)
		if err != nil {
			return nil, failure(err)
		}
		e, err := in5.get(s)
		if err != nil {
			return nil, failure(err)
		}
		f, err := in6.get(s)
		if err != nil {
			return nil, failure(err)
		}
		g, err := in7.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b, c, d, e, f, g))
	})
}

// Do8 is [Do1] for a function of eight values. The node runs when all of these values exist.
func Do8[A, B, C, D, E, F, G, H, T any](b *Block, id string, do func(context.Context, A, B, C, D, E, F, G, H) (T, error), v1 Val[A], v2 Val[B], v3 Val[C], v4 Val[D], v5 Val[E], v6 Val[F], v7 Val[G], v8 Val[H]) Val[T] {
	node := b.add(id, do == nil)
	in1, in2, in3, in4, in5, in6, in7, in8 := input(node, v1, 1), input(node, v2, 2), input(node, v3, 3), input(node, v4, 4), input(node, v5, 5), input(node, v6, 6), input(node, v7, 7), input(node, v8, 8)
	return does[T](node, func(_ context.Context, s *kahn.Step) (any, error) {
		a, err := in1.get(s)
		if err != nil {
			return nil, failure(err)
		}
		b, err := in2.get(s)
		if err != nil {
			return nil, failure(err)
		}
		c, err := in3.get(s)
		if err != nil {
			return nil, failure(err)
		}
		d, err := in4.get(s)
		if err != nil {
			return nil, failure(err)
		}
		e, err := in5.get(s)
		if err != nil {
			return nil, failure(err)
		}
		f, err := in6.get(s)
		if err != nil {
			return nil, failure(err)
		}
		g, err := in7.get(s)
		if err != nil {
			return nil, failure(err)
		}
		h, err := in8.get(s)
		if err != nil {
			return nil, failure(err)
		}
		return output(do(s, a, b, c, d, e, f, g, h))
	})
}
