package storetest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// flawed is a correct store behind a layer with one defect.
type flawed struct {
	*store.Memory
	create func(n *store.NewRun)
	begin  func(r *store.Run) // changes what Acquire returns
	commit func(c *store.Commit)
	insert func(r *store.Run)
	query  func(q *store.Query)
	page   func(q store.Query, p *store.Page)
	nodes  func(q *store.NodeQuery, p *store.NodePage)
	counts func(c []store.Count) []store.Count
	prune  func(q *store.PruneQuery)
	pruned func(s *flawed, q store.PruneQuery, p *store.Pruned)
	load   func(r *store.Run)
}

func (s *flawed) Create(ctx context.Context, n store.NewRun) (*store.Run, bool, error) {
	if s.create != nil {
		s.create(&n)
	}
	return s.Memory.Create(ctx, n)
}

func (s *flawed) Acquire(ctx context.Context, run, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	l, r, err := s.Memory.Acquire(ctx, run, owner, ttl)
	if err == nil && s.begin != nil {
		s.begin(r)
	}
	return l, r, err
}

func (s *flawed) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.commit != nil {
		s.commit(&c)
	}
	return s.Memory.Commit(ctx, l, c)
}

func (s *flawed) Insert(ctx context.Context, r *store.Run) error {
	if s.insert != nil {
		other := *r
		s.insert(&other)
		r = &other
	}
	return s.Memory.Insert(ctx, r)
}

func (s *flawed) Load(ctx context.Context, run string) (*store.Run, error) {
	r, err := s.Memory.Load(ctx, run)
	if err == nil && s.load != nil {
		s.load(r)
	}
	return r, err
}

func (s *flawed) List(ctx context.Context, q store.Query) (store.Page, error) {
	asked := q
	if s.query != nil {
		s.query(&q)
	}
	p, err := s.Memory.List(ctx, q)
	if err == nil && s.page != nil {
		s.page(asked, &p)
	}
	return p, err
}

func (s *flawed) ListNodes(ctx context.Context, run string, q store.NodeQuery) (store.NodePage, error) {
	p, err := s.Memory.ListNodes(ctx, run, q)
	if err == nil && s.nodes != nil {
		s.nodes(&q, &p)
	}
	return p, err
}

func (s *flawed) Count(ctx context.Context, f store.Filter) ([]store.Count, error) {
	c, err := s.Memory.Count(ctx, f)
	if s.counts != nil {
		c = s.counts(c)
	}
	return c, err
}

func (s *flawed) Prune(ctx context.Context, q store.PruneQuery) (store.Pruned, error) {
	if s.prune != nil {
		s.prune(&q)
	}
	p, err := s.Memory.Prune(ctx, q)
	if err == nil && s.pruned != nil {
		s.pruned(s, q, &p)
	}
	return p, err
}

// eager is a blob store whose Sweep removes every blob, even a new one.
type eager struct{ store.BlobSweeper }

func (b eager) Sweep(ctx context.Context, key string, _ time.Time) (bool, error) {
	return true, b.Delete(ctx, key)
}

