package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/seed-c794f7ef/kahn/store"
)

// checkedValues: a [store.ValueChecker] accepts exactly the values that a commit accepts, and does not change a value. Several goroutines may call
// CheckValue at once. For a rejected value, CheckValue returns an error that matches ErrRejected.
func checkedValues(ctx context.Context, s store.Store) error {
	checker, ok := s.(store.ValueChecker)
	if !ok {
		return nil
	}
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	long, err := json.Marshal(strings.Repeat("long ", 20_000))
	if err != nil {
		return err
	}
	for i, value := range []json.RawMessage{json.RawMessage(`null`), json.RawMessage(`"ä\u0000"`), json.RawMessage(`{"a":[1,2.50,"x"]}`), long} {
		kept := bytes.Clone(value)
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = checker.CheckValue(kept) })
		}
		wg.Wait()
		if !bytes.Equal(kept, value) {
			return fmt.Errorf("CheckValue changes the value %.20s to %.20s", value, kept)
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, store.ErrRejected) {
				return fmt.Errorf("CheckValue of %.20s: %w, which does not match ErrRejected", value, err)
			}
		}
		node := store.NodeRecord{Node: "a", Columns: store.Columns{Value: kept}}
		applied, err := s.Commit(ctx, lease, store.Commit{Sequence: uint64(2 + i), Nodes: []store.NodeRecord{node}})
		switch {
		case errs[0] != nil && err == nil:
			return fmt.Errorf("CheckValue rejects %.20s, which a commit takes: %w", value, errs[0])
		case errs[0] != nil:
			return nil // the store is too small for the values of this check
		case err != nil || applied != store.AppliedNow:
			return fmt.Errorf("CheckValue takes %.20s, and a commit is answered %v: %w", value, applied, err)
		}
	}
	return nil
}
