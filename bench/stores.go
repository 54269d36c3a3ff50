package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// The type `load` is a workload over a store: runs of one graph, at the same time or one after the other.
type load struct {
	name  string
	runs  int
	nodes int
	turns bool // whether the runs are performed one after the other
	plan  *kahn.Plan
}

func loads() ([]load, error) {
	row := func(n int) *kahn.Graph {
		g := new(kahn.Graph)
		for i := range n {
			node := kahn.Node{ID: fmt.Sprint("n", i)}
			if i > 0 {
				node.After = []string{fmt.Sprint("n", i-1)}
			}
			g.Add(node)
		}
		return g
	}
	fan := new(kahn.Graph).Add(kahn.Node{ID: "root"})
	for i := range 100 {
		fan.Add(kahn.Node{ID: fmt.Sprint("n", i), After: []string{"root"}})
	}
	list := []load{{name: "1 run of 1,000 in a chain", runs: 1, nodes: 1000}, {name: "100 runs of 30", runs: 100, nodes: 30}, {name: "a fan of 100", runs: 10, nodes: 101, turns: true}}
	for i, g := range []*kahn.Graph{row(1000), row(30), fan} {
		plan, err := g.Compile()
		if err != nil {
			return nil, err
		}
		list[i].plan = plan
	}
	return list, nil
}

// commits counts the write transactions of SQLite in this process, and holds the delay of each commit.
var commits struct {
	count atomic.Int64
	takes atomic.Int64 // the delay in nanoseconds
}

func init() {
	modernc.RegisterConnectionHook(func(conn modernc.ExecQuerierContext, _ string) error {
		conn.(modernc.HookRegisterer).RegisterCommitHook(func() int32 {
			commits.count.Add(1)
			if takes := commits.takes.Load(); takes > 0 {
				time.Sleep(time.Duration(takes))
			}
			return 0
		})
		return nil
	})
}

// spent is wall-clock time and processor time.
type spent struct{ took, cpu time.Duration }

func spend(f func() error) (s spent, err error) {
	user, kernel, err1 := processTimes()
	begin := time.Now()
	err = f()
	s.took = time.Since(begin)
	userAfter, kernelAfter, err2 := processTimes()
	s.cpu = userAfter + kernelAfter - user - kernel
	return s, errors.Join(err, err1, err2)
}

