package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

var _ store.Awaiter = (*Store)(nil)

// reachQuery finds the runs that a run awaits, directly or through other runs. Each row has an unended run and a run that the unended run awaits.
const reachQuery = `WITH RECURSIVE reach(id) AS (
	SELECT ?1 UNION SELECT a.awaited FROM reach JOIN kahn_runs r USING (id) JOIN kahn_awaits a USING (run) WHERE r.ended IS NULL
) SELECT r.id, a.awaited FROM reach JOIN kahn_runs r USING (id) JOIN kahn_awaits a USING (run) WHERE r.ended IS NULL`

// The method `await` stores the awaits of a commit. For each await it first removes the node's former await. If the commit withdraws the await or
// ends the run, this is all. Otherwise the method posts the answer if it is known at once, and stores the new await if not. The method returns
// the runs for which it has posted answers.
func (s *Store) await(do execution, run int64, id string, c *store.Commit) (posted []string, err error) {
	for _, a := range c.Awaits {
		if err := do("DELETE FROM kahn_awaits WHERE run = ? AND node = ?", nil, run, a.Node); err != nil {
			return nil, err
		}
		if a.Run == "" || c.Status.Terminal() {
			continue
		}
		e, err := judgeAwait(do, id, a.Run)
		switch {
		case err != nil:
			return nil, err
		case e == nil:
			err = do("INSERT INTO kahn_awaits VALUES (?, ?, ?)", nil, run, a.Node, a.Run)
		default:
			posted = append(posted, id)
			err = s.postEnded(do, run, a.Node, e)
		}
		if err != nil {
			return nil, err
		}
	}
	return posted, nil
}

// judgeAwait returns the answer to a new await if the answer is known at once, else nil.
func judgeAwait(do execution, id, awaited string) (*store.Ended, error) {
	e, known := &store.Ended{Run: awaited}, false
	err := do("SELECT status FROM kahn_runs WHERE id = ?", func(row []driver.Value) error {
		known = true
		return e.Status.UnmarshalText([]byte(row[0].(string)))
	}, awaited)
	switch e.Unknown = !known; {
	case err != nil:
		return nil, err
	case e.Unknown || e.Status.Terminal():
		return e, nil
	}
	e.Status = machine.RunPending
	awaits := map[string][]string{}
	err = do(reachQuery, func(row []driver.Value) error {
		from, to := row[0].(string), row[1].(string)
		awaits[from] = append(awaits[from], to)
		return nil
	}, awaited)
	if err == nil {
		e.Cycle, err = store.FindCycle(id, awaited, func(run string) ([]string, error) { return awaits[run], nil })
	}
	if err != nil || e.Cycle == nil {
		return nil, err
	}
	return e, nil
}

// endAwaits removes the awaits of an ended run. It posts the answers for the awaiting nodes whose runs have not ended, and returns the runs of
// these nodes. The function "find" executes the query for the awaiting nodes.
func (s *Store) endAwaits(do execution, find func(f func(row []driver.Value) error, values ...driver.Value) error, id string, status machine.RunStatus) (posted []string, err error) {
	type awaiting struct {
		run  int64
		node string
	}
	var list []awaiting
	err = find(func(row []driver.Value) error {
		list = append(list, awaiting{row[0].(int64), row[1].(string)})
		return nil
	}, id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	for _, a := range list {
		open := ""
		err := do("SELECT id FROM kahn_runs WHERE run = ? AND ended IS NULL", func(row []driver.Value) error {
			open = row[0].(string)
			return nil
		}, a.run)
		if err == nil && open != "" {
			posted = append(posted, open)
			err = s.postEnded(do, a.run, a.node, &store.Ended{Run: id, Status: status})
		}
		if err != nil {
			return nil, err
		}
	}
	return posted, do("DELETE FROM kahn_awaits WHERE awaited = ?", nil, id)
}

// postEnded posts the answer to the await of a node. The parameter "run" is the number of the node's run.
func (s *Store) postEnded(do execution, run int64, node string, e *store.Ended) error {
	last := int64(0)
	err := do("SELECT posted FROM kahn_runs WHERE run = ?", func(row []driver.Value) error {
		last = row[0].(int64)
		return nil
	}, run)
	if err != nil {
		return err
	}
	if last++; last == requestsOfRun {
		return fmt.Errorf("%w: a run of %d requests", store.ErrRejected, last)
	}
	q, err := e.Request(node, uint64(last))
	if err != nil {
		return err
	}
	return s.putRequest(do, run, last, &q)
}

// LoadAwaits implements [store.Awaiter].
func (s *Store) LoadAwaits(ctx context.Context, run string) (list []store.Await, err error) {
	known := false
	err = s.view(ctx, func(do execution) error {
		known, list = false, nil
		return do("SELECT a.node, a.awaited FROM kahn_runs r LEFT JOIN kahn_awaits a USING (run) WHERE r.id = ? ORDER BY a.node", func(row []driver.Value) error {
			if known = true; row[0] != nil {
				list = append(list, store.Await{Node: row[0].(string), Run: row[1].(string)})
			}
			return nil
		}, run)
	})
	if err == nil && !known {
		err = store.ErrUnknownRun
	}
	return list, s.about("load awaits of", run, err)
}

// textOrNull returns JSON as the value of a text column.
func textOrNull(data json.RawMessage) driver.Value {
	if data == nil {
		return nil
	}
	return string(data)
}
