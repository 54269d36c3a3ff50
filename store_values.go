package kahn

import (
	"encoding/json"
	"errors"

	"github.com/seed-c794f7ef/kahn/store"
)

// keep returns a value as its codec has written it, or why the value cannot be kept: the codec cannot encode it, or the store refuses it.
// It calls user code, and is called without the lock. A run that need not keep its values takes all of them, and has no texts.
//
// A codec may encrypt a value, or send it elsewhere: so it is asked once, and the text stays beside the value until it is written.
func (r *Run) keep(value any) (text json.RawMessage, err error) {
	if !r.cfg.checkValues {
		return nil, nil
	}
	if text, err = encodeValue(r.cfg.codec, value); err != nil {
		return nil, err
	}
	checker, ok := r.cfg.store.(store.ValueChecker)
	if !ok {
		return text, nil
	}
	if err = guarded(func() error { return checker.CheckValue(text) }); errors.Is(err, ErrRejected) {
		return nil, err
	}
	return text, nil // after any other error the commit tells
}

// forgetTexts drops the texts of a node that has ended and is written.
func (r *Run) forgetTexts(ref Ref) {
	x := r.extras[ref]
	if x == nil {
		return
	}
	if x.texts = nil; x.items != nil {
		x.items.text = nil
	}
}

// outputText keeps the text of the output of a node that completes, until it is written.
func (r *Run) outputText(ref Ref, status Status, text json.RawMessage) {
	if d := r.durable; d != nil && d.failed == nil && status == Completed && text != nil {
		d.pending(place{r, ref}).text = text
		d.outbox.bytes += len(text)
	}
}

// causeOfKeep is the cause of a node whose value cannot be kept.
func causeOfKeep(err error) CauseKind {
	if errors.Is(err, ErrRejected) {
		return CauseStoreRejected
	}
	return CauseStoreError
}
