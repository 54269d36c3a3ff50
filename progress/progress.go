// Package progress shows on a terminal, or in a log, how far a run has come.
//
//	p := progress.New(os.Stderr, progress.Auto)
//	defer p.Close()
//	res, err := kahn.Execute(ctx, g, step, p.Options()...)
//
// On a terminal a Progress draws a picture ten times a second: a header, the failures, what the run waits for, and the running steps. The steps that
// have run longest come first. Below each step are the last lines that it logged or emitted:
//
//	[12/40] 1 failed 2 running 1 suspended 00:12
//	FAILED lint: step_error: 3 problems
//	   | main.go:7: declared and not used: n
//	?? approve                                           4.0s
//	=> test/server                                       9.8s
//	   | --- PASS: TestServer
//	=> build/web                                         3.2s
//
// The last lines that a step logged or emitted stay below its failure, up to ten. If there is little room, failures are shown first.
//
// The header counts the nodes of the outermost graph: [12/40] means that 12 of 40 have ended. A composite counts as one node, and the items of a
// map do not count. After these numbers the header shows the items of the running maps, how many of them end per second, and how long the
// remaining items take at this rate. The line of a composite shows the same numbers for the nodes inside, but only a map has a rate and a remaining
// time:
//
//	[1/3] 4200/10000 items (12 failed, 812/s, 8s left) 1 running 00:05
//	=> m 4200/10000 items (12 failed, 812/s, 8s left)    5.2s
//
// The rate covers about the last 30 seconds, or the last 30 items if these take longer. It includes neither the work of earlier processes nor
// the time in which the whole run waited. Until an item has ended, the remaining time follows from the Estimate of the map's node. The output of
// a failed item is shown with its map.
//
// If the writer is not a terminal, Progress writes a line for every transition of a node and for every line that a step logs. Items of a map
// with more than 100 items, and the nodes inside them, have no lines for their starts, completions and skips. Instead a line with the number of ended
// items appears, at most once in five seconds by the clock of the run. Every 30 seconds Progress lists the steps that are still running.
//
// If a run continues from a snapshot or a store, its events do not contain the number of its nodes. They also do not show which nodes ended before. A
// Progress with [Progress.Options] asks the run for this information. With [Progress.Event] alone, the header counts, until the run ends, only the
// nodes that have ended since the run continued, as in [2/?]. The number of a map's items is then unknown, too: see [Progress.Items].
//
// A Progress is also an io.Writer, which shows the host's own output above the picture. A [Group] shows several runs at once.
//
// A Progress cannot delay a run: it receives events on one goroutine and writes on another, and neither performs steps. Between two frames
// the terminal is in its original state, with a visible cursor below the picture, so nothing needs to be restored when the process is
// interrupted, panics or is killed.
package progress

import (
	"io"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Mode is a way to show progress. A Mode can be used with flag.TextVar: "auto", "tty", "plain" or "json".
type Mode uint8

// The modes.
const (
	Auto  Mode = iota // TTY if the writer is a terminal, TERM is not "dumb", and CI is not set or "false"; else Plain
	TTY               // a picture that is redrawn in place
	Plain             // a line for every transition of a node
	JSON              // every event as a line of JSON
)

var modeNames = enum.Of[Mode]("progress mode", "auto", "tty", "plain", "json")

// String returns "auto", "tty", "plain" or "json".
func (m Mode) String() string { return modeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [kahn.ErrBadValue] if m is not one of the modes.
func (m Mode) MarshalText() ([]byte, error) { return modeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [kahn.ErrBadValue] if the text is not the name of a mode.
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Parse(m, text) }

// Progress shows one run. Its methods may be called concurrently. The first event starts a goroutine, which ends after the run's last
// event or with Close.
type Progress struct {
	display
	run state // guarded by the display's lock
}

// New returns a Progress that writes to w. Nothing else should write to the same terminal until the run has ended: see
// [Progress.Write].
func New(w io.Writer, mode Mode) *Progress {
	p := &Progress{}
	p.init(w, mode, &p.run)
	return p
}

// Options returns the options that make a run show its progress. These are [kahn.OnEvent] with the method Event, and [kahn.Around]. If the run
// continues from a snapshot or a store, the Progress learns from Around what the run did before.
func (p *Progress) Options() []kahn.Option {
	return p.options(func(r *kahn.Run) func(*kahn.Result) {
		p.Follow(r)
		return nil
	})
}

// Gone informs the Progress that no process has performed the run since the given time. Until the next event, the times of the run and its steps do
// not advance. Use Gone for a Progress that shows the stored events of a run of another process.
func (p *Progress) Gone(since time.Time) { p.locked(func() { p.run.gone = since }) }

// Items sets the number of items of the map at a path. Use it for a Progress that shows events of a run of another process, since events do not
// contain this number. Without Items such a Progress shows only how many items have ended. If the map has not begun or has ended, Items does
// nothing.
func (p *Progress) Items(path string, total int) {
	p.locked(func() {
		if c := p.run.live[path]; c != nil {
			p.run.insideOf(c, 0, true).total = total
		}
	})
}

// Follow sets the run that the Progress shows. At the next event the Progress asks the run when it began and what it has done. Use Follow for a
// Progress that joins a run which has already begun. Options includes Follow.
func (p *Progress) Follow(r *kahn.Run) { p.locked(func() { p.run.source = r }) }
