package progress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

const (
	redrawEvery = 100 * time.Millisecond
	remindEvery = 30 * time.Second
)

// The constants defaultWidth and defaultHeight are the size of a picture if the writer is no terminal, or if the terminal does not report its
// size.
const defaultWidth, defaultHeight = 80, 24

// picture is what a display shows: one run, or the runs of a group. The display holds its lock while it calls the methods.
type picture interface {
	// The method `of` returns the state of the run to which an event belongs.
	of(e event.Event) *state
	// The method `record` adds an event to the picture. After `record`, the method `line` returns the log line of the same event, or "" if the
	// event has no line.
	record(e event.Event)
	line(e event.Event) string
	// After `record`, itemsLine returns a line that says how many items of maps have ended. It returns "" if no line of this kind is due.
	itemsLine(e event.Event) string
	// The method `above` returns the rows to write above the picture, where they stay. It returns each row once.
	above(width, height int) []row
	// frame returns the rows of the picture, at most width columns wide. The cursor needs a line, so frame returns fewer than height rows until
	// the picture is finished.
	frame(now time.Time, width, height int) []row
	// reminder returns a line that names nodes that are still running or waiting.
	reminder(now time.Time) string
	began() time.Time
	finished() bool // reports whether the picture has reached its final state
}

// display writes a picture, and the host's output, to a writer. Its goroutine, the painter, runs from the first event until the picture is
// finished or Close is called.
type display struct {
	w    io.Writer
	mode Mode // not Auto
	fd   int  // the file descriptor of the terminal, or -1 if w is no terminal
	red  bool // whether failures are in red

	mu      sync.Mutex // guards the fields below
	picture picture
	lines   bytes.Buffer // pending lines, each cleaned and ended by a newline
	partial []byte       // the beginning of a line whose end Write has not received yet
	started bool
	closed  bool

	wake chan struct{} // wakes the painter to write lines, or to finish; its buffer holds one signal
	done chan struct{} // closed when the painter has returned
	rest sync.Once     // writes the lines that are still pending after the painter has returned
	err  error         // the error of w; final once the remaining lines are written
}

func (d *display) init(w io.Writer, mode Mode, picture picture) {
	d.w, d.mode, d.fd, d.picture = w, mode, -1, picture
	d.wake, d.done = make(chan struct{}, 1), make(chan struct{})
	if file, ok := w.(interface{ Fd() uintptr }); ok {
		if fd := int(file.Fd()); term.IsTerminal(fd) {
			d.fd = fd
		}
	}
	if mode == Auto {
		d.mode = Plain
		if ci := os.Getenv("CI"); d.fd >= 0 && os.Getenv("TERM") != "dumb" && (ci == "" || ci == "false") {
			d.mode = TTY
		}
	}
	d.red = os.Getenv("NO_COLOR") == ""
}

// options returns the options that pass the events of a run to the display. kahn calls the function `begin` before it performs anything of the
// run. When this process no longer performs the run, kahn calls the function `end` that `begin` returned, unless `end` is nil. No caller of these
// two functions holds d.mu.
func (d *display) options(begin func(*kahn.Run) (end func(*kahn.Result))) []kahn.Option {
	return []kahn.Option{kahn.OnEvent(d.Event), kahn.Around(func(_ context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
		return nil, begin(r)
	})}
}

// The method `locked` calls f while it holds d.mu, unless the display is closed.
func (d *display) locked(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		f()
	}
}

// countEvery is the least time between two lines in which plain mode says how many items of maps have ended. It is measured by the times of
// events.
const countEvery = 5 * time.Second

// catchUp acts at the first event after Options or Follow has set the run. Unless this event is the start of the run, catchUp adds what the run
// did before: in earlier processes, and in this process before the display joined. catchUp does not hold d.mu while it reads the run.
func (d *display) catchUp(e event.Event) {
	var s *state
	var r *kahn.Run
	d.locked(func() {
		s = d.picture.of(e)
		if r, s.source = s.source, nil; r != nil {
			s.run, s.plan = r, r.Plan()
		}
	})
	if r == nil || e.Type == event.RunStarted {
		return
	}
	known := earlier(r)
	d.locked(func() { s.inherit(known) })
}

// If e is the first event inside a composite or inside an iteration of a loop, lookInside asks the run for the number of nodes there. lookInside
// does not hold d.mu while it reads the run.
func (d *display) lookInside(e event.Event) {
	var s *state
	var r *kahn.Run
	at := ""
	d.locked(func() {
		if s = d.picture.of(e); s.run != nil {
			r, at = s.run, s.unmeasured(e)
		}
	})
	if at == "" {
		return
	}
	if in, err := r.Inside(at); err == nil {
		d.locked(func() { s.measure(e, in) })
	}
}

