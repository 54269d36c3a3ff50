package progress

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// row is a line of a frame.
type row struct {
	text   string
	failed bool
}

// section is a part of a frame: a list of entries. If the section does not show all entries, its last line says how many more there are.
type section struct{ shown, more int }

// fill returns a section for n entries that uses at most the given number of lines. The texts of only the first `known` entries were kept, so the
// section cannot show the others.
func fill(n, known, lines int) (s section) {
	s.shown = min(share(n, lines), known)
	if lines > 0 {
		s.more = n - s.shown
	}
	return s
}

// The method `lines` returns the number of lines of the section.
func (s section) lines() int { return s.shown + min(s.more, 1) }

// layout divides the lines of a frame among its sections.
type layout struct {
	failures, warnings, waits, steps section
	left                             int // the number of lines left for outputs
}

// layout divides the lines of a frame. One line is for the header and one for the cursor. Failures may use half of the other lines. If running and
// waiting nodes need less than the other half, failures may use all lines that these nodes do not need. Of the lines that remain, each running
// step gets one. Warnings get the lines that running steps do not need, but at least one line if two or more remain. After warnings, the same rule
// applies to waiting nodes. Lines that are still free show the last lines of outputs, first of failed nodes and then of running steps. The last
// frame of a run stays on the screen. It shows all failures and warnings that were kept: see maxFailures.
func (s *state) layout(height int) (l layout) {
	failed, waiting, running := s.counts[kahn.Failed]+s.undone[kahn.CompensationFailed], s.waiting.Len(), s.running.Len()
	l.left = max(height-2, 0)
	forFailures := max((l.left+1)/2, l.left-running-waiting)
	if s.over {
		forFailures = failed
	}
	l.take(&l.failures, fill(failed, len(s.failed), forFailures))
	forWarnings := l.besideSteps(running)
	if s.over {
		forWarnings = s.warning
	}
	l.take(&l.warnings, fill(s.warning, len(s.warned), forWarnings))
	l.take(&l.waits, fill(waiting, waiting, l.besideSteps(running)))
	l.take(&l.steps, fill(running, running, l.left))
	if s.over {
		l.left = tailLines * l.failures.shown
	}
	return l
}

// The method `take` stores the section s in *to, and subtracts the lines of s from l.left.
func (l *layout) take(to *section, s section) {
	*to = s
	l.left -= s.lines()
}

// besideSteps returns how many lines a section may use so that each running step keeps a line. The section gets at least one line if two or more
// are left.
func (l *layout) besideSteps(running int) int {
	if running > 0 {
		return max(l.left-running, min(l.left-1, 1), 0)
	}
	return l.left
}

// frame returns the picture of the run, at most width columns wide. The rows show the header, then failures, warnings and waiting nodes, and
// finally running steps and compensations. Of the waiting nodes, running steps and compensations, the oldest come first.
func (s *state) frame(now time.Time, width, height int) []row {
	now = s.at(now)
	l := s.layout(height)
	c := canvas{width: width, left: l.left}
	c.rows = append(c.rows, row{text: s.header(now, width)})
	for _, f := range s.failed[:l.failures.shown] {
		what := "FAILED "
		if f.undo {
			what = "COMPENSATION FAILED "
		}
		c.add(what+f.id+": "+f.text, true)
		c.addOutput(f.output, tailLines)
	}
	c.addMore(l.failures, "failed")
	for _, w := range s.warned[:l.warnings.shown] {
		c.add("WARNING "+w.id+": "+w.text, false)
	}
	c.addMore(l.warnings, "warnings")
	for _, n := range first(&s.waiting, l.waits.shown) {
		text := "?? " + n.path
		if n.info != "" {
			text += ": " + n.info
		}
		c.addTime(text, now.Sub(n.since))
	}
	c.addMore(l.waits, "waiting")
	for i, n := range first(&s.running, l.steps.shown) {
		name := "=> " + n.path
		if n.undo {
			name = "<= " + n.path
		}
		if n.attempt > 1 {
			name += fmt.Sprintf(" (attempt %d)", n.attempt)
		}
		if n.inside != nil {
			name += " " + n.inside.text(now, s.pacing())
		}
		c.addTime(name, now.Sub(n.since))
		c.addOutput(n.output.last(tailLines), c.left/(l.steps.shown-i))
	}
	c.addMore(l.steps, "running")
	return c.rows
}

