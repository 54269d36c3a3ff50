//go:build unix

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/plant"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// defects are bugs in this store, each with a test that finds it.
var defects = []struct {
	test           string
	file, function string
	old, planted   string
}{
	// Bugs in leases.
	{"TestStore", "texts.go", "Store.compose", `WHERE (NOT ` + "` + leased + `" + ` OR r.owner = excluded.owner)`, `WHERE true`},
	{"TestStore", "texts.go", "Store.compose", ` OR r.owner = excluded.owner`, ``},
	{"TestStore", "texts.go", "Store.compose", `epoch = r.epoch + 1`, `epoch = greatest(r.epoch, 1)`},
	{"TestStore", "texts.go", "Store.compose", `" AND "+leased, "expires`, `" AND true", "expires`},
	{"TestStore", "texts.go", "Store.compose", `AND r.owner = a.owner AND r.epoch = a.epoch`, `AND r.owner <> a.owner || 'x' AND r.epoch > 0 * a.epoch`},
	{"TestStore", "texts.go", "fits", "w.sequence - 1 AND ` + leased", "w.sequence - 1`"},
	{"TestStore", "lease.go", "Store.acquired", `if r == nil {`, `if r == nil && ctx == nil {`},
	// Bugs in commits.
	{"TestStore", "stage.go", "run.judge", `range c.Reset {`, `range c.Reset[:0] {`},
	{"TestStore", "stage.go", "stage.drop", `ch.node.staged = 0; ch.fresh`, `ch.fresh`},
	{"TestStore", "stage.go", "stage.drop", `ch.node.staged = 0; ch.fresh`, `ch.node.staged = 0; false`},
	{"TestStore", "stage.go", "stage.keep", `ch.node.State, ch.node.staged = ch.next, 0`, `ch.node.staged = 0`},
	{"TestStore", "texts.go", "commitText", `coalesce(h.status, r.status), wake`, `r.status, wake`},
	{"TestStore", "texts.go", "commitText", `wake = h.wake`, `wake = coalesce(h.wake, r.wake)`},
	{"TestStore", "texts.go", "commitText", `record = coalesce(h.record, r.record)`, `record = h.record`},
	{"TestStore", "texts.go", "commitText", `THEN $NOW WHEN`, `THEN NULL WHEN`},
	{"TestStore", "texts.go", "commitText", `CASE WHEN h.changed THEN h.labels::jsonb ELSE r.labels END`, `coalesce(h.labels::jsonb, r.labels)`},
	{"TestStore", "texts.go", "commitText", `CASE WHEN h.changed THEN h.labels::jsonb ELSE r.labels END`, `h.labels::jsonb`},
	{"TestStore", "texts.go", "commitText", `CASE WHEN h.changed THEN h.%[1]s ELSE r.%[1]s END`, `h.%[1]s`},
	{"TestStore", "commit.go", "Store.execute", `m.c.Compensation != nil || len(m.c.Usage) > 0`, `m.c.Compensation != nil`},
	{"TestStore", "commit.go", "Store.execute", `m.c.Compensation != nil || len(m.c.Usage) > 0`, `len(m.c.Usage) > 0`},
	{"TestStore", "texts.go", "putNodes", `CASE WHEN excluded.key IS NULL THEN o.%[1]s ELSE excluded.%[1]s END`, `excluded.%[1]s`},
	{"TestStore", "texts.go", "putNodes", `name+" = excluded."+name`, `name+" = o."+name`},
	{"TestInbox", "stage.go", "run.judge", `!c.TakenFollow(r.taken, posted)`, `false`},
	{"TestInbox", "texts.go", "commitText", `THEN r.posted ELSE`, `THEN r.taken ELSE`},
	{"TestInbox", "texts.go", "commitText", `q.run = a.run AND q.number = a.number`, `q.run = a.run`},
	{"TestInbox", "inbox.go", "Store.post", `q.Wakes(false)`, `q.Wakes(true)`},
	{"TestPostedTwiceAtOnce", "inbox.go", "Store.Post", `!collides(err)`, `err == nil || true`},
	{"TestPruneLeavesNothing", "prune.go", "pruneText", `WHERE q.run = g.run)`, `WHERE q.run < g.run)`},
	{"TestInbox", "create.go", "putText", `q.run = w.run)`, `q.run < w.run)`},
	{"TestInboxOfAnotherProcess", "inbox.go", "Store.listenOnce", `s.requests.Tell(n.Payload)`, `_ = n.Payload`},
	{"TestListenerReconnects", "inbox.go", "Store.listenOnce", `s.requests.Hurry()
	for`, `for`},
	{"TestPostedTwiceAtOnce", "functions.go", "functionsText", `x.id = post_request.run FOR NO KEY UPDATE`, `x.id = post_request.run`},
	{"TestFunctions", "functions.go", "functionsText", `x.urgent OR kind = 'cancel'`, `x.urgent`},
	{"TestFunctions", "functions.go", "functionsText", `THEN x.since ELSE $NOW END`, `THEN x.since ELSE NULL END`},
	{"TestFunctions", "functions.go", "functionsText", `'{actor,comment}'::text[])::text = (b`, `'{actor}'::text[])::text = (b`},
	{"TestFunctionArguments", "functions.go", "functionsText", `a::text = b::text OR `, ``},
	{"TestFunctionBlobs", "functions.go", "functionsText", ` AND x - '$blob' = '{}'`, ``},
	{"TestFunctionsOfAnotherProcess", "functions.go", "functionsText", `pg_notify('$CHANNEL', run)`, `pg_notify('$CHANNEL', 'x')`},
	{"TestAdmin", "prune.go", "pruneText", "\n\t\tAND NOT EXISTS (SELECT FROM $S.schedules s WHERE s.tick = r.id)", ``},
	{"TestAdmin", "schedule.go", "putScheduleText", `WHERE s.revision = $2::bigint`, `WHERE s.revision >= $2::bigint`},
	{"TestAdmin", "schedule.go", "schedulesText", `(a.status <> 'pending' OR a.owner <> '' AND a.expires > n.now)`, `a.status <> 'pending'`},
	{"TestAdmin", "schedule.go", "Store.PutSchedule", `s.create(ctx, tx, create)`, `s.create(ctx, s.pool, create)`},
	{"TestFarthestTimes", "record.go", "instant", `us.Before(t)`, `us.After(t)`},
	{"TestStore", "record.go", "nodeRow.listed", `l.Terminal, l.Queued, l.Completed = *n.terminal, *n.queued, *n.completed`, `l.Terminal, l.Queued, l.Completed = *n.terminal, *n.completed, *n.queued`},
	{"TestAdmin", "lease.go", "Store.acquireWithin", `leased >= t.Most`, `leased > t.Most`},
	{"TestAdmin", "lease.go", "Store.whoHolds", `!there || has != *key`, `!there`},
	{"TestAdmin", "texts.go", "Store.compose", `turn = coalesce(excluded.turn, r.turn)`, `turn = r.turn`},
	{"TestAdmin", "texts.go", "Store.compose", `excluded.turn IS NULL OR r.run_key = excluded.run_key`, `true`},
	{"TestAdmin", "queue.go", "dueText", `"(SELECT each + 1 FROM e)"`, `"(SELECT each FROM e)"`},
	{"TestAdmin", "queue.go", "plainText", `r.run_key <> '' OR r.priority < 0`, `r.priority < 0`},
	{"TestGrants", "grants.go", "Store.lockGrants", ` FOR UPDATE"`, `"`},
	{"TestGrants", "grants.go", "Store.grant", `WHERE g.name = n.name`, `WHERE g.name < n.name`},
	{"TestGrants", "grants.go", "Store.removeGrants", `expires < $NOW - $1`, `expires < $NOW + $1`},
	{"TestGrants", "grants.go", "Store.lockGrants", `len(limits) < len(requests)`, `len(limits) == 0 && len(requests) > 0`},
	{"TestCreateRun", "functions.go", "functionsText", `ELSIF json_typeof(inputs) NOT IN`, `ELSIF json_typeof(inputs) IN`},
	{"TestStore", "commit.go", "rowsOfRuns.add", `orNull(spec.Parent)`, `orNull(spec.Plan)`},
	// Bugs in the methods of Admin.
	{"TestAdmin", "create.go", "Store.place", `err != nil || !write`, `err != nil || write && false`},
	{"TestAdmin", "create.go", "putText", `coalesce($5, $NOW)`, `coalesce($5 - interval '1 day', $NOW)`},
	{"TestAdmin", "create.go", "putText", `SELECT b.key, 0 FROM written`, `SELECT b.key, -1 FROM written`},
	{"TestAdmin", "create.go", "Store.put", `&n.State`, `new(store.State)`},
	{"TestAdmin", "create.go", "Store.put", `compensationText(r.Compensation)`, `compensationText(0)`},
	{"TestAdmin", "create.go", "Store.put", `usageText(r.Usage)`, `usageText(nil)`},
	{"TestAdmin", "texts.go", "commitText", `coalesce(h.used::json, r.usage)`, `h.used::json`},
	{"TestAdmin", "list.go", "conditionOf", `r.compensation = $%d`, `r.compensation >= $%d`},
	{"TestCompensationsOfABatch", "texts.go", "commitText", `coalesce(h.undoing, r.compensation)`, `h.undoing`},
	{"TestAdmin", "list.go", "conditionOf", `"r.created < $%d"`, `"r.created <= $%d"`},
	{"TestAdmin", "list.go", "conditionOf", `"r.ended >= $%d"`, `"r.ended > $%d"`},
	{"TestOddTexts", "list.go", "conditionOf", `likeEscape.Replace(f.Prefix)`, `f.Prefix`},
	{"TestAdmin", "list.go", "listQuery", `"r.id > $%d)"`, `"r.id >= $%d)"`},
	{"TestAdmin", "list.go", "listQuery", `ORDER BY r.created DESC, r.id`, `ORDER BY r.id`},
	{"TestAdmin", "list.go", "listQuery", `most+1`, `most`},
	{"TestAdmin", "list.go", "Store.listNodes", `first, most + 1, values`, `first, most + 1, false`},
	{"TestAdmin", "prune.go", "pruneText", `r.ended < $1 AND`, `r.ended <= $1 AND`},
	{"TestAdmin", "prune.go", "pruneText", ` AND NOT ` + "` + leased + `" + ` AND r.posted`, ` AND r.posted`},
	{"TestAdmin", "prune.go", "pruneText", `ORDER BY r.ended, r.run`, `ORDER BY r.run`},
	{"TestAdmin", "prune.go", "pruneText", `SELECT DISTINCT b.key, 0`, `SELECT DISTINCT b.key, -1`},
	{"TestAdmin", "prune.go", "pruneText", `count(*) FROM found) > $3`, `count(*) FROM found) > 0`},
	{"TestAdmin", "prune.go", "Store.sweep", `o.run > 0`, `o.run > 1000000`},
	{"TestAwaits", "await.go", "Store.judgeAwait", `e.Unknown || e.Status.Terminal()`, `e.Unknown`},
	{"TestAwaits", "texts.go", "commitText", `parts&withAwaits == 0`, `parts < 0`},
	{"TestNewerSchema", "migrate.go", "newerSchema", `version <= len(migrations)`, `version > 0`},
	{"TestAdmin", "commit.go", "Store.writeStaged", `c.arg.c.BlobKeys()`, `store.BlobKeys(c.arg.c.Run)`},
	// Bugs in events.
	{"TestEvents", "stage.go", "run.judgeEvents", `!c.EventsFollow(r.event)`, `false`},
	{"TestHighestEvent", "stage.go", "run.judgeEvents", `c.Events[n-1].ID > math.MaxInt64`, `false`},
	{"TestEventsShareStatements", "stage.go", "stage.keep", `st.run.event = c.Events[n-1].ID`, `st.run.event = c.Events[0].ID`},
	{"TestEvents", "commit.go", "Store.writeStaged", `len(m.c.Events) > 0`, `len(m.c.Events) > 1`},
	{"TestEvents", "run.go", "Store.load", `uint64(sequence), idOf(last)`, `uint64(sequence), 0`},
	{"TestEvents", "stage.go", "newRun", `event: stored.LastEvent`, `event: 0`},
	{"TestOvertakenEvents", "texts.go", "commitText", `JOIN written USING (run))`, `JOIN want USING (run))`},
	{"TestEvents", "prune.go", "pruneText", `e.run = g.run),
effects`, `e.run < g.run),
effects`},
	{"TestEvents", "create.go", "Store.put", `events.add(0, r.Events)`, `events.add(0, nil)`},
	{"TestEvents", "events.go", "Store.loadEvents", `err == nil && !known`, `err == nil && !known && limit < 0`},
	{"TestMissingEvents", "events.go", "Store.loadEvents", `idOf(id) != want`, `false`},
	{"TestEventsShareStatements", "commit.go", "Store.writeStaged", `m.stage.keep(&m.c)`, `m.stage.keep(&m.c)
if len(m.c.Events) > 0 { s.forget(m.lease) }`},
	// Bugs that show when statements are shared, answers are lost, or several processes use the database.
	{"TestTwoProcesses", "texts.go", "fits", ` AND r.sequence = w.sequence - 1`, ``},
	{"TestLockedRun", "texts.go", "commitText", ` SKIP LOCKED`, ``},
	{"TestLockedRun", "texts.go", "Store.compose", ` SKIP LOCKED`, ``},
	{"TestStatementsAreShared", "line.go", "", `len(batch) < maxBatch`, `len(batch) < 1`},
	{"TestTwoProcesses", "commit.go", "Store.writeStaged", `written[m.run.number]:`, `(written[m.run.number] || len(staged) > 0):`},
	{"TestOneCannotBeWritten", "commit.go", "Store.writeStaged", `len(staged) > 1 && isVerdict(err)`, `false`},
	{"TestLinkIsCut", "commit.go", "Store.writeStaged", `s.forget(m.lease)`, `_ = s`},
	{"TestTwoProcesses", "texts.go", "fits", " AND r.owner = w.owner AND r.epoch = w.epoch AND r.sequence = w.sequence - 1 AND ` + leased", "`"},
	{"TestOutages", "errors.go", "describe", "if !errors.As(err, &answer) {\n\t\treturn err", "if !errors.As(err, &answer) && err != nil {\n\t\treturn fmt.Errorf(\"%w: %w\", store.ErrUnusable, err)"},
	{"TestBouncer", "errors.go", "describe", "if !errors.As(err, &answer) {\n\t\treturn err", "if !errors.As(err, &answer) && err != nil {\n\t\treturn fmt.Errorf(\"%w: %w\", store.ErrUnusable, err)"},
	{"TestCommitInParts", "parts.go", "parts.exec", `p.tx.Exec(`, `p.s.pool.Exec(`},
	{"TestCommitInParts", "parts.go", "Store.executeParts", `i == len(m.c.Events)-1`, `false`},
	{"TestCommitInParts", "commit.go", "Store.writeStaged", `staged[0].size > maxStatement`, `staged[0].size < 0`},
	{"TestCancelAndRedrive", "texts.go", "putNodes", `ELSE excluded.%[1]s END`, `ELSE o.%[1]s END`},
	{"TestTimeout", "store.go", "Store.do", `context.WithTimeout(ctx, s.timeout)`, `context.WithCancel(ctx)`},
	{"TestTwoProcesses", "texts.go", "fits", `r.owner = w.owner AND r.epoch = w.epoch AND `, ``},
	{"TestStatements", "lease.go", "Store.complete", `a.err != nil || a.stored.Sequence == 0`, `a.err != nil`},
	{"TestClosed", "store.go", "Store.Close", `s.releaseAll()`, `error(nil)`},
	{"TestDamaged", "lease.go", "Store.acquired", `_, _, _ = s.changeLeases(context.WithoutCancel(ctx), s.texts.release, &rows)`, `_ = r.lease`},
	{"TestClosedMeanwhile", "lease.go", "Store.acquired", `_, _, _ = s.changeLeases(context.WithoutCancel(ctx), s.texts.release, &rows)`, `_ = s.Release(context.WithoutCancel(ctx), r.lease)`},
	{"TestClosedMeanwhile", "store.go", "Store.Close", `s.workers.Wait()`, `_ = &s.workers`},
	{"TestLoadOfManyNodes", "texts.go", "Store.compose", `first("r.labels")`, `"r.labels"`},
	{"TestLoadOfManyNodes", "texts.go", "Store.compose", `first("r.inputs")`, `"r.inputs"`},
	{"TestDamaged", "run.go", "run.read", ` || int(*n.node) != len(r.nodes)`, ``},
	{"TestNamesOfSchemas", "schema.go", "within", `strings.Contains(schema, tag)`, `false`},
	{"TestLongTexts", "record.go", "checkTexts", `len(text) > maxText`, `len(text) > 3*maxText`},
	{"TestLongTexts", "record.go", "checkSpec", `spec.Workflow, spec.Parent`, `spec.Workflow, spec.Workflow`},
	{"TestMigrations", "migrate.go", "Store.migrate", `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, `SELECT $1::text`},
	{"TestMigrations", "migrate.go", "Store.version", `version < 0 || version > len(migrations)`, `version < 0`},
	{"TestOddTexts", "errors.go", "describe", `strings.HasPrefix(answer.Code, l.code)`, `answer.Code == l.code`},
	{"TestClock", "texts.go", "Store.sql", `s.now`, `serverNow`},
	{"TestPlans", "list.go", "conditionOf", `"r.status = $%d", statuses[0]`, `"r.status = ANY ($%d)", statuses`},
	{"TestPlansOfSmallTables", "texts.go", "commitText", ` LIMIT cardinality($1::bigint[])`, ``},
	{"TestRowsRead", "prune.go", "pruneText", ` LIMIT $3 + 1`, ` LIMIT 100000`},
	{"TestRowsRead", "texts.go", "Store.compose", `n WHERE n.run = r.run ORDER`, `n WHERE n.run + 0 = r.run ORDER`},
	{"TestMemoryOfRuns", "lease.go", "Store.Release", `s.forget(lease)`, `_ = lease`},
	{"TestOnce", "once.go", "Once", `if kept != nil {`, `if kept != nil && len(kept) == 0 {`},
	{"TestOnceFenced", "once.go", "Once", `r.epoch = $4 AND "+leased`, `$4 > 0 AND "+leased`},
	{"TestOnceFenced", "once.go", "Store.claim", `case !held:`, `case !held && run == 0:`},
	{"TestCreateTx", "create.go", "Store.CreateTx", `s.create(ctx, tx, &n)`, `s.create(ctx, s.pool, &n)`},
	{"TestFarthestTimes", "record.go", "instant", `t.UTC().Year() > lastYear`, `false`},
}

// TestPlantedBugs plants each of the defects in a copy of the code, and requires that its test then fails. All copies are compiled, but tests
// run only for a sample, see plant.Try.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	plant.Wanted(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var cases []plant.Case
	for _, d := range defects {
		cases = append(cases, plant.Case{Bug: plant.Bug{File: "store/postgres/" + d.file, Func: d.function, Old: d.old, New: d.planted}, Test: d.test})
	}
	most := size(4, len(cases)) // each case takes seconds
	require.NoError(t, plant.Try(ctx, "../..", cases, most, postgrestest.DatabaseURL+"="+database))
}
