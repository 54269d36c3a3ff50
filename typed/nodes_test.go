package typed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/typed"
)

type carrier string

const (
	air  carrier = "air"
	road carrier = "road"
)

// carrierOf decodes one member of an object, and ignores the others.
type carrierOf struct{ Carrier carrier }

func (c *carrierOf) UnmarshalJSON(data []byte) error {
	var form struct {
		Carrier carrier `json:"carrier"`
	}
	err := json.Unmarshal(data, &form)
	c.Carrier = form.Carrier
	return err
}

// A switch takes one branch for each case; a value without a case fails the node.
func TestSwitch(t *testing.T) {
	t.Parallel()
	p := typed.New("switch", func(b *typed.Block) typed.Val[string] {
		sw := typed.Switch(typed.Do1(b, "carrier", same[carrier], typed.Root[carrier](b, "by")))
		return typed.Either(b, "out",
			typed.Do0(sw.Case(air), "fly", ret("flies")),
			typed.Do0(sw.Case(road), "drive", ret("drives")))
	})
	for by, want := range map[carrier]string{air: "carrier:ok fly:ok drive:S/br out:ok", road: "carrier:ok fly:S/br drive:ok out:ok"} {
		out, _, err := run(t, p, want, kahn.Inputs(map[string]any{"by": by}))
		require.NoError(t, err)
		require.Equal(t, map[carrier]string{air: "flies", road: "drives"}[by], out)
	}
	_, _, err := run(t, p, "carrier:F fly:X drive:X out:X", kahn.Inputs(map[string]any{"by": carrier("sea")}))
	require.ErrorIs(t, err, kahn.ErrNoMatch)

	p = typed.New("default", func(b *typed.Block) typed.Val[string] {
		sw := typed.Switch(typed.Do1(b, "carrier", same[carrier], typed.Root[carrier](b, "by")))
		return typed.Either(b, "out",
			typed.Do0(sw.Case(air), "fly", ret("flies")),
			typed.Do0(sw.Default(), "wait", ret("waits")))
	})
	out, _, err := run(t, p, "carrier:ok fly:S/br wait:ok out:ok", kahn.Inputs(map[string]any{"by": carrier("sea")}))
	require.NoError(t, err)
	require.Equal(t, "waits", out)
}

// An Either prefers values of branches, in their order, to a value of its own block.
func TestEitherOrder(t *testing.T) {
	t.Parallel()
	p := typed.New("price", func(b *typed.Block) typed.Val[int] {
		member, _ := typed.If(typed.Do1(b, "member?", same[bool], typed.Root[bool](b, "member")))
		return typed.Either(b, "price", typed.Do0(member, "discount", ret(80)), typed.Do0(b, "full", ret(100)))
	})
	out, _, err := run(t, p, "member?:ok discount:ok full:ok price:ok", kahn.Inputs(map[string]any{"member": true}))
	require.NoError(t, err)
	require.Equal(t, 80, out)
	out, _, err = run(t, p, "member?:ok discount:S/br full:ok price:ok", kahn.Inputs(map[string]any{"member": false}))
	require.NoError(t, err)
	require.Equal(t, 100, out)
}

// With AnySucceeded, an Either has the value that exists first, and the slower node is stopped.
func TestEitherRace(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		after := func(d time.Duration) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				select {
				case <-time.After(d):
					return d.String(), nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
		}
		p := typed.New("race", func(b *typed.Block) typed.Val[string] {
			return typed.Either(b, "first", typed.Do0(b, "slow", after(time.Hour)), typed.Do0(b, "fast", after(time.Second))).
				With(typed.Options{Join: kahn.AnySucceeded, CancelLosers: true})
		})
		out, res, err := run(t, p, "slow:C fast:ok first:ok")
		require.NoError(t, err)
		require.Equal(t, "1s", out)
		require.Equal(t, time.Second, res.Duration)
	})
}

