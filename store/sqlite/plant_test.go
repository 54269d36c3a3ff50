package sqlite_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// defects are bugs in this store, and in the part of package store that judges commits. Package storetest must find each of them.
var defects = []struct {
	name           string
	file, function string
	old, planted   string
}{
	{"a run wakes in any year", "../judge.go", "Commit.Judge", `checkTime(c.WakeAt)`, `error(nil)`},
	{"a lease lasts for ever", "lease.go", "leaseStatements.prepare", `expires > "+now+" FROM`, `expires > 0 FROM`},
	{"a lease is renewed by its former owner", "lease.go", "leaseStatements.prepare", `held := fmt.Sprintf(holds, now)`, `held := "owner <> ? AND epoch = ?"`},
	{"a lease that has run out writes", "commit.go", "rowStatements.prepare", `fmt.Sprintf(holds, now)`, `"owner = ? AND epoch = ?"`},
	{"every owner is the same", "lease.go", "Store.acquire", `(other != owner || process != s.process)`, `process != s.process`},
	{"an acquisition keeps the epoch", "lease.go", "leaseStatements.prepare", `epoch = epoch + 1`, `epoch = max(epoch, 1)`},
	{"an old lease releases the new one", "lease.go", "leaseStatements.prepare", `WHERE id = ? AND owner = ? AND epoch = ?"`, `WHERE id = ? AND ? <> '' AND ? > 0"`},
	{"any lease of the process writes", "commit.go", "writer.apply", `r == nil || r.lease != lease`, `r == nil`},
	{"a duplicate is applied", "../judge.go", "Commit.Judge", `case c.Sequence == sequence:`, `case c.Sequence == sequence && sequence == 0:`},
	{"a gap in the sequence is accepted", "../judge.go", "Commit.Judge", `c.Sequence != sequence+1`, `c.Sequence <= sequence`},
	{"a run that has ended goes on", "../judge.go", "Commit.Judge", `status.Terminal() && !c.refuses() || `, ``},
	{"nodes are taken back without a redrive", "../judge.go", "Commit.Judge", ` || len(c.Reset) > 0`, ``},
	{"a node that is taken back keeps its attempts", "../judge.go", "Commit.Judge", `*node(key) = State{}`, `*node(key) = State{Attempt: node(key).Attempt}`},
	{"a node that is taken back keeps its row", "commit.go", "stage.judge", `range c.Reset {`, `range c.Reset[:0] {`},
	{"an attempt ends twice", "../judge.go", "Commit.Judge", ` || n.Completed`, ``},
	{"attempts start in any order", "../judge.go", "Commit.Judge", `start.Attempt != n.Attempt+1 || `, ``},
	{"a terminal node starts", "../judge.go", "Commit.Judge", `start.Attempt != n.Attempt+1 || n.Terminal`, `start.Attempt != n.Attempt+1`},
	{"a terminal node changes", "../judge.go", "Commit.Judge", "if n.Terminal {\n", "if n.Terminal && c.Sequence == 0 {\n"},
	{"a node that has started is queued", "../judge.go", "Commit.Judge", `start.Attempt, false, false`, `start.Attempt, n.Queued, false`},
	{"a counter may overflow", "../judge.go", "Commit.Judge", `n.Resolved > n.Required`, `n.Resolved > n.Required+5`},
	{"a commit that was refused stays staged", "commit.go", "stage.drop", `ch.node.staged = 0; ch.fresh`, `ch.fresh`},
	{"a node that was refused keeps its place", "commit.go", "stage.drop", `ch.node.staged = 0; ch.fresh`, `ch.node.staged = 0; false`},
	{"what was written is forgotten", "commit.go", "stage.keep", `*ch.node = ch.next`, `ch.node.Attempt = ch.next.Attempt`},
	{"the status is not written", "commit.go", "stage.write", `next.status = c.Status`, `next.status = r.status`},
	{"the time to wake is written with other changes only", "commit.go", "stage.write", `next.wake != r.wake || `, ``},
	{"a commit without nodes is not written", "commit.go", "stage.write", ` || len(st.changes) == 0 {`, ` {`},
	{"counters are written with records only", "commit.go", "change.columns", `append(values, checksum, row)`, `append(values, checksum, -row)`},
	{"the first node of a run is lost", "run.go", "loader.load", `known.number*nodesOfRun, (`, `known.number*nodesOfRun+1, (`},
	{"the next run's first node is loaded", "run.go", "loader.load", `(known.number+1)*nodesOfRun`, `(known.number+1)*nodesOfRun+1`},
	{"the newest commit is that of the run's row", "run.go", "run.read", `r.sequence = max(r.sequence, sequence)`, `_ = sequence`},
	{"a call goes on after its context", "commit.go", "Store.Commit", `ctx.Err(); err != nil`, `ctx.Err(); err != nil && lease.Run == ""`},
	{"an ended context acquires", "lease.go", "Store.Acquire", "if err := ctx.Err(); err != nil {", "if err := ctx.Err(); err != nil && id == \"\" {\n\tctx = context.Background()"},
}

