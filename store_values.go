package kahn

import (
	"errors"

	"github.com/seed-c794f7ef/kahn/store"
)

// keep reports why a value cannot be kept: its codec cannot encode it, or the store refuses it. It calls user code, and is called
// without the lock. A run that need not keep its values takes all of them.
func (r *Run) keep(value any) error {
	if !r.cfg.checkValues {
		return nil
	}
	data, err := encodeValue(r.cfg.codec, value)
	if err != nil {
		return err
	}
	checker, ok := r.cfg.store.(store.ValueChecker)
	if !ok {
		return nil
	}
	if err = guarded(func() error { return checker.CheckValue(data) }); errors.Is(err, ErrRejected) {
		return err
	}
	return nil // after any other error the commit tells
}

// causeOfKeep is the cause of a node whose value cannot be kept.
func causeOfKeep(err error) CauseKind {
	if errors.Is(err, ErrRejected) {
		return CauseStoreRejected
	}
	return CauseStoreError
}
