package typed_test

import (
	"context"
	"fmt"
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

// A typed node makes no more allocations than the same node without package typed.
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
