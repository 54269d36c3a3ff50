package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// A commit begins a wait if a node of its run begins to await another run. A commit that begins or withdraws a wait, or that ends an awaited run,
// "settles" awaits: it stores, removes and answers them. It does this in a transaction of its own. Each statement of the transaction sees what other
// transactions committed before the statement began. If two such commits are concurrent, at least one of them reads what the other has written,
// because of these rules:
//
//   - A commit that begins a wait first locks the row of its own run. Then it locks the row of the awaited run, and marks this row as
//     awaited. The statement for a batch of commits does not end a marked run, see commitText. Only executeParts ends a marked run;
//     it answers the awaits in later statements of the transaction.
//   - Commits that begin waits run one after the other, since each first takes an advisory lock. So the commit that closes a cycle reads all
//     other waits of the cycle.
//   - The only lock for which a commit waits is the advisory lock, which the commit takes before it locks any row. If another transaction has
//     locked a row that the commit must change, the store rolls the commit back, and tries again after a pause.

var _ store.Awaiter = (*Store)(nil)

// lockAwaits takes the advisory lock if the commit begins a wait. While another commit that begins a wait holds the lock, lockAwaits waits.
func (p *parts) lockAwaits(list []store.Await) {
	if slices.ContainsFunc(list, func(a store.Await) bool { return a.Run != "" }) {
		p.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", channel(p.s.schema))
	}
}

// settleAwaits stores, removes and answers awaits for a commit. Before the call, the transaction has written the row of the commit's run. It returns
// the runs for which it has posted requests. The error is errLocked if another transaction has locked the row of a run that settleAwaits must
// change.
func (s *Store) settleAwaits(tx pgx.Tx, m *commit) (told []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	var posts postedAnswers
	if err = s.await(ctx, tx, m, &posts); err == nil && m.c.Status.Terminal() {
		err = s.endAwaits(ctx, tx, m.lease.Run, m.c.Status, &posts)
	}
	if err != nil {
		return nil, err
	}
	return posts.write(ctx, s, tx)
}

// reachText finds the runs that a run awaits, directly or through others. Each row has the ids of a run that has not ended and of a run that it
// awaits.
const reachText = `WITH RECURSIVE reach(id) AS (
	SELECT $1::text COLLATE "C" UNION SELECT a.awaited FROM reach JOIN $S.runs r USING (id) JOIN $S.awaits a USING (run) WHERE r.ended IS NULL
) SELECT r.id, a.awaited FROM reach JOIN $S.runs r USING (id) JOIN $S.awaits a USING (run) WHERE r.ended IS NULL`

