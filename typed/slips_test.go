package typed_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/typed"
)

func drop[T any](context.Context, T) error { return nil }

func drop2[T any](context.Context, T, T) error { return nil }

// Mistakes that the compiler cannot find are reported before anything runs. The errors name the node and the valid choices.
func TestSlips(t *testing.T) {
	t.Parallel()
	var leaked typed.Val[int]
	typed.New("other", func(b *typed.Block) typed.Val[int] {
		leaked = typed.Do0(b, "leaked", ret(1))
		return leaked
	})
	sum := func(_ context.Context, a, b int) (int, error) { return a + b, nil }
	yes := func(b *typed.Block) (*typed.Block, *typed.Block) { return typed.If(typed.Do0(b, "if", ret(true))) }
	for name, c := range map[string]struct {
		build func(b *typed.Block) typed.Val[int]
		is    error
		text  string
	}{
		"duplicate": {func(b *typed.Block) typed.Val[int] {
			typed.Do0(b, "x", ret(1))
			return typed.Do0(b, "x", ret(2))
		}, kahn.ErrDuplicateNode, `"x" occurs twice in the pipeline "p"`},
		"input and node": {func(b *typed.Block) typed.Val[int] {
			return typed.Do1(b, "x", same[int], typed.Root[int](b, "x"))
		}, kahn.ErrDuplicateNode, `"x" occurs twice`},
		"duplicate in a sub-pipeline": {func(b *typed.Block) typed.Val[int] {
			return typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] {
				typed.Do0(b, "x", ret(1))
				return typed.Do0(b, "x", ret(2))
			})
		}, kahn.ErrDuplicateNode, `"x" occurs twice in the sub-pipeline "S"`},
		"input and node in a sub-pipeline": {func(b *typed.Block) typed.Val[int] {
			r := typed.Root[int](b, "r")
			return typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] { return typed.Do1(b, "r", same[int], r) })
		}, kahn.ErrDuplicateNode, `"r" occurs twice in the sub-pipeline "S"`},
		"item and node": {func(b *typed.Block) typed.Val[int] {
			typed.EachSub(b, "S", typed.Do0(b, "l", ret([]int{1})), func(b *typed.Block, item typed.Val[int]) typed.Val[int] {
				return typed.Do1(b, "item", same[int], item)
			})
			return typed.Do0(b, "y", ret(1))
		}, kahn.ErrDuplicateNode, `"item" occurs twice in the sub-pipeline "S"`},
		"empty name": {func(b *typed.Block) typed.Val[int] {
			return typed.Do1(b, "x", same[int], typed.Root[int](b, ""))
		}, kahn.ErrBadValue, `an input of the pipeline "p" has an empty name`},
		"empty id":     {func(b *typed.Block) typed.Val[int] { return typed.Do0(b, "", ret(1)) }, kahn.ErrBadValue, "empty id"},
		"nil function": {func(b *typed.Block) typed.Val[int] { return typed.Do0[int](b, "x", nil) }, kahn.ErrBadValue, `node "x": bad value: its function is nil`},
		"nil sub":      {func(b *typed.Block) typed.Val[int] { return typed.Sub[int](b, "x", nil) }, kahn.ErrBadValue, `node "x": bad value: its function is nil`},
		"zero value": {func(b *typed.Block) typed.Val[int] {
			return typed.Do2(b, "x", sum, typed.Do0(b, "y", ret(1)), typed.Val[int]{})
		}, kahn.ErrBadValue, `node "x": bad value: input 2 is the zero Val`},
		"no result":    {func(b *typed.Block) typed.Val[int] { return typed.Val[int]{} }, kahn.ErrBadValue, "returns the zero Val"},
		"nil block":    {func(b *typed.Block) typed.Val[int] { return typed.Do0(nil, "x", ret(1)) }, kahn.ErrBadValue, "returns the zero Val"},
		"input result": {func(b *typed.Block) typed.Val[int] { return typed.Root[int](b, "x") }, typed.ErrElsewhere, `returns "x", which is not the value of a node that the function has added`},
		"another pipeline": {func(b *typed.Block) typed.Val[int] { return typed.Do1(b, "x", same[int], leaked) },
			typed.ErrElsewhere, `node "x" takes "leaked", a value made elsewhere: it belongs to the pipeline "other"`},
		"result of another pipeline": {func(b *typed.Block) typed.Val[int] { return leaked }, typed.ErrElsewhere, `"leaked"`},
		"inside of a sub-pipeline": {func(b *typed.Block) typed.Val[int] {
			var inner typed.Val[int]
			typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] {
				inner = typed.Do0(b, "inner", ret(1))
				return typed.Do1(b, "last", same[int], inner)
			})
			return typed.Do1(b, "x", same[int], inner)
		}, typed.ErrElsewhere, `node "x" takes "inner", a value made elsewhere: it is made inside the sub-pipeline "S": let the function of that pipeline return it`},
		"value of a branch": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			return typed.Do1(b, "x", same[int], typed.Do0(then, "y", ret(1)))
		}, typed.ErrBranch, `node "x": values and branches do not match: it takes "y", which exists only in the branch "true" of "if", but "x" is in the pipeline "p": add "x" to that branch, or join the values of the branches by Either`},
		"value of the other branch": {func(b *typed.Block) typed.Val[int] {
			then, otherwise := yes(b)
			typed.Do1(otherwise, "x", same[int], typed.Do0(then, "y", ret(1)))
			return typed.Do0(b, "z", ret(1))
		}, typed.ErrBranch, `"x" is in the branch "false" of "if"`},
		"value of a branch in a sub-pipeline": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			y := typed.Do0(then, "y", ret(1))
			return typed.Sub(b, "S", func(b *typed.Block) typed.Val[int] { return typed.Do1(b, "x", same[int], y) })
		}, typed.ErrBranch, `node "S": values and branches do not match: it takes "y"`},
		"after a branch": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			return typed.Do0(b, "x", ret(1)).With(typed.Options{After: []typed.Handle{typed.Do0(then, "y", ret(1))}})
		}, typed.ErrBranch, `node "x": values and branches do not match: it follows "y"`},
		"result of a branch": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			return typed.Do0(then, "x", ret(1))
		}, typed.ErrBranch, `returns "x"`},
		"half of an either": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			return typed.Either(b, "x", typed.Do0(then, "y", ret(1)))
		}, typed.ErrBranch, `node "x": values and branches do not match: Either has no value if "if" answers "false": add a value made in that branch, or make a value of the pipeline "p" the last one`},
		"a nested half of an either": {func(b *typed.Block) typed.Val[int] {
			then, otherwise := yes(b)
			deeper, _ := typed.If(typed.Do0(otherwise, "if 2", ret(true)))
			return typed.Either(b, "x", typed.Do0(then, "y", ret(1)), typed.Do0(deeper, "z", ret(1)))
		}, typed.ErrBranch, `Either has no value if "if 2" answers "false"`},
		"either of nothing": {func(b *typed.Block) typed.Val[int] { return typed.Either[int](b, "x") }, kahn.ErrBadValue, "Either needs at least one value"},
		"either twice": {func(b *typed.Block) typed.Val[int] {
			y := typed.Do0(b, "y", ret(1))
			return typed.Either(b, "x", y, y)
		}, kahn.ErrBadValue, `Either takes "y" twice`},
		"either of an input": {func(b *typed.Block) typed.Val[int] {
			return typed.Either(b, "x", typed.Root[int](b, "r"))
		}, kahn.ErrBadValue, `Either takes the input "r"`},
		"either of around": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			y := typed.Do0(b, "y", ret(1))
			typed.Either(then, "x", typed.Do0(then, "w", ret(1)), y)
			return y
		}, typed.ErrBranch, `which is made in the pipeline "p", and that is not inside the branch "true" of "if"`},
		"case without nodes": {func(b *typed.Block) typed.Val[int] {
			typed.Switch(typed.Do0(b, "x", ret(air))).Case(road)
			return typed.Do0(b, "y", ret(1))
		}, kahn.ErrBadValue, `node "x": bad value: its case "road" has no node`},
		"no case": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(typed.Switch(typed.Do0(b, "x", ret(air))).Case(" "), "y", ret(1))
		}, kahn.ErrBadValue, `" " cannot be a case`},
		"if of an input": {func(b *typed.Block) typed.Val[int] {
			typed.If(typed.Root[bool](b, "r"))
			return typed.Do0(b, "y", ret(1))
		}, kahn.ErrBadValue, `input "r": bad value: If and Switch take the value of a node: add a node that returns the input`},
		"try of an input": {func(b *typed.Block) typed.Val[int] {
			typed.Try(b, "t", typed.Root[bool](b, "r"))
			return typed.Do0(b, "y", ret(1))
		}, kahn.ErrBadValue, `Try takes the input "r"`},
		"try in a branch": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			y := typed.Do0(b, "y", ret(1))
			typed.Try(then, "t", y)
			return y
		}, typed.ErrBranch, `Try takes "y" in the branch "true" of "if", but "y" is made in the pipeline "p"`},
		"two types of an input": {func(b *typed.Block) typed.Val[int] {
			typed.Root[string](b, "r")
			return typed.Do1(b, "x", same[int], typed.Root[int](b, "r"))
		}, kahn.ErrType, `input "r": wrong type: one Root gives it the type int, and another Root gives it the type string`},
		"two items": {func(b *typed.Block) typed.Val[int] {
			typed.Each(b, "e", typed.Do0(b, "l", ret([]int{1})), same[int], typed.Items[int]{}, typed.Items[int]{})
			return typed.Do0(b, "x", ret(1))
		}, kahn.ErrBadValue, `node "e": bad value: 2 Items`},
		"options twice": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{}).With(typed.Options{})
		}, kahn.ErrBadValue, `node "x": bad value: With was called before`},
		"options of an input": {func(b *typed.Block) typed.Val[int] {
			return typed.Do1(b, "x", same[int], typed.Root[int](b, "r").With(typed.Options{}))
		}, kahn.ErrBadValue, `input "r": bad value: With is for the values of nodes, and this is an input`},
		"after an input": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{After: []typed.Handle{typed.Root[int](b, "r")}})
		}, kahn.ErrBadValue, `its After lists the input "r"`},
		"after nothing": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{After: []typed.Handle{nil}})
		}, kahn.ErrBadValue, `number 1 of its After is the zero Val`},
		"after elsewhere": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{After: []typed.Handle{leaked}})
		}, typed.ErrElsewhere, `node "x" follows "leaked"`},
		"early join": {func(b *typed.Block) typed.Val[int] {
			return typed.Do1(b, "x", same[int], typed.Do0(b, "y", ret(1))).With(typed.Options{Join: kahn.AnySucceeded})
		}, kahn.ErrBadValue, `Join any_succeeded would let the node run before it has all its values`},
		"join in a branch": {func(b *typed.Block) typed.Val[int] {
			then, _ := yes(b)
			typed.Do0(then, "x", ret(1)).With(typed.Options{Join: kahn.AllDone})
			return typed.Do0(b, "y", ret(1))
		}, kahn.ErrBadValue, `its Join or Cleanup would let it run even if the branch "true" of "if" is not taken`},
		"join of an either": {func(b *typed.Block) typed.Val[int] {
			return typed.Either(b, "x", typed.Do0(b, "y", ret(1))).With(typed.Options{Join: kahn.AllDone})
		}, kahn.ErrBadValue, `the Join of an Either is all_succeeded or any_succeeded, not all_done`},
		"join of a try": {func(b *typed.Block) typed.Val[int] {
			y := typed.Do0(b, "y", ret(1))
			typed.Try(b, "x", y).With(typed.Options{Cleanup: true})
			return y
		}, kahn.ErrBadValue, `a Try cannot have a Join`},
		"defaults": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{OnUpstreamFailure: kahn.UpstreamSubstitute})
		}, kahn.ErrBadValue, `delivers defaults that have no type: use Try`},
		"kind of the engine": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{Kind: kahn.KindGate})
		}, kahn.ErrBadValue, `Kind "gate" has a meaning of its own`},
		"label of a time that is up": {func(b *typed.Block) typed.Val[int] {
			return typed.Gate[int](b, "x").With(typed.Options{Gate: &kahn.Gate{OnTimeout: kahn.GateLabel, Timeout: time.Hour}})
		}, kahn.ErrBadValue, `under OnTimeout label the value of the gate can be "timeout", but the type of its value is not a string`},
		"nil fallback": {func(b *typed.Block) typed.Val[int] { return typed.Do0(b, "x", ret(1)).Fallback(nil) }, kahn.ErrBadValue, "Fallback"},
		"undo of an input": {func(b *typed.Block) typed.Val[int] {
			return typed.Do1(b, "x", same[int], typed.Root[int](b, "r").Compensate(typed.Undo0(drop[int])))
		}, kahn.ErrBadValue, `"r": bad value: Compensate is for the values of nodes, and this is an input`},
		"undo of an either": {func(b *typed.Block) typed.Val[int] {
			return typed.Either(b, "x", typed.Do0(b, "y", ret(1))).Compensate(typed.Undo0(drop[int]))
		}, kahn.ErrBadValue, `"x": bad value: an Either or a Try has no effect to undo: call Compensate for the values that it takes`},
		"undo of a try": {func(b *typed.Block) typed.Val[int] {
			y := typed.Do0(b, "y", ret(1))
			typed.Try(b, "x", y).Compensate(typed.Undo0(drop[typed.Tried[int]]))
			return y
		}, kahn.ErrBadValue, `"x": bad value: an Either or a Try has no effect to undo`},
		"undo of a gate": {func(b *typed.Block) typed.Val[int] {
			return typed.Gate[int](b, "x").Compensate(typed.Undo0(drop[int]))
		}, kahn.ErrBadValue, `a gate is never undone`},
		"zero undo": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo[int]{})
		}, kahn.ErrBadValue, `"x": bad value: Compensate was called with the zero Undo`},
		"nil undo": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo0[int](nil))
		}, kahn.ErrBadValue, `"x": bad value: the function of its Compensate is nil`},
		"undone twice": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo0(drop[int])).Compensate(typed.Undo0(drop[int]))
		}, kahn.ErrBadValue, `"x": bad value: Compensate was called before`},
		"undone in two ways": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo0(drop[int])).With(typed.Options{CompensateBy: &kahn.CompensateBy{Kind: "undo"}})
		}, kahn.ErrBadValue, `it has both a Compensate and a CompensateBy`},
		"retry of no undo": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{CompensateRetry: kahn.RetryStandard()})
		}, kahn.ErrBadValue, `CompensateRetry needs a compensation, and the node has none`},
		"undo of a value that is not taken": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo1(drop2[int], typed.Do0(b, "y", ret(1))))
		}, kahn.ErrBadValue, `node "x": bad value: its Compensate takes "y", which the node itself does not take`},
		"undo of the zero value": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo1(drop2[int], typed.Val[int]{}))
		}, kahn.ErrBadValue, `node "x": bad value: input 1 of its Compensate is the zero Val`},
		"undo of elsewhere": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).Compensate(typed.Undo1(drop2[int], leaked))
		}, typed.ErrElsewhere, `node "x" takes "leaked"`},
		"undo of a list": {func(b *typed.Block) typed.Val[int] {
			list := typed.Do0(b, "l", ret([]int{1}))
			vals, _ := typed.Each(b, "e", list, same[int])
			vals.Compensate(typed.Undo0(drop[[]int]))
			return typed.Do0(b, "x", ret(1))
		}, kahn.ErrBadValue, `"e": bad value: the items of an Each are undone one by one: give Compensate an UndoEach`},
		"undo of the items of no list": {func(b *typed.Block) typed.Val[int] {
			list := typed.Do0(b, "l", ret([]int{1}))
			typed.Do1(b, "e", same[[]int], list).Compensate(typed.UndoEach(drop2[int], list))
			return typed.Do0(b, "x", ret(1))
		}, kahn.ErrBadValue, `"e": bad value: UndoEach is for the results of an Each or EachSub, and this node is neither`},
		"undo of another list": {func(b *typed.Block) typed.Val[int] {
			vals, _ := typed.Each(b, "e", typed.Do0(b, "l", ret([]int{1})), same[int])
			vals.Compensate(typed.UndoEach(drop2[int], typed.Do0(b, "m", ret([]int{1}))))
			return typed.Do0(b, "x", ret(1))
		}, kahn.ErrBadValue, `node "e": bad value: its Compensate takes "m"`},
		"undo of errors": {func(b *typed.Block) typed.Val[int] {
			list := typed.Do0(b, "l", ret([]int{1}))
			_, errs := typed.Each(b, "e", list, same[int])
			errs.Compensate(typed.UndoEach(func(context.Context, int, error) error { return nil }, list))
			return typed.Do0(b, "x", ret(1))
		}, kahn.ErrBadValue, `"e": bad value: Compensate is for the results of an Each, not for its errors`},
		"cycle by After": {func(b *typed.Block) typed.Val[int] {
			x := typed.Do0(b, "x", ret(1))
			y := typed.Do1(b, "y", same[int], x)
			x.With(typed.Options{After: []typed.Handle{y}})
			return y
		}, kahn.ErrCycle, "x"},
		"problem of Compile": {func(b *typed.Block) typed.Val[int] {
			return typed.Do0(b, "x", ret(1)).With(typed.Options{Groups: []string{"db"}})
		}, kahn.ErrBadValue, `"db"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := typed.New("p", c.build)
			_, err := typed.Run(context.Background(), p)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.text)
			var all *kahn.GraphError
			require.ErrorAs(t, err, &all)
			require.Equal(t, "p", all.Graph)
			_, graphErr := p.Graph()
			_, startErr := p.Start(context.Background())
			require.Equal(t, err.Error(), graphErr.Error())
			require.Equal(t, err.Error(), startErr.Error())
		})
	}
	_, err := typed.New[int]("nil", nil).Plan()
	require.ErrorIs(t, err, kahn.ErrBadValue)
}

// Plan reports all problems at once: the first hundred in full, and the number of the others.
func TestProblemsTogether(t *testing.T) {
	t.Parallel()
	_, err := typed.New("many", func(b *typed.Block) typed.Val[int] {
		for range 150 {
			typed.Do0[int](b, "x", nil)
		}
		return typed.Val[int]{}
	}).Plan()
	var all *kahn.GraphError
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Problems, 100)
	require.Equal(t, 150+149+1-100, all.More)
}

// If a node is added after New has returned, every later run returns an error.
func TestTooLate(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(b *typed.Block, x typed.Val[bool]){
		"node":    func(b *typed.Block, x typed.Val[bool]) { typed.Do1(b, "y", same[bool], x) },
		"input":   func(b *typed.Block, x typed.Val[bool]) { typed.Root[int](b, "y") },
		"branch":  func(b *typed.Block, x typed.Val[bool]) { typed.If(x) },
		"options": func(b *typed.Block, x typed.Val[bool]) { x.With(typed.Options{}) },
		"undo":    func(b *typed.Block, x typed.Val[bool]) { x.Compensate(typed.Undo0(drop[bool])) },
		"fallback": func(b *typed.Block, x typed.Val[bool]) {
			x.Fallback(func(context.Context, error) (bool, error) { return true, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var block *typed.Block
			var x typed.Val[bool]
			p := typed.New("p", func(b *typed.Block) typed.Val[bool] {
				block, x = b, typed.Do0(b, "x", ret(true))
				return x
			})
			_, err := typed.Run(context.Background(), p)
			require.NoError(t, err)
			late(block, x)
			_, err = typed.Run(context.Background(), p)
			require.ErrorIs(t, err, kahn.ErrBadValue)
			require.ErrorContains(t, err, "New has returned")
		})
	}
}

// If a case is added after New has returned, Case returns nil, and every later run returns an error.
func TestCaseTooLate(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(typed.Choice[carrier]) *typed.Block{
		"case":    func(sw typed.Choice[carrier]) *typed.Block { return sw.Case(road) },
		"again":   func(sw typed.Choice[carrier]) *typed.Block { return sw.Case(air) },
		"default": typed.Choice[carrier].Default,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sw typed.Choice[carrier]
			p := typed.New("p", func(b *typed.Block) typed.Val[string] {
				sw = typed.Switch(typed.Do0(b, "carrier", ret(air)))
				return typed.Either(b, "out", typed.Do0(sw.Case(air), "fly", ret("flies")))
			})
			_, err := typed.Run(context.Background(), p)
			require.NoError(t, err)
			require.Nil(t, late(sw))
			_, err = typed.Run(context.Background(), p)
			require.ErrorIs(t, err, kahn.ErrBadValue)
			require.ErrorContains(t, err, `"carrier"`)
			require.ErrorContains(t, err, "New has returned")
		})
	}
}

func inLocalType(b *typed.Block) typed.Val[int] {
	type local struct{ X int }
	return typed.Do1(b, "x", func(_ context.Context, v local) (int, error) { return v.X, nil }, typed.Do0(b, "local", ret(local{1})))
}

// Two types that are declared in different functions of a package have the same name. A pipeline with both is refused, since a snapshot could
// not tell them apart.
func TestTypesOfOneName(t *testing.T) {
	t.Parallel()
	_, err := typed.New("one", inLocalType).Plan()
	require.NoError(t, err)
	_, err = typed.New("two", func(b *typed.Block) typed.Val[int] {
		type local struct{ Y string }
		x := inLocalType(b)
		return typed.Do2(b, "sum", func(_ context.Context, x int, v []local) (int, error) { return x + len(v), nil }, x, typed.Do0(b, "other", ret([]local{{"y"}})))
	}).Plan()
	require.ErrorIs(t, err, kahn.ErrType)
	require.ErrorContains(t, err, `typed_test.local"`)
	_, err = typed.New("many", func(b *typed.Block) typed.Val[int] {
		type local struct{ Z float64 }
		manyTypes(b)
		typed.Do0(b, "other", ret(&local{}))
		typed.Do0(b, "another", ret(local{}))
		return inLocalType(b)
	}).Plan()
	require.ErrorIs(t, err, kahn.ErrType)
	require.ErrorContains(t, err, `typed_test.local"`)
}

