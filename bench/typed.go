package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/typed"
)

// depth is the value of a node in the table "typed": the number of nodes on the longest path to the node.
type depth int

func depth0(context.Context) (depth, error)                  { return 1, nil }
func depth1(_ context.Context, a depth) (depth, error)       { return a + 1, nil }
func depth2(_ context.Context, a, b depth) (depth, error)    { return max(a, b) + 1, nil }
func depth3(_ context.Context, a, b, c depth) (depth, error) { return max(a, b, c) + 1, nil }

// depths makes, compiles and runs graphs whose nodes compute their depths from the depths of their predecessors. A node has at most three
// predecessors. Each run returns the depth of the last node.
type depths struct {
	name string
	make func(s *shape) (run func(ctx context.Context) (depth, error), err error)
}

var (
	depthsByHand = depths{"by hand", makeByHand}
	depthsTyped  = depths{"typed", makeTyped}
)

// errThree is the error for a shape with a node that has more than three predecessors.
func errThree(node int) error {
	return fmt.Errorf("node %d has more than three predecessors", node)
}

func makeByHand(s *shape) (func(context.Context) (depth, error), error) {
	g, in, ids := &kahn.Graph{Name: s.name}, s.predecessors(), make([]string, s.n)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
		n, row := kahn.Node{ID: ids[i]}, in.row(i)
		switch len(row) {
		case 0:
			n.Do = func(ctx context.Context, _ *kahn.Step) (any, error) { return depth0(ctx) }
		case 1:
			first := ids[row[0]]
			n.After = []string{first}
			n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
				a, err := kahn.Upstream[depth](s, first)
				if err != nil {
					return nil, err
				}
				return depth1(ctx, a)
			}
		case 2:
			first, second := ids[row[0]], ids[row[1]]
			n.After = []string{first, second}
			n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
				a, err := kahn.Upstream[depth](s, first)
				if err != nil {
					return nil, err
				}
				b, err := kahn.Upstream[depth](s, second)
				if err != nil {
					return nil, err
				}
				return depth2(ctx, a, b)
			}
		case 3:
			first, second, third := ids[row[0]], ids[row[1]], ids[row[2]]
			n.After = []string{first, second, third}
			n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
				a, err := kahn.Upstream[depth](s, first)
				if err != nil {
					return nil, err
				}
				b, err := kahn.Upstream[depth](s, second)
				if err != nil {
					return nil, err
				}
				c, err := kahn.Upstream[depth](s, third)
				if err != nil {
					return nil, err
				}
				return depth3(ctx, a, b, c)
			}
		default:
			return nil, errThree(i)
		}
		g.Add(n)
	}
	plan, err := g.Compile()
	if err != nil {
		return nil, err
	}
	last := ids[s.n-1]
	return func(ctx context.Context) (depth, error) {
		res, err := plan.Execute(ctx, nil)
		if err != nil {
			return 0, err
		}
		return kahn.Output[depth](res, last)
	}, nil
}

func makeTyped(s *shape) (func(context.Context) (depth, error), error) {
	in, many := s.predecessors(), -1
	p := typed.New(s.name, func(b *typed.Block) typed.Val[depth] {
		vals := make([]typed.Val[depth], s.n)
		for i := range vals {
			id, row := strconv.Itoa(i), in.row(i)
			switch len(row) {
			case 0:
				vals[i] = typed.Do0(b, id, depth0)
			case 1:
				vals[i] = typed.Do1(b, id, depth1, vals[row[0]])
			case 2:
				vals[i] = typed.Do2(b, id, depth2, vals[row[0]], vals[row[1]])
			case 3:
				vals[i] = typed.Do3(b, id, depth3, vals[row[0]], vals[row[1]], vals[row[2]])
			default:
				many = i
			}
		}
		return vals[s.n-1]
	})
	if many >= 0 {
		return nil, errThree(many)
	}
	if _, err := p.Plan(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (depth, error) { return typed.Run(ctx, p) }, nil
}

// The method `contestant` returns the contestant that only runs the graph, which it has made before.
func (d depths) contestant() contestant {
	return contestant{d.name, func(j job) (func() error, error) {
		run, err := d.make(j.shape)
		if err != nil {
			return nil, err
		}
		ctx := j.context()
		return func() error {
			_, err := run(ctx)
			return err
		}, nil
	}}
}

// typedTable compares typed pipelines with the same graphs made by hand, under a context that may end: first graphs that are made, compiled and run
// once, then runs of graphs that were made before. The ratios compare turns of the same round.
func typedTable(out io.Writer, rounds int, target time.Duration) error {
	hand, typed := depthsByHand.contestant().underContext(), depthsTyped.contestant().underContext()
	for _, part := range []struct {
		title string
		of    func(contestant) contestant
	}{
		{"made, compiled and run once", contestant.once},
		{"a run, the graph made before", func(c contestant) contestant { return c }},
	} {
		t := table{header: []string{"nodes", "by hand, ns", "typed, ns", "typed / by hand", "by CPU", "by hand, objects", "typed, objects", "by hand, B", "typed, B"}}
		for _, n := range sizes {
			e, err := contestOn(sized(n), rounds, target, part.of(hand), part.of(typed))
			if err != nil {
				return err
			}
			all := func(v float64) string { return short(v * float64(n)) }
			t.add(thousands(n), all(e[0].ns()), all(e[1].ns()), times(e[1].over(e[0])), times(e[1].overByCPU(e[0])), all(e[0].allocs()), all(e[1].allocs()), all(e[0].bytes()), all(e[1].bytes()))
		}
		fmt.Fprintf(out, "### typed pipelines and the same graphs by hand, %s, under a context that may end; medians\n\n", part.title)
		t.print(out)
	}
	return nil
}
