package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/internal/keyset"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// condition builds a WHERE clause.
type condition struct {
	terms []string
	args  []any
}

// The method `add` adds a term. Each %d in the term becomes the number of the argument.
func (c *condition) add(term string, arg any) {
	c.args = append(c.args, arg)
	c.terms = append(c.terms, strings.ReplaceAll(term, "%d", fmt.Sprint(len(c.args))))
}

// The method `where` returns the WHERE clause with a leading space, or "" if there is no condition.
func (c *condition) where() string {
	if len(c.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.terms, " AND ")
}

// The method `limit` adds a LIMIT to a statement.
func (c *condition) limit(text string, most int) string {
	c.args = append(c.args, most)
	return fmt.Sprintf("%s LIMIT $%d", text, len(c.args))
}

// The function `names` returns the names of statuses.
func names(statuses []machine.RunStatus) (list []string) {
	for _, s := range statuses {
		list = append(list, s.String())
	}
	return list
}

// likeEscape escapes the special characters of a LIKE pattern.
var likeEscape = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// conditionOf returns the condition for rows of runs that match a filter. A text that the database cannot store matches no run.
func conditionOf(f *store.Filter) (c condition) {
	texts := []string{f.Workflow, f.Plan, f.Parent, f.Key, f.Prefix}
	for name, value := range f.Labels {
		texts = append(texts, name, value)
	}
	for _, text := range texts {
		if !storable(text) {
			return condition{terms: []string{"false"}}
		}
	}
	if f.Workflow != "" {
		c.add("r.workflow = $%d", f.Workflow)
	}
	if f.Plan != "" {
		c.add("r.plan = $%d", f.Plan)
	}
	switch statuses := names(f.Statuses); len(statuses) {
	case 0:
	case 1: // with =, but not with ANY, the index runs_status yields the runs in the order of List
		c.add("r.status = $%d", statuses[0])
	default:
		c.add("r.status = ANY ($%d)", statuses)
	}
	if f.Parent != "" {
		c.add("r.parent = $%d", f.Parent)
	}
	if f.Key != "" {
		c.add("r.run_key = $%d AND r.run_key <> ''", f.Key) // PostgreSQL uses the index only if the statement has both conditions
	}
	if f.Compensation != machine.CompensationNone {
		c.add("r.compensation = $%d", f.Compensation.String())
	}
	if len(f.Labels) > 0 {
		c.add("r.labels @> $%d::text::jsonb", labelsText(f.Labels))
	}
	if f.Prefix != "" {
		c.add("r.id LIKE $%d", likeEscape.Replace(f.Prefix)+"%")
	}
	for _, bound := range []struct {
		term string
		time time.Time
	}{{"r.created >= $%d", f.CreatedFrom}, {"r.created < $%d", f.CreatedBefore}, {"r.ended >= $%d", f.EndedFrom}, {"r.ended < $%d", f.EndedBefore}} {
		if !bound.time.IsZero() {
			c.add(bound.term, instant(bound.time))
		}
	}
	return c
}

// listQuery returns the statement for a page of `most` runs. The statement also reads one run of the next page, if there is a next page.
func listQuery(q *store.Query, most int) (text string, args []any, err error) {
	c := conditionOf(&q.Filter)
	if q.After != "" {
		created, id, err := keyset.Decode(q.After)
		if err != nil {
			return "", nil, err
		}
		if !storable(id) {
			return "", nil, fmt.Errorf("%w: the cursor is not from a page of this list", machine.ErrBadValue)
		}
		at := instant(time.UnixMicro(created))
		c.add("r.created <= $%d", at)
		c.add("(r.created < $%d OR ", at)
		last := len(c.terms) - 1
		c.add("r.id > $%d)", id)
		c.terms[last] += c.terms[last+1]
		c.terms = c.terms[:last+1]
	}
	text = "SELECT " + listedColumns + " FROM $S.runs r" + c.where() + " ORDER BY r.created DESC, r.id"
	return c.limit(text, most+1), c.args, nil
}

// List implements [store.Admin].
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	most, err := q.Bound()
	if err != nil {
		return page, err
	}
	text, args, err := listQuery(&q, most)
	if err == nil {
		err = s.check(ctx)
	}
	if err != nil {
		return page, err
	}
	err = s.do(ctx, s.sql(text), args, func(rows pgx.Rows) error {
		var h head
		if err := scan(rows, h.targets()); err != nil {
			return err
		}
		r, err := h.run()
		if err == nil {
			r.Nodes = nil
			page.Runs = append(page.Runs, *r)
		}
		return err
	})
	if err != nil {
		return store.Page{}, fmt.Errorf("list runs: %w", err)
	}
	page.Cut(most, time.Time.UnixMicro)
	return page, nil
}

// countQuery returns the statement of Count.
func countQuery(c *condition) string {
	return "SELECT r.workflow, r.status, count(*) FROM $S.runs r" + c.where() + " GROUP BY r.workflow, r.status"
}

// Count implements [store.Admin].
func (s *Store) Count(ctx context.Context, f store.Filter) (counts []store.Count, err error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	c := conditionOf(&f)
	err = s.do(ctx, s.sql(countQuery(&c)), c.args, func(rows pgx.Rows) error {
		var n store.Count
		var status string
		if err := rows.Scan(&n.Workflow, &status, &n.Runs); err != nil {
			return err
		}
		err := n.Status.UnmarshalText([]byte(status))
		counts = append(counts, n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	store.SortCounts(counts)
	return counts, nil
}

// nodesPage reads a page of the nodes of a run. The two columns that may be large are NULL unless they are requested.
const nodesPage = "SELECT n.node, n.attempt, n.resolved, n.required, n.terminal, n.queued, n.completed, n.started, n.ended, n.key, n.status, n.cause, n.hash, " +
	"CASE WHEN $4 THEN n.value END, CASE WHEN $4 THEN n.record END FROM $S.nodes n WHERE n.run = $1 AND n.node >= $2 ORDER BY n.node LIMIT $3"

// ListNodes implements [store.Admin].
func (s *Store) ListNodes(ctx context.Context, id string, q store.NodeQuery) (page store.NodePage, err error) {
	first, most, err := q.Range()
	if err == nil {
		err = s.check(ctx)
	}
	if err == nil {
		page, err = s.listNodes(ctx, id, min(first, math.MaxInt32), most, q.Values)
	}
	if err != nil {
		return store.NodePage{}, about("list nodes of", id, err)
	}
	page.Cut(first, most)
	return page, nil
}

func (s *Store) listNodes(ctx context.Context, id string, first int64, most int, values bool) (page store.NodePage, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, number, _, _, err := s.head(ctx, s.pool, id)
	if err != nil {
		return page, err
	}
	err = rowsOf(ctx, s.pool, s.sql(nodesPage), []any{number, first, most + 1, values}, func(rows pgx.Rows) error {
		var n nodeRow
		if err := scan(rows, n.targets()); err != nil {
			return err
		}
		l, err := n.listed()
		page.Nodes = append(page.Nodes, l)
		return err
	})
	return page, err
}
