package postgres

import (
	"fmt"
	"strings"
)

// These are the optional parts of a commit. The statement for a batch has each part that at least one commit of the batch needs.
const (
	withSpecs = 1 << iota
	withNodes
	withBlobs
	withEvents
	withAnswers
	withSums   // the columns compensation and usage
	withAwaits // the transaction also settles awaits, see settleAwaits
	combinations
)

// texts are the statements that are executed often.
type texts struct {
	commit                [combinations]string
	nodesPart, eventsPart string // the statements for a commit that is written in parts
	acquire               string
	renew                 string
	release               string
	leases                string // finds the given leases that have not expired
	load                  string // loads a run with the values and records of its nodes
	judge                 string // loads a run without values and records, to judge commits
	events                string
	head                  string
	put                   string
}

// sql puts the name of the schema, the expression for the time, and the channel of notifications into a statement.
func (s *Store) sql(text string) string {
	return strings.ReplaceAll(within(s.schema, s.now, text), "$CHANNEL", channel(s.schema))
}

// leased is the condition that the run r is leased.
const leased = "(r.owner <> '' AND r.expires > $NOW)"

// unnest returns a table of the given columns. Each column of the table is an array argument of the statement. The parameter "from" is the number of
// the first argument. The result "next" is the number of the last argument plus one.
func unnest(alias string, from int, columns string) (text string, next int) {
	var arrays, names []string
	for i, c := range strings.Split(columns, ", ") {
		name, kind, _ := strings.Cut(c, " ")
		arrays, names = append(arrays, fmt.Sprintf("$%d::%s[]", from+i, kind)), append(names, name)
	}
	return fmt.Sprintf("unnest(%s) AS %s(%s)", strings.Join(arrays, ", "), alias, strings.Join(names, ", ")), from + len(arrays)
}

// The parameters that a commit passes for its run.
const (
	commitColumns = "run bigint, owner text, epoch bigint, sequence bigint, status text, wake timestamptz, record bytea"
	specColumns   = "changed boolean, workflow text, plan text, parent text, labels text, inputs bytea, run_key text, priority integer"
)

