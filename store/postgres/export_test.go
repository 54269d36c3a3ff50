package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/store"
)

// These functions return the statements whose plans TestPlans checks.

func (s *Store) ListQuery(q *store.Query) (text string, args []any, err error) {
	text, args, err = listQuery(q, store.DefaultPage)
	return s.sql(text), args, err
}

func (s *Store) CountQuery(f *store.Filter) (text string, args []any) {
	c := conditionOf(f)
	return s.sql(countQuery(&c)), c.args
}

func (s *Store) PruneQuery(q *store.PruneQuery) (text string, args []any) {
	return s.sql(pruneText()), []any{instant(q.EndedBefore), names(q.Statuses), pruneBatch, q.Workflow}
}

func (s *Store) NodesQuery(run int64) (text string, args []any) {
	return s.sql(nodesPage), []any{run, 0, 100, true}
}

func (s *Store) DueQuery(q *store.DueQuery) (text string, args []any) {
	return s.sql(dueText()), dueArgs(q)
}

func (s *Store) LoadQuery(id string) (text string, args []any) { return s.texts.load, []any{id} }

func (s *Store) EventsQuery(id string) (text string, args []any) {
	return s.texts.events, []any{id, 3, store.DefaultPage}
}

func (s *Store) AcquireQuery(id string) (text string, args []any) {
	return s.texts.acquire, []any{[]string{id}, []string{"owner"}, []int64{1}, []*string{nil}}
}

func (s *Store) RenewQuery(id string) (text string, args []any) {
	return s.texts.renew, []any{[]string{id}, []string{"owner"}, []int64{1}, []int64{1}}
}

// CommitQuery is a commit of two runs.
func (s *Store) CommitQuery(runs [2]int64) (text string, args []any) {
	var rows rowsOfRuns
	var nodes nodeRows
	for _, number := range runs {
		rows.add(&commit{run: &run{number: number}, lease: store.Lease{Owner: "owner", Epoch: 1}, c: store.Commit{Sequence: 2}})
		nodes.add(number, 0, "n0", new(store.State), new(store.Columns))
	}
	args = []any{rows.runs, rows.owners, rows.epochs, rows.sequences, rows.statuses, rows.wakes, rows.records}
	return s.texts.commit[withNodes], append(args, nodes.args()...)
}

// Look calls look as the goroutine of the Poller does, and returns the runs that look has found.
func (l *Lookout) Look(ctx context.Context, asked notify.Question) (runs []string, err error) {
	found, _, err := l.look(ctx, asked)
	for _, s := range found {
		runs = append(runs, s.Name)
	}
	return runs, err
}

type Lookout struct{ lookout }

func NewLookout(s *Store) *Lookout { return &Lookout{lookout{store: s}} }

// Underway returns how many calls are waiting to be tried again because another transaction had locked their run.
func (s *Store) Underway() int {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	s.renewals.mu.Lock()
	defer s.renewals.mu.Unlock()
	return len(s.commits.away) + len(s.renewals.away)
}

// OpenAt opens a store that reads the time from an SQL expression.
func OpenAt(ctx context.Context, pool *pgxpool.Pool, o Options, now string) (*Store, error) {
	return open(ctx, pool, o, now)
}

// Channel returns the channel on which the server notifies of requests.
var Channel = channel
