package typed

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Items says how the items of an [Each] run. The fields are as in [kahn.Map].
type Items[A any] struct {
	// Limit bounds how many items run at the same time. Zero means that only the run's limit applies.
	Limit int
	// ToleratedCount and ToleratedPercent say how many items may fail. If both are zero, no item may fail.
	ToleratedCount   int
	ToleratedPercent float64
	// FailFast aborts the unfinished items when more items have failed than are tolerated.
	FailFast bool
	// Key returns the concurrency key of an item, for [kahn.KeyLimit] and [kahn.KeyRate]. [EachSub] does not support Key.
	Key func(item A) string
	// Estimate returns how long an item is expected to take.
	Estimate func(item A) time.Duration
}

// Each adds a node that calls f once for each item of a list. The value "vals" has the results in list order; a failed or skipped item has no result.
// The value "errs" is nil if all items have a result. Otherwise it has one entry for each item: nil, or the reason why the item has no result.
// [Filled] puts each result at the index of its item. The parameter "opts" has at most one Items. If more items fail than the Items tolerate, the
// node fails, and neither vals nor errs exist; [Try] then gets the [*kahn.MapError]. Another Each, or EachSub, over the results skips the items
// that have no result.
//
// Retry, Timeout, Priority, Groups and Key in the Options of the node apply to each item, as in kahn.Node.
func Each[A, T any](b *Block, id string, list Val[[]A], f func(context.Context, A) (T, error), opts ...Items[A]) (vals Val[[]T], errs Val[[]error]) {
	src := b.add(id, f == nil)
	if src == nil {
		return vals, errs
	}
	each(src, list, opts)
	gaps := list.src != nil && list.src.over // the list of another Each has null for an item without a result
	add(src, func(s *kahn.Step) (t T, err error) {
		item, _ := s.Item()
		if item == nil && gaps {
			return t, errNoResult
		}
		a, err := view[A](nil).read(s, itemInput, item)
		if err != nil {
			return t, err
		}
		return f(s, a)
	})
	return results[T](src)
}

// EachSub is [Each] with a sub-pipeline for each item: see [Sub]. The function f gets the block of the sub-pipeline, and the item.
func EachSub[A, T any](b *Block, id string, list Val[[]A], f func(b *Block, item Val[A]) Val[T], opts ...Items[A]) (vals Val[[]T], errs Val[[]error]) {
	src := b.add(id, f == nil)
	if src == nil {
		return vals, errs
	}
	each(src, list, opts)
	register[A](b.in.build)
	gaps := list.src != nil && list.src.over
	result := sub(src, func(inner *Block) Val[T] {
		item := inner.in.input(itemInput)
		item.item = true
		if f == nil {
			return Val[T]{}
		}
		each := Val[A]{src: item}
		if gaps {
			each.view = func(_ *kahn.Step, id string, v any) (a A, err error) {
				if v == nil {
					return a, errNoResult
				}
				return plain[A](id, v)
			}
		}
		return f(inner, each)
	})
	vals, errs = results[T](src)
	src.more().result, vals.view = result.view, listOf(result.view)
	return vals, errs
}

// errNoResult makes Each skip an item without a value. Its list comes from another Each, which has no result for this item.
var errNoResult = kahn.Skip("the item before has no result")

// itemInput is the name of the input that delivers the item to a nested run.
const itemInput = "item"

// The function each turns a node into a map over a list.
func each[A any](src *source, list Val[[]A], opts []Items[A]) {
	build := src.block.in.build
	src.over = true
	over := src.take(list.src, 1)
	if over == nil {
		return
	}
	m := &kahn.Map{Over: over.id}
	src.more().items = m
	if len(opts) > 1 {
		build.report("node %q: %w: %d Items are given, but at most one is allowed", src.id, kahn.ErrBadValue, len(opts))
	}
	for _, o := range opts {
		m.Limit, m.ToleratedCount, m.ToleratedPercent, m.FailFast = o.Limit, o.ToleratedCount, o.ToleratedPercent, o.FailFast
		if key := o.Key; key != nil {
			m.Key = func(item any) string { return key(itemOf[A](item)) }
		}
		if estimate := o.Estimate; estimate != nil {
			m.Estimate = func(item any) time.Duration { return estimate(itemOf[A](item)) }
		}
	}
}

// itemOf returns an item as an A, for the functions Key and Estimate of Items. It drops the error for an item that is not an A, since the
// step that gets the item reports that error.
func itemOf[A any](item any) A {
	a, _ := view[A](nil).read(nil, itemInput, item)
	return a
}

// The function results returns the two values of a node that is a map: the list of its results, and the list of its items'
// errors.
func results[T any](src *source) (vals Val[[]T], errs Val[[]error]) {
	register[[]T](src.block.in.build)
	src.more().result = view[T](nil)
	vals = Val[[]T]{src: src, view: listOf[T](nil)}
	errs = Val[[]error]{src: src, view: func(s *kahn.Step, id string, v any) ([]error, error) {
		if s == nil {
			return nil, fmt.Errorf("errors of the items of %q: %w", id, kahn.ErrNoValue)
		}
		list, errs, err := kahn.UpstreamItems[any](s, id)
		for i, v := range list {
			if v != nil || errs != nil && errs[i] != nil {
				continue
			}
			if errs == nil {
				errs = make([]error, len(list))
			}
			errs[i] = fmt.Errorf("item %d of %q: %w: it was skipped", i, id, kahn.ErrNoValue)
		}
		return errs, err
	}}
	return vals, errs
}

// listOf returns the view of a list that kahn keeps as []any. The list has null for an item without a value; the view leaves such items
// out.
func listOf[T any](item view[T]) view[[]T] {
	return func(s *kahn.Step, id string, v any) ([]T, error) {
		values, is := v.([]any)
		if !is {
			return plain[[]T](id, v)
		}
		list := make([]T, 0, len(values))
		for i, v := range values {
			if v == nil {
				continue
			}
			t, err := item.read(s, id, v)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			list = append(list, t)
		}
		return list, nil
	}
}

// Filled adds a node whose value is the list of the results of an [Each] or an [EachSub], with the value "fill" in place of each missing result. The
// list is as long as the list of items.
//
//	prices, _ := typed.Each(b, "price", parts, price, typed.Items[Part]{ToleratedPercent: 10})
//	all := typed.Filled(b, "prices", prices, unknown)
func Filled[T any](b *Block, id string, results Val[[]T], fill T) Val[[]T] {
	if of := results.src; of != nil && !of.over {
		b.in.build.report("node %q: %w: Filled is for the results of an Each, but %q is not an Each", id, kahn.ErrBadValue, of.id)
	}
	inner := results.view
	results.view = func(s *kahn.Step, id string, v any) ([]T, error) {
		values, is := v.([]any)
		if !is {
			return inner.read(s, id, v)
		}
		got, err := inner.read(s, id, v)
		if err != nil {
			return nil, err
		}
		list := make([]T, len(values))
		for i, v := range values {
			if list[i] = fill; v != nil {
				list[i], got = got[0], got[1:]
			}
		}
		return list, nil
	}
	return Do1(b, id, func(_ context.Context, list []T) ([]T, error) { return list, nil }, results)
}
