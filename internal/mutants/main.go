// Mutants measures how many bugs the tests find. It makes small changes to the root package and to package machine, one at a time, and
// checks whether a test of these packages, of conformance or of verify fails.
//
//	go run ./internal/mutants                # a sample, always the same one; it takes many minutes the first time
//	go run ./internal/mutants -n 20 -seed 7  # a smaller sample, chosen by another seed
//	go run ./internal/mutants -for 5m        # stops after five minutes; the next call continues
//	go run ./internal/mutants -list -only 'machine/state_stop.go Locked.Stop'
//
// A mutant is the code with one such change. A mutant is killed if a test fails or does not end. If a mutant survives, either a test is missing, or
// the mutant is equivalent: callers cannot distinguish it from the original. equivalent.txt lists known equivalent mutants, each with the reason.
//
// mustkill.txt lists mutants that must always be killed, and signals_test.go lists bugs that the tests must always find.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

func main() {
	var j job
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir()
	}
	flag.StringVar(&j.root, "root", ".", "the root of the repository")
	flag.StringVar(&j.cache, "cache", filepath.Join(user, "kahn", "mutants.json"), "where results are kept")
	flag.IntVar(&j.n, "n", 150, "how many mutants")
	flag.Int64Var(&j.seed, "seed", 1, "chooses the mutants")
	flag.StringVar(&j.only, "only", "", "only mutants whose text in the list contains this")
	flag.DurationVar(&j.limit, "for", 0, "stop after this time; 0 means no limit")
	flag.DurationVar(&j.slow, "slow", 0, "leave out tests that take longer than this; 0 means none")
	list := flag.Bool("list", false, "print all mutants, and try none")
	flag.Parse()
	if *list {
		mutants, err := generateAll(j.root)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(1)
		}
		for _, m := range mutants {
			if text := format(m.Bug); strings.Contains(text, j.only) {
				fmt.Println(text)
			}
		}
		return
	}
	report, err := j.run(context.Background(), os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	fmt.Print(report)
}

type job struct {
	root, cache, only string
	n                 int
	seed              int64
	limit, slow       time.Duration
}

// A report is the result of a job.
type report struct {
	files     []string
	counts    map[string]*count
	survivors []string
	left      int      // the number of mutants that were not tried, because the time of the flag -for had passed
	broken    []string // tests that fail even without a bug
}

type count struct{ mutants, equivalent, killed int }

// The method `rate` returns the share of killed mutants among the mutants that are not equivalent.
func (r *report) rate() float64 {
	killed, judged := 0, 0
	for _, c := range r.counts {
		killed += c.killed
		judged += c.mutants - c.equivalent
	}
	return float64(killed) / float64(max(judged, 1))
}

func (r *report) String() string {
	var s strings.Builder
	for _, survivor := range r.survivors {
		fmt.Fprintf(&s, "%s\n", survivor)
	}
	var all count
	line := func(name string, c count) {
		judged := c.mutants - c.equivalent
		fmt.Fprintf(&s, "%-28s%8d%12d%8d%10d%9.1f %%\n", name, c.mutants, c.equivalent, c.killed, judged-c.killed, 100*float64(c.killed)/float64(max(judged, 1)))
	}
	fmt.Fprintf(&s, "%-28s%8s%12s%8s%10s%11s\n", "file", "mutants", "equivalent", "killed", "survived", "killed")
	for _, file := range r.files {
		c := *r.counts[file]
		line(file, c)
		all = count{all.mutants + c.mutants, all.equivalent + c.equivalent, all.killed + c.killed}
	}
	line("all", all)
	if len(r.broken) > 0 {
		fmt.Fprintf(&s, "these tests fail without a mutant and were left out: %s\n", strings.Join(r.broken, ", "))
	}
	if r.left > 0 {
		fmt.Fprintf(&s, "%d were not tried for lack of time; another call continues\n", r.left)
	}
	return s.String()
}

