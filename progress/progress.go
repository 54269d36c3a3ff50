// Package progress shows on a terminal, or in a log, how far a run has come.
//
//	p := progress.New(os.Stderr, progress.Auto)
//	defer p.Close()
//	res, err := kahn.Execute(ctx, g, step, p.Options()...)
//
// On a terminal a Progress draws, ten times a second, a header, the failures, what the run waits for, and the steps that are running,
// longest first, with the last lines that they logged or emitted:
//
//	[12/40] 1 failed 2 running 1 suspended 00:12
//	FAILED lint: step_error: 3 problems
//	   | main.go:7: declared and not used: n
//	?? approve                                           4.0s
//	=> test/server                                       9.8s
//	   | --- PASS: TestServer
//	=> build/web                                         3.2s
//
// The last lines that a step logged or emitted stay below its failure, up to ten. If there is little room, failures come first.
//
// The header counts the nodes of the outermost graph: [12/40] means that 12 of 40 have ended. A composite counts as one node, and the items
// of a map do not count. The output of a failed item is shown with its map.
//
// If the writer is not a terminal, Progress writes a line for every transition of a node and for every line that a step logs. Every 30
// seconds it lists the steps that are still running.
//
// If a run continues from a snapshot or a store, its events do not say how many nodes it has, or which of them ended before. A Progress
// with [Progress.Options] asks the run for both. With [Progress.Event] alone the header counts only nodes that have ended since the run
// continued, as in [2/?], until the run has ended.
//
// A Progress is an io.Writer, too: it shows the host's own output above the picture. A [Group] shows several runs at once.
//
// A Progress cannot delay a run: it receives events on one goroutine and writes on another, and neither performs steps. Between two frames
// the terminal is in its original state, with a visible cursor below the picture, so nothing needs to be restored when the process is
// interrupted, panics or is killed.
package progress

import (
	"io"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Mode is a way to show progress. A Mode can be used with flag.TextVar: "auto", "tty", "plain" or "json".
type Mode uint8

// The modes.
const (
	Auto  Mode = iota // TTY if the writer is a terminal, TERM is not "dumb" and CI is not set; else Plain
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

// Options returns the options that make a run show its progress: [kahn.OnEvent] with the method Event, and [kahn.Around], from which the
// Progress learns what the run did before it continued from a snapshot or a store.
func (p *Progress) Options() []kahn.Option {
	return p.options(func(r *kahn.Run) func(*kahn.Result) {
		p.Follow(r)
		return nil
	})
}

// Follow sets the run that the Progress shows. At the next event the Progress asks the run when it began and what it has done. Follow is
// for a Progress that joins a run which has already begun or continued; Options includes it.
func (p *Progress) Follow(r *kahn.Run) { p.locked(func() { p.run.source = r }) }
