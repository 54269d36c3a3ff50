package typed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Stage says how a stage of a [Pipe] works. The zero value makes one call at a time, keeps the order of the values, and lets one finished value
// wait for the next stage.
type Stage struct {
	Parallel  int  // how many calls of the function run at the same time; 0 means 1
	Ahead     int  // how many finished values may wait for the next stage; 0 means as many as Parallel
	Unordered bool // values leave the stage when they are ready, not in the order of their arrival
}

// ErrStage means that a function of a stage ended its goroutine, as runtime.Goexit and testing.T.FailNow do.
var ErrStage = errors.New("a stage has ended its goroutine")

// Pipe calls f for each value of seq while the loop over the result handles earlier values. So the stages of a pipe overlap. A pipe runs inside one
// step, such as a function of [Do1], so kahn retries, cancels and stores all stages together, as one node:
//
//	sentences := typed.Overlap(ctx, split(ctx, tokens(ctx, prompt)), 8)
//	for audio, err := range typed.Pipe(ctx, sentences, speak, typed.Stage{Parallel: 4}) {
//		...
//	}
//
// The result ends with the first error of seq or f, or with the [context.Cause] of ctx if ctx ends. The context of f ends when the result ends, or
// when the loop over the result ends. When the loop has ended, all goroutines of the pipe have returned. If seq or f panics, the loop panics with
// an error that contains the stack of the first panic. If a number in the Stage is negative, the result has no values, only an error that matches
// [kahn.ErrBadValue].
func Pipe[T, U any](ctx context.Context, seq iter.Seq2[T, error], f func(context.Context, T) (U, error), stage Stage) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		p, err := newPipe[U](ctx, stage)
		if err != nil {
			var none U
			yield(none, err)
			return
		}
		defer p.end()
		type call struct {
			value T
			to    slot[U]
		}
		calls := make(chan call)
		var callers sync.WaitGroup
		for range p.parallel {
			callers.Add(1)
			p.all.Go(func() {
				defer callers.Done()
				for c := range calls {
					p.fill(c.to, stage.Unordered, func() (U, error) { return f(p.ctx, c.value) })
				}
			})
		}
		finish := func() {
			close(calls)
			if stage.Unordered {
				callers.Wait()
			}
		}
		p.all.Go(func() {
			pull(p, seq, finish, func(value T) bool {
				to := make(slot[U], 1)
				if !stage.Unordered && !p.send(to) {
					return false
				}
				select {
				case calls <- call{value, to}:
					return true
				case <-p.ctx.Done():
					return false
				}
			})
		})
		p.hand(yield)
	}
}

// Overlap ranges over seq in a goroutine of its own. The parameter "ahead" bounds how many values may wait for the loop over the result; 0 means 1.
// If seq comes from a function that reads another pipe, Overlap turns this function into a stage. Such a stage can combine or split values, for
// example combine words into sentences.
func Overlap[T any](ctx context.Context, seq iter.Seq2[T, error], ahead int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		p, err := newPipe[T](ctx, Stage{Ahead: ahead})
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		defer p.end()
		p.all.Go(func() {
			pull(p, seq, func() {}, func(value T) bool {
				to := make(slot[T], 1)
				to <- result[T]{value: value}
				return p.send(to)
			})
		})
		p.hand(yield)
	}
}

// Values turns a sequence into the beginning of a [Pipe].
func Values[T any](seq iter.Seq[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v := range seq {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// pipe is a running stage whose results have the type U. The method end stops the goroutines of the pipe, and waits for them.
type pipe[U any] struct {
	outer, ctx context.Context
	cancel     context.CancelFunc
	parallel   int
	out        chan slot[U] // the slots in the order in which their values leave the stage; closed after the last slot
	all        sync.WaitGroup
}

// slot receives one result of a stage: a value or an error.
type slot[U any] chan result[U]

type result[U any] struct {
	value U
	err   error
}

func newPipe[U any](ctx context.Context, stage Stage) (*pipe[U], error) {
	if stage.Parallel < 0 || stage.Ahead < 0 {
		return nil, fmt.Errorf("%w: a stage has Parallel %d and Ahead %d: neither may be negative", kahn.ErrBadValue, stage.Parallel, stage.Ahead)
	}
	p := &pipe[U]{outer: ctx, parallel: max(stage.Parallel, 1)}
	p.out = make(chan slot[U], cmp.Or(stage.Ahead, p.parallel))
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p, nil
}

func (p *pipe[U]) end() {
	p.cancel()
	p.all.Wait()
}

// send hands a slot to the output. It reports false if the stage has ended.
func (p *pipe[U]) send(to slot[U]) bool {
	select {
	case p.out <- to:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// fill calls a function of the host and puts its result into a slot. The slot gets a result even if the function panics or ends its goroutine. If
// the parameter "last" is set, fill then sends the slot to the output.
func (p *pipe[U]) fill(to slot[U], last bool, f func() (U, error)) {
	r := result[U]{err: ErrStage} // this stays the result if f ends the goroutine
	defer func() {
		to <- r
		if last {
			p.send(to)
		}
	}()
	var value U
	err := foreign.Contain(func() (err error) {
		value, err = f()
		return err
	}, panicked)
	r = result[U]{value, err}
}

// pull ranges over the input, and then closes the output. If the input ends with an error, the error is the last result. If the context ends before
// the input, the input may be incomplete, so the method "hand" yields the cause of the context's end as its last error.
func pull[T, U any](p *pipe[U], seq iter.Seq2[T, error], finish func(), take func(T) bool) {
	err := ErrStage
	defer func() {
		finish()
		if err != nil {
			to := make(slot[U], 1)
			to <- result[U]{err: err}
			p.send(to)
		}
		close(p.out)
	}()
	err = foreign.Contain(func() error {
		for value, err := range seq {
			if err != nil {
				return err
			}
			if !take(value) {
				return nil
			}
		}
		return nil
	}, panicked)
}

// The method hand yields the values of the stage.
func (p *pipe[U]) hand(yield func(U, error) bool) {
	for to := range p.out {
		var r result[U]
		select {
		case r = <-to:
		case <-p.ctx.Done():
			r.err = context.Cause(p.outer)
		}
		if stop, is := r.err.(*stagePanic); is {
			panic(stop)
		}
		if !yield(r.value, r.err) || r.err != nil {
			return
		}
	}
	if p.outer.Err() != nil {
		var none U
		yield(none, context.Cause(p.outer))
	}
}

// stagePanic is the panic value of a stage, with its stack. The loop over the stage's values panics with it.
type stagePanic struct {
	value any
	stack []byte
}

func panicked(v any) error { return &stagePanic{v, debug.Stack()} }

func (p *stagePanic) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

func (p *stagePanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