// In nested branches, everything in a branch that is not taken is skipped, even nodes that take values from outside.
func TestNestedBranches(t *testing.T) {
	t.Parallel()
	p := typed.New("nested", func(b *typed.Block) typed.Val[string] {
		x := typed.Root[int](b, "x")
		above := func(n int) func(context.Context, int) (bool, error) {
			return func(_ context.Context, v int) (bool, error) { return v > n, nil }
		}
		common := typed.Do0(b, "common", ret("!"))
		join := func(_ context.Context, a, b string) (string, error) { return a + b, nil }
		some, none := typed.If(typed.Do1(b, ">0", above(0), x))
		many, few := typed.If(typed.Do1(some, ">5", above(5), x))
		a := typed.Do2(many, "many", join, typed.Do0(many, "m", ret("many")), common)
		c := typed.Do1(few, "few", same[string], common)
		inner := typed.Either(some, "some", a, c)
		return typed.Either(b, "out", typed.Do2(some, "some!", join, inner, common), typed.Do1(none, "none", same[string], common))
	})
	for x, want := range map[int][2]string{
		9: {"many!!", "common:ok >0:ok >5:ok m:ok many:ok few:S/br some:ok some!:ok none:S/br out:ok"},
		3: {"!!", "common:ok >0:ok >5:ok m:S/br many:S/up few:ok some:ok some!:ok none:S/br out:ok"},
		0: {"!", "common:ok >0:ok >5:S/br m:S/up many:S/up few:S/up some:S/up some!:S/up none:ok out:ok"},
	} {
		g, err := p.Graph()
		require.NoError(t, err)
		res := kahntest.Run(t, g, nil, p.Encoding(), kahn.Inputs(map[string]any{"x": x}))
		require.NoError(t, res.Err)
		require.NoError(t, kahntest.CompareStatuses(res.Result, want[1]), "x=%d: %s", x, kahntest.Statuses(res.Result))
		out, err := p.Output(res.Result)
		require.NoError(t, err)
		require.Equal(t, want[0], out)
	}
}

// Each keeps the order of the list, and tolerates as many failures as its options say.
func TestEach(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	half := func(_ context.Context, v int) (int, error) {
		if v%2 != 0 {
			return 0, odd
		}
		return v / 2, nil
	}
	p := typed.New("each", func(b *typed.Block) typed.Val[string] {
		halves, errs := typed.Each(b, "half", typed.Root[[]int](b, "list"), half, typed.Items[int]{ToleratedCount: 1, Limit: 2})
		return typed.Do2(b, "report", func(_ context.Context, list []int, errs []error) (string, error) {
			return fmt.Sprint(list, len(errs), len(errs) > 1 && errors.Is(errs[1], odd)), nil
		}, halves, errs)
	})
	for list, want := range map[string]string{"2 4 6": "[1 2 3] 0 false", "2 3 6": "[1 3] 3 true", "": "[] 0 false"} {
		out, _, err := run(t, p, "half:ok report:ok", kahn.Inputs(map[string]any{"list": numbers(list)}))
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
	_, _, err := run(t, p, "half:F report:X", kahn.Inputs(map[string]any{"list": numbers("1 3")}))
	require.ErrorIs(t, err, odd)
	var e *kahn.MapError
	require.ErrorAs(t, err, &e)
	require.Equal(t, 2, e.Failed)
}

func numbers(text string) []int {
	list := []int{}
	for _, word := range strings.Fields(text) {
		list = append(list, len(word)*0+int(word[0]-'0'))
	}
	return list
}

// Items with the same key run one after the other; the longest item begins first.
func TestEachKeys(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		p := typed.New("keys", func(b *typed.Block) typed.Val[[]int] {
			list, _ := typed.Each(b, "wait", typed.Root[[]int](b, "list"), func(_ context.Context, v int) (int, error) {
				time.Sleep(time.Duration(v) * time.Second)
				return v, nil
			}, typed.Items[int]{Key: func(v int) string { return fmt.Sprint(v % 2) }, Estimate: func(v int) time.Duration { return time.Duration(v) * time.Second }})
			return list
		})
		for _, c := range []struct {
			opt  kahn.Option
			want time.Duration
		}{{kahn.KeyLimit(1), 7 * time.Second}, {kahn.KeyLimit(0), 4 * time.Second}, {kahn.Limit(2), 6 * time.Second}} {
			out, res, err := run(t, p, "wait:ok", kahn.Inputs(map[string]any{"list": []int{1, 1, 3, 1, 1, 4}}), c.opt)
			require.NoError(t, err)
			require.Equal(t, []int{1, 1, 3, 1, 1, 4}, out)
			require.Equal(t, c.want, res.Duration)
		}
	})
}

