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
	"time"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// suite is the tests of the root package, in groups: first the fast ones together, last each of the slow ones alone.
type suite struct {
	Groups []group
	Broken []string // tests that are left out, since they fail without a bug
}

type group struct {
	Tests   []string
	Times   []float64           // of each, in seconds
	Seconds float64             // of all
	Covered map[string][][2]int // by file: the lines that the tests of the group execute, as ranges
}

const (
	quick    = 0.05 // seconds up to which a test belongs to the first group
	moderate = 0.7  // and to the second
)

// measure runs all tests one group after the other, without a bug, to measure their times and coverage. Their times in the
// previous measurement decide to which group they belong. Tests that take longer than slow, if that is not zero, are left
// out and cover nothing.
func measure(ctx context.Context, root, dir string, before *suite, slow time.Duration) (*suite, error) {
	binary := filepath.Join(dir, "cover.test")
	if err := plant.Build(ctx, root, root, nil, binary, "-cover", "-coverpkg=.,./machine"); err != nil {
		return nil, err
	}
	if before == nil {
		var err error
		if before, err = times(ctx, binary, root); err != nil {
			return nil, err
		}
	}
	names, err := run(plant.Command(ctx, binary, root, -1, "-test.list=^Test"))
	if err != nil {
		return nil, err
	}
	seconds := map[string]float64{}
	for _, g := range before.Groups {
		for i, name := range g.Tests {
			seconds[name] = g.Times[i]
		}
	}
	var tests []group
	for _, name := range regexp.MustCompile(`(?m)^Test\w+`).FindAllString(names, -1) {
		tests = append(tests, group{Tests: []string{name}, Seconds: seconds[name]})
	}
	slices.SortStableFunc(tests, func(a, b group) int { return cmp.Compare(a.Seconds, b.Seconds) })
	s := &suite{Groups: make([]group, 2)}
	for _, t := range tests {
		i := 0
		if t.Seconds > quick {
			i = 1
		}
		if t.Seconds > moderate {
			t.Times = []float64{t.Seconds}
			s.Groups = append(s.Groups, t)
		} else {
			s.Groups[i].Tests = append(s.Groups[i].Tests, t.Tests...)
			s.Groups[i].Times = append(s.Groups[i].Times, t.Seconds)
			s.Groups[i].Seconds += t.Seconds
		}
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		if len(g.Tests) == 0 || len(g.Tests) == 1 && slow > 0 && g.Seconds > slow.Seconds() {
			continue
		}
		profile := filepath.Join(dir, "profile")
		for {
			text, err := run(plant.Command(ctx, binary, root, -1, "-test.run="+g.pattern(), "-test.coverprofile="+profile))
			if err == nil {
				break
			}
			failed := failedTest.FindAllStringSubmatch(text, -1)
			if failed == nil {
				return nil, fmt.Errorf("the tests fail without a bug: %w\n%s", err, tail(text))
			}
			for _, m := range failed {
				s.Broken = append(s.Broken, m[1])
				if i := slices.Index(g.Tests, m[1]); i >= 0 {
					g.Tests, g.Times = slices.Delete(g.Tests, i, i+1), slices.Delete(g.Times, i, i+1)
				}
			}
			if len(g.Tests) == 0 {
				break
			}
		}
		if len(g.Tests) == 0 {
			continue
		}
		if g.Covered, err = readProfile(profile); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// times runs all tests once and returns the time of each.
func times(ctx context.Context, binary, root string) (*suite, error) {
	text, err := run(plant.Command(ctx, binary, root, -1, "-test.v"))
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	var g group
	for _, m := range regexp.MustCompile(`(?m)^--- \w+: (\w+) \(([0-9.]+)s\)`).FindAllStringSubmatch(text, -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		g.Tests, g.Times = append(g.Tests, m[1]), append(g.Times, seconds)
	}
	return &suite{Groups: []group{g}}, nil
}

// readProfile reads the coverage of a group of tests.
func readProfile(name string) (map[string][][2]int, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	covered := map[string][][2]int{}
	for _, m := range regexp.MustCompile(`(?m)([^/\n]+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		if m[4] != "0" {
			first, _ := strconv.Atoi(m[2])
			last, _ := strconv.Atoi(m[3])
			covered[m[1]] = append(covered[m[1]], [2]int{first, last})
		}
	}
	return covered, nil
}

func (g *group) pattern() string { return "^(" + strings.Join(g.Tests, "|") + ")$" }

func (g *group) covers(file string, line int) bool {
	return slices.ContainsFunc(g.Covered[file], func(r [2]int) bool { return r[0] <= line && line <= r[1] })
}

// verdict tells whether, and how, a mutant was killed.
type verdict struct {
	Killed bool
	Killer string // the test that failed first, if one is named
	How    string // "failed", "timed out", "covered by no test" ...
	Source string // the hash of the code and tests for which this was found
}

// try runs the tests that can notice a mutant until one fails. The test that was the first to fail last time is the first.
func (s *suite) try(ctx context.Context, root, binary string, bug int, m mutant, last verdict) verdict {
	v := verdict{How: "covered by no test"}
	groups := s.Groups
	if last.Killer != "" {
		groups = slices.Insert(slices.Clone(groups), 0, group{Tests: []string{last.Killer}, Seconds: 10, Covered: map[string][][2]int{m.File: {{m.line, m.line}}}})
	}
	line := m.line
	for ; line < m.line+3 && !slices.ContainsFunc(groups, func(g group) bool { return g.covers(m.File, line) }); line++ {
		// The conditions of a case that has several lines are in no block of the profile; the statements after them are.
	}
	for _, g := range groups {
		if !g.covers(m.File, line) {
			continue
		}
		r := g.run(ctx, root, binary, bug, 1)
		if r.timedOut && len(g.Tests) > 1 { // it does not end, or the machine is slow: the test by itself, with more time
			alone := &group{Tests: []string{r.test}, Seconds: moderate}
			if r.test != "" {
				r = alone.run(ctx, root, binary, bug, 3)
			}
			if r.test == "" || !r.failed {
				r = g.run(ctx, root, binary, bug, 4)
			}
		}
		switch {
		case ctx.Err() != nil:
			return verdict{}
		case r.timedOut:
			return verdict{Killed: true, Killer: r.test, How: "timed out"}
		case r.failed:
			return verdict{Killed: true, Killer: r.test, How: "failed"}
		}
		v.How = "survived"
	}
	return v
}

// result is the result of a group of tests.
type result struct {
	failed, timedOut bool
	test             string // the first that failed, or one that did not end, if it is known
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	timedOut   = regexp.MustCompile(`panic: test timed out[^\n]*\n(?:\s*running tests:\n\s*(Test\w+))?`)
)

func (g *group) run(ctx context.Context, root, binary string, bug int, patience float64) result {
	limit := time.Duration(patience * (10 + 5*g.Seconds) * float64(time.Second))
	text, err := run(plant.Command(ctx, binary, root, bug, "-test.failfast", "-test.timeout="+limit.String(), "-test.run="+g.pattern()))
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

func tail(text string) string { return text[max(0, len(text)-4000):] }

// cache keeps verdicts and the times of tests for the next call.
type cache struct {
	file     string
	Source   string // what Suite was measured for
	Suite    *suite
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
	return c, json.Unmarshal(text, c)
}

func (c *cache) save() error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file, text, 0o600)
}
