package sqlite_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/storetest"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	storetest.RunEvents(t, func(t *testing.T) store.EventStore { return openStore(t, file(t), sqlite.Options{}) })
}

func TestEventsInMemory(t *testing.T) {
	t.Parallel()
	storetest.RunEvents(t, func(t *testing.T) store.EventStore { return openStore(t, ":memory:", sqlite.Options{}) })
}

// TestDamagedEvents: a reader gets ErrDamaged for an event that was changed, or that is missing between two others. The run itself continues.
func TestDamagedEvents(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"changed": "UPDATE kahn_events SET data = replace(data, 'A', 'B') WHERE event % 4294967296 = 3",
		"moved":   "UPDATE kahn_events SET data = (SELECT data FROM kahn_events WHERE event % 4294967296 = 2) WHERE event % 4294967296 = 3",
		"missing": "DELETE FROM kahn_events WHERE event % 4294967296 = 3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, file(t), sqlite.Options{})
			g := new(kahn.Graph).Add(kahn.Node{ID: "A"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"A"}})
			perform := func(signals map[string]any) {
				_, err := kahn.Execute(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.RunID("r"), kahn.Durable(s),
					kahn.StoreEvents(), kahn.EarlySignals(signals))
				require.NoError(t, err)
			}
			perform(nil)
			_, err := s.DB().Exec(damage)
			require.NoError(t, err)
			first, err := store.ReadEvents(t.Context(), s, "r", 0, 2)
			require.NoError(t, err)
			require.Len(t, first, 2)
			_, err = store.ReadEvents(t.Context(), s, "r", 2, 2)
			require.ErrorIs(t, err, sqlite.ErrDamaged)
			perform(map[string]any{"gate": "yes"})
			log, err := store.OpenEvents(t.Context(), s, "r")
			require.NoError(t, err)
			last := 0
			for e, err := range log.Events(t.Context(), 3) {
				require.NoError(t, err)
				last = int(e.ID)
			}
			require.Greater(t, last, 5)
		})
	}
}

// TestFollowedFromAnotherHandle: a reader with its own Store, as in another process, follows a run that two Executes perform, and sees each
// event once.
func TestFollowedFromAnotherHandle(t *testing.T) {
	t.Parallel()
	path := file(t)
	storetest.RunFollow(t, openStore(t, path, sqlite.Options{}), openStore(t, path, sqlite.Options{}), kahntest.CheckEvents)
}