// An EachSub may take the list of an Each and values of the surrounding blocks, and its keys have the type of the item.
func TestEachSub(t *testing.T) {
	t.Parallel()
	p := typed.New("nested lists", func(b *typed.Block) typed.Val[[]string] {
		suffix := typed.Root[string](b, "suffix")
		twice, _ := typed.Each(b, "twice", typed.Root[[]int](b, "list"), func(_ context.Context, v int) (int, error) { return 2 * v, nil },
			typed.Items[int]{Key: func(v int) string { return fmt.Sprint(v % 2) }, Estimate: func(v int) time.Duration { return time.Duration(v) }})
		texts, _ := typed.EachSub(b, "text", twice, func(b *typed.Block, item typed.Val[int]) typed.Val[string] {
			big, small := typed.If(typed.Do1(b, "big?", func(_ context.Context, v int) (bool, error) { return v > 4, nil }, item))
			join := func(_ context.Context, v int, s string) (string, error) { return fmt.Sprint(v, s), nil }
			return typed.Either(b, "text", typed.Do2(big, "big", join, item, typed.Root[string](b, "suffix")), typed.Do2(small, "small", join, item, suffix))
		})
		return texts
	})
	out, res, err := run(t, p, "twice:ok text:ok", kahn.Inputs(map[string]any{"list": []int{1, 3}, "suffix": "!"}), kahn.KeyLimit(1))
	require.NoError(t, err)
	require.Equal(t, []string{"2!", "6!"}, out)
	require.NoError(t, kahntest.CompareStatuses(res, "text[0]/big:S/br text[1]/small:S/br text[1]/text:ok ..."))
}

// A sub-pipeline takes values of surrounding blocks at any depth, and returns its result even if other nodes follow the node of the result.
func TestSub(t *testing.T) {
	t.Parallel()
	calls := 0
	p := typed.New("outer", func(b *typed.Block) typed.Val[int] {
		x := typed.Root[int](b, "x")
		y := typed.Do1(b, "y", same[int], x)
		add := func(_ context.Context, a, b int) (int, error) { return a + b, nil }
		return typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] {
			typed.Do1(b, "log", func(context.Context, int) (struct{}, error) { calls++; return struct{}{}, nil }, y)
			inner := typed.Sub(b, "T", func(b *typed.Block) typed.Val[int] { return typed.Do2(b, "sum", add, x, y) })
			return typed.Do2(b, "sum", add, inner, y)
		})
	})
	out, res, err := run(t, p, "y:ok S:ok", kahn.Inputs(map[string]any{"x": 2}))
	require.NoError(t, err)
	require.Equal(t, 6, out)
	require.Equal(t, 1, calls)
	require.NoError(t, kahntest.CompareStatuses(res, "S/T/sum:ok S/log:ok ..."))
}

// In nested EachSubs the items have the same input name in the graph, but each function gets its own item.
func TestItemsOfItems(t *testing.T) {
	t.Parallel()
	p := typed.New("matrix", func(b *typed.Block) typed.Val[[][]string] {
		cols := typed.Root[[]int](b, "cols")
		rows, _ := typed.EachSub(b, "row", typed.Root[[]string](b, "rows"), func(b *typed.Block, row typed.Val[string]) typed.Val[[]string] {
			cells, _ := typed.EachSub(b, "col", cols, func(b *typed.Block, col typed.Val[int]) typed.Val[string] {
				return typed.Do2(b, "cell", func(_ context.Context, row string, col int) (string, error) { return fmt.Sprint(row, col), nil }, row, col)
			})
			return cells
		})
		return rows
	})
	out, _, err := run(t, p, "row:ok", kahn.Inputs(map[string]any{"rows": []string{"a", "b"}, "cols": []int{1, 2}}))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a1", "a2"}, {"b1", "b2"}}, out)
}

