package riverkahn_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestCreate: a run and its job are created together, once.
func TestCreate(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	c := x.client(t)
	n, err := kahn.Prepare(order(), kahn.RunID("order-17"))
	require.NoError(t, err)

	tx, err := x.pool.Begin(t.Context())
	require.NoError(t, err)
	_, created, err := c.CreateTx(t.Context(), tx, n, riverkahn.CreateOptions{})
	require.NoError(t, err)
	require.True(t, created)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Empty(t, x.jobs(t, "order-17"))
	_, err = x.store.Head(t.Context(), "order-17")
	require.ErrorIs(t, err, store.ErrUnknownRun)

	n.NotBefore, n.IfExists = time.Now().Add(time.Hour), store.Reuse
	_, created, err = c.Create(t.Context(), n, riverkahn.CreateOptions{Priority: 3})
	require.NoError(t, err)
	require.True(t, created)
	_, created, err = c.Create(t.Context(), n, riverkahn.CreateOptions{})
	require.NoError(t, err)
	require.False(t, created)
	jobs := x.jobs(t, "order-17")
	require.Len(t, jobs, 1)
	require.Equal(t, rivertype.JobStateScheduled, jobs[0].State)
	require.Equal(t, riverkahn.QueueOf(n.Workflow, n.Plan), jobs[0].Queue)
	require.Equal(t, 3, jobs[0].Priority)
	require.WithinDuration(t, n.NotBefore, jobs[0].ScheduledAt, time.Millisecond)

	require.NoError(t, c.Wake(t.Context(), "order-17")) // the run's scheduled job begins at once, and finds that the run is not due
	jobs = x.jobs(t, "order-17")
	require.Len(t, jobs, 1)
	require.Equal(t, rivertype.JobStateAvailable, jobs[0].State)
	require.Equal(t, 3, jobs[0].Priority)
	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}})
	x.states(t, "order-17", rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	require.WithinDuration(t, n.NotBefore, x.jobs(t, "order-17")[1].ScheduledAt, time.Millisecond)

	_, _, err = c.Create(t.Context(), n, riverkahn.CreateOptions{Priority: 5})
	require.ErrorIs(t, err, machine.ErrBadValue)
}

// TestCreatePriorities: a job of River gets the priority of its run if River has this priority. Create refuses other priorities.
func TestCreatePriorities(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	c := x.client(t)
	for priority, want := range map[int]int{0: 1, -1: 2, -3: 4} {
		id := fmt.Sprint("run", priority)
		n, err := kahn.Prepare(order(), kahn.RunID(id), kahn.RunPriority(priority))
		require.NoError(t, err)
		_, _, err = c.Create(t.Context(), n, riverkahn.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, want, x.jobs(t, id)[0].Priority)
	}
	for want, row := range map[string]struct {
		o        kahn.Option
		priority int
	}{
		`run "r" has the RunPriority 1: under River it must be from 0, which comes first, down to -3`:  {kahn.RunPriority(1), 0},
		`run "r" has the RunPriority -4: under River it must be from 0, which comes first, down to -3`: {kahn.RunPriority(-4), 0},
		`run "r" has the RunPriority -1, and its jobs the Priority 2`:                                  {kahn.RunPriority(-1), 2},
		`run "r" has the key "acme": River does not order jobs by key: leave`:                          {kahn.RunKey("acme"), 0},
	} {
		n, err := kahn.Prepare(order(), kahn.RunID("r"), row.o)
		require.NoError(t, err)
		_, _, err = c.Create(t.Context(), n, riverkahn.CreateOptions{Priority: row.priority})
		require.ErrorIs(t, err, machine.ErrBadValue)
		require.ErrorContains(t, err, want)
		_, err = x.store.Head(t.Context(), "r")
		require.ErrorIs(t, err, store.ErrUnknownRun)
	}
}

