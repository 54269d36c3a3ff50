package riverkahn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// serve starts a client of River with a Server of the kind "mail".
func (x *tables) serve(t *testing.T, step kahn.StepFunc, codec kahn.Codec) *river.Client[pgx.Tx] {
	t.Helper()
	s := &riverkahn.Server{Store: x.store, Step: step, Kinds: map[string]int{"mail": 5}, Codec: codec}
	config := x.config()
	require.NoError(t, s.Register(config))
	c, err := river.NewClient(riverpgxv5.New(x.pool), config)
	require.NoError(t, err)
	require.NoError(t, c.Start(context.Background()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return c
}

// stepJobs returns the states of the jobs that perform steps, the oldest first.
func (x *tables) stepJobs(t *testing.T) []rivertype.JobState {
	t.Helper()
	rows, err := x.pool.Query(t.Context(), "SELECT state FROM "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+" WHERE kind = 'kahn_step' ORDER BY id")
	require.NoError(t, err)
	states, err := pgx.CollectRows(rows, pgx.RowTo[rivertype.JobState])
	require.NoError(t, err)
	return states
}

// mails returns a graph with a node whose step another process performs, and a node that follows it.
func mails(n kahn.Node) *kahn.Graph {
	n.ID, n.Kind, n.Do = "mail", "mail", riverkahn.Remote{LostAfter: 500 * time.Millisecond}.Step
	return (&kahn.Graph{Name: "mails"}).Add(n, kahn.Node{ID: "note", After: []string{"mail"}})
}

// TestRemote: another process performs a step. The step sees what it would see in this process, and its reply is the outcome of the node.
func TestRemote(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	large := strings.Repeat("x", 100_000)
	blobs := new(store.MemoryBlobs)
	codec := &store.Blobs{Codec: kahn.Types(nil), Store: blobs}
	g := mails(kahn.Node{Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Millisecond}})
	x.serve(t, func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Attempt() == 1 {
			return nil, errors.New("busy")
		}
		to, _ := s.Root("to")
		text, _ := s.Root("text")
		return fmt.Sprint(s.ID(), " of ", s.RunID(), " to ", to, ": ", len(text.(string)), " bytes, after ", s.LastErr()), nil
	}, codec)
	var noted atomic.Value
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Options: []kahn.Option{kahn.Encoding(codec)}, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		noted.Store(s.UpstreamAll()["mail"])
		return nil, nil
	}}}})
	n, err := kahn.Prepare(g, kahn.RunID("letter"), kahn.Inputs(map[string]any{"to": "ann", "text": large}), kahn.Encoding(codec))
	require.NoError(t, err)
	_, _, err = c.Create(t.Context(), n, riverkahn.CreateOptions{})
	require.NoError(t, err)
	x.reaches(t, "letter", kahn.RunCompleted)
	require.Equal(t, "mail of letter to ann: 100000 bytes, after busy", noted.Load())
	require.Equal(t, []rivertype.JobState{rivertype.JobStateCompleted, rivertype.JobStateCompleted}, x.stepJobs(t))
	var size int
	require.NoError(t, x.pool.QueryRow(t.Context(), "SELECT max(length(args::text)) FROM "+pgx.Identifier{x.schema, "river_job"}.Sanitize()).Scan(&size))
	require.Less(t, size, 10_000, "the text did not go by reference")
}

// TestRemoteStop: the context of a remote step ends when its run is cancelled or its node times out.
func TestRemoteStop(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node   kahn.Node
		cancel bool
		status kahn.RunStatus
	}{
		"cancel":  {kahn.Node{}, true, kahn.RunCancelled},
		"timeout": {kahn.Node{Timeout: 300 * time.Millisecond}, false, kahn.RunFailed},
		"overall": {kahn.Node{OverallTimeout: 300 * time.Millisecond}, false, kahn.RunFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTables(t)
			began, ended := make(chan struct{}), make(chan struct{})
			x.serve(t, func(ctx context.Context, _ *kahn.Step) (any, error) {
				close(began)
				<-ctx.Done()
				close(ended)
				return nil, context.Cause(ctx)
			}, nil)
			g := mails(test.node)
			c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
			create(t, c, g, "letter")
			<-began
			if test.cancel {
				_, err := c.Post(t.Context(), "letter", store.Request{ID: "stop", Kind: store.KindCancel})
				require.NoError(t, err)
			}
			<-ended
			x.reaches(t, "letter", test.status)
		})
	}
}

