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

// section is a part of a frame, with some entries. If not all entries are shown, its last line contains the number of the others.
type section struct{ shown, more int }

// fill returns a section for n entries. The section may use the given number of lines. Only the first `known` entries can be shown.
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

// layout divides the lines of a frame. It keeps one line for the header and one for the cursor. Failures may use half of the other lines, or all
// lines that running and waiting nodes do not need, whichever is more. Running steps get the remaining lines first. Warnings get the lines that
// running steps do not use, but at least one line if two or more remain. Waiting nodes then get lines by the same rule as warnings. The last frame
// of a run stays on the screen and shows all failures and warnings that were kept: see maxFailures. Lines that are still free show the last lines of
// outputs, beginning with the outputs of failed nodes.
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

// The method `take` stores a section, and subtracts its lines from the lines that are left.
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

// frame returns the picture of the run, at most width columns wide: the header, failures, warnings, waiting nodes, and finally the running steps and
// compensations, the oldest first.
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

// The method `at` returns the time at which a picture shows the run. After the end of the run this is the time of its last event. While no process
// performs the run, it is the time at which the last process stopped performing the run. Otherwise it is `now`.
func (s *state) at(now time.Time) time.Time {
	switch {
	case s.over:
		return s.now
	case !s.gone.IsZero():
		return s.gone
	}
	return now
}

// header returns the first line: the summary and the time since the start. If they do not fit, nodes have failed and the run has not ended, the line
// shows the number of failed nodes and omits the time.
func (s *state) header(now time.Time, width int) string {
	elapsed := clock(now.Sub(s.start))
	room := max(width-len(elapsed)-1, 0)
	if failed := s.counts[kahn.Failed]; failed > 0 && !s.over {
		brief := fmt.Sprintf("%d failed", failed)
		switch full := s.done() + " " + brief; {
		case len(full) > width:
			return fit(brief, width)
		case len(full)+1 > room && len(s.summaryAt(now)) > room: // the whole summary does not fit: show the number of failures instead of the time
			return full
		}
	}
	return fit(fit(s.summaryAt(now), room)+" "+elapsed, width)
}

// canvas collects the rows of a frame.
type canvas struct {
	rows        []row
	width, left int // left is the number of lines that outputs may still use
}

// add adds a line.
func (c *canvas) add(text string, failed bool) {
	c.rows = append(c.rows, row{fit(clean(text), c.width), failed})
}

// addTime adds a line with a duration at its right.
func (c *canvas) addTime(text string, d time.Duration) {
	c.rows = append(c.rows, row{text: beside(clean(text), tenths(d), c.width)})
}

// addMore adds the line with the number of entries of a section that are not shown.
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

// The function `share` returns how many of n entries fit into a number of lines. If not all entries fit, the last line is kept for the number of
// further entries.
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
	wrapOff    = "\x1b[?7l" // lines that are wider than computed are cut off
	wrapOn     = "\x1b[?7h"
	clearLine  = "\x1b[K" // clears to the end of the line
	clearBelow = "\x1b[J"
	red        = "\x1b[31m"
	plain      = "\x1b[m"
)

// screen is the state of the terminal: the number of lines of the last frame. The cursor is at the beginning of the line below the frame.
type screen struct{ lines int }

// draw returns the text that replaces the last frame by the rows in `rows`. The text first contains `lines` and the rows in `above`, which stay on
// the screen. The end of the text restores the modes of the terminal, so the program may end after any frame.
func (s *screen) draw(lines []byte, above, rows []row, height int, coloured bool) []byte {
	var b bytes.Buffer
	b.WriteString(hideCursor)
	if up := min(s.lines, height-1); up > 0 { // the cursor must stay on the screen, even if the terminal has become smaller
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	if len(lines) > 0 { // lines may be longer than the terminal is wide: the terminal wraps them, and scrolls as needed
		b.WriteString(clearBelow)
		b.Write(bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n")))
	}
	b.WriteString(wrapOff)
	for _, r := range slices.Concat(above, rows) {
		// The line is cleared before it is written: after a full line the cursor is on the last character, and clearing would delete this
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
