package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The type `commit` is a call of Commit.
type commit struct {
	lease   store.Lease
	c       store.Commit
	applied store.Applied

	// The fields below are set while the commit is performed.
	run   *run
	stage *stage
	apart bool     // a statement has left out the commit: a row was locked, or the commit ends a run that others await
	told  []string // the runs to which the commit has posted answers
	blobs []string // the keys of the blobs to which the commit refers
}

// Commit implements [store.Store].
func (s *Store) Commit(ctx context.Context, lease store.Lease, c store.Commit) (store.Applied, error) {
	made := &call[*commit]{arg: &commit{lease: lease, c: c}, run: lease.Run, size: sizeOf(&c)}
	err := checkSize(&c)
	if err == nil && c.Spec != nil {
		err = checkSpec(c.Spec)
	}
	if err == nil {
		err = s.commits.do(ctx, made)
	}
	if err != nil {
		return 0, about("commit", lease.Run, err)
	}
	return made.arg.applied, nil
}

// maxMessage is how many bytes of data a statement may have. A message to the server must be smaller than 1 GB.
const maxMessage = 900_000_000

// checkSize refuses a commit if one of its statements would be too large. Several statements can write the nodes and events of a commit, but one
// statement must write a whole row. So checkSize compares the largest row with maxMessage: the row of the run, of a node or of an event.
func checkSize(c *store.Commit) error {
	size := 100 + len(c.Run)
	if c.Spec != nil {
		size += len(c.Spec.Inputs)
	}
	for i := range c.Nodes {
		size = max(size, sizeOfNode(&c.Nodes[i].Columns))
	}
	for i := range c.Events {
		size = max(size, sizeOfEvent(&c.Events[i]))
	}
	if size > maxMessage {
		return fmt.Errorf("%w: a commit with a row of %d bytes; the store takes up to %d", store.ErrRejected, size, maxMessage)
	}
	return nil
}

// sizeOf estimates how many bytes a commit has.
func sizeOf(c *store.Commit) int {
	size := 100 + len(c.Run)
	if c.Spec != nil {
		size += len(c.Spec.Inputs)
	}
	for i := range c.Nodes {
		size += sizeOfNode(&c.Nodes[i].Columns)
	}
	for i := range c.Events {
		size += sizeOfEvent(&c.Events[i])
	}
	for _, keys := range [][]store.Attempt{c.Completed, c.Started} {
		size += 50 * len(keys)
	}
	return size + 50*(len(c.Readiness)+len(c.Ready)+len(c.Reset))
}

// errChanged means that a commit was not written because the run or its lease had changed since the store loaded the run. The store then judges the
// commit again. After the third attempt it returns errChanged.
var errChanged = errors.New("the run changed during three attempts to commit")

// performCommits performs a batch of commits, each of a different run.
func (s *Store) performCommits(batch []*call[*commit]) {
	for range 3 {
		s.write(batch)
		var rest []*call[*commit]
		for _, c := range batch {
			if c.err == errChanged {
				rest = append(rest, c)
			}
		}
		if batch = rest; len(batch) == 0 {
			return
		}
	}
}

// The method `write` judges commits, and writes the commits that apply. One statement writes them all, except commits that settle awaits: each of
// these has its own transaction.
func (s *Store) write(batch []*call[*commit]) {
	var staged []*call[*commit]
	for _, c := range batch {
		if s.stage(c) {
			staged = append(staged, c)
		}
	}
	if len(staged) == 0 {
		return
	}
	if apart := slices.DeleteFunc(slices.Clone(staged), func(c *call[*commit]) bool { return !c.arg.settles() }); len(apart) > 0 && len(staged) > 1 {
		for i := range staged { // a commit that settles awaits is written in its own transaction
			if staged[i].arg.settles() {
				s.writeStaged(staged[i : i+1])
			}
		}
		staged = slices.DeleteFunc(staged, func(c *call[*commit]) bool { return c.arg.settles() })
	}
	if len(staged) > 0 {
		s.writeStaged(staged)
	}
}

