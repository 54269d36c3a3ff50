package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

var (
	_ store.TurnStore   = (*Store)(nil)
	_ store.LeaseReader = (*Store)(nil)
)

// partsQuery reads the parts of some queues, in the order of kahn_runs_due. A part has the unended runs of a queue with one key and one priority.
// Each row has the time at which the first run of the part is due, and the number of the key's last turn. The query jumps from one part to the
// next, so its time does not grow with the number of runs in a part. %s is the time. The argument has the queues in JSON, each as an array of the
// workflow and the plan. When a recursive SELECT finds no next row, its subquery yields NULL, and the recursion ends.
const partsQuery = `WITH RECURSIVE q(workflow, plan) AS (SELECT value->>0, value->>1 FROM json_each(?)),
k(workflow, plan, key) AS (
	SELECT workflow, plan, (SELECT n.run_key FROM kahn_runs n WHERE n.due IS NOT NULL AND n.workflow = q.workflow AND n.plan = q.plan ORDER BY n.run_key LIMIT 1) FROM q
	UNION ALL SELECT workflow, plan, (
		SELECT n.run_key FROM kahn_runs n WHERE n.due IS NOT NULL AND n.workflow = k.workflow AND n.plan = k.plan AND n.run_key > k.key ORDER BY n.run_key LIMIT 1
	) FROM k WHERE key IS NOT NULL
),
p(workflow, plan, key, priority) AS (
	SELECT workflow, plan, key, (
		SELECT n.priority FROM kahn_runs n WHERE n.due IS NOT NULL AND n.workflow = k.workflow AND n.plan = k.plan AND n.run_key = k.key ORDER BY n.priority DESC LIMIT 1
	) FROM k WHERE key IS NOT NULL
	UNION ALL SELECT workflow, plan, key, (
		SELECT n.priority FROM kahn_runs n WHERE n.due IS NOT NULL AND n.workflow = p.workflow AND n.plan = p.plan AND n.run_key = p.key AND n.priority < p.priority ORDER BY n.priority DESC LIMIT 1
	) FROM p WHERE priority IS NOT NULL
)
SELECT workflow, plan, key, priority, (
	SELECT n.due FROM kahn_runs n WHERE n.due IS NOT NULL AND n.workflow = p.workflow AND n.plan = p.plan AND n.run_key = p.key AND n.priority = p.priority ORDER BY n.due LIMIT 1
), ` + lastTurn + `, %s FROM p WHERE priority IS NOT NULL`

// lastTurn is the expression for the number of the last turn of the key of the part p. lastOfRun is the same expression for the key of the run r.
// Both end with latestTurn.
const (
	lastTurn   = "coalesce((SELECT t.turn FROM kahn_runs t WHERE t.turn IS NOT NULL AND t.run_key = p.key" + latestTurn
	lastOfRun  = "coalesce((SELECT t.turn FROM kahn_runs t WHERE t.turn IS NOT NULL AND t.run_key = r.run_key" + latestTurn
	latestTurn = " ORDER BY t.turn DESC LIMIT 1), 0)"
)

// dueQuery reads the runs of a part that are due or become due by themselves, in the order in which they are due. The first argument is the current time.
const dueQuery = "SELECT " + listedColumns + ", due, due - ? FROM kahn_runs WHERE workflow = ? AND plan = ? AND run_key = ? AND priority = ? AND due < 9223372036854775807" +
	" AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY due, id LIMIT ?"

// askedQuery reads the ended runs with a waiting redrive, sorted by the time at which they become due. %s is the time. The first argument
// has the queues, as for partsQuery.
const askedQuery = "SELECT " + listedColumns + ", " + askedAt + ", " + askedAt + " - %s, " + lastOfRun + " FROM kahn_runs r INDEXED BY kahn_runs_waiting WHERE posted > taken AND due IS NULL" +
	" AND EXISTS (SELECT 1 FROM json_each(?) q WHERE q.value->>0 = workflow AND q.value->>1 = plan) AND id NOT IN (SELECT value FROM json_each(?)) AND run_key NOT IN (SELECT value FROM json_each(?)) ORDER BY " + askedAt + ", id LIMIT ?"

// askedAt is the expression for the time at which an ended run with a waiting redrive is due.
const askedAt = "max(wakes, CASE owner WHEN '' THEN created ELSE expires END)"

// part describes the runs of one key and one priority of a queue.
type part struct {
	store.Queue
	key                 string
	priority, due, turn int64
}

