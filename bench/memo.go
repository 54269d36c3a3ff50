package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// The function `cached` prints the cost of a memoized node with an output of 1 kB. The first case is a node whose step is called and whose output is
// stored. The second case is a node whose output is in the cache.
func cached(out io.Writer, rounds int, target time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "kahn-memo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := sqlite.OpenCache(filepath.Join(dir, "cache.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text := strings.Repeat("x", 1000)
	calls := 0
	step := func(context.Context, *kahn.Step) (any, error) {
		calls++
		return text, nil
	}
	asks := func(n *kahn.Node) { n.Memo = "1" }
	t := table{header: []string{"cache", "a step that is called and kept, us", "a hit, us", "objects"}}
	shape := chain(200)
	without := kahnOn(step, nil, kahn.Limit(1))
	for _, c := range []struct {
		name string
		memo *kahn.Memo
	}{
		{"in memory", new(kahn.Memo)}, {"store.DirCache", &kahn.Memo{Cache: store.DirCache{Dir: filepath.Join(dir, "files")}}}, {"sqlite.Cache", &kahn.Memo{Cache: file}},
	} {
		hits := kahnOn(step, asks, kahn.Limit(1), c.memo)
		if run, err := hits.prepare(job{shape: shape}); err != nil {
			return err
		} else if err := run(); err != nil {
			return err
		}
		entries, err := contestOn(shape, rounds, target, kahnOn(step, asks, kahn.Limit(1), c.memo, kahn.Refresh()), without)
		if err != nil {
			return err
		}
		kept := entries[0].more(entries[1])
		before := calls
		if entries, err = contestOn(shape, rounds, target, hits); err != nil {
			return err
		}
		if calls != before {
			return fmt.Errorf("%s: %d steps were called though their outputs were there", c.name, calls-before)
		}
		hit := entries[0]
		t.add(c.name, fmt.Sprintf("%.1f", kept/1000), fmt.Sprintf("%.1f", hit.ns()/1000), short(hit.allocs()))
	}
	fmt.Fprint(out, "### A node with a Memo whose output is a text of 1 kB\n\n")
	t.print(out)
	return nil
}
