package sse_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestStoredRun: processes that do not perform a run serve all events of the run from the store, whichever processes performed it. A client
// can continue with a cursor from another process.
func TestStoredRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		handler := func() *sse.Handler {
			return &sse.Handler{Find: func(r *http.Request) (sse.Source, error) {
				log, err := store.OpenEvents(r.Context(), db, "r")
				if err != nil {
					return nil, err
				}
				return log, nil
			}}
		}
		require.Equal(t, 404, ask(t, handler(), "GET", "/").code)
		g := new(kahn.Graph).Add(kahn.Node{ID: "A", Do: nothing}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"A"}}, kahn.Node{ID: "B", After: []string{"gate"}, Do: nothing})
		live := func(signals map[string]any) {
			_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(db), kahn.StoreEvents(), kahn.EarlySignals(signals))
			require.NoError(t, err)
		}
		live(nil)
		var page struct {
			Events      []event.Event
			LastEventID uint64
			Done        bool
		}
		a := ask(t, handler(), "GET", "/", "Accept", "application/json")
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		require.False(t, page.Done)
		require.Len(t, page.Events, int(page.LastEventID))
		require.Equal(t, event.RunStatusChanged, page.Events[page.LastEventID-1].Type)

		streamed := make(chan answer)
		go func() { streamed <- ask(t, handler(), "GET", "/", "Last-Event-ID", "3") }()
		synctest.Wait() // the stream has sent the events of the first process, and waits
		live(map[string]any{"gate": "yes"})
		a = <-streamed
		stored, err := store.ReadEvents(t.Context(), db, "r", 3, 0)
		require.NoError(t, err)
		var want []string
		for _, e := range stored {
			want = append(want, fmt.Sprint(e.ID))
		}
		require.Equal(t, strings.Join(want, " "), ids(t, strings.NewReader(a.body)))
		require.Greater(t, stored[len(stored)-1].ID, page.LastEventID)
		require.Equal(t, event.RunCompleted, stored[len(stored)-1].Type)
		require.Equal(t, 204, ask(t, handler(), "GET", "/", "Last-Event-ID", fmt.Sprint(stored[len(stored)-1].ID)).code)
	})
}
