package kahn

import (
	"errors"
	"fmt"
)

// UpstreamItems returns the value that the edge from a map delivered as a []T: the output of item i at index i, and the zero
// T where an item has none. errs is nil if no item failed, and else as long as the list, with the errors of the items that
// failed. It works for a map that failed, too, if the edge delivers its error.
//
// Under Map.Compact, if no item failed, the list holds the outputs alone, without gaps. An element of another type is an
// error that matches [ErrType], and a node that delivered nothing one that matches [ErrNoValue].
func UpstreamItems[T any](s *Step, id string) (list []T, errs []error, err error) {
	v, ok := s.Upstream(id)
	return typedItems[T](v, ok, s.UpstreamErr(id), "upstream", id)
}

// OutputItems is UpstreamItems for the output of a map in a Result. An unknown id is an error that matches [ErrUnknownNode].
func OutputItems[T any](r *Result, id string) (list []T, errs []error, err error) {
	n, ok := r.Node(id)
	if !ok {
		return nil, nil, r.performed().plan.unknownOwn(id)
	}
	failed := n.Err
	ref, _ := r.performed().plan.Ref(id)
	if items := r.performed().endedItems(ref); items != nil {
		if e := items.failedItems(); e != nil {
			failed = e
		}
	}
	return typedItems[T](n.Output, n.Status == Completed, failed, "output of", id)
}

func typedItems[T any](v any, ok bool, failed error, what, id string) (list []T, errs []error, err error) {
	values, is := v.([]any)
	var e *MapError
	switch {
	case errors.As(failed, &e):
		values, errs = e.Results, make([]error, len(e.Results))
		for i, place := range e.Indexes {
			errs[place] = e.Errs[i]
		}
	case !ok || v == nil:
		return nil, nil, fmt.Errorf("%s %s: %w", what, quoteID(id), ErrNoValue)
	case !is:
		return nil, nil, fmt.Errorf("%s %s: %w: %T instead of the list that a map returns", what, quoteID(id), ErrType, v)
	}
	list = make([]T, len(values))
	for i, value := range values {
		if value == nil {
			continue
		}
		if list[i], is = value.(T); !is {
			return nil, nil, fmt.Errorf("%s %s: item %d: %w: %T instead of %T", what, quoteID(id), i, ErrType, value, list[i])
		}
	}
	return list, errs, nil
}

// endedItems returns the run of the items of a map that has completed with their outputs, or nil.
func (r *Run) endedItems(ref Ref) *Run {
	if r.plan.node(ref).Map == nil || r.st.Word(ref).Status() != Completed || r.records[ref].fallback {
		return nil
	}
	if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.child != nil && x.comp.child.items != nil {
		return x.comp.child
	}
	return nil
}

// failedItems returns the failures in the run of a map's items, which has ended; nil if there are none.
func (r *Run) failedItems() *MapError {
	var e *MapError
	for ref, w := range r.st.Words() {
		if status := w.Status(); status == Failed || status == Cancelled {
			if e == nil {
				e = &MapError{Results: make([]any, len(r.plan.names))}
			}
			e.Errs, e.Indexes = append(e.Errs, r.nodeError(ref)), append(e.Indexes, int(ref))
		}
	}
	if e == nil {
		return nil
	}
	e.Failed = len(e.Errs)
	for ref, w := range r.st.Words() {
		if w.Status() == Completed {
			e.Results[ref] = r.records[ref].value
		}
	}
	return e
}
