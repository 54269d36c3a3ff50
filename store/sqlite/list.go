package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/keyset"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// sqlAt puts the expression for the current time into a statement.
func sqlAt(text, now string) string { return fmt.Sprintf(text, now) }

// condition builds a WHERE clause.
type condition struct {
	terms  []string
	values []driver.Value
}

func (c *condition) add(term string, values ...driver.Value) {
	c.terms, c.values = append(c.terms, term), append(c.values, values...)
}

// The method `in` adds the condition that a column has one of the given statuses. If there are none, it adds nothing.
func (c *condition) in(column string, statuses []machine.RunStatus) {
	if len(statuses) == 0 {
		return
	}
	for _, s := range statuses {
		c.values = append(c.values, s.String())
	}
	c.terms = append(c.terms, column+" IN (?"+strings.Repeat(", ?", len(statuses)-1)+")")
}

// where returns the clause with a leading space, or "" if there is no condition.
func (c *condition) where() string {
	if len(c.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.terms, " AND ")
}

// conditionOf returns the condition that selects the rows of kahn_runs that a filter matches.
func conditionOf(f *store.Filter) (c condition) {
	if f.Workflow != "" {
		c.add("workflow = ?", f.Workflow)
	}
	if f.Plan != "" {
		c.add("plan = ?", f.Plan)
	}
	c.in("status", f.Statuses)
	if f.Parent != "" {
		c.add("parent = ?", f.Parent)
	}
	if f.Key != "" {
		c.add("run_key = ? AND run_key <> ''", f.Key) // SQLite uses the index only if the statement has both conditions
	}
	if f.Compensation != machine.CompensationNone {
		c.add("compensation = ?", f.Compensation.String())
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		c.add("run IN (SELECT run FROM kahn_labels WHERE name = ? AND value = ?)", name, f.Labels[name])
	}
	if f.Prefix != "" {
		c.add("id >= ?", f.Prefix)
		if above := above(f.Prefix); above != "" {
			c.add("id < ?", above)
		}
	}
	for _, bound := range []struct {
		term string
		time time.Time
	}{{"created >= ?", f.CreatedFrom}, {"created < ?", f.CreatedBefore}, {"ended >= ?", f.EndedFrom}, {"ended < ?", f.EndedBefore}} {
		if !bound.time.IsZero() {
			c.add(bound.term, milli(bound.time))
		}
	}
	return c
}

// The function `above` returns the smallest text that is greater than all texts with the prefix, compared by bytes. It returns "" if there is none.
func above(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}

// listedColumns are the columns that readHead reads, without the inputs.
const listedColumns = "id, status, created, ended, wakes, workflow, plan, NULL, labels, parent, run_key, priority, compensation, usage"

// listQuery returns the statement for a page of `most` runs. The statement also reads the next run, which shows that there is a next page.
func listQuery(q *store.Query, most int) (text string, values []driver.Value, err error) {
	c := conditionOf(&q.Filter)
	if q.After != "" {
		created, id, err := keyset.Decode(q.After)
		if err != nil {
			return "", nil, err
		}
		c.add("created <= ? AND (created < ? OR id > ?)", created, created, id)
	}
	text = "SELECT " + listedColumns + ", run FROM kahn_runs" + c.where() + " ORDER BY created DESC, id LIMIT ?"
	return text, append(c.values, int64(most+1)), nil
}

// The constant `recent` bounds the statement of recentQuery: the statement inspects at most `recent` runs per run that it may return.
const recent = 20

// recentQuery returns a statement for a page of runs with labels. The statement inspects a bounded number of runs, in the order of the
// list. If most runs have the labels, a few inspected runs fill the page. The statement of listQuery would first collect all runs with the labels.
func recentQuery(q *store.Query, most int) (text string, values []driver.Value, err error) {
	all := *q
	all.Labels = nil
	text, values, err = listQuery(&all, recent*(most+1)-1)
	if err != nil {
		return "", nil, err
	}
	c := condition{values: values}
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		c.add("EXISTS (SELECT 1 FROM kahn_labels WHERE kahn_labels.run = page.run AND name = ? AND value = ?)", name, q.Labels[name])
	}
	return "SELECT * FROM (" + text + ") AS page" + c.where() + " ORDER BY created DESC, id LIMIT ?", append(c.values, int64(most+1)), nil
}

