//go:build unix

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// Two processes serve one file. The test kills them at random times, and starts them again. The schedule has one tick per second. Each tick
// begins one run, each run completes, and no tick between the first and the last is missing.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"beat.yaml": `
version: 1
schedule: {every: 1s, missed: all, overlap: allow}
nodes: [{id: a, kind: template, config: {text: a}}, {id: b, kind: template, after: a, config: {text: b}}]
`})
	db := filepath.Join(dir, "runs.db")
	lasts, random := 6*time.Second, rand.New(rand.NewPCG(36, 1))
	if os.Getenv("KAHN_LONG") != "" {
		lasts = 60 * time.Second
	}
	begin := func() *process { return start(t, "serve", "-store", db, "-lease", "500ms", "-ui", "none", dir) }
	processes := []*process{begin(), begin()}
	kills := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); kills++ {
		time.Sleep(time.Duration(100+random.IntN(500)) * time.Millisecond)
		i := random.IntN(2)
		require.NoError(t, processes[i].Process.Kill())
		require.Equal(t, -1, processes[i].exit(), processes[i])
		processes[i] = begin()
	}
	s, err := sqlite.Open(db, sqlite.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var runs []store.Run
	until(t, processes[0], "the ticks", func() bool { // runs that were interrupted by a kill have ended
		page, err := s.List(t.Context(), store.Query{Limit: store.MaxPage})
		require.NoError(t, err)
		runs = page.Runs
		ended := 0
		for _, r := range runs {
			if r.Status.Terminal() {
				ended++
			}
		}
		return ended >= int(lasts/time.Second) && ended == len(runs)-1 // all but the pending run
	})
	for _, p := range processes {
		require.NoError(t, p.Process.Kill())
		p.exit()
	}
	var ticks []time.Time
	for _, r := range runs {
		if r.Status == kahn.RunPending {
			continue
		}
		require.Equal(t, kahn.RunCompleted, r.Status, "%s %v", r.ID, r.Labels)
		tick, err := time.Parse(time.RFC3339, r.Labels["schedule.tick"])
		require.NoError(t, err)
		require.Equal(t, "beat@"+r.Labels["schedule.tick"], r.ID)
		ticks = append(ticks, tick)
	}
	slices.SortFunc(ticks, time.Time.Compare)
	for i := range ticks[1:] {
		require.Equal(t, time.Second, ticks[i+1].Sub(ticks[i]), "after %v", ticks[i])
	}
	t.Logf("%d ticks, %d kills", len(ticks), kills)
}