// commitText returns the statement of a batch of commits. The statement leaves out a commit if another transaction has locked the row of the run, if
// the lease is not valid, if the sequence of the commit is not the stored sequence plus one, or if a request that the commit answers was not posted.
// Without withAwaits it also leaves out a commit that ends an awaited run. The statement writes all other commits, and returns the numbers of their
// runs.
//
// Statistics of tables may be out of date, and a prepared statement keeps its plan. So the statement leaves the planner no choice: LATERAL looks up
// one row after the other, and ON CONFLICT uses the primary key. The list of commits has a LIMIT, which equals the number of commits. This LIMIT
// removes no commit. It makes the estimates for a generic plan and for a custom plan equal, so that the server keeps the generic plan.
func commitText(parts int) string {
	columns, sets := commitColumns, ""
	if parts&withSpecs != 0 {
		columns += ", " + specColumns
		for _, c := range []string{"workflow", "plan", "parent", "inputs", "run_key", "priority"} {
			sets += fmt.Sprintf(", %s = CASE WHEN h.changed THEN h.%[1]s ELSE r.%[1]s END", c)
		}
		sets += ", labels = CASE WHEN h.changed THEN h.labels::jsonb ELSE r.labels END"
	}
	if parts&withSums != 0 {
		columns += ", undoing text, used text"
		sets += ", compensation = CASE h.undoing WHEN 'none' THEN NULL ELSE coalesce(h.undoing, r.compensation) END, usage = coalesce(h.used::json, r.usage)"
	}
	taken, condition := "r.taken", fits()
	if parts&withAwaits == 0 { // without withAwaits the transaction does not settle awaits, so it must not end an awaited run
		condition += " AND (NOT r.awaited OR w.status IS NULL OR w.status NOT IN ('completed', 'failed', 'cancelled'))"
	}
	if parts&withAnswers != 0 {
		columns += ", answered bigint"
		condition += " AND r.posted >= coalesce(w.answered, 0)"
		taken = "coalesce(h.answered, r.taken)"
	}
	const ends, over = "h.status IN ('completed', 'failed', 'cancelled')", "coalesce(h.status, r.status) IN ('completed', 'failed', 'cancelled')"
	sets += ", taken = CASE WHEN " + ends + " THEN r.posted ELSE " + taken + " END"
	want, next := unnest("w", 1, columns)
	text := `WITH want AS MATERIALIZED (SELECT * FROM ` + want + ` LIMIT cardinality($1::bigint[])),
held AS MATERIALIZED (
	SELECT w.* FROM want w CROSS JOIN LATERAL (
		SELECT FROM $S.runs r WHERE ` + condition + ` FOR NO KEY UPDATE SKIP LOCKED
	) r
),
written AS (
	UPDATE $S.runs r SET sequence = h.sequence, status = coalesce(h.status, r.status), wake = h.wake, record = coalesce(h.record, r.record),
		ended = CASE WHEN ` + ends + ` THEN $NOW WHEN ` + over + ` THEN r.ended END` + sets + `
	FROM held h WHERE r.run = h.run RETURNING r.run
)`
	if parts&withNodes != 0 {
		var nodes string
		nodes, next = unnest("n", next, nodeColumns)
		text += `,
nodes AS (` + putNodes("n.run", nodes+" JOIN written USING (run)") + `)`
	}
	if parts&withBlobs != 0 {
		var blobs string
		blobs, next = unnest("b", next, blobColumns)
		text += `,
blobs AS (INSERT INTO $S.blobs SELECT b.* FROM ` + blobs + ` JOIN written USING (run) ON CONFLICT DO NOTHING)`
	}
	if parts&withEvents != 0 {
		var events string
		events, next = unnest("e", next, eventColumns)
		text += `,
events AS (INSERT INTO $S.events SELECT e.* FROM ` + events + ` JOIN written USING (run))`
	}
	if parts&withAnswers != 0 {
		answers, _ := unnest("a", next, answerColumns)
		text += `,
answers AS (UPDATE $S.requests q SET answer = a.answer FROM ` + answers + ` JOIN written USING (run) WHERE q.run = a.run AND q.number = a.number)`
	}
	return text + "\nSELECT run FROM written"
}

// The function `fits` returns the condition under which a commit w applies to the run r.
func fits() string {
	return `r.run = w.run AND r.owner = w.owner AND r.epoch = w.epoch AND r.sequence = w.sequence - 1 AND ` + leased
}

// fittingText returns the statement that finds the commits that apply to their runs, see fits. If the statement of commitText has left out one of
// these commits, another transaction had locked the run, or the commit ends an awaited run.
func fittingText() string {
	want, _ := unnest("w", 1, "run bigint, owner text, epoch bigint, sequence bigint, answered bigint")
	return "SELECT w.run FROM " + want + " JOIN $S.runs r ON " + fits() + " AND r.posted >= coalesce(w.answered, 0)"
}

const blobColumns = "key text, run bigint"

// putNodes returns the statement that writes the rows of a table "n" to the table "nodes". The parameter "run" is an SQL expression for the number of
// a row's run.
func putNodes(run, from string) string {
	var names, values, sets []string
	for c := range strings.SplitSeq(nodeColumns, ", ") {
		name, _, _ := strings.Cut(c, " ")
		names, values = append(names, name), append(values, "n."+name)
		switch name {
		case "run", "node":
		case "attempt", "resolved", "required", "terminal", "queued", "completed":
			sets = append(sets, name+" = excluded."+name)
		default:
			sets = append(sets, fmt.Sprintf("%s = CASE WHEN excluded.key IS NULL THEN o.%[1]s ELSE excluded.%[1]s END", name))
		}
	}
	values[0] = run
	return fmt.Sprintf("INSERT INTO $S.nodes AS o (%s) SELECT %s FROM %s ON CONFLICT (run, node) DO UPDATE SET %s",
		strings.Join(names, ", "), strings.Join(values, ", "), from, strings.Join(sets, ", "))
}

