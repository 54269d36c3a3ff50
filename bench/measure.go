package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// reading holds the measurements of one sample: averages per node.
type reading struct {
	ns, bytes, allocs float64
	cpu               float64 // the processor time of the whole process, in ns
}

// entry is a contestant on a shape.
type entry struct {
	contestant
	shape    *shape
	reps     int // the number of runs in a sample; set by the first sample
	readings []reading
}

// The method `sample` prepares the contestant, runs it for about the target time, and records the reading.
//
// Each call of sample prepares the contestant anew, and the prepared data is garbage after the call. Otherwise the heaps of other contestants would
// influence the garbage collector. A sample includes the work of the garbage collector for the contestant's own garbage.
func (e *entry) sample(target time.Duration) error {
	run, err := e.prepare(job{shape: e.shape})
	if err != nil {
		return fmt.Errorf("%s, %s: %w", e.name, e.shape.name, err)
	}
	repeat := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := run(); err != nil {
				return 0, fmt.Errorf("%s, %s: %w", e.name, e.shape.name, err)
			}
		}
		return time.Since(start), nil
	}
	took, err := repeat(1) // the first call also does lazy initialization
	if err != nil {
		return err
	}
	for n := 1; e.reps == 0; n *= 4 {
		if took < target {
			if took, err = repeat(n); err != nil {
				return err
			}
		}
		if took >= target/8 {
			e.reps = max(1, int(float64(n)*float64(target)/float64(took)))
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	user, kernel, err := processTimes()
	if err != nil {
		return err
	}
	took, err = repeat(e.reps)
	runtime.ReadMemStats(&after)
	if err != nil {
		return err
	}
	userAfter, kernelAfter, err := processTimes()
	if err != nil {
		return err
	}
	nodes := float64(e.reps) * float64(e.shape.n)
	e.readings = append(e.readings, reading{
		ns:     float64(took) / nodes,
		cpu:    float64(userAfter-user+kernelAfter-kernel) / nodes,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / nodes,
		allocs: float64(after.Mallocs-before.Mallocs) / nodes,
	})
	return nil
}

// The function `contest` samples the entries in turn. Each round begins with a different entry. So a slow phase of the machine affects all entries,
// and a ratio compares two entries of the same round.
func contest(entries []*entry, rounds int, target time.Duration) error {
	for round := range rounds {
		for i := range entries {
			if err := entries[(i+round)%len(entries)].sample(target); err != nil {
				return err
			}
		}
	}
	return nil
}

// contestOn makes an entry for each contestant on the shape, passes the entries to the function `contest`, and returns them.
func contestOn(s *shape, rounds int, target time.Duration, contestants ...contestant) ([]*entry, error) {
	var entries []*entry
	for _, c := range contestants {
		entries = append(entries, &entry{contestant: c, shape: s})
	}
	return entries, contest(entries, rounds, target)
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

func (e *entry) median(of func(reading) float64) float64 {
	var values []float64
	for _, r := range e.readings {
		values = append(values, of(r))
	}
	return median(values)
}

func (e *entry) ns() float64     { return e.median(func(r reading) float64 { return r.ns }) }
func (e *entry) bytes() float64  { return e.median(func(r reading) float64 { return r.bytes }) }
func (e *entry) allocs() float64 { return e.median(func(r reading) float64 { return r.allocs }) }

// The method `over` divides the time of e by the time of other in each round, and returns the median of these ratios.
func (e *entry) over(other *entry) float64 {
	return e.against(other, func(a, b float64) float64 { return a / b })
}

// The method `more` returns by how many ns per node e is slower than other: the median over the rounds.
func (e *entry) more(other *entry) float64 {
	return e.against(other, func(a, b float64) float64 { return a - b })
}

func (e *entry) against(other *entry, f func(a, b float64) float64) float64 {
	var values []float64
	for i := range e.readings {
		values = append(values, f(e.readings[i].ns, other.readings[i].ns))
	}
	return median(values)
}

// overByCPU is like the method `over`, but divides the processor times of the whole process, which other load on the machine hardly changes.
func (e *entry) overByCPU(other *entry) float64 {
	var values []float64
	for i := range e.readings {
		values = append(values, e.readings[i].cpu/other.readings[i].cpu)
	}
	return median(values)
}

// table holds the cells of a table. The method `print` writes them as Markdown.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// The method `print` aligns the first column to the left. The other columns contain numbers, and print aligns them to the right.
func (t *table) print(out io.Writer) {
	width := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)), 3)
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Fprint(out, "| ", cell, pad)
			} else {
				fmt.Fprint(out, " | ", pad, cell)
			}
		}
		fmt.Fprintln(out, " |")
	}
	line(t.header)
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = strings.Repeat("-", width[i]-1) + ":"
	}
	rule[0] = strings.Repeat("-", width[0])
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	fmt.Fprintln(out)
}

// The function `short` writes a number below 10 with two decimals, a number below 100 with one decimal, and a larger number as an integer with
// commas.
func short(v float64) string {
	switch {
	case v >= 99.95 || v <= -99.95:
		return thousands(int(v + 0.5))
	case v >= 9.995 || v <= -9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func times(v float64) string { return short(v) + "x" }

func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