// readParts reads the parts of the queues, and leaves out the parts whose keys are in q.Full. It returns the parts that have a due run, in the order
// of the turns of their keys. The result "keyed" says whether any unended run of the queues has a key. The result "now" is the time of the database.
// If a part has no due run, its first run becomes due later; the result "next" is the earliest of these times.
func (s *Store) readParts(ctx context.Context, queues string, q *store.DueQuery) (parts []part, keyed bool, now, next int64, err error) {
	next = math.MaxInt64
	err = s.read(ctx, sqlAt(partsQuery, s.now), func(row []driver.Value) error {
		var p part
		p.Workflow, _ = row[0].(string)
		p.Plan, _ = row[1].(string)
		p.key, _ = row[2].(string)
		p.priority, _ = row[3].(int64)
		p.due, _ = row[4].(int64)
		p.turn, _ = row[5].(int64)
		now, _ = row[6].(int64)
		keyed = keyed || p.key != ""
		switch {
		case slices.Contains(q.Full, p.key):
		case p.due <= now:
			parts = append(parts, p)
		default:
			next = min(next, p.due)
		}
		return nil
	}, queues)
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(b.priority, a.priority), cmp.Compare(a.due, b.due), strings.Compare(a.key, b.key))
	})
	return parts, keyed, now, next, err
}

// firstKeys returns the parts of the first `most` keys, and the number of these keys. A page of `most` runs cannot have runs of other
// keys.
func firstKeys(parts []part, most int) (_ []part, keys int) {
	seen := map[string]bool{}
	parts = slices.DeleteFunc(parts, func(p part) bool {
		if !seen[p.key] && len(seen) == most {
			return true
		}
		seen[p.key] = true
		return false
	})
	return parts, len(seen)
}

// Due implements [store.QueueStore]. It first frees the leases of dead processes, but at most once a second. Its time grows with the number of keys
// and priorities of runs that have not ended, not with the number of runs.
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err := q.Check(); err != nil {
		return page, err
	}
	except, err := json.Marshal(append([]string{}, q.Except...))
	full, failed := json.Marshal(append([]string{}, q.Full...))
	err = errors.Join(err, failed)
	queues := make([][2]string, len(q.Queues))
	for i, of := range q.Queues {
		queues[i] = [2]string{of.Workflow, of.Plan}
	}
	pairs, failed := json.Marshal(queues)
	if err = errors.Join(err, failed); err == nil {
		err = s.freeDead(ctx)
	}
	var list []store.DueRun
	turn := int64(0)
	add := func(row []driver.Value) error {
		r, err := readHead(row)
		if err == nil && !slices.Contains(q.Full, r.Key) {
			if len(row) > 16 {
				turn, _ = row[16].(int64)
			}
			list = append(list, store.DueRun{Run: *r, At: row[14].(int64), Wait: waitOf(row[15].(int64)), Turn: turn})
		}
		return err
	}
	var parts []part
	now, next := int64(0), int64(math.MaxInt64)
	if err == nil {
		parts, page.Keyed, now, next, err = s.readParts(ctx, string(pairs), &q)
	}
	all := len(parts)
	parts, keys := firstKeys(parts, q.Limit+1+len(q.Except))
	each := q.Limit/max(keys, 1) + 1
	for _, p := range parts {
		if err == nil {
			turn = p.turn
			err = s.read(ctx, dueQuery, add, now, p.Workflow, p.Plan, p.key, p.priority, string(except), int64(each+1))
		}
	}
	if err == nil {
		err = s.read(ctx, sqlAt(askedQuery, s.now), add, string(pairs), string(except), string(full), int64(q.Limit+1))
	}
	if err != nil {
		return store.DuePage{}, fmt.Errorf("list runs that are due: %w", err)
	}
	page.Fill(list, q.Limit, each)
	switch {
	case all > len(parts):
		page.Next = 0
	case next < math.MaxInt64 && (page.Next == store.Never || page.Next > waitOf(next-now)):
		page.Next = waitOf(next - now)
	}
	return page, nil
}

