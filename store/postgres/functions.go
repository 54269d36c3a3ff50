package postgres

import (
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/store"
)

// Functions returns the statements that create or replace SQL functions in the schema of a store. The parameter "" means [DefaultSchema]. Programs
// in other languages call these functions in their own transactions, to create runs and to post requests, see [store.Inbox]:
//
//	SELECT kahn.create_run('order', 'order-17', '{"customer": "acme"}', '{"region": "eu"}', 'acme', priority => 2);
//	SELECT kahn.post_signal('order-17', 'approve', '"yes"', 'message-1', actor => 'ann', comment => 'as agreed');
//
// The other functions are post_cancel, post_cancel_node, post_redrive and post_compensation. A function returns false if the same run or request is
// stored already. docs/durable.md lists the arguments and the condition of each error. The workers of package riverkahn do not perform runs that
// create_run has created, since these have no plan. A role that calls the functions needs the same privileges as a role that uses the store.
//
// When the transaction is committed, the server notifies the processes that have [Options].Listen set. If the functions of package riverkahn are in
// the schema, a request that makes its run due also wakes the run's job, in the same transaction.
func Functions(schema string) string {
	if schema == "" {
		schema = DefaultSchema
	}
	text := strings.NewReplacer("$CHANNEL", channel(schema), "$VALUE", fmt.Sprint(maxValue), "$TEXT", fmt.Sprint(maxText), "$KEY", fmt.Sprint(store.MaxKey), "$PRIORITY", fmt.Sprint(store.MaxPriority)).Replace(functionsText())
	return within(schema, serverNow, text)
}

