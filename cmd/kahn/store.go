package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// The labels by which this command finds the runs of a definition.
const (
	labelFile   = "kahn.file"   // the definition
	labelInputs = "kahn.inputs" // a hash of the given inputs
)

// storedRun is the run that the command performs, and the store of the run, if there is one.
type storedRun struct {
	db     *sqlite.Store // nil without a store
	id     string        // "" means that the run gets a new id
	labels map[string]string
	lease  time.Duration
	file   string
	info   os.FileInfo    // describes the file that was opened
	goesOn bool           // whether the run is in the store and this command continues or redrives it
	asked  bool           // whether the run has ended and a request to redrive it waits in the store
	again  bool           // whether this command redrives the run
	ended  bool           // whether the run is in the store and has ended
	roots  map[string]any // the stored inputs of the run; set if goesOn is true
}

// The method `open` opens the store, if there is one, and chooses the run.
func (h *host) open(ctx context.Context) (*storedRun, error) {
	if h.store == "" {
		return &storedRun{id: h.id}, nil
	}
	if h.again.asked {
		if err := present(h.store); err != nil {
			return nil, err
		}
	}
	db, err := sqlite.Open(h.store, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	s := &storedRun{db: db, lease: h.lease, file: h.store}
	if s.info, err = os.Stat(h.store); err == nil {
		err = s.choose(ctx, h)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	switch {
	case s.ended:
		h.t.printf("run %s had ended before; another -run begins a new one\n", s.id)
	case s.again:
		h.t.printf("redrive of run %s\n", s.id)
	case s.asked:
		h.t.printf("a redrive of run %s was posted\n", s.id)
	case s.goesOn:
		h.t.printf("run %s continues\n", s.id)
	default:
		h.t.printf("run %s\n", s.id)
	}
	return s, nil
}

// goneError says that the file of the store was removed or replaced during the run.
type goneError struct{ file string }

func (e *goneError) Error() string {
	return fmt.Sprintf("%s was removed or replaced during the run: the run is not kept", e.file)
}

// The method `present` returns a goneError if the file of the store was removed or replaced after the store was opened.
func (s *storedRun) present() error {
	if s.db == nil {
		return nil
	}
	if info, err := os.Stat(s.file); err != nil || !os.SameFile(info, s.info) {
		return &goneError{s.file}
	}
	return nil
}

func (s *storedRun) close() {
	if s.db != nil {
		_ = s.db.Close() // committed data is already in the file
	}
}

// The method `choose` chooses the run: the run that -run names, otherwise the unfinished run of the definition, otherwise a new run. It returns
// an error if the definition has several unfinished runs. If the user gives inputs, choose ignores unfinished runs with other inputs, and returns an
// error if -run names one of these.
func (s *storedRun) choose(ctx context.Context, h *host) error {
	file, err := filepath.Abs(h.file)
	if err != nil {
		return err
	}
	inputs, err := json.Marshal(h.inputs) // Marshal sorts the inputs by name
	if err != nil {
		return err
	}
	s.labels = map[string]string{labelFile: file, labelInputs: fmt.Sprintf("%.8x", sha256.Sum256(inputs))}
	if h.id != "" {
		s.id = h.id
		stored, err := s.db.Load(ctx, h.id)
		switch {
		case errors.Is(err, store.ErrUnknownRun) && h.again.asked:
			return h.unknownRun()
		case errors.Is(err, store.ErrUnknownRun):
			return nil
		case err != nil:
			return err
		case h.again.asked:
			s.again = true
			return cmp.Or(h.again.ended(stored), s.goOn(h, stored))
		}
		s.asked = stored.Status.Terminal() && stored.Posted > stored.Taken
		if s.ended = stored.Status.Terminal() && !s.asked; s.ended {
			return nil
		}
		if len(h.inputs) > 0 && stored.Labels[labelInputs] != s.labels[labelInputs] {
			return fmt.Errorf("run %s has begun with other inputs; leave -input out to continue it", h.id)
		}
		return s.goOn(h, stored)
	}
	wanted := map[string]string{labelFile: file}
	if len(h.inputs) > 0 {
		wanted = s.labels
	}
	page, err := s.db.List(ctx, store.Query{Filter: store.Filter{Labels: wanted, Statuses: unended}})
	if err != nil {
		return err
	}
	switch len(page.Runs) {
	case 0:
		s.id = h.graph.Name + "-" + uuid.NewString()[:8]
	case 1:
		s.id = page.Runs[0].ID
		stored, err := s.db.Load(ctx, s.id)
		if err != nil {
			return err
		}
		return s.goOn(h, stored)
	default:
		var ids []string
		for _, run := range page.Runs {
			ids = append(ids, run.ID)
		}
		return fmt.Errorf("several runs of %s have not ended: %s; choose one with -run", h.file, strings.Join(ids, ", "))
	}
	return nil
}

// goOn prepares s to continue or redrive a stored run with the run's stored inputs and labels. It returns errChanged if the run began with another graph.
func (s *storedRun) goOn(h *host, stored *store.Run) error {
	plan, err := h.graph.Compile()
	if err == nil {
		err = unchanged(stored, plan)
	}
	if err != nil {
		return err
	}
	s.goesOn, s.labels = true, stored.Labels
	s.roots, err = storedRoots(stored)
	return err
}

// unended lists the statuses of runs that have not ended.
var unended = []kahn.RunStatus{kahn.RunPending, kahn.RunRunning, kahn.RunSuspended}

func (s *storedRun) options() []kahn.Option {
	switch {
	case s.db == nil && s.id == "":
		return nil
	case s.db == nil:
		return []kahn.Option{kahn.RunID(s.id)}
	}
	return []kahn.Option{kahn.Durable(s.db), kahn.RunID(s.id), kahn.Describe(store.Spec{Labels: s.labels}), kahn.Lease("", s.lease), kahn.StoreEvents()}
}

// The method `start` starts the run. If another process performs the run, start posts the answers to the store. Then it tries repeatedly to
// start the run, until this succeeds or one and a half times the lease has passed. When the other process has taken all posted answers, start stops
// trying: it returns an error that matches errRefused if an answer was refused, and errPosted otherwise. If the time passes before all posted answers
// are taken, the error matches errPosted. A redrive does not wait: if another process performs the run, start returns an error at once.
func (s *storedRun) start(ctx context.Context, t *terminal, answers pairs, start func() (*kahn.Run, error)) (*kahn.Run, error) {
	run, err := start()
	if s.again && errors.Is(err, kahn.ErrLeased) {
		return nil, fmt.Errorf("run %s is performed by another process", s.id)
	}
	if s.db == nil || !errors.Is(err, kahn.ErrLeased) {
		return run, err
	}
	patience := s.lease + s.lease/2
	t.printf("run %s is performed by another process; waiting for it, for at most %v\n", s.id, patience)
	ids, failed := s.post(ctx, answers)
	if failed != nil {
		return nil, failed
	}
	clear(answers)
	if len(ids) > 0 {
		t.printf("the answers were posted for that process\n")
	}
	end := time.After(patience)
	again := time.NewTicker(max(s.lease/50, time.Millisecond))
	defer again.Stop()
	for errors.Is(err, kahn.ErrLeased) {
		select {
		case <-again.C:
			if err := s.replies(ctx, ids); err != nil {
				return nil, err
			}
			run, err = start()
		case <-end:
			if len(ids) > 0 {
				return nil, fmt.Errorf("%w %s: it has not taken the answers yet", errPosted, s.id)
			}
			return nil, fmt.Errorf("run %s is performed by another process", s.id)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return run, err
}

// advise prints, for each waiting node, the command that answers the node. Without a store, it prints that the state of the run is lost.
func (h *host) advise(res *kahn.Result) {
	if h.store == "" {
		h.t.printf("its state is lost; -store FILE would keep it, and -ask or -ui wait for an answer\n")
		return
	}
	for _, wait := range res.Waiting {
		h.t.printf("to answer: kahn run -store %s -run %s -answer %s=VALUE %s\n", shellWord(h.store), shellWord(res.ID()), shellWord(wait.Node), shellWord(h.file))
	}
}
