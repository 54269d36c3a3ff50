package typed_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/typed"
)

// undone records which effects were undone, with their values, and whether each effect is certain.
type undone struct {
	mu    sync.Mutex
	lines []string
}

func (u *undone) add(ctx context.Context, args ...any) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := kahn.StepOf(ctx)
	_, certain := s.Compensated()
	u.lines = append(u.lines, fmt.Sprint(s.Path(), " ", args, " ", certain))
	return nil
}

func (u *undone) String() string { return strings.Join(u.lines, "; ") }

func (u *undone) sorted() string {
	sort.Strings(u.lines)
	return u.String()
}

var errNoTruck = errors.New("no truck")

func fails[T any](context.Context, T) (bool, error) { return false, errNoTruck }

type (
	purchase struct{ ID string }
	paper    struct{ Sum int }
)

// Compensations run in reverse order. Each gets the values that its node took and the node's own value, with their types.
func TestCompensate(t *testing.T) {
	t.Parallel()
	var u undone
	p := typed.New("order", func(b *typed.Block) typed.Val[bool] {
		id := typed.Root[string](b, "id")
		o := typed.Do1(b, "load", func(_ context.Context, id string) (purchase, error) { return purchase{id}, nil }, id).
			Compensate(typed.Undo0(func(ctx context.Context, o purchase) error { return u.add(ctx, o.ID) }))
		sum := typed.Do1(b, "sum", func(context.Context, purchase) (int, error) { return 7, nil }, o)
		paid := typed.Do3(b, "charge", func(_ context.Context, o purchase, sum int, _ string) (paper, error) { return paper{sum}, nil }, o, sum, id).
			Compensate(typed.Undo2(func(ctx context.Context, id string, sum int, r paper) error { return u.add(ctx, id, sum, r.Sum) }, id, sum))
		all := typed.Do4(b, "all", func(context.Context, purchase, paper, int, string) (*purchase, error) { return &purchase{"all"}, nil }, o, paid, sum, id).
			Compensate(typed.Undo4(func(ctx context.Context, o purchase, r paper, sum int, id string, all *purchase) error {
				return u.add(ctx, o.ID, r.Sum, sum, id, all.ID)
			}, o, paid, sum, id))
		three := typed.Do4(b, "three", func(context.Context, purchase, paper, int, *purchase) (string, error) { return "3", nil }, o, paid, sum, all).
			Compensate(typed.Undo3(func(ctx context.Context, o purchase, r paper, all *purchase, made string) error {
				return u.add(ctx, o.ID, r.Sum, all.ID, made)
			}, o, paid, all))
		return typed.Do1(b, "ship", fails[string], three)
	})
	_, res, err := run(t, p, "load:ok sum:ok charge:ok all:ok three:ok ship:F", kahn.Inputs(map[string]any{"id": "o1"}))
	require.ErrorIs(t, err, errNoTruck)
	require.Equal(t, "three [o1 7 all 3] true; all [o1 7 7 o1 all] true; charge [o1 7 7] true; load [o1] true", u.String())
	n, _ := res.Node("charge")
	require.Equal(t, kahn.CompensationDone, n.Compensation)
}

// If the effect of a node is unknown, its compensation gets the zero value, and its Step reports that the effect is not certain. A fallback's
// value counts as the node's value.
func TestCompensateUnknownEffect(t *testing.T) {
	t.Parallel()
	var u undone
	p := typed.New("order", func(b *typed.Block) typed.Val[bool] {
		o := typed.Do0(b, "load", ret(purchase{"o1"}))
		refund := func(ctx context.Context, o purchase, r paper) error { return u.add(ctx, o.ID, r.Sum) }
		saved := typed.Do1(b, "other", func(context.Context, purchase) (paper, error) { return paper{5}, errNoTruck }, o).
			Fallback(func(context.Context, error) (paper, error) { return paper{3}, nil }).Compensate(typed.Undo1(refund, o))
		paid := typed.Do2(b, "charge", func(context.Context, purchase, paper) (paper, error) { return paper{7}, errNoTruck }, o, saved).Compensate(typed.Undo1(refund, o))
		return typed.Do1(b, "ship", fails[paper], paid)
	})
	_, _, err := run(t, p, "load:ok other:ok charge:F ship:X")
	require.ErrorIs(t, err, errNoTruck)
	require.Equal(t, "charge [o1 0] false; other [o1 3] false", u.String())
}