type of[T any] struct{ X T }

// manyTypes adds nodes of twelve types, each twice, and of types that kahn knows.
func manyTypes(b *typed.Block) (last typed.Val[of[[]uint]]) {
	for _, round := range []string{"", " again"} {
		typed.Do0(b, "1"+round, ret(of[int]{}))
		typed.Do0(b, "2"+round, ret([]of[int8]{}))
		typed.Do0(b, "3"+round, ret(map[string][]of[int16]{}))
		typed.Do0(b, "4"+round, ret(of[int32]{}))
		typed.Do0(b, "5"+round, ret(of[int64]{}))
		typed.Do0(b, "6"+round, ret(of[uint]{}))
		typed.Do0(b, "7"+round, ret(of[uint8]{}))
		typed.Do0(b, "8"+round, ret(of[uint16]{}))
		typed.Do0(b, "9"+round, ret(&of[uint32]{}))
		typed.Do0(b, "10"+round, ret(of[uint64]{}))
		typed.Do0(b, "11"+round, ret(map[int]string{}))
		last = typed.Do0(b, "12"+round, ret(of[[]uint]{}))
		typed.Do0(b, "known"+round, ret(1))
		typed.Do0(b, "any"+round, ret[any](of[string]{}))
		typed.Do0(b, "list"+round, ret([]string{}))
	}
	return last
}

