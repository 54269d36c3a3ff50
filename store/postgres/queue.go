package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/store"
)

// dueAt and unended are the expression and the condition of the index runs_due. PostgreSQL uses the index only for queries that contain the same
// expression and condition.
const (
	dueAt = "greatest(CASE r.status WHEN 'running' THEN r.created WHEN 'pending' THEN coalesce(" + wakesAt + ", r.created) ELSE coalesce(" + wakesAt + ", 'infinity') END, " +
		"CASE r.owner WHEN '' THEN r.created ELSE r.expires END)"
	unended = "r.status IN ('pending', 'running', 'suspended')"
)

// The constant `asked` is the condition that a run has ended and has a waiting redrive. askedAt is the expression for the time at which this run is
// due. The index runs_waiting contains the runs with waiting requests.
const (
	askedAt = "greatest(" + wakesAt + ", CASE r.owner WHEN '' THEN r.created ELSE r.expires END)"
	asked   = "r.posted > r.taken AND NOT " + unended
)

// partsOf returns a table of the parts of the queue q. A part consists of the unended runs with one key and one priority, in the order of runs_due.
// The column "due" is the time at which the first run of the part is due. The query jumps in the index from one part to the next, so its time does
// not grow with the number of runs in a part.
func partsOf() string {
	const of = "FROM $S.runs r WHERE r.workflow = q.workflow AND r.plan = q.plan AND " + unended
	return `(
	WITH RECURSIVE p(key, priority) AS (
		(SELECT r.run_key, r.priority ` + of + ` ORDER BY r.run_key, r.priority DESC LIMIT 1)
		UNION ALL SELECT n.* FROM p CROSS JOIN LATERAL (
			(SELECT r.run_key, r.priority ` + of + ` AND r.run_key = p.key AND r.priority < p.priority ORDER BY r.priority DESC LIMIT 1)
			UNION ALL (SELECT r.run_key, r.priority ` + of + ` AND r.run_key > p.key ORDER BY r.run_key, r.priority DESC LIMIT 1)
			LIMIT 1
		) n
	)
	SELECT p.key, p.priority, (SELECT ` + dueAt + ` ` + of + ` AND r.run_key = p.key AND r.priority = p.priority ORDER BY ` + dueAt + `, r.id LIMIT 1) AS due FROM p
)`
}

// plainText returns a statement that selects runs of some queues, in the order in which they are due. If an unended run of the queues has a key or a
// priority, the statement returns only one row, without an id. Then the caller must execute the slower statement of dueText.
func plainText() string {
	queues, _ := unnest("q", 1, "workflow text, plan text")
	const of = "FROM $S.runs r WHERE r.workflow = q.workflow AND r.plan = q.plan AND " + unended
	const columns = listedColumns + ", "
	return `WITH n AS MATERIALIZED (SELECT $NOW AS now, EXISTS (SELECT FROM ` + queues + ` WHERE (SELECT r.priority > 0 ` + of + ` ORDER BY r.run_key, r.priority DESC LIMIT 1)
	OR (SELECT r.run_key <> '' OR r.priority < 0 ` + of + ` ORDER BY r.run_key DESC, r.priority LIMIT 1)) AS parts)
SELECT d.*, extract(epoch FROM d.due - n.now)::float8 FROM n CROSS JOIN LATERAL (
	(
		SELECT d.* FROM ` + queues + ` CROSS JOIN LATERAL (
			SELECT ` + columns + dueAt + ` AS due ` + of + ` AND r.run_key = '' AND r.priority = 0 AND ` + dueAt + ` < 'infinity' AND r.id <> ALL ($3::text[])
			ORDER BY ` + dueAt + `, r.id LIMIT $4::integer + 1
		) d WHERE NOT n.parts
	)
	UNION ALL (
		SELECT ` + columns + askedAt + ` AS due FROM $S.runs r
		WHERE NOT n.parts AND ` + asked + ` AND r.id <> ALL ($3::text[]) AND (r.workflow, r.plan) IN (SELECT q.workflow, q.plan FROM ` + queues + `)
		ORDER BY due, r.id LIMIT $4::integer + 1
	)
	UNION ALL SELECT '', 'pending', NULL, NULL, NULL, '', '', NULL, '', 0, 0, 0, NULL, NULL, NULL, NULL, n.now WHERE n.parts
) d ORDER BY d.due, d.id LIMIT $4::integer + 1`
}

