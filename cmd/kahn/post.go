package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// errPosted is returned if the command has posted its answers to the process that performs the run.
var errPosted = errors.New("another process performs the run")

// errRefused is returned if the process that performs the run has refused an answer.
var errRefused = errors.New("the answer was refused")

// posted maps each gate to the id of the posted request that answers the gate.
type posted map[string]string

// The method `post` posts answers for a run to the store. The process that performs the run reads them from the store.
func (s *storedRun) post(ctx context.Context, answers pairs) (posted, error) {
	ids := posted{}
	for _, gate := range slices.Sorted(maps.Keys(answers)) {
		q, err := kahn.PrepareSignal(gate, answers[gate])
		if err == nil {
			_, err = s.db.Post(ctx, s.id, q)
		}
		if err != nil {
			return ids, fmt.Errorf("-answer %s: %w", gate, err)
		}
		ids[gate] = q.ID
	}
	return ids, nil
}

// The method `replies` returns nil until the process that performs the run has taken all answers. Then it returns an error: it matches errRefused if
// the process has refused an answer, and errPosted otherwise.
func (s *storedRun) replies(ctx context.Context, ids posted) error {
	if len(ids) == 0 {
		return nil
	}
	refused := error(nil)
	for _, gate := range slices.Sorted(maps.Keys(ids)) {
		switch q, err := s.db.FindRequest(ctx, s.id, ids[gate]); {
		case err != nil:
			return err
		case q.Status == store.RequestWaiting:
			return nil
		case q.Status == store.RequestRefused:
			refused = errors.Join(refused, fmt.Errorf("%w: %s", errRefused, q.Refused))
		}
	}
	if refused != nil {
		return refused
	}
	return fmt.Errorf("%w %s: it has the answers", errPosted, s.id)
}
