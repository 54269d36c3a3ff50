package otelkahn

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
	"go.opentelemetry.io/otel/metric"
)

// Store returns a store for the option Durable. It passes each call to s, and measures how long the methods of [store.Store] take. Use s itself to
// administer runs and to read stored events. The returned store implements [store.EventStore] and [store.Inbox] only if s does. It always
// implements [store.ValueChecker]: it checks values as s does, and accepts every value if s is not a ValueChecker.
func (t *Telemetry) Store(s store.Store) store.Store {
	m := &measured{s, t}
	events, keeps := s.(eventLoader)
	requests, takes := s.(inbox)
	switch {
	case keeps && takes:
		return struct {
			*measured
			eventLoader
			inbox
		}{m, events, requests}
	case keeps:
		return struct {
			*measured
			eventLoader
		}{m, events}
	case takes:
		return struct {
			*measured
			inbox
		}{m, requests}
	}
	return m
}

// The interface inbox has the methods of [store.Inbox] that a Store lacks.
type inbox interface {
	Post(ctx context.Context, run string, r store.Request) (posted bool, err error)
	LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error)
	FindRequest(ctx context.Context, run, id string) (store.PostedRequest, error)
	WatchRequests(run string, arrived func(run string)) (stop func())
}

// The interface eventLoader has the method of [store.EventStore] that a Store lacks.
type eventLoader interface {
	LoadEvents(ctx context.Context, run string, after uint64, limit int) (store.EventPage, error)
}

type measured struct {
	store.Store
	t *Telemetry
}

// CheckValue calls the method CheckValue of the measured store, if that store is a store.ValueChecker.
func (m *measured) CheckValue(value json.RawMessage) error {
	if c, ok := m.Store.(store.ValueChecker); ok {
		return c.CheckValue(value)
	}
	return nil
}

// outcomes lists the errors of stores and their names in metrics.
var outcomes = []struct {
	err  error
	name string
}{
	{store.ErrFenced, "fenced"}, {store.ErrLeased, "leased"}, {store.ErrUnknownRun, "unknown run"}, {store.ErrRejected, "rejected"},
	{store.ErrUnusable, "unusable"}, {context.Canceled, "cancelled"}, {context.DeadlineExceeded, "timeout"},
}

// measure records a call that began at start and returned err.
func (m *measured) measure(ctx context.Context, operation string, start time.Time, err *error) {
	outcome := "ok"
	if *err != nil {
		outcome = "error"
		for _, o := range outcomes {
			if errors.Is(*err, o.err) {
				outcome = o.name
				break
			}
		}
	}
	m.t.storeDuration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(operationKey.String(operation), outcomeKey.String(outcome)))
}

func (m *measured) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (_ store.Lease, _ *store.Run, err error) {
	defer m.measure(ctx, "acquire", time.Now(), &err)
	return m.Store.Acquire(ctx, run, owner, ttl)
}

func (m *measured) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (err error) {
	defer m.measure(ctx, "renew", time.Now(), &err)
	return m.Store.Renew(ctx, lease, ttl)
}

func (m *measured) Release(ctx context.Context, lease store.Lease) (err error) {
	defer m.measure(ctx, "release", time.Now(), &err)
	return m.Store.Release(ctx, lease)
}

func (m *measured) Commit(ctx context.Context, lease store.Lease, c store.Commit) (_ store.Applied, err error) {
	defer m.measure(ctx, "commit", time.Now(), &err)
	return m.Store.Commit(ctx, lease, c)
}

func (m *measured) Load(ctx context.Context, run string) (_ *store.Run, err error) {
	defer m.measure(ctx, "load", time.Now(), &err)
	return m.Store.Load(ctx, run)
}
