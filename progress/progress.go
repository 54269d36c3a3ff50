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
// Elsewhere it writes a line for every transition of a node, and every 30 seconds one that lists the steps still running.
//
// For a run that goes on from a snapshot or a store it shows only the present life: [2/?], since the events of that life do
// not tell the number of nodes. Pass it the events of the earlier lives, too, and it includes them.
//
// A Progress is an io.Writer, too: it shows the host's own output above the picture.
//
// It cannot delay a run: events come on a goroutine of the run's own, and are written on another. Between two frames the
// terminal is in its original state, with the cursor below the picture, visible; so nothing needs to be restored when a
// process is interrupted, panics or is killed.
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
	"github.com/seed-c794f7ef/kahn/event"
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

// The size of a terminal that does not report one.
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
	lines   bytes.Buffer // not written yet, each cleaned and ended
	partial []byte       // a line of Write that has not ended
	started bool
	closed  bool

	wake chan struct{} // has room for one: there are lines, or it is time to end
	done chan struct{} // closed when the painter has returned
	rest sync.Once     // writes the rest after done is closed
	err  error         // of w, once rest is done
}

// New returns a Progress that writes to w. Nothing else should write to the same terminal until the run has ended: see
// [Progress.Write].
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

// Event records an event. It is a sink for [kahn.OnEvent], and does not wait for the writer.
func (p *Progress) Event(e event.Event) {
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
		if err != nil { // a payload of the host without a JSON form
			text, _ = json.Marshal(map[string]any{"eventId": e.ID, "type": e.Type, "nodeId": e.Node, "error": err.Error()})
		}
		p.lines.Write(append(text, '\n'))
	}
	if !p.started {
		p.started = true
		go p.paint()
	}
	p.wakeUp()
}

// wakeUp wakes the painter if there are lines to be written at once, with the lock held. On a terminal lines come with the
// next frame.
func (p *Progress) wakeUp() {
	if p.run.over || p.mode != TTY && p.lines.Len() > 0 {
		p.signal()
	}
}

// maxLine is the length in bytes at which a line of Write is broken.
const maxLine = 1 << 16

// Write shows the host's own output: whole lines, above the picture on a terminal and between the other lines in a log,
// where each is an object {"output": "..."} in JSON. A line that has not ended waits for its end, or for Close; a line from
// a single call is never split. Escape sequences and the like are spelled out, as in the names of nodes. Write does not
// block, and its error matches [os.ErrClosed] after Close, else it is nil.
func (p *Progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, fmt.Errorf("progress: %w", os.ErrClosed)
	}
	p.partial = append(p.partial, text...)
	for {
		i := bytes.IndexByte(p.partial, '\n')
		switch {
		case i >= 0:
			p.output(p.partial[:i])
			p.partial = p.partial[i+1:]
			continue
		case len(p.partial) >= maxLine:
			p.output(p.partial)
			p.partial = nil
		}
		break
	}
	p.wakeUp()
	return len(text), nil
}

// output appends a line of the host to the pending lines, with the lock held.
func (p *Progress) output(line []byte) {
	text := string(bytes.TrimSuffix(line, []byte("\r")))
	if p.mode != JSON {
		p.lines.WriteString(clean(text) + "\n")
		return
	}
	data, _ := json.Marshal(map[string]string{"output": text}) // strings can be encoded
	p.lines.Write(append(data, '\n'))
}

// writeLine appends a line to the pending lines, with the lock held.
func (p *Progress) writeLine(now time.Time, line string) {
	fmt.Fprintf(&p.lines, "%s %s\n", clock(now.Sub(p.run.start)), clean(line))
}

// Close ends the display, if the run has not ended it, and returns when everything is written, with the first error of the
// writer. It waits for the writer. Closing again is harmless.
func (p *Progress) Close() error {
	p.mu.Lock()
	if !p.closed && len(p.partial) > 0 {
		p.output(p.partial)
		p.partial = nil
	}
	p.closed = true
	started := p.started
	p.mu.Unlock()
	if started {
		p.signal()
		<-p.done
	}
	p.rest.Do(func() { p.write(p.lines.Bytes()) }) // lines after the run, or without one; no more are added
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
			out = screen.draw(p.lines.Bytes(), p.run.frame(time.Now(), width, height), height, p.red)
			p.lines.Reset()
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

// write writes until the writer fails for the first time. The host's writer may panic.
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