// A retry runs the whole sub-pipeline again, and a Try gets the error of the last retry.
func TestSubRetry(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		broken, calls := errors.New("broken"), 0
		p := typed.New("retry", func(b *typed.Block) typed.Val[string] {
			s := typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] {
				return typed.Do0(b, "x", func(context.Context) (int, error) { calls++; return 0, broken })
			}).With(typed.Options{Retry: kahn.Retry{MaxAttempts: 3}})
			return typed.Do1(b, "out", func(_ context.Context, r typed.Tried[int]) (string, error) {
				return fmt.Sprint(errors.Is(r.Err, broken)), nil
			},
				typed.Try(b, "tried", s))
		})
		out, res, err := run(t, p, "S:F tried:ok out:ok")
		require.NoError(t, err)
		require.Equal(t, "true", out)
		require.Equal(t, 3, calls)
		require.True(t, res.Degraded)
	})
}

// If a node skips itself, the nodes that take its value are skipped, even if the first node is in a sub-pipeline. The error says what was
// skipped.
func TestSkip(t *testing.T) {
	t.Parallel()
	skip := func(context.Context) (int, error) { return 0, kahn.Skip("not today") }
	sum := func(_ context.Context, a, b int) (int, error) { return a + b, nil }
	p := typed.New("skip", func(b *typed.Block) typed.Val[int] {
		return typed.Do2(b, "sum", sum, typed.Do0(b, "x", skip), typed.Do0(b, "y", ret(1)))
	})
	_, _, err := run(t, p, "x:S/self y:ok sum:S/up")
	require.ErrorIs(t, err, kahn.ErrNoValue)
	require.ErrorContains(t, err, `"sum"`)

	p = typed.New("skip inside", func(b *typed.Block) typed.Val[int] {
		s := typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] {
			typed.Do0(b, "other", ret(1))
			return typed.Do0(b, "x", skip)
		})
		return typed.Do2(b, "sum", sum, s, typed.Do0(b, "y", ret(1)))
	})
	_, _, err = run(t, p, "S:ok y:ok sum:S/self")
	require.ErrorIs(t, err, kahn.ErrNoValue)

	p = typed.New("skip as the result", func(b *typed.Block) typed.Val[int] {
		return typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] {
			typed.Do0(b, "other", ret(1))
			return typed.Do0(b, "x", skip)
		})
	})
	_, _, err = run(t, p, "S:ok")
	require.ErrorIs(t, err, kahn.ErrNoValue)
	require.ErrorContains(t, err, `the result of "S" was skipped`)
}

// A Try in a branch runs only if the branch is taken, even if a failure outside the branch stops the tried node before the branch is
// chosen.
func TestTryInBranch(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, taken := range []bool{true, false} {
			p := typed.New("try", func(b *typed.Block) typed.Val[int] {
				bad := typed.Do0(b, "bad", func(context.Context) (int, error) { return 0, broken })
				then, _ := typed.If(typed.Do0(b, "late?", func(context.Context) (bool, error) { time.Sleep(time.Second); return taken, nil }))
				typed.Try(then, "tried", typed.Do1(then, "x", same[int], bad))
				return typed.Do0(b, "out", ret(1))
			})
			want := "bad:F late?:ok x:X tried:S/when out:ok"
			if taken {
				want = "bad:F late?:ok x:X tried:ok out:ok"
			}
			_, res, err := run(t, p, want)
			require.Equal(t, !taken, errors.Is(err, broken), "a failure that is tried is handled")
			require.Equal(t, taken, res.Degraded)
		}
	})
}

// If the Join of a node lets it run without one of its values, the node is skipped. A cleanup node that has all its values runs.
func TestCleanup(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	closed := 0
	build := func(fail string) *typed.Pipeline[int] {
		do := func(id string) func(context.Context) (int, error) {
			return func(context.Context) (int, error) {
				if id == fail {
					return 0, broken
				}
				return 1, nil
			}
		}
		return typed.New("cleanup", func(b *typed.Block) typed.Val[int] {
			conn := typed.Do0(b, "open", do("open"))
			work := typed.Do1(b, "work", func(ctx context.Context, c int) (int, error) { return do("work")(ctx) }, conn)
			typed.Do1(b, "close", func(context.Context, int) (struct{}, error) { closed++; return struct{}{}, nil }, conn).
				With(typed.Options{Cleanup: true, After: []typed.Handle{work}})
			return work
		})
	}
	_, _, err := run(t, build(""), "open:ok work:ok close:ok")
	require.NoError(t, err)
	_, _, err = run(t, build("work"), "open:ok work:F close:ok")
	require.ErrorIs(t, err, broken)
	require.Equal(t, 2, closed)
	_, _, err = run(t, build("open"), "open:F work:X close:S/self")
	require.ErrorIs(t, err, broken)
	require.Equal(t, 2, closed)
}

