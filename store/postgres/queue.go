package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/store"
)

// dueAt and unended are the expression and the condition of the index runs_due. PostgreSQL uses the index only for queries that repeat them.
const (
	dueAt = "greatest(CASE r.status WHEN 'running' THEN r.created WHEN 'pending' THEN coalesce(" + wakesAt + ", r.created) ELSE coalesce(" + wakesAt + ", 'infinity') END, " +
		"CASE r.owner WHEN '' THEN r.created ELSE r.expires END)"
	unended = "r.status IN ('pending', 'running', 'suspended')"
)

// askedAt is when a run is due that has ended and for which a redrive waits, and asked the condition for that: the index runs_waiting has the runs with
// requests that wait.
const (
	askedAt = "greatest(" + wakesAt + ", CASE r.owner WHEN '' THEN r.created ELSE r.expires END)"
	asked   = "r.posted > r.taken AND NOT " + unended
)

// dueText selects runs of some queues by the time at which they are due, the earliest first; that time may be in the future.
func dueText() string {
	queues, _ := unnest("q", 1, "workflow text, plan text")
	return `SELECT d.*, extract(epoch FROM d.due - $NOW)::float8 FROM (
	SELECT d.* FROM ` + queues + ` CROSS JOIN LATERAL (
		SELECT ` + listedColumns + `, ` + dueAt + ` AS due FROM $S.runs r
		WHERE r.workflow = q.workflow AND r.plan = q.plan AND ` + unended + ` AND ` + dueAt + ` < 'infinity' AND r.id <> ALL ($3)
		ORDER BY ` + dueAt + `, r.id LIMIT $4
	) d
	UNION ALL (
		SELECT ` + listedColumns + `, ` + askedAt + ` AS due FROM $S.runs r
		WHERE ` + asked + ` AND r.id <> ALL ($3) AND (r.workflow, r.plan) IN (SELECT q.workflow, q.plan FROM ` + queues + `)
		ORDER BY due, r.id LIMIT $4
	)
) d ORDER BY d.due, d.id LIMIT $4`
}

// columnsOf are the columns of the queues that may have runs in the database.
func columnsOf(queues []store.Queue) (workflows, plans []string) {
	for _, q := range queues {
		if checkSpec(&store.Spec{Workflow: q.Workflow, Plan: q.Plan}) == nil {
			workflows, plans = append(workflows, q.Workflow), append(plans, q.Plan)
		}
	}
	return workflows, plans
}

func dueArgs(q *store.DueQuery) []any {
	workflows, plans := columnsOf(q.Queues)
	except := []string{}
	for _, id := range q.Except {
		if storable(id) {
			except = append(except, id)
		}
	}
	return []any{workflows, plans, except, q.Limit + 1}
}

// Due implements [store.QueueStore].
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err = q.Check(); err == nil {
		err = s.check(ctx)
	}
	if err != nil {
		return page, err
	}
	full := false
	page.Next = store.Never
	err = s.do(ctx, s.sql(dueText()), dueArgs(&q), func(rows pgx.Rows) error {
		var h head
		var due pgtype.Timestamptz
		var wait float64
		if err := scan(rows, h.targets(), []any{&due, &wait}); err != nil || full {
			return err
		}
		r, err := h.run()
		if err == nil {
			r.Nodes = nil
			full = !page.Add(r, seconds(wait), q.Limit)
		}
		return err
	})
	if err != nil {
		return store.DuePage{}, fmt.Errorf("list runs that are due: %w", err)
	}
	return page, nil
}

// seconds is a number of seconds as a duration of at least 0, and of no more than a Duration can hold.
func seconds(s float64) time.Duration {
	const most = float64(1 << 62)
	return time.Duration(min(max(s*float64(time.Second), 0), most))
}

// announceText is the statement of Announce. Without a queue it ends the announcements of the process.
func announceText() string {
	queues, _ := unnest("q", 1, "workflow text, plan text")
	return `WITH other AS (
	SELECT 1 FROM $S.served WHERE owner = $4 AND owner <> '' AND process <> $3 AND until > $NOW + $5 * interval '1 microsecond' / 2 AND cardinality($1::text[]) > 0
		UNION ALL SELECT 1 FROM $S.version WHERE version > $6 LIMIT 1
),
put AS (
	INSERT INTO $S.served AS s (workflow, plan, process, owner, until)
	SELECT q.workflow, q.plan, $3, $4, $NOW + $5 * interval '1 microsecond' FROM ` + queues + ` WHERE NOT EXISTS (SELECT FROM other)
	ON CONFLICT (workflow, plan, process) DO UPDATE SET owner = excluded.owner, until = excluded.until
),
over AS (
	UPDATE $S.served s SET until = $NOW WHERE s.process = $3 AND s.until > $NOW AND NOT EXISTS (SELECT FROM other)
		AND NOT EXISTS (SELECT FROM ` + queues + ` WHERE (q.workflow, q.plan) = (s.workflow, s.plan))
),
removed AS (
	DELETE FROM $S.served s WHERE s.until <= $NOW AND s.process <> $3
		AND EXISTS (SELECT FROM $S.served o WHERE o.workflow = s.workflow AND o.plan = s.plan AND o.until > s.until)
)
SELECT count(*), (SELECT version FROM $S.version) FROM other`
}

