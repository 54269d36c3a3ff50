package main

import (
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// TestStores: the rows that are written alone are those of the runs, and transactions and sizes are counted.
func TestStores(t *testing.T) {
	list, err := loads()
	if err != nil {
		t.Fatal(err)
	}
	l := list[1]
	l.runs = 3
	recorded := &slow{applied: map[string][]store.Commit{}}
	if _, err := l.perform(recorded); err != nil {
		t.Fatal(err)
	}
	work := l.rows(recorded.applied)
	ids := map[any]bool{}
	for _, rows := range work {
		for _, row := range rows {
			ids[row[0].Value] = true
		}
	}
	if len(ids) != 3*30 {
		t.Errorf("%d rows", len(ids))
	}
	if r, err := l.rowsAlone(recorded.applied, 31); err != nil || r.took <= 0 {
		t.Error(r, err)
	}
	commits.takes.Store(int64(time.Millisecond))
	defer commits.takes.Store(0)
	r, err := l.overSQLite(sqlite.Options{})
	if err != nil || r.transactions < 31 || r.transactions > 3*34 || r.took < 31*time.Millisecond {
		t.Errorf("%+v, %v", r, err)
	}
	sizes, err := l.sizes()
	if err != nil || sizes.rest < 3*30*50 || sizes.log < sizes.rest {
		t.Errorf("%+v, %v", sizes, err)
	}
	if row, err := l.measure(1, 0); err != nil || len(row) != 8 {
		t.Error(row, err)
	}
}