// The method `perform` performs the load over a store, and measures it.
func (l *load) perform(s store.Store) (spent, error) {
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	return spend(func() error {
		errs := make([]error, l.runs)
		var wg sync.WaitGroup
		for i := range l.runs {
			wg.Go(func() {
				_, errs[i] = l.plan.Execute(context.Background(), step, kahn.RunID(fmt.Sprint("r", i)), kahn.Durable(s))
			})
			if l.turns {
				wg.Wait()
			}
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// slow is a store in memory whose commits take the time `takes`.
type slow struct {
	store.Memory
	takes time.Duration
}

func (s *slow) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.takes > 0 {
		time.Sleep(s.takes)
	}
	return s.Memory.Commit(ctx, l, c)
}

// recorder wraps a store and records the commits that the store has applied.
type recorder struct {
	store.Store
	mu      sync.Mutex
	applied map[string][]store.Commit // by run
}

func (s *recorder) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	a, err := s.Store.Commit(ctx, l, c)
	if a == store.AppliedNow {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.applied[l.Run] = append(s.applied[l.Run], c)
	}
	return a, err
}

// The function `stores` measures runs over stores. It compares them with a program that writes the same rows without an engine.
func stores(out io.Writer, rounds int) error {
	list, err := loads()
	if err != nil {
		return err
	}
	defer commits.takes.Store(0)
	t := table{header: []string{"runs", "a commit takes", "rows alone, steps/s", "SQLite, steps/s", "/ rows alone", "by CPU", "memory, steps/s", "transactions a step", "bytes a step", "bytes of log a step"}}
	for _, l := range list {
		for _, takes := range []time.Duration{0, time.Millisecond} {
			row, err := l.measure(rounds, takes)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			t.add(append([]string{l.name, fmt.Sprint(takes)}, row...)...)
		}
	}
	commits.takes.Store(0)
	fmt.Fprintf(out, "### runs over stores\n\n")
	t.print(out)
	return errors.Join(onDisk(out, list, rounds), overServer(out, list, rounds))
}

// onDisk compares SQLite's synchronous modes Full and Normal on the disk of this machine.
func onDisk(out io.Writer, list []load, rounds int) error {
	t := table{header: []string{"runs", "Full, steps/s", "Normal, steps/s"}}
	for _, l := range list {
		var speeds [2][]float64
		for range rounds {
			for i, synchronous := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
				r, err := l.overSQLite(sqlite.Options{Synchronous: synchronous})
				if err != nil {
					return err
				}
				speeds[i] = append(speeds[i], l.speed(r.took))
			}
		}
		t.add(l.name, thousands(int(median(speeds[0]))), thousands(int(median(speeds[1]))))
	}
	fmt.Fprintf(out, "\n### SQLite on this disk\n\n")
	t.print(out)
	return nil
}

func (l *load) speed(took time.Duration) float64 {
	return float64(l.runs*l.nodes) / took.Seconds()
}

// The method `measure` returns a row of the table. In each round it performs the load over SQLite, writes the load's rows without the engine, and
// performs the load over a store in memory.
func (l *load) measure(rounds int, takes time.Duration) (row []string, err error) {
	commits.takes.Store(0)
	recorded := &recorder{Store: new(store.Memory), applied: map[string][]store.Commit{}}
	if _, err := l.perform(recorded); err != nil {
		return nil, err
	}
	sized, err := l.sizes()
	if err != nil {
		return nil, err
	}
	var alone, db, ratio, byCPU, memory, transactions []float64
	for range rounds {
		commits.takes.Store(int64(takes))
		r, err := l.overSQLite(sqlite.Options{Synchronous: sqlite.Normal})
		if err != nil {
			return nil, err
		}
		rows, err := l.rowsAlone(recorded.applied, int(r.transactions))
		if err != nil {
			return nil, err
		}
		inMemory, err := l.perform(&slow{takes: takes})
		if err != nil {
			return nil, err
		}
		alone, db, memory = append(alone, l.speed(rows.took)), append(db, l.speed(r.took)), append(memory, l.speed(inMemory.took))
		ratio, byCPU = append(ratio, rows.took.Seconds()/r.took.Seconds()), append(byCPU, rows.cpu.Seconds()/r.cpu.Seconds())
		transactions = append(transactions, float64(r.transactions)/float64(l.runs*l.nodes))
	}
	steps := float64(l.runs * l.nodes)
	return []string{
		thousands(int(median(alone))), thousands(int(median(db))), fmt.Sprintf("%.2f", median(ratio)), fmt.Sprintf("%.2f", median(byCPU)), thousands(int(median(memory))),
		fmt.Sprintf("%.2f", median(transactions)), thousands(int(float64(sized.rest) / steps)), thousands(int(float64(sized.log) / steps)),
	}, nil
}

// overSQLite performs the load over a new database, and measures the load.
func (l *load) overSQLite(o sqlite.Options) (r struct {
	spent
	transactions int64
}, err error) {
	err = inFolder(func(path string) error {
		s, err := sqlite.Open(path, o)
		if err != nil {
			return err
		}
		warm := new(kahn.Graph).Add(kahn.Node{ID: "warm", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
		if _, err := kahn.Execute(context.Background(), warm, nil, kahn.RunID("warm"), kahn.Durable(s)); err != nil {
			return errors.Join(err, s.Close())
		}
		before := commits.count.Load()
		r.spent, err = l.perform(s)
		r.transactions = commits.count.Load() - before
		return errors.Join(err, s.Close())
	})
	return r, err
}

// sizes returns how many bytes the load adds to an empty database, and how many bytes it writes to the log.
func (l *load) sizes() (r struct{ rest, log int64 }, err error) {
	err = inFolder(func(path string) error {
		s, err := sqlite.Open(path, sqlite.Options{})
		if err != nil {
			return err
		}
		emptyRest, emptyLog, err := measureFiles(s, path)
		if err != nil {
			return err
		}
		reader, err := s.DB().Conn(context.Background()) // its open transaction keeps SQLite from overwriting the log
		if err != nil {
			return err
		}
		if _, err := reader.ExecContext(context.Background(), "BEGIN; SELECT count(*) FROM kahn_runs"); err != nil {
			return err
		}
		if _, err := l.perform(s); err != nil {
			return err
		}
		rest, log, err := measureFiles(s, path)
		r.rest, r.log = rest-emptyRest, log-emptyLog
		_, ended := reader.ExecContext(context.Background(), "ROLLBACK")
		return errors.Join(err, ended, reader.Close(), s.Close())
	})
	return r, err
}

func measureFiles(s *sqlite.Store, path string) (rest, log int64, err error) {
	err = s.DB().QueryRow("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&rest)
	if err != nil {
		return 0, 0, err
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		return 0, 0, err
	}
	return rest, info.Size(), nil
}

func inFolder(f func(path string) error) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	return errors.Join(f(filepath.Join(dir, "runs.db")), os.RemoveAll(dir))
}

// rowsAlone writes the rows of the load in the way of a program without an engine. It computes the values before the measurement. The first statement
// of each commit checks the lease. rowsAlone uses about the given number of transactions: as many as the runs have used.
func (l *load) rowsAlone(applied map[string][]store.Commit, transactions int) (r spent, err error) {
	err = inFolder(func(path string) error {
		s, err := sqlite.Open(path, sqlite.Options{Synchronous: sqlite.Normal})
		if err != nil {
			return err
		}
		_, err = s.DB().Exec("INSERT INTO kahn_runs (run, id, status, sequence, nodes, created, epoch, owner, expires, process, checksum) SELECT value, value, 'running', 0, 0, 0, 1, 'owner', 1e15, 0, 0 FROM json_each(?)", numbers(l.runs))
		if err != nil {
			return errors.Join(err, s.Close())
		}
		conn, err := s.DB().Conn(context.Background())
		if err != nil {
			return errors.Join(err, s.Close())
		}
		err = conn.Raw(func(c any) error {
			w, err := newRowWriter(c.(driver.Conn))
			if err != nil {
				return err
			}
			work := l.rows(applied)
			r, err = spend(func() error { return w.write(work, max(1, (len(work)+transactions-1)/transactions)) })
			return errors.Join(err, w.close())
		})
		return errors.Join(err, conn.Close(), s.Close())
	})
	return r, err
}

// The function `numbers` returns the numbers from 1 to n as a JSON list.
func numbers(n int) string {
	text := "[1"
	for i := 2; i <= n; i++ {
		text += fmt.Sprint(",", i)
	}
	return text + "]"
}

// rowsOf holds the rows of a commit.
type rowsOf [][]driver.NamedValue

// commitOf is a commit with the number of its run. The numbers begin with 0.
type commitOf struct {
	run int
	store.Commit
}

// The method `order` returns the commits of all runs. If the load performs its runs one after the other, the commits are in the order of the runs.
// Otherwise the first commits of all runs come first, then the second commits, and so on.
func (l *load) order(applied map[string][]store.Commit) (list []commitOf) {
	of := func(run int) []store.Commit { return applied[fmt.Sprint("r", run)] }
	if l.turns {
		for run := range l.runs {
			for _, c := range of(run) {
				list = append(list, commitOf{run, c})
			}
		}
		return list
	}
	for i, found := 0, true; found; i++ {
		found = false
		for run := range l.runs {
			if commits := of(run); i < len(commits) {
				list, found = append(list, commitOf{run, commits[i]}), true
			}
		}
	}
	return list
}

// The method `rows` returns the rows of each commit that has rows.
func (l *load) rows(applied map[string][]store.Commit) (work []rowsOf) {
	numbers := map[string]int64{} // the numbers of the nodes, by run and id
	nodes := make([]int64, l.runs)
	for _, c := range l.order(applied) {
		var rows rowsOf
		for _, n := range c.Nodes {
			key := fmt.Sprint(c.run, n.Node)
			number, ok := numbers[key]
			if !ok {
				number = nodes[c.run]
				numbers[key] = number
				nodes[c.run]++
			}
			values := []driver.Value{
				int64(c.run+1)<<24 + number, n.Node, int64(c.Sequence), int64(1), int64(1), int64(0), int64(1), int64(1), int64(1), n.Status.String(), nil,
				n.Start.UnixNano(), n.End.UnixNano(), n.Hash, []byte(n.Value), []byte(n.Record), int64(0), int64(c.run + 1), int64(1), "owner",
			}
			args := make([]driver.NamedValue, len(values))
			for i, v := range values {
				args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
			}
			rows = append(rows, args)
		}
		if len(rows) > 0 {
			work = append(work, rows)
		}
	}
	return work
}

// rowWriter writes rows with prepared statements.
type rowWriter struct{ begin, commit, checked, row driver.Stmt }

func newRowWriter(conn driver.Conn) (w *rowWriter, err error) {
	const row = "REPLACE INTO kahn_nodes SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
	w = new(rowWriter)
	for _, s := range []struct {
		to   *driver.Stmt
		text string
	}{
		{&w.begin, "BEGIN IMMEDIATE"}, {&w.commit, "COMMIT"}, {&w.row, row},
		{&w.checked, row + " WHERE EXISTS (SELECT 1 FROM kahn_runs WHERE run = ? AND epoch = ? AND owner = ? AND expires > " + sqlite.DefaultNow + ")"},
	} {
		stmt, failed := conn.Prepare(s.text)
		err = errors.Join(err, failed)
		*s.to = stmt
	}
	return w, err
}

func (w *rowWriter) close() error {
	return errors.Join(w.begin.Close(), w.commit.Close(), w.checked.Close(), w.row.Close())
}

// The method `write` writes the rows of commits. Each transaction contains the rows of `together` commits.
func (w *rowWriter) write(work []rowsOf, together int) error {
	execute := func(s driver.Stmt, args []driver.NamedValue) (int64, error) {
		result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), args)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}
	for len(work) > 0 {
		n := min(together, len(work))
		if _, err := execute(w.begin, nil); err != nil {
			return err
		}
		for _, rows := range work[:n] {
			for i, args := range rows {
				statement := w.row
				if i == 0 {
					statement = w.checked
				} else {
					args = args[:17]
				}
				if changed, err := execute(statement, args); err != nil || changed != 1 {
					return fmt.Errorf("a row was not written: %d, %w", changed, err)
				}
			}
		}
		if _, err := execute(w.commit, nil); err != nil {
			return err
		}
		work = work[n:]
	}
	return nil
}
