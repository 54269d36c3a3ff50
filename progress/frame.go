package progress

import (
	"bytes"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// row is a line of a frame.
type row struct {
	text   string
	failed bool
}

// frame is the picture of the run: the header, the failures, the warnings, and the steps that are running, longest first. It
// has at most width columns, and leaves one of height lines for the cursor. Failures and running steps each get half of the
// lines, and those that the other half does not need; warnings get one line of the latter half if it has more than one, and
// those that both leave. The last frame of a run stays on the screen and shows all failures and warnings.
func (s *state) frame(now time.Time, width, height int) []row {
	if s.over {
		now = s.now
	}
	elapsed := clock(now.Sub(s.start))
	rows := []row{{text: fit(fit(s.summary(), max(width-len(elapsed)-1, 0))+" "+elapsed, width)}}
	lines := max(height-2, 0)
	failed, running := s.counts[kahn.Failed], s.running.Len()
	space := max((lines+1)/2, lines-running)
	if s.over {
		space = failed
	}

	shown := min(share(failed, space), len(s.failed))
	for _, f := range s.failed[:shown] {
		rows = append(rows, row{fit("FAILED "+clean(f.id)+": "+clean(f.text), width), true})
	}
	if failed > shown && space > 0 {
		rows = append(rows, row{fit(fmt.Sprintf("... and %d more failed", failed-shown), width), true})
	}

	space = lines - (len(rows) - 1)
	if running > 0 {
		space = max(space-running, min(space-1, 1), 0)
	}
	if s.over {
		space = s.warning
	}
	shown = min(share(s.warning, space), len(s.warned))
	for _, w := range s.warned[:shown] {
		rows = append(rows, row{text: fit("WARNING "+clean(w.id)+": "+clean(w.text), width)})
	}
	if s.warning > shown && space > 0 {
		rows = append(rows, row{text: fit(fmt.Sprintf("... and %d more warnings", s.warning-shown), width)})
	}

	space = lines - (len(rows) - 1)
	shown = share(running, space)
	for _, n := range s.longest(shown) {
		name := "=> " + clean(n.path)
		if n.attempt > 1 {
			name += fmt.Sprintf(" (attempt %d)", n.attempt)
		}
		rows = append(rows, row{text: beside(name, tenths(now.Sub(n.since)), width)})
	}
	if running > shown && space > 0 {
		rows = append(rows, row{text: fit(fmt.Sprintf("... and %d more running", running-shown), width)})
	}
	return rows
}

// share returns how many of n entries are shown in a number of lines, one of which counts the others.
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
	wrapOff    = "\x1b[?7l" // cut off a line that is wider than computed
	wrapOn     = "\x1b[?7h"
	clearLine  = "\x1b[K" // to its end
	clearBelow = "\x1b[J"
	red        = "\x1b[31m"
	plain      = "\x1b[m"
)

// screen is the state of the terminal: the cursor is at the beginning of the line below the last frame.
type screen struct{ lines int }

// draw returns the text that replaces the last frame by another, below lines that stay. It restores the modes of the
// terminal, so that the program may end after any frame.
func (s *screen) draw(lines []byte, rows []row, height int, coloured bool) []byte {
	var b bytes.Buffer
	b.WriteString(hideCursor)
	if up := min(s.lines, height-1); up > 0 { // the terminal may have become smaller
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	if len(lines) > 0 { // they are wrapped by the terminal, which scrolls as far as need be
		b.WriteString(clearBelow)
		b.Write(bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n")))
	}
	b.WriteString(wrapOff)
	for _, r := range rows {
		// The line is cleared first: after a full line the cursor is on its last character, not behind it.
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
