package riverkahn

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// Functions returns statements that create or replace SQL functions in the schema of the store. Programs in other languages call these functions
// in their own transactions:
//
//	SELECT kahn.post_signal('order-17', 'approve', '"yes"', 'message-1');
//	SELECT kahn.wake_run('order-22');
//
// The statements create wake_run and all functions of [postgres.Functions]. The function wake_run does the same as [Client.Wake]. If the schema has
// wake_run, a post function does the same as [Client.Post]: one transaction writes the request and the job with which the run continues.
//
// The argument "store" is the schema of the store; if it is empty, this is [postgres.DefaultSchema]. The argument "river" is the schema of River; if
// it is empty, this is "public". A role that calls a function needs the privileges to write River's jobs and to read runs.
func Functions(store, river string) string {
	if store == "" {
		store = postgres.DefaultSchema
	}
	if river == "" {
		river = "public"
	}
	return postgres.Functions(store) + strings.NewReplacer(
		"$S", pgx.Identifier{store}.Sanitize(),
		"$R", pgx.Identifier{river}.Sanitize(),
		"$TOPIC", literal(river+".river_insert"),
		"$KEY", uniqueKey,
	).Replace(functions)
}

// The function `literal` returns a text as an SQL literal.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// The constant `functions` implements Client.WakeTx in SQL, together with the method enqueue, which WakeTx calls. The SQL function queue_of returns
// the same name as QueueOf. B'11110001' is River's bit mask of the states in the variable "live", and 25 is river.MaxAttemptsDefault.
const functions = `
CREATE OR REPLACE FUNCTION $S.queue_of(workflow text, plan text) RETURNS text LANGUAGE sql IMMUTABLE AS $f$
	SELECT 'kahn_' || CASE WHEN name = '' THEN '' ELSE name || '_' END || left(encode(sha256(convert_to(workflow || E'\n' || plan, 'UTF8')), 'hex'), 32)
	FROM (SELECT rtrim(left(trim(BOTH '_' FROM lower(regexp_replace(workflow, '[^A-Za-z0-9]+', '_', 'g') COLLATE "C")), 24), '_') AS name) AS readable
$f$;

CREATE OR REPLACE FUNCTION $S.wake_run(id_of_run text) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
	r     $S.runs%ROWTYPE;
	has   record;
	wants text;
BEGIN
	SELECT * INTO r FROM $S.runs WHERE id = id_of_run;
	IF NOT FOUND THEN RAISE EXCEPTION 'unknown run %', id_of_run USING ERRCODE = 'no_data_found'; END IF;
	IF r.ended IS NOT NULL AND r.posted = r.taken THEN RETURN; END IF;
	wants := $S.queue_of(r.workflow, r.plan);
	LOOP
		INSERT INTO $R.river_job (kind, args, queue, priority, max_attempts, state, unique_key, unique_states)
		VALUES ('kahn_run', jsonb_build_object('run', r.id, 'key', encode(sha256(convert_to(r.id, 'UTF8')), 'hex')), wants,
			CASE WHEN r.labels->>'river.priority' ~ '^[1-4]$' THEN (r.labels->>'river.priority')::smallint ELSE 1 END, 25, 'available', $KEY, B'11110001')
		ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND $R.river_job_state_in_bitmask(unique_states, state)
		DO UPDATE SET kind = excluded.kind
		RETURNING id, state, queue, xmax <> 0 AS was_there INTO has;
		EXIT WHEN NOT has.was_there OR has.state = 'running' OR has.state = 'available' AND has.queue = wants;
		DELETE FROM $R.river_job WHERE id = has.id;
	END LOOP;
	PERFORM pg_notify($TOPIC, json_build_object('queue', wants)::text);
END $f$;
`
