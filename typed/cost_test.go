package typed_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/typed"
)

const layers, width = 40, 25

func sum3(_ context.Context, a, b, c *int) (*int, error) { return a, nil }

// typedLayers returns a graph of layers in which each node takes three values of the preceding layer.
func typedLayers() *typed.Pipeline[*int] {
	return typed.New("layers", func(b *typed.Block) typed.Val[*int] {
		one := 1
		var before []typed.Val[*int]
		for i := range width {
			before = append(before, typed.Do0(b, fmt.Sprint("0/", i), ret(&one)))
		}
		for layer := range layers {
			var next []typed.Val[*int]
			for i := range width {
				next = append(next, typed.Do3(b, fmt.Sprint(layer+1, "/", i), sum3, before[i], before[(i+1)%width], before[(i+2)%width]))
			}
			before = next
		}
		return before[0]
	})
}

// handLayers returns the same graph without package typed.
func handLayers() *kahn.Graph {
	var g kahn.Graph
	one := 1
	for i := range width {
		g.Add(kahn.Node{ID: fmt.Sprint("0/", i), Do: func(context.Context, *kahn.Step) (any, error) { return &one, nil }})
	}
	for layer := range layers {
		for i := range width {
			a, b, c := fmt.Sprint(layer, "/", i), fmt.Sprint(layer, "/", (i+1)%width), fmt.Sprint(layer, "/", (i+2)%width)
			g.Add(kahn.Node{ID: fmt.Sprint(layer+1, "/", i), After: []string{a, b, c}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				x, err := kahn.Upstream[*int](s, a)
				if err != nil {
					return nil, err
				}
				y, err := kahn.Upstream[*int](s, b)
				if err != nil {
					return nil, err
				}
				z, err := kahn.Upstream[*int](s, c)
				if err != nil {
					return nil, err
				}
				return sum3(ctx, x, y, z)
			}})
		}
	}
	return &g
}

// A typed node makes no more allocations than the same node without package typed. Neither makes an object for each value that it reads.
func TestAllocations(t *testing.T) {
	p := typedLayers()
	byHand, err := handLayers().Compile()
	require.NoError(t, err)
	ctx := context.Background()
	perNode := func(f func() error) float64 {
		return testing.AllocsPerRun(20, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}) / (layers + 1) / width
	}
	hand := perNode(func() error { _, err := byHand.Execute(ctx, nil); return err })
	ours := perNode(func() error { _, err := p.Execute(ctx); return err })
	t.Logf("allocations a node: %.3f by hand, %.3f typed", hand, ours)
	require.Less(t, ours, hand+0.02)
	require.Less(t, hand, 0.1)
}

type length int

// typedChain returns a pipeline of n nodes, each of which takes the value of the node before.
func typedChain(n int) *typed.Pipeline[length] {
	return typed.New("chain", func(b *typed.Block) typed.Val[length] {
		at := typed.Do0(b, "0", ret[length](1))
		for i := 1; i < n; i++ {
			at = typed.Do1(b, strconv.Itoa(i), same[length], at)
		}
		return at
	})
}

// chainByHand returns the same graph without package typed.
func chainByHand(n int) *kahn.Graph {
	g := &kahn.Graph{Name: "chain"}
	g.Add(kahn.Node{ID: "0", Do: func(context.Context, *kahn.Step) (any, error) { return length(1), nil }})
	for i := 1; i < n; i++ {
		before := strconv.Itoa(i - 1)
		g.Add(kahn.Node{ID: strconv.Itoa(i), After: []string{before}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			return kahn.Upstream[length](s, before)
		}})
	}
	return g
}

// objects returns the number of objects and bytes that f allocates: the least of several calls, since other goroutines may allocate, too.
func objects(t *testing.T, f func() error) (objects, bytes float64) {
	t.Helper()
	for i := range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := f()
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		o, b := float64(after.Mallocs-before.Mallocs), float64(after.TotalAlloc-before.TotalAlloc)
		if i == 0 {
			objects, bytes = o, b
		}
		objects, bytes = min(objects, o), min(bytes, b)
	}
	return objects, bytes
}

// To make, compile and run a pipeline takes about as many objects and bytes as to make, compile and run the same graph without package typed. Each
// node adds the same number of bytes, however many nodes there are. Only a run of one node is so cheap that a few objects of the pipeline matter.
func TestMadeOnce(t *testing.T) {
	ctx := context.Background()
	perNode := map[int]float64{}
	for _, n := range []int{1, 10, 1_000, 2_000, 4_000, 8_000, 16_000} {
		hand, handBytes := objects(t, func() error {
			plan, err := chainByHand(n).Compile()
			if err != nil {
				return err
			}
			_, err = plan.Execute(ctx, nil)
			return err
		})
		ours, ourBytes := objects(t, func() error {
			_, err := typed.Run(ctx, typedChain(n))
			return err
		})
		t.Logf("%d nodes: %.0f objects and %.0f bytes by hand, %.0f and %.0f typed", n, hand, handBytes, ours, ourBytes)
		require.Less(t, ours, 1.1*hand+10, n)
		require.Less(t, ourBytes, 1.4*handBytes+2500, n)
		perNode[n] = ourBytes / float64(n)
	}
	exponent := math.Log2(16*perNode[16_000]/perNode[1_000]) / 4
	t.Logf("the exponent of the bytes is %.3f", exponent)
	require.Less(t, exponent, 1.1)
}

// A run of a pipeline that has no option costs as much as a run of the same plan without package typed: the option with the pipeline's types would take
// 896 bytes. Only the channel of Done may be an additional object, of 96 bytes, since Execute makes it if it has to wait.
func TestRunWithoutOptions(t *testing.T) {
	ctx := context.Background()
	p := typedChain(1)
	plan, err := chainByHand(1).Compile()
	require.NoError(t, err)
	hand, handBytes := objects(t, func() error { _, err := plan.Execute(ctx, nil); return err })
	ours, ourBytes := objects(t, func() error { _, err := p.Execute(ctx); return err })
	require.LessOrEqual(t, ours, hand+2) // the race detector sometimes adds one
	require.Less(t, ourBytes, handBytes+500)
}

func BenchmarkTyped(b *testing.B) {
	p, ctx := typedLayers(), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Execute(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkByHand(b *testing.B) {
	plan, err := handLayers().Compile()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Execute(ctx, nil); err != nil {
			b.Fatal(err)
		}
	}
}
