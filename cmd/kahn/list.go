package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

var listCommand = command{
	name: "list", summary: "list the runs of a store",
	text: `
One line for each run, the newest first: the id, the workflow, the status, what it undoes, when it was created and when it ended, and what
its steps have used in attempts that have ended, by name; then its key, if it has one. A run that fails undoes
its steps that have a compensate: it is then compensating, compensated, or compensation failed. An operator resolves a failed compensation, for
example on the page of "kahn serve".
The flags select runs: a run is listed if it matches all flags.

The exit code is 0, 1 if the store or the standard output fails, and 2 if there is no store in the file.`,
	register: func(f *flags) action {
		l := &lister{}
		f.file(&l.store, "store", "list the runs of this `file` (default: kahn.db)")
		f.choice(&l.undone, "compensation", "list runs whose steps are being undone, were undone, or could not be undone", anyRun, undoWords[kahn.CompensationRunning], undoWords[kahn.CompensationDone], undoWords[kahn.CompensationFailed])
		f.choice(&l.status, "status", "list runs in this status", append([]string{anyRun}, runStatuses()...)...)
		f.StringVar(&l.query.Workflow, "workflow", "", "list runs of the workflow of this `name`")
		f.StringVar(&l.query.Key, "key", "", "list runs with this `key`, such as the name of a tenant")
		f.StringVar(&l.query.Prefix, "prefix", "", "list runs whose ids begin with this `text`")
		f.IntVar(&l.most, "n", 100, "list at most `n` runs; 0 means all")
		return l.list
	},
}

// anyRun is the value with which the flags -compensation and -status select all runs.
const anyRun = "any"

// undoWords maps each state of a run's compensation to the word that selects this state in the flag -compensation. `kahn list` prints the same words,
// except "compensation failed" instead of "failed".
var undoWords = map[kahn.Compensation]string{
	kahn.CompensationRunning: "compensating", kahn.CompensationDone: "compensated", kahn.CompensationFailed: "failed",
}

func runStatuses() (list []string) {
	for s := kahn.RunPending; s <= kahn.RunCancelled; s++ {
		list = append(list, s.String())
	}
	return list
}

// lister performs the command `kahn list`.
type lister struct {
	store, undone, status string
	query                 store.Query
	most                  int
}

// The method `list` performs the command.
func (l *lister) list(ctx context.Context, t *terminal, _ []string) int {
	if l.most < 0 {
		return t.refuse(fmt.Errorf("-n %d: 0 or more", l.most))
	}
	for c, word := range undoWords {
		if l.undone == word {
			l.query.Compensation = c
		}
	}
	if l.status != anyRun {
		var s kahn.RunStatus
		_ = s.UnmarshalText([]byte(l.status)) // the flag allows only statuses
		l.query.Statuses = []kahn.RunStatus{s}
	}
	l.store = cmp.Or(l.store, "kahn.db")
	if err := present(l.store); err != nil {
		return t.refuse(err)
	}
	db, err := sqlite.Open(l.store, sqlite.Options{})
	if err != nil {
		return t.refuse(err)
	}
	defer func() { _ = db.Close() }() // nothing was written
	if err := l.write(ctx, t, db); err != nil {
		t.printf("kahn: %v\n", err)
		return exitProblems
	}
	return exitOK
}

// The method `write` reads the runs page by page, and then writes a line for each run.
func (l *lister) write(ctx context.Context, t *terminal, db *sqlite.Store) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	listed, more := 0, false
	for q := l.query; ; {
		q.Limit = store.MaxPage
		if l.most > 0 {
			q.Limit = min(q.Limit, l.most-listed)
		}
		page, err := db.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Runs {
			fmt.Fprintln(w, lineOf(&page.Runs[i]))
		}
		listed += len(page.Runs)
		if q.After = page.Next; page.Next == "" || listed == l.most {
			more = page.Next != ""
			break
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	t.write(text.String())
	if more {
		t.printf("kahn: there are more runs: see -n\n")
	}
	return nil
}

// lineOf returns the line of a run in the list: its columns, separated by tabs.
func lineOf(r *store.Run) string {
	undone := cmp.Or(undoWords[r.Compensation], "-")
	if r.Compensation == kahn.CompensationFailed {
		undone = "compensation failed"
	}
	ended := "-"
	if !r.Ended.IsZero() {
		ended = r.Ended.UTC().Format(time.RFC3339)
	}
	cells := []string{spelled(r.ID), cmp.Or(spelled(r.Workflow), "-"), r.Status.String(), undone, r.Created.UTC().Format(time.RFC3339), ended, usedBy(r)}
	if r.Key != "" {
		cells = append(cells, "key "+spelled(r.Key))
	}
	return strings.Join(cells, "\t")
}

// usedBy returns the usage of a run, sorted by name.
func usedBy(r *store.Run) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.Usage)) {
		amount, _ := json.Marshal(r.Usage[name]) // a finite number always has a JSON form
		list = append(list, spelled(name)+"="+string(amount))
	}
	return cmp.Or(strings.Join(list, " "), "-")
}

// spelled returns a name in which escapes such as \t replace the characters that would break a line or a column.
func spelled(name string) string {
	return foreign.Line(strings.NewReplacer("\t", `\t`, "\n", `\n`, "\r", `\r`).Replace(name), math.MaxInt)
}
