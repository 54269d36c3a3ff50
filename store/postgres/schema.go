package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Migration leads from one version of the schema to the next.
type Migration struct {
	Version int    // of the schema after the migration, from 1
	SQL     string // the statements, which Open executes in one transaction
}

// Migrations returns all migrations of this version of the package, in order. The first one creates the schema. [Open] executes the migrations that
// the database has not had yet. The parameter "schema" is the name of the schema, see [Options].Schema; "" means [DefaultSchema].
func Migrations(schema string) []Migration {
	if schema == "" {
		schema = DefaultSchema
	}
	list := make([]Migration, len(migrations))
	for i, text := range migrations {
		text = strings.TrimSpace(text) + fmt.Sprintf("\nUPDATE $S.version SET version = %d;\n", i+1)
		list[i] = Migration{Version: i + 1, SQL: within(schema, serverNow, text)}
	}
	return list
}

// The function `within` puts the name of the schema and the time into statements. It replaces all placeholders in one pass, since the name of the
// schema may contain the text $S.
func within(schema, now, text string) string {
	name := pgx.Identifier{schema}.Sanitize()
	tag := "$do$" // the tag encloses SQL that contains the name of the schema, so this name must not contain the tag
	for strings.Contains(schema, tag) {
		tag = strings.Replace(tag, "$d", "$dd", 1)
	}
	return strings.NewReplacer("$S", name, "$TAG", tag, "$Q", "'"+strings.ReplaceAll(name, "'", "''")+"'", "$NOW", now).Replace(text)
}

