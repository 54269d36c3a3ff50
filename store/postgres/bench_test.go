package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// BenchmarkRuns performs runs of steps that do nothing, and writes the rows of their commits without an engine in the same round: one prepared
// statement for as many commits as the engine's runs have shared on average, with the lease checked, over one connection and with arguments
// that were made before. Each metric is the median of the rounds; "/floor" is the ratio of the two speeds, and "/chain-floor" that to
// the speed of the rows of the chain.
//
//	go test -run '^$' -bench Runs -benchtime 7x .
func BenchmarkRuns(b *testing.B) {
	fan := new(kahn.Graph).Add(kahn.Node{ID: "root"})
	for i := range 100 {
		fan.Add(kahn.Node{ID: fmt.Sprint("n", i), After: []string{"root"}})
	}
	chain := load{graph: row(1000), runs: 1, nodes: 1000}
	loads := []struct {
		name string
		load
	}{{"chain of 1000", chain}, {"100 runs of 30", load{graph: row(30), runs: 100, nodes: 30}}, {"fans of 100", load{graph: fan, runs: 10, nodes: 101, turns: true}}}
	ctx, counter := context.Background(), new(statements)
	config, err := pgxpool.ParseConfig(database)
	must(b, err)
	config.ConnConfig.Tracer = counter
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(b, err)
	defer pool.Close()
	schema := newSchema()
	s, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
	must(b, err)
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			var speeds, floors, ratios, overChain, perStep []float64
			for b.Loop() {
				before := counter.count.Load()
				recorded := &recorder{Store: s, commits: map[string][]store.Commit{}}
				speed := l.perform(b, recorded)
				statements := int(counter.count.Load() - before)
				floor := l.floor(b, pool, schema, recorded.commits, max(1, statements-2*l.runs))
				chainFloor := floor
				if l.runs > 1 {
					chainFloor = chain.chainFloor(b, pool, schema)
				}
				speeds, floors, ratios = append(speeds, speed), append(floors, floor), append(ratios, speed/floor)
				overChain, perStep = append(overChain, speed/chainFloor), append(perStep, float64(statements)/float64(l.runs*l.nodes))
			}
			b.ReportMetric(0, "ns/op")
			for unit, values := range map[string][]float64{"steps/s": speeds, "floor-steps/s": floors, "/floor": ratios, "/chain-floor": overChain, "statements/step": perStep} {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], unit)
			}
		})
	}
	must(b, s.Close())
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// load is what is performed: runs of one graph, at once or one after the other.
type load struct {
	graph       *kahn.Graph
	runs, nodes int
	turns       bool
}

// recorder is a store that records what it has applied.
type recorder struct {
	store.Store
	mu      sync.Mutex
	commits map[string][]store.Commit
}

func (s *recorder) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	a, err := s.Store.Commit(ctx, l, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits[l.Run] = append(s.commits[l.Run], c)
	return a, err
}

var benched int

// perform performs the load and returns its steps in a second.
func (l *load) perform(b *testing.B, s store.Store) float64 {
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	benched++
	errs := make([]error, l.runs)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range l.runs {
		wg.Go(func() {
			_, errs[i] = kahn.Execute(context.Background(), l.graph, step, kahn.RunID(fmt.Sprintf("%d-%d", benched, i)), kahn.Durable(s))
		})
		if l.turns {
			wg.Wait()
		}
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		must(b, err)
	}
	return float64(l.runs*l.nodes) / took.Seconds()
}

// chainFloor is the floor of a chain: each step is a commit that ends a node and begins the next one.
func (l *load) chainFloor(b *testing.B, pool *pgxpool.Pool, schema string) float64 {
	benched++
	var commits []store.Commit
	now := time.Now()
	for i := range l.nodes + 1 {
		c := store.Commit{Sequence: uint64(i + 1)}
		for k := max(0, i-1); k <= min(i, l.nodes-1); k++ {
			c.Nodes = append(c.Nodes, store.NodeRecord{Node: fmt.Sprint("n", k), Columns: store.Columns{Status: kahn.Completed, Start: now, End: now, Hash: make([]byte, 16), Value: []byte("null"), Record: []byte(`{"event":17,"latest":18}`)}})
		}
		commits = append(commits, c)
	}
	return l.floor(b, pool, schema, map[string][]store.Commit{fmt.Sprint(benched, "-0"): commits}, len(commits))
}