// TestRemoteLost: if the process of an attempt sends no heartbeats, another process performs the attempt. If an attempt is lost too often, it
// fails.
func TestRemoteLost(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := mails(kahn.Node{})
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	create(t, c, g, "letter")
	lose := func() {
		require.Eventually(t, func() bool {
			tag, err := x.pool.Exec(t.Context(), "UPDATE "+pgx.Identifier{x.schema, "river_job"}.Sanitize()+
				" SET state = 'running', attempt = 1, attempted_at = now() - interval '1 second', attempted_by = '{dead}' WHERE kind = 'kahn_step' AND state = 'available'")
			require.NoError(t, err)
			return tag.RowsAffected() == 1
		}, 10*time.Second, 5*time.Millisecond)
	}
	lose()
	lose()
	lose()
	x.reaches(t, "letter", kahn.RunFailed)
	_, err := kahn.ReadResult(t.Context(), g, x.store, "letter")
	require.ErrorContains(t, err, "since 3 processes that performed it were lost")

	create(t, c, g, "other letter")
	lose()
	x.serve(t, echo, nil)
	x.reaches(t, "other letter", kahn.RunCompleted)
}

// TestRemoteSlips: the error for a wrong Server, or a wrong use of a Remote, names the mistake.
func TestRemoteSlips(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	for name, s := range map[string]*riverkahn.Server{
		"no store": {Step: echo, Kinds: map[string]int{"mail": 1}},
		"no step":  {Store: x.store, Kinds: map[string]int{"mail": 1}},
		"no kinds": {Store: x.store, Step: echo},
		"a bound":  {Store: x.store, Step: echo, Kinds: map[string]int{"mail": 0}},
	} {
		require.ErrorIs(t, s.Register(x.config()), machine.ErrBadValue, name)
	}
	require.ErrorIs(t, (&riverkahn.Server{Store: x.store, Step: echo, Kinds: map[string]int{"mail": 1}}).Register(nil), machine.ErrBadValue)
	res, err := kahn.Execute(t.Context(), mails(kahn.Node{Retry: kahn.Retry{MaxAttempts: 3}}), echo)
	require.ErrorContains(t, err, "no Performer performs the run")
	node, _ := res.Node("mail")
	require.Equal(t, 1, node.Attempts)
}

// TestRemoteJobCancelled: cancelling the job of a step fails the attempt.
func TestRemoteJobCancelled(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	s := newSlow()
	x.serve(t, s.step, nil)
	g := mails(kahn.Node{})
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	create(t, c, g, "letter")
	<-s.began
	list, err := c.River.JobList(t.Context(), river.NewJobListParams().Kinds("kahn_step"))
	require.NoError(t, err)
	_, err = c.River.JobCancel(t.Context(), list.Jobs[0].ID)
	require.NoError(t, err)
	x.reaches(t, "letter", kahn.RunFailed)
	_, err = kahn.ReadResult(t.Context(), g, x.store, "letter")
	require.ErrorContains(t, err, "the job of the step was cancelled")
}