// dueText returns a statement that selects due runs of some queues, and the runs that become due next. If the page may have n runs and the query
// leaves out m runs, the statement reads the due parts of at most n+m+1 keys. It chooses the keys without a turn first, and then the keys whose
// latest turns are the oldest. The page may have a limited number of runs of each key; from each due part the statement reads at most one run more
// than this number. Each row has the time until its run is due, and the number of the latest turn of the run's key. Each row also has four results
// for the page: how many runs of a key it may have; whether there are more keys; whether any unended run of the queues has a key; and whether any
// unended run has a key or a priority.
func dueText() string {
	queues, _ := unnest("q", 1, "workflow text, plan text")
	const columns = listedColumns + ", "
	runs := func(most string) string {
		return `CROSS JOIN LATERAL (
		SELECT ` + columns + dueAt + ` AS due FROM $S.runs r
		WHERE r.workflow = p.workflow AND r.plan = p.plan AND r.run_key = p.key AND r.priority = p.priority AND ` + unended + ` AND ` + dueAt + ` < 'infinity' AND r.id <> ALL ($3::text[])
		ORDER BY ` + dueAt + `, r.id LIMIT ` + most + `
	) r`
	}
	const turn = "(SELECT t.turn FROM $S.runs t WHERE t.run_key = k.key AND t.turn IS NOT NULL ORDER BY t.turn DESC LIMIT 1)"
	number := func(turn string) string { return "coalesce(extract(epoch FROM " + turn + ") * 1000000, 0)::bigint" }
	return `WITH n AS MATERIALIZED (SELECT $NOW AS now),
p AS MATERIALIZED (SELECT q.workflow, q.plan, p.*, p.due <= (SELECT now FROM n) AS ready FROM ` + queues + ` CROSS JOIN LATERAL ` + partsOf() + ` p),
k AS MATERIALIZED (
	SELECT k.key, k.turn, count(*) OVER () > $4::integer + 1 + cardinality($3::text[]) AS more FROM (
		SELECT k.*, ` + turn + ` AS turn FROM (SELECT DISTINCT ON (key) key, priority, due FROM p WHERE ready AND key <> ALL ($5::text[]) ORDER BY key, priority DESC, due) k
	) k ORDER BY k.turn NULLS FIRST, k.priority DESC, k.due, k.key LIMIT $4::integer + 1 + cardinality($3::text[])
),
e AS MATERIALIZED (SELECT $4::integer / greatest(count(*), 1) + 1 AS each, coalesce(bool_or(more), false) AS more FROM k)
SELECT d.*, extract(epoch FROM d.due - n.now)::float8, e.each, e.more,
	(SELECT coalesce(bool_or(key <> ''), false) FROM p), (SELECT coalesce(bool_or(key <> '' OR priority <> 0), false) FROM p) FROM (
	SELECT r.*, ` + number("k.turn") + ` FROM k JOIN p ON p.key = k.key AND p.ready ` + runs("(SELECT each + 1 FROM e)") + `
	UNION ALL
	SELECT r.*, 0 FROM (SELECT * FROM p WHERE NOT ready AND due < 'infinity' AND key <> ALL ($5::text[]) ORDER BY due LIMIT 1 + cardinality($3::text[])) p ` + runs("1") + `
	UNION ALL (
		SELECT r.*, ` + number(strings.ReplaceAll(turn, "k.key", "r.run_key")) + ` FROM (SELECT ` + columns + askedAt + ` AS due FROM $S.runs r
			WHERE ` + asked + ` AND r.id <> ALL ($3::text[]) AND r.run_key <> ALL ($5::text[]) AND (r.workflow, r.plan) IN (SELECT q.workflow, q.plan FROM ` + queues + `)
			ORDER BY due, r.id LIMIT $4::integer + 1) r
	)
) d CROSS JOIN n CROSS JOIN e`
}

// columnsOf returns the workflows and plans of the queues that can have runs in the database.
func columnsOf(queues []store.Queue) (workflows, plans []string) {
	for _, q := range queues {
		if checkSpec(&store.Spec{Workflow: q.Workflow, Plan: q.Plan}) == nil {
			workflows, plans = append(workflows, q.Workflow), append(plans, q.Plan)
		}
	}
	return workflows, plans
}

// storables returns the texts that the database can store.
func storables(list []string) []string {
	some := []string{}
	for _, text := range list {
		if storable(text) {
			some = append(some, text)
		}
	}
	return some
}

func dueArgs(q *store.DueQuery) []any {
	workflows, plans := columnsOf(q.Queues)
	return []any{workflows, plans, storables(q.Except), q.Limit, storables(q.Full)}
}

