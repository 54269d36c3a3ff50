package kahn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Memo completes a node without calling its step, if the node had the same inputs in an earlier run. The node gets its output from that run. A node
// requests this with [Node.Memo]. A Memo is an option, and any number of runs may share it. If several nodes need the same output at the same time,
// one of them asks the Cache and, if the output is not there, calls its step. The others wait for this output. If there is none because the step
// failed, one of them takes over. A Memo keeps the outputs of completed nodes. When a node is undone, the Memo forgets its output.
//
// The inputs of a node are its Config, its parameters, and the values that its predecessors delivered. The inputs of an item are the node's Config
// and the value of the item. Any other value, such as a root input, the index of an item or the result of a farther ancestor, counts only if the
// step has read it. With [Node.MemoKey], the key contains a text instead of the inputs, see docs/memo.md.
//
// A node whose output is found does not start. In its NodeResult, Memoized is true, and Hit names the run that called the step, and the time. If the
// inputs have no JSON form, or the Cache fails, the step is called and the node's log contains the reason. The zero Memo keeps all outputs in memory.
type Memo struct {
	// Cache stores outputs of nodes. Each key is a SHA-256 in hex, and the data is a text with a checksum. If the data is damaged, the output counts
	// as not found, and the node's log contains a warning. kahn calls Get and Put on the goroutines of steps, with the steps' contexts. If Cache is
	// nil, the Memo keeps the outputs in a map in memory. The map grows with every output, and all runs get the same Go values, not copies. See
	// [store.DirCache] and package store/sqlite for persistent caches.
	Cache interface {
		Get(ctx context.Context, key string) (data []byte, ok bool, err error)
		Put(ctx context.Context, key string, data []byte) error
	}
	// MaxAge bounds the age of outputs: a node does not get an output whose age is MaxAge or more. Zero means no bound.
	MaxAge time.Duration

	mu      sync.Mutex // guards the fields below
	values  map[string]memoEntry
	flights map[string]*flight // by key
}

// The code does not use golang.org/x/sync/singleflight. A waiter must be able to leave when its context ends. Only DoChan permits this, but it calls
// the function on a separate goroutine. If the function panics there, the process ends; after a Goexit, all waiters wait forever. Besides, all
// waiters would get the error of a single call, even if the run of that call was cancelled or timed out.

// Refresh makes the run call the steps of all nodes, even if its [Memo] contains their outputs. The new outputs replace the old ones in the Memo.
func Refresh() Option {
	return optionFunc(func(c *config) error {
		c.refresh = true
		return nil
	})
}

// A flight is the work of finding or producing an output. One attempt, the leader, does this work for all attempts that need the output at the same
// time.
type flight struct {
	memo     *Memo
	key      string
	expanded chan struct{} // closed when nested runs must produce the output: their nodes may need the slots of the waiting attempts
	landed   chan struct{} // closed at the end of the flight; the fields below do not change afterwards
	entry    memoEntry
	reads    []string // the inputs that the step has read
	of       string   // the key of the output
	by       memoKey  // the part of the key that was known before the leader called its step
	ok       bool     // whether entry contains an output
}

func (m *Memo) apply(c *config) error {
	if m == nil {
		return fmt.Errorf("%w: nil Memo", ErrBadOption)
	}
	c.memo = m
	if m.MaxAge < 0 {
		return fmt.Errorf("%w: the MaxAge %v of a Memo is negative", ErrBadOption, m.MaxAge)
	}
	return nil
}

// errBoardAgain is the error of an attempt that waited for a flight, gave up its slots meanwhile, and got no output from the flight. The node then
// takes slots again, and joins or begins another flight.
var errBoardAgain = errors.New("the output that the node waited for did not come")