// TestNotCommitted: if the transaction is not committed, Create does not report a run as created, and Post does not report a request as
// posted.
func TestNotCommitted(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	c := x.client(t)
	create(t, c, gated(0), "there")
	in := func(name string) string { return pgx.Identifier{x.store.Schema(), name}.Sanitize() }
	for _, text := range []string{
		"CREATE FUNCTION " + in("refuse") + "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
		"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON " + in("runs") + " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION " + in("refuse") + "()",
		"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON " + in("requests") + " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION " + in("refuse") + "()",
	} {
		_, err := x.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	n, err := kahn.Prepare(order(), kahn.RunID("new"))
	require.NoError(t, err)
	stored, created, err := c.Create(t.Context(), n, riverkahn.CreateOptions{})
	require.ErrorContains(t, err, "refused")
	require.False(t, created)
	require.Nil(t, stored)
	posted, err := c.Post(t.Context(), "there", signal(t, "1", "yes"))
	require.ErrorContains(t, err, "refused")
	require.False(t, posted)
}

// TestVersions: a process works only the queues of its plans, and leaves other queues to other processes.
func TestVersions(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	former, present := order(), order().Add(kahn.Node{ID: "thank", After: []string{"ship"}})
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: present, Step: echo}}})
	create(t, c, former, "former")
	create(t, c, present, "present")
	x.reaches(t, "present", kahn.RunCompleted)
	x.states(t, "former", rivertype.JobStateAvailable)
	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: former, Step: echo}, {Graph: present, Step: echo}}})
	x.reaches(t, "former", kahn.RunCompleted)
}

// TestQueueOf: River accepts the queue's name for any name of a workflow.
func TestQueueOf(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^(?:[a-z0-9])+(?:[_|\-]?[a-z0-9]+)*$`) // the pattern in River's client.go
	seen := map[string]string{}
	for _, name := range []string{"", "order", "Order", "order ", "ö", "___", "a_", strings.Repeat("long name ", 50), "a\x00b", "K", "x--y"} {
		for _, plan := range []string{"", "0123"} {
			queue := riverkahn.QueueOf(name, plan)
			require.Regexp(t, valid, queue)
			require.LessOrEqual(t, len(queue), 64)
			require.Empty(t, seen[queue], "%q and %q", name, seen[queue])
			seen[queue] = name + plan + "."
		}
	}
	require.Contains(t, riverkahn.QueueOf("Order 66", ""), "kahn_order_66_")
}

// TestRegister: Register returns an error that names what the Performer lacks.
func TestRegister(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	ring := (&kahn.Graph{Name: "ring"}).Add(kahn.Node{ID: "a", After: []string{"a"}})
	for name, p := range map[string]*riverkahn.Performer{
		"no store":     {},
		"no graph":     {Store: x.store, Workflows: []riverkahn.Workflow{{Step: echo}}},
		"no name":      {Store: x.store, Workflows: []riverkahn.Workflow{{Graph: &kahn.Graph{}, Step: echo}}},
		"twice":        {Store: x.store, Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}, {Graph: order(), Step: echo}}},
		"MaxRuns":      {Store: x.store, Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo, MaxRuns: -1}}},
		"For":          {Store: x.store, Retention: []riverkahn.Retention{{}}},
		"Statuses":     {Store: x.store, Retention: []riverkahn.Retention{{For: 1, Statuses: []kahn.RunStatus{kahn.RunRunning}}}},
		"RecoverEvery": {Store: x.store, RecoverEvery: -1},
		"RecoverEvery 5ns or PruneEvery 0s: is its unit missing?":  {Store: x.store, RecoverEvery: 5},
		"RecoverEvery 0s or PruneEvery 60ns: is its unit missing?": {Store: x.store, PruneEvery: 60},
	} {
		err := p.Register(x.config())
		require.ErrorIs(t, err, machine.ErrBadValue, name)
		if strings.HasSuffix(name, "?") {
			require.ErrorContains(t, err, name)
		}
	}
	require.ErrorContains(t, (&riverkahn.Server{Store: x.store, Step: echo, Kinds: map[string]int{"k": 1}, RecoverEvery: 5}).Register(x.config()), "RecoverEvery 5ns: is its unit missing?")
	p := &riverkahn.Performer{Store: x.store, Workflows: []riverkahn.Workflow{{Graph: ring, Step: echo}}}
	require.ErrorIs(t, p.Register(x.config()), kahn.ErrCycle)
	p.Workflows[0].Graph = order()
	require.NoError(t, p.Register(x.config()))
	require.ErrorIs(t, p.Register(x.config()), machine.ErrBadValue, "it was registered before")
	config, second := x.config(), &riverkahn.Performer{Store: x.store, Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}}
	require.NoError(t, (&riverkahn.Performer{Store: x.store}).Register(config))
	require.ErrorIs(t, second.Register(config), machine.ErrBadValue, "another one is registered")
	require.NoError(t, second.Register(x.config()), "a Performer that was refused can be registered")
	require.ErrorIs(t, (&riverkahn.Performer{Store: x.store}).Register(nil), machine.ErrBadValue)
}