// compose makes the statements.
func (s *Store) compose() (t texts) {
	for parts := range t.commit {
		t.commit[parts] = s.sql(commitText(parts))
	}
	rows, _ := unnest("n", 1, nodeColumns)
	t.nodesPart = s.sql(putNodes("n.run", rows))
	rows, _ = unnest("e", 1, eventColumns)
	t.eventsPart = s.sql("INSERT INTO $S.events SELECT e.* FROM " + rows)
	asked, _ := unnest("a", 1, "id text, owner text, ttl bigint, key text")
	t.acquire = s.sql(`INSERT INTO $S.runs AS r (id, status, sequence, created, epoch, owner, expires, run_key, turn)
SELECT a.id, 'pending', 0, $NOW, 1, a.owner, $NOW + a.ttl * interval '1 microsecond', coalesce(a.key, ''), CASE WHEN a.key IS NOT NULL THEN clock_timestamp() END FROM ` + asked + `
WHERE a.key IS NULL OR EXISTS (SELECT FROM $S.runs o WHERE o.id = a.id)
ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, epoch = r.epoch + 1, expires = excluded.expires, turn = coalesce(excluded.turn, r.turn)
WHERE (NOT ` + leased + ` OR r.owner = excluded.owner) AND (excluded.turn IS NULL OR r.run_key = excluded.run_key)
RETURNING r.run, r.epoch, r.sequence, ` + headColumns)
	change := func(columns, condition, set, returned string) string {
		leases, _ := unnest("a", 1, columns)
		return s.sql(`WITH asked AS MATERIALIZED (SELECT * FROM ` + leases + ` LIMIT cardinality($1::text[])),
held AS MATERIALIZED (
	SELECT r.run, a.* FROM asked a CROSS JOIN LATERAL (
		SELECT r.run FROM $S.runs r WHERE r.id = a.id AND r.owner = a.owner AND r.epoch = a.epoch` + condition + ` FOR NO KEY UPDATE SKIP LOCKED
	) r
)
UPDATE $S.runs r SET ` + set + ` FROM held h WHERE r.run = h.run RETURNING r.id, ` + returned)
	}
	t.renew = change("id text, owner text, epoch bigint, ttl bigint", " AND "+leased, "expires = $NOW + h.ttl * interval '1 microsecond'", "false")
	// If a released run has not ended, it may be due. Then the statement notifies other processes.
	t.release = change("id text, owner text, epoch bigint", "", "owner = ''", "CASE WHEN r.status = 'running' OR r.wake <= $NOW AND r.ended IS NULL THEN "+notified+" IS NOT NULL END")
	asked, _ = unnest("a", 1, "id text, owner text, epoch bigint")
	t.leases = s.sql("SELECT r.id, false FROM " + asked + " JOIN $S.runs r USING (id, owner, epoch) WHERE " + leased)
	// A load has a row for each node. Only the first row contains the columns "record", "labels" and "inputs" of the run, which may be large.
	first := func(column string) string { return "CASE WHEN coalesce(n.node, 0) = 0 THEN " + column + " END" }
	loading := func(value, record string) string {
		return s.sql(`SELECT r.run, r.owner, r.epoch, ` + leased + `, r.sequence, ` + first(lastEvent) + `, ` + first("r.record") + `, ` + smallColumns + `, ` + first("r.labels") + `, ` + first("r.inputs") + `,
	n.node, n.attempt, n.resolved, n.required, n.terminal, n.queued, n.completed, n.started, n.ended, n.key, n.status, n.cause, n.hash, ` + value + `, ` + record + `
FROM $S.runs r LEFT JOIN LATERAL (SELECT * FROM $S.nodes n WHERE n.run = r.run ORDER BY n.node OFFSET 0) n ON true
WHERE r.id = $1 ORDER BY n.node`)
	}
	t.load, t.judge = loading("n.value", "n.record"), loading("NULL::bytea", "NULL::bytea")
	t.events = s.sql(eventsQuery)
	t.head = s.sql("SELECT r.run, r.xmin::text, " + leased + ", r.sequence, " + headColumns + " FROM $S.runs r WHERE r.id = $1")
	t.put = s.sql(putText())
	return t
}
