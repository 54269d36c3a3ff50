package conformance_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// askingCodec is a codec that asks a run for its status while it encodes a value.
type askingCodec struct {
	kahn.Types
	t   *testing.T
	run atomic.Pointer[kahn.Run]
}

func (c *askingCodec) Encode(value any) (json.RawMessage, error) {
	if run := c.run.Load(); run != nil {
		answered := make(chan struct{})
		go func() {
			run.Status()
			close(answered)
		}()
		select {
		case <-answered:
		case <-time.After(10 * time.Second):
			c.t.Errorf("the lock is held while %v is encoded", value)
		}
	}
	return c.Types.Encode(value)
}

// TestAnswersWithoutCodec: the run itself answers a gate whose time is up. The gate takes the branch with the label "timeout". The run does not
// call the codec while it holds its lock.
func TestAnswersWithoutCodec(t *testing.T) {
	t.Parallel()
	late := kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: 20 * time.Millisecond, OnTimeout: kahn.GateLabel}}
	for name, row := range map[string]struct {
		g    *kahn.Graph
		opts []kahn.Option
		want string
	}{
		"a gate whose time is up": {graph(late, branch("no", "G", "timeout"), branch("yes", "G", "approved")), []kahn.Option{kahn.Durable(new(store.Memory))}, "no"},
		"a gate in test mode": {graph(gate("G", "A"), after("A"), branch("no", "G", "rejected"), branch("yes", "G", "approved")),
			[]kahn.Option{kahn.TestMode{}, kahn.Durable(new(store.Memory))}, "yes"},
		"with a codec alone": {graph(gate("G", "A"), after("A"), branch("no", "G", "rejected"), branch("yes", "G", "approved")),
			[]kahn.Option{kahn.TestMode{}}, "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			codec := &askingCodec{t: t}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), row.g, takes(10*ms), append(row.opts, kahn.Encoding(codec), kahn.OnEvent(rec.add))...)
			require.NoError(t, err)
			codec.run.Store(run)
			res, err := run.Wait()
			require.NoError(t, err)
			checkEvents(t, row.g, res, rec.all())
			for _, id := range []string{"no", "yes"} {
				n, _ := res.Node(id)
				require.Equal(t, id == row.want, n.Status == kahn.Completed, id)
			}
		})
	}
}
