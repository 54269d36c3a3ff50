// Command bench measures the cost of kahn. It compares kahn with a hand-written executor, with an executor that uses errgroup and channels, and with
// other libraries. README.md explains the method and the tables.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

func main() {
	if url := os.Getenv(drainURL); url != "" {
		if err := drain(url, os.Getenv(drainClients)); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		return
	}
	ok, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run does the work of main, but gets the arguments and the output as parameters. ok is false if a check failed.
func run(out io.Writer, args []string) (ok bool, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	which := flags.String("table", "ratios", "the table to measure: ratios, small, build, typed, scaling, makespan, contention, lock, features, memo, scale, events, streams, stores, operating, tenants, signals, lookers or all")
	runs := flags.Int("runs", 100_000, "the number of runs for the table operating")
	rounds := flags.Int("rounds", 7, "the number of rounds, in each of which every executor has its turn; the tables show medians over the rounds")
	quick := flags.Bool("quick", false, "three short rounds, and no graph above 100,000 nodes")
	checking := flags.Bool("check", false, "measure kahn, the hand-written executor and errgroup only, and fail if kahn takes half as much again as it did, and more than its budget, or State.Drive more than 4 times Execute")
	clock := flags.Bool("clock", false, "for -check: let the hand-written executor record durations too, as kahn does")
	only := flags.String("shape", "", "measure only this shape, for the table ratios and for -check: chain, fan, layered, bipartite or single")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *rounds < 1 {
		return false, fmt.Errorf("-rounds %d: at least one", *rounds)
	}
	shapes := pick(budgets(), *only)
	if len(shapes) == 0 {
		return false, fmt.Errorf("-shape %s: no such shape", *only)
	}
	target, counts := 50*time.Millisecond, []int{1000, 10_000, 100_000, 1_000_000}
	if *quick {
		*rounds, target, counts = 3, 10*time.Millisecond, counts[:3]
	}
	fmt.Fprintf(out, "%s, %s/%s, GOMAXPROCS %d, %d rounds\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *rounds)
	if *checking {
		base := handPlain
		if *clock {
			base = handClocked
		}
		if ok, err = check(out, base, shapes, *rounds, target); err != nil || *only != "" {
			return ok, err
		}
		flat, err := checkThreads(out, *rounds, target)
		if err != nil || *clock {
			return ok && flat, err
		}
		short, err := checkSprints(out, *rounds, target)
		if err != nil {
			return false, err
		}
		drives, err := checkDrive(out, *rounds, target)
		if err != nil {
			return false, err
		}
		added, err := checkAdditions(out, *rounds, target)
		if err != nil {
			return false, err
		}
		watched, err := checkLookers(out, *rounds)
		return ok && flat && short && drives && added && watched, err
	}
	tables := []struct {
		name  string
		print func() error
	}{
		{"ratios", func() error { return ratios(out, shapes, *rounds, target) }},
		{"small", func() error { return small(out, *rounds, target) }},
		{"build", func() error { return build(out, *rounds, target) }},
		{"typed", func() error { return typedTable(out, *rounds, target) }},
		{"scaling", func() error { return scaling(out, counts, *rounds, target) }},
		{"contention", func() error { return contention(out, *rounds, target) }},
		{"lock", func() error { return lock(out, *rounds, target) }},
		{"events", func() error { return events(out, *rounds, target) }},
		{"features", func() error { return additions(out, *rounds, target) }},
		{"memo", func() error { return cached(out, *rounds, target) }},
		{"scale", func() error { return scale(out, divisor(*quick)) }},
		{"streams", func() error { return streams(out, *quick) }},
		{"stores", func() error { return stores(out, *rounds) }},
		{"operating", func() error { return operating(out, *runs) }},
		{"tenants", func() error { return tenants(out, *rounds) }},
		{"signals", func() error { return signals(out, *rounds, target) }},
		{"lookers", func() error { return lookers(out, *rounds) }},
		{"makespan", func() error { return makespan(out, *rounds) }},
	}
	known := *which == "all"
	for _, t := range tables {
		if *which == t.name || *which == "all" {
			known = true
			if err := t.print(); err != nil {
				return false, err
			}
		}
	}
	if !known {
		return false, fmt.Errorf("-table %s: no such table", *which)
	}
	return true, nil
}

// divisor returns the number by which all sizes in the table "scale" are divided: 100 with -quick, and otherwise 1.
func divisor(quick bool) int {
	if quick {
		return 100
	}
	return 1
}