// Event records an event. Pass it to [kahn.OnEvent]. Event does not wait for the writer.
func (d *display) Event(e event.Event) {
	d.catchUp(e)
	d.lookInside(e)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.picture.finished() {
		return
	}
	d.picture.record(e)
	switch d.mode {
	case Plain:
		if line := d.picture.line(e); line != "" {
			d.writeLine(e.Time, line)
		}
		if line := d.picture.itemsLine(e); line != "" {
			d.writeLine(e.Time, line)
		}
	case JSON:
		text, err := json.Marshal(e)
		if err != nil { // a value of the host cannot be encoded: write the error instead of the payload
			text, _ = json.Marshal(map[string]any{"eventId": e.ID, "type": e.Type, "nodeId": e.Node, "error": err.Error()})
		}
		d.writeJSON(text)
	}
	if !d.started {
		d.started = true
		go d.paint()
	}
	d.wakeUp()
}

// wakeUp wakes the painter if the picture is finished. It also does so if there are pending lines, except on a terminal, where lines wait for the
// next frame. The caller holds d.mu.
func (d *display) wakeUp() {
	if d.picture.finished() || d.mode != TTY && d.lines.Len() > 0 {
		d.signal()
	}
}

// If an unfinished line has maxLine bytes or more, Write does not wait for its newline and outputs the bytes as a line.
const maxLine = 1 << 16

// Write shows the host's own output as whole lines: above the picture on a terminal, and between the other lines in a log. In mode JSON each line
// becomes an object {"output": "..."}. An unfinished line waits for its newline or for Close, but Write breaks it if it has 64 KiB or more. Write
// never breaks a line that a single call passes together with its newline. Escape sequences and other control characters become visible text.
//
// Write does not block: the text stays in memory until the writer has taken it. A Progress keeps text that it gets after the end of the run until
// Close writes it. Write returns an error only after Close. This error matches [os.ErrClosed].
func (d *display) Write(text []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, fmt.Errorf("progress: %w", os.ErrClosed)
	}
	d.partial = append(d.partial, text...)
	for {
		i := bytes.IndexByte(d.partial, '\n')
		switch {
		case i >= 0:
			d.output(d.partial[:i])
			d.partial = d.partial[i+1:]
			continue
		case len(d.partial) >= maxLine:
			d.output(d.partial)
			d.partial = nil
		}
		break
	}
	d.wakeUp()
	return len(text), nil
}

// The method `output` appends a line of the host to the pending lines. The caller holds d.mu.
func (d *display) output(line []byte) {
	text := string(bytes.TrimSuffix(line, []byte("\r")))
	if d.mode != JSON {
		d.lines.WriteString(clean(text) + "\n")
		return
	}
	data, _ := json.Marshal(map[string]string{"output": text}) // a string can always be encoded
	d.writeJSON(data)
}

// writeJSON appends a line of JSON to the pending lines. The caller holds d.mu.
func (d *display) writeJSON(text []byte) {
	d.lines.Write(append(foreign.VisibleJSON(text), '\n'))
}

// writeLine appends a line to the pending lines. The caller holds d.mu.
func (d *display) writeLine(now time.Time, line string) {
	fmt.Fprintf(&d.lines, "%s %s\n", clock(now.Sub(d.picture.began())), clean(line))
}

// Close ends the display, waits until all output is written, and returns the writer's first error. If a run has not ended, its picture stays on
// the screen, and the display ignores its further events. Close may be called more than once.
func (d *display) Close() error {
	d.mu.Lock()
	if !d.closed && len(d.partial) > 0 {
		d.output(d.partial)
		d.partial = nil
	}
	d.closed = true
	started := d.started
	d.mu.Unlock()
	if started {
		d.signal()
		<-d.done
	}
	d.rest.Do(func() { d.write(d.lines.Bytes()) }) // writes the lines that the painter has not written; Write no longer adds lines
	return d.err
}

func (d *display) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// The method `paint` writes until the picture is finished or Close is called. Until paint returns, no other function uses the writer. paint does not
// hold d.mu while it writes.
func (d *display) paint() {
	defer close(d.done)
	every := remindEvery
	if d.mode == TTY {
		every = redrawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var screen screen
	for last := false; !last; {
		ticked := false
		select {
		case <-d.wake:
		case <-ticker.C:
			ticked = true
		}
		width, height := d.size()
		d.mu.Lock()
		last = d.closed || d.picture.finished()
		var out []byte
		switch {
		case d.mode == TTY:
			above := d.picture.above(width, height)
			out = screen.draw(d.lines.Bytes(), above, d.picture.frame(time.Now(), width, height), height, d.red)
			d.lines.Reset()
		default:
			if d.mode == Plain && ticked && !last {
				now := time.Now()
				d.writeLine(now, d.picture.reminder(now))
			}
			out = bytes.Clone(d.lines.Bytes())
			d.lines.Reset()
		}
		d.mu.Unlock()
		d.write(out)
	}
}

// size returns the size of the terminal.
func (d *display) size() (width, height int) {
	if d.fd >= 0 {
		if width, height, err := term.GetSize(d.fd); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return defaultWidth, defaultHeight
}

// The method `write` passes the bytes to the writer, unless an earlier call of the writer has failed. A panic of the host's writer counts as an
// error.
func (d *display) write(out []byte) {
	if d.err != nil || len(out) == 0 {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			d.err = fmt.Errorf("progress: the writer panicked: %v", &kahn.PanicError{Value: v})
		}
	}()
	if _, err := d.w.Write(out); err != nil {
		d.err = fmt.Errorf("progress: %w", err)
	}
}
