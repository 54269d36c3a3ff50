package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// TestOnce: the function of Once takes effect once, although the step is attempted three times.
func TestOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	_, err := s.DB().Exec("CREATE TABLE payments (amount INTEGER)")
	require.NoError(t, err)
	broken := errors.New("broken")
	calls, results := 0, []int64(nil)
	pay := func(ctx context.Context, step *kahn.Step) (any, error) {
		id, err := sqlite.Once(ctx, s, step, func(tx *sql.Tx) (int64, error) {
			calls++
			result, err := tx.Exec("INSERT INTO payments VALUES (42)")
			require.NoError(t, err)
			if calls == 1 {
				return 0, broken
			}
			return result.LastInsertId()
		})
		if err == nil {
			results = append(results, id)
		}
		return id, errors.Join(err, errors.New("the step fails behind its transaction"))
	}
	g := new(kahn.Graph).Add(kahn.Node{ID: "pay", Do: pay, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Millisecond}})
	res, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.Error(t, err)
	require.Equal(t, kahn.RunFailed, res.Status)
	require.Equal(t, 2, calls)
	require.Equal(t, []int64{1, 1}, results)
	var paid int
	require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM payments").Scan(&paid))
	require.Equal(t, 1, paid)
}

// TestOnceFenced: Once does not call its function if another process has taken over the run.
func TestOnceFenced(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t), sqlite.Options{})
	g := new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(ctx context.Context, step *kahn.Step) (any, error) {
		_, err := s.DB().Exec("UPDATE kahn_runs SET owner = 'other', epoch = epoch + 1")
		require.NoError(t, err)
		_, err = sqlite.Once(ctx, s, step, func(*sql.Tx) (int, error) {
			t.Error("it was called")
			return 0, nil
		})
		require.ErrorIs(t, err, store.ErrFenced)
		return nil, err
	}})
	_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s))
	require.ErrorIs(t, err, kahn.ErrStore)
	_, err = s.DB().Exec("DELETE FROM kahn_runs")
	require.NoError(t, err)
	g = new(kahn.Graph).Add(kahn.Node{ID: "a", Do: func(ctx context.Context, step *kahn.Step) (any, error) {
		_, err := sqlite.Once(ctx, s, step, func(*sql.Tx) (int, error) { return 0, nil })
		require.ErrorIs(t, err, store.ErrUnknownRun)
		return nil, err
	}})
	_, err = kahn.Execute(t.Context(), g, nil, kahn.RunID("r"))
	require.Error(t, err)
}
