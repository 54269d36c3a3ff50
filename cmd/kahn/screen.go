package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/progress"
)

// screen shows the progress of a run, and the output of its commands. It can be paused while the command asks a question.
type screen struct {
	h       *host
	mu      sync.Mutex // guards the fields below
	display *progress.Progress
	run     *kahn.Run    // nil until the run begins
	held    []kahn.Event // events that arrive while the display is closed
	waited  []string     // the nodes for which the run waited when the display was closed
}

// mostHeld bounds the length of held. If more events arrive, the oldest ones are dropped. A new display does not need them, since it asks
// the run for everything that has happened.
const mostHeld = 1_000

func newScreen(h *host) *screen {
	s := &screen{h: h}
	s.resume()
	return s
}

// The method `follow` passes the run to the display. If this process continues the run, the display asks the run what happened before. follow has the
// type that kahn.Around takes.
func (s *screen) follow(_ context.Context, run *kahn.Run) (context.Context, func(*kahn.Result)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = run
	if s.display != nil {
		s.display.Follow(run)
	}
	return nil, nil
}

// The method `event` is a sink for the run's events.
func (s *screen) event(e kahn.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.display == nil {
		if s.held = append(s.held, e); len(s.held) > mostHeld {
			s.held = s.held[1:]
		}
		return
	}
	s.show(e)
}

func (s *screen) show(e kahn.Event) {
	// A run that is continued tells that it waits, but names only nodes that begin to wait. The answers may be given before the display can ask the run.
	if c, ok := e.Payload.(event.StatusChange); ok && s.h.show != progress.JSON && len(c.Waiting) == 0 && c.TotalWaiting == len(s.waited) {
		c.Waiting = s.waited
		e.Payload = c
	}
	s.display.Event(e)
	if d, ok := e.Payload.(event.Delta); ok && s.h.verbose {
		s.write(fmt.Sprintf("%s | %v\n", screenText(e.Path), d.Chunk))
	}
}

// The method `write` writes output lines of commands. If the standard output and the display are on the same terminal, the lines appear above the
// display.
func (s *screen) write(lines string) {
	if s.h.t.both {
		_, _ = io.WriteString(s.display, lines) // the display keeps the error until Close returns it
	} else {
		s.h.t.write(lines)
	}
}

// The method `note` writes a message of the program above the display. While the display is closed, note writes nothing.
func (s *screen) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.display != nil {
		_, _ = io.WriteString(s.display, line+"\n") // the display keeps the error until Close returns it
	}
}

// The method `items` passes the number of items of a map to the display.
func (s *screen) items(path string, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.display != nil {
		s.display.Items(path, total)
	}
}

// The method `gone` shows that no process has performed the run since the given time.
func (s *screen) gone(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.display != nil {
		s.display.Gone(since)
	}
}

// The method `pause` closes the display, so that the command can ask a question.
func (s *screen) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.waited = nil
		for _, wait := range s.run.Waiting() {
			s.waited = append(s.waited, wait.Node)
		}
	}
	if s.display != nil {
		_ = s.display.Close() // continue even if the display has failed
		s.display = nil
	}
}

// The method `resume` opens a new display, and passes the held events to it.
func (s *screen) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.display = progress.New(s.h.t.err, s.h.show)
	if s.run != nil {
		s.display.Follow(s.run)
	}
	for _, e := range s.held {
		s.show(e)
	}
	s.held = nil
}

func (s *screen) close() { s.pause() }

// reportNodes writes the status of each node, except nodes that have completed or still wait for predecessors. It also writes which outputs are from
// the cache, and the errors of guards.
func reportNodes(b *strings.Builder, res *kahn.Result) {
	for n := range res.Nodes() {
		if n.GuardErr != nil {
			fmt.Fprintf(b, "%s: guard could not decide: %s\n", screenText(n.ID), screenText(n.GuardErr.Error()))
		}
		switch n.Status {
		case kahn.Completed:
			if n.Hit != nil {
				fmt.Fprintf(b, "%s: from the cache: run %s, %s\n", screenText(n.ID), screenText(n.Hit.Run), n.Hit.At.UTC().Format(time.RFC3339))
			}
		case kahn.Idle, kahn.Waiting:
		case kahn.Skipped:
			fmt.Fprintf(b, "%s: skipped: %s\n", screenText(n.ID), screenText(n.Skip.String()))
		case kahn.Suspended:
			for _, wait := range res.Waiting { // of a composite, the gates inside
				if rest, is := strings.CutPrefix(wait.Node, n.ID); is && (rest == "" || strings.ContainsAny(rest[:1], "/[#")) {
					fmt.Fprintf(b, "%s: waits for an answer\n", screenText(wait.Node))
				}
			}
		case kahn.Ready, kahn.Running, kahn.Retrying: // the run was left
			fmt.Fprintf(b, "%s: %v when the run stopped\n", screenText(n.ID), n.Status)
		default:
			fmt.Fprintf(b, "%s: %v: %s\n", screenText(n.ID), n.Status, screenText(fmt.Sprint(n.Cause.Err)))
		}
	}
}

// reportUndone writes which nodes were undone and which could not be undone. Instead of a composite without its own compensation, it reports
// the nodes inside.
func reportUndone(b *strings.Builder, res *kahn.Result, prefix string) {
	for n := range res.Nodes() {
		if n.Compensation == kahn.CompensationNone {
			continue
		}
		before, path := b.Len(), screenText(prefix+n.ID)
		if n.Sub != nil {
			inside := prefix + n.ID + "/"
			for item := range n.Sub.Nodes() {
				if strings.HasPrefix(item.ID, n.ID+"[") {
					inside = prefix
				}
				break
			}
			reportUndone(b, n.Sub, inside)
		}
		switch {
		case b.Len() > before:
		case n.Compensation == kahn.CompensationFailed:
			fmt.Fprintf(b, "%s: could not be undone: %s\n", path, screenText(fmt.Sprint(n.CompensationErr)))
		case n.Compensation == kahn.CompensationDone:
			fmt.Fprintf(b, "%s: undone\n", path)
		default: // the run was left
			fmt.Fprintf(b, "%s: being undone when the run stopped\n", path)
		}
	}
}

// The function `report` writes the lines of reportNodes and reportUndone, and then the outcome and the output of the run.
func report(t *terminal, res *kahn.Result) {
	var b strings.Builder
	reportNodes(&b, res)
	reportUndone(&b, res, "")
	degraded := ""
	if res.Degraded {
		degraded = ", in spite of failures"
	}
	fmt.Fprintf(&b, "run %v%s after %v\n", res.Status, degraded, res.Duration.Round(time.Millisecond))
	text, isText := res.Output().(string)
	if isText {
		b.WriteString(strings.TrimSpace(text) + "\n")
	}
	t.write(b.String())
	if !isText && res.Output() != nil {
		t.writeJSON(outputText(res.Output()))
	}
}