// A gate waits, and rejects an answer that is not a choice. A valid answer decides which branch is taken.
func TestGate(t *testing.T) {
	t.Parallel()
	p := typed.New("gate", func(b *typed.Block) typed.Val[string] {
		draft := typed.Do0(b, "draft", ret("text"))
		ok := typed.Gate[bool](b, "approve?", draft)
		yes, no := typed.If(ok)
		return typed.Either(b, "out",
			typed.Do2(yes, "publish", func(_ context.Context, ok bool, s string) (string, error) { return fmt.Sprint(s, ok), nil }, ok, draft),
			typed.Do0(no, "drop", ret("dropped")))
	})
	ctx := context.Background()
	_, err := typed.Run(ctx, p)
	require.ErrorIs(t, err, kahn.ErrSuspended)
	require.ErrorContains(t, err, `"approve?"`)
	res, err := p.Execute(ctx)
	require.NoError(t, err)
	snap := res.Snapshot()
	_, err = typed.Run(ctx, p, kahn.Resume(snap), kahn.EarlySignals(map[string]any{"approve?": "maybe"}))
	require.ErrorIs(t, err, kahn.ErrChoice)
	out, err := typed.Run(ctx, p, kahn.Resume(snap), kahn.EarlySignals(map[string]any{"approve?": "approved"}))
	require.NoError(t, err)
	require.Equal(t, "texttrue", out)
	out, err = typed.Run(ctx, p, kahn.Resume(snap), kahn.EarlySignals(map[string]any{"approve?": false}))
	require.NoError(t, err)
	require.Equal(t, "dropped", out)
}

// If a gate whose value is a text times out, its value can be "timeout", and a Switch can have a case for it.
func TestGateTimeout(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		p := typed.New("gate", func(b *typed.Block) typed.Val[string] {
			sw := typed.Switch(typed.Gate[carrier](b, "by").With(typed.Options{Gate: &kahn.Gate{OnTimeout: kahn.GateLabel, Timeout: time.Hour}}))
			return typed.Either(b, "out", typed.Do0(sw.Case(air), "fly", ret("flies")), typed.Do0(sw.Case("timeout"), "late", ret("late")))
		})
		begun, err := p.Start(context.Background())
		require.NoError(t, err)
		require.ErrorIs(t, begun.Signal(context.Background(), "by", "sea"), kahn.ErrChoice)
		res, err := begun.Wait()
		require.NoError(t, err)
		out, err := p.Output(res)
		require.NoError(t, err)
		require.Equal(t, "late", out)
	})
}

// A fallback has the type of the node's value, even for an Each.
func TestFallback(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	p := typed.New("fallback", func(b *typed.Block) typed.Val[[]int] {
		list := typed.Do0(b, "list", func(context.Context) ([]int, error) { return nil, broken }).
			Fallback(func(_ context.Context, err error) ([]int, error) { return []int{1, 2}, nil })
		items, _ := typed.Each(b, "each", list, func(context.Context, int) (int, error) { return 0, broken })
		items = items.Fallback(func(_ context.Context, err error) ([]int, error) {
			if !errors.Is(err, broken) {
				return nil, err
			}
			return []int{7}, nil
		})
		return typed.Do1(b, "out", same[[]int], items)
	})
	out, _, err := run(t, p, "list:ok each:ok out:ok")
	require.NoError(t, err)
	require.Equal(t, []int{7}, out)
}

