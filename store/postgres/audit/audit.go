// Package audit makes the database server record the writes to a store, so that a test or a demonstration can find data that was written twice.
package audit

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const tables = `
CREATE TABLE $S.audit (note bigint GENERATED ALWAYS AS IDENTITY, what text, run bigint, node integer, number bigint);
CREATE FUNCTION $S.note_run() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
	INSERT INTO $S.audit (what, run, number) VALUES ('commit', NEW.run, NEW.sequence);
	RETURN NULL;
END $f$;
CREATE FUNCTION $S.note_node() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
	INSERT INTO $S.audit (what, run, node, number) VALUES (CASE WHEN NEW.completed THEN 'completion' ELSE 'start' END, NEW.run, NEW.node, NEW.attempt);
	RETURN NULL;
END $f$;
CREATE TRIGGER note_run AFTER UPDATE OF sequence ON $S.runs FOR EACH ROW EXECUTE FUNCTION $S.note_run();
CREATE TRIGGER note_new_node AFTER INSERT ON $S.nodes FOR EACH ROW WHEN (NEW.attempt > 0) EXECUTE FUNCTION $S.note_node();
CREATE TRIGGER note_node AFTER UPDATE ON $S.nodes FOR EACH ROW WHEN (NEW.attempt > 0 AND (NEW.attempt, NEW.completed) IS DISTINCT FROM (OLD.attempt, OLD.completed))
	EXECUTE FUNCTION $S.note_node();`

const faults = `
SELECT concat_ws(' ', 'twice:', what, run, node, number) FROM $S.audit GROUP BY what, run, node, number HAVING count(*) > 1
UNION ALL SELECT concat_ws(' ', 'after its completion:', s.what, s.run, s.node, s.number) FROM $S.audit s JOIN $S.audit c USING (run, node) WHERE c.what = 'completion' AND s.note > c.note
UNION ALL SELECT concat_ws(' ', 'commits:', run, count(*), 'of', max(number)) FROM $S.audit WHERE what = 'commit' GROUP BY run HAVING count(*) <> max(number)`

// Begin makes the server record each commit of a run, each start of an attempt and each completion of an attempt in the schema of a store. The
// server records a write to the row of a node if the write changes the attempt, or whether the attempt is completed. It records no other writes of
// nodes: for example, it does not record that a node must stop. The role of the pool must own the tables of the store.
func Begin(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	_, err := pool.Exec(ctx, within(schema, tables), pgx.QueryExecModeSimpleProtocol)
	return err
}

// Report is what the server has recorded since [Begin].
type Report struct {
	Completions int // how many completions of attempts were recorded
	// Faults describe what must not happen: data that was written twice, a write of a node after its completion, and a run with missing commits.
	Faults []string
}

// Read returns the report.
func Read(ctx context.Context, pool *pgxpool.Pool, schema string) (r Report, err error) {
	if err := pool.QueryRow(ctx, within(schema, "SELECT count(*) FROM $S.audit WHERE what = 'completion'")).Scan(&r.Completions); err != nil {
		return r, err
	}
	rows, err := pool.Query(ctx, within(schema, faults))
	if err != nil {
		return r, err
	}
	r.Faults, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return r, err
}

func within(schema, text string) string {
	return strings.ReplaceAll(text, "$S", pgx.Identifier{schema}.Sanitize())
}
