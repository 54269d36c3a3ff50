// Durable is a service whose process is killed. The service performs orders, which it stores in a file: each order is a run with a payment and a
// gate. The first process kills itself with SIGKILL. At this moment one order is being shipped, another order has just been paid, and a third order
// waits for its approval. The second process opens the file and continues the orders. The program prints which steps were called again: only the
// steps that were running when the first process was killed. Each payment was made only once: a payment and its number are stored in one
// transaction, and a repeated payment step finds the stored number.
//
//	go run ./examples/durable
//
// Nothing has to be set up. The program checks its own results, and exits with 0 if all are as expected.
//
//	$ go run ./examples/durable
//	Four orders are served over a file of SQLite. The process is killed in the middle, and another one continues them.
//	process 1 serves order-1, order-2, order-3, order-4
//	process 1 is killed: order-1 has ended, order-2 is being shipped, order-3 waits for approval, order-4 has been paid a moment ago
//	process 2 continues order-2, order-3, order-4
//	repeated: order-2 ship, order-4 pay; their attempts were running
//	not repeated: 14 steps
//	paid: 4 orders, each once
//	As it should be: all orders have ended, and what was repeated had not been stored as ended.
//
// With -workers 3, three processes share the file: one process performs thirty orders, and the two others approve or cancel them through the file.
// The program kills the performer before all orders have ended, and starts another performer, which continues the orders.
//
//	$ go run ./examples/durable -workers 3
//	3 processes share a file of SQLite: one performs 30 orders, the others approve and cancel them.
//	the performer is killed: 8 orders are completed, 2 cancelled
//	30 orders: 24 completed, 6 cancelled; 1 steps were called again, no order was paid twice
//	As it should be: the counts add up.
//
// With -postgres and the URL of a database, three processes perform a hundred orders over PostgreSQL; -workers sets another number of processes. The
// program creates a schema for the orders, and removes the schema afterwards. It stops one process until the leases of this process have run out,
// and kills another process. With -postgres local the program starts a server of its own. The line before the last line of the output compares the
// stored nodes with the server's record of all writes.
//
//	$ go run ./examples/durable -postgres local
//	3 processes share a database of PostgreSQL, and perform 100 orders; another one approves and cancels them.
//	performer-1 is stopped with 4 orders in flight, and performer-2 is killed with 4
//	the others have ended all orders; performer-1 continues
//	performer-1 has lost 4 orders to others, since its leases had run out
//	100 orders: 80 completed, 20 cancelled; 8 steps were called again, no order was paid twice
//	358 nodes, recorded as ended 358 times; 366 calls; recorded twice: 0
//	As it should be: the counts add up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
)

// The program sets these environment variables for each process that it starts. They contain the place of the ledger, and the number or the name of
// the process.
const (
	dirVariable    = "KAHN_DURABLE_DIR"
	urlVariable    = "KAHN_DURABLE_URL"
	schemaVariable = "KAHN_DURABLE_SCHEMA"
	lifeVariable   = "KAHN_DURABLE_LIFE"
)

// place says where a ledger is: in a folder, or in a schema of a PostgreSQL database.
type place struct{ dir, url, schema string }

func (p place) open(ctx context.Context) (ledger, error) {
	if p.url == "" {
		return openFile(p.dir)
	}
	return openDatabase(ctx, p)
}

// The method `process` returns the command that starts a process of this program.
func (p place) process(ctx context.Context, life string) (*exec.Cmd, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, own)
	process.Env = append(os.Environ(), dirVariable+"="+p.dir, urlVariable+"="+p.url, schemaVariable+"="+p.schema, lifeVariable+"="+life)
	return process, nil
}

func main() {
	life := os.Getenv(lifeVariable)
	if life == "" {
		os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
	}
	does := serve
	if strings.HasPrefix(life, performer) || strings.HasPrefix(life, desk) {
		does = serveWorker
	}
	p := place{os.Getenv(dirVariable), os.Getenv(urlVariable), os.Getenv(schemaVariable)}
	if err := does(context.Background(), os.Stdout, p, life); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

// local is the value of -postgres that makes the program start a server.
const local = "local"

// command runs the program and returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("durable", flag.ContinueOnError)
	flags.SetOutput(stderr)
	workers := flags.Int("workers", 0, "the number of processes that share the work, at least 2, or at least 3 with -postgres; 0 means one process after the other, or 3 with -postgres")
	url := flags.String("postgres", "", `use the PostgreSQL database at this URL; "local" starts a server; without this flag the program uses SQLite`)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	least := 2
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "postgres" {
			least = 3
		}
	})
	switch {
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "durable: unexpected argument %q\n", flags.Arg(0))
		return 2
	case *workers < 0 || *workers > 0 && *workers < least:
		fmt.Fprintf(stderr, "durable: -workers %d: there must be at least %d processes\n", *workers, least)
		return 2
	case least == 3 && *url == "":
		fmt.Fprintln(stderr, "durable: -postgres needs the URL of a database, postgres://user:password@host/database, or \"local\", which starts a server")
		return 2
	}
	begins, ends := "Four orders are served over a file of SQLite. The process is killed in the middle, and another one continues them.",
		"As it should be: all orders have ended, and what was repeated had not been stored as ended."
	does := func() error { return run(stdout) }
	switch {
	case *url != "":
		n := max(*workers, 3)
		begins, ends = fmt.Sprintf("%d processes share a database of PostgreSQL, and perform %d orders; another one approves and cancels them.", n, manyOrders.orders), "As it should be: the counts add up."
		does = func() error { return onServer(*url, func(url string) error { return runPostgres(stdout, url, n) }) }
	case *workers > 0:
		begins, ends = fmt.Sprintf("%d processes share a file of SQLite: one performs %d orders, the others approve and cancel them.", *workers, fewOrders.orders), "As it should be: the counts add up."
		does = func() error { return runWorkers(stdout, *workers) }
	}
	fmt.Fprintln(stdout, begins)
	if err := does(); err != nil {
		fmt.Fprintln(stderr, "durable:", err)
		return 1
	}
	fmt.Fprintln(stdout, ends)
	return 0
}

// onServer calls f with the URL of a database. If the parameter url has the value of the constant `local`, onServer first starts a server.
func onServer(url string, f func(url string) error) error {
	if url != local {
		return f(url)
	}
	err := localserver.WithDatabase(f)
	if errors.Is(err, localserver.ErrNoServer) {
		return fmt.Errorf("%w: install it (apt-get install postgresql), or start one (docker run -p 5432:5432 -e POSTGRES_PASSWORD=kahn postgres) and give its URL (postgres://postgres:kahn@localhost/postgres)", err)
	}
	return err
}

// run starts the two processes, one after the other, and then checks the orders in the ledger.
func run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary folder does no harm
	p := place{dir: dir}
	for _, life := range []string{"1", "2"} {
		process, err := p.process(context.Background(), life)
		if err != nil {
			return err
		}
		process.Stdout, process.Stderr = out, out
		err = process.Run()
		switch exited := process.ProcessState != nil && process.ProcessState.Success(); {
		case life == "1" && exited:
			return errors.New("process 1 was not killed")
		case life == "2" && err != nil:
			return fmt.Errorf("process 2: %w", err)
		}
	}
	return judge(context.Background(), out, p)
}
