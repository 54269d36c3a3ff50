// Saga performs an order in three processes. The first process is killed while it ships the goods, so it is unknown whether they were
// shipped. The second process continues the run. It cannot ship, so it begins to undo the order, and is killed while it refunds the
// charge. The third process undoes the rest. The run is stored in an SQLite file. The services write a ledger into a second file. Each
// line of the ledger contains an effect and its idempotency key.
//
//	$ go run ./examples/saga
//	process 1 is killed while it ships
//	process 2 is killed while it refunds
//	process 3: order-7 failed: run failed: node "ship": step_error: no truck
//	  process 1: reserve
//	  process 1: charge
//	  process 1: ship
//	  process 2: undo ship, which may have had an effect
//	  process 2: undo charge of "receipt of charge"
//	  process 3: undo charge of "receipt of charge", under the key of before
//	  process 3: undo reserve of "receipt of reserve"
//	As it should be: each effect is undone once, the last one first.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// The program sets these environment variables for each process that it starts. They contain the common folder, and the life of the process: "1" for the first process.
const (
	dirVariable  = "KAHN_SAGA_DIR"
	lifeVariable = "KAHN_SAGA_LIFE"
)

func main() {
	does := run
	if life := os.Getenv(lifeVariable); life != "" {
		does = func(w io.Writer) error { return serve(w, os.Getenv(dirVariable), life) }
	}
	if err := does(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "saga:", err)
		os.Exit(1)
	}
}

// services fakes the services that the order needs. Each process has its own value.
type services struct{ dir, life string }

// The method `note` writes an effect into the ledger.
func (x services) note(s *kahn.Step, what string) error {
	ledger, err := os.OpenFile(filepath.Join(x.dir, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(ledger, "%s\t%s\t%s\n", x.life, s.IdempotencyKey(), what)
	return errors.Join(err, ledger.Close())
}

// die kills this process if the given life is the life of this process.
func (x services) die(life string) {
	if x.life != life {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(err) // reached only if the process could not kill itself
}

// do performs a step of the order.
func (x services) do(_ context.Context, s *kahn.Step) (any, error) {
	if s.ID() == "ship" && x.life != "1" {
		return nil, errors.New("no truck")
	}
	if err := x.note(s, s.ID()); err != nil {
		return nil, err
	}
	if s.ID() == "ship" {
		x.die("1")
	}
	return "receipt of " + s.ID(), nil
}

// undo undoes a step of the order.
func (x services) undo(_ context.Context, s *kahn.Step) error {
	what := fmt.Sprintf("undo %s, which may have had an effect", s.ID())
	if receipt, certain := s.Compensated(); certain {
		what = fmt.Sprintf("undo %s of %q", s.ID(), receipt)
	}
	if err := x.note(s, what); err != nil {
		return err
	}
	if s.ID() == "charge" {
		x.die("2")
	}
	return nil
}

// serve performs the order, or continues it.
func serve(w io.Writer, dir, life string) (err error) {
	db, err := sqlite.Open(filepath.Join(dir, "orders.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	x := services{dir, life}
	order := new(kahn.Graph).Add(
		kahn.Node{ID: "reserve", Do: x.do, Compensate: x.undo},
		kahn.Node{ID: "charge", Do: x.do, Compensate: x.undo, After: []string{"reserve"}},
		kahn.Node{ID: "ship", Do: x.do, Compensate: x.undo, After: []string{"charge"}},
	)
	res, failure := kahn.Execute(context.Background(), order, nil, kahn.Durable(db), kahn.RunID("order-7"))
	if res == nil {
		return failure
	}
	_, err = fmt.Fprintf(w, "process %s: order-7 %v: %v\n", life, res.Status, failure)
	return err
}

// run starts one process after the other, and checks the ledger.
func run(w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "kahn-saga-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	own, err := os.Executable()
	if err != nil {
		return err
	}
	for i, dies := range []string{"while it ships", "while it refunds", ""} {
		life := fmt.Sprint(i + 1)
		process := exec.CommandContext(context.Background(), own)
		process.Env = append(os.Environ(), dirVariable+"="+dir, lifeVariable+"="+life)
		process.Stderr = os.Stderr
		out, err := process.Output()
		switch killed := (*exec.ExitError)(nil); {
		case dies != "" && errors.As(err, &killed) && killed.ExitCode() != 1:
			fmt.Fprintf(w, "process %s is killed %s\n", life, dies)
		case dies != "":
			return fmt.Errorf("process %s was to be killed: %w: %s", life, cmp.Or(err, errors.New("it was not")), out)
		case err != nil:
			return fmt.Errorf("process %s: %w", life, err)
		default:
			fmt.Fprintf(w, "%s", out)
		}
	}
	if err := check(w, filepath.Join(dir, "ledger")); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "As it should be: each effect is undone once, the last one first.")
	return err
}

// check prints the ledger. It returns nil if two rules hold: the effects in the ledger were undone in reverse order, and all calls that undo the
// same effect have the same idempotency key.
func check(w io.Writer, file string) error {
	ledger, err := os.Open(file)
	if err != nil {
		return err
	}
	var did, undid []string
	keys := map[string]string{} // by effect: the idempotency key of the calls that undo the effect
	for lines := bufio.NewScanner(ledger); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		life, key, what := fields[0], fields[1], fields[2]
		again := ""
		if name, is := strings.CutPrefix(what, "undo "); is {
			name, _, _ = strings.Cut(strings.ReplaceAll(name, ",", " "), " ")
			switch before, known := keys[name]; {
			case !known:
				keys[name], undid = key, append(undid, name)
			case before != key:
				return errors.Join(fmt.Errorf("%s was undone under the keys %s and %s", name, before, key), ledger.Close())
			default:
				again = ", under the key of before"
			}
		} else {
			did = append(did, what)
		}
		fmt.Fprintf(w, "  process %s: %s%s\n", life, what, again)
	}
	slices.Reverse(undid)
	if !slices.Equal(did, undid) {
		err = fmt.Errorf("done were %v, and undone, in reverse, %v", did, undid)
	}
	return errors.Join(err, ledger.Close())
}
