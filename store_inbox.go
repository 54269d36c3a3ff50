package kahn

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/store"
)

// PrepareSignal returns a request that answers a waiting node of a durable run, or a gate that the run has not reached. Any process may post it. The
// Post of a [store.Inbox] stores it, and whoever performs the run applies it under the rules of [Run.Signal]: gate is the path of the node or its
// token, and value may be a [Decision]. Of the options, [Encoding] matters: it is that of the run. A Decision without an ID gets one that nobody
// else has; with one the request may be posted again.
//
//	q, err := kahn.PrepareSignal("approve", kahn.Decision{Value: "yes", Actor: "ann", ID: messageID})
//	...
//	_, err = db.Post(ctx, "order-17", q)
//
// The run refuses a request for reasons of its plan and of the node alone. A value that it cannot decode leaves the request waiting, see [ErrUndecoded].
//
// A value that cannot be encoded is an error that matches [ErrNotEncodable]; other errors match [ErrBadValue] or [ErrBadOption]. The cancel of a
// run or of a node has no value: it is a [store.Request] with the kind [store.KindCancel] or [store.KindCancelNode].
func PrepareSignal(gate string, value any, opts ...Option) (q store.Request, err error) {
	c, err := configure(opts, false)
	if err != nil {
		return q, err
	}
	s := signal{gate: gate, Decision: decisionOf(value)}
	if s.ID == "" {
		s.ID = newRunID()
	}
	if err := s.identify(); err != nil {
		return q, err
	}
	q = store.Request{ID: s.ID, Kind: store.KindSignal, Node: gate, Actor: s.Actor, Comment: s.Comment}
	if q.Value, err = encodeValue(c.codec, s.Value); err != nil {
		return q, fmt.Errorf("signal for %s: %w", quoteID(gate), err)
	}
	return q, q.Check()
}
