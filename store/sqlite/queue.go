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
	_ store.QueueStore  = (*Store)(nil)
	_ store.LeaseReader = (*Store)(nil)
)

// dueQuery is the statement of the runs of a queue that are due, or will be, in the order in which they are. %s is the time.
const dueQuery = "SELECT " + listedColumns + ", due, due - %s FROM kahn_runs WHERE workflow = ? AND plan = ? AND due < 9223372036854775807" +
	" AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY due, id LIMIT ?"

// askedQuery is the statement of the runs that have ended and for which a redrive waits, in the order in which they are due. %s is the time. The queues
// are pairs of texts in JSON.
const askedQuery = "SELECT " + listedColumns + ", " + askedAt + ", " + askedAt + " - %s FROM kahn_runs INDEXED BY kahn_runs_waiting WHERE posted > taken AND due IS NULL" +
	" AND EXISTS (SELECT 1 FROM json_each(?) q WHERE q.value->>0 = workflow AND q.value->>1 = plan) AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY " + askedAt + ", id LIMIT ?"

// askedAt is when such a run is due.
const askedAt = "max(wakes, CASE owner WHEN '' THEN created ELSE expires END)"

// dueRun is a run that is due, or will be.
type dueRun struct {
	store.Run
	due, wait int64 // in milliseconds
}

// Due implements [store.QueueStore]. At most once a second it first frees the leases of processes that have died.
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err := q.Check(); err != nil {
		return page, err
	}
	except, err := json.Marshal(append([]string{}, q.Except...))
	if err == nil {
		err = s.freeDead(ctx)
	}
	var list []dueRun
	add := func(row []driver.Value) error {
		r, err := readHead(row)
		if err == nil {
			list = append(list, dueRun{*r, row[12].(int64), max(row[13].(int64), 0)})
		}
		return err
	}
	queues := make([][2]string, len(q.Queues))
	for i := 0; err == nil && i < len(q.Queues); i++ {
		queues[i] = [2]string{q.Queues[i].Workflow, q.Queues[i].Plan}
		err = s.read(ctx, sqlAt(dueQuery, s.now), add, q.Queues[i].Workflow, q.Queues[i].Plan, string(except), int64(q.Limit+1))
	}
	if err == nil {
		var pairs []byte
		if pairs, err = json.Marshal(queues); err == nil {
			err = s.read(ctx, sqlAt(askedQuery, s.now), add, string(pairs), string(except), int64(q.Limit+1))
		}
	}
	if err != nil {
		return page, fmt.Errorf("list runs that are due: %w", err)
	}
	slices.SortFunc(list, func(a, b dueRun) int { return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.ID, b.ID)) })
	page.Next = store.Never
	for i := range list {
		if r := &list[i]; !page.Add(&r.Run, time.Duration(min(r.wait, int64(math.MaxInt64/time.Millisecond)))*time.Millisecond, q.Limit) {
			break
		}
	}
	return page, nil
}

// The statements of Announce. %s is the time.
const (
	sameOwner    = "SELECT DISTINCT process FROM kahn_served WHERE owner = ? AND owner <> '' AND server <> ? AND until > %s + ?"
	endServed    = "UPDATE kahn_served SET until = %[1]s WHERE server = ? AND until > %[1]s"
	putServed    = "INSERT INTO kahn_served (workflow, plan, server, owner, until, process) VALUES (?, ?, ?, ?, %s + ?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner, until = excluded.until"
	removeServed = "DELETE FROM kahn_served AS s WHERE until <= %s AND EXISTS (SELECT 1 FROM kahn_served o WHERE o.workflow = s.workflow AND o.plan = s.plan AND o.until > s.until)"
)

// Announce implements [store.QueueStore]. The name of an owner is free as soon as the process that used it has died: Announce tests the process's lock,
// and does not wait for its TTL.
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

// queuesQuery is the statement of Queues, and askedQueues the one of the runs that have ended and for which a redrive waits, a row for each. %s is the time.
const (
	queuesQuery = "SELECT workflow, plan, count(*), min(due), " + servedUntil + ", %s" +
		" FROM kahn_runs r WHERE due IS NOT NULL AND NOT (workflow = '' AND plan = '' AND sequence = 0) GROUP BY workflow, plan ORDER BY workflow, plan"
	askedQueues = "SELECT workflow, plan, 1, " + askedAt + ", " + servedUntil + ", %s FROM kahn_runs r INDEXED BY kahn_runs_waiting WHERE posted > taken AND due IS NULL"
	servedUntil = "(SELECT max(until) FROM kahn_served s WHERE s.workflow = r.workflow AND s.plan = r.plan)"
)

// deadQuery is the statement of Unclaimable. It finds the workflows, and then their plans, one after the other by the index kahn_runs_due, whatever the lengths of the queues are, and counts the
// runs of those that no live process performs. NULL ends a search. SQLite compares pairs by the first column of an index alone, so that one search for both would read all runs.
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

// Queues implements [store.QueueStore]. Its time grows with the runs that have not ended, by entries of an index.
func (s *Store) Queues(ctx context.Context) ([]store.QueueState, error) {
	return s.queues(ctx, queuesQuery)
}

// Unclaimable implements [store.UnclaimableStore]. Its time grows with the queues, and with the runs in those that no live process performs.
func (s *Store) Unclaimable(ctx context.Context) ([]store.QueueState, error) {
	list, err := s.queues(ctx, deadQuery)
	return slices.DeleteFunc(list, func(q store.QueueState) bool { return q.Live }), err // a redrive waits for a run of a live queue
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
