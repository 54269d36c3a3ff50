// Package progress shows on a terminal, or in a log, how far a run has come.
//
//	p := progress.New(os.Stderr, progress.Auto)
//	defer p.Close()
//	res, err := kahn.Execute(ctx, g, step, kahn.OnEvent(p.Event))
//
// On a terminal it draws, ten times a second, a header, the failures, and the steps that are running, longest first:
//
//	[12/40] 2 running 1 failed 00:12
//	FAILED lint: step_error: 3 problems
//	=> test/server                                       9.8s
//	=> build/web                                         3.2s
//
// Elsewhere it writes a line for everything that happens to a node, and every 30 seconds one that tells what is still
// running.
//
// Of a run that goes on from a snapshot or a store it shows what happens from then on: [2/?], since the events of that life do
// not tell how many nodes there are. Give it the events of the lives before, and it counts on from there.
//
// It cannot delay a run: events come on a goroutine of the run's own, and are written on another. Between two frames the
// terminal is as it was found, with the cursor below the picture, visible; a process that is interrupted, panics or is
// killed leaves nothing to be restored.
package progress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/seed-c794f7ef/kahn"
)

// Mode is a way to show progress. It is a flag.TextVar: "auto", "tty", "plain" or "json".
type Mode uint8

// The modes.
const (
	Auto  Mode = iota // TTY if the writer is a terminal, TERM is not "dumb" and CI is not set; else Plain
	TTY               // a picture that is drawn over and over
	Plain             // a line for every transition of a node
	JSON              // every event as a line of JSON
)

var modeNames = []string{"auto", "tty", "plain", "json"}

// String returns "auto", "tty", "plain" or "json".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", m)
}

// MarshalText encodes m as its name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText decodes a name. Anything else is an error that matches [kahn.ErrBadValue].
func (m *Mode) UnmarshalText(text []byte) error {
	for i, name := range modeNames {
		if name == string(text) {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("%w: progress mode %.40q", kahn.ErrBadValue, text)
}

const (
	redrawEvery = 100 * time.Millisecond
	remindEvery = 30 * time.Second
)

// The size of a terminal that does not tell.
const defaultWidth, defaultHeight = 80, 24

// Progress shows one run. Its methods may be called concurrently. A goroutine begins with the first event, and ends with
// the run's last event or with Close.
type Progress struct {
	w    io.Writer
	mode Mode // not Auto
	fd   int  // of the terminal behind w, or -1
	red  bool // failures are in red

	mu      sync.Mutex // guards the fields below
	run     state
	lines   bytes.Buffer // not written yet
	started bool
	closed  bool

	wake chan struct{} // has room for one: there are lines, or it is time to end
	done chan struct{} // closed when the painter has returned
	err  error         // of w, once done is closed
}

// New returns a Progress that writes to w. Nothing else should write to the same terminal until the run has ended.
func New(w io.Writer, mode Mode) *Progress {
	p := &Progress{w: w, mode: mode, fd: -1, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if file, ok := w.(interface{ Fd() uintptr }); ok {
		if fd := int(file.Fd()); term.IsTerminal(fd) {
			p.fd = fd
		}
	}
	if mode == Auto {
		p.mode = Plain
		if ci := os.Getenv("CI"); p.fd >= 0 && os.Getenv("TERM") != "dumb" && (ci == "" || ci == "false") {
			p.mode = TTY
		}
	}
	p.red = os.Getenv("NO_COLOR") == ""
	return p
}

// Event takes note of an event. It is a sink for [kahn.OnEvent], and does not wait for the writer.
func (p *Progress) Event(e kahn.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.run.over {
		return
	}
	p.run.event(e)
	switch p.mode {
	case Plain:
		if line := p.run.line(e); line != "" {
			p.writeLine(e.Time, line)
		}
	case JSON:
		text, err := json.Marshal(e)
		if err != nil { // a payload of the host's that JSON has no form for
			text, _ = json.Marshal(map[string]any{"eventId": e.ID, "type": e.Type, "nodeId": e.Node, "error": err.Error()})
		}
		p.lines.Write(append(text, '\n'))
	}
	if !p.started {
		p.started = true
		go p.paint()
	}
	if p.run.over || p.lines.Len() > 0 {
		p.signal()
	}
}

// writeLine appends a line to what is to be written, with the lock held.
func (p *Progress) writeLine(now time.Time, line string) {
	fmt.Fprintf(&p.lines, "%s %s\n", clock(now.Sub(p.run.start)), clean(line))
}

// Close ends the display, if the run has not ended it, and returns when everything is written, with the first error of the
// writer. It waits for the writer. Closing again is harmless.
func (p *Progress) Close() error {
	p.mu.Lock()
	p.closed = true
	started := p.started
	p.mu.Unlock()
	if !started {
		return nil
	}
	p.signal()
	<-p.done
	return p.err
}

func (p *Progress) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// paint writes, until the run has ended or Close is called. It alone uses the writer, and never under the lock.
func (p *Progress) paint() {
	defer close(p.done)
	every := remindEvery
	if p.mode == TTY {
		every = redrawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var screen screen
	for last := false; !last; {
		ticked := false
		select {
		case <-p.wake:
		case <-ticker.C:
			ticked = true
		}
		width, height := p.size()
		p.mu.Lock()
		last = p.closed || p.run.over
		var out []byte
		switch {
		case p.mode == TTY:
			out = screen.draw(p.run.frame(time.Now(), width, height), height, p.red)
		default:
			if p.mode == Plain && ticked && !last {
				now := time.Now()
				p.writeLine(now, p.run.reminder(now))
			}
			out = bytes.Clone(p.lines.Bytes())
			p.lines.Reset()
		}
		p.mu.Unlock()
		p.write(out)
	}
}

// size is that of the terminal.
func (p *Progress) size() (width, height int) {
	if p.fd >= 0 {
		if width, height, err := term.GetSize(p.fd); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return defaultWidth, defaultHeight
}

// write writes until the writer fails for the first time. The host's writer may even panic.
func (p *Progress) write(out []byte) {
	if p.err != nil || len(out) == 0 {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			p.err = fmt.Errorf("progress: the writer panicked: %v", &kahn.PanicError{Value: v})
		}
	}()
	if _, err := p.w.Write(out); err != nil {
		p.err = fmt.Errorf("progress: %w", err)
	}
}