// floor writes the rows of commits, in so many statements, and returns the steps in a second.
func (l *load) floor(b *testing.B, pool *pgxpool.Pool, schema string, commits map[string][]store.Commit, statements int) float64 {
	ctx := context.Background()
	runs := map[string]int64{}
	total := 0
	for id, list := range commits {
		var number int64
		must(b, pool.QueryRow(ctx, "INSERT INTO "+table(schema, "runs")+" (id, status, sequence, created, epoch, owner, expires) VALUES ($1, 'running', 0, now(), 1, 'owner', 'infinity') RETURNING run",
			"floor "+id).Scan(&number))
		runs[id] = number
		total += len(list)
	}
	work := floorStatements(runs, commits, (total+statements-1)/statements)
	conn, err := pool.Acquire(ctx)
	must(b, err)
	defer conn.Release()
	text := "WITH held AS (UPDATE " + table(schema, "runs") + " r SET sequence = w.sequence FROM unnest($1::bigint[], $2::bigint[]) AS w(run, sequence) " +
		"WHERE r.run = w.run AND r.owner = 'owner' AND r.epoch = 1 AND r.expires > clock_timestamp() RETURNING r.run) " +
		"INSERT INTO " + table(schema, "nodes") + " AS o (run, node, attempt, resolved, required, terminal, queued, completed, key, status, started, ended, hash, value, record) " +
		"SELECT n.run, n.node, 1, 1, 1, true, false, true, n.key, n.status, n.started, n.ended, n.hash, n.value, n.record " +
		"FROM unnest($3::bigint[], $4::integer[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[], $9::bytea[], $10::bytea[], $11::bytea[]) AS n(run, node, key, status, started, ended, hash, value, record) " +
		"JOIN held USING (run) ON CONFLICT (run, node) DO UPDATE SET status = excluded.status, ended = excluded.ended, value = excluded.value, record = excluded.record RETURNING run"
	began := time.Now()
	for _, args := range work {
		rows, err := conn.Query(ctx, text, args...)
		must(b, err)
		_, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		must(b, err)
	}
	return float64(l.runs*l.nodes) / time.Since(began).Seconds()
}

// floorStatements are the arguments of statements of so many commits, in turn of all runs.
func floorStatements(runs map[string]int64, commits map[string][]store.Commit, together int) (work [][]any) {
	numbers := map[string]map[string]int32{}
	var batch []store.Commit
	var of []string
	flush := func() {
		var sequences, commitRuns, nodeRuns []int64
		var nodes []int32
		var keys, statuses []string
		var starts, ends []*time.Time
		var hashes, values, records [][]byte
		for i, c := range batch {
			run := of[i]
			commitRuns, sequences = append(commitRuns, runs[run]), append(sequences, int64(c.Sequence))
			for _, n := range c.Nodes {
				if numbers[run] == nil {
					numbers[run] = map[string]int32{}
				}
				number, ok := numbers[run][n.Node]
				if !ok {
					number = int32(len(numbers[run]))
					numbers[run][n.Node] = number
				}
				nodeRuns, nodes, keys, statuses = append(nodeRuns, runs[run]), append(nodes, number), append(keys, n.Node), append(statuses, n.Status.String())
				starts, ends = append(starts, &n.Start), append(ends, &n.End)
				hashes, values, records = append(hashes, n.Hash), append(values, n.Value), append(records, n.Record)
			}
		}
		if len(batch) > 0 {
			work = append(work, []any{commitRuns, sequences, nodeRuns, nodes, keys, statuses, starts, ends, hashes, values, records})
		}
		batch, of = nil, nil
	}
	for i, found := 0, true; found; i++ {
		found = false
		for id := range runs {
			if i < len(commits[id]) {
				found = true
				if slices.Contains(of, id) || len(batch) == together { // a statement has one commit of a run
					flush()
				}
				batch, of = append(batch, commits[id][i]), append(of, id)
			}
		}
	}
	flush()
	return work
}