// TestAdminDefects plants defects in the methods of store.Admin; the named check must find each of them.
func TestAdminDefects(t *testing.T) {
	t.Parallel()
	const filters, old, blobs = "filters", "old runs are pruned", "blobs of pruned runs"
	for _, row := range []struct {
		name  string
		store flawed
		check string
	}{
		{"no defect", flawed{}, ""},
		{"the time to begin is lost", flawed{create: func(n *store.NewRun) { n.NotBefore = time.Time{} }}, "a run is created"},
		{"the labels are lost", flawed{create: func(n *store.NewRun) { n.Labels = nil }}, "a run is created"},
		{"the plan is lost", flawed{create: func(n *store.NewRun) { n.Plan = "" }}, "a run is created"},
		{"the inputs are lost when the run begins", flawed{begin: func(r *store.Run) { r.Inputs = nil }}, "a run is created"},
		{"a run that exists is reused without being asked", flawed{create: func(n *store.NewRun) { n.IfExists = max(n.IfExists, store.Reuse) }}, "a run that exists is refused"},
		{"a run that exists is refused in spite of its policy", flawed{create: func(n *store.NewRun) { n.IfExists = store.Refuse }}, "a run that exists is reused"},
		{"a run is reused in place of being replaced", flawed{create: func(n *store.NewRun) { n.IfExists = min(n.IfExists, store.Reuse) }}, "a run that has not begun is replaced"},
		{"inputs do not matter", flawed{create: func(n *store.NewRun) { n.Inputs = nil }}, "a run that exists is reused"},
		{"a filter by workflow lets all through", flawed{query: func(q *store.Query) { q.Workflow = "" }}, filters},
		{"a filter by status looks at the first alone", flawed{query: func(q *store.Query) { q.Statuses = q.Statuses[:min(1, len(q.Statuses))] }}, filters},
		{"a filter by labels looks at one alone", flawed{query: func(q *store.Query) {
			if len(q.Labels) == 2 {
				q.Labels = map[string]string{"even": q.Labels["even"]}
			}
		}}, filters},
		{"a filter by parent is folded by case", flawed{query: func(q *store.Query) { q.Parent = strings.ToLower(q.Parent) }}, filters},
		{"a filter by compensation lets all through", flawed{query: func(q *store.Query) { q.Compensation = machine.CompensationNone }}, filters},
		{"a filter by compensation takes those that were compensated for failed", flawed{query: func(q *store.Query) { q.Compensation = min(q.Compensation, machine.CompensationDone) }}, filters},
		{"what a run undoes is not stored", flawed{commit: func(c *store.Commit) { c.Compensation = nil }}, "runs are listed by what they undo"},
		{"what a run undoes is forgotten by the next commit", flawed{commit: func(c *store.Commit) {
			if c.Compensation == nil && c.Status != machine.RunRunning {
				c.Compensation = new(machine.Compensation)
			}
		}}, "runs are listed by what they undo"},
		{"what a run undoes is not inserted", flawed{insert: func(r *store.Run) { r.Compensation = machine.CompensationNone }}, filters},
		{"what a run has used is not stored", flawed{commit: func(c *store.Commit) { c.Usage = nil }}, "runs are listed with what they have used"},
		{"what a run has used is added up", flawed{page: func(_ store.Query, p *store.Page) {
			for i := range p.Runs {
				if u := p.Runs[i].Usage; u["tokens"] > 2000 {
					u["tokens"] += 1200.5
				}
			}
		}}, "runs are listed with what they have used"},
		{"what a run has used is not inserted", flawed{insert: func(r *store.Run) { r.Usage = nil }}, filters},
		{"a prefix has a pattern", flawed{query: func(q *store.Query) { q.Prefix = strings.TrimSuffix(q.Prefix, "%") }}, filters},
		{"a range of creation has its end", flawed{query: func(q *store.Query) { q.CreatedBefore = late(q.CreatedBefore) }}, filters},
		{"a range of creation lacks its begin", flawed{query: func(q *store.Query) { q.CreatedFrom = late(q.CreatedFrom) }}, filters},
		{"a range of ends has its end", flawed{query: func(q *store.Query) { q.EndedBefore = late(q.EndedBefore) }}, filters},
		{"a range of ends lacks its begin", flawed{query: func(q *store.Query) { q.EndedFrom = late(q.EndedFrom) }}, filters},
		{"inputs are listed", flawed{page: func(_ store.Query, p *store.Page) {
			for i := range p.Runs {
				p.Runs[i].Inputs = []byte(`{}`)
			}
		}}, filters},
		{"a page is one run too long", flawed{query: func(q *store.Query) { q.Limit += min(q.Limit, 1) }}, "pages of runs"},
		{"the first run of a page is lost", flawed{page: func(q store.Query, p *store.Page) {
			if q.After != "" && len(p.Runs) > 0 {
				p.Runs = p.Runs[1:]
			}
		}}, "pages of runs"},
		{"there is always a next page", flawed{page: func(_ store.Query, p *store.Page) { p.Next += "x" }}, filters},
		{"a limit that is too high is cut", flawed{query: func(q *store.Query) { q.Limit = min(q.Limit, store.MaxPage) }}, "limits and cursors"},
		{"an end is not listed", flawed{query: func(q *store.Query) { q.EndedFrom = time.Time{} }}, "runs are listed as they change"},
		{"another Spec is not stored", flawed{commit: func(c *store.Commit) { c.Spec = nil }}, "runs are listed as they change"},
		{"counts have no order", flawed{counts: func(c []store.Count) []store.Count {
			for i, j := 0, len(c)-1; i < j; i, j = i+1, j-1 {
				c[i], c[j] = c[j], c[i]
			}
			return c
		}}, "runs are counted"},
		{"counts are of all statuses together", flawed{counts: func(c []store.Count) []store.Count { return c[:min(1, len(c))] }}, "runs are counted"},
		{"values of nodes are listed", flawed{nodes: func(q *store.NodeQuery, p *store.NodePage) {
			for i := range p.Nodes {
				if !q.Values {
					p.Nodes[i].Value = []byte("1")
				}
			}
		}}, "nodes are listed"},
		{"nodes are listed by their keys", flawed{nodes: func(_ *store.NodeQuery, p *store.NodePage) {
			if n := len(p.Nodes); n > 1 && p.Nodes[0].Key > p.Nodes[n-1].Key {
				p.Nodes[0], p.Nodes[n-1] = p.Nodes[n-1], p.Nodes[0]
			}
		}}, "nodes are listed"},
		{"the sequence is not inserted", flawed{insert: func(r *store.Run) { r.Sequence = min(r.Sequence, 1) }}, "a run is inserted"},
		{"the end is not inserted", flawed{insert: func(r *store.Run) {
			if !r.Ended.IsZero() {
				r.Ended = time.Now()
			}
		}}, "a run is inserted"},
		{"the nodes are not inserted", flawed{insert: func(r *store.Run) { r.Nodes = nil }}, "runs are exported and imported"},
		{"an exported run has no inputs", flawed{load: func(r *store.Run) { r.Inputs = nil }}, "runs are exported and imported"},
		{"one run too many is pruned", flawed{prune: func(q *store.PruneQuery) { q.Limit += min(q.Limit, 1) }}, old},
		{"the statuses do not matter", flawed{prune: func(q *store.PruneQuery) { q.Statuses = nil }}, old},
		{"the time does not matter", flawed{prune: func(q *store.PruneQuery) {
			q.EndedBefore = q.EndedBefore.Add(time.Duration(min(1, q.EndedBefore.Unix())) * 100 * time.Hour)
		}}, old},
		{"there are always more", flawed{pruned: func(_ *flawed, _ store.PruneQuery, p *store.Pruned) { p.More = true }}, old},
		{"nodes are not counted", flawed{pruned: func(_ *flawed, _ store.PruneQuery, p *store.Pruned) { p.Nodes = 0 }}, old},
		{"runs that wait are pruned on demand", flawed{prune: func(q *store.PruneQuery) {
			if len(q.Statuses) == 1 && q.Statuses[0] == machine.RunSuspended {
				q.Statuses = nil
			}
		}}, "what must not be pruned"},
		{"a pruned run comes back", flawed{pruned: func(s *flawed, _ store.PruneQuery, p *store.Pruned) {
			if p.Runs == 1 && p.Nodes == 3 {
				_, _, _ = s.Memory.Create(context.Background(), store.NewRun{ID: "r"})
			}
		}}, "a pruned run leaves nothing"},
		{"blobs stay", flawed{prune: func(q *store.PruneQuery) { q.Blobs = nil }}, blobs},
		{"young blobs are removed", flawed{prune: func(q *store.PruneQuery) {
			if q.Blobs != nil {
				q.Blobs = eager{q.Blobs}
			}
		}}, blobs},
		{"blobs of the inputs are forgotten", flawed{insert: func(r *store.Run) { r.Inputs = nil }}, blobs},
		{"blobs of records are forgotten", flawed{commit: func(c *store.Commit) {
			for i := range c.Nodes {
				c.Nodes[i].Record = nil
			}
		}}, blobs},
		{"blobs of records that are replaced are forgotten", flawed{commit: func(c *store.Commit) {
			if c.Run != nil {
				c.Run = json.RawMessage("{}")
			}
		}}, "blobs of what was replaced"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckAdmin, func() store.Admin {
			s := row.store
			s.Memory = new(store.Memory)
			return &s
		})
	}
}

// late returns t plus 1 ms, or the zero time if t is zero.
func late(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Millisecond)
}
