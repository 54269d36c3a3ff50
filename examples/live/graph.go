package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// pace is the real time that a step takes for each second of its stated time.
type pace time.Duration

// workflows returns, by name, the graphs that can be started from the page.
func (p pace) workflows() map[string]*kahn.Graph {
	graphs := map[string]*kahn.Graph{}
	for _, g := range []*kahn.Graph{p.release(), p.imports(), p.nightly(), p.survey()} {
		graphs[g.Name] = g
	}
	return graphs
}

// The method `works` returns a step that takes the given number of seconds. The time has equal parts, and the step reports progress after each part.
func (p pace) works(seconds float64, parts int, what string) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		for i := range parts {
			if err := p.sleep(ctx, seconds/float64(parts)); err != nil {
				return nil, err
			}
			s.Emit(fmt.Sprintf("%s %d of %d", what, i+1, parts))
		}
		return map[string]any{what: parts}, nil
	}
}

// release returns a graph that tests, builds, asks a person and deploys.
func (p pace) release() *kahn.Graph {
	flaky := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			if err := p.sleep(ctx, 1); err != nil {
				return nil, err
			}
			return nil, errors.New("connection reset by peer")
		}
		return p.works(2, 8, "suite")(ctx, s)
	}
	broken := func(_ context.Context, s *kahn.Step) (any, error) {
		s.Log(slog.LevelWarn, "3 lines are too long")
		return nil, errors.New("the code is not beautiful")
	}
	g := &kahn.Graph{Name: "release"}
	return g.Add(
		kahn.Node{ID: "checkout", Do: p.works(1, 3, "file"), Config: map[string]any{"branch": "main", "depth": 1}},
		kahn.Node{ID: "lint", After: []string{"checkout"}, ContinueOnFail: true, Do: broken},
		kahn.Node{ID: "test", After: []string{"checkout"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Duration(p)}, Do: flaky},
		kahn.Node{ID: "linux", Label: "Build for Linux", In: []kahn.Edge{{From: "checkout", Param: "source"}}, Do: p.works(5, 20, "package")},
		kahn.Node{ID: "darwin", Label: "Build for macOS", In: []kahn.Edge{{From: "checkout", Param: "source"}}, Do: p.works(7, 20, "package")},
		kahn.Node{ID: "windows", Label: "Build for Windows", In: []kahn.Edge{{From: "checkout", Param: "source"}}, Do: p.works(6, 20, "package")},
		kahn.Node{ID: "approve", Label: "Ship it?", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"ship", "hold"}}, After: []string{"lint", "test", "linux", "darwin", "windows"}},
		kahn.Node{ID: "deploy", In: []kahn.Edge{{From: "approve", Label: "ship"}}, Do: p.works(3, 5, "region")},
		kahn.Node{ID: "postpone", In: []kahn.Edge{{From: "approve", Label: "hold"}}, Do: p.works(1, 1, "note")},
		kahn.Node{ID: "tidy", After: []string{"deploy", "postpone"}, Cleanup: true, Do: p.works(1, 2, "directory")},
	)
}

// The method `imports` returns a graph that reads a list, and runs a sub-graph for each of the 200 rows in the list.
func (p pace) imports() *kahn.Graph {
	row := &kahn.Graph{Inputs: []kahn.Input{{Name: "item"}, {Name: "index"}}}
	row.Add(
		kahn.Node{ID: "parse", Do: p.works(0.5, 1, "row")},
		kahn.Node{ID: "enrich", After: []string{"parse"}, Retry: kahn.Retry{MaxAttempts: 4, InitialDelay: time.Duration(p) / 2}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			if err := p.sleep(ctx, 1); err != nil {
				return nil, err
			}
			if rand.IntN(12) == 0 {
				return nil, errors.New("429 Too Many Requests")
			}
			return "enriched", nil
		}},
		kahn.Node{ID: "write", After: []string{"enrich"}, Do: p.works(0.3, 1, "row")},
	)
	summary := &kahn.Graph{}
	summary.Add(
		kahn.Node{ID: "count", Do: p.works(1, 2, "table")},
		kahn.Node{ID: "chart", After: []string{"count"}, Do: p.works(2, 4, "chart")},
		kahn.Node{ID: "mail", After: []string{"chart"}, Do: p.works(1, 1, "mail")},
	)
	list := func(context.Context, *kahn.Step) (any, error) {
		rows := make([]any, 200)
		for i := range rows {
			rows[i] = map[string]any{"row": i, "customer": fmt.Sprintf("C-%04d", 7*i)}
		}
		return rows, nil
	}
	g := &kahn.Graph{Name: "import"}
	return g.Add(
		kahn.Node{ID: "list", Do: list},
		kahn.Node{ID: "rows", Map: &kahn.Map{Over: "rows", Limit: 12, ToleratedPercent: 5}, Sub: row, In: []kahn.Edge{{From: "list", Param: "rows"}}},
		kahn.Node{ID: "summary", Sub: summary, After: []string{"rows"}},
	)
}

// nightly returns a graph in which one node fails. The nodes after it are aborted, except the cleanup node.
func (p pace) nightly() *kahn.Graph {
	full := func(ctx context.Context, s *kahn.Step) (any, error) {
		s.Log(slog.LevelInfo, "41,200 rows read")
		if err := p.sleep(ctx, 2); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("write /var/lib/warehouse/part-0007: %w", errors.New("no space left on device"))
	}
	g := &kahn.Graph{Name: "nightly"}
	return g.Add(
		kahn.Node{ID: "extract", Do: p.works(2, 4, "table")},
		kahn.Node{ID: "clean", After: []string{"extract"}, Do: p.works(1, 2, "table")},
		kahn.Node{ID: "audit", After: []string{"extract"}, Do: p.works(2, 2, "rule")},
		kahn.Node{ID: "load", After: []string{"clean"}, Do: full},
		kahn.Node{ID: "index", After: []string{"load"}, Do: p.works(1, 1, "index")},
		kahn.Node{ID: "report", After: []string{"index", "audit"}, Do: p.works(1, 1, "page")},
		kahn.Node{ID: "close", After: []string{"report"}, Cleanup: true, Do: p.works(1, 1, "connection")},
	)
}

// survey returns a graph of 1,000 nodes in 25 layers.
func (p pace) survey() *kahn.Graph {
	const layers, width = 25, 40
	g := &kahn.Graph{Name: "survey"}
	id := func(layer, i int) string { return fmt.Sprintf("site-%02d-%02d", layer, (i+width)%width) }
	for layer := range layers {
		for i := range width {
			n := kahn.Node{ID: id(layer, i), Do: p.works(0.2+0.05*float64((layer*7+i*3)%20), 1, "sample")}
			if layer > 0 {
				n.After = []string{id(layer-1, i)}
				if i%5 == 0 {
					n.After = append(n.After, id(layer-1, i+1))
				}
				if layer > 1 && i%4 == 0 {
					n.After = append(n.After, id(layer-2, i)) // an edge that skips a layer
				}
			}
			g.Add(n)
		}
	}
	return g
}

// sleep waits for some seconds, unless the attempt is stopped.
func (p pace) sleep(ctx context.Context, seconds float64) error {
	select {
	case <-time.After(time.Duration(seconds * float64(p))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
