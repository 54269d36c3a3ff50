// Package progress shows on a terminal, or in a log, how far a run has come.
//
//	p := progress.New(os.Stderr, progress.Auto)
//	defer p.Close()
//	res, err := kahn.Execute(ctx, g, step, p.Options()...)
//
// On a terminal a Progress draws a picture ten times a second: a header, the failures, the warnings, the waiting nodes, and the running steps. The
// steps that have run longest come first. Below each step the picture shows the last lines that the step logged or emitted:
//
//	[12/40] 1 failed 2 running 1 suspended 00:12
//	FAILED lint: step_error: 3 problems
//	   | main.go:7: declared and not used: n
//	?? approve                                           4.0s
//	=> test/server                                       9.8s
//	   | --- PASS: TestServer
//	=> build/web                                         3.2s
//
// If a step fails, up to ten of its last lines stay below the failure. If there is little room, failures get their lines first.
//
// The header counts the nodes of the outermost graph: [12/40] means that 12 of 40 nodes have ended. A composite counts as one node. For the
// running maps, the header also shows how many items have ended, how many end per second, and how long the remaining items take at this rate. The
// line of a composite shows how many of the nodes inside have ended. If the composite is a map, its line also shows the rate and the remaining
// time:
//
//	[1/3] 4200/10000 items (12 failed, 812/s, 8s left) 1 running 00:05
//	=> m 4200/10000 items (12 failed, 812/s, 8s left)    5.2s
//
// The rate covers about the last 30 seconds, or the last 30 items if these take longer. Work of earlier processes, and time in which the whole run
// waited, do not count. While the rate is unknown, the remaining time is computed from the Estimate of the map's node. If an item fails, its
// output is shown below the map.
//
// If the writer is not a terminal, a Progress writes a log. A line appears when a node starts, retries, waits or ends, and for each message that a
// step logs. If a map has more than 100 items, starts, completions and skips inside the map have no lines. While a map runs, a line says how many
// items have ended, at most once in five seconds. Every 30 seconds a line names steps and nodes that are still running or waiting.
//
// If a run continues from a snapshot or a store, its events contain neither the number of its nodes nor the nodes that ended before. With
// [Progress.Options] the Progress asks the run for this information. With [Progress.Event] alone, the header counts only the nodes that have ended
// since the run continued, as in [2/?]. The number of a map's items is then unknown, too: see [Progress.Items].
//
// A Progress is also an io.Writer: it shows the text that the host writes to it above the picture. A [Group] shows several runs at once.
//
// A slow writer does not delay the run, because a separate goroutine writes. Between two frames the terminal is in its original state, with a
// visible cursor below the picture. So the terminal needs no repair if the process is interrupted, panics or is killed.
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
	Auto  Mode = iota // TTY if the writer is a terminal, TERM is not "dumb", and CI is empty or "false"; else Plain
	TTY               // a picture that is redrawn in place
	Plain             // a log with lines for the run and its nodes
	JSON              // every event as a line of JSON
)

var modeNames = enum.Of[Mode]("progress mode", "auto", "tty", "plain", "json")

// String returns "auto", "tty", "plain" or "json".
func (m Mode) String() string { return modeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [kahn.ErrBadValue] if m is not one of the modes.
func (m Mode) MarshalText() ([]byte, error) { return modeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [kahn.ErrBadValue] if the text is not the name of a mode.
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Parse(m, text) }

// Progress shows one run. Its methods may be called concurrently. The first event starts a goroutine. This goroutine ends after the run's last
// event, or when Close is called.
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

// Options returns the options that make a run show its progress: [kahn.OnEvent] with the method Event, and [kahn.Around]. The function of Around
// calls Follow. So if the run continues from a snapshot or a store, the Progress shows what the run did before.
func (p *Progress) Options() []kahn.Option {
	return p.options(func(r *kahn.Run) func(*kahn.Result) {
		p.Follow(r)
		return nil
	})
}

// Gone informs the Progress that no process has performed the run since the given time. Until the next event, the Progress says so, and the times
// of the run and its steps do not advance. Use Gone if the Progress shows stored events of a run that another process performed.
func (p *Progress) Gone(since time.Time) { p.locked(func() { p.run.gone = since }) }

// Items sets the number of items of the map at a path. Use it if the Progress shows events of another process's run: events do not contain this
// number. Without Items, the Progress then shows only how many items have ended. If the map has not begun or has ended, Items does nothing.
func (p *Progress) Items(path string, total int) {
	p.locked(func() {
		if c := p.run.live[path]; c != nil {
			p.run.insideOf(c, 0, true).total = total
		}
	})
}

// Follow sets the run that the Progress shows. At the next event the Progress asks this run for its start time and for the nodes that have ended.
// Use Follow if the Progress joins a run that has already begun. A run with the Options needs no call of Follow.
func (p *Progress) Follow(r *kahn.Run) { p.locked(func() { p.run.source = r }) }