// A pipeline registers each type of its values, however many there are. It registers neither the types that kahn knows nor interface types.
func TestManyTypes(t *testing.T) {
	t.Parallel()
	p := typed.New("many", manyTypes)
	_, err := typed.Run(context.Background(), p)
	require.NoError(t, err)
	got := map[reflect.Type]bool{}
	for name, zero := range p.Types() {
		typ := reflect.TypeOf(zero)
		require.True(t, reflect.ValueOf(zero).IsZero(), name)
		if typ.Name() != "" {
			require.Equal(t, typ.PkgPath()+"."+typ.Name(), name)
		}
		got[typ] = true
	}
	require.Equal(t, map[reflect.Type]bool{
		reflect.TypeFor[of[int]](): true, reflect.TypeFor[of[int8]](): true, reflect.TypeFor[of[int16]](): true, reflect.TypeFor[of[int32]](): true,
		reflect.TypeFor[of[int64]](): true, reflect.TypeFor[of[uint]](): true, reflect.TypeFor[of[uint8]](): true, reflect.TypeFor[of[uint16]](): true,
		reflect.TypeFor[*of[uint32]](): true, reflect.TypeFor[of[uint64]](): true, reflect.TypeFor[map[int]string](): true, reflect.TypeFor[of[[]uint]](): true,
	}, got)
}

