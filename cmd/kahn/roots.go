package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// rootsKey is the context key of a run's root inputs.
type rootsKey struct{}

// withRoots returns a context with the root inputs of a run, including the defaults that its graph declares. Templates inside composites
// read root inputs from the context.
func withRoots(ctx context.Context, g *kahn.Graph, given map[string]any) context.Context {
	roots := map[string]any{}
	for _, in := range g.Inputs {
		if in.Default != nil {
			roots[in.Name] = in.Default
		}
	}
	maps.Copy(roots, given)
	return context.WithValue(ctx, rootsKey{}, roots)
}

func rootsOf(ctx context.Context) map[string]any {
	roots, _ := ctx.Value(rootsKey{}).(map[string]any)
	return roots
}

// knowRoots returns an option that calls withRoots for the context of a run. The option also applies if an operator redrives
// the run on the page of -ui.
func (h *host) knowRoots(given map[string]any) kahn.Option {
	return kahn.Around(func(ctx context.Context, _ *kahn.Run) (context.Context, func(*kahn.Result)) {
		return withRoots(ctx, h.graph, given), nil
	})
}

// knowStoredRoots is like knowRoots, but reads the inputs of the run from the store. It is for runs that did not get their inputs from
// the flags of this command.
func knowStoredRoots(t *terminal, g *kahn.Graph, db *sqlite.Store) kahn.Option {
	return kahn.Around(func(ctx context.Context, run *kahn.Run) (context.Context, func(*kahn.Result)) {
		stored, err := db.Load(ctx, run.ID())
		if err == nil {
			var given map[string]any
			if given, err = storedRoots(stored); err == nil {
				return withRoots(ctx, g, given), nil
			}
		}
		t.printf("kahn: run %s: %v\n", run.ID(), err)
		return nil, nil
	})
}

// storedRoots decodes the inputs of a stored run.
func storedRoots(stored *store.Run) (map[string]any, error) {
	var inputs map[string]json.RawMessage
	if err := json.Unmarshal(stored.Inputs, &inputs); stored.Inputs != nil && err != nil {
		return nil, fmt.Errorf("run %s: its inputs: %w", stored.ID, err)
	}
	roots := map[string]any{}
	for name, text := range inputs {
		v, err := kahn.Types{}.Decode(text)
		if err != nil {
			return nil, fmt.Errorf("run %s: input %s: %w", stored.ID, name, err)
		}
		roots[name] = v
	}
	return roots, nil
}
