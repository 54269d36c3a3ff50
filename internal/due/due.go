// Package due implements a queue of elements that fall due: timers, alarms, tokens, claims. An element stores its position in the queue, so that
// it can be removed without a search.
package due

import (
	"cmp"
	"math"
)

// Entry is the position of an element in a [Queue]. An element is a pointer to a struct that embeds an Entry. An element is in at most one queue.
type Entry struct {
	// Due orders the elements, the smallest first. It is a time or another number. Add sets Due, and Due must not change while the element is in
	// a queue.
	Due   int64
	seq   uint64
	index int // the element's position in the heap plus one; 0 if the element is in no queue
}

func (e *Entry) entry() *Entry { return e }

type element interface{ entry() *Entry }

// Queue holds elements in the order of Due. Elements with the same Due are in the order in which they were added. The zero value is an empty queue.
// Add, Remove and Next take logarithmic time. All other methods take constant time.
type Queue[T element] struct {
	heap  []T // a binary heap
	added uint64
	steps int64
}

// Has reports whether an element is in the queue.
func (q *Queue[T]) Has(x T) bool { return x.entry().index > 0 }

// Len returns the number of elements.
func (q *Queue[T]) Len() int { return len(q.heap) }

// Compare returns a negative number if x precedes y in the queue, and a positive number if x follows y.
func (q *Queue[T]) Compare(x, y T) int {
	a, b := x.entry(), y.entry()
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.seq, b.seq))
}

// Steps returns the number of comparisons so far. Tests use it to check that the work is not quadratic.
func (q *Queue[T]) Steps() int64 { return q.steps }

// Add adds an element, and reports whether the element is now the first. If the element is already in the queue, Add does nothing and returns
// false.
func (q *Queue[T]) Add(x T, due int64) (first bool) {
	e := x.entry()
	if q.Has(x) {
		return false
	}
	q.added++
	e.Due, e.seq = due, q.added
	q.heap = append(q.heap, x)
	e.index = len(q.heap)
	q.up(e.index - 1)
	return e.index == 1
}

// Remove removes an element, and reports whether it was in the queue.
func (q *Queue[T]) Remove(x T) bool {
	e := x.entry()
	if !q.Has(x) {
		return false
	}
	at, last := e.index-1, len(q.heap)-1
	q.swap(at, last)
	clear(q.heap[last:]) // the array must not keep the element alive
	q.heap = q.heap[:last]
	e.index = 0
	if at < last {
		q.up(at)
		q.down(at)
	}
	return true
}

// First returns the first element, and whether there is one.
func (q *Queue[T]) First() (x T, ok bool) {
	if len(q.heap) == 0 {
		return x, false
	}
	return q.heap[0], true
}

// Due returns the field Due of the first element, or [math.MaxInt64] if the queue is empty.
func (q *Queue[T]) Due() int64 {
	if len(q.heap) == 0 {
		return math.MaxInt64
	}
	return q.heap[0].entry().Due
}

// Next removes and returns the first element if the Due of this element is at most now.
func (q *Queue[T]) Next(now int64) (x T, ok bool) {
	if x, ok = q.First(); !ok || x.entry().Due > now {
		return *new(T), false
	}
	q.Remove(x)
	return x, true
}

func (q *Queue[T]) before(i, j int) bool {
	q.steps++
	x, y := q.heap[i].entry(), q.heap[j].entry()
	return x.Due < y.Due || x.Due == y.Due && x.seq < y.seq
}

func (q *Queue[T]) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].entry().index, q.heap[j].entry().index = i+1, j+1
}

func (q *Queue[T]) up(i int) {
	for i > 0 && q.before(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *Queue[T]) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(q.heap) {
			return
		}
		if right := least + 1; right < len(q.heap) && q.before(right, least) {
			least = right
		}
		if !q.before(least, i) {
			return
		}
		q.swap(i, least)
		i = least
	}
}