// A value from outside that is not a T fails the nodes that take it, without retries. A value in one of JSON's types is decoded.
func TestRootTypes(t *testing.T) {
	t.Parallel()
	type order struct {
		ID    int
		Items []string
	}
	p := typed.New("root", func(b *typed.Block) typed.Val[order] {
		return typed.Do1(b, "out", same[order], typed.Root[order](b, "order")).With(typed.Options{Retry: kahn.RetryStandard()})
	})
	want := order{7, []string{"a"}}
	for _, in := range []any{want, map[string]any{"ID": 7.0, "Items": []any{"a"}}} {
		out, _, err := run(t, p, "out:ok", kahn.Inputs(map[string]any{"order": in}))
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
	for _, in := range []any{&want, 7, map[string]any{"id": "seven"}, map[string]any{"Itmes": nil}} {
		_, res, err := run(t, p, "out:F", kahn.Inputs(map[string]any{"order": in}))
		require.ErrorIs(t, err, kahn.ErrType)
		n, _ := res.Node("out")
		require.Equal(t, 1, n.Attempts)
	}
	tolerant := typed.New("tolerant", func(b *typed.Block) typed.Val[carrierOf] {
		return typed.Do1(b, "out", same[carrierOf], typed.Root[carrierOf](b, "order"))
	})
	out, err := typed.Run(context.Background(), tolerant, kahn.Inputs(map[string]any{"order": map[string]any{"carrier": "air", "weight": 2}}))
	require.NoError(t, err)
	require.Equal(t, carrierOf{air}, out, "its UnmarshalJSON decides")
	_, err = typed.Run(context.Background(), p, kahn.Inputs(map[string]any{"odrer": want}))
	var e *kahn.InputError
	require.ErrorAs(t, err, &e)
	require.Equal(t, []string{"odrer"}, e.Unknown)
	require.Equal(t, []string{"order"}, e.Missing)
}

// A null output is the zero value of an interface, a pointer or a list, not a missing value.
func TestNulls(t *testing.T) {
	t.Parallel()
	p := typed.New("nulls", func(b *typed.Block) typed.Val[string] {
		return typed.Do3(b, "out", func(_ context.Context, err error, p *int, list []string) (string, error) {
			return fmt.Sprint(err == nil, p == nil, list == nil), nil
		}, typed.Do0(b, "error", ret[error](nil)), typed.Do0(b, "pointer", ret[*int](nil)), typed.Do0(b, "list", ret[[]string](nil)))
	})
	out, _, err := run(t, p, "error:ok pointer:ok list:ok out:ok")
	require.NoError(t, err)
	require.Equal(t, "true true true", out)
}

// For a suspended run, Execute returns no error and a Result without an output, and Run returns ErrSuspended. The same holds if the node of the
// result has completed, and only another node waits.
func TestSuspended(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	waits := typed.New("waits", func(b *typed.Block) typed.Val[int] {
		return typed.Do1(b, "x", func(context.Context, bool) (int, error) { return 7, nil }, typed.Gate[bool](b, "ok?"))
	})
	res, err := waits.Execute(ctx)
	require.NoError(t, err)
	require.Equal(t, kahn.RunSuspended, res.Status)
	_, ofOutput := waits.Output(res)
	_, ofNode := kahn.Output[int](res, "x")
	out, ofRun := typed.Run(ctx, waits)
	require.Zero(t, out)
	for _, err := range []error{ofOutput, ofNode, ofRun} {
		require.ErrorIs(t, err, kahn.ErrSuspended)
		require.ErrorIs(t, err, kahn.ErrNoValue)
		require.EqualError(t, err, `output of "x": no value: it is waiting: run suspended: it waits for "ok?"`)
	}

	aside := typed.New("aside", func(b *typed.Block) typed.Val[int] {
		typed.Gate[bool](b, "ok?")
		return typed.Do0(b, "x", ret(7))
	})
	res, err = aside.Execute(ctx)
	require.NoError(t, err)
	_, ofOutput = aside.Output(res)
	_, ofRun = typed.Run(ctx, aside)
	require.Equal(t, ofOutput, ofRun)
	require.EqualError(t, ofRun, `result "x": it is completed, but other nodes have not ended: run suspended`)
	n, err := kahn.Output[int](res, "x")
	require.NoError(t, err)
	require.Equal(t, 7, n)
}

// kahn.StepOf returns the Step of the attempt for the context of a function, for derived contexts, and in middleware.
func TestContextIsStep(t *testing.T) {
	t.Parallel()
	type key struct{}
	p := typed.New("step", func(b *typed.Block) typed.Val[string] {
		return typed.Do0(b, "x", func(ctx context.Context) (string, error) {
			derived, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 8), time.Hour)
			defer cancel()
			s := kahn.StepOf(ctx)
			return fmt.Sprint(s == kahn.StepOf(derived), " ", s.ID(), " ", ctx.Value(key{})), nil
		})
	})
	out, err := typed.Run(context.Background(), p, kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
		return func(ctx context.Context, s *kahn.Step) (any, error) { return next(context.WithValue(ctx, key{}, 7), s) }
	}))
	require.NoError(t, err)
	require.Equal(t, "true x 7", out)
}

