package sqlite_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// fixtureGraph is the graph of the runs in testdata, whose files have the schemas of earlier versions.
func fixtureGraph() *kahn.Graph {
	g := &kahn.Graph{Name: "fixture"}
	return g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"b"}},
		kahn.Node{ID: "c", In: []kahn.Edge{{From: "gate"}}, After: []string{"a"}})
}

// blobKept is the codec of these runs: values longer than 100 bytes are blobs.
func blobKept(blobs store.BlobStore) kahn.Option {
	return kahn.Encoding(&store.Blobs{Codec: kahn.Types{}, Store: blobs, Over: 100})
}

func fixtureStep(calls *[]string) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		*calls = append(*calls, s.ID())
		order, _ := s.Root("order")
		if s.ID() == "a" {
			return strings.Repeat(fmt.Sprint(order), 100), nil
		}
		return fmt.Sprint(s.ID(), " of ", order), nil
	}
}

// TestEarlierSchemas: Open migrates a file of each earlier schema, and its runs continue. The first run had ended, the second waits, and the
// process of the third died while step b ran.
func TestEarlierSchemas(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/schema-*.db")
	require.NoError(t, err)
	require.Len(t, files, len(sqlite.Migrations())-1)
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		path := file(t)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		s := openStore(t, path, sqlite.Options{})
		blobs := store.Dir("testdata/blobs")
		_, err = kahn.Execute(t.Context(), fixtureGraph(), fixtureStep(new([]string)), kahn.RunID("ended"), kahn.Durable(s), blobKept(blobs))
		require.ErrorIs(t, err, kahn.ErrFinished)
		for id, want := range map[string][]string{"ended": nil, "waiting": {"c"}, "crashed": {"b", "c"}} {
			var calls []string
			if want != nil {
				res, err := kahn.Execute(t.Context(), fixtureGraph(), fixtureStep(&calls), kahn.RunID(id), kahn.Durable(s), blobKept(blobs),
					kahn.EarlySignals(map[string]any{"gate": "yes"}))
				require.NoError(t, err, id)
				require.Equal(t, kahn.RunCompleted, res.Status)
			}
			require.Equal(t, want, calls, id)
			res, err := kahn.ReadResult(t.Context(), fixtureGraph(), s, id, blobKept(blobs))
			require.NoError(t, err, id)
			a, _ := res.Node("a")
			require.Equal(t, strings.Repeat("o-"+id, 100), a.Output)
			c, _ := res.Node("c")
			require.Equal(t, "c of o-"+id, c.Output)
		}
	}
}

var writeSchema = flag.String("schema", "", "TestWriteSchema writes the database of this schema into this file")

// TestWriteSchema writes the file of a new schema: go test -run TestWriteSchema . -schema testdata/schema-2.db.
func TestWriteSchema(t *testing.T) {
	if *writeSchema == "" {
		t.Skip("-schema names no file to be written")
	}
	s := openStore(t, file(t), sqlite.Options{})
	blobs := store.Dir("testdata/blobs")
	opts := func(id string, more ...kahn.Option) []kahn.Option {
		return append(more, kahn.RunID(id), kahn.Durable(s), blobKept(blobs), kahn.Inputs(map[string]any{"order": "o-" + id}))
	}
	var calls []string
	for _, id := range []string{"ended", "waiting"} {
		signals := map[string]any{}
		if id == "ended" {
			signals["gate"] = "yes"
		}
		_, err := kahn.Execute(t.Context(), fixtureGraph(), fixtureStep(&calls), opts(id, kahn.EarlySignals(signals))...)
		require.NoError(t, err)
	}
	called, over := make(chan bool), make(chan bool)
	go func() {
		defer close(over)
		_, _ = kahn.Execute(t.Context(), fixtureGraph(), func(ctx context.Context, step *kahn.Step) (any, error) {
			if step.ID() == "b" {
				called <- true
				<-called
			}
			return fixtureStep(new([]string))(ctx, step)
		}, opts("crashed")...)
	}()
	<-called
	require.NoError(t, s.Backup(t.Context(), *writeSchema)) // Backup now, so that the file is as after the death of the process
	called <- true
	<-over
	require.True(t, slices.Contains(calls, "a"))
}

// TestNewerSchema: Announce returns ErrNewerSchema if a newer program has migrated the schema while the store is open. The store can still
// finish its runs.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	a := store.Announcement{Process: "p", Queues: []store.Queue{{Workflow: "w"}}, TTL: time.Minute}
	require.NoError(t, s.Announce(t.Context(), a))
	lease, _, err := s.Acquire(t.Context(), "r", "me", time.Minute)
	require.NoError(t, err)
	_, err = s.DB().Exec("UPDATE kahn_schema SET version = version + 1")
	require.NoError(t, err)
	require.ErrorIs(t, s.Announce(t.Context(), a), store.ErrNewerSchema)
	a.Queues = nil
	require.ErrorIs(t, s.Announce(t.Context(), a), store.ErrNewerSchema)
	applied, err := s.Commit(t.Context(), lease, store.Commit{Sequence: 1, Status: kahn.RunCompleted})
	require.NoError(t, err)
	require.Equal(t, store.AppliedNow, applied)
}

// TestUsageOfFormerVersions: a former version does not update the column usage. The next Execute of this version restores the sums from the
// run's record.
func TestUsageOfFormerVersions(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	g := (&kahn.Graph{Name: "uses"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"gate"}})
	step := func(_ context.Context, step *kahn.Step) (any, error) {
		if step.ID() == "a" {
			step.Use("tokens", 5)
		}
		return nil, nil
	}
	usage := func() kahn.Usage {
		page, err := s.List(t.Context(), store.Query{})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1)
		return page.Runs[0].Usage
	}
	_, err := kahn.Execute(t.Context(), g, step, kahn.RunID("r"), kahn.Durable(s))
	require.NoError(t, err)
	require.Equal(t, kahn.Usage{"tokens": 5}, usage())
	_, err = s.DB().ExecContext(t.Context(), "UPDATE kahn_runs SET usage = NULL")
	require.NoError(t, err)
	require.Nil(t, usage())
	_, err = kahn.Execute(t.Context(), g, step, kahn.RunID("r"), kahn.Durable(s), kahn.EarlySignals(map[string]any{"gate": true}))
	require.NoError(t, err)
	require.Equal(t, kahn.Usage{"tokens": 5}, usage())
	_, err = s.DB().ExecContext(t.Context(), "UPDATE kahn_runs SET usage = '{'")
	require.NoError(t, err)
	_, err = s.List(t.Context(), store.Query{})
	require.ErrorIs(t, err, sqlite.ErrDamaged)
	_, err = s.Load(t.Context(), "r")
	require.ErrorIs(t, err, sqlite.ErrDamaged)
}