// The method `await` stores and removes the awaits of a commit. It adds the answers that are known at once to the parameter "posts".
func (s *Store) await(ctx context.Context, tx pgx.Tx, m *commit, posts *postedAnswers) error {
	var withdrawn []string
	var begun []store.Await
	for _, a := range m.c.Awaits {
		if withdrawn = append(withdrawn, a.Node); a.Run != "" && !m.c.Status.Terminal() {
			begun = append(begun, a)
		}
	}
	nothing := func(pgx.Rows) error { return nil }
	if err := rowsOf(ctx, tx, s.sql("DELETE FROM $S.awaits WHERE run = $1 AND node = ANY ($2)"), []any{m.run.number, withdrawn}, nothing); err != nil {
		return err
	}
	for _, a := range begun {
		e, err := s.judgeAwait(ctx, tx, m.lease.Run, a.Run)
		if err == nil && e == nil {
			err = rowsOf(ctx, tx, s.sql("INSERT INTO $S.awaits VALUES ($1, $2, $3) ON CONFLICT (run, node) DO UPDATE SET awaited = excluded.awaited"),
				[]any{m.run.number, a.Node, a.Run}, nothing)
		} else if err == nil {
			err = posts.add(m.run.number, m.lease.Run, a.Node, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeAwait returns the answer to a new await if the answer is known at once. Otherwise it marks the row of the awaited run, and returns nil. The
// error is errLocked if another transaction has locked this row.
func (s *Store) judgeAwait(ctx context.Context, tx pgx.Tx, id, awaited string) (*store.Ended, error) {
	e, marked, known := &store.Ended{Run: awaited}, false, false
	if storable(awaited) {
		err := rowsOf(ctx, tx, s.sql(`UPDATE $S.runs r SET awaited = true FROM (SELECT run FROM $S.runs WHERE id = $1 AND ended IS NULL FOR NO KEY UPDATE SKIP LOCKED) l
WHERE r.run = l.run RETURNING r.run`), []any{awaited}, func(pgx.Rows) error { marked = true; return nil })
		if err != nil {
			return nil, err
		}
		err = rowsOf(ctx, tx, s.sql("SELECT status FROM $S.runs WHERE id = $1"), []any{awaited}, func(rows pgx.Rows) error {
			var status string
			known = true
			return errors.Join(rows.Scan(&status), e.Status.UnmarshalText([]byte(status)))
		})
		if err != nil {
			return nil, err
		}
	}
	switch e.Unknown = !known; {
	case e.Unknown || e.Status.Terminal():
		return e, nil
	case !marked:
		return nil, errLocked
	}
	e.Status = machine.RunPending
	awaits := map[string][]string{}
	err := rowsOf(ctx, tx, s.sql(reachText), []any{awaited}, func(rows pgx.Rows) error {
		var from, to string
		err := rows.Scan(&from, &to)
		awaits[from] = append(awaits[from], to)
		return err
	})
	if err == nil {
		e.Cycle, err = store.FindCycle(id, awaited, func(run string) ([]string, error) { return awaits[run], nil })
	}
	if err != nil || e.Cycle == nil {
		return nil, err
	}
	return e, nil
}

// endAwaits removes the awaits of all nodes that await an ended run. It adds an answer to the parameter "posts" for each of these nodes whose own
// run has not ended. The error is errLocked if another transaction has locked the row of a run that gets an answer.
func (s *Store) endAwaits(ctx context.Context, tx pgx.Tx, id string, status machine.RunStatus, posts *postedAnswers) error {
	const awaiting = "$S.awaits a JOIN $S.runs r USING (run) WHERE a.awaited = $1 AND r.ended IS NULL"
	open, locked := 0, 0
	err := rowsOf(ctx, tx, s.sql("SELECT count(*) FROM "+awaiting), []any{id}, func(rows pgx.Rows) error { return rows.Scan(&open) })
	if err == nil {
		err = rowsOf(ctx, tx, s.sql("SELECT r.run, r.id, a.node FROM "+awaiting+" ORDER BY r.run, a.node FOR NO KEY UPDATE OF r SKIP LOCKED"), []any{id}, func(rows pgx.Rows) error {
			var run int64
			var by, node string
			if err := rows.Scan(&run, &by, &node); err != nil {
				return err
			}
			locked++
			return posts.add(run, by, node, &store.Ended{Run: id, Status: status})
		})
	}
	if err == nil && locked < open {
		return errLocked
	}
	if err != nil {
		return err
	}
	return rowsOf(ctx, tx, s.sql("DELETE FROM $S.awaits WHERE awaited = $1"), []any{id}, func(pgx.Rows) error { return nil })
}

// postedAnswers are answers for runs whose rows the transaction has locked.
type postedAnswers struct {
	runs, counts []int64 // each run is in "runs" once, and "counts" has the number of its answers
	ids          []string
	of           map[int64][]answered
}

// The type `answered` is an answer for a node.
type answered struct {
	node string
	end  *store.Ended
}

func (p *postedAnswers) add(run int64, id, node string, e *store.Ended) error {
	if p.of == nil {
		p.of = map[int64][]answered{}
	}
	if p.of[run] == nil {
		p.runs, p.ids = append(p.runs, run), append(p.ids, id)
	}
	p.of[run] = append(p.of[run], answered{node, e})
	return nil
}

// The method `write` posts the answers, and returns the ids of the runs that get answers.
func (p *postedAnswers) write(ctx context.Context, s *Store, tx pgx.Tx) (told []string, err error) {
	if len(p.runs) == 0 {
		return nil, nil
	}
	for _, run := range p.runs {
		p.counts = append(p.counts, int64(len(p.of[run])))
	}
	var runs, numbers []int64
	var ids, contents [][]byte
	err = rowsOf(ctx, tx, s.sql(`UPDATE $S.runs r SET posted = r.posted + p.answers, since = CASE WHEN r.posted > r.taken THEN r.since ELSE $NOW END
FROM unnest($1::bigint[], $2::bigint[]) AS p(run, answers) WHERE r.run = p.run RETURNING r.run, r.posted - p.answers`), []any{p.runs, p.counts}, func(rows pgx.Rows) error {
		var run, number int64
		if err := rows.Scan(&run, &number); err != nil {
			return err
		}
		for _, a := range p.of[run] {
			number++
			q, err := a.end.Request(a.node, uint64(number))
			if err != nil {
				return err
			}
			content, err := json.Marshal(q)
			if err != nil {
				return err
			}
			runs, numbers, ids, contents = append(runs, run), append(numbers, number), append(ids, []byte(q.ID)), append(contents, content)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	wakes, nothing := false, func(pgx.Rows) error { return nil }
	err = rowsOf(ctx, tx, s.sql(`INSERT INTO $S.requests (run, number, id, posted, request)
SELECT q.run, q.number, q.id, $NOW, q.request FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]) AS q(run, number, id, request)`), []any{runs, numbers, ids, contents}, nothing)
	if err == nil {
		err = rowsOf(ctx, tx, s.sql("SELECT pg_notify('$CHANNEL', id)::text FROM unnest($1::text[]) AS r(id)"), []any{p.ids}, nothing)
	}
	if err == nil { // if the functions of package riverkahn are in the schema, they wake the jobs of the runs
		err = rowsOf(ctx, tx, s.sql("SELECT to_regprocedure($Q || '.wake_run(text)') IS NOT NULL"), nil, func(rows pgx.Rows) error { return rows.Scan(&wakes) })
	}
	if err == nil && wakes {
		err = rowsOf(ctx, tx, s.sql("SELECT $S.wake_run(id)::text FROM unnest($1::text[]) AS r(id)"), []any{p.ids}, nothing)
	}
	return p.ids, err
}

// LoadAwaits implements [store.Awaiter].
func (s *Store) LoadAwaits(ctx context.Context, run string) (list []store.Await, err error) {
	if err := s.check(ctx); err != nil {
		return nil, about("load awaits of", run, err)
	}
	known := false
	if storable(run) {
		err = s.do(ctx, s.sql("SELECT a.node, a.awaited FROM $S.runs r LEFT JOIN $S.awaits a USING (run) WHERE r.id = $1 ORDER BY a.node"), []any{run}, func(rows pgx.Rows) error {
			var node, awaited *string
			err := rows.Scan(&node, &awaited)
			if known = true; node != nil && awaited != nil {
				list = append(list, store.Await{Node: *node, Run: *awaited})
			}
			return err
		})
	}
	if err == nil && !known {
		err = store.ErrUnknownRun
	}
	return list, about("load awaits of", run, err)
}

// insertEnded inserts a run that has ended, and answers the nodes that await its id. Nodes may await the id if Acquire has made a run with this id,
// and this run has no commit.
func (s *Store) insertEnded(ctx context.Context, r *store.Run) error {
	for pause := minLockPause; ; pause = min(2*pause, maxLockPause) {
		err := s.tryInsertEnded(ctx, r)
		if !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

func (s *Store) tryInsertEnded(ctx context.Context, r *store.Run) error {
	tx, err := s.pool.BeginTx(ctx, s.begins())
	if err != nil {
		return describe(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		_ = tx.Rollback(ctx) // after a commit Rollback does nothing; an error means that the connection is closed
	}()
	if _, _, err := s.place(ctx, tx, &store.NewRun{ID: r.ID}, r); err != nil {
		return err
	}
	var posts postedAnswers
	if err := s.endAwaits(ctx, tx, r.ID, r.Status, &posts); err != nil {
		return err
	}
	told, err := posts.write(ctx, s, tx)
	if err == nil {
		err = describe(tx.Commit(ctx))
	}
	if err == nil {
		for _, run := range told {
			s.requests.Tell(run)
		}
	}
	return err
}