// NotifiesDue implements [store.DueNotifier]: it reports whether the store listens.
func (s *Store) NotifiesDue() bool { return s.stopListening != nil }

// Announce implements [store.QueueStore].
func (s *Store) Announce(ctx context.Context, a store.Announcement) error {
	err := errors.Join(a.Check(), s.check(ctx))
	if err == nil {
		err = checkTexts(a.Process, a.Owner)
	}
	if err != nil {
		return err
	}
	workflows, plans := columnsOf(a.Queues)
	args := []any{append([]string{}, workflows...), append([]string{}, plans...), a.Process, a.Owner, microseconds(a.TTL), len(migrations)}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var others, version int
	if a.Owner == "" { // processes without an owner do not wait for one another
		err = s.pool.QueryRow(ctx, s.sql(announceText()), args...).Scan(&others, &version)
		return errors.Join(describe(err), newerSchema(version))
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Of two processes with one owner that announce themselves at once, one finds the other.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", "kahn "+s.schema+" "+a.Owner); err != nil {
			return err
		}
		return tx.QueryRow(ctx, s.sql(announceText()), args...).Scan(&others, &version)
	})
	if err = errors.Join(describe(err), newerSchema(version)); err == nil && others > 0 {
		err = store.OwnerInUse(a.Owner)
	}
	if err != nil {
		return fmt.Errorf("announce %q: %w", a.Process, err)
	}
	return nil
}

// queuesText is the statement of Queues, and with $1 of Unclaimable. It finds the queues one after the other by the index runs_due, whatever their lengths are, and counts by
// entries of that index: so what a queue refers to is in the index, but for runs without a name and a plan, of which those that have not begun do not count.
func queuesText() string {
	const in = "FROM $S.runs r WHERE r.workflow = q.workflow AND r.plan = q.plan AND " + unended
	const begun = "FROM $S.runs r WHERE r.workflow = '' AND r.plan = '' AND r.sequence > 0 AND " + unended
	return `WITH RECURSIVE q(workflow, plan) AS (
	(SELECT r.workflow, r.plan FROM $S.runs r WHERE ` + unended + ` ORDER BY r.workflow, r.plan LIMIT 1)
	UNION ALL SELECT n.* FROM q CROSS JOIN LATERAL (
		SELECT r.workflow, r.plan FROM $S.runs r WHERE (r.workflow, r.plan) > (q.workflow, q.plan) AND ` + unended + ` ORDER BY r.workflow, r.plan LIMIT 1
	) n
),
s AS MATERIALIZED (SELECT workflow, plan, max(until) AS until FROM $S.served GROUP BY workflow, plan),
states AS (
	SELECT q.workflow, q.plan, CASE WHEN q.workflow = '' AND q.plan = '' THEN (SELECT count(*) ` + begun + `) ELSE (SELECT count(*) ` + in + `) END AS runs,
		CASE WHEN q.workflow = '' AND q.plan = '' THEN (SELECT min(` + dueAt + `) ` + begun + `) ELSE (SELECT ` + dueAt + ` ` + in + ` ORDER BY ` + dueAt + ` LIMIT 1) END AS due
	FROM q LEFT JOIN s USING (workflow, plan) WHERE NOT $1 OR coalesce(s.until <= $NOW, true)
	UNION ALL SELECT r.workflow, r.plan, 1, ` + askedAt + ` FROM $S.runs r WHERE ` + asked + `
)
SELECT q.*, s.until, coalesce(s.until > $NOW, false) FROM (
	SELECT workflow, plan, sum(runs)::bigint AS runs, nullif(min(due), 'infinity') FROM states GROUP BY workflow, plan
) q LEFT JOIN s USING (workflow, plan) WHERE q.runs > 0 AND (NOT $1 OR coalesce(s.until <= $NOW, true)) ORDER BY q.workflow, q.plan`
}

// Queues implements [store.QueueStore]. Its time grows with the runs that have not ended, by entries of an index.
func (s *Store) Queues(ctx context.Context) ([]store.QueueState, error) { return s.queues(ctx, false) }

// Unclaimable implements [store.UnclaimableStore]. Its time grows with the queues, and with the runs in those that no live process performs.
func (s *Store) Unclaimable(ctx context.Context) ([]store.QueueState, error) {
	return s.queues(ctx, true)
}

func (s *Store) queues(ctx context.Context, dead bool) (list []store.QueueState, err error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	err = s.do(ctx, s.sql(queuesText()), []any{dead}, func(rows pgx.Rows) error {
		var q store.QueueState
		var due, served pgtype.Timestamptz
		err := rows.Scan(&q.Workflow, &q.Plan, &q.Runs, &due, &served, &q.Live)
		q.Due, q.Served = timeOf(due), timeOf(served)
		list = append(list, q)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return list, nil
}
