//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
)

// The environment variables that TestScheduled sets for the processes it starts: the database, and the newest workflow version that the process
// serves.
const (
	scheduledURL     = "SCHEDULED_URL"
	scheduledVersion = "SCHEDULED_VERSION"
)

// beat returns the given version of the workflow that the schedule runs.
func beat(version int) kahn.Workflow {
	g := (&kahn.Graph{Name: "beat"}).Add(kahn.Node{ID: "a", Config: map[string]any{"version": version}}, kahn.Node{ID: "b", After: []string{"a"}})
	return kahn.Workflow{Graph: g, Options: []kahn.Option{kahn.Lease("", 500*time.Millisecond)}, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		time.Sleep(20 * time.Millisecond)
		return s.ID(), nil
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestScheduledProcess serves the schedule until it is killed. It is skipped unless TestScheduled started the process.
func TestScheduledProcess(t *testing.T) {
	url := os.Getenv(scheduledURL)
	if url == "" {
		t.Skip("it is a process of TestScheduled")
	}
	latest, err := strconv.Atoi(os.Getenv(scheduledVersion))
	must(t, err)
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Listen: url})
	must(t, err)
	x := kahn.Service{Store: s, OnError: func(string, store.Queue, error) {}}
	for version := latest; version >= 0; version-- {
		x.Workflows = append(x.Workflows, beat(version))
	}
	scheduler, err := schedule.New(new(kahn.Runner), x, schedule.Schedule{Name: "beat", Workflow: "beat", Every: time.Second, Missed: schedule.All, Overlap: schedule.Allow})
	must(t, err)
	t.Error(scheduler.Serve(t.Context()), "and it was not killed")
}

// Three processes serve a schedule over PostgreSQL, are killed at random moments, and are started again, some with a new version of the graph;
// meanwhile ended runs are removed. There is one tick per second. Each tick has one run, which completes once, and no tick is missing.
func TestScheduled(t *testing.T) {
	t.Parallel()
	err := localserver.WithDatabase(func(url string) error {
		scheduled(t, url)
		return nil
	})
	if errors.Is(err, localserver.ErrNoServer) {
		t.Skip(err)
	}
	must(t, err)
}

func scheduled(t *testing.T, url string) {
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	defer pool.Close()
	s, err := postgres.Open(t.Context(), pool, postgres.Options{})
	must(t, err)
	lasts, random := 4*time.Second, rand.New(rand.NewPCG(36, 2))
	if os.Getenv("KAHN_LONG") != "" {
		lasts = 2 * time.Minute
	}
	version := 0
	begin := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestScheduledProcess$")
		cmd.Env = append(os.Environ(), scheduledURL+"="+url, scheduledVersion+"="+fmt.Sprint(version))
		must(t, cmd.Start())
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		must(t, cmd.Process.Kill())
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("a process has ended by itself: %v", err)
		}
	}
	processes := []*exec.Cmd{begin(), begin(), begin()}
	defer func() {
		for _, p := range processes {
			_ = p.Process.Kill() // it has ended already, unless the test failed
		}
	}()
	kills, began := 0, time.Now()
	for ; time.Since(began) < lasts; kills++ {
		time.Sleep(time.Duration(100+random.IntN(400)) * time.Millisecond)
		i := random.IntN(len(processes))
		kill(processes[i])
		if kills%4 == 3 {
			version++
		}
		processes[i] = begin()
	}
	var runs []store.Run
	enough := int(lasts / time.Second)
	for patience := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) { // wait for the end of the runs that began during the kills
		page, err := s.List(t.Context(), store.Query{Limit: store.MaxPage})
		must(t, err)
		runs = page.Runs
		ended := 0
		for _, r := range runs {
			if r.Status.Terminal() {
				ended++
			}
		}
		if ended >= enough && ended == len(runs)-1 { // all but the pending run
			break
		}
		if time.Now().After(patience) {
			t.Fatalf("%d of %d runs have ended", ended, len(runs))
		}
	}
	for _, p := range processes {
		kill(p)
	}
	var ticks []time.Time
	plans := map[string]bool{}
	for _, r := range runs {
		if r.Status == kahn.RunPending {
			continue
		}
		tick, err := time.Parse(time.RFC3339, r.Labels["schedule.tick"])
		must(t, err)
		if r.Status != kahn.RunCompleted || r.ID != "beat@"+r.Labels["schedule.tick"] {
			t.Fatalf("run %s is %v, with the labels %v", r.ID, r.Status, r.Labels)
		}
		ticks, plans[r.Plan] = append(ticks, tick), true
	}
	slices.SortFunc(ticks, time.Time.Compare)
	for i := range ticks[1:] {
		if ticks[i+1].Sub(ticks[i]) != time.Second {
			t.Errorf("the tick after %v is %v", ticks[i], ticks[i+1])
		}
	}
	t.Logf("%d ticks, %d kills, %d versions", len(ticks), kills, len(plans))
}