// Test mode can mock typed nodes. If a mock returns another type, the nodes that take its value fail.
func TestMocks(t *testing.T) {
	t.Parallel()
	p := typed.New("mocks", func(b *typed.Block) typed.Val[int] {
		ok, _ := typed.If(typed.Gate[bool](b, "gate"))
		x := typed.Do0(ok, "x", func(context.Context) (int, error) { panic("called") })
		return typed.Either(b, "out", typed.Do1(ok, "y", same[int], x), typed.Do0(b, "z", ret(0)))
	})
	mock := func(v any) kahn.Option {
		return kahn.TestMode{Mocks: map[string]kahn.Mock{"x": {Value: v}}}
	}
	out, _, err := run(t, p, "gate:ok x:ok y:ok z:ok out:ok", mock(5))
	require.NoError(t, err)
	require.Equal(t, 5, out)
	_, _, err = run(t, p, "gate:ok x:ok y:F z:ok out:X", mock("five"))
	require.ErrorIs(t, err, kahn.ErrType)
}

// Panics and cancellation work as in any graph.
func TestPanicAndCancel(t *testing.T) {
	t.Parallel()
	p := typed.New("panic", func(b *typed.Block) typed.Val[int] {
		return typed.Do1(b, "y", same[int], typed.Do0(b, "x", func(context.Context) (int, error) { panic("oh") }))
	})
	_, _, err := run(t, p, "x:F y:X")
	var e *kahn.PanicError
	require.ErrorAs(t, err, &e)

	ctx, cancel := context.WithCancel(context.Background())
	p = typed.New("cancel", func(b *typed.Block) typed.Val[int] {
		x := typed.Do0(b, "x", func(ctx context.Context) (int, error) { cancel(); <-ctx.Done(); return 0, ctx.Err() })
		return typed.Do1(b, "y", func(_ context.Context, r typed.Tried[int]) (int, error) { return r.Value, nil }, typed.Try(b, "t", x))
	})
	_, err = typed.Run(ctx, p)
	require.ErrorIs(t, err, context.Canceled)
}

// A gate of a struct rejects an answer that does not fit, with the reason, and keeps waiting. Options.Gate does not replace this check.
func TestGateOfStruct(t *testing.T) {
	t.Parallel()
	type verdict struct {
		OK   bool   `json:"ok"`
		Note string `json:"note"`
	}
	errShort := errors.New("say why")
	for name, gate := range map[string]func(b *typed.Block) typed.Val[verdict]{
		"plain": func(b *typed.Block) typed.Val[verdict] { return typed.Gate[verdict](b, "review") },
		"with options": func(b *typed.Block) typed.Val[verdict] {
			return typed.Gate[verdict](b, "review").With(typed.Options{Gate: &kahn.Gate{Timeout: time.Hour, Check: func(answer any) error {
				if v, is := answer.(verdict); is && v.Note == "" {
					return errShort
				}
				return nil
			}}})
		},
	} {
		p := typed.New("review", func(b *typed.Block) typed.Val[string] {
			return typed.Do1(b, "tell", func(_ context.Context, v verdict) (string, error) { return fmt.Sprint(v.OK, v.Note), nil }, gate(b))
		})
		r, err := p.Start(context.Background())
		require.NoError(t, err)
		for _, row := range []struct {
			answer any
			text   string
		}{
			{map[string]any{"ok": "maybe"}, "cannot unmarshal string into Go struct field verdict.ok of type bool"},
			{map[string]any{"okay": true}, `unknown field "okay"`},
			{"yes", "cannot unmarshal string"},
			{3, "int instead of typed_test.verdict"},
		} {
			err := r.Signal(context.Background(), "review", row.answer)
			require.ErrorIs(t, err, kahn.ErrChoice, name)
			require.ErrorIs(t, err, kahn.ErrType, name)
			require.ErrorContains(t, err, row.text)
		}
		if name == "with options" {
			require.ErrorIs(t, r.Signal(context.Background(), "review", verdict{OK: true}), errShort)
		}
		require.NoError(t, r.Signal(context.Background(), "review", map[string]any{"ok": true, "note": "fine"}))
		res, err := r.Wait()
		require.NoError(t, err)
		out, err := p.Output(res)
		require.NoError(t, err)
		require.Equal(t, "truefine", out)
	}
}