// The method `through` performs an attempt of a memoized node. It gets the output from the memo or a flight, or calls perform.
func (m *Memo) through(w *worker, perform func() attemptResult) attemptResult {
	s := w.step
	if _, d := s.resumption(); d != nil {
		return perform()
	}
	k, err := s.memoKey()
	if err != nil {
		s.Log(slog.LevelWarn, "not memoized: "+errorText(err))
		return perform()
	}
	for {
		f, first := m.join(k.flight)
		if first {
			return f.fly(w, k, perform)
		}
		w.standAside()
		expanded, yielded := f.expanded, false
		if s.run.plan.net.Is(s.ref, machine.FlagInline) {
			expanded = nil // the node is a composite and holds no slots
		}
		for waiting := true; waiting; {
			select {
			case <-f.landed:
				waiting = false
			case <-expanded:
				expanded = nil
				if yielded = s.run.yieldSlots(s); !yielded && s.run.outermost().shared != nil {
					return perform()
				}
			case <-s.Done():
				return attemptResult{err: s.Err()}
			}
		}
		if f.ok {
			if of, err := k.with(s, f.reads); err == nil && of == f.of {
				return f.entry.hit()
			}
		}
		if yielded {
			return attemptResult{err: errBoardAgain}
		}
	}
}

// memoOf returns the memo of a node, or nil if no memo keeps the node's output.
func (r *Run) memoOf(ref machine.Ref) *Memo {
	if m := r.cfg.memo; m != nil && r.plan.node(ref).Memo != "" && r.cfg.test == nil {
		return m
	}
	return nil
}

// beginReading makes an attempt record, from now on, which inputs its step reads.
func (r *Run) beginReading(s *Step) {
	s.flags |= stepMemo
	r.st.Lock()
	defer r.st.Unlock()
	r.extra(s.ref).reads = nil
}

// yieldSlots releases the slots of an attempt that waits for a flight, and reports whether it has released them. It is called when nested runs must
// produce the output, since their nodes may need slots that the leader's run shares with this run. An attempt that has already started keeps its
// slots, since it could get them back only by starting again. If its run shares slots with other runs, this attempt then calls its own step;
// otherwise it continues to wait.
func (r *Run) yieldSlots(s *Step) bool {
	ok := false
	r.control(func(int64) {
		if ok = r.current(s.ref) == s && r.st.Word(s.ref).Is(machine.WordAdmitting) && !r.plan.net.Is(s.ref, machine.FlagComposite); ok {
			r.st.Expand(s.ref)
		}
	})
	return ok
}

// The method `join` returns the flight for a key, and reports whether the caller leads it. Only the leader asks the cache, and it does so after join.
// Otherwise several attempts could find no output in the cache, and each of them would produce it.
func (m *Memo) join(key string) (*flight, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.flights[key]; ok {
		return f, false
	}
	if m.flights == nil {
		m.flights = map[string]*flight{}
	}
	f := &flight{memo: m, key: key, expanded: make(chan struct{}), landed: make(chan struct{})}
	m.flights[key] = f
	return f, true
}

// The method `fly` finds the output, or calls perform and stores the output. The flight ends even if the step panics or calls Goexit. If the node is
// a composite, or its step has returned a graph, nested runs must still produce the output. So fly does not end this flight, but keeps it in
// w.flight.
func (f *flight) fly(w *worker, k memoKey, perform func() attemptResult) attemptResult {
	m, s := f.memo, w.step
	defer func() {
		if w.flight == nil {
			f.land()
		}
	}()
	if !s.run.cfg.refresh {
		found, err := m.find(s, k, f)
		switch {
		case err != nil:
			f.land() // the waiting attempts need not wait for this step: one of them begins a new flight
			s.Log(slog.LevelWarn, "memo: "+errorText(err))
			return perform()
		case found:
			return f.entry.hit()
		}
	}
	res := perform()
	switch {
	case res.inside:
		close(f.expanded)
		f.by, w.flight = k, f
	// A value is not kept if the step returned it after its context had ended, for example after the timeout.
	case res.err == nil && s.Err() == nil:
		m.keep(s, k, s.readsSoFar(), res.value, f)
	case res.err != nil && inspectError(res.err).expand != nil:
		close(f.expanded)
		f.by, w.flight = k, f
	}
	return res
}

// The method `land` ends a flight. It may be called more than once.
func (f *flight) land() {
	m := f.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flights[f.key] == f {
		delete(m.flights, f.key)
		close(f.landed)
	}
}

// dropFlight ends the flight in w.flight, if there is one. The attempt ends or was abandoned, and no nested run will produce the output.
func (w *worker) dropFlight() {
	if f := w.flight; f != nil {
		w.flight = nil
		f.land()
	}
}