// TestRemoteJobGone: if a job is deleted, or cancelled before it begins, its attempt fails, and the retry policy of the node applies. Other
// attempts are not affected: their jobs wait for a process or are running, or the run has not yet taken their reply.
func TestRemoteJobGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]string{
		"deleted":   "DELETE FROM %s WHERE kind = 'kahn_step'",
		"cancelled": "UPDATE %s SET state = 'cancelled', finalized_at = now() WHERE kind = 'kahn_step'",
		"discarded": "UPDATE %s SET state = 'discarded', finalized_at = now() WHERE kind = 'kahn_step'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTables(t)
			g := mails(kahn.Node{Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond}})
			c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
			create(t, c, g, "letter")
			for attempt := range 2 {
				require.Eventually(t, func() bool {
					list, err := c.River.JobList(t.Context(), river.NewJobListParams().Kinds("kahn_step").States(rivertype.JobStateAvailable))
					require.NoError(t, err)
					return len(list.Jobs) == 1
				}, 15*time.Second, 5*time.Millisecond, "attempt %d", attempt+1)
				_, err := x.pool.Exec(t.Context(), fmt.Sprintf(gone, pgx.Identifier{x.schema, "river_job"}.Sanitize()))
				require.NoError(t, err)
			}
			x.reaches(t, "letter", kahn.RunFailed)
			_, err := kahn.ReadResult(t.Context(), g, x.store, "letter")
			require.ErrorContains(t, err, "the job of the step is gone")
		})
	}
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		x := newTables(t)
		jobs := pgx.Identifier{x.schema, "river_job"}.Sanitize()
		g := mails(kahn.Node{})
		first := &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}}
		c := x.perform(t, first)
		for _, id := range []string{"waits", "replied", "gone"} {
			create(t, c, g, id)
			x.states(t, id, rivertype.JobStateCompleted)
		}
		require.NoError(t, first.Stop(t.Context(), c.River))
		var token string
		require.NoError(t, x.pool.QueryRow(t.Context(), "SELECT args->>'token' FROM "+jobs+" WHERE args->>'run' = 'replied' AND kind = 'kahn_step'").Scan(&token))
		q, err := kahn.PrepareSignal(token, kahn.Decision{Value: `{"value": "sent"}`, ID: token})
		require.NoError(t, err)
		_, err = x.store.Post(t.Context(), "replied", q) // posted without a job, so that the run does not take the reply for a while
		require.NoError(t, err)
		_, err = x.pool.Exec(t.Context(), "DELETE FROM "+jobs+" WHERE kind = 'kahn_step' AND args->>'run' IN ('replied', 'gone')")
		require.NoError(t, err)

		x.perform(t, &riverkahn.Performer{RecoverEvery: 50 * time.Millisecond, Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
		x.reaches(t, "gone", kahn.RunFailed)
		x.reaches(t, "replied", kahn.RunCompleted)
		require.Equal(t, []rivertype.JobState{rivertype.JobStateAvailable}, x.stepJobs(t))
		x.serve(t, echo, nil)
		x.reaches(t, "waits", kahn.RunCompleted)
	})
}

// TestRemoteEnd: an end node cannot wait, so it cannot be a remote step. Register refuses the workflow, or, if Register cannot know, the step
// fails. No job is inserted.
func TestRemoteEnd(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	remote := riverkahn.Remote{}
	wrapped := func(ctx context.Context, s *kahn.Step) (any, error) { // the function hides from Register that the step is remote
		out, err := remote.Step(ctx, s)
		return out, err
	}
	ends := func(do kahn.StepFunc) *kahn.Graph {
		return (&kahn.Graph{Name: "ends"}).Add(kahn.Node{ID: "a", Do: echo}, kahn.Node{ID: "last", Kind: kahn.KindEnd, Do: do})
	}
	for name, w := range map[string]riverkahn.Workflow{
		"its Do":        {Graph: ends(remote.Step), Step: echo},
		"by pointer":    {Graph: ends((&riverkahn.Remote{}).Step), Step: echo},
		"the workflow":  {Graph: ends(nil), Step: remote.Step},
		"in a subgraph": {Graph: (&kahn.Graph{Name: "outer"}).Add(kahn.Node{ID: "S", Sub: ends(remote.Step)}), Step: echo},
	} {
		err := (&riverkahn.Performer{Store: x.store, Workflows: []riverkahn.Workflow{w}}).Register(x.config())
		require.ErrorIs(t, err, machine.ErrBadValue, name)
		require.ErrorContains(t, err, "last", name)
		require.ErrorContains(t, err, "the end node cannot wait", name)
	}
	g := ends(wrapped)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: remote.Step}}})
	create(t, c, g, "r")
	x.reaches(t, "r", kahn.RunFailed)
	_, err := kahn.ReadResult(t.Context(), g, x.store, "r")
	require.ErrorContains(t, err, "the end node cannot wait")
	require.Empty(t, x.stepJobs(t))
}