// faults are bugs that tests of this package must find.
var faults = []struct {
	test           string
	file, function string
	old, planted   string
}{
	{"TestFull", "writer.go", "writer.transact", "if err != nil {\n\t\tclear", "if err != nil {\n\t\terr = nil\n\t\tclear"},
	{"TestSchedules", "prune.go", "Store.pruneQuery", `c.add("id NOT IN (SELECT tick FROM kahn_schedules)")`, ``},
	{"TestSchedules", "schedule.go", "writer.unchanged", `uint64(stored) != x.Revision`, `false`},
	{"TestFileLimit", "writer.go", "writer.transact", "if err != nil {\n\t\tclear", "if err != nil {\n\t\terr = nil\n\t\tclear"},
	{"TestTooLarge", "store.go", "Store.CheckValue", `> s.largest`, `> maxValue`},
	{"TestReadOnly", "errors.go", "describe", `case lasting[code] != nil:`, `case lasting[code] != nil && code == 0:`},
	{"TestBusy", "writer.go", "writer.open", `!hasCode(err, lib.SQLITE_BUSY)`, `hasCode(err, lib.SQLITE_BUSY)`},
	{"TestBusy", "process.go", "Store.hasDied", `return true, lock.release()`, `return false, lock.release()`},
	{"TestTwoProcesses", "process.go", "Store.hasDied", "case held:\n\t\treturn false", "case held:\n\t\treturn true"},
	{"TestDamage", "run.go", "run.read", ` || n.checksum(sums, number, key, sequence) != integer(16)`, ``},
	{"TestChanged", "run.go", "loader.load", `known.checksum(l.sums) != row[4].(int64)`, `false`},
	{"TestClock", "commit.go", "rowStatements.prepare", `fmt.Sprintf(holds, now)`, `fmt.Sprintf(holds, DefaultNow)`},
	{"TestMigrations", "migrate.go", "writer.migrate", `if version > int64(len(migrations)) {`, `if version > 1000 {`},
	{"TestTransactionsAreShared", "writer.go", "writer.take", `line, w.line = w.line, nil`, `line, w.line = []*request{own}, slices.DeleteFunc(w.line, func(r *request) bool { return r == own })`},
	{"TestContext", "writer.go", "writer.open", "case <-ctx.Done():", "case <-context.Background().Done():"},
	{"TestClosed", "store.go", "Store.Close", `s.db.Close()`, `s.db.Ping()`},
	{"TestBackup", "store.go", "Store.Backup", `"VACUUM INTO ?", path`, `"VACUUM INTO ?", path+"x"`},
	{"TestStoreInMemory", "commit.go", "stage.write", `c.Run != nil || c.Compensation`, `c.Compensation`},
	{"TestStoreInMemory", "commit.go", "stage.write", ` || c.Compensation != nil`, ``},
	{"TestStoreInMemory", "commit.go", "stage.write", ` || len(c.Usage) > 0`, ``},
	{"TestStoreInMemory", "commit.go", "stage.write", `c.Status != machine.RunPending || next.wake`, `next.wake`},
	{"TestAdminInMemory", "commit.go", "rowStatements.prepare", `usage = coalesce(?, usage)`, `usage = ?`},
	{"TestAdminInMemory", "create.go", "usageOf", `column.(string); ok`, `column.(string); ok && false`},
	{"TestAdminInMemory", "commit.go", "stage.keep", `r.undoing = *c.Compensation`, `_ = c.Compensation`},
	{"TestStoreInMemory", "commit.go", "stage.write", ` || c.Spec != nil || c.Status`, ` || c.Status`},
	{"TestTurns", "queue.go", "Store.AcquireTurn", `leased >= int64(t.Most)`, `leased > int64(t.Most)`},
	{"TestTurns", "queue.go", "Store.AcquireTurn", `*key != t.Key`, `false`},
	{"TestTurns", "queue.go", "Store.AcquireTurn", `time.Now().UnixNano(), id`, `int64(1), id`},
	{"TestTurns", "queue.go", "Store.Due", `int64(each+1)`, `int64(each)`},
	{"TestTurns", "queue.go", "Store.Due", `turn = p.turn`, `turn = 0`},
	{"TestTurns", "spec.go", "readSpec", `s.Priority = int(priority)`, `s.Priority = -int(priority)`},
	{"TestGrants", "grants.go", "writer.grant", `expires <= ?`, `expires >= ?`},
	{"TestGrants", "grants.go", "writer.grantOf", `expires = excluded.expires, state = excluded.state`, `expires = excluded.expires`},
	{"TestGrants", "grants.go", "writer.grantOf", `WHERE name = ?", func`, `WHERE lower(name) = lower(?)", func`},
	{"TestStoreInMemory", "spec.go", "specColumns", `values[4] = s.Parent`, `values[4] = s.Workflow`},
	{"TestStoreInMemory", "commit.go", "rowStatements.prepare", `WHEN 2 THEN "+now+" WHEN 1`, `WHEN 2 THEN NULL WHEN 1`},
	{"TestChanged", "spec.go", "specSum", `s.part(spec.Inputs)`, `s.part(nil)`},
	{"TestChanged", "spec.go", "specSum", `s.part(labelsText(spec.Labels))`, `s.part(nil)`},
	{"TestEarlierSchemas", "run.go", "run.checksum", `r.spec != 0`, `true`},
	{"TestAdminInMemory", "create.go", "Store.creation", `refused != nil || !write`, `refused != nil || write && false`},
	{"TestAdminInMemory", "create.go", "Store.put", `UPDATE kahn_runs SET (`, `UPDATE kahn_runs SET epoch = 0, (`},
	{"TestAdminInMemory", "create.go", "Store.put", `coalesce(?, %s)`, `coalesce(? - 1, %s)`},
	{"TestAdminInMemory", "create.go", "remove", `"DELETE FROM kahn_labels WHERE run = ?", `, ``},
	{"TestAdminInMemory", "create.go", "Store.Insert", `err == nil && old != nil`, `err == nil && old != nil && old.Sequence == 0`},
	{"TestAdminInMemory", "create.go", "writer.putNodes", `State: n.State, `, ``},
	{"TestAdminInMemory", "create.go", "milli", `time.UnixMilli(ms).Before(t)`, `false`},
	{"TestAdminInMemory", "list.go", "conditionOf", `above != ""`, `above == ""`},
	{"TestAdminInMemory", "list.go", "conditionOf", `"created < ?"`, `"created <= ?"`},
	{"TestAdminInMemory", "list.go", "conditionOf", `"ended >= ?"`, `"ended > ?"`},
	{"TestAdminInMemory", "list.go", "listQuery", `created < ? OR id > ?`, `created < ? OR id >= ?`},
	{"TestAdminInMemory", "list.go", "listQuery", `created < ? OR id > ?`, `created < ? AND id > ?`},
	{"TestAdminInMemory", "list.go", "listQuery", `ORDER BY created DESC, id`, `ORDER BY id`},
	{"TestAdminInMemory", "list.go", "listQuery", `int64(most+1)`, `int64(most)`},
	{"TestAdminInMemory", "list.go", "Store.ListNodes", `"value, record"`, `"value, NULL"`},
	{"TestAdminInMemory", "list.go", "Store.ListNodes", `err == nil && number == 0`, `false`},
	{"TestAdminInMemory", "prune.go", "Store.pruneQuery", `owner <> '' AND`, `owner IS NULL AND`},
	{"TestAdminInMemory", "prune.go", "Store.pruneQuery", `"ended < ?"`, `"ended <= ?"`},
	{"TestAdminInMemory", "prune.go", "Store.pruneQuery", `ORDER BY ended, run`, `ORDER BY run`},
	{"TestAdminInMemory", "prune.go", "Store.prune", `"DELETE FROM kahn_nodes WHERE node >= ?`, `"DELETE FROM kahn_nodes WHERE node > ?`},
	{"TestAdminInMemory", "create.go", "remove", `SELECT key, 0 FROM`, `SELECT key, -1 FROM`},
	{"TestAdminInMemory", "prune.go", "Store.sweep", `other.run > 0`, `other.run > 1000000`},
	{"TestAdminInMemory", "prune.go", "Store.sweep", `WHERE key = ? AND run = 0`, `WHERE key = ? AND run = 1`},
	{"TestAdminInMemory", "spec.go", "writeLabels", `if replaced {`, `if !replaced {`},
	{"TestAdminInMemory", "../admin.go", "Commit.BlobKeys", `c.Nodes[i].Value, c.Nodes[i].Record`, `c.Nodes[i].Value`},
	{"TestAdminInMemory", "../admin.go", "Commit.BlobKeys", `append(data, c.Run)`, `append(data, nil)`},
	{"TestCreateTx", "create.go", "Store.CreateTx", `return queryTx(ctx, tx, text, f, values...)`, `return s.read(ctx, text, f, values...)`},
	{"TestQueryPlans", "prune.go", "Store.pruneQuery", `"+status"`, `"status"`},
	{"TestEventsInMemory", "commit.go", "stage.judge", `!c.EventsFollow(r.event)`, `false`},
	{"TestEventsInMemory", "commit.go", "stage.keep", `r.event = c.Events[n-1].ID`, `r.event = c.Events[0].ID`},
	{"TestEventsInMemory", "commit.go", "Store.Commit", `len(c.Events) > 0`, `len(c.Events) > 1`},
	{"TestEventsInMemory", "run.go", "loader.load", `stored.LastEvent = known.event`, `_ = known.event`},
	{"TestEventsInMemory", "run.go", "loader.load", `(known.number+1)*eventsOfRun`, `(known.number+2)*eventsOfRun`},
	{"TestEventsInMemory", "events.go", "Store.LoadEvents", `next := max(after+1, page.First)`, `next := max(after, page.First)`},
	{"TestEventsInMemory", "events.go", "Store.LoadEvents", `first+int64(page.Last), int64(limit)`, `first+int64(page.Last), int64(limit+1)`},
	{"TestEventsInMemory", "events.go", "readLog", `err == nil && number == 0`, `false`},
	{"TestEventsInMemory", "create.go", "remove", `"DELETE FROM kahn_events WHERE event >= ?`, `"DELETE FROM kahn_events WHERE event < 0 AND event >= ?`},
	{"TestEventsInMemory", "create.go", "Store.Insert", `w.putEvents(number, r.Events)`, `error(nil)`},
	{"TestDamagedEvents", "events.go", "Store.LoadEvents", `row[2] != eventSum(&sums, first+int64(id), []byte(data))`, `row[2] == eventSum(&sums, -1, nil)`},
	{"TestAwaits", "await.go", "judgeAwait", `e.Unknown || e.Status.Terminal()`, `e.Unknown`},
	{"TestAwaits", "await.go", "Store.endAwaits", `open != ""`, `open == ""`},
	{"TestNewerSchema", "queue.go", "Store.Announce", `version > int64(len(migrations))`, `version < 0`},
	{"TestInbox", "inbox.go", "Store.post", `q.Judge(&run, stored); !write`, `q.Judge(&run, stored); refused != nil && !write`},
	{"TestInbox", "inbox.go", "Store.putRequest", `toInt(q.Wakes(false))`, `toInt(true)`},
	{"TestInbox", "inbox.go", "Store.Post", `s.requests.Tell(run)`, `s.requests.Tell("")`},
	{"TestInbox", "inbox.go", "writer.putAnswers", `if !c.Status.Terminal() {`, `if c.Status >= 0 {`},
	{"TestInbox", "inbox.go", "writer.putAnswers", `int64(len(c.Taken)), run`, `int64(1), run`},
	{"TestInbox", "commit.go", "writer.apply", `applied = store.Conflict`, `c.Taken = nil`},
	{"TestInbox", "create.go", "remove", `"UPDATE kahn_runs SET posted = 0, taken = 0, urgent = 0 WHERE run = ?",`, ``},
	{"TestInbox", "create.go", "remove", `"DELETE FROM kahn_requests WHERE request >= ?`, `"DELETE FROM kahn_requests WHERE request < 0 AND request >= ?`},
	{"TestInboxOfAnotherProcess", "inbox.go", "lookout.ask", `version == l.seen && !asked.All`, `!asked.All`},
	{"TestDamagedRequests", "inbox.go", "requestSum", `q.ID, q.Node, q.Actor`, `q.ID, q.Actor`},
	{"TestPostTx", "inbox.go", "Store.PostTx", `return queryTx(ctx, tx, text, f, values...)`, `return s.read(ctx, text, f, values...)`},
	{"TestOnce", "once.go", "Once", `if kept != nil {`, `if kept != nil && len(kept) == 0 {`},
	{"TestOnceFenced", "once.go", "Store.effect", `case !held:`, `case !held && run == 0:`},
}

// TestPlantedBugs plants each of the defects and faults in a copy of the code, and requires that the tests then fail. All copies are compiled,
// but tests run only for a sample, see plant.Try.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	plant.Wanted(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var cases []plant.Case
	for _, d := range defects {
		cases = append(cases, plant.Case{Name: d.name, Bug: plant.Bug{File: path.Join("store/sqlite", d.file), Func: d.function, Old: d.old, New: d.planted}, Test: "TestStoreInMemory"})
	}
	for _, f := range faults {
		cases = append(cases, plant.Case{Bug: plant.Bug{File: path.Join("store/sqlite", f.file), Func: f.function, Old: f.old, New: f.planted}, Test: f.test})
	}
	require.NoError(t, plant.Try(ctx, "../..", cases, size(4, len(cases))))
}