// A node has one edge from each node that it takes or follows, however often it names this node.
func TestOneEdge(t *testing.T) {
	t.Parallel()
	p := typed.New("p", func(b *typed.Block) typed.Val[int] {
		x, y := typed.Do0(b, "x", ret(1)), typed.Do0(b, "y", ret(2))
		sum := func(_ context.Context, a, b int) (int, error) { return a + b, nil }
		return typed.Do2(b, "z", sum, x, x).With(typed.Options{After: []typed.Handle{y, x, y}})
	})
	g, err := p.Graph()
	require.NoError(t, err)
	require.Equal(t, []kahn.Edge{{From: "x", To: "z"}, {From: "y", To: "z"}}, g.Edges())
	z, err := typed.Run(context.Background(), p)
	require.NoError(t, err)
	require.Equal(t, 2, z)
}

// Each field of a kahn.Node is one of three: an option with the same name and type, set by the pipeline, or not applicable to pipelines.
func TestOptionsAreFieldsOfNode(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"ID": "the id of the function that adds the node", "Do": "its function", "In": "the values that it takes", "After": "a list of values",
		"Sub": "Sub", "Map": "Each", "Fallback": "Val.Fallback", "Routes": "If", "NoMatch": "Switch", "Choices": "If",
		"Test": "If", "TestExpr": "If", "When": "If", "WhenExpr": "If", "GuardErrors": "If", "Disabled": "If", "Loop": "Block.Graph",
		"SkipMode": "a function is called with all of its values", "Default": "they have types",
		"Params": "a function takes values", "Ports": "a function takes values", "Merge": "Either", "MergeJSON": "Either", "Outputs": "an output is one value",
		"InputSchema": "it judges parameters", "Moderation": "it judges parameters",
		"Compensate": "Val.Compensate",
	}
	node, options := reflect.TypeFor[kahn.Node](), reflect.TypeFor[typed.Options]()
	for i := range node.NumField() {
		f := node.Field(i)
		o, has := options.FieldByName(f.Name)
		if why := elsewhere[f.Name]; (why == "") != has && f.Name != "After" {
			t.Errorf("Node.%s: an option %v, elsewhere %q", f.Name, has, why)
		}
		if has && o.Type != f.Type && f.Name != "After" {
			t.Errorf("%s is a %v in Options and a %v in Node", f.Name, o.Type, f.Type)
		}
	}
	for i := range options.NumField() {
		_, has := node.FieldByName(options.Field(i).Name)
		require.True(t, has, options.Field(i).Name)
	}
}