// TestRemoteAnswersAgain: if storing the reply of a step fails, the Server stores the reply again, and does not call the step again.
func TestRemoteAnswersAgain(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := mails(kahn.Node{})
	in := func(name string) string { return pgx.Identifier{x.store.Schema(), name}.Sanitize() }
	for _, text := range []string{
		"CREATE SEQUENCE " + in("posts"),
		"CREATE FUNCTION " + in("refuse") + "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('" + strings.ReplaceAll(in("posts"), "'", "''") + "') < 3 THEN RAISE 'refused'; END IF; RETURN NEW; END $$",
		"CREATE TRIGGER refuse BEFORE INSERT ON " + in("requests") + " FOR EACH ROW EXECUTE FUNCTION " + in("refuse") + "()",
	} {
		_, err := x.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	var calls atomic.Int32
	x.serve(t, func(context.Context, *kahn.Step) (any, error) { return calls.Add(1), nil }, nil)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	create(t, c, g, "letter")
	x.reaches(t, "letter", kahn.RunCompleted)
	require.EqualValues(t, 1, calls.Load())
	require.Equal(t, []rivertype.JobState{rivertype.JobStateCompleted}, x.stepJobs(t))
}

// TestRemoteRefused: if a Remote has bad fields, its node fails without a retry.
func TestRemoteRefused(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]riverkahn.Remote{"LostAfter -1ns": {LostAfter: -1}, "LostAfter 30ns: is its unit missing?": {LostAfter: 30}, "Priority 5": {Priority: 5}, "Priority -1": {Priority: -1}} {
		g := (&kahn.Graph{Name: "odd"}).Add(kahn.Node{ID: "mail", Kind: "mail", Do: r.Step, Retry: kahn.Retry{MaxAttempts: 3}})
		res, err := kahn.Execute(t.Context(), g, nil)
		require.ErrorIs(t, err, kahn.ErrBadValue)
		require.ErrorContains(t, err, name)
		mail, _ := res.Node("mail")
		require.Equal(t, 1, mail.Attempts)
	}
}

// keyReads counts the statements that search the nodes of a run by their keys, and the heartbeats.
type keyReads struct{ searches, beats atomic.Int32 }

func (k *keyReads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "n.key") {
		k.searches.Add(1)
	}
	if strings.Contains(q.SQL, "SET attempted_at") {
		k.beats.Add(1)
	}
	return ctx
}

func (*keyReads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestRemoteReads: a process looks up the node of an attempt only once, however often it checks whether the node waits.
func TestRemoteReads(t *testing.T) {
	t.Parallel()
	x, reads := newTables(t), new(keyReads)
	traced := openTables(t, postgrestest.NewPool(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = reads }), x.schema)
	g := mails(kahn.Node{})
	traced.serve(t, func(ctx context.Context, _ *kahn.Step) (any, error) {
		for reads.beats.Load() < 5 && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		return nil, context.Cause(ctx)
	}, nil)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	create(t, c, g, "letter")
	x.reaches(t, "letter", kahn.RunCompleted)
	require.EqualValues(t, 1, reads.searches.Load())
}

// TestSetLabel: a run gets the labels and the usage that its steps report. In a step with its own job, SetLabel returns an error.
func TestSetLabel(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := mails(kahn.Node{})
	x.serve(t, func(_ context.Context, s *kahn.Step) (any, error) {
		err := s.SetLabel("mail", "sent")
		return errors.Is(err, errors.ErrUnsupported), nil
	}, nil)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		s.Tokens(30, 4)
		refused, _ := s.Upstream("mail")
		return nil, s.SetLabel("refused", fmt.Sprint(refused))
	}}}})
	create(t, c, g, "letter")
	x.reaches(t, "letter", kahn.RunCompleted)
	page, err := x.store.List(t.Context(), store.Query{Filter: store.Filter{Labels: map[string]string{"refused": "true"}}})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	require.Equal(t, map[string]float64{"input_tokens": 30, "output_tokens": 4}, page.Runs[0].Usage)
	require.NotContains(t, page.Runs[0].Labels, "mail")
}