// read executes a query outside of transactions.
func (s *Store) read(ctx context.Context, text string, f func(row []driver.Value) error, values ...driver.Value) error {
	rows, err := s.db.QueryContext(ctx, text, anys(values)...)
	if err == nil {
		err = scan(rows, f)
	}
	if err != nil {
		return s.closed(describe(err))
	}
	return nil
}

// List implements [store.Admin].
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	most, err := q.Bound()
	if err != nil {
		return page, err
	}
	if len(q.Labels) > 0 {
		page.Runs, err = s.listBy(ctx, recentQuery, &q, most)
	}
	if err == nil && len(page.Runs) <= most {
		page.Runs, err = s.listBy(ctx, listQuery, &q, most)
	}
	if err != nil {
		return store.Page{}, err
	}
	page.Cut(most, time.Time.UnixMilli)
	return page, nil
}

// listBy reads the runs of a page, and the next run after them. The function "by" makes the statement.
func (s *Store) listBy(ctx context.Context, by func(*store.Query, int) (string, []driver.Value, error), q *store.Query, most int) (runs []store.Run, err error) {
	text, values, err := by(q, most)
	if err != nil {
		return nil, err
	}
	err = s.read(ctx, text, func(row []driver.Value) error {
		r, err := readHead(row)
		if err == nil {
			runs = append(runs, *r)
		}
		return err
	}, values...)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// countQuery returns the statement of Count.
func countQuery(c *condition) string {
	return "SELECT workflow, status, count(*) FROM kahn_runs" + c.where() + " GROUP BY workflow, status"
}

// Count implements [store.Admin].
func (s *Store) Count(ctx context.Context, f store.Filter) (counts []store.Count, err error) {
	c := conditionOf(&f)
	err = s.read(ctx, countQuery(&c), func(row []driver.Value) error {
		var n store.Count
		n.Workflow, _ = row[0].(string)
		status, _ := row[1].(string)
		runs, _ := row[2].(int64)
		n.Runs = int(runs)
		counts = append(counts, n)
		return counts[len(counts)-1].Status.UnmarshalText([]byte(status))
	}, c.values...)
	if err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	store.SortCounts(counts)
	return counts, nil
}

// nodesPage reads a page of the nodes of a run. The two columns that may be large are NULL unless they are requested.
const nodesPage = "SELECT node, key, attempt, terminal, queued, completed, resolved, required, status, cause, started, ended, hash, %s FROM kahn_nodes WHERE node >= ? AND node < ? ORDER BY node LIMIT ?"

// ListNodes implements [store.Admin].
func (s *Store) ListNodes(ctx context.Context, id string, q store.NodeQuery) (page store.NodePage, err error) {
	first, most, err := q.Range()
	if err != nil {
		return page, err
	}
	number := int64(0)
	err = s.read(ctx, "SELECT run FROM kahn_runs WHERE id = ?", func(row []driver.Value) error {
		number, _ = row[0].(int64)
		return nil
	}, id)
	if err == nil && number == 0 {
		err = store.ErrUnknownRun
	}
	if err != nil {
		return page, s.about("list nodes of", id, err)
	}
	columns := "NULL, NULL"
	if q.Values {
		columns = "value, record"
	}
	row := number * nodesOfRun // the row of the run's first node
	err = s.read(ctx, fmt.Sprintf(nodesPage, columns), func(row []driver.Value) error {
		n, err := readListed(row)
		page.Nodes = append(page.Nodes, n)
		return err
	}, row+min(first, nodesOfRun), row+nodesOfRun, int64(most+1))
	if err != nil {
		return store.NodePage{}, s.about("list nodes of", id, err)
	}
	page.Cut(first, most)
	return page, nil
}

// readListed reads a row of nodesPage.
func readListed(row []driver.Value) (n store.ListedNode, err error) {
	integer := func(i int) int64 {
		v, _ := row[i].(int64)
		return v
	}
	n.Key, _ = row[1].(string)
	n.Columns, err = readColumns(row[8:15])
	n.Attempt, n.Terminal, n.Queued, n.Completed = int32(integer(2)), integer(3) != 0, integer(4) != 0, integer(5) != 0
	n.Resolved, n.Required = int(integer(6)), int(integer(7))
	return n, err
}