// With sets every option in the graph's node.
func TestOptionsArrive(t *testing.T) {
	t.Parallel()
	o := typed.Options{
		Kind: "kind", Label: "label", Config: 7, OnUpstreamFailure: kahn.UpstreamSkip, Handling: kahn.Handles, CancelLosers: true, CancelOnLateFailure: true,
		ContinueOnFail: true, Critical: true, Memo: "1", MemoName: "name", MemoKey: func(*kahn.Step) (string, error) { return "", nil }, Files: []string{"a"}, Retry: kahn.RetryStandard(), Timeout: 1, OverallTimeout: 2, MaxCrashes: 3, Priority: 4, Estimate: 5,
		Groups: []string{"g"}, OutputSchema: any(nil), CompensateRetry: kahn.RetryStandard(), CompensateTimeout: 6,
		CompensateBy: &kahn.CompensateBy{Kind: "undo"},
	}
	for _, join := range []typed.Options{{Join: kahn.AllDone, Key: "key"}, {Cleanup: true, KeyFrom: "tenant"}} { // a node has either a Key or a KeyFrom
		o.Join, o.Cleanup, o.Key, o.KeyFrom = join.Join, join.Cleanup, join.Key, join.KeyFrom
		if o.Cleanup { // a cleanup node is never undone
			o.CompensateBy, o.CompensateRetry, o.CompensateTimeout = nil, kahn.Retry{}, 0
		}
		p := typed.New("p", func(b *typed.Block) typed.Val[int] {
			b.Graph().Groups = []kahn.Group{{Name: "g"}}
			return typed.Do0(b, "x", ret(1)).With(o)
		})
		g, err := p.Graph()
		require.NoError(t, err)
		node, options := reflect.ValueOf(g.Nodes()[0]), reflect.ValueOf(o)
		for i := range options.NumField() {
			switch name := options.Type().Field(i).Name; name {
			case "After":
			case "MemoKey": // functions cannot be compared
				require.False(t, node.FieldByName(name).IsNil())
			default:
				require.Equal(t, options.Field(i).Interface(), node.FieldByName(name).Interface(), name)
			}
		}
	}
}

// A nil Pipeline has no graph, like the zero Pipeline.
func TestNoPipeline(t *testing.T) {
	t.Parallel()
	for _, p := range []*typed.Pipeline[int]{nil, {}} {
		_, err := typed.Run(t.Context(), p)
		require.ErrorIs(t, err, kahn.ErrNoGraph)
		g, err := p.Graph()
		require.Nil(t, g)
		if err == nil {
			_, err = g.Compile()
		}
		require.ErrorIs(t, err, kahn.ErrNoGraph)
	}
}
