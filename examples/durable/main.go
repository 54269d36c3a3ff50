// Durable is a service whose process is killed. It serves orders over a store in a file: each order is a run with a payment and a
// gate. The first process kills itself with SIGKILL while it ships one order and has just been paid for another; a
// third order waits for its approval. The second process opens the file and goes on. The program prints which steps were called
// again: those that were under way. The payment was made once, since it is in one transaction with the result of its part of the step.
//
//	go run ./examples/durable
//
// Nothing has to be set up. The program checks its own promises, and exits with 0 if all were kept.
//
//	$ go run ./examples/durable
//	Four orders are served over a file of SQLite. The process is killed in the middle, and another one goes on.
//	process 1 serves order-1, order-2, order-3, order-4
//	process 1 is killed: order-1 has ended, order-2 is being shipped, order-3 waits for approval, order-4 has been paid a moment ago
//	process 2 goes on with order-2, order-3, order-4
//	repeated: order-2 ship, order-4 pay; their attempts were under way
//	not repeated: 14 steps
//	paid: 4 orders, each once
//	As it should be: all orders have ended, and what was repeated had not been stored as ended.
//
// With -workers 3 several processes share the file: one performs thirty orders, and the others approve and cancel them through the file. The performer is
// killed in the middle, and another one goes on.
//
//	$ go run ./examples/durable -workers 3
//	3 processes share a file of SQLite: one performs 30 orders, the others approve and cancel them.
//	the performer is killed: 8 orders are completed, 2 cancelled
//	30 orders: 24 completed, 6 cancelled; 1 steps were called again, no order was paid twice
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
	"path/filepath"
	"strings"
)

// The environment of a process that serves the orders: where its file is, and which process it is.
const (
	dirVariable  = "KAHN_DURABLE_DIR"
	lifeVariable = "KAHN_DURABLE_LIFE"
)

func main() {
	if dir := os.Getenv(dirVariable); dir != "" {
		life, err := os.Getenv(lifeVariable), error(nil)
		if strings.HasPrefix(life, performer) || strings.HasPrefix(life, desk) {
			err = work(context.Background(), dir, life)
		} else {
			err = serve(context.Background(), os.Stdout, dir, life)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "durable:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command is the program without the process around it. It returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("durable", flag.ContinueOnError)
	flags.SetOutput(stderr)
	workers := flags.Int("workers", 0, "how many processes share the file, at least 2; 0: one after the other")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "durable: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	switch {
	case *workers < 0 || *workers == 1:
		fmt.Fprintf(stderr, "durable: -workers %d: at least 2\n", *workers)
		return 2
	case *workers > 0:
		return commandWorkers(*workers, stdout, stderr)
	}
	fmt.Fprintln(stdout, "Four orders are served over a file of SQLite. The process is killed in the middle, and another one goes on.")
	if err := run(stdout); err != nil {
		fmt.Fprintln(stderr, "durable:", err)
		return 1
	}
	fmt.Fprintln(stdout, "As it should be: all orders have ended, and what was repeated had not been stored as ended.")
	return 0
}

// commandWorkers is the program with several processes at once.
func commandWorkers(workers int, stdout, stderr io.Writer) int {
	fmt.Fprintf(stdout, "%d processes share a file of SQLite: one performs %d orders, the others approve and cancel them.\n", workers, workerOrders)
	if err := runWorkers(stdout, workers); err != nil {
		fmt.Fprintln(stderr, "durable:", err)
		return 1
	}
	fmt.Fprintln(stdout, "As it should be: the counts add up.")
	return 0
}

// run starts the two processes and judges what they have left.
func run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder that cannot be removed does no harm
	own, err := os.Executable()
	if err != nil {
		return err
	}
	for _, life := range []string{"1", "2"} {
		process := exec.Command(own)
		process.Env = append(os.Environ(), dirVariable+"="+dir, lifeVariable+"="+life)
		process.Stdout, process.Stderr = out, out
		err := process.Run()
		switch exited := process.ProcessState != nil && process.ProcessState.Success(); {
		case life == "1" && exited:
			return errors.New("process 1 was not killed")
		case life == "2" && err != nil:
			return fmt.Errorf("process 2: %w", err)
		}
	}
	return judge(out, filepath.Join(dir, fileName))
}
