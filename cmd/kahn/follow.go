package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
	"github.com/seed-c794f7ef/kahn/progress"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// follower shows a run that another process performs. It only reads the store.
type follower struct {
	h      *host
	db     *sqlite.Store
	id     string
	screen *screen
	maps   lists
	end    *event.Event // the last event, if this event ends the run; a redrive may follow
}

// beat is the interval at which a follower asks the store whether a process performs the run and what the run waits for. If the run does not
// store its events, beat is also the least pause between two readings of the run's records.
const beat = time.Second

// alongside lists the flags that may be combined with -follow.
var alongside = []string{"follow", "store", "v", "progress"}

// The method `follow` performs `kahn run` with the flag -follow.
func (h *host) follow(ctx context.Context, t *terminal) int {
	h.t = t
	for _, name := range h.given() {
		if !slices.Contains(alongside, name) {
			return t.refuse(fmt.Errorf("-%s does not go with -follow, which only shows the run of another process", name))
		}
	}
	if h.store == "" {
		return t.refuse(errors.New("-follow needs -store"))
	}
	if err := present(h.store); err != nil {
		return t.refuse(err)
	}
	db, err := sqlite.Open(h.store, sqlite.Options{})
	if err != nil {
		return t.refuse(err)
	}
	defer func() { _ = db.Close() }() // nothing was written
	f := &follower{h: h, db: db, id: h.followed}
	log, err := store.OpenEvents(ctx, db, f.id)
	switch {
	case errors.Is(err, store.ErrUnknownRun):
		return t.refuse(f.unknown(ctx))
	case err != nil:
		return t.refuse(err)
	}
	return f.follow(ctx, log)
}

// The method `follow` shows the run until it has ended, and returns the exit code.
func (f *follower) follow(ctx context.Context, log *store.EventLog) int {
	t, ended := f.h.t, log.Status().Terminal()
	if ended && f.h.show != progress.JSON {
		t.printf("run %s had ended before\n", f.id)
	}
	if !ended || f.h.verbose || f.h.show == progress.JSON {
		if err := f.show(ctx, log); err != nil {
			if ctx.Err() != nil {
				t.printf("run %s is no longer followed; nothing was changed\n", f.id)
				return exitCancelled
			}
			t.printf("kahn: %v\n", err)
			return exitProblems
		}
	}
	return f.conclude(context.WithoutCancel(ctx))
}

// The method `show` shows the run until its end: from its stored events or, if the run stores no events, from its records.
func (f *follower) show(ctx context.Context, log *store.EventLog) error {
	f.screen = newScreen(f.h)
	defer f.screen.close()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(watching)
	}()
	err := f.events(ctx, log)
	if errors.Is(err, event.ErrNoLog) {
		err = f.records(ctx)
	}
	stop()
	<-watched
	if err == nil && f.end != nil {
		f.screen.event(*f.end)
	}
	return err
}

// The method `events` shows the stored events, and further events as they are stored, until the run has ended.
func (f *follower) events(ctx context.Context, log *store.EventLog) error {
	after := uint64(0)
	if first, last := log.EventRange(); last > 0 {
		after = first - 1 // no earlier event is stored
	}
	for e, err := range log.Events(ctx, after) {
		if err != nil {
			return err
		}
		f.take(e)
	}
	return nil
}

// The method `take` shows an event. If the event ends the run, take only stores it in f.end: events of a redrive may follow, and the display shows
// nothing after an end. The method `show` later shows the stored end.
func (f *follower) take(e event.Event) {
	if f.end = nil; isEnd(&e) {
		f.end = &e
		return
	}
	f.screen.event(e)
	f.maps.see(&e)
}

func isEnd(e *event.Event) bool {
	_, is := e.Payload.(event.RunEnd)
	return is
}

