package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// build returns the graph of a release that tests, builds, asks and deploys. pace is how long a second takes.
func build(pace time.Duration) *kahn.Graph {
	// works takes some seconds and emits a delta in each.
	works := func(seconds float64, parts int, what string) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) {
			for i := range parts {
				if err := sleep(s, time.Duration(seconds*float64(pace))/time.Duration(parts)); err != nil {
					return nil, err
				}
				s.Emit(fmt.Sprintf("%s %d of %d", what, i+1, parts))
			}
			return what, nil
		}
	}
	flaky := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			if err := sleep(s, pace); err != nil {
				return nil, err
			}
			return nil, errors.New("connection reset by peer")
		}
		return works(2, 8, "suite")(ctx, s)
	}
	broken := func(_ context.Context, s *kahn.Step) (any, error) {
		s.Log(slog.LevelWarn, "3 lines are too long")
		return nil, errors.New("the code is not beautiful")
	}

	g := &kahn.Graph{Name: "release"}
	return g.Add(
		kahn.Node{ID: "checkout", Do: works(1, 3, "file")},
		kahn.Node{ID: "lint", After: []string{"checkout"}, ContinueOnFail: true, Do: broken},
		kahn.Node{ID: "test", After: []string{"checkout"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: pace}, Do: flaky},
		kahn.Node{ID: "linux", After: []string{"checkout"}, Do: works(5, 20, "package")},
		kahn.Node{ID: "darwin", After: []string{"checkout"}, Do: works(7, 20, "package")},
		kahn.Node{ID: "windows", After: []string{"checkout"}, Do: works(6, 20, "package")},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"lint", "test", "linux", "darwin", "windows"}},
		kahn.Node{ID: "deploy", After: []string{"approve"}, Do: works(3, 5, "region")},
		kahn.Node{ID: "tidy", After: []string{"deploy"}, Cleanup: true, Do: works(1, 2, "directory")},
	)
}

// sleep waits, unless the attempt is stopped.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