// The method `at` returns the time that a picture uses as the present. After the end of the run this is the time of the last event. While no
// process performs the run, it is the time that Gone has set. Otherwise it is `now`.
func (s *state) at(now time.Time) time.Time {
	switch {
	case s.over:
		return s.now
	case !s.gone.IsZero():
		return s.gone
	}
	return now
}

// header returns the first line: the summary and the time since the start. If the line is too narrow for both, nodes have failed, and the run has
// not ended, then the line shows the number of failed nodes and omits the time.
func (s *state) header(now time.Time, width int) string {
	elapsed := clock(now.Sub(s.start))
	room := max(width-len(elapsed)-1, 0)
	if failed := s.counts[kahn.Failed]; failed > 0 && !s.over {
		brief := fmt.Sprintf("%d failed", failed)
		switch full := s.done() + " " + brief; {
		case len(full) > width:
			return fit(brief, width)
		case len(full)+1 > room && len(s.summaryAt(now)) > room: // the whole summary does not fit beside the time: show only the number of failures
			return full
		}
	}
	return fit(fit(s.summaryAt(now), room)+" "+elapsed, width)
}

// canvas collects the rows of a frame.
type canvas struct {
	rows        []row
	width, left int // left is the number of lines that are still free for outputs
}

// add adds a line.
func (c *canvas) add(text string, failed bool) {
	c.rows = append(c.rows, row{fit(clean(text), c.width), failed})
}

// addTime adds a line with a duration at its right.
func (c *canvas) addTime(text string, d time.Duration) {
	c.rows = append(c.rows, row{text: beside(clean(text), tenths(d), c.width)})
}

// addMore adds a line that says how many entries the section does not show, if there are any.
func (c *canvas) addMore(s section, what string) {
	if s.more > 0 {
		c.add(fmt.Sprintf("... and %d more %s", s.more, what), false)
	}
}

// addOutput adds the last lines of an output: at most the given number, and at most c.left.
func (c *canvas) addOutput(lines []string, most int) {
	lines = lines[max(len(lines)-min(most, c.left), 0):]
	for _, line := range lines {
		c.add("   | "+line, false)
	}
	c.left -= len(lines)
}

// The function `share` returns how many of n entries fit into a number of lines. If not all entries fit, share keeps the last line free: the
// caller writes the number of further entries there.
func share(n, lines int) int {
	if n <= lines {
		return n
	}
	return max(lines-1, 0)
}

// Control sequences of a terminal.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	wrapOff    = "\x1b[?7l" // the terminal cuts off a line that is wider than computed
	wrapOn     = "\x1b[?7h"
	clearLine  = "\x1b[K" // clears to the end of the line
	clearBelow = "\x1b[J"
	red        = "\x1b[31m"
	plain      = "\x1b[m"
)

// screen is the state of the terminal: the number of lines of the last frame. Between two frames the cursor is at the beginning of the line below
// the frame.
type screen struct{ lines int }

// draw returns the text that replaces the last frame by `rows`. At the beginning of the text are `lines` and `above`, which stay on the screen
// above the frame. The end of the text restores the modes of the terminal, so the program may end after any frame.
func (s *screen) draw(lines []byte, above, rows []row, height int, coloured bool) []byte {
	var b bytes.Buffer
	b.WriteString(hideCursor)
	if up := min(s.lines, height-1); up > 0 { // the cursor must stay on the screen, even if the terminal has become smaller
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	if len(lines) > 0 { // the terminal wraps lines that are too wide, and scrolls as needed
		b.WriteString(clearBelow)
		b.Write(bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n")))
	}
	b.WriteString(wrapOff)
	for _, r := range slices.Concat(above, rows) {
		// Clear the line before writing it. After a line of full width the cursor is still on the last character, so clearing would delete this
		// character.
		b.WriteString(clearLine)
		if r.failed && coloured {
			b.WriteString(red + r.text + plain)
		} else {
			b.WriteString(r.text)
		}
		b.WriteString("\r\n")
	}
	b.WriteString(clearBelow + wrapOn + showCursor)
	s.lines = len(rows)
	return b.Bytes()
}
