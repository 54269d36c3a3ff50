package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
)

// server is a PostgreSQL database with the tables of a store.
type server struct {
	store      *postgres.Store
	pool       *pgxpool.Pool
	statements atomic.Int64 // the number of statements executed over the pool
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *server) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.statements.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*server) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// onServer calls f with a new database. The database is on the server that KAHN_POSTGRES names. If this environment variable is empty, onServer
// starts a server.
func onServer(f func(s *server) error) error {
	return localserver.WithDatabase(func(url string) error {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return err
		}
		s := new(server)
		config.ConnConfig.Tracer, config.MaxConns = s, 8
		if s.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
			return err
		}
		defer s.pool.Close()
		if s.store, err = postgres.Open(context.Background(), s.pool, postgres.Options{}); err != nil {
			return err
		}
		return errors.Join(f(s), s.store.Close())
	})
}

// overServer performs the loads over PostgreSQL. After each load it writes the rows of the load's commits without an engine. It prints the speeds and
// their ratios.
func overServer(out io.Writer, list []load, rounds int) error {
	t := table{header: []string{"runs", "rows alone, steps/s", "PostgreSQL, steps/s", "/ rows alone", "/ rows of the chain alone", "statements a step"}}
	err := onServer(func(s *server) error {
		turns := make([][]turn, len(list))
		for range rounds {
			for i := range list {
				turn, err := s.turn(&list[i])
				if err != nil {
					return fmt.Errorf("%s: %w", list[i].name, err)
				}
				turns[i] = append(turns[i], turn)
			}
		}
		for i, l := range list {
			of := func(f func(own, chain turn) float64) float64 {
				var values []float64
				for round, turn := range turns[i] {
					values = append(values, f(turn, turns[0][round]))
				}
				return median(values)
			}
			t.add(l.name, thousands(int(of(func(own, _ turn) float64 { return own.floor }))), thousands(int(of(func(own, _ turn) float64 { return own.speed }))),
				fmt.Sprintf("%.2f", of(func(own, _ turn) float64 { return own.speed / own.floor })), fmt.Sprintf("%.2f", of(func(own, chain turn) float64 { return own.speed / chain.floor })),
				fmt.Sprintf("%.2f", of(func(own, _ turn) float64 { return own.statements })))
		}
		return nil
	})
	if errors.Is(err, localserver.ErrNoServer) {
		_, err = fmt.Fprintf(out, "\nPostgreSQL was left out, since there is no server: install it (apt-get install postgresql), or set %s to the URL of a role that may create databases.\n", localserver.ServerURL)
		return err
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n### PostgreSQL\n\n")
	t.print(out)
	return nil
}

// turn holds the measurements of a load in one round: the steps per second with the engine (speed) and without it (floor), and the statements per
// step.
type turn struct{ speed, floor, statements float64 }

// turn performs a load with the engine, and then writes the rows of the load's commits without the engine. It writes them with about as many
// statements as the engine has used. The two statements that acquire and release each run do not count.
func (s *server) turn(l *load) (t turn, err error) {
	if err := s.clear(); err != nil {
		return t, err
	}
	recorded := &recorder{Store: s.store, applied: map[string][]store.Commit{}}
	before := s.statements.Load()
	with, err := l.perform(recorded)
	if err != nil {
		return t, err
	}
	statements := s.statements.Load() - before
	without, err := s.rowsAlone(l, recorded.applied, max(1, int(statements)-2*l.runs)) // the two statements that acquire and release a run do not count
	if err != nil {
		return t, err
	}
	return turn{l.speed(with.took), l.speed(without), float64(statements) / float64(l.runs*l.nodes)}, nil
}

// clear empties the tables.
func (s *server) clear() error {
	_, err := s.pool.Exec(context.Background(), "TRUNCATE kahn.runs, kahn.nodes RESTART IDENTITY")
	return err
}

// floorText is the statement with which a program without an engine would write the rows of several commits. These commits belong to different runs.
// The statement checks the leases.
const floorText = `WITH held AS (
	UPDATE kahn.runs r SET sequence = w.sequence FROM unnest($1::bigint[], $2::bigint[]) AS w(run, sequence)
	WHERE r.run = w.run AND r.owner = 'owner' AND r.epoch = 1 AND r.expires > clock_timestamp() RETURNING r.run
)
INSERT INTO kahn.nodes (run, node, attempt, resolved, required, terminal, queued, completed, key, status, started, ended, hash, value, record)
SELECT n.run, n.node, 1, 1, 1, true, false, true, n.key, n.status, n.started, n.ended, n.hash, n.value, n.record
FROM unnest($3::bigint[], $4::integer[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[], $9::bytea[], $10::bytea[], $11::bytea[])
	AS n(run, node, key, status, started, ended, hash, value, record) JOIN held USING (run)
ON CONFLICT (run, node) DO UPDATE SET status = excluded.status, ended = excluded.ended, value = excluded.value, record = excluded.record RETURNING run`

// rowsAlone writes the rows of commits over one connection, with about the given number of statements. It returns how long the writing takes. It
// prepares the arguments of the statements before the measurement.
func (s *server) rowsAlone(l *load, applied map[string][]store.Commit, statements int) (took time.Duration, err error) {
	ctx := context.Background()
	if err := s.clear(); err != nil {
		return 0, err
	}
	_, err = s.pool.Exec(ctx, "INSERT INTO kahn.runs (id, status, sequence, created, epoch, owner, expires) SELECT i, 'running', 0, now(), 1, 'owner', 'infinity' FROM generate_series(1, $1) i", l.runs)
	if err != nil {
		return 0, err
	}
	commits := l.order(applied)
	work := floorStatements(commits, (len(commits)+statements-1)/statements)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	began := time.Now()
	for i := range work {
		rows, err := conn.Query(ctx, floorText, work[i].args()...)
		if err != nil {
			return 0, err
		}
		if _, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// floorStatement holds the arguments for one execution of floorText, one list per column.
type floorStatement struct {
	runs, sequences, nodeRuns []int64
	nodes                     []int32
	keys, statuses            []string
	starts, ends              []*time.Time
	hashes, values, records   [][]byte
}

func (f *floorStatement) args() []any {
	return []any{f.runs, f.sequences, f.nodeRuns, f.nodes, f.keys, f.statuses, f.starts, f.ends, f.hashes, f.values, f.records}
}

// floorStatements groups commits into statements, and keeps their order. A statement has at most `together` commits, and at most one commit of each
// run.
func floorStatements(commits []commitOf, together int) (work []floorStatement) {
	numbers := map[int]map[string]int32{} // the numbers of the nodes, by run and id
	inLast := map[int]bool{}              // the runs that have a commit in the last statement
	for _, c := range commits {
		if len(work) == 0 || inLast[c.run] || len(inLast) == together {
			work = append(work, floorStatement{})
			clear(inLast)
		}
		inLast[c.run] = true
		f, run := &work[len(work)-1], int64(c.run+1)
		f.runs, f.sequences = append(f.runs, run), append(f.sequences, int64(c.Sequence))
		if numbers[c.run] == nil {
			numbers[c.run] = map[string]int32{}
		}
		for i := range c.Nodes {
			n := &c.Nodes[i]
			number, known := numbers[c.run][n.Node]
			if !known {
				number = int32(len(numbers[c.run]))
				numbers[c.run][n.Node] = number
			}
			f.nodeRuns, f.nodes, f.keys, f.statuses = append(f.nodeRuns, run), append(f.nodes, number), append(f.keys, n.Node), append(f.statuses, n.Status.String())
			f.starts, f.ends = append(f.starts, &n.Start), append(f.ends, &n.End)
			f.hashes, f.values, f.records = append(f.hashes, n.Hash), append(f.values, n.Value), append(f.records, n.Record)
		}
	}
	return work
}
