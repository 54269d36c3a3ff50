package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// The variable `packages` lists the folders of the packages whose tests run, in this order. The tests of machine come first because they are fast.
// The tests of verify come last because they are random.
var packages = []string{"machine", ".", "conformance", "verify"}

// suite holds the tests, and the lines that each test executes.
type suite struct {
	Tests  []test             // the fastest first
	Blocks map[string][]block // by file
	Broken []string           // tests that are skipped because they fail without a bug
}

type test struct {
	Package string // the folder of the package
	Name    string
	Seconds float64
}

// block is a range of lines in a file, and the tests that execute these lines.
type block struct {
	First, Last int   // lines
	Tests       []int // indices into suite.Tests, ascending
}

// atOnce is the number of tests that are measured at the same time.
const atOnce = 2

// The type `measured` is a test, and the lines that it executes, by file. The field `covered` is nil if the test failed or wrote no profile.
type measured struct {
	test
	covered map[string][][2]int
}

// The function `measure` runs each test in a process of its own, without a bug, to measure its time and coverage. If `slow` is not zero, the suite
// omits tests that took longer than `slow`.
func measure(ctx context.Context, root, dir string, slow time.Duration) (*suite, error) {
	var results []measured
	for _, pkg := range packages {
		list, err := measurePackage(ctx, root, pkg, dir)
		if err != nil {
			return nil, err
		}
		results = append(results, list...)
	}
	slices.SortStableFunc(results, func(a, b measured) int { return cmp.Compare(a.Seconds, b.Seconds) })
	s := &suite{Blocks: map[string][]block{}}
	blocks := map[string]map[[2]int]*block{}
	for _, r := range results {
		switch {
		case r.covered == nil:
			s.Broken = append(s.Broken, r.String())
			continue
		case slow > 0 && r.Seconds > slow.Seconds():
			continue
		}
		for file, ranges := range r.covered {
			if blocks[file] == nil {
				blocks[file] = map[[2]int]*block{}
			}
			for _, x := range ranges {
				b := blocks[file][x]
				if b == nil {
					b = &block{First: x[0], Last: x[1]}
					blocks[file][x] = b
				}
				b.Tests = append(b.Tests, len(s.Tests))
			}
		}
		s.Tests = append(s.Tests, r.test)
	}
	for file, all := range blocks {
		for _, b := range all {
			s.Blocks[file] = append(s.Blocks[file], *b)
		}
		slices.SortFunc(s.Blocks[file], func(a, b block) int { return cmp.Or(a.First-b.First, a.Last-b.Last) })
	}
	return s, nil
}

// measurePackage measures the tests of a package.
func measurePackage(ctx context.Context, root, pkg, dir string) ([]measured, error) {
	binary, folder := filepath.Join(dir, "cover.test"), filepath.Join(root, pkg)
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err := plant.Build(ctx, root, folder, nil, binary, "-cover", "-coverpkg="+plant.Module+","+plant.Module+"/machine"); err != nil {
		return nil, err
	}
	list, err := run(plant.Command(ctx, binary, folder, -1, "-test.list=^Test"))
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, list)
	}
	names := regexp.MustCompile(`(?m)^Test\w+`).FindAllString(list, -1)
	results := make([]measured, len(names))
	slots := make(chan bool, atOnce)
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			slots <- true
			defer func() { <-slots }()
			profile := filepath.Join(dir, name+".profile")
			text, err := run(plant.Command(ctx, binary, folder, -1, "-test.v", "-test.run=^"+name+"$", "-test.coverprofile="+profile))
			results[i].Package, results[i].Name = pkg, name
			// m[1] is the time of the test itself. It does not include the start of the process, because the start takes longer than most tests.
			if m := passed.FindStringSubmatch(text); m != nil && err == nil {
				results[i].Seconds, _ = strconv.ParseFloat(m[1], 64)
				results[i].covered, _ = readProfile(profile) // if there is no profile, the suite reports the test as broken
			}
			_ = os.Remove(profile) // the folder is temporary
		})
	}
	wg.Wait()
	return results, ctx.Err()
}

// String returns the name of the test, preceded by the folder of its package and a dot. For a test of the root package it returns the name alone.
func (t test) String() string {
	if t.Package == "." {
		return t.Name
	}
	return t.Package + "." + t.Name
}

// The expression `passed` matches the line about a test that passed or was skipped.
var passed = regexp.MustCompile(`(?m)^--- (?:PASS|SKIP): \w+ \(([0-9.]+)s\)`)

// readProfile returns, by file, the ranges of lines that a test executed.
func readProfile(name string) (map[string][][2]int, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	covered := map[string][][2]int{}
	for line := range strings.Lines(string(text)) {
		m := profiled.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[4] == "0" {
			continue
		}
		first, _ := strconv.Atoi(m[2])
		last, _ := strconv.Atoi(m[3])
		if x := [2]int{first, last}; !slices.Contains(covered[m[1]], x) {
			covered[m[1]] = append(covered[m[1]], x)
		}
	}
	return covered, nil
}

