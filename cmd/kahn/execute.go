package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/seed-c794f7ef/kahn"
)

// execute runs the graph until it has ended, or waits for an answer that nobody is there to give. The Result is nil if nothing was run.
func (h *host) execute(ctx context.Context) (*kahn.Result, error) {
	opts := []kahn.Option{kahn.Limit(h.limit), kahn.Timeout(h.timeout)}
	roots, err := h.roots()
	if err != nil {
		return nil, err
	}
	rn := &kahn.Runner{}
	shelf := &shelf{}
	if h.store != "" {
		if shelf, err = h.open(ctx); err != nil {
			return nil, err
		}
		defer shelf.close()
		if shelf.ended {
			return kahn.ReadResult(ctx, h.graph, shelf.db, shelf.id)
		}
		opts = append(opts, shelf.options()...)
	} else if h.id != "" {
		opts = append(opts, kahn.RunID(h.id))
	}
	if !shelf.goesOn {
		opts = append(opts, kahn.Inputs(roots))
	}
	if h.page.addr != "" {
		closePage, err := h.servePage(rn, shelf.db)
		if err != nil {
			return nil, err
		}
		defer closePage()
		defer h.linger(ctx)
	}
	return h.perform(ctx, rn, shelf, opts)
}

// perform starts the run, answers what it asks for, and waits for it.
func (h *host) perform(ctx context.Context, rn *kahn.Runner, shelf *shelf, opts []kahn.Option) (*kahn.Result, error) {
	s := newScreen(h)
	defer s.close()
	opts = append(opts, kahn.OnEvent(s.event))
	working := context.WithoutCancel(ctx) // a run that waits in a store is left, and not cancelled
	run, err := shelf.start(ctx, h.t, func() (*kahn.Run, error) { return rn.Start(working, h.graph, h.step, opts...) })
	if err != nil {
		return nil, err
	}
	var cancelled atomic.Bool
	defer context.AfterFunc(ctx, func() {
		cancelled.Store(true)
		if shelf.db != nil && run.Status() == kahn.RunSuspended {
			run.Leave()
		} else {
			run.Cancel()
		}
	})()
	asks := asker{answers: maps.Clone(h.answers), ask: h.ask, t: h.t}
	watching, stop := context.WithCancel(working)
	defer stop()
	go func() { // a run that is left ends without a change of its status
		<-run.Done()
		stop()
	}()
	for change := range rn.Watch(watching) {
		if change.Run != run || change.Status != kahn.RunSuspended {
			continue
		}
		s.pause()
		answered, err := asks.answer(ctx, run)
		s.resume()
		if err != nil || !answered && h.page.addr == "" {
			run.Leave()
			res, left := run.Wait()
			return res, errors.Join(err, left)
		}
	}
	return run.Wait()
}

// asker answers the nodes that a run waits for: from the flags, else from the terminal.
type asker struct {
	answers pairs
	ask     bool
	t       *terminal
}

// answer answers nodes that wait, and reports whether it could. An empty line is no answer, and the terminal is asked again; the end of
// the input is the last answer.
func (a *asker) answer(ctx context.Context, run *kahn.Run) (answered bool, err error) {
	for {
		for _, wait := range run.Waiting() {
			value, ok := a.answers[wait.Node]
			delete(a.answers, wait.Node) // if it is asked for again, by a loop, it is another question
			if !ok && a.ask {
				if value, ok, err = a.read(ctx, wait.Node); err != nil {
					return answered, err
				}
			}
			if !ok {
				continue
			}
			if err := run.Signal(wait.Node, value); err != nil {
				return answered, err
			}
			answered = true
		}
		if answered || !a.ask {
			return answered, nil
		}
	}
}

// read asks for an answer on the terminal. It gives up when ctx ends; the goroutine that reads is left behind, as the process is about
// to end.
func (a *asker) read(ctx context.Context, node string) (any, bool, error) {
	a.t.printf("%s: ", node)
	type answer struct {
		line string
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		line, err := a.t.in.ReadString('\n')
		read <- answer{line, err}
	}()
	select {
	case got := <-read:
		a.ask = got.err == nil
		text := strings.TrimSpace(got.line)
		if errors.Is(got.err, io.EOF) {
			got.err = nil
		}
		return text, text != "", got.err
	case <-ctx.Done():
		a.ask = false
		return nil, false, nil
	}
}
