package postgrestest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Audit lets the server note each commit of a run, each start of an attempt and each completion that is written to a schema.
func Audit(t testing.TB, pool *pgxpool.Pool, schema string) {
	t.Helper()
	text := `
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
CREATE TRIGGER note_node AFTER INSERT OR UPDATE ON $S.nodes FOR EACH ROW WHEN (NEW.attempt > 0) EXECUTE FUNCTION $S.note_node();`
	_, err := pool.Exec(t.Context(), strings.ReplaceAll(text, "$S", pgx.Identifier{schema}.Sanitize()), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

// Audited returns what an audit has noted that must not be: what was written twice, starts of nodes that were completed, and runs of whose commits some are missing.
func Audited(t testing.TB, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	text := `
SELECT concat_ws(' ', 'twice:', what, run, node, number) FROM $S GROUP BY what, run, node, number HAVING count(*) > 1
UNION ALL SELECT concat_ws(' ', 'after its completion:', s.what, s.run, s.node, s.number) FROM $S s JOIN $S c USING (run, node) WHERE c.what = 'completion' AND s.note > c.note
UNION ALL SELECT concat_ws(' ', 'commits:', run, count(*), 'of', max(number)) FROM $S WHERE what = 'commit' GROUP BY run HAVING count(*) <> max(number)`
	rows, err := pool.Query(t.Context(), strings.ReplaceAll(text, "$S", pgx.Identifier{schema, "audit"}.Sanitize()))
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return found
}

// Calls counts the calls in a log of steps.
type Calls struct {
	Nodes    int // that were called
	Calls    int
	Repeated int // nodes that were called in several attempts
	Twice    int // attempts that were called again
	// Landed are calls that came after the call of a later node, so when the node was stored as completed: a process that was stopped when it had
	// recorded an attempt, and had not called its step yet, calls it when it goes on.
	Landed int
}

// ReadCalls reads a log of calls from a file. Each line is a call: the id of the run, the number of the node in a chain, and that of the attempt.
func ReadCalls(t testing.TB, file string) (l Calls) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	last, nodes, attempts := map[string]int{}, map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		require.Len(t, words, 3)
		node, err := strconv.Atoi(words[1])
		require.NoError(t, err)
		if node < last[words[0]] {
			l.Landed++
		}
		last[words[0]] = max(last[words[0]], node)
		l.Calls++
		if attempts[line]++; attempts[line] > 1 {
			l.Twice++
		}
		key := words[0] + " " + words[1]
		if nodes[key]++; nodes[key] == 2 {
			l.Repeated++
		}
	}
	l.Nodes = len(nodes)
	return l
}
