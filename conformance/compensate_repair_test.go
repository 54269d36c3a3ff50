package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// An operator repeats a failed compensation, under its old key, or declares it done. The repair is a new epoch of the run, which performs no
// other node. The test repairs by a snapshot, over a store, and by a request.
func TestCompensationsAreRepaired(t *testing.T) {
	ann := kahn.Request{Actor: "ann", Reason: "called the bank"}
	for _, how := range []string{"snapshot", "store", "request"} {
		for _, mode := range []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand} {
			for _, names := range [][]string{nil, {"pay"}} {
				s := &shop{refund: kahn.Permanent(errors.New("no such charge"))}
				g, memory := s.graph(), new(store.Memory)
				opts := []kahn.Option{kahn.RunID("r"), kahn.StoreEvents(), kahn.Durable(memory)}
				if how == "snapshot" {
					opts = opts[:1]
				}
				res, err := kahn.Execute(t.Context(), g, nil, opts...)
				require.ErrorIs(t, err, kahn.ErrCompensation)
				key := s.keys["unpay"]
				s.calls, s.refund = nil, nil
				rec := newRecorder()
				again := append(slices.Clone(opts), kahn.OnEvent(rec.add))
				switch how {
				case "snapshot":
					again = append(again, kahn.Redrive(reload(t, res.Snapshot()), names, ann), mode)
				case "store":
					again = append(again, kahn.Redrive(nil, names, ann), mode)
				default:
					q, err := kahn.PrepareRedrive(names, ann, mode)
					require.NoError(t, err)
					_, err = memory.Post(t.Context(), "r", q)
					require.NoError(t, err)
				}
				preview, err := kahn.RedrivePreview(compiled(t, g), res.Snapshot(), names, mode)
				require.NoError(t, err)
				require.Equal(t, []string{"pay"}, preview)
				res, err = kahn.Execute(t.Context(), g, nil, again...)
				require.ErrorContains(t, err, errSoldOut.Error())
				require.NotErrorIs(t, err, kahn.ErrCompensation)
				require.Equal(t, kahn.RunFailed, res.Status)
				require.Equal(t, kahn.CompensationDone, must(res.Node("pay")).Compensation)
				require.Equal(t, 2, res.Snapshot().Epoch())
				undoing := must(res.Node("pay")).Undoing
				require.True(t, undoing.Certain)
				require.False(t, undoing.Ended.Before(undoing.Began))
				require.Equal(t, mode == kahn.CompensatedByHand, undoing.By != nil && *undoing.By == ann)
				nodes, err := reload(t, res.Snapshot()).Nodes(compiled(t, g))
				require.NoError(t, err)
				pays := nodes[slices.IndexFunc(nodes, func(n kahn.SnapshotNode) bool { return n.ID == "pay" })]
				require.Equal(t, kahn.CompensationDone, pays.Compensation, "a snapshot tells the same")
				require.Equal(t, undoing.By, pays.Undoing.By)
				require.Equal(t, undoing.Attempts, pays.Undoing.Attempts)
				require.True(t, undoing.Ended.Equal(pays.Undoing.Ended))
				require.Nil(t, must(res.Node("ship")).Undoing)
				if how != "snapshot" {
					stored, err := kahn.ReadSnapshot(t.Context(), memory, "r")
					require.NoError(t, err)
					data, err := json.Marshal(stored)
					require.NoError(t, err)
					require.Equal(t, 3, strings.Count(string(data), `,"epoch":1,`), "all nodes stay in the first epoch, since a repair runs none: %s", data)
				}
				if mode == kahn.RepeatCompensations {
					require.Equal(t, []string{"unpay"}, s.calls)
					require.Equal(t, key, s.keys["unpay"])
				} else {
					require.Empty(t, s.calls)
				}
				for _, e := range rec.all() {
					if p, ok := e.Payload.(event.Compensation); ok && e.Type == event.NodeCompensated {
						require.Equal(t, mode == kahn.CompensatedByHand, p.Request.Actor == "ann")
					}
				}
				s.calls, s.sells = nil, true // a redrive charges under a new key
				from := res.Snapshot()
				if how != "snapshot" {
					from = nil
				}
				pay := s.keys["pay"]
				_, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(from, nil))...)
				require.NoError(t, err)
				require.Equal(t, []string{"pay", "ship"}, s.calls)
				require.NotEqual(t, pay, s.keys["pay"])
			}
		}
	}
}

// The repair of a compensation that has not failed is refused.
func TestRepairsAreRefused(t *testing.T) {
	s := new(shop)
	g := s.graph()
	res, _ := kahn.Execute(t.Context(), g, nil)
	for _, names := range [][]string{nil, {"pay"}, {"nowhere"}} {
		_, err := kahn.Execute(t.Context(), g, nil, kahn.Redrive(res.Snapshot(), names), kahn.RepeatCompensations)
		require.ErrorIs(t, err, kahn.ErrUnknownNode, names)
	}
	_, err := kahn.Execute(t.Context(), g, nil, kahn.Redrive(res.Snapshot(), nil), kahn.RepeatCompensations, kahn.Anew)
	require.ErrorIs(t, err, kahn.ErrBadOption)
}

// A composite has a compensation of its own, which succeeded, and the compensation of a node inside has failed, since the attempt of the composite
// had failed before. A repair repeats the failed compensation and no other.
func TestRepairInsideACompositeThatIsUndone(t *testing.T) {
	for _, expands := range []bool{false, true} {
		for _, stored := range []bool{false, true} {
			for _, mode := range []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand} {
				inBubble(t, fmt.Sprint(expands, stored, mode), func(t *testing.T) {
					refund := kahn.Permanent(errors.New("no such charge"))
					pays, whole := 0, 0
					inner := graph(kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error {
						pays++
						return refund
					}})
					e := subgraph("E", inner)
					if expands {
						e = kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}
					}
					s := subgraph("S", graph(e, kahn.Node{ID: "ship", After: []string{"E"}, Do: always(errSoldOut)}))
					s.Compensate = func(context.Context, *kahn.Step) error { whole++; return nil }
					g, memory := graph(s), new(store.Memory)
					opts := []kahn.Option{kahn.RunID("r")}
					if stored {
						opts = append(opts, kahn.Durable(memory))
					}
					res, err := kahn.Execute(t.Context(), g, nil, opts...)
					require.ErrorIs(t, err, kahn.ErrCompensation)
					require.Equal(t, 1, pays)
					require.Equal(t, 1, whole)
					for life, fails := range []bool{true, false} {
						if !fails {
							refund = nil
						}
						var from *kahn.Snapshot
						if !stored {
							from = reload(t, res.Snapshot())
						}
						res, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(from, nil), mode)...)
						require.ErrorContains(t, err, errSoldOut.Error())
						require.Equal(t, fails && mode == kahn.RepeatCompensations, errors.Is(err, kahn.ErrCompensation), err)
						require.Equal(t, 1, whole, "the compensation of S had succeeded")
						if mode == kahn.CompensatedByHand {
							require.Equal(t, 1, pays)
							break
						}
						require.Equal(t, 2+life, pays)
					}
					require.Equal(t, kahn.CompensationDone, must(res.Node("S")).Compensation)
					if !expands { // otherwise the Result of a later life has no nested Result
						require.Equal(t, kahn.CompensationDone, must(must(must(res.Node("S")).Sub.Node("E")).Sub.Node("pay")).Compensation)
					}
					if stored {
						checkRead(t, g, res, memory)
					}
				})
			}
		}
	}
}
