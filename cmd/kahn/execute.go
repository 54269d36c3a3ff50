package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The method `execute` runs the graph until the run has ended or was left, and returns the exit code. A run that waits for an answer is left if no
// flag and no user can give the answer.
func (h *host) execute(ctx context.Context) int {
	stored, err := h.open(ctx)
	if err != nil {
		return h.t.refuse(err)
	}
	defer stored.close()
	rn := &kahn.Runner{}
	if h.page.addr != "" {
		end, err := h.servePage(rn, stored.db)
		if err != nil {
			return h.t.refuse(err)
		}
		defer end()
	}
	res, err := h.perform(ctx, rn, stored)
	code := h.conclude(res, errors.Join(err, stored.present()), ctx.Err() != nil)
	if res != nil {
		code = h.complain(res, code)
		h.linger(ctx)
	}
	return code
}

// The method `options` returns the options of the run.
func (h *host) options(stored *storedRun) ([]kahn.Option, error) {
	opts := append(stored.options(), kahn.Limit(h.limit), kahn.Timeout(h.timeout), kahn.Retain(h.page.events()))
	opts = append(opts, h.cache.options()...)
	if h.cancels {
		opts = append(opts, kahn.CancelWithContext())
	}
	if stored.again {
		opts = append(opts, h.again.options()...)
	}
	if stored.goesOn {
		return append(opts, h.knowRoots(stored.roots)), nil
	}
	roots, err := h.roots()
	return append(opts, kahn.Inputs(roots), h.knowRoots(roots)), err
}

// The method `perform` starts the run, answers its questions, and returns its Result. If the stored run has ended, perform only reads the Result. The
// Result is nil if no run has begun.
func (h *host) perform(ctx context.Context, rn *kahn.Runner, stored *storedRun) (*kahn.Result, error) {
	answers := maps.Clone(h.answers)
	h.untaken = answers
	if stored.ended {
		return kahn.ReadResult(ctx, h.graph, stored.db, stored.id)
	}
	opts, err := h.options(stored)
	if err != nil {
		return nil, err
	}
	s := newScreen(h)
	defer s.close()
	// Runner.Watch would not do here: it yields nothing if the run continues after an answer and is suspended again before Watch looks at it.
	suspended := make(chan struct{}, 1)
	opts = append(opts, kahn.OnEvent(s.event), kahn.Around(s.follow), kahn.OnEvent(func(e kahn.Event) {
		if c, ok := e.Payload.(event.StatusChange); ok && c.To == kahn.RunSuspended {
			select {
			case suspended <- struct{}{}:
			default:
			}
		}
	}))
	run, err := stored.start(ctx, h.t, answers, func() (*kahn.Run, error) { return rn.Start(ctx, h.graph, h.step, opts...) })
	if stored.db != nil && errors.Is(err, kahn.ErrFinished) { // another process has meanwhile ended the run, or the posted redrive was refused
		if stored.asked {
			h.t.printf("kahn: %v\n", err)
		}
		return kahn.ReadResult(ctx, h.graph, stored.db, stored.id)
	}
	if err != nil {
		return nil, err
	}
	// After Ctrl-C, the function `leave` cancels the run if there is no store or -cancel is set. In all other cases it leaves the run, and
	// another process can continue the run from the store.
	leave := func() {
		if ctx.Err() != nil && (stored.db == nil || h.cancels) {
			_ = run.Cancel() // if the run is at rest in a store, Cancel posts a request there; if this fails, the run stays unchanged
		} else {
			run.Leave()
		}
	}
	asks := asker{answers: answers, ask: h.ask, names: h.names, t: h.t}
	for {
		select {
		case <-run.Done():
			return run.Wait()
		case <-suspended:
		}
		if run.Status() != kahn.RunSuspended {
			continue
		}
		s.pause()
		answered, err := asks.answer(ctx, run)
		s.resume()
		if err != nil || !answered && h.page.addr == "" {
			leave()
			res, left := run.Wait()
			return res, errors.Join(err, left)
		}
	}
}

// asker answers waiting nodes. It takes an answer from the flags or, if the field `ask` is set, asks for it on the terminal.
type asker struct {
	answers pairs
	ask     bool
	names   names
	t       *terminal
	lines   chan line // the lines that the user types; nil until the first question
}

// line is a line that the user typed, with the error of reading it, if any.
type line struct {
	text string
	err  error
}

// The method `answer` gives waiting nodes their answers, and reports whether the run continues. On the terminal it repeats a question after an empty
// line and after an answer that the gate refuses. After the end of the input it asks no further questions.
func (a *asker) answer(ctx context.Context, run *kahn.Run) (goesOn bool, err error) {
	for {
		// A node whose deadline has passed needs no answer: the run is about to end the wait.
		waiting := slices.DeleteFunc(run.Waiting(), func(w kahn.Wait) bool {
			return !w.Deadline.IsZero() && !time.Now().Before(w.Deadline)
		})
		if len(waiting) == 0 {
			return true, nil
		}
		for _, wait := range waiting {
			value, given := a.answers[wait.Node]
			delete(a.answers, wait.Node) // each answer is used once: if a loop asks again, the new question needs its own answer
			answered := given
			if !given && a.ask {
				if value, answered, err = a.read(ctx, wait); err != nil {
					return goesOn, err
				}
			}
			if !answered {
				continue
			}
			switch err := run.Signal(context.Background(), wait.Node, value); {
			case errors.Is(err, kahn.ErrAnswered), errors.Is(err, kahn.ErrUnknownGate), errors.Is(err, kahn.ErrFinished):
				a.t.printf("%s does not wait any more\n", wait.Node)
				if given {
					a.answers[wait.Node] = value // the end of the run reports it: see complain
				}
			case !given && errors.Is(err, kahn.ErrChoice):
				a.t.printf("%s\n", screenText(err.Error()))
				continue
			case err != nil:
				return goesOn, err
			}
			goesOn = true
		}
		if goesOn || !a.ask {
			return goesOn, nil
		}
	}
}

// The method `read` asks for an answer on the terminal. It returns without an answer when ctx ends, or when the deadline of the node has passed. The
// goroutine that reads lines runs until the input or the process ends.
func (a *asker) read(ctx context.Context, wait kahn.Wait) (any, bool, error) {
	if label := a.names.label(wait.Node); label != "" {
		a.t.printf("%s\n", label)
	}
	a.t.printf("%s: ", wait.Node)
	if a.lines == nil {
		a.lines = make(chan line)
		go func() {
			for err := error(nil); err == nil; {
				var text string
				text, err = a.t.in.ReadString('\n')
				a.lines <- line{strings.TrimSpace(text), err}
			}
		}()
	}
	var over <-chan time.Time
	if !wait.Deadline.IsZero() {
		over = time.After(time.Until(wait.Deadline))
	}
	select {
	case got := <-a.lines:
		a.ask = got.err == nil
		if errors.Is(got.err, io.EOF) {
			got.err = nil
		}
		return got.text, got.text != "", got.err
	case <-over:
		a.t.printf("too late\n")
	case <-ctx.Done():
		a.ask = false
	}
	return nil, false, nil
}