// The items of an Each are undone one by one. A sub-pipeline is undone by its own function, or by the functions of its nodes, which may take
// values from outside.
func TestCompensateEachAndSub(t *testing.T) {
	t.Parallel()
	var u undone
	price := func(_ context.Context, o purchase) (paper, error) {
		if o.ID == "c" {
			return paper{}, errNoTruck
		}
		return paper{len(o.ID)}, nil
	}
	undo := func(ctx context.Context, o purchase, r paper) error { return u.add(ctx, o.ID, r.Sum) }
	p := typed.New("orders", func(b *typed.Block) typed.Val[bool] {
		list := typed.Do0(b, "list", ret([]purchase{{"a"}, {"bb"}, {"c"}}))
		shop := typed.Root[string](b, "shop")
		charged, _ := typed.Each(b, "charge", list, price, typed.Items[purchase]{ToleratedCount: 1})
		charged.Compensate(typed.UndoEach(undo, list))
		packed, _ := typed.EachSub(b, "pack", list, func(b *typed.Block, o typed.Val[purchase]) typed.Val[paper] {
			boxed := typed.Do1(b, "box", price, o).Compensate(typed.Undo1(undo, o))
			return typed.Sub(b, "in", func(b *typed.Block) typed.Val[paper] { return typed.Do2(b, "s", first[paper, purchase], boxed, o) }).
				Compensate(typed.Undo2(func(ctx context.Context, o purchase, boxed paper, made paper) error {
					return u.add(ctx, o.ID, boxed.Sum, made.Sum)
				}, o, boxed))
		}, typed.Items[purchase]{ToleratedCount: 1})
		whole := typed.Sub(b, "whole", func(b *typed.Block) typed.Val[paper] {
			return typed.Do3(b, "x", func(context.Context, []paper, []paper, string) (paper, error) { return paper{9}, nil }, charged, packed, shop)
		}).Compensate(typed.Undo3(func(ctx context.Context, shop string, c, p []paper, made paper) error {
			return u.add(ctx, shop, c, p, made)
		}, shop, charged, packed))
		listed := typed.Do1(b, "listed", same[paper], whole).Compensate(typed.Undo1(func(ctx context.Context, w, made paper) error { return u.add(ctx, w, made) }, whole))
		each2, _ := typed.EachSub(b, "nested", list, func(b *typed.Block, o typed.Val[purchase]) typed.Val[paper] {
			return typed.Sub(b, "in", func(b *typed.Block) typed.Val[paper] { return typed.Do1(b, "s", price, o) })
		}, typed.Items[purchase]{ToleratedCount: 1})
		each2.Compensate(typed.UndoEach(undo, list))
		return typed.Do2(b, "ship", func(context.Context, paper, []paper) (bool, error) { return false, errNoTruck }, listed, each2)
	})
	_, _, err := run(t, p, "list:ok charge:ok pack:ok whole:ok listed:ok nested:ok ship:F", kahn.Inputs(map[string]any{"shop": "s1"}))
	require.ErrorIs(t, err, errNoTruck)
	require.Equal(t, strings.Join([]string{
		"charge[0] [a 1] true", "charge[1] [bb 2] true", "charge[2] [c 0] false",
		"listed [{9} {9}] true",
		"nested[0] [a 1] true", "nested[1] [bb 2] true", "nested[2] [c 0] false",
		"pack[0]/box [a 1] true", "pack[0]/in [a 1 1] true", "pack[1]/box [bb 2] true", "pack[1]/in [bb 2 2] true", "pack[2]/box [c 0] false",
		"whole [s1 [{1} {2}] [{1} {2}] {9}] true",
	}, "; "), u.sorted())
}

func first[A, B any](_ context.Context, a A, _ B) (A, error) { return a, nil }

// CompensateRetry and CompensateTimeout bound the attempts of a compensation. With CompensateBy the run's step function undoes the node.
func TestCompensateOptions(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		attempts := 0
		p := typed.New("order", func(b *typed.Block) typed.Val[bool] {
			slow := typed.Do0(b, "slow", ret(1)).
				With(typed.Options{CompensateRetry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, Jitter: kahn.JitterNone}, CompensateTimeout: time.Minute}).
				Compensate(typed.Undo0(func(ctx context.Context, _ int) error { attempts++; <-ctx.Done(); return ctx.Err() }))
			return typed.Do1(b, "ship", fails[int], slow)
		})
		_, res, err := run(t, p, "slow:ok ship:F")
		require.ErrorIs(t, err, kahn.ErrCompensation)
		require.Equal(t, 3, attempts)
		require.Equal(t, 3*time.Minute+3*time.Second, res.Duration)

		var kinds []string
		p = typed.New("by", func(b *typed.Block) typed.Val[bool] {
			paid := typed.Do0(b, "charge", ret(1)).With(typed.Options{CompensateBy: &kahn.CompensateBy{Kind: "refund", Config: "slowly"}})
			return typed.Do1(b, "ship", fails[int], paid)
		})
		g, err := p.Graph()
		require.NoError(t, err)
		kahntest.Run(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
			kinds = append(kinds, fmt.Sprint(s.Kind(), " ", s.Config()))
			return nil, nil
		}, p.Encoding())
		require.Equal(t, []string{"refund slowly"}, kinds)
	})
}