// functionsText returns the statements of Functions. The function post_request does what PostTx does. It locks the run in a statement of its own, so
// that the next statement sees the requests that other transactions posted while post_request waited for the lock. jsonb cannot represent the
// character U+0000. So if a request has this character, post_request recognises a second post of it only if actor and comment are equal, too.
func functionsText() string {
	return `
CREATE OR REPLACE FUNCTION $S.same_request(a json, b json) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $TAG BEGIN
	RETURN a::text = b::text OR (a::jsonb - '{actor,comment}'::text[])::text = (b::jsonb - '{actor,comment}'::text[])::text;
EXCEPTION WHEN untranslatable_character THEN RETURN false;
END $TAG;

CREATE OR REPLACE FUNCTION $S.post_request(run text, request text, kind text, node text, value json, actor text, comment text) RETURNS boolean LANGUAGE plpgsql AS $TAG
DECLARE
	r       record;
	old     json;
	content json;
BEGIN
	actor := coalesce(actor, '');
	comment := coalesce(comment, '');
	content := CASE kind
		WHEN 'signal' THEN json_build_object('id', request, 'kind', kind, 'node', node, 'value', value, 'actor', actor, 'comment', comment)
		WHEN 'cancel' THEN json_build_object('id', request, 'kind', kind, 'actor', actor, 'comment', comment)
		WHEN 'redrive' THEN json_build_object('id', request, 'kind', kind, 'value', coalesce(value, '{}'), 'actor', actor, 'comment', comment)
		ELSE json_build_object('id', request, 'kind', kind, 'node', node, 'actor', actor, 'comment', comment)
	END;
	IF coalesce(request, '') = '' THEN
		RAISE EXCEPTION 'a request for run % without an id', run USING ERRCODE = 'invalid_parameter_value';
	ELSIF coalesce(kind, '') NOT IN ('signal', 'cancel', 'cancel_node', 'redrive') THEN
		RAISE EXCEPTION 'request %: % is no kind of request', request, kind USING ERRCODE = 'invalid_parameter_value';
	ELSIF kind NOT IN ('cancel', 'redrive') AND coalesce(node, '') = '' THEN
		RAISE EXCEPTION 'request %: a % needs a node', request, kind USING ERRCODE = 'invalid_parameter_value';
	ELSIF kind = 'signal' AND value IS NULL THEN
		RAISE EXCEPTION 'request %: the value of a signal is NULL', request USING ERRCODE = 'invalid_parameter_value', HINT = 'The null of JSON is ''null''.';
	ELSIF octet_length(value::text) > $VALUE THEN
		RAISE EXCEPTION 'request %: a value of % bytes; the store takes up to $VALUE', request, octet_length(value::text) USING ERRCODE = 'program_limit_exceeded';
	END IF;
	SELECT x.run, x.status INTO r FROM $S.runs x WHERE x.id = post_request.run FOR NO KEY UPDATE;
	IF NOT FOUND THEN RAISE EXCEPTION 'unknown run %', run USING ERRCODE = 'no_data_found'; END IF;
	SELECT convert_from(q.request, 'UTF8')::json INTO old FROM $S.requests q WHERE q.run = r.run AND sha256(q.id) = sha256(convert_to(post_request.request, 'UTF8'));
	IF FOUND THEN
		IF $S.same_request(old, content) THEN RETURN false; END IF;
		RAISE EXCEPTION 'request % was posted for run % with another content', request, run USING ERRCODE = 'unique_violation';
	ELSIF kind = 'redrive' AND r.status NOT IN ('completed', 'failed', 'cancelled') THEN
		RAISE EXCEPTION 'run % has not ended: it is %', run, r.status USING ERRCODE = 'object_not_in_prerequisite_state';
	ELSIF kind <> 'redrive' AND r.status IN ('completed', 'failed', 'cancelled') THEN
		RAISE EXCEPTION 'run % has ended: it is %', run, r.status USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	UPDATE $S.runs x SET posted = x.posted + 1, since = CASE WHEN x.posted > x.taken THEN x.since ELSE $NOW END, urgent = x.urgent OR kind = 'cancel'
		WHERE x.run = r.run RETURNING x.run, x.status, x.posted, x.urgent INTO r;
	INSERT INTO $S.requests (run, number, id, posted, request) VALUES (r.run, r.posted, convert_to(post_request.request, 'UTF8'), $NOW, convert_to(content::text, 'UTF8'));
	IF strpos(value::text, '$blob') > 0 THEN
		INSERT INTO $S.blobs SELECT DISTINCT x->>'$blob', r.run FROM jsonb_path_query(value::jsonb, 'strict $.**') x
			WHERE jsonb_typeof(x) = 'object' AND jsonb_typeof(x->'$blob') = 'string' AND x - '$blob' = '{}' ON CONFLICT DO NOTHING;
	END IF;
	PERFORM pg_notify('$CHANNEL', run);
	IF (r.urgent OR r.status <> 'pending') AND to_regprocedure($Q || '.wake_run(text)') IS NOT NULL THEN
		PERFORM $S.wake_run(run);
	END IF;
	RETURN true;
END $TAG;

CREATE OR REPLACE FUNCTION $S.create_run(workflow text, run text, inputs json DEFAULT NULL, labels json DEFAULT NULL, key text DEFAULT '', priority integer DEFAULT 0,
	not_before timestamptz DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $TAG
DECLARE
	r    record;
	data bytea;
BEGIN
	key := coalesce(key, '');
	priority := coalesce(priority, 0);
	IF coalesce(run, '') = '' THEN
		RAISE EXCEPTION 'a run without an id' USING ERRCODE = 'invalid_parameter_value';
	ELSIF coalesce(workflow, '') = '' THEN
		RAISE EXCEPTION 'run %: the name of the workflow is missing', run USING ERRCODE = 'invalid_parameter_value';
	ELSIF octet_length(run) > $TEXT OR octet_length(workflow) > $TEXT THEN
		RAISE EXCEPTION 'run %: the id has % bytes, and the workflow %; the store takes up to $TEXT', left(run, 50), octet_length(run), octet_length(workflow) USING ERRCODE = 'program_limit_exceeded';
	ELSIF octet_length(key) > $KEY THEN
		RAISE EXCEPTION 'run %: the key has % bytes; a key has up to $KEY', run, octet_length(key) USING ERRCODE = 'invalid_parameter_value';
	ELSIF priority < -$PRIORITY OR priority > $PRIORITY THEN
		RAISE EXCEPTION 'run %: the priority %: -$PRIORITY to $PRIORITY', run, priority USING ERRCODE = 'invalid_parameter_value';
	ELSIF json_typeof(inputs) NOT IN ('object', 'null') THEN
		RAISE EXCEPTION 'run %: the inputs are no JSON object, but of the type %', run, json_typeof(inputs) USING ERRCODE = 'invalid_parameter_value';
	ELSIF json_typeof(labels) NOT IN ('object', 'null') THEN
		RAISE EXCEPTION 'run %: the labels are no JSON object, but of the type %', run, json_typeof(labels) USING ERRCODE = 'invalid_parameter_value';
	ELSIF octet_length(inputs::text) > $VALUE THEN
		RAISE EXCEPTION 'run %: inputs of % bytes; the store takes up to $VALUE', run, octet_length(inputs::text) USING ERRCODE = 'program_limit_exceeded';
	ELSIF NOT isfinite(not_before) THEN
		RAISE EXCEPTION 'run %: not_before is infinite', run USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF json_typeof(inputs) = 'null' THEN inputs := NULL; END IF;
	IF json_typeof(labels) = 'null' THEN labels := NULL; END IF;
	IF inputs IS NOT NULL AND EXISTS (SELECT FROM json_object_keys(inputs) AS n(name) WHERE n.name = '#fire') THEN
		RAISE EXCEPTION 'run %: no input is called #fire', run USING ERRCODE = 'invalid_parameter_value';
	ELSIF labels IS NOT NULL AND EXISTS (SELECT FROM json_each(labels) AS l(name, value) WHERE json_typeof(l.value) <> 'string') THEN
		RAISE EXCEPTION 'run %: a label is no text', run USING ERRCODE = 'invalid_parameter_value';
	END IF;
	data := CASE WHEN inputs::text <> '{}' THEN convert_to(inputs::text, 'UTF8') END;
	INSERT INTO $S.runs AS x (id, status, sequence, created, epoch, owner, expires, wake, workflow, labels, inputs, run_key, priority)
		VALUES (create_run.run, 'pending', 0, $NOW, 0, '', '-infinity', not_before, create_run.workflow, nullif(create_run.labels::jsonb, '{}'), data, create_run.key, create_run.priority)
		ON CONFLICT (id) DO UPDATE SET created = excluded.created, wake = excluded.wake, workflow = excluded.workflow, labels = excluded.labels, inputs = excluded.inputs,
			run_key = excluded.run_key, priority = excluded.priority
		WHERE x.sequence = 0 AND x.workflow = '' AND x.plan = '' AND x.inputs IS NULL AND x.labels IS NULL AND x.parent IS NULL AND NOT (x.owner <> '' AND x.expires > $NOW)
		RETURNING x.run INTO r;
	IF NOT FOUND THEN
		SELECT x.sequence, x.workflow, x.plan, x.inputs, x.status INTO r FROM $S.runs x WHERE x.id = create_run.run;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'run % was removed at the same moment', run USING ERRCODE = 'serialization_failure';
		ELSIF r.sequence = 0 AND r.workflow = '' AND r.plan = '' THEN
			RAISE EXCEPTION 'run % is leased: another process is about to begin it', run USING ERRCODE = 'object_in_use';
		ELSIF r.workflow <> create_run.workflow THEN
			RAISE EXCEPTION 'run % exists, and its workflow is %, not %', run, r.workflow, workflow USING ERRCODE = 'unique_violation';
		ELSIF $S.other_inputs(r.inputs, data) THEN
			RAISE EXCEPTION 'run % exists, and has other inputs; it is %', run, r.status USING ERRCODE = 'unique_violation';
		END IF;
		RETURN false;
	END IF;
	IF strpos(inputs::text, '$blob') > 0 THEN
		INSERT INTO $S.blobs SELECT DISTINCT x->>'$blob', r.run FROM jsonb_path_query(inputs::jsonb, 'strict $.**') x
			WHERE jsonb_typeof(x) = 'object' AND jsonb_typeof(x->'$blob') = 'string' AND x - '$blob' = '{}' ON CONFLICT DO NOTHING;
	END IF;
	PERFORM pg_notify('$CHANNEL', run);
	RETURN true;
END $TAG;

CREATE OR REPLACE FUNCTION $S.other_inputs(a bytea, b bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $TAG BEGIN
	RETURN coalesce(convert_from(a, 'UTF8'), '{}')::jsonb <> coalesce(convert_from(b, 'UTF8'), '{}')::jsonb;
EXCEPTION WHEN untranslatable_character THEN RETURN a IS DISTINCT FROM b;
END $TAG;

CREATE OR REPLACE FUNCTION $S.post_signal(run text, gate text, value json, request text, actor text DEFAULT '', comment text DEFAULT '') RETURNS boolean LANGUAGE sql AS $TAG
	SELECT $S.post_request($1, $4, 'signal', $2, $3, $5, $6)
$TAG;

CREATE OR REPLACE FUNCTION $S.post_cancel(run text, request text, actor text DEFAULT '', comment text DEFAULT '') RETURNS boolean LANGUAGE sql AS $TAG
	SELECT $S.post_request($1, $2, 'cancel', '', NULL, $3, $4)
$TAG;

CREATE OR REPLACE FUNCTION $S.post_cancel_node(run text, node text, request text, actor text DEFAULT '', comment text DEFAULT '') RETURNS boolean LANGUAGE sql AS $TAG
	SELECT $S.post_request($1, $3, 'cancel_node', $2, NULL, $4, $5)
$TAG;

CREATE OR REPLACE FUNCTION $S.post_redrive(run text, request text, nodes text[] DEFAULT NULL, anew boolean DEFAULT false, despite_handlers boolean DEFAULT false,
	keep_descendants boolean DEFAULT false, actor text DEFAULT '', comment text DEFAULT '') RETURNS boolean LANGUAGE plpgsql AS $TAG
BEGIN
	IF array_position(nodes, NULL) IS NOT NULL OR '' = ANY (nodes) THEN
		RAISE EXCEPTION 'request %: a redrive of a node without a name', request USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN $S.post_request(run, request, 'redrive', '', json_strip_nulls(json_build_object('nodes', CASE WHEN cardinality(nodes) > 0 THEN to_json(nodes) END,
		'anew', CASE WHEN anew THEN true END, 'despite_handlers', CASE WHEN despite_handlers THEN true END, 'keep_descendants', CASE WHEN keep_descendants THEN true END)), actor, comment);
END $TAG;

CREATE OR REPLACE FUNCTION $S.post_compensation(run text, request text, nodes text[] DEFAULT NULL, by_hand boolean DEFAULT false, actor text DEFAULT '', comment text DEFAULT '')
	RETURNS boolean LANGUAGE plpgsql AS $TAG
BEGIN
	IF array_position(nodes, NULL) IS NOT NULL OR '' = ANY (nodes) THEN
		RAISE EXCEPTION 'request %: a compensation of a node without a name', request USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN $S.post_request(run, request, 'redrive', '', json_strip_nulls(json_build_object('nodes', CASE WHEN cardinality(nodes) > 0 THEN to_json(nodes) END,
		'repeat_compensations', CASE WHEN by_hand THEN NULL ELSE true END, 'compensated_by_hand', CASE WHEN by_hand THEN true END)), actor, comment);
END $TAG;
`
}
