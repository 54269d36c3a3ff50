package kahn_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestHistoryIsTaughtWithoutTheLock: a run that ends can be looked at while it waits for its History, and Wait returns when the History knows.
func TestHistoryIsTaughtWithoutTheLock(t *testing.T) {
	t.Parallel()
	for path, g := range map[string]*kahn.Graph{
		"A": graph(kahn.Node{ID: "A"}), "S/A": graph(subgraph("S", graph(kahn.Node{ID: "A"}))),
	} {
		h, proceed := new(kahn.History), make(chan bool)
		run, err := kahn.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { <-proceed; return nil, nil }, kahn.Learn(h))
		require.NoError(t, err)
		release := h.Hold()
		close(proceed)
		ended := make(chan bool)
		go func() {
			for !run.Status().Terminal() {
				runtime.Gosched()
			}
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("nobody can look at the run")
		}
		select {
		case <-run.Done():
			t.Error("the run is over, and its History does not know")
		default:
		}
		release()
		_, err = run.Wait()
		require.NoError(t, err)
		_, ok := h.Mean("", path)
		require.True(t, ok, path)
	}
}