// waitOf converts a number of milliseconds to a Duration. It returns 0 for a negative number, and about the longest Duration for a number
// that is too large.
func waitOf(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// keyLeases counts the leased and unended runs of a key, without the run whose id is the last argument. allKeys counts the leased and unended runs of
// each key. %s is the time.
const (
	keyLeases = "SELECT count(*) FROM kahn_runs WHERE run_key = ? AND run_key <> '' AND owner <> '' AND due IS NOT NULL AND expires > %s AND id <> ?"
	allKeys   = "SELECT run_key, count(*) FROM kahn_runs WHERE run_key <> '' AND owner <> '' AND due IS NOT NULL AND expires > %s GROUP BY run_key"
)

// AcquireTurn implements [store.TurnStore].
func (s *Store) AcquireTurn(ctx context.Context, id, owner string, ttl time.Duration, t store.Turn) (lease store.Lease, stored *store.Run, err error) {
	if err := ctx.Err(); err != nil {
		return store.Lease{}, nil, err
	}
	w := s.writer
	var refused error
	err = w.write(ctx, func() (err error) {
		key, leased := (*string)(nil), int64(0)
		refused = nil
		err = w.in("SELECT run_key FROM kahn_runs WHERE id = ?", func(row []driver.Value) error {
			text, _ := row[0].(string)
			key = &text
			return nil
		}, id)
		if err == nil && (key == nil || *key != t.Key) {
			refused = fmt.Errorf("%w with the key %q", store.ErrUnknownRun, t.Key)
			return nil
		}
		if err == nil && t.Most > 0 {
			err = w.in(sqlAt(keyLeases, s.now), func(row []driver.Value) error { leased, _ = row[0].(int64); return nil }, t.Key, id)
		}
		if err != nil {
			return err
		}
		if t.Most > 0 && leased >= int64(t.Most) {
			refused = store.KeyFull(t)
			return nil
		}
		if lease, stored, refused, err = s.acquire(id, owner, ttl); err != nil || refused != nil {
			return err
		}
		// Processes that share a file share a clock. No two turns have the same nanosecond, since their transactions run one after the other.
		return w.in("UPDATE kahn_runs SET turn = ? WHERE id = ?", nil, time.Now().UnixNano(), id)
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return store.Lease{}, nil, s.about("acquire", id, err)
	}
	return lease, stored, nil
}

// LeasedKeys implements [store.TurnStore]. It first frees the leases of dead processes, but at most once a second.
func (s *Store) LeasedKeys(ctx context.Context) (map[string]int, error) {
	keys := map[string]int{}
	err := s.freeDead(ctx)
	if err == nil {
		err = s.read(ctx, sqlAt(allKeys, s.now), func(row []driver.Value) error {
			key, _ := row[0].(string)
			runs, _ := row[1].(int64)
			keys[key] = int(runs)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the keys of leased runs: %w", err)
	}
	return keys, nil
}

// The statements of Announce. %s is the time.
const (
	sameOwner    = "SELECT DISTINCT process FROM kahn_served WHERE owner = ? AND owner <> '' AND server <> ? AND until > %s + ?"
	endServed    = "UPDATE kahn_served SET until = %[1]s WHERE server = ? AND until > %[1]s"
	putServed    = "INSERT INTO kahn_served (workflow, plan, server, owner, until, process) VALUES (?, ?, ?, ?, %s + ?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner, until = excluded.until"
	removeServed = "DELETE FROM kahn_served AS s WHERE until <= %s AND EXISTS (SELECT 1 FROM kahn_served o WHERE o.workflow = s.workflow AND o.plan = s.plan AND o.until > s.until)"
)

// Announce implements [store.QueueStore]. The name of an owner is free as soon as the process that used the name is dead. Announce
// tries the lock of that process. So it notices the death of the process before the announcement of the process expires.
func (s *Store) Announce(ctx context.Context, a store.Announcement) error {
	if err := errors.Join(a.Check(), ctx.Err()); err != nil {
		return err
	}
	w, ttl := s.writer, milliseconds(a.TTL)
	var refused error
	err := w.write(ctx, func() error {
		var others []int64
		refused = nil
		err := w.in("SELECT version FROM kahn_schema", func(row []driver.Value) error {
			if version := row[0].(int64); version > int64(len(migrations)) {
				refused = newerSchema(version)
			}
			return nil
		})
		if err != nil || refused != nil {
			return err
		}
		if len(a.Queues) > 0 {
			err := w.in(sqlAt(sameOwner, s.now), func(row []driver.Value) error {
				others = append(others, row[0].(int64))
				return nil
			}, a.Owner, a.Process, ttl/2)
			if err != nil {
				return err
			}
		}
		for _, process := range others {
			dead, err := s.hasDied(process)
			if err == nil && dead {
				err = s.forget(process)
			}
			if err != nil {
				return err
			}
			if !dead {
				refused = store.OwnerInUse(a.Owner)
				return nil
			}
		}
		if err := w.in(sqlAt(endServed, s.now), nil, a.Process); err != nil {
			return err
		}
		for _, q := range a.Queues {
			if err := w.in(sqlAt(putServed, s.now), nil, q.Workflow, q.Plan, a.Process, a.Owner, ttl, s.process); err != nil {
				return err
			}
		}
		return w.in(sqlAt(removeServed, s.now), nil)
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("announce %q: %w", a.Process, err)
	}
	return nil
}

// queuesQuery is the statement of Queues. askedQueues has a row for each ended run with a waiting redrive. %s is the time.
const (
	queuesQuery = "SELECT workflow, plan, count(*), min(due), " + servedUntil + ", %s" +
		" FROM kahn_runs r WHERE due IS NOT NULL AND NOT (workflow = '' AND plan = '' AND sequence = 0) GROUP BY workflow, plan ORDER BY workflow, plan"
	askedQueues = "SELECT workflow, plan, 1, " + askedAt + ", " + servedUntil + ", %s FROM kahn_runs r INDEXED BY kahn_runs_waiting WHERE posted > taken AND due IS NULL"
	servedUntil = "(SELECT max(until) FROM kahn_served s WHERE s.workflow = r.workflow AND s.plan = r.plan)"
)

// deadQuery is the statement of Unclaimable. It uses the index kahn_runs_due to jump from one workflow to the next, and then from one plan to the
// next. So its time does not grow with the number of runs in queues that a process serves. It counts the runs of the queues that no living process
// serves. When a recursive SELECT finds no next row, its subquery yields NULL, and the recursion ends. SQLite uses only the first column of an index
// to compare pairs, so a single search by both columns would read all runs.
const deadQuery = `WITH RECURSIVE w(workflow) AS (
	VALUES ((SELECT workflow FROM kahn_runs WHERE due IS NOT NULL ORDER BY workflow LIMIT 1))
	UNION ALL SELECT (SELECT n.workflow FROM kahn_runs n WHERE due IS NOT NULL AND n.workflow > w.workflow ORDER BY n.workflow LIMIT 1) FROM w WHERE w.workflow IS NOT NULL
),
q(workflow, plan) AS (
	SELECT w.workflow, (SELECT n.plan FROM kahn_runs n WHERE due IS NOT NULL AND n.workflow = w.workflow ORDER BY n.plan LIMIT 1) FROM w WHERE w.workflow IS NOT NULL
	UNION ALL SELECT q.workflow, (SELECT n.plan FROM kahn_runs n WHERE due IS NOT NULL AND n.workflow = q.workflow AND n.plan > q.plan ORDER BY n.plan LIMIT 1) FROM q WHERE q.plan IS NOT NULL
),
r AS MATERIALIZED (SELECT workflow, plan FROM q WHERE plan IS NOT NULL AND NOT EXISTS (
	SELECT 1 FROM kahn_served s WHERE s.workflow = q.workflow AND s.plan = q.plan AND s.until > %[1]s))
SELECT workflow, plan, count(*), min(due), until, %[1]s FROM (
	SELECT r.workflow, r.plan, n.due, ` + servedUntil + ` AS until FROM r CROSS JOIN kahn_runs n
	WHERE n.workflow = r.workflow AND n.plan = r.plan AND n.due IS NOT NULL AND (r.workflow <> '' OR r.plan <> '' OR n.sequence > 0)
) GROUP BY workflow, plan`

// Queues implements [store.QueueStore]. It reads an entry of an index for each run that has not ended.
func (s *Store) Queues(ctx context.Context) ([]store.QueueState, error) {
	return s.queues(ctx, queuesQuery)
}

// Unclaimable implements [store.UnclaimableStore]. Its time grows with the number of queues, and with the number of runs in queues that no
// living process serves.
func (s *Store) Unclaimable(ctx context.Context) ([]store.QueueState, error) {
	list, err := s.queues(ctx, deadQuery)
	// The method `queues` also returns live queues if a redrive waits for one of their runs.
	return slices.DeleteFunc(list, func(q store.QueueState) bool { return q.Live }), err
}

func (s *Store) queues(ctx context.Context, text string) (list []store.QueueState, err error) {
	add := func(row []driver.Value) error {
		var q store.QueueState
		q.Workflow, _ = row[0].(string)
		q.Plan, _ = row[1].(string)
		runs, _ := row[2].(int64)
		q.Runs = int(runs)
		if due, _ := row[3].(int64); due != math.MaxInt64 {
			q.Due = timeOf(row[3])
		}
		if q.Served = timeOf(row[4]); !q.Served.IsZero() {
			q.Live = q.Served.After(timeOf(row[5]))
		}
		at, known := slices.BinarySearchFunc(list, q.Queue, func(has store.QueueState, q store.Queue) int { return has.Compare(q) })
		if !known {
			list = slices.Insert(list, at, q)
			return nil
		}
		has := &list[at]
		has.Runs += q.Runs
		if has.Due.IsZero() || !q.Due.IsZero() && q.Due.Before(has.Due) {
			has.Due = q.Due
		}
		return nil
	}
	if err = s.freeDead(ctx); err == nil {
		err = s.read(ctx, sqlAt(text, s.now), add)
	}
	if err == nil {
		err = s.read(ctx, sqlAt(askedQueues, s.now), add)
	}
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return list, nil
}