// The method `settles` reports whether the commit must settle awaits in a transaction of its own, see settleAwaits.
func (m *commit) settles() bool {
	return len(m.c.Awaits) > 0 || m.apart && m.c.Status.Terminal()
}

// writeStaged writes commits that were staged.
func (s *Store) writeStaged(staged []*call[*commit]) {
	var written, locked map[int64]bool
	var err error
	if len(staged) == 1 && (staged[0].size > maxStatement || staged[0].arg.settles()) {
		written, locked, err = s.executeParts(staged[0])
	} else {
		for _, c := range staged {
			c.arg.blobs = c.arg.c.BlobKeys()
		}
		written, locked, err = s.execute(s.pool, staged, 0)
	}
	for _, c := range staged {
		m := c.arg
		switch {
		case err == nil && locked[m.run.number]:
			m.stage.drop()
			m.apart, c.err = true, errLocked
			continue
		case err == nil && written[m.run.number]:
			m.stage.keep(&m.c)
			if len(m.c.Events) > 0 {
				s.board.Notify(m.lease.Run)
			}
			for _, run := range m.told {
				s.requests.Tell(run)
			}
			m.applied, c.err = store.AppliedNow, nil
			continue
		case err == nil:
			c.err = errChanged
		default:
			c.err = err
		}
		// The run may have changed even if the server gave no answer, so the store loads the run before it judges the commit again.
		m.stage.drop()
		s.forget(m.lease)
	}
	if len(staged) > 1 && isVerdict(err) {
		for i := range staged { // each commit is written in its own transaction, to find out which of them fails
			s.write(staged[i : i+1])
		}
	}
}

// The method `stage` judges a commit. If the commit must be written, `stage` stages its changes and returns true. Otherwise it returns false, and
// the commit has its answer. The remembered state of the run may be out of date. So if this state leads to an answer other than AppliedNow, `stage`
// loads the run and judges again.
func (s *Store) stage(c *call[*commit]) bool {
	m := c.arg
	if m.run = s.known(m.lease); m.run != nil {
		var err error
		// Requests may have been posted after the run was loaded. So the statement, and not `judge`, checks that the answered requests were posted.
		if m.stage, m.applied, err = m.run.judge(&m.c, math.MaxUint64); err == nil && m.applied == store.AppliedNow {
			return true
		}
		s.forget(m.lease)
	}
	_, r, held, err := s.load(context.Background(), s.texts.judge, m.lease.Run)
	if err == nil && (!held || r.lease != m.lease) {
		err = fencedAt(m.lease.Epoch)
	}
	if c.err = err; err != nil {
		return false
	}
	s.remember(r)
	m.run = r
	m.stage, m.applied, c.err = r.judge(&m.c, r.posted)
	return c.err == nil && m.applied == store.AppliedNow
}

// rowsOfRuns holds the rows of runs that commits write, one slice for each column.
type rowsOfRuns struct {
	runs, epochs, sequences []int64
	owners                  []string
	statuses                []*string
	wakes                   []pgtype.Timestamptz
	records                 [][]byte
	respecified             []bool
	workflows, plans, keys  []string
	priorities              []int32
	parents, labels         []*string
	inputs                  [][]byte
	undoing, used           []*string
	answered                []*int64
}

