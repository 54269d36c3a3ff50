package bucket

import "container/heap"

// Awaited is a queue of the holders of buckets, such as groups, for whose next token something waits, ordered by the time
// when it falls due.
type Awaited[T dated] struct{ heap dates[T] }

type dated interface{ date() *Appointment }

// Appointment is the place of a holder among the awaited. A holder embeds it.
type Appointment struct {
	due   int64
	index int // plus one; 0 means that it is not there
}

func (a *Appointment) date() *Appointment { return a }

// Add adds a holder, unless it is there, and reports whether it is the first now.
func (q *Awaited[T]) Add(x T, due int64) (first bool) {
	a := x.date()
	if a.index > 0 {
		return false
	}
	a.due = due
	heap.Push(&q.heap, x)
	return a.index == 1
}

// Remove removes a holder and reports whether it was there.
func (q *Awaited[T]) Remove(x T) bool {
	a := x.date()
	if a.index == 0 {
		return false
	}
	heap.Remove(&q.heap, a.index-1)
	return true
}

// First returns when the first of them is due.
func (q *Awaited[T]) First() (due int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].date().due, true
}

// Next takes out the first that is due by now.
func (q *Awaited[T]) Next(now int64) (x T, ok bool) {
	if len(q.heap) == 0 || q.heap[0].date().due > now {
		return x, false
	}
	return heap.Pop(&q.heap).(T), true
}

type dates[T dated] []T

func (q dates[T]) Len() int           { return len(q) }
func (q dates[T]) Less(i, j int) bool { return q[i].date().due < q[j].date().due }

func (q dates[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].date().index, q[j].date().index = i+1, j+1
}

func (q *dates[T]) Push(x any) {
	*q = append(*q, x.(T))
	x.(T).date().index = len(*q)
}

func (q *dates[T]) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	x.date().index = 0
	return x
}