// The method `board` records f as the flight of a node whose nested runs must produce the output. f may be nil. The caller holds the run's lock.
func (t *tree) board(at place, f *flight) {
	switch {
	case f == nil:
		return
	case t.flights == nil:
		t.flights = map[place]*flight{}
	}
	t.flights[at] = f
}

// landFlight ends the flight that board has recorded for a node. It is called when the node ends, is attempted again, or is abandoned. If ok is
// false, the waiting attempts do not get the output. The caller holds the run's lock.
func (r *Run) landFlight(ref machine.Ref, ok bool) {
	if r.tree == nil {
		return
	}
	at := place{r, ref}
	if f := r.tree.flights[at]; f != nil {
		delete(r.tree.flights, at)
		f.ok = f.ok && ok
		f.land()
	}
}

// landFlights ends the remaining flights of a tree when its run ends. It must not be inlined, since its map iterator would enlarge the frame of
// conclude: see attemptAndFinish.
//
//go:noinline
func (t *tree) landFlights() {
	for at, f := range t.flights {
		delete(t.flights, at)
		f.land()
	}
}

// memoKey is the part of an output's key that is known before the step is called.
type memoKey struct {
	base   string // the hash of all inputs, except inputs that count only if the step reads them
	flight string // the key of the flight: base, and the hash of the run's inputs, since the step may read them
	fixed  bool   // whether the key comes from Node.MemoKey; then it does not matter which inputs the step reads
}

// memoKey returns the part of the output's key that is known before the step is called.
func (s *Step) memoKey() (memoKey, error) {
	n := s.node()
	form := map[string]any{"node": n.MemoName, "memo": n.Memo}
	if n.MemoName == "" {
		form["node"] = s.run.memoPath(s.ref)
	}
	if len(n.Files) > 0 {
		sums := make([]string, len(n.Files))
		for i, name := range n.Files {
			f, err := File(name)
			if err != nil {
				return memoKey{}, err
			}
			sums[i] = f.SHA256
		}
		form["files"] = sums
	}
	if n.MemoKey != nil {
		own, err := n.MemoKey(s)
		if err != nil {
			return memoKey{}, err
		}
		form["key"] = own
		base, err := memoHash(form)
		return memoKey{base, base, true}, err
	}
	form["kind"], form["config"], form["params"] = n.Kind, n.Config, s.run.memoParams(s)
	if sub := s.run.plan.sub(s.ref); sub != nil {
		form["graph"] = sub.Hash()
	}
	if x := s.run.items; x != nil {
		form["item"] = x.at(int(s.ref))
	} else {
		form["upstream"] = s.UpstreamAll()
	}
	base, err := memoHash(form)
	if err != nil {
		return memoKey{}, err
	}
	flight := base
	of, _, _ := s.run.home(s.ref, s.flags)
	if inputs := of.inputsHash(); inputs != "" {
		flight += " " + inputs
	}
	return memoKey{base, flight, false}, nil
}

// inputsHash returns the hash of all inputs of the run. The inputs are encoded only once. If an input has no JSON form, inputsHash returns "", and
// the output of a step that reads this input is not kept.
func (r *Run) inputsHash() string {
	made, _ := r.textsMade().LoadOrStore("", &hashedInputs{}) // all other keys of this map are Refs
	x := made.(*hashedInputs)
	x.once.Do(func() {
		inputs := map[string]any{}
		r.everyInput(false, func(name string) {
			if v, ok := r.given(name, false); ok {
				inputs[name] = v
			}
		})
		x.hash, _ = memoHash(inputs)
	})
	return x.hash
}

type hashedInputs struct {
	once sync.Once
	hash string
}

// memoParams returns the parameters that are in a node's key even if its step does not read them. These are the parameters that the node declares.
// For an item there are none: the parameters of its map, such as the list, are in the key only if the step reads them. A node without in-edges and
// ports also has the run's inputs as parameters. They, too, are in the key only if the step reads them.
func (r *Run) memoParams(s *Step) map[string]any {
	m := map[string]any{}
	if r.items != nil {
		return m
	}
	names, _ := r.ownParams(s.ref)
	for _, name := range names {
		if v, ok := r.param(s.ref, s.flags, name); ok {
			m[name] = v
		}
	}
	return m
}