// The method `watch` writes a note when the run has not begun, waits for answers, has lost its process, or has a process again. Events do not report
// these facts.
func (f *follower) watch(ctx context.Context) {
	// A run that has not begun has the zero sight, and must get a note. So `seen` begins with another value: the status of a cancelled run, which gets
	// no note.
	w := watcher{follower: f, seen: sight{status: kahn.RunCancelled}}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		err := errors.Join(w.look(ctx), f.count(ctx))
		if err != nil && ctx.Err() == nil {
			f.screen.note(fmt.Sprintf("kahn: %v", err)) // the next look may succeed. If the store keeps failing, show returns the error
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// The type `lists` records the maps whose number of items the display knows.
type lists struct {
	mu    sync.Mutex      // guards the fields below
	known map[string]bool // the paths of these maps
	asked bool            // whether an item of another map has begun; the map's number of items must then be read from the store
	after time.Time       // when the store may be asked again
}

// The method `see` sets the field `asked` if the event starts an item of a map and the display does not know how many items this map has.
func (m *lists) see(e *event.Event) {
	i := strings.LastIndexByte(e.Path, '[')
	if i < 0 || e.Type != event.NodeStarted || !strings.HasSuffix(e.Path, "]") {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known[e.Path[:i]] {
		m.asked = true
	}
}

// The method `count` reads the state of all nodes if an item of a map has begun and the display does not know how many items this map has. It
// passes the missing numbers to the display. After a reading, count does nothing for ten times as long as the reading took.
func (f *follower) count(ctx context.Context) error {
	m := &f.maps
	m.mu.Lock()
	begun := time.Now()
	due := m.asked && !begun.Before(m.after)
	m.asked = m.asked && !due
	m.mu.Unlock()
	if !due {
		return nil
	}
	nodes, err := f.nodes(ctx)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = now.Add(10 * now.Sub(begun))
	if m.known == nil {
		m.known = map[string]bool{}
	}
	for n := range deep(nodes) {
		if n.Items > 0 && !m.known[n.ID] {
			m.known[n.ID] = true
			f.screen.items(n.ID, n.Items)
		}
	}
	return err
}

// The method `nodes` reads the state of the run's nodes.
func (f *follower) nodes(ctx context.Context) ([]kahn.SnapshotNode, error) {
	snapshot, err := kahn.ReadSnapshot(ctx, f.db, f.id)
	if err != nil {
		return nil, err
	}
	return snapshot.Nodes(nil)
}

// The function `deep` yields the given nodes, and after each node the nodes inside it.
func deep(nodes []kahn.SnapshotNode) iter.Seq[*kahn.SnapshotNode] {
	return func(yield func(*kahn.SnapshotNode) bool) {
		for i := range nodes {
			if !yield(&nodes[i]) {
				return
			}
			for n := range deep(nodes[i].Inside) {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// watcher remembers what a follower has seen and reported about the process that performs the run.
type watcher struct {
	*follower
	until time.Time // the end of the lease, according to the last reading
	heard time.Time // when the follower last saw that the lease was taken or renewed
	seen  sight
	lost  bool // whether the last note reported that the process is gone
}

// sight holds the facts on which the next note depends.
type sight struct {
	status kahn.RunStatus
	held   bool   // whether a process holds the run's lease
	last   uint64 // the id of the last stored event
}

// The method `look` reads the lease, the status and the id of the last event of the run. If one of them has changed in a way that needs a note, it
// writes the note. It reads the records of the run only if the note needs them.
func (w *watcher) look(ctx context.Context) error {
	// The lease is read before the status. In the other order, a run that ends between the two readings would look like a run that has lost its
	// process, since a run that has ended has no lease.
	owner, until, err := w.db.ReadLease(ctx, w.id)
	if err != nil {
		return err
	}
	if owner != "" && !until.Equal(w.until) {
		w.until, w.heard = until, time.Now()
	}
	page, err := w.db.LoadEvents(ctx, w.id, 0, 1)
	if err != nil {
		return err
	}
	now := sight{page.Status, owner != "", page.Last}
	if now.status != kahn.RunSuspended {
		now.last = 0 // new events are a reason for a note only if the run is suspended
	}
	if now == w.seen {
		return nil
	}
	note := ""
	switch {
	case now.status == kahn.RunPending && !now.held:
		note = fmt.Sprintf("run %s has not begun", w.id)
	case now.status == kahn.RunRunning && !now.held:
		note, err = w.gone(ctx)
	case now.status == kahn.RunRunning && w.lost:
		note = fmt.Sprintf("run %s has a process again", w.id)
	case now.status == kahn.RunSuspended:
		note, err = w.waits(ctx)
	}
	if err != nil {
		return err
	}
	w.seen, w.lost = now, now.status == kahn.RunRunning && !now.held
	if note != "" {
		w.screen.note(note)
	}
	return nil
}

// The method `gone` returns a note that says since when the process of the run is gone. It also shows this time on the screen.
func (w *watcher) gone(ctx context.Context) (string, error) {
	row, err := w.db.Load(ctx, w.id)
	if err != nil {
		return "", err
	}
	nodes, _ := w.nodes(ctx) // if the state of the nodes cannot be read, LastSign uses only the times in the row
	since := kahn.LastSign(row, nodes)
	if w.heard.After(since) {
		since = w.heard
	}
	w.screen.gone(since)
	note := fmt.Sprintf("run %s: its process is gone since %s", w.id, since.Local().Format(time.DateTime))
	if definition := row.Labels[labelFile]; definition != "" {
		note += "; to continue: " + continued(w.h.store, w.id, "", definition)
	}
	return note, nil
}

// The method `waits` returns a note with a line for each node that waits for an answer. The line contains the command that answers the node, if the
// definition of the run is known.
func (w *watcher) waits(ctx context.Context) (string, error) {
	row, err := w.db.Load(ctx, w.id)
	if err != nil {
		return "", err
	}
	nodes, err := w.nodes(ctx)
	if err != nil {
		return "", err
	}
	var lines []string
	for n := range deep(nodes) {
		wait := n.Wait
		if wait == nil {
			continue
		}
		line := wait.Node + " waits for an answer"
		if !wait.Deadline.IsZero() {
			line += " until " + wait.Deadline.Local().Format(time.DateTime)
		}
		if definition := row.Labels[labelFile]; definition != "" {
			line += "; to answer: " + continued(w.h.store, w.id, wait.Node, definition)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

// The function `continued` returns the command that continues a run. If gate is not "", the command also answers this gate.
func continued(file, id, gate, definition string) string {
	text := fmt.Sprintf("kahn run -store %s -run %s", shellWord(file), shellWord(id))
	if gate != "" {
		text += fmt.Sprintf(" -answer %s=VALUE", shellWord(gate))
	}
	return text + " " + shellWord(definition)
}

// The method `conclude` reports how the run ended, and returns the exit code.
func (f *follower) conclude(ctx context.Context) int {
	row, err := f.db.Load(ctx, f.id)
	if err != nil {
		f.h.t.printf("kahn: %v\n", err)
		return exitProblems
	}
	var b strings.Builder
	nodes, err := f.nodes(ctx)
	if err != nil {
		f.h.t.printf("kahn: %v\n", err) // the exit code depends only on the status, which is known
	}
	for i := range nodes {
		reportEnd(&b, &nodes[i])
	}
	took := row.Ended.Sub(row.Created)
	if f.end != nil {
		took = f.end.Payload.(event.RunEnd).Duration
	}
	fmt.Fprintf(&b, "run %v after %v\n", row.Status, took.Round(time.Millisecond))
	f.h.t.write(b.String())
	return codeOf(row.Status)
}

// reportEnd writes a line if the node did not complete, and a line if the node was undone or could not be undone.
func reportEnd(b *strings.Builder, n *kahn.SnapshotNode) {
	switch n.Status {
	case kahn.Failed, kahn.Aborted, kahn.Cancelled:
		fmt.Fprintf(b, "%s: %v: %s\n", screenText(n.ID), n.Status, screenText(fmt.Sprint(n.Cause.Err)))
	case kahn.Skipped:
		fmt.Fprintf(b, "%s: skipped: %s\n", screenText(n.ID), screenText(n.Skip.String()))
	default: // the node has completed, since reportEnd gets only nodes of ended runs
	}
	switch n.Compensation {
	case kahn.CompensationFailed:
		fmt.Fprintf(b, "%s: could not be undone: %s\n", screenText(n.ID), screenText(fmt.Sprint(n.CompensationErr)))
	case kahn.CompensationDone:
		fmt.Fprintf(b, "%s: undone\n", screenText(n.ID))
	default: // no compensation to report
	}
}

// The method `unknown` returns the error for a run that is not in the store. The error suggests similar ids or, if there are none, the newest ids.
func (f *follower) unknown(ctx context.Context) error {
	page, err := f.db.List(ctx, store.Query{Limit: store.MaxPage})
	if err != nil {
		return err
	}
	var ids, begin []string
	for i := range page.Runs {
		id := page.Runs[i].ID
		if ids = append(ids, id); strings.HasPrefix(id, f.id) {
			begin = append(begin, id)
		}
	}
	text := fmt.Sprintf("there is no run %q in %s", f.id, f.h.store)
	meant, ok := nearest.Name(f.id, ids)
	switch {
	case len(begin) > 0:
		return fmt.Errorf("%s; did you mean %s?", text, some(begin))
	case ok:
		return fmt.Errorf("%s; did you mean %q?", text, meant)
	case len(ids) > 0:
		return fmt.Errorf("%s; the newest are %s", text, some(ids))
	}
	return fmt.Errorf("%s; the file has no runs", text)
}
