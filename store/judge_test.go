package store_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// stagedStates calls Judge as a store does: Judge changes copies of the stored States.
type stagedStates struct {
	stored map[string]store.State
	next   map[string]*store.State
}

func (s *stagedStates) node(key string) *store.State {
	n := s.next[key]
	if n == nil {
		copied := s.stored[key]
		n = &copied
		s.next[key] = n
	}
	return n
}

func TestJudge(t *testing.T) {
	t.Parallel()
	stored := func() map[string]store.State {
		return map[string]store.State{
			"waits": {Resolved: 1, Required: 2}, "ready": {Queued: true}, "runs": {Attempt: 2}, "done": {Attempt: 1, Completed: true, Terminal: true},
		}
	}
	at := func(node string, n int32) []store.Attempt { return []store.Attempt{{Node: node, Attempt: n}} }
	for name, c := range map[string]struct {
		status machine.RunStatus
		commit store.Commit
		want   store.Applied
		after  map[string]store.State // the States that differ from the stored ones
	}{
		"nothing":                   {commit: store.Commit{Sequence: 8}, want: store.AppliedNow},
		"the last sequence":         {commit: store.Commit{Sequence: 7}, want: store.Duplicate},
		"an older sequence":         {commit: store.Commit{Sequence: 6}, want: store.Stale},
		"a gap":                     {commit: store.Commit{Sequence: 9}, want: store.Conflict},
		"after the end":             {status: machine.RunFailed, commit: store.Commit{Sequence: 8}, want: store.Conflict},
		"a redrive":                 {status: machine.RunFailed, commit: store.Commit{Sequence: 8, Reopen: true, Reset: []string{"done"}}, want: store.AppliedNow, after: map[string]store.State{"done": {}}},
		"reset alone":               {commit: store.Commit{Sequence: 8, Reset: []string{"done"}}, want: store.Conflict},
		"an end":                    {commit: store.Commit{Sequence: 8, Completed: at("runs", 2)}, want: store.AppliedNow, after: map[string]store.State{"runs": {Attempt: 2, Completed: true}}},
		"an older end":              {commit: store.Commit{Sequence: 8, Completed: at("runs", 1)}, want: store.Stale},
		"an end to come":            {commit: store.Commit{Sequence: 8, Completed: at("runs", 3)}, want: store.Conflict},
		"a second end":              {commit: store.Commit{Sequence: 8, Completed: at("done", 1)}, want: store.Conflict},
		"a start":                   {commit: store.Commit{Sequence: 8, Started: at("ready", 1)}, want: store.AppliedNow, after: map[string]store.State{"ready": {Attempt: 1}}},
		"a start again":             {commit: store.Commit{Sequence: 8, Started: at("runs", 2)}, want: store.Stale},
		"a start too early":         {commit: store.Commit{Sequence: 8, Started: at("runs", 4)}, want: store.Conflict},
		"a start of what has ended": {commit: store.Commit{Sequence: 8, Started: at("done", 2)}, want: store.Conflict},
		"a record": {commit: store.Commit{Sequence: 8, Nodes: []store.NodeRecord{{Node: "ready", Terminal: true}}}, want: store.AppliedNow,
			after: map[string]store.State{"ready": {Terminal: true}}},
		"a record of what has ended": {commit: store.Commit{Sequence: 8, Nodes: []store.NodeRecord{{Node: "done"}}}, want: store.Conflict},
		"the last predecessor": {commit: store.Commit{Sequence: 8, Readiness: []store.Readiness{{Node: "waits", By: 1, Required: 2}}, Ready: []string{"waits"}}, want: store.AppliedNow,
			after: map[string]store.State{"waits": {Resolved: 2, Required: 2, Queued: true}}},
		"the end and the next start": {commit: store.Commit{Sequence: 8, Completed: at("runs", 2), Started: at("runs", 3)}, want: store.AppliedNow,
			after: map[string]store.State{"runs": {Attempt: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stagedStates{stored(), map[string]*store.State{}}
			got, err := c.commit.Judge(7, c.status, s.node)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			if got != store.AppliedNow {
				return
			}
			want := stored()
			maps.Copy(want, c.after)
			for key, n := range s.next {
				s.stored[key] = *n
			}
			require.Equal(t, want, s.stored)
		})
	}
	s := stagedStates{stored(), map[string]*store.State{}}
	more := store.Commit{Sequence: 8, Readiness: []store.Readiness{{Node: "waits", By: 2, Required: 2}}}
	_, err := more.Judge(7, machine.RunRunning, s.node)
	require.ErrorIs(t, err, store.ErrReadinessOverflow)
	require.ErrorContains(t, err, `"waits": 3 of 2`)
}
