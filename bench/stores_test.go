package main

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres/localserver"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// TestStores: the code without the engine writes the same rows as the runs, and the measurement counts transactions
// and sizes.
func TestStores(t *testing.T) {
	list, err := loads()
	if err != nil {
		t.Fatal(err)
	}
	l := list[1]
	l.runs = 3
	recorded := &recorder{Store: new(store.Memory), applied: map[string][]store.Commit{}}
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

// TestOverServer: the code without the engine writes the same rows as the runs, with as many statements.
func TestOverServer(t *testing.T) {
	list, err := loads()
	if err != nil {
		t.Fatal(err)
	}
	l := list[1]
	l.runs = 3
	err = onServer(func(s *server) error {
		turn, err := s.turn(&l)
		if err != nil || turn.speed <= 0 || turn.floor <= 0 || turn.statements < 0.3 || turn.statements > 1.2 {
			t.Errorf("%+v, %v", turn, err)
		}
		var runs, nodes, commits int
		err = s.pool.QueryRow(t.Context(), "SELECT count(*), min(sequence), (SELECT count(*) FROM kahn.nodes WHERE status = 'completed') FROM kahn.runs").Scan(&runs, &commits, &nodes)
		if runs != 3 || nodes != 3*30 || commits < 31 {
			t.Errorf("%d runs, %d nodes, %d commits of a run", runs, nodes, commits)
		}
		return err
	})
	if errors.Is(err, localserver.ErrNoServer) {
		t.Skip("there is no PostgreSQL server (apt-get install postgresql, or set KAHN_POSTGRES)")
	}
	if err != nil {
		t.Error(err)
	}
}

// TestFloorStatements: a statement contains at most one commit of each run, and no more commits than allowed.
func TestFloorStatements(t *testing.T) {
	node := func(id string) store.Commit { return store.Commit{Nodes: []store.NodeRecord{{Node: id}}} }
	work := floorStatements([]commitOf{{0, node("a")}, {1, node("a")}, {0, node("b")}, {1, node("a")}, {2, node("a")}}, 2)
	var got [][]int64
	for _, f := range work {
		got = append(got, f.runs)
	}
	if want := [][]int64{{1, 2}, {1, 2}, {3}}; !reflect.DeepEqual(got, want) || !reflect.DeepEqual(work[1].nodes, []int32{1, 0}) {
		t.Errorf("%v, nodes %v", got, work[1].nodes)
	}
}