// Due implements [store.QueueStore].
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err = q.Check(); err == nil {
		err = s.check(ctx)
	}
	if err != nil {
		return page, err
	}
	var list []store.DueRun
	args := dueArgs(&q)
	add := func(rows pgx.Rows, turn, more []any) error {
		var h head
		var due pgtype.Timestamptz
		var wait float64
		if err := scan(rows, h.targets(), []any{&due}, turn, []any{&wait}, more); err != nil {
			return err
		}
		r, err := h.run()
		if err == nil {
			r.Nodes = nil
			list = append(list, store.DueRun{Run: *r, At: due.Time.UnixMicro(), Wait: seconds(wait)})
		}
		return err
	}
	parts := len(q.Full) > 0 || s.parts.Load()
	if !parts {
		err = s.do(ctx, s.sql(plainText()), args[:4], func(rows pgx.Rows) error { return add(rows, nil, nil) })
		if parts = err == nil && len(list) > 0 && list[0].Run.ID == ""; parts {
			list = nil
			s.parts.Store(true)
		}
	}
	var each int
	var more bool
	if parts && err == nil {
		still := false
		err = s.do(ctx, s.sql(dueText()), args, func(rows pgx.Rows) error {
			var turn int64
			err := add(rows, []any{&turn}, []any{&each, &more, &page.Keyed, &still})
			if err == nil {
				list[len(list)-1].Turn = turn
			}
			return err
		})
		if err == nil && len(list) > 0 && !still {
			s.parts.Store(false)
		}
	}
	if err != nil {
		return store.DuePage{}, fmt.Errorf("list runs that are due: %w", err)
	}
	if page.Fill(list, q.Limit, each); more {
		page.Next = 0
	}
	return page, nil
}

// The function `seconds` converts a number of seconds to a Duration. It returns 0 for a negative number, and at most 1<<62 nanoseconds, about 146
// years.
func seconds(s float64) time.Duration {
	const most = float64(1 << 62)
	return time.Duration(min(max(s*float64(time.Second), 0), most))
}

// keyLeases counts the leased and unended runs of the key r.run_key.
const keyLeases = "SELECT count(*) FROM $S.runs o WHERE o.run_key = r.run_key AND o.run_key <> '' AND o.owner <> '' AND o.ended IS NULL AND o.expires > $NOW"

// LeasedKeys implements [store.TurnStore].
func (s *Store) LeasedKeys(ctx context.Context) (map[string]int, error) {
	keys, err := map[string]int{}, s.check(ctx)
	if err == nil {
		const text = "SELECT o.run_key, count(*) FROM $S.runs o WHERE o.run_key <> '' AND o.owner <> '' AND o.ended IS NULL AND o.expires > $NOW GROUP BY o.run_key"
		err = s.do(ctx, s.sql(text), nil, func(rows pgx.Rows) error {
			var key string
			var runs int
			err := rows.Scan(&key, &runs)
			keys[key] = runs
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the keys of leased runs: %w", err)
	}
	return keys, nil
}

// announceText is the statement of Announce. It ends each announcement of the process for a queue that is not in the arguments.
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

// NotifiesDue implements [store.DueNotifier]. It reports whether the store listens for notifications.
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
	if a.Owner == "" { // two processes without an owner do not exclude one another, so no lock is necessary
		err = s.pool.QueryRow(ctx, s.sql(announceText()), args...).Scan(&others, &version)
		return errors.Join(describe(err), newerSchema(version))
	}
	err = pgx.BeginTxFunc(ctx, s.pool, s.begins(), func(tx pgx.Tx) error {
		// If two processes with the same owner announce themselves at once, this lock makes the second one wait, so that it finds the announcement of
		// the first.
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

// queuesText returns the statement of Queues and Unclaimable. For Unclaimable the argument $1 is true. Then the statement leaves out the queues that
// a living process serves. It finds the queues by jumps in the index runs_due, and counts entries of that index. It reads the rows of only two kinds
// of runs: runs without a workflow and a plan, which count only if they have begun, and ended runs with waiting redrives.
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
		CASE WHEN q.workflow = '' AND q.plan = '' THEN (SELECT min(` + dueAt + `) ` + begun + `) ELSE (SELECT min(p.due) FROM ` + partsOf() + ` p) END AS due
	FROM q LEFT JOIN s USING (workflow, plan) WHERE NOT $1 OR coalesce(s.until <= $NOW, true)
	UNION ALL SELECT r.workflow, r.plan, 1, ` + askedAt + ` FROM $S.runs r WHERE ` + asked + `
)
SELECT q.*, s.until, coalesce(s.until > $NOW, false) FROM (
	SELECT workflow, plan, sum(runs)::bigint AS runs, nullif(min(due), 'infinity') FROM states GROUP BY workflow, plan
) q LEFT JOIN s USING (workflow, plan) WHERE q.runs > 0 AND (NOT $1 OR coalesce(s.until <= $NOW, true)) ORDER BY q.workflow, q.plan`
}

// Queues implements [store.QueueStore]. It reads an entry of an index for each run that has not ended.
func (s *Store) Queues(ctx context.Context) ([]store.QueueState, error) { return s.queues(ctx, false) }

// Unclaimable implements [store.UnclaimableStore]. The more queues there are, the longer it takes. It also takes longer if the queues that no living
// process serves have more runs.
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
