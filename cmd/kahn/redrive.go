package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// redrive holds the flags of a redrive.
type redrive struct {
	asked               bool
	nodes               paths
	anew, despite, keep bool
}

// paths is a flag that takes the path of a node, and may be repeated.
type paths []string

// String implements flag.Value.
func (p *paths) String() string { return strings.Join(*p, " ") }

// Set implements flag.Value.
func (p *paths) Set(path string) error {
	if path == "" {
		return errors.New("expected the path of a node")
	}
	*p = append(*p, path)
	return nil
}

// The method `modes` returns an option for each redrive mode that a flag has set.
func (r *redrive) modes() (opts []kahn.Option) {
	for _, mode := range []struct {
		mode kahn.RedriveMode
		set  bool
	}{{kahn.Anew, r.anew}, {kahn.DespiteHandlers, r.despite}, {kahn.KeepDescendants, r.keep}} {
		if mode.set {
			opts = append(opts, mode.mode)
		}
	}
	return opts
}

// The method `options` returns the options for the redrive of a stored run.
func (r *redrive) options() []kahn.Option { return append(r.modes(), kahn.Redrive(nil, r.nodes)) }

// The method `ended` returns an error if a run has not ended: only ended runs can be redriven.
func (r *redrive) ended(stored *store.Run) error {
	if !stored.Status.Terminal() {
		return fmt.Errorf("run %s has not ended: it is %v; without -redrive the command continues it", stored.ID, stored.Status)
	}
	return nil
}

// errChanged is the error for a stored run of another version of the definition.
var errChanged = errors.New("the definition has changed since the run began, and the run goes on only with the definition as it was then: " +
	"restore the file, or begin a new run with another -run")

// unchanged returns errChanged if a stored run has begun with another plan.
func unchanged(stored *store.Run, plan *kahn.Plan) error {
	if stored.Plan != "" && stored.Plan != plan.Hash() {
		return errChanged
	}
	return nil
}

// The function `hinted` says in the words of this command what to do about an error of the library. To an error that matches kahn.ErrHandlers it appends
// the name of the flag that allows the redrive. It returns other errors unchanged.
func hinted(err error) error {
	switch {
	case errors.Is(err, kahn.ErrHandlers):
		return fmt.Errorf("%w; the flag is -despite-handlers", err)
	case errors.Is(err, kahn.ErrGraphChanged):
		return errChanged
	}
	return err
}

// The method `preview` shows what a redrive would run again, and runs nothing.
func (h *host) preview(ctx context.Context) int {
	nodes, err := h.repeated(ctx)
	if err != nil {
		return h.t.refuse(hinted(err))
	}
	for _, node := range nodes {
		h.t.write("would run again: " + node + "\n")
	}
	h.t.write("no step was run\n")
	return exitOK
}

// The method `repeated` returns the paths of the nodes that a redrive would run again, in the order of declaration.
func (h *host) repeated(ctx context.Context) ([]string, error) {
	if err := present(h.store); err != nil {
		return nil, err
	}
	db, err := sqlite.Open(h.store, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	s := &storedRun{db: db}
	defer s.close()
	stored, err := db.Load(ctx, h.id)
	if errors.Is(err, store.ErrUnknownRun) {
		err = h.unknownRun()
	}
	if err == nil {
		err = h.again.ended(stored)
	}
	if err != nil {
		return nil, err
	}
	plan, err := h.graph.Compile()
	if err != nil {
		return nil, err
	}
	if err := unchanged(stored, plan); err != nil {
		return nil, err
	}
	snapshot, err := kahn.ReadSnapshot(ctx, db, h.id)
	if err != nil {
		return nil, err
	}
	return kahn.RedrivePreview(plan, snapshot, h.again.nodes, h.again.modes()...)
}

// unknownRun returns the error for a redrive of a run that is not in the store.
func (h *host) unknownRun() error { return fmt.Errorf("there is no run %s in %s", h.id, h.store) }

// The function `present` returns an error if the file of a store does not exist. Callers call present before they open the store, since opening it
// would create the file.
func present(file string) error {
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no %s", file)
	}
	return nil
}