// An item without a result never becomes a zero value: not if the errors are ignored, not in a sub-pipeline, and not in another Each.
func TestEachLeavesNoZeros(t *testing.T) {
	t.Parallel()
	price := func(_ context.Context, n int) (int, error) {
		switch n {
		case 2:
			return 0, errors.New("no price")
		case 3:
			return 0, kahn.Skip("not for sale")
		}
		return n * 10, nil
	}
	show := func(_ context.Context, l []int) (string, error) { return fmt.Sprint(l), nil }
	tolerant := typed.Items[int]{ToleratedCount: 2}
	list := func(b *typed.Block) typed.Val[[]int] { return typed.Root[[]int](b, "list") }
	for name, x := range map[string]struct {
		build func(b *typed.Block) typed.Val[string]
		want  string
	}{
		"dropped errors": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), price, tolerant)
			return typed.Do1(b, "show", show, prices)
		}, "[10 40]"},
		"errors": {func(b *typed.Block) typed.Val[string] {
			_, errs := typed.Each(b, "price", list(b), price, tolerant)
			return typed.Do1(b, "show", func(_ context.Context, errs []error) (string, error) {
				return fmt.Sprint(len(errs), errs[0], errs[1] != nil, errors.Is(errs[2], kahn.ErrNoValue), errs[3]), nil
			}, errs)
		}, "4 <nil> true true <nil>"},
		"filled": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), price, tolerant)
			return typed.Do1(b, "show", show, typed.Filled(b, "all", prices, -1))
		}, "[10 -1 -1 40]"},
		"each of each": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), price, tolerant)
			more, _ := typed.Each(b, "more", prices, func(_ context.Context, n int) (int, error) { return n + 1, nil })
			return typed.Do1(b, "show", show, typed.Filled(b, "all", more, -1))
		}, "[11 -1 -1 41]"},
		"each of what was filled": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), price, tolerant)
			more, _ := typed.Each(b, "more", typed.Filled(b, "all", prices, -1), func(_ context.Context, n int) (int, error) { return n + 1, nil })
			return typed.Do1(b, "show", show, more)
		}, "[11 0 0 41]"},
		"a sub-pipeline for each of each": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), price, tolerant)
			more, _ := typed.EachSub(b, "more", prices, func(b *typed.Block, n typed.Val[int]) typed.Val[int] {
				return typed.Do1(b, "add", func(_ context.Context, n int) (int, error) { return n + 1, nil }, n)
			})
			return typed.Do1(b, "show", show, more)
		}, "[11 41]"},
		"into a sub-pipeline": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), price, tolerant)
			return typed.Sub(b, "sub", func(b *typed.Block) typed.Val[string] { return typed.Do1(b, "show", show, prices) })
		}, "[10 40]"},
		"interfaces": {func(b *typed.Block) typed.Val[string] {
			prices, _ := typed.Each(b, "price", list(b), func(ctx context.Context, n int) (any, error) { return price(ctx, n) }, tolerant)
			return typed.Do1(b, "show", func(_ context.Context, l []any) (string, error) { return fmt.Sprint(l), nil }, prices)
		}, "[10 40]"},
	} {
		p := typed.New("each", x.build)
		for _, opts := range [][]kahn.Option{nil, {kahn.Durable(new(store.Memory)), kahn.RunID("1")}} {
			out, err := typed.Run(t.Context(), p, append(opts, kahn.Inputs(map[string]any{"list": []int{1, 2, 3, 4}}))...)
			require.NoError(t, err, name)
			require.Equal(t, x.want, out, name)
		}
	}
	_, err := typed.New("each", func(b *typed.Block) typed.Val[[]int] { return typed.Filled(b, "all", list(b), 0) }).Plan()
	require.ErrorContains(t, err, `node "all": bad value: Filled is for the results of an Each, but "list" is not an Each`)
}
