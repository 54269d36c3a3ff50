package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/progress"
)

// host holds the values of the flags, and the program's input and output.
type host struct {
	answers        pairs
	ask            bool
	state          string
	verbose        bool
	show           progress.Mode
	opts           []kahn.Option
	stdin          *bufio.Reader
	stdout, stderr io.Writer
}

// execute runs the graph until it waits for an answer, and goes on with the answers as far as it has any. It begins with the
// state of an earlier run, if one was kept.
func (h *host) execute(ctx context.Context, g *kahn.Graph, step kahn.StepFunc) (*kahn.Result, error) {
	snapshot, err := h.restore()
	if err != nil {
		return nil, err
	}
	for {
		var signals map[string]any
		if snapshot != nil {
			if signals, err = h.answer(snapshot.Waiting()); err != nil {
				return nil, err
			}
		}
		res, err := h.leg(ctx, g, step, snapshot, signals)
		if res == nil {
			return nil, err
		}
		if res.Status != kahn.RunSuspended {
			return res, errors.Join(err, h.forget())
		}
		snapshot = res.Snapshot()
		if !h.canAnswer(snapshot.Waiting()) {
			return res, h.keep(snapshot)
		}
	}
}

// leg is one run from its beginning, or from a snapshot, to its end or the next wait.
func (h *host) leg(ctx context.Context, g *kahn.Graph, step kahn.StepFunc, from *kahn.Snapshot, signals map[string]any) (*kahn.Result, error) {
	display := progress.New(h.stderr, h.show)
	defer func() { _ = display.Close() }() // go on even if the display has failed
	opts := slices.Concat(h.opts, []kahn.Option{kahn.OnEvent(display.Event)})
	if h.verbose {
		w := h.stdout
		if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			w = display // else the picture, usually on the same terminal, would overwrite it
		}
		opts = append(opts, kahn.OnEvent(func(e kahn.Event) { show(w, e) }))
	}
	if from == nil {
		return kahn.Execute(ctx, g, step, opts...)
	}
	return kahn.Resume(ctx, g, step, from, signals, opts...)
}

// canAnswer reports whether there are answers for nodes that wait.
func (h *host) canAnswer(waiting []string) bool {
	for _, id := range waiting {
		if _, ok := h.answers[id]; ok {
			return true
		}
	}
	return h.ask
}

// answer returns the answers for nodes that wait: from the flags, else from the terminal. An empty line, or the end of the
// input, is no answer.
func (h *host) answer(waiting []string) (map[string]any, error) {
	signals := map[string]any{}
	for _, id := range waiting {
		if value, ok := h.answers[id]; ok {
			signals[id] = value
			continue
		}
		if !h.ask {
			continue
		}
		fmt.Fprintf(h.stderr, "%s: ", id)
		line, err := h.stdin.ReadString('\n')
		if value := strings.TrimSpace(line); value != "" {
			signals[id] = value
		}
		if errors.Is(err, io.EOF) {
			h.ask = false
		} else if err != nil {
			return nil, err
		}
	}
	return signals, nil
}

// restore reads the state of a run that waits, if there is one.
func (h *host) restore() (*kahn.Snapshot, error) {
	if h.state == "" {
		return nil, nil
	}
	data, err := os.ReadFile(h.state)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := new(kahn.Snapshot)
	return s, json.Unmarshal(data, s)
}

// keep writes the state of a run that waits.
func (h *host) keep(s *kahn.Snapshot) error {
	if h.state == "" {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(h.state, data, 0o600)
}

// forget removes the state of a run that is over, so that the next one begins anew.
func (h *host) forget() error {
	if h.state == "" {
		return nil
	}
	if err := os.Remove(h.state); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// show writes the text that a step streams.
func show(w io.Writer, e kahn.Event) {
	if d, ok := e.Payload.(event.Delta); ok {
		fmt.Fprintf(w, "%s | %v\n", e.Path, d.Chunk)
	}
}

// report writes the outcome of the run, and of every node that did not complete.
func report(w io.Writer, res *kahn.Result) {
	for n := range res.Nodes() {
		if n.GuardErr != nil {
			fmt.Fprintf(w, "%s: guard could not decide: %v\n", n.ID, n.GuardErr)
		}
		switch n.Status {
		case kahn.Completed, kahn.Idle, kahn.Waiting:
		case kahn.Skipped:
			fmt.Fprintf(w, "%s: skipped: %v\n", n.ID, n.Skip)
		case kahn.Suspended:
			fmt.Fprintf(w, "%s: waits for an answer\n", n.ID)
		default:
			fmt.Fprintf(w, "%s: %v: %v\n", n.ID, n.Status, n.Cause.Err)
		}
	}
	degraded := ""
	if res.Degraded {
		degraded = ", in spite of failures"
	}
	fmt.Fprintf(w, "run %v%s after %v\n", res.Status, degraded, res.Duration.Round(time.Millisecond))
	if text, ok := res.Output.(string); ok {
		fmt.Fprintln(w, strings.TrimSpace(text))
	} else if text, err := json.MarshalIndent(res.Output, "", "  "); err == nil && res.Output != nil {
		fmt.Fprintf(w, "%s\n", text)
	}
}