// memoPath returns the path that is in a node's key. For an item this is the path of its map: so the key stays the same if the index changes.
func (r *Run) memoPath(ref machine.Ref) string {
	r, ref, _ = r.home(ref, 0)
	return r.path(ref)
}

// The method `with` returns the key of a step's output. The parameter `reads` lists the inputs that the step has read.
func (k memoKey) with(s *Step, reads []string) (string, error) {
	if len(reads) == 0 || k.fixed {
		return k.base, nil
	}
	form := map[string]any{"": k.base}
	for _, name := range reads {
		form["."+name] = s.reread(name)
	}
	return memoHash(form)
}

func memoHash(form map[string]any) (string, error) {
	data, err := canonicalBut(form, pathKey)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// FileRef represents a file as a value: the path, and the SHA-256 of the content in hex. See [File].
type FileRef struct {
	Path, SHA256 string
}

// File returns the file at path as a value for inputs, parameters and outputs. The keys of a [Memo] contain the digest of the content, but not the
// path. So they change if the content changes, and stay the same if the file is touched or moved. The codec [store.Blobs] stores the content beside
// the value. Then [FileRef.Restore] can restore the file in another process, or after the file was removed.
func File(path string) (FileRef, error) {
	f, err := os.Open(path)
	if err != nil {
		return FileRef{}, err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return FileRef{}, err
	}
	return FileRef{Path: path, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// pathKey is the member of a FileRef's JSON that contains the path. The keys of a Memo do not contain this member.
const pathKey = "$file"

// fileJSON is the JSON form of a FileRef. Its digest is a reference to a blob.
type fileJSON struct {
	Path    string  `json:"$file"`
	Content blobRef `json:"content"`
}

type blobRef struct {
	Key string `json:"$blob"`
}

// MarshalJSON encodes the FileRef as {"$file": path, "content": {"$blob": digest}}: the content is a reference to a blob.
func (f FileRef) MarshalJSON() ([]byte, error) {
	return json.Marshal(fileJSON{f.Path, blobRef{f.SHA256}})
}

// UnmarshalJSON decodes the JSON that MarshalJSON returns.
func (f *FileRef) UnmarshalJSON(data []byte) error {
	var x fileJSON
	if err := json.Unmarshal(data, &x); err != nil {
		return err
	}
	if x.Path == "" || len(x.Content.Key) != hex.EncodedLen(sha256.Size) {
		return fmt.Errorf("%w: it is not a file: %s", ErrBadValue, valueText(string(data)))
	}
	f.Path, f.SHA256 = x.Path, x.Content.Key
	return nil
}

// Content returns the content of the file. The error matches [ErrBadValue] if the content has changed since the FileRef was made.
func (f FileRef) Content() ([]byte, error) {
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	return data, f.check(data)
}

func (f FileRef) check(data []byte) error {
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.SHA256 {
		return fmt.Errorf("%w: file %s has changed", ErrBadValue, quoteID(f.Path))
	}
	return nil
}

// BlobKey returns the digest, which is the content's key in [store.Blobs].
func (f FileRef) BlobKey() string { return f.SHA256 }

// Restore restores the file if it is missing or has changed: it writes the content that the blob store has. It replaces the whole file. If it fails,
// it changes nothing. To get the argument `from`, call the method Contents of the codec [store.Blobs].
func (f FileRef) Restore(ctx context.Context, from store.BlobStore) error {
	if now, err := File(f.Path); err == nil && now.SHA256 == f.SHA256 {
		return nil
	}
	data, err := from.Get(ctx, f.SHA256)
	if err == nil {
		err = f.check(data)
	}
	if err != nil {
		return fmt.Errorf("the content of file %s: %w", quoteID(f.Path), err)
	}
	beside, err := os.CreateTemp(filepath.Dir(f.Path), "."+filepath.Base(f.Path)+".*")
	if err != nil {
		return err
	}
	_, err = beside.Write(data)
	if err = errors.Join(err, beside.Chmod(0o644), beside.Close()); err == nil {
		err = os.Rename(beside.Name(), f.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(beside.Name()))
	}
	return nil
}

// The kinds of inputs that a step may read. If a kind ends in a colon, a name follows.
const (
	readRoot     = "root:"
	readParam    = "param:"
	readParams   = "params"
	readUpstream = "upstream:"
	readNode     = "node:"
	readBefore   = "predecessors"
	readTrigger  = "trigger"
	readItem     = "item"
	readIndex    = "index"
	readLoop     = "iteration"
)

// The method `keyed` reports whether the key of the node's output contains an input even if the step does not read the input. Reads of this input
// need not be recorded.
func (s *Step) keyed(kind, name string) bool {
	r, item := s.run, s.run.items != nil
	switch kind {
	case readParam:
		if item {
			return name == inputItem
		}
		names, _ := r.ownParams(s.ref)
		return slices.Contains(names, name)
	case readRoot:
		return item && name == inputItem
	case readParams:
		_, all := r.ownParams(s.ref)
		return !item && !all
	case readUpstream:
		return !item
	case readItem:
		return item
	}
	return false
}

// The method `read` records that the step of a memoized node has read an input.
func (s *Step) read(kind, name string) {
	if s.flags&stepMemo == 0 || s.keyed(kind, name) {
		return
	}
	r := s.run
	r.st.Lock()
	defer r.st.Unlock()
	if x := r.extra(s.ref); !slices.Contains(x.reads, kind+name) && s.state.Load() == stepActive {
		x.reads = append(x.reads, kind+name)
	}
}

func (s *Step) readsSoFar() []string {
	s.run.st.Lock()
	defer s.run.st.Unlock()
	return slices.Clone(s.run.extra(s.ref).reads)
}

// sights records the inputs that the nodes inside a memoized composite read from outside the composite. Each of these reads passes through the runs
// nested in the composite, and these runs call the method `note`. If sights is nil, `note` records nothing.
type sights struct {
	of      *Step // the attempt of the composite
	mu      sync.Mutex
	reads   []string
	depends bool // whether the output depends on an answer from outside, or on the absence of an answer
}

func (x *sights) note(kind, name string) {
	if x == nil || x.of.keyed(kind, name) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.reads, kind+name) {
		x.reads = append(x.reads, kind+name)
	}
}

// seenBy records, for all composites around this run, that a node of this run has read an input of the given kind from the outermost run.
func (r *Run) seenBy(kind string) {
	for ; r.outer != nil; r = r.outer {
		r.seen.note(kind, "")
	}
}

// The method `depends` is called when a node begins to wait or is answered. From then on, the outputs of the composites around the node depend on
// more than their inputs.
func (r *Run) depends() {
	for ; r.outer != nil; r = r.outer {
		if x := r.seen; x != nil {
			x.mu.Lock()
			x.depends = true
			x.mu.Unlock()
		}
	}
}

// keepWhole stores the output of a completed composite in the memo. It stores nothing if a failure was handled inside the composite, since a hit
// would hide the failure. It also stores nothing if the output depends on an answer from outside.
func (w *worker) keepWhole(c *conclusion, seen *sights) {
	r, s := w.run, w.step
	r.st.Lock()
	f := r.tree.flights[place{r, s.ref}]
	r.st.Unlock()
	seen.mu.Lock()
	reads, depends := slices.Clone(seen.reads), seen.depends
	seen.mu.Unlock()
	if f != nil && c.Status == Completed && !c.Degraded && !depends {
		f.memo.keep(s, f.by, reads, c.value, f)
	}
}

// standAside lets other nodes begin while the worker waits for a flight, see single.alone.
func (w *worker) standAside() {
	if w.alone {
		w.run.control(func(int64) { w.evaluated() })
	}
}

// ownParams returns the names of the parameters that a node declares by its edges, Params or Ports. For an item, these are the parameters of its map.
// The result `all` reports whether the node also gets all inputs of the run.
func (r *Run) ownParams(ref machine.Ref) (names []string, all bool) {
	r, ref, _ = r.home(ref, 0)
	all = r.plan.eachOwnParam(ref, func(name string) { names = append(names, name) })
	return names, all
}

// reread returns a list with the current value of an input, or nil if the input has no value. The argument is the text that the method `read` has
// recorded for the input.
func (s *Step) reread(read string) any {
	kind, name, named := strings.Cut(read, ":")
	if named {
		kind += ":"
	}
	v, ok := any(nil), true
	switch kind {
	case readRoot:
		v, ok = s.run.input(name)
	case readParam:
		v, ok = s.run.param(s.ref, s.flags, name)
	case readParams:
		v = s.run.params(s.ref, s.flags, false)
	case readUpstream:
		v, ok = s.run.upstream(s.ref, s.flags, name)
	case readBefore:
		list := []any{}
		for _, p := range s.predecessors() {
			list = append(list, []any{p.ID, p.Status.String()})
		}
		v = list
	case readTrigger:
		if f := s.run.cfg.fired; f != nil {
			v = []any{f.payload}
		}
	case readItem, readIndex:
		items, i := s.run.innermost(s.ref, kind)
		if ok = items != nil; ok {
			if v = i; kind == readItem {
				v = items.at(i)
			}
		}
	case readLoop:
		v = s.run.innermostIteration()
	case readNode:
		r, ref, _ := s.run.home(s.ref, s.flags)
		view := View{run: r, ref: ref}
		failure := ""
		if err := view.Err(name); err != nil {
			failure = errorText(err)
		}
		seen := []any{view.Status(name).String(), view.Output(name), failure}
		if d := view.Decision(name); d != nil {
			seen = append(seen, d.Value, d.Actor, d.Comment, d.ID)
		}
		v = seen
	}
	if !ok {
		return nil
	}
	return []any{v}
}

// memoEntry is the value that the memo stores under a key. It contains an output, or the sets of inputs that steps have read. The sets are stored
// under the base key. From the base key and one of the sets, memoKey.with makes the key under which an output is stored.
type memoEntry struct {
	reads [][]string
	value any
	has   bool   // whether value is an output
	run   string // the id of the run that called the step
	at    time.Time
}

func (e *memoEntry) hit() attemptResult {
	return attemptResult{value: e.value, hit: &event.Hit{Run: e.run, At: e.at}}
}

// maxReads is the largest number of sets of inputs that are stored under a key. A look-up tries each set. So without this bound, look-ups would
// become slower and slower for a step that reads other inputs each time.
const maxReads = 16

// The method `find` looks for the output, first under the base key, then under the key of each set of inputs that steps have read.
func (m *Memo) find(s *Step, k memoKey, f *flight) (found bool, err error) {
	first, err := m.get(s, k.base)
	if err != nil {
		return false, err
	}
	now := s.run.timeAt(s.run.now())
	fresh := func(e *memoEntry) bool { return e.has && (m.MaxAge <= 0 || now.Sub(e.at) < m.MaxAge) }
	if fresh(&first) {
		f.entry, f.of, f.ok = first, k.base, true
		return true, nil
	}
	for _, reads := range slices.Backward(first.reads) {
		of, err := k.with(s, reads)
		if err != nil {
			return false, err
		}
		e, err := m.get(s, of)
		if err != nil {
			return false, err
		}
		if fresh(&e) {
			f.entry, f.reads, f.of, f.ok = e, reads, of, true
			return true, nil
		}
	}
	return false, nil
}

// The method `keep` stores the output of a step under the key that k and reads determine, and puts the output into f. f may be nil.
func (m *Memo) keep(s *Step, k memoKey, reads []string, value any, f *flight) {
	if err := m.keeps(s, k, reads, value, f); err != nil {
		s.Log(slog.LevelWarn, "memo: "+errorText(err))
	}
}

func (m *Memo) keeps(s *Step, k memoKey, reads []string, value any, f *flight) error {
	r := s.run
	if k.fixed {
		reads = nil
	}
	slices.Sort(reads)
	of, err := k.with(s, reads)
	if err != nil {
		return err
	}
	e := memoEntry{value: value, has: true, run: r.ID(), at: r.timeAt(r.now())}
	if f != nil {
		f.entry, f.reads, f.of, f.ok = e, reads, of, true
	}
	if of == k.base {
		return m.put(s, of, e)
	}
	first, err := m.get(s, k.base)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(first.reads, func(set []string) bool { return slices.Equal(set, reads) })
	if !known || first.has {
		sets := append(slices.Clone(first.reads[max(len(first.reads)-maxReads+1, 0):]), reads)
		if known {
			sets = first.reads
		}
		if err := m.put(s, k.base, memoEntry{reads: sets}); err != nil {
			return err
		}
	}
	return m.put(s, of, e)
}

// forgetMemos is called before a node is undone. It removes from the memo the outputs of the node and of the composites around it, if this run has
// stored them. So no later run gets these outputs. If the Cache fails, the node is undone nevertheless, and its log contains a warning.
func (s *Step) forgetMemos() {
	for r, ref := s.run, s.ref; ; r, ref = r.outer, r.within.ref {
		if m := r.memoOf(ref); m != nil {
			if err := contain(func() error {
				return m.drop(s, &Step{run: r, ref: ref, flags: s.flags, attempt: r.records[ref].attempts})
			}); err != nil {
				s.Log(slog.LevelWarn, "memo: "+errorText(bounded(err)))
			}
		}
		if r.outer == nil {
			return
		}
	}
}

// The method `drop` removes the outputs of a node from the memo, if this run has stored them. The Step `of` belongs to this node. The Step `by`
// belongs to the compensation: its context and its log are used.
func (m *Memo) drop(by, of *Step) error {
	k, err := of.memoKey()
	if err != nil {
		return nil // if there is no key, no output was kept
	}
	first, err := m.get(by, k.base)
	if err != nil {
		return err
	}
	run := of.run.ID()
	if first.has && first.run == run {
		if err := m.put(by, k.base, memoEntry{reads: first.reads}); err != nil {
			return err
		}
	}
	for _, reads := range first.reads {
		key, err := k.with(of, reads)
		if err != nil {
			continue // the values of these inputs cannot be encoded, so the attempt `of` has stored no output under them
		}
		e, err := m.get(by, key)
		if err == nil && e.has && e.run == run {
			err = m.put(by, key, memoEntry{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The method `get` returns the entry for a key. If there is none, or if the entry is damaged, get returns the zero entry. If the entry is damaged,
// get adds a warning to the node's log.
func (m *Memo) get(s *Step, key string) (memoEntry, error) {
	if m.Cache == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.values[key], nil
	}
	data, ok, err := m.Cache.Get(s, key)
	if err != nil || !ok {
		return memoEntry{}, err
	}
	e, err := decodeMemo(s.run.cfg.codec, data)
	if err != nil {
		s.Log(slog.LevelWarn, "memo: the entry "+key+" of the cache is damaged, so the step runs: "+errorText(err))
		return memoEntry{}, nil
	}
	return e, nil
}

func (m *Memo) put(s *Step, key string, e memoEntry) error {
	if m.Cache == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.values == nil {
			m.values = map[string]memoEntry{}
		}
		m.values[key] = e
		return nil
	}
	data, err := encodeMemo(s.run.cfg.codec, e)
	if err != nil {
		return err
	}
	return m.Cache.Put(s, key, data)
}

// entryJSON is the JSON form of an entry in a cache. The cached data consists of the checksum of this JSON, a newline, and the JSON.
type entryJSON struct {
	Reads [][]string      `json:"reads,omitempty"`
	Run   string          `json:"run,omitempty"`
	At    time.Time       `json:"at,omitzero"`
	Value json.RawMessage `json:"value,omitempty"`
}

func encodeMemo(codec Codec, e memoEntry) ([]byte, error) {
	x := entryJSON{Reads: e.reads, Run: e.run, At: e.at}
	if e.has {
		var err error
		if x.Value, err = encodeValue(codec, e.value); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return append(append(hex.AppendEncode(nil, sum[:]), '\n'), text...), nil
}

func decodeMemo(codec Codec, data []byte) (e memoEntry, err error) {
	head, text, _ := bytes.Cut(data, []byte("\n"))
	if sum := sha256.Sum256(text); string(head) != hex.EncodeToString(sum[:]) {
		return e, fmt.Errorf("%w: its checksum does not match", ErrBadValue)
	}
	var x entryJSON
	if err := json.Unmarshal(text, &x); err != nil {
		return e, err
	}
	e = memoEntry{reads: x.Reads, run: x.Run, at: x.At}
	if x.Value != nil {
		e.has = true
		e.value, err = decodeValue(codec, x.Value)
	}
	return e, err
}

// hitOf returns the hit of a memoized node. It returns nil for any other node. It also returns nil if the node's output came from its fallback after
// all. The caller holds the run's lock.
func (r *Run) hitOf(ref machine.Ref, x *extra) *event.Hit {
	if x.Memoized && !r.records[ref].fallback {
		return x.Hit
	}
	return nil
}
