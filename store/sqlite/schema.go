package sqlite

import (
	"fmt"
	"strings"
)

// Migration leads from one version of the schema to the next.
type Migration struct {
	Version int    // the version of the schema after the migration, from 1
	SQL     string // the statements, which Open executes in one transaction
}

// Migrations returns the migrations that lead from an empty database to the schema of this version of the package, in order. Open executes the
// migrations that were not yet executed on the database.
func Migrations() []Migration {
	list := make([]Migration, len(migrations))
	for i, text := range migrations {
		list[i] = Migration{Version: i + 1, SQL: strings.TrimSpace(text) + fmt.Sprintf("\nUPDATE kahn_schema SET version = %d;\n", i+1)}
	}
	return list
}

// migrations holds the SQL of each Migration, without the statement that sets the version. A released migration is never changed.
//
// The key of a node's row combines the number of the run with the number of the node in the run. So the rows of a run's nodes are next to each
// other, in the order in which the nodes were first written. A commit therefore changes the last page of its run and few other pages. A commit
// writes its sequence only into rows that it changes for another reason. It writes the run's own row only if it changes the run itself, for
// example its record, status or WakeAt, or if it changes no node.
var migrations = []string{`
CREATE TABLE kahn_schema (version INTEGER NOT NULL);
INSERT INTO kahn_schema VALUES (0);

CREATE TABLE kahn_runs (
	run      INTEGER PRIMARY KEY,
	id       TEXT    NOT NULL UNIQUE,
	status   TEXT    NOT NULL,  -- pending, running, suspended, completed, failed or cancelled
	sequence INTEGER NOT NULL,  -- of the last commit that changed this row: the nodes' may be higher
	nodes    INTEGER NOT NULL,  -- how many there were in that commit: there may be more
	created  INTEGER NOT NULL,  -- in milliseconds since 1970, as all times of this table
	ended    INTEGER,
	wake     INTEGER,           -- when the run goes on without a signal, if it is known
	epoch    INTEGER NOT NULL,  -- of the lease
	owner    TEXT    NOT NULL,  -- of the lease; empty if nobody holds it
	expires  INTEGER NOT NULL,  -- when the lease runs out
	process  INTEGER NOT NULL,  -- of the lease's owner, see kahn_processes
	record   BLOB,              -- which the engine alone reads
	checksum INTEGER NOT NULL   -- of the row, leases apart
) STRICT;

CREATE TABLE kahn_nodes (
	node      INTEGER PRIMARY KEY,          -- run * 16777216 + the node's number within its run, from 0
	key       TEXT    NOT NULL,             -- the node's path
	sequence  INTEGER NOT NULL,             -- of the last commit that changed this row
	attempt   INTEGER NOT NULL,             -- the last one recorded
	terminal  INTEGER NOT NULL,
	queued    INTEGER NOT NULL,
	completed INTEGER NOT NULL,             -- the last recorded attempt has ended
	resolved  INTEGER NOT NULL,             -- predecessors
	required  INTEGER NOT NULL,
	status    TEXT,
	cause     TEXT,
	started   INTEGER,                      -- nanoseconds since 1970
	ended     INTEGER,
	hash      BLOB,                         -- of the node's declaration
	value     BLOB,                         -- the output, in JSON as the codec has written it
	record    BLOB,                         -- the rest, which the engine alone reads
	checksum  INTEGER NOT NULL
) STRICT;

CREATE TABLE kahn_effects (
	run    INTEGER NOT NULL,
	key    TEXT    NOT NULL,  -- the step's idempotency key
	result TEXT    NOT NULL,  -- JSON
	PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE kahn_processes (
	process INTEGER PRIMARY KEY AUTOINCREMENT  -- one that has opened the database, and whose leases may last
) STRICT;
`, `
ALTER TABLE kahn_runs ADD COLUMN workflow TEXT NOT NULL DEFAULT '';  -- the name of the graph
ALTER TABLE kahn_runs ADD COLUMN plan     TEXT NOT NULL DEFAULT '';  -- its hash
ALTER TABLE kahn_runs ADD COLUMN inputs   BLOB;                      -- a JSON object; runs of version 1 have them in the record
ALTER TABLE kahn_runs ADD COLUMN labels   TEXT;                      -- a JSON object of texts
ALTER TABLE kahn_runs ADD COLUMN parent   TEXT;                      -- the id of another run

CREATE INDEX kahn_runs_created ON kahn_runs (created DESC, id);
CREATE INDEX kahn_runs_workflow ON kahn_runs (workflow, created DESC, id, status);
CREATE INDEX kahn_runs_status ON kahn_runs (status, created DESC, id);
CREATE INDEX kahn_runs_ended ON kahn_runs (ended) WHERE ended IS NOT NULL;
CREATE INDEX kahn_runs_parent ON kahn_runs (parent, created DESC, id) WHERE parent IS NOT NULL;

CREATE TABLE kahn_labels (
	run   INTEGER NOT NULL,
	name  TEXT    NOT NULL,
	value TEXT    NOT NULL,
	PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX kahn_labels_value ON kahn_labels (name, value);

CREATE TABLE kahn_blobs (
	key TEXT    NOT NULL,  -- of a blob to which the run has referred
	run INTEGER NOT NULL,  -- 0: runs that were pruned have, and the blob may have to be removed
	PRIMARY KEY (key, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX kahn_blobs_run ON kahn_blobs (run);

INSERT OR IGNORE INTO kahn_blobs
	SELECT t.value, r.run FROM kahn_runs r, json_tree(CAST(r.record AS TEXT)) t
	WHERE instr(r.record, CAST('"$blob"' AS BLOB)) > 0 AND t.key = '$blob' AND t.type = 'text';
INSERT OR IGNORE INTO kahn_blobs
	SELECT t.value, n.node / 16777216 FROM kahn_nodes n, json_tree(CAST(n.value AS TEXT)) t
	WHERE instr(n.value, CAST('"$blob"' AS BLOB)) > 0 AND t.key = '$blob' AND t.type = 'text';
INSERT OR IGNORE INTO kahn_blobs
	SELECT t.value, n.node / 16777216 FROM kahn_nodes n, json_tree(CAST(n.record AS TEXT)) t
	WHERE instr(n.record, CAST('"$blob"' AS BLOB)) > 0 AND t.key = '$blob' AND t.type = 'text';
`, `
CREATE TABLE kahn_events (
	event    INTEGER PRIMARY KEY,  -- run * 4294967296 + the event's id, from 1
	data     TEXT    NOT NULL,     -- JSON: the type, the timestamp, the parentEventId and the payload
	checksum INTEGER NOT NULL
) STRICT;
`, `
ALTER TABLE kahn_runs ADD COLUMN posted INTEGER NOT NULL DEFAULT 0;  -- the number of the last request for the run
ALTER TABLE kahn_runs ADD COLUMN taken  INTEGER NOT NULL DEFAULT 0;  -- of the last one that was answered, or that waited when the run ended
ALTER TABLE kahn_runs ADD COLUMN since  INTEGER NOT NULL DEFAULT 0;  -- when one was posted and none waited before
ALTER TABLE kahn_runs ADD COLUMN urgent INTEGER NOT NULL DEFAULT 0;  -- there was a cancel, for which a run begins before its time
CREATE INDEX kahn_runs_waiting ON kahn_runs (id, posted, taken) WHERE posted > taken;

-- When the run goes on: a request that waits has made it due.
ALTER TABLE kahn_runs ADD COLUMN wakes INTEGER GENERATED ALWAYS AS (
	CASE WHEN posted > taken AND (sequence > 0 OR urgent) THEN min(coalesce(wake, since), since) ELSE wake END
) VIRTUAL;

CREATE TABLE kahn_requests (
	request  INTEGER PRIMARY KEY,  -- run * 4294967296 + the request's number, from 1
	run      INTEGER NOT NULL,
	id       TEXT    NOT NULL,
	kind     TEXT    NOT NULL,     -- signal, cancel or cancel_node
	node     TEXT    NOT NULL,
	value    TEXT,                 -- of a signal, in JSON as the codec has written it
	actor    TEXT    NOT NULL,
	comment  TEXT    NOT NULL,
	posted   INTEGER NOT NULL,     -- in milliseconds since 1970
	answer   TEXT,                 -- why it was refused; empty if it was applied
	checksum INTEGER NOT NULL,     -- of the row, without posted and answer
	UNIQUE (run, id)
) STRICT;

-- When the run is due: when its lease runs out, and it need not wait any more. NULL if it has ended, the greatest number if it waits for an answer.
ALTER TABLE kahn_runs ADD COLUMN due INTEGER GENERATED ALWAYS AS (
	CASE WHEN status IN ('pending', 'running', 'suspended') THEN max(
		CASE status WHEN 'running' THEN created WHEN 'pending' THEN coalesce(wakes, created) ELSE coalesce(wakes, 9223372036854775807) END,
		CASE owner WHEN '' THEN created ELSE expires END
	) END
) VIRTUAL;
CREATE INDEX kahn_runs_due ON kahn_runs (workflow, plan, due, id) WHERE due IS NOT NULL;

CREATE TABLE kahn_served (
	workflow TEXT    NOT NULL,
	plan     TEXT    NOT NULL,
	server   TEXT    NOT NULL,  -- the process that performs the runs of this workflow and plan
	owner    TEXT    NOT NULL,  -- of its leases, if it has a name that is kept over restarts
	until    INTEGER NOT NULL,  -- when it counts as dead
	process  INTEGER NOT NULL,  -- see kahn_processes
	PRIMARY KEY (workflow, plan, server)
) STRICT, WITHOUT ROWID;
`, `
CREATE TABLE kahn_schedules (
	name       TEXT    NOT NULL PRIMARY KEY,
	revision   INTEGER NOT NULL,  -- one more with each change of the row, from 1
	paused     INTEGER NOT NULL,
	tick       TEXT    NOT NULL,  -- the id of the run of the latest tick, which is not pruned; empty if there was none
	active     TEXT    NOT NULL,  -- the id of the run that has begun last
	definition TEXT    NOT NULL   -- JSON: what is performed, and when
) STRICT, WITHOUT ROWID;
`, `
ALTER TABLE kahn_runs ADD COLUMN compensation TEXT;  -- running, done or failed, of a run that undoes what its nodes have done
CREATE INDEX kahn_runs_compensation ON kahn_runs (compensation, created DESC, id) WHERE compensation IS NOT NULL;
`, `
CREATE TABLE kahn_awaits (
	run     INTEGER NOT NULL,
	node    TEXT    NOT NULL,  -- the path of a node that awaits the end of another run
	awaited TEXT    NOT NULL,  -- the id of that run
	PRIMARY KEY (run, node)
) STRICT, WITHOUT ROWID;
CREATE INDEX kahn_awaits_awaited ON kahn_awaits (awaited);
`, `
ALTER TABLE kahn_runs ADD COLUMN usage TEXT;  -- a JSON object of numbers; not in the checksum, since former programs write rows without it
`, `
-- Neither is in the checksum, since former programs read and write rows without them.
ALTER TABLE kahn_runs ADD COLUMN run_key  TEXT    NOT NULL DEFAULT '';  -- whose run it is
ALTER TABLE kahn_runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;   -- higher ones of a key are first
ALTER TABLE kahn_runs ADD COLUMN turn     INTEGER;                      -- grows with each turn of a key: when the run was taken in one last
DROP INDEX kahn_runs_due;
CREATE INDEX kahn_runs_due ON kahn_runs (workflow, plan, run_key, priority DESC, due, id) WHERE due IS NOT NULL;
CREATE INDEX kahn_runs_turn ON kahn_runs (run_key, turn) WHERE turn IS NOT NULL;
CREATE INDEX kahn_runs_leased ON kahn_runs (run_key, expires) WHERE run_key <> '' AND owner <> '' AND due IS NOT NULL;
CREATE INDEX kahn_runs_key ON kahn_runs (run_key, created DESC, id) WHERE run_key <> '';
`, `
CREATE TABLE kahn_grants (
	name    TEXT    NOT NULL PRIMARY KEY,  -- of a limit that processes share
	expires INTEGER NOT NULL,              -- in milliseconds since 1970: from then on nobody has anything of it
	state   TEXT    NOT NULL               -- JSON: who holds how many slots until when, and the tokens
) STRICT, WITHOUT ROWID;
CREATE INDEX kahn_grants_expires ON kahn_grants (expires);
`}