// The method `execute` writes staged commits. Its statement has the parts that the parameter "parts" contains, and the parts that the commits need.
// It returns two sets of run numbers. The set "written" has the runs whose commits were written. The set "locked" has the runs whose commits were
// left out because another transaction had locked the run, or because the commit ends a run that others await.
func (s *Store) execute(db queryer, staged []*call[*commit], parts int) (written, locked map[int64]bool, err error) {
	var rows rowsOfRuns
	var nodes nodeRows
	var blobs blobRows
	var events eventRows
	var answers answerRows
	for _, c := range staged {
		m := c.arg
		rows.add(m)
		if m.c.Spec != nil {
			parts |= withSpecs
		}
		if m.c.Compensation != nil || len(m.c.Usage) > 0 {
			parts |= withSums
		}
		for i := range m.stage.changes {
			ch := &m.stage.changes[i]
			nodes.add(m.run.number, ch.node.number, ch.key, &ch.next, ch.record)
		}
		blobs.add(m.run.number, m.blobs)
		events.add(m.run.number, m.c.Events)
		answers.add(m.run.number, m.c.Taken)
	}
	args := []any{rows.runs, rows.owners, rows.epochs, rows.sequences, rows.statuses, rows.wakes, rows.records}
	if parts&withSpecs != 0 {
		args = append(args, rows.respecified, rows.workflows, rows.plans, rows.parents, rows.labels, rows.inputs, rows.keys, rows.priorities)
	}
	if parts&withSums != 0 {
		args = append(args, rows.undoing, rows.used)
	}
	if len(answers.runs) > 0 {
		parts |= withAnswers
		args = append(args, rows.answered)
	}
	if len(nodes.runs) > 0 {
		parts |= withNodes
		args = append(args, nodes.args()...)
	}
	if len(blobs.keys) > 0 {
		parts |= withBlobs
		args = append(args, blobs.keys, blobs.runs)
	}
	if len(events.ids) > 0 {
		parts |= withEvents
		args = append(args, events.runs, events.ids, events.data)
	}
	if parts&withAnswers != 0 {
		args = append(args, answers.runs, answers.numbers, answers.answers)
	}
	if written, err = s.numbers(db, s.texts.commit[parts], args...); err != nil || len(written) == len(staged) {
		return written, nil, err
	}
	locked, err = s.numbers(db, s.sql(fittingText()), rows.runs, rows.owners, rows.epochs, rows.sequences, rows.answered)
	maps.DeleteFunc(locked, func(number int64, _ bool) bool { return written[number] })
	return written, locked, err
}

// The method `numbers` executes a statement that returns numbers of runs.
func (s *Store) numbers(db queryer, text string, args ...any) (map[int64]bool, error) {
	found := map[int64]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	err := rowsOf(ctx, db, text, args, func(rows pgx.Rows) error {
		var number int64
		err := rows.Scan(&number)
		found[number] = true
		return err
	})
	return found, err
}

func (r *rowsOfRuns) add(m *commit) {
	r.runs, r.owners, r.epochs = append(r.runs, m.run.number), append(r.owners, m.lease.Owner), append(r.epochs, int64(m.lease.Epoch))
	var status *string
	if m.c.Status != machine.RunPending {
		status = orNull(m.c.Status.String())
	}
	r.sequences, r.statuses = append(r.sequences, int64(m.c.Sequence)), append(r.statuses, status)
	r.wakes, r.records = append(r.wakes, instant(m.c.WakeAt)), append(r.records, m.c.Run)
	r.answered = append(r.answered, lastTaken(&m.c))
	var undoing *string
	if m.c.Compensation != nil {
		undoing = orNull(m.c.Compensation.String())
	}
	r.undoing, r.used = append(r.undoing, undoing), append(r.used, usageText(m.c.Usage))
	spec := m.c.Spec
	r.respecified = append(r.respecified, spec != nil)
	if spec == nil {
		spec = new(store.Spec)
	}
	r.workflows, r.plans, r.parents = append(r.workflows, spec.Workflow), append(r.plans, spec.Plan), append(r.parents, orNull(spec.Parent))
	r.labels, r.inputs = append(r.labels, labelsText(spec.Labels)), append(r.inputs, bytesOrNull(spec.Inputs))
	r.keys, r.priorities = append(r.keys, spec.Key), append(r.priorities, int32(spec.Priority))
}

// blobRows holds rows of blobs, one slice for each column.
type blobRows struct {
	keys []string
	runs []int64
}

func (b *blobRows) add(run int64, keys []string) {
	for _, key := range keys {
		b.keys, b.runs = append(b.keys, key), append(b.runs, run)
	}
}