func (j *job) run(ctx context.Context, progress io.Writer) (*report, error) {
	if j.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, j.limit)
		defer cancel()
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary folder does no harm
	if j.root, err = filepath.Abs(j.root); err != nil {
		return nil, err
	}
	all, err := generateAll(j.root)
	if err != nil {
		return nil, err
	}
	equivalent, err := readList(filepath.Join(j.root, "internal", "mutants", "equivalent.txt"))
	if err != nil {
		return nil, err
	}
	if err := find(equivalent, all); err != nil {
		return nil, fmt.Errorf("equivalent.txt: %w", err)
	}
	reason := map[plant.Bug]string{}
	for _, e := range equivalent {
		reason[e.Bug] = e.note
	}
	chosen, binaries, err := j.choose(ctx, all, dir)
	if err != nil {
		return nil, err
	}
	c, err := openCache(j.cache)
	if err != nil {
		return nil, err
	}
	source, err := hash(j.root)
	if err != nil {
		return nil, err
	}
	if j.slow > 0 {
		source += fmt.Sprint(" without tests above ", j.slow)
	}
	if c.Source != source {
		fmt.Fprintln(progress, "the tests, without a bug")
		s, err := measure(ctx, j.root, dir, j.slow)
		if err != nil {
			return nil, err
		}
		if err := c.keep(s, source); err != nil {
			return nil, err
		}
	}
	x := &trial{c.suite, j.root, binaries, map[test]bool{}}
	r := &report{counts: map[string]*count{}, broken: c.suite.Broken}
	for i, m := range chosen {
		key := format(m.Bug)
		if r.counts[m.File] == nil {
			r.counts[m.File] = &count{}
			r.files = append(r.files, m.File)
		}
		n := r.counts[m.File]
		if _, ok := reason[m.Bug]; ok {
			n.mutants++
			n.equivalent++
			continue
		}
		v := c.Verdicts[key]
		if v.Source != source {
			began := time.Now()
			if v = x.try(ctx, i, m, v); ctx.Err() != nil {
				r.left++
				continue
			}
			v.Source = source
			c.Verdicts[key] = v
			if err := c.save(); err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "%d/%d %s:%d %s: %s %s (%.1fs)\n", i+1, len(chosen), m.File, m.line, m.Func, v.How, v.Killer, time.Since(began).Seconds())
		}
		n.mutants++
		if v.Killed {
			n.killed++
		} else {
			r.survivors = append(r.survivors, fmt.Sprintf("# line %d: %s\n%s", m.line, v.How, key))
		}
	}
	slices.Sort(r.files)
	for t, sound := range x.sound {
		if !sound {
			r.broken = append(r.broken, t.String())
		}
	}
	slices.Sort(r.broken)
	return r, nil
}

// choose selects mutants by the seed, and compiles the tests with these mutants. The order of two mutants depends only on the seed and on their
// texts. So the selection hardly changes if other code changes.
func (j *job) choose(ctx context.Context, all []mutant, dir string) ([]mutant, map[string]string, error) {
	rank := func(m mutant) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s", j.seed, format(m.Bug)))
		return string(sum[:])
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !strings.Contains(format(m.Bug), j.only) })
	slices.SortFunc(all, func(a, b mutant) int { return strings.Compare(rank(a), rank(b)) })
	for {
		chosen := all[:min(j.n, len(all))]
		bugs := make([]plant.Bug, len(chosen))
		for i, m := range chosen {
			bugs[i] = m.Bug
		}
		binaries, err := buildAll(ctx, j.root, bugs, dir)
		var broken *plant.CompileError
		if !errors.As(err, &broken) {
			return chosen, binaries, err
		}
		for _, i := range slices.Backward(broken.Bugs) { // remove the mutants that do not compile; the next round chooses others
			all = slices.Delete(all, i, i+1)
		}
	}
}

// buildAll compiles the tests of all packages with the bugs. It begins with the root package, which imports package machine. All bugs are in these
// two packages, so this first compilation finds every bug that does not compile.
func buildAll(ctx context.Context, root string, bugs []plant.Bug, dir string) (map[string]string, error) {
	binaries := map[string]string{}
	for _, pkg := range append([]string{"."}, packages...) {
		folder := filepath.Join(root, pkg)
		if _, err := os.Stat(folder); binaries[pkg] != "" || errors.Is(err, os.ErrNotExist) {
			continue
		}
		binaries[pkg] = filepath.Join(dir, fmt.Sprintf("mutants%d.test", len(binaries)))
		if err := plant.Build(ctx, root, folder, bugs, binaries[pkg]); err != nil {
			return nil, err
		}
	}
	return binaries, nil
}

// hashed lists the folders and files of the root folder on which the result of a test may depend, besides its Go files.
var hashed = []string{"bulk", "conformance", "event", "go.mod", "go.sum", "internal", "kahntest", "machine", "reactive", "store", "storetest", "verify"}

// The function `hash` returns a hash of the files on which the result of a test may depend.
func hash(root string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		folder, _, within := strings.Cut(filepath.ToSlash(rel), "/")
		switch {
		case slices.Contains([]string{"internal/mutants", "internal/plant", "store/postgres", "store/sqlite"}, filepath.ToSlash(rel)):
			return fs.SkipDir
		case entry.IsDir() && rel != "." && !slices.Contains(hashed, folder):
			return fs.SkipDir
		case entry.IsDir() || !within && filepath.Ext(name) != ".go" && !slices.Contains(hashed, rel):
			return nil
		}
		text, err := os.ReadFile(name)
		fmt.Fprintf(sum, "%s %d\n%s", rel, len(text), text)
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}