// The expression `profiled` matches a line of a coverage profile.
var profiled = regexp.MustCompile(`^github\.com/[\w-]+/kahn/(\S+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

// The method `covering` returns the tests that execute a line, the fastest first.
func (s *suite) covering(file string, line int) (tests []test) {
	var all []int
	for at := line; at < line+3 && len(all) == 0; at++ {
		// If the condition of a case spans several lines, the profile has no block for these lines. The loop then finds the block of the statements
		// after the condition.
		for _, b := range s.Blocks[file] {
			if b.First <= at && at <= b.Last {
				all = append(all, b.Tests...)
			}
		}
	}
	slices.Sort(all)
	for _, i := range slices.Compact(all) {
		tests = append(tests, s.Tests[i])
	}
	return tests
}

// verdict describes whether and how a mutant was killed.
type verdict struct {
	Killed bool
	Killer string // the test that failed first, if it is known
	How    string // "failed", "timed out", "covered by no test" ...
	Source string // the hash of the code and tests for which the verdict holds
}

// trial holds what the tries of all mutants share: the tests, the binaries that contain the mutants, and the results of isSound.
type trial struct {
	*suite
	root     string
	binaries map[string]string // by package
	sound    map[test]bool     // the results of isSound so far
}

// The function `batches` divides tests into lists. The tests must be sorted by their duration. All tests of a list are in the same package. The first
// lists of a package take little time, but their tests kill most mutants.
func batches(tests []test) (all [][]test) {
	for _, pkg := range packages {
		all = append(all, batchesOf(slices.DeleteFunc(slices.Clone(tests), func(t test) bool { return t.Package != pkg }))...)
	}
	return all
}

func batchesOf(tests []test) (all [][]test) {
	limit, seconds := 1.0, 0.0
	for _, t := range tests {
		if len(all) == 0 || seconds+t.Seconds > limit {
			if len(all) > 0 {
				limit = min(limit*4, 30)
			}
			all, seconds = append(all, nil), 0
		}
		all[len(all)-1] = append(all[len(all)-1], t)
		seconds += t.Seconds
	}
	return all
}

// The method `try` runs the tests that execute the line of a mutant, until one of them fails. If a test killed the mutant last time, this test runs
// first. A failure counts only if the test fails again when it runs alone, and passes without the bug. Without this rule, a test that always fails
// would kill every mutant. If the output does not name the failed test, the failure counts only if the whole list of tests passes without the bug.
func (x *trial) try(ctx context.Context, bug int, m mutant, last verdict) verdict {
	tests := x.covering(m.File, m.at)
	if len(tests) == 0 {
		return verdict{How: "covered by no test"}
	}
	all := batches(tests)
	if i := slices.IndexFunc(tests, func(t test) bool { return t.String() == last.Killer }); i >= 0 {
		all = slices.Insert(all, 0, []test{tests[i]})
	}
	for _, batch := range all {
		for len(batch) > 0 {
			r := x.run(ctx, bug, batch)
			i := slices.IndexFunc(batch, func(t test) bool { return t.Name == r.test })
			switch {
			case ctx.Err() != nil:
				return verdict{}
			case !r.failed:
				batch = nil
				continue
			case i < 0: // the process died, or its output names no test
				if !x.run(ctx, -1, batch).failed && ctx.Err() == nil {
					return verdict{Killed: true, How: r.how()}
				}
				batch = nil
				continue
			}
			killer := batch[i]
			if x.isSound(ctx, killer) && (len(batch) == 1 || x.run(ctx, bug, []test{killer}).failed) {
				if ctx.Err() != nil {
					return verdict{}
				}
				return verdict{Killed: true, Killer: killer.String(), How: r.how()}
			}
			batch = slices.Delete(slices.Clone(batch), i, i+1)
		}
	}
	return verdict{How: "survived"}
}

// isSound reports whether a test passes without a bug.
func (x *trial) isSound(ctx context.Context, t test) bool {
	sound, known := x.sound[t]
	if !known {
		sound = !x.run(ctx, -1, []test{t}).failed
		x.sound[t] = sound
	}
	return sound
}

// The type `result` describes how a list of tests ended.
type result struct {
	failed, timedOut bool
	test             string // the first test that failed or did not end, if it is known
}

func (r result) how() string {
	if r.timedOut {
		return "timed out"
	}
	return "failed"
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	timedOut   = regexp.MustCompile(`panic: test timed out[^\n]*\n(?:\s*running tests:\n\s*(Test\w+))?`)
)

func (x *trial) run(ctx context.Context, bug int, tests []test) result {
	var names []string
	seconds := 0.0
	for _, t := range tests {
		names = append(names, t.Name)
		seconds += t.Seconds
	}
	limit := time.Duration((10 + 5*seconds) * float64(time.Second))
	pkg := tests[0].Package
	text, err := run(plant.Command(ctx, x.binaries[pkg], filepath.Join(x.root, pkg), bug, "-test.failfast", "-test.timeout="+limit.String(), "-test.run=^("+strings.Join(names, "|")+")$"))
	r := result{failed: err != nil}
	if m := failedTest.FindStringSubmatch(text); m != nil {
		r.test = m[1]
	}
	if m := timedOut.FindStringSubmatch(text); m != nil {
		r.timedOut, r.test = true, m[1]
	}
	return r
}

func run(cmd *exec.Cmd) (string, error) {
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// cache stores verdicts in a file for the next call of the program, and the suite in another file.
type cache struct {
	file     string
	suite    *suite
	Source   string             // the hash of the code for which the suite was measured
	Verdicts map[string]verdict // by the text of the mutant
}

func openCache(file string) (*cache, error) {
	c := &cache{file: file, Verdicts: map[string]verdict{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return c, os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, err
	}
	if text, err = os.ReadFile(file + ".suite"); errors.Is(err, os.ErrNotExist) {
		c.Source = ""
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	return c, json.Unmarshal(text, &c.suite)
}

// keep stores a measured suite.
func (c *cache) keep(s *suite, source string) error {
	c.suite, c.Source = s, source
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(c.file+".suite", text, 0o600), c.save())
}

func (c *cache) save() error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file, text, 0o600)
}
