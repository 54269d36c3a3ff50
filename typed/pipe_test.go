package typed_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/typed"
)

// ticks yields 0 to n-1, one each second.
func ticks(ctx context.Context, n int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}

// all ranges over a pipe, and returns its values and its error.
func all[T any](seq iter.Seq2[T, error]) (list []T, err error) {
	for v, err := range seq {
		if err != nil {
			return list, err
		}
		list = append(list, v)
	}
	return list, nil
}

func TestPipe(t *testing.T) {
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) }) // synctest fails the test if a goroutine remains
	}
	errPipe := errors.New("pipe")
	slow := func(d time.Duration) func(context.Context, int) (int, error) {
		return func(ctx context.Context, v int) (int, error) {
			select {
			case <-time.After(d):
				return v, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
	}

	bubble("stages overlap", func(t *testing.T) {
		began := time.Now()
		seq := typed.Pipe(t.Context(), typed.Overlap(t.Context(), ticks(t.Context(), 10), 1), slow(time.Second), typed.Stage{})
		n := 0
		for v, err := range seq {
			require.NoError(t, err)
			require.Equal(t, n, v)
			time.Sleep(time.Second)
			n++
		}
		require.Equal(t, 10, n)
		require.Equal(t, 12*time.Second, time.Since(began))
	})
	bubble("parallel, in order and not", func(t *testing.T) {
		longFirst := func(ctx context.Context, v int) (int, error) { return slow(time.Duration(4-v%4)*time.Second)(ctx, v) }
		for _, x := range []struct {
			stage typed.Stage
			want  []int
			took  time.Duration
		}{
			{typed.Stage{}, []int{0, 1, 2, 3, 4, 5, 6, 7}, 20 * time.Second},
			{typed.Stage{Parallel: 4}, []int{0, 1, 2, 3, 4, 5, 6, 7}, 8 * time.Second},
			{typed.Stage{Parallel: 8, Unordered: true}, nil, 4 * time.Second},
		} {
			began := time.Now()
			got, err := all(typed.Pipe(t.Context(), typed.Values(slices.Values([]int{0, 1, 2, 3, 4, 5, 6, 7})), longFirst, x.stage))
			require.NoError(t, err)
			if x.stage.Unordered {
				require.Subset(t, []int{3, 7}, got[:2])
				slices.Sort(got)
				x.want = []int{0, 1, 2, 3, 4, 5, 6, 7}
			}
			require.Equal(t, x.want, got)
			require.LessOrEqual(t, time.Since(began), x.took)
		}
	})
	bubble("bounded", func(t *testing.T) {
		for _, stage := range []typed.Stage{{Parallel: 2, Ahead: 3}, {Parallel: 2, Ahead: 3, Unordered: true}} {
			var made, used atomic.Int64
			source := func(yield func(int, error) bool) {
				for i := 0; made.Add(1) > 0 && yield(i, nil); i++ {
				}
			}
			for _, err := range typed.Pipe(t.Context(), source, slow(time.Millisecond), stage) {
				require.NoError(t, err)
				time.Sleep(time.Second)
				if used.Add(1) == 20 {
					break
				}
				if ahead := made.Load() - used.Load(); ahead > 2+3+2 {
					t.Fatalf("%d values ahead", ahead)
				}
			}
		}
	})
	bubble("errors", func(t *testing.T) {
		fails := func(at int) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for i := range 10 {
					if i == at {
						yield(0, errPipe)
						return
					}
					if !yield(i, nil) {
						return
					}
				}
			}
		}
		for _, unordered := range []bool{false, true} {
			stage := typed.Stage{Parallel: 3, Unordered: unordered}
			got, err := all(typed.Pipe(t.Context(), fails(4), slow(time.Second), stage))
			require.ErrorIs(t, err, errPipe)
			require.ElementsMatch(t, []int{0, 1, 2, 3}, got)
			cancelled := atomic.Int64{}
			_, err = all(typed.Pipe(t.Context(), fails(-1), func(ctx context.Context, v int) (int, error) {
				if v == 1 {
					return 0, errPipe
				}
				_, err := slow(time.Hour)(ctx, v)
				if err != nil {
					cancelled.Add(1)
				}
				return v, err
			}, typed.Stage{Parallel: 3, Unordered: true}))
			require.ErrorIs(t, err, errPipe)
			require.GreaterOrEqual(t, cancelled.Load(), int64(1)) // the concurrent calls were cancelled
		}
		_, err := all(typed.Overlap(t.Context(), fails(4), 2))
		require.ErrorIs(t, err, errPipe)
		for _, seq := range []iter.Seq2[int, error]{
			typed.Pipe(t.Context(), fails(-1), slow(0), typed.Stage{Parallel: -1}), typed.Overlap(t.Context(), fails(-1), -1),
		} {
			_, err := all(seq)
			require.ErrorIs(t, err, kahn.ErrBadValue)
		}
	})
	bubble("a context that ends is not the end of the values", func(t *testing.T) {
		for _, stage := range []typed.Stage{{}, {Parallel: 2, Unordered: true}} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3500*time.Millisecond, errPipe)
			got, err := all(typed.Pipe(ctx, ticks(ctx, 10), slow(0), stage))
			require.ErrorIs(t, err, errPipe)
			require.Len(t, got, 3)
			cancel()
			ctx, cancel = context.WithTimeoutCause(t.Context(), 3500*time.Millisecond, errPipe)
			got, err = all(typed.Overlap(ctx, ticks(ctx, 10), 1))
			require.ErrorIs(t, err, errPipe)
			require.Len(t, got, 3)
			cancel()
		}
	})
	bubble("a panic goes on where the values are used", func(t *testing.T) {
		panics := func(yield func(int, error) bool) {
			yield(0, nil)
			panic(errPipe)
		}
		for _, seq := range []iter.Seq2[int, error]{
			typed.Pipe(t.Context(), panics, slow(0), typed.Stage{}), typed.Overlap(t.Context(), panics, 1),
			typed.Pipe(t.Context(), ticks(t.Context(), 3), func(context.Context, int) (int, error) { panic(errPipe) }, typed.Stage{Parallel: 2, Unordered: true}),
		} {
			func() {
				defer func() {
					err, _ := recover().(error)
					require.ErrorIs(t, err, errPipe)
					require.ErrorContains(t, err, "pipe_test.go")
				}()
				_, _ = all(seq)
				t.Error("no panic")
			}()
		}
	})
	bubble("a goroutine that ends itself", func(t *testing.T) {
		exits := func(yield func(int, error) bool) {
			yield(0, nil)
			runtime.Goexit()
		}
		for _, seq := range []iter.Seq2[int, error]{
			typed.Pipe(t.Context(), exits, slow(0), typed.Stage{}), typed.Overlap(t.Context(), exits, 1),
			typed.Pipe(t.Context(), exits, slow(0), typed.Stage{Unordered: true}),
			typed.Pipe(t.Context(), ticks(t.Context(), 3), func(context.Context, int) (int, error) { runtime.Goexit(); return 0, nil }, typed.Stage{Parallel: 2}),
			typed.Pipe(t.Context(), ticks(t.Context(), 3), func(context.Context, int) (int, error) { runtime.Goexit(); return 0, nil }, typed.Stage{Unordered: true}),
		} {
			_, err := all(seq)
			require.ErrorIs(t, err, typed.ErrStage)
		}
	})
	bubble("one node, retried as one", func(t *testing.T) {
		calls := 0
		p := typed.New("p", func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "sum", func(ctx context.Context) (sum int, err error) {
				calls++
				for v, err := range typed.Pipe(ctx, ticks(ctx, 4), func(ctx context.Context, v int) (int, error) {
					if s := kahn.StepOf(ctx); s.ID() != "sum" || s.Attempt() == 1 && v == 2 {
						return 0, errPipe
					}
					return v * v, nil
				}, typed.Stage{Parallel: 2}) {
					if err != nil {
						return 0, err
					}
					sum += v
				}
				return sum, nil
			}).With(typed.Options{Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}})
		})
		sum, err := typed.Run(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, []int{14, 2}, []int{sum, calls})
	})
	bubble("cancelled as one", func(t *testing.T) {
		p := typed.New("p", func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "sum", func(ctx context.Context) (n int, err error) {
				for _, err := range typed.Pipe(ctx, ticks(ctx, 100), slow(time.Second), typed.Stage{Parallel: 2}) {
					if err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
		})
		_, err := typed.Run(t.Context(), p, kahn.Timeout(5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A model's tokens become sentences, and sentences become speech: the first sentence is spoken while the model is
// still writing.
func ExamplePipe() {
	tokens := func(yield func(string, error) bool) {
		for _, token := range []string{"One", " step.", " Then", " another."} {
			if !yield(token, nil) {
				return
			}
		}
	}
	sentences := func(tokens iter.Seq2[string, error]) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			text := ""
			for token, err := range tokens {
				if err != nil {
					yield("", err)
					return
				}
				if text += token; text[len(text)-1] == '.' {
					if !yield(text, nil) {
						return
					}
					text = ""
				}
			}
		}
	}
	speak := func(_ context.Context, sentence string) (string, error) {
		return fmt.Sprintf("audio of %q", sentence), nil
	}

	speech := typed.New("speech", func(b *typed.Block) typed.Val[int] {
		return typed.Do0(b, "speech", func(ctx context.Context) (played int, err error) {
			said := typed.Overlap(ctx, sentences(typed.Overlap(ctx, tokens, 16)), 4)
			for audio, err := range typed.Pipe(ctx, said, speak, typed.Stage{Parallel: 2}) {
				if err != nil {
					return played, err
				}
				fmt.Println(audio)
				played++
			}
			return played, nil
		})
	})
	played, err := typed.Run(context.Background(), speech)
	fmt.Println(played, err)
	// Output:
	// audio of "One step."
	// audio of " Then another."
	// 2 <nil>
}