// The variable `migrations` holds the SQL of each Migration without the statement that sets the version. $S is the name of the schema, $Q is this
// name as a text, and $TAG is the tag of a quoted text. A released migration is never changed.
//
// Each commit writes the row of its run. To make these writes cheap, no index has a column that most commits change, and the pages of the tables
// "runs" and "nodes" have space for the next version of a row. But the renewal of a lease changes the column "expires", which is in the index
// runs_due. So each renewal adds an entry to each index that contains the run. The row of a node names its run by the run's number, in the
// column "run". The nodes of a run are numbered in the order in which their rows were inserted.
var migrations = []string{`
DO $TAG BEGIN
	IF to_regnamespace($Q) IS NULL THEN CREATE SCHEMA $S; END IF;
END $TAG;

CREATE TABLE $S.version (version integer NOT NULL);
INSERT INTO $S.version VALUES (0);

CREATE TABLE $S.runs (
	run      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	sequence bigint      NOT NULL,             -- of the last commit
	epoch    bigint      NOT NULL,             -- of the lease
	expires  timestamptz NOT NULL,             -- when the lease runs out
	created  timestamptz NOT NULL,
	ended    timestamptz,
	wake     timestamptz,                      -- when the run goes on without a signal, if it is known
	id       text COLLATE "C" NOT NULL UNIQUE,
	owner    text        NOT NULL,             -- of the lease; empty if nobody holds it
	status   text        NOT NULL,             -- pending, running, suspended, completed, failed or cancelled
	workflow text COLLATE "C" NOT NULL DEFAULT '', -- the name of the graph
	plan     text        NOT NULL DEFAULT '',  -- its hash
	parent   text COLLATE "C",                 -- the id of another run
	labels   jsonb,                            -- an object of texts
	inputs   bytea,                            -- a JSON object
	record   bytea                             -- which the engine alone reads
) WITH (fillfactor = 50);

CREATE INDEX runs_created ON $S.runs (created DESC, id);
CREATE INDEX runs_workflow ON $S.runs (workflow, created DESC, id) INCLUDE (status);
CREATE INDEX runs_status ON $S.runs (status, created DESC, id);
CREATE INDEX runs_ended ON $S.runs (ended, run) WHERE ended IS NOT NULL;
CREATE INDEX runs_parent ON $S.runs (parent, created DESC, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_labels ON $S.runs USING gin (labels jsonb_path_ops) WHERE labels IS NOT NULL;

CREATE TABLE $S.nodes (
	run       bigint  NOT NULL,
	node      integer NOT NULL,   -- the node's number within its run, from 0
	attempt   integer NOT NULL,   -- the last one recorded
	resolved  integer NOT NULL,   -- predecessors
	required  integer NOT NULL,
	terminal  boolean NOT NULL,
	queued    boolean NOT NULL,
	completed boolean NOT NULL,   -- the last recorded attempt has ended
	started   timestamptz,
	ended     timestamptz,
	key       text COLLATE "C",   -- the node's path
	status    text,
	cause     text,
	hash      bytea,              -- of the node's declaration
	value     bytea,              -- the output, in JSON as the codec has written it
	record    bytea,              -- the rest, which the engine alone reads
	PRIMARY KEY (run, node)
) WITH (fillfactor = 80);

CREATE TABLE $S.effects (
	run    bigint NOT NULL,
	key    text COLLATE "C" NOT NULL,  -- the step's idempotency key
	result bytea,                      -- JSON
	PRIMARY KEY (run, key)
);

CREATE TABLE $S.blobs (
	key text COLLATE "C" NOT NULL,  -- of a blob to which the run has referred
	run bigint NOT NULL,            -- 0: runs that were pruned have, and the blob may have to be removed
	PRIMARY KEY (key, run)
);
CREATE INDEX blobs_run ON $S.blobs (run);
`, `
CREATE TABLE $S.events (
	run   bigint NOT NULL,
	event bigint NOT NULL,  -- its id, from 1
	data  bytea  NOT NULL,  -- JSON
	PRIMARY KEY (run, event)
);
`, `
ALTER TABLE $S.runs ADD COLUMN posted bigint NOT NULL DEFAULT 0;       -- the number of the last request for the run
ALTER TABLE $S.runs ADD COLUMN taken  bigint NOT NULL DEFAULT 0;       -- the number of the last request that was answered; a commit that ends the run sets it to posted
ALTER TABLE $S.runs ADD COLUMN since  timestamptz;                     -- when one was posted and none waited before
ALTER TABLE $S.runs ADD COLUMN urgent boolean NOT NULL DEFAULT false;  -- there was a cancel, for which a run begins before its time
CREATE INDEX runs_waiting ON $S.runs (id) INCLUDE (posted) WHERE posted > taken;

CREATE TABLE $S.requests (
	run     bigint NOT NULL,
	number  bigint NOT NULL,       -- from 1
	id      bytea  NOT NULL,       -- a text
	posted  timestamptz NOT NULL,
	request bytea  NOT NULL,       -- JSON: the id, the kind, the node, the value, the actor and the comment
	answer  bytea,                 -- a text: why it was refused; empty if it was applied
	tx      xid8   NOT NULL DEFAULT pg_current_xact_id(), -- the transaction that has posted it
	PRIMARY KEY (run, number)
);
CREATE UNIQUE INDEX requests_id ON $S.requests (run, sha256(id)); -- an id may be longer than a row of an index
CREATE INDEX requests_tx ON $S.requests (tx);

-- Sorted by the time at which the run is due: the later one of the end of its lease and the end of its wait. A run that waits for an answer has infinity.
CREATE INDEX runs_due ON $S.runs (workflow, plan, (greatest(
	CASE status WHEN 'running' THEN created WHEN 'pending' THEN coalesce(CASE WHEN posted > taken AND (status <> 'pending' OR urgent) THEN least(wake, since) ELSE wake END, created) ELSE coalesce(CASE WHEN posted > taken AND (status <> 'pending' OR urgent) THEN least(wake, since) ELSE wake END, 'infinity') END,
	CASE owner WHEN '' THEN created ELSE expires END
)), id) WHERE status IN ('pending', 'running', 'suspended');

CREATE TABLE $S.served (
	workflow text COLLATE "C" NOT NULL,
	plan     text             NOT NULL,
	process  text             NOT NULL,  -- the process that performs the runs of this workflow and plan
	owner    text             NOT NULL,  -- of its leases, if it has a name that is kept over restarts
	until    timestamptz      NOT NULL,  -- when it counts as dead
	PRIMARY KEY (workflow, plan, process)
);
`, `
CREATE TABLE $S.schedules (
	name       text COLLATE "C" PRIMARY KEY,
	revision   bigint  NOT NULL,           -- one more with each change of the row, from 1
	paused     boolean NOT NULL,
	tick       text COLLATE "C" NOT NULL,  -- the id of the run of the latest tick, which is not pruned; empty if there was none
	active     text COLLATE "C" NOT NULL,  -- the id of the run that has begun last
	definition bytea   NOT NULL            -- JSON: what is performed, and when
);
CREATE INDEX schedules_tick ON $S.schedules (tick);
`, `
ALTER TABLE $S.runs ADD COLUMN compensation text;  -- running, done or failed, of a run that undoes what its nodes have done
CREATE INDEX runs_compensation ON $S.runs (compensation, created DESC, id) WHERE compensation IS NOT NULL;
`, `
ALTER TABLE $S.runs ADD COLUMN awaited boolean NOT NULL DEFAULT false; -- another run has begun to await its end

CREATE TABLE $S.awaits (
	run     bigint NOT NULL,
	node    text COLLATE "C" NOT NULL,  -- the path of a node that awaits the end of another run
	awaited text COLLATE "C" NOT NULL,  -- the id of that run
	PRIMARY KEY (run, node)
);
CREATE INDEX awaits_awaited ON $S.awaits (awaited);
`, `
-- A run writes its row again and again, and Prune removes many rows at once: what is dead is removed when it is 2 % of a table, not 20 %.
ALTER TABLE $S.runs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE $S.nodes SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE $S.events SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE $S.requests SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE $S.served SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
`, `
ALTER TABLE $S.runs ADD COLUMN usage json;  -- an object of numbers
`, `
ALTER TABLE $S.runs ADD COLUMN run_key  text COLLATE "C" NOT NULL DEFAULT ''; -- whose run it is
ALTER TABLE $S.runs ADD COLUMN priority integer NOT NULL DEFAULT 0;           -- higher ones of a key are first
ALTER TABLE $S.runs ADD COLUMN turn     timestamptz;                          -- when the run was taken in a turn of its key last

-- As before, but for the key and the priority.
DROP INDEX $S.runs_due;
CREATE INDEX runs_due ON $S.runs (workflow, plan, run_key, priority DESC, (greatest(
	CASE status WHEN 'running' THEN created WHEN 'pending' THEN coalesce(CASE WHEN posted > taken AND (status <> 'pending' OR urgent) THEN least(wake, since) ELSE wake END, created) ELSE coalesce(CASE WHEN posted > taken AND (status <> 'pending' OR urgent) THEN least(wake, since) ELSE wake END, 'infinity') END,
	CASE owner WHEN '' THEN created ELSE expires END
)), id) WHERE status IN ('pending', 'running', 'suspended');

CREATE INDEX runs_turn ON $S.runs (run_key, turn) WHERE turn IS NOT NULL;
CREATE INDEX runs_leased ON $S.runs (run_key) WHERE run_key <> '' AND owner <> '' AND ended IS NULL;
CREATE INDEX runs_key ON $S.runs (run_key, created DESC, id) WHERE run_key <> '';
`, `
CREATE TABLE $S.grants (
	name    text COLLATE "C" PRIMARY KEY,  -- of a limit that processes share
	expires timestamptz NOT NULL,          -- from then on nobody has anything of it
	state   bytea       NOT NULL           -- JSON: who holds how many slots until when, and the tokens
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX grants_expires ON $S.grants (expires);
`}
