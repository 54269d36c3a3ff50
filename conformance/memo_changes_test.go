package conformance_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// mapCache is a cache in memory.
type mapCache map[string][]byte

func (c mapCache) Get(_ context.Context, key string) ([]byte, bool, error) {
	data, ok := c[key]
	return data, ok, nil
}

func (c mapCache) Put(_ context.Context, key string, data []byte) error {
	c[key] = data
	return nil
}

// TestMemoChanges performs a graph, changes the graph or its input, performs it again, and checks which steps the second run calls.
func TestMemoChanges(t *testing.T) {
	// "parse" reads the input text, "count" follows it, and "each" is a map over the input list.
	build := func(version string) *kahn.Graph {
		return new(kahn.Graph).Add(
			kahn.Node{ID: "parse", Memo: version},
			kahn.Node{ID: "count", Memo: version, After: []string{"parse"}},
			kahn.Node{ID: "each", Memo: version, Map: &kahn.Map{Over: "list"}, Ports: []kahn.Port{{Name: "list"}}},
		)
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "parse":
			text, err := kahn.Root[string](s, "text")
			return strings.ToUpper(text), err
		case "count":
			text, err := kahn.Upstream[string](s, "parse")
			return float64(len(text)), err
		}
		item, _ := s.Item()
		return fmt.Sprint("item ", item), nil
	}
	given := func(text string, list ...string) map[string]any {
		return map[string]any{"text": text, "list": list, "request": "1"}
	}
	all := []string{"count", "each[0]", "each[1]", "parse"}
	for name, x := range map[string]struct {
		second  map[string]any
		version string
		opts    []kahn.Option
		between func(memo *kahn.Memo, cache mapCache)
		calls   []string
		warns   bool
	}{
		"nothing":            {},
		"an unrelated input": {second: map[string]any{"text": "a", "list": []string{"x", "y"}, "request": "2", "more": true}},
		"an item is added":   {second: given("a", "x", "y", "z"), calls: []string{"each[2]"}},
		"an item is moved":   {second: given("a", "y", "x")},
		"an item is removed": {second: given("a", "y")},
		"the code":           {version: "v2", calls: all},
		"an input":           {second: given("b", "x", "y"), calls: []string{"parse", "count"}},
		"early cutoff":       {second: given("A", "x", "y"), calls: []string{"parse"}}, // parse returns the same output for "x" as for "a", so count is not called
		"refreshed":          {opts: []kahn.Option{kahn.Refresh()}, calls: all},
		"expired": {between: func(memo *kahn.Memo, _ mapCache) {
			memo.MaxAge = time.Hour
			time.Sleep(time.Hour)
		}, calls: all},
		"not expired": {between: func(memo *kahn.Memo, _ mapCache) {
			memo.MaxAge = time.Hour
			time.Sleep(59 * time.Minute)
		}},
		"damaged": {between: func(_ *kahn.Memo, cache mapCache) {
			for key, data := range cache {
				cache[key] = append(slices.Clone(data[:len(data)-2]), 'x', '}')
			}
		}, calls: all, warns: true},
		"cut short": {between: func(_ *kahn.Memo, cache mapCache) {
			for key := range cache {
				cache[key] = nil
			}
		}, calls: all, warns: true},
	} {
		for _, cached := range []bool{true, false} {
			if x.warns && !cached {
				continue
			}
			inBubble(t, fmt.Sprint(name, ", with a cache ", cached), func(t *testing.T) {
				memo, cache := new(kahn.Memo), mapCache{}
				if cached {
					memo.Cache = cache
				}
				var c calls
				began := time.Now()
				first := try(t, build("v1"), c.by((*kahn.Step).Path, step), memo, kahn.Inputs(given("a", "x", "y")), kahn.RunID("first"), kahn.Limit(1))
				require.Equal(t, 4, len(c.called()))
				c = calls{}
				if x.between != nil {
					x.between(memo, cache)
				}
				version, inputs := "v1", given("a", "x", "y")
				if x.version != "" {
					version = x.version
				}
				if x.second != nil {
					inputs = x.second
				}
				r := try(t, build(version), c.by((*kahn.Step).Path, step), append(x.opts, memo, kahn.Inputs(inputs), kahn.Limit(1))...)
				slices.Sort(x.calls)
				require.Equal(t, fmt.Sprint(x.calls), fmt.Sprint(c.called()))
				for n := range r.Nodes() {
					hit := n.ID != "each" && !slices.Contains(x.calls, n.ID)
					require.Equal(t, hit, n.Memoized, n.ID)
					require.Equal(t, hit, n.Hit != nil, n.ID)
					if hit {
						require.Equal(t, event.Hit{Run: "first", At: began}, event.Hit{Run: n.Hit.Run, At: n.Hit.At.Local()}, n.ID)
					}
				}
				require.Equal(t, x.warns, len(r.find(event.NodeLog, "parse")) > 0)
				require.Equal(t, kahn.RunCompleted, first.Status)
			})
		}
	}
}

// called lists the calls, sorted.
func (c *calls) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.n))
}

func TestMemoReads(t *testing.T) {
	reads := func(read func(s *kahn.Step) any, nodes ...kahn.Node) func(t *testing.T, want int, memo *kahn.Memo, opts ...kahn.Option) trial {
		var c calls
		return func(t *testing.T, want int, memo *kahn.Memo, opts ...kahn.Option) trial {
			g := graph(append([]kahn.Node{{ID: "far"}, after("before", "far"), {ID: "A", After: []string{"before"}, Memo: "1", Do: c.count(func(_ context.Context, s *kahn.Step) (any, error) {
				return fmt.Sprint(read(s)), nil
			})}}, nodes...)...)
			r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "far" {
					v, _ := s.Root("far")
					return v, nil
				}
				return nil, nil
			}, append(opts, memo)...)
			if got := c.of("A"); got != want {
				t.Errorf("%d calls, expected %d", got, want)
			}
			return r
		}
	}
	in := func(pairs ...any) kahn.Option {
		m := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return kahn.Inputs(m)
	}
	inBubble(t, "what is read depends on what was read before", func(t *testing.T) {
		memo := new(kahn.Memo)
		run := reads(func(s *kahn.Step) any {
			mode, _ := s.Root("mode")
			if mode == "x" {
				x, _ := s.Root("x")
				return []any{mode, x}
			}
			return mode
		})
		run(t, 1, memo, in("mode", "y", "x", 1))
		run(t, 1, memo, in("mode", "y", "x", 2))
		run(t, 2, memo, in("mode", "x", "x", 1))
		run(t, 3, memo, in("mode", "x", "x", 2))
		run(t, 3, memo, in("mode", "x", "x", 1))
		run(t, 3, memo, in("mode", "y"))
		run(t, 4, memo, in())
	})
	inBubble(t, "a far ancestor that the view has shown", func(t *testing.T) {
		memo := new(kahn.Memo)
		run := reads(func(s *kahn.Step) any { return s.View().Output("far") })
		run(t, 1, memo, in("far", 1))
		run(t, 1, memo, in("far", 1, "other", 2))
		if r := run(t, 2, memo, in("far", 2)); r.node("A").Output != "2" {
			t.Error(r.node("A").Output)
		}
	})
	inBubble(t, "what a failed attempt has read does not count", func(t *testing.T) {
		memo := new(kahn.Memo)
		n := 0
		g := graph(kahn.Node{ID: "A", Memo: "1", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if n++; n == 1 {
				_, _ = s.Root("x")
				return nil, errStep
			}
			return n, nil
		}})
		for x := range 2 {
			require.Equal(t, 2, try(t, g, nil, memo, in("x", x)).node("A").Output)
		}
	})
	inBubble(t, "an input that was not there is one that was read", func(t *testing.T) {
		memo := new(kahn.Memo)
		run := reads(func(s *kahn.Step) any { _, ok := s.Root("x"); return ok })
		run(t, 1, memo, in())
		if r := run(t, 2, memo, in("x", nil)); r.node("A").Output != "true" {
			t.Error(r.node("A").Output)
		}
	})
	inBubble(t, "a derived context and another goroutine read, too", func(t *testing.T) {
		memo := new(kahn.Memo)
		run := reads(func(s *kahn.Step) any {
			ctx, cancel := context.WithCancel(s)
			defer cancel()
			got := make(chan any)
			go func() {
				v, _ := kahn.StepOf(ctx).Root("x")
				got <- v
			}()
			return <-got
		})
		run(t, 1, memo, in("x", 1))
		run(t, 2, memo, in("x", 2))
		run(t, 2, memo, in("x", 1))
	})
	inBubble(t, "the index of an item, if it is read", func(t *testing.T) {
		for _, indexed := range []bool{false, true} {
			memo := new(kahn.Memo)
			var c calls
			g := graph(kahn.Node{ID: "M", Memo: "1", Map: &kahn.Map{Over: "list"}, Ports: []kahn.Port{{Name: "list"}}, Do: c.by((*kahn.Step).Path, func(_ context.Context, s *kahn.Step) (any, error) {
				item, _ := s.Item()
				if indexed {
					return fmt.Sprint(item, s.Index()), nil
				}
				return item, nil
			})})
			try(t, g, nil, memo, in("list", []int{5, 6}))
			r := try(t, g, nil, memo, in("list", []int{6, 5}))
			want := []any{"6 0", "5 1"}
			if !indexed {
				want = []any{6, 5}
			}
			require.Equal(t, want, r.node("M").Output)
			if n := len(c.called()); n != 2 {
				t.Errorf("%v", c.called())
			}
		}
	})
	inBubble(t, "two runs at once that read different inputs", func(t *testing.T) {
		memo := new(kahn.Memo)
		g := graph(kahn.Node{ID: "A", Memo: "1", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			x, _ := s.Root("x")
			_, err := takes(time.Second)(ctx, s)
			return x, err
		}})
		var runs []*kahn.Run
		for i := range 3 {
			run, err := kahn.Start(t.Context(), g, nil, memo, in("x", i%2))
			require.NoError(t, err)
			runs = append(runs, run)
		}
		for i, run := range runs {
			res, err := run.Wait()
			require.NoError(t, err)
			require.Equal(t, i%2, res.Output())
			require.Equal(t, time.Second, res.Duration)
		}
	})
	inBubble(t, "equal items at once are called once", func(t *testing.T) {
		memo := new(kahn.Memo)
		var c calls
		g := graph(kahn.Node{ID: "M", Memo: "1", Map: &kahn.Map{Over: "list"}, Ports: []kahn.Port{{Name: "list"}}, Do: c.by((*kahn.Step).Path, takes(time.Second))})
		r := try(t, g, nil, memo, in("list", []int{7, 7, 7, 8}))
		r.expect("M:ok", "completed")
		require.Len(t, c.called(), 2)
	})
	inBubble(t, "a key of one's own", func(t *testing.T) {
		var c calls
		fails := false
		memo := new(kahn.Memo)
		node := func(id string, name string) kahn.Node {
			return kahn.Node{ID: id, Memo: "1", MemoName: name, Do: c.by((*kahn.Step).Path, takes(0)), MemoKey: func(s *kahn.Step) (string, error) {
				x, _ := s.Root("x")
				if fails {
					return "", errors.New("no key")
				}
				return fmt.Sprint(x.(int) / 10), nil
			}}
		}
		try(t, graph(node("A", "")), nil, memo, in("x", 10))
		try(t, graph(node("A", "")), nil, memo, in("x", 19, "y", 1))
		require.Equal(t, 1, c.of("A"))
		try(t, graph(node("A", "")), nil, memo, in("x", 20))
		require.Equal(t, 2, c.of("A"))
		try(t, graph(node("B", "shared")), nil, memo, in("x", 10))
		r := try(t, graph(node("C", "shared")), nil, memo, in("x", 11))
		require.Equal(t, 1, c.of("B"))
		require.Equal(t, 0, c.of("C"))
		require.Equal(t, "B", r.node("C").Output)
		fails = true
		r = try(t, graph(node("A", "")), nil, memo, in("x", 10))
		require.Equal(t, 3, c.of("A"))
		require.Len(t, r.find(event.NodeLog, "A"), 1)
	})
	inBubble(t, "slips", func(t *testing.T) {
		for _, n := range []kahn.Node{{ID: "A", MemoName: "x"}, {ID: "A", MemoKey: func(*kahn.Step) (string, error) { return "", nil }}} {
			_, err := graph(n).Compile()
			require.ErrorIs(t, err, kahn.ErrBadValue)
		}
		for _, opts := range [][]kahn.Option{{kahn.Refresh()}, {&kahn.Memo{MaxAge: -1}}} {
			_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "A"}), takes(0), opts...)
			require.ErrorIs(t, err, kahn.ErrBadOption)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		memo := new(kahn.Memo) // a resumed run keeps the memoized result
		g := graph(kahn.Node{ID: "A", Memo: "1"}, kahn.Node{ID: "G", Kind: kahn.KindGate})
		try(t, graph(kahn.Node{ID: "A", Memo: "1"}), takes(0), memo, kahn.RunID("old"))
		res, err := kahn.Execute(t.Context(), g, takes(0), memo)
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		res, err = kahn.Execute(t.Context(), g, takes(0), kahn.Resume(reload(t, res.Snapshot())), kahn.EarlySignals(map[string]any{"G": true}))
		require.NoError(t, err)
		n, _ := res.Node("A")
		require.NotNil(t, n.Hit)
		require.Equal(t, "old", n.Hit.Run)
	})
}

// TestMemoFiles: the memo key covers the content of a file, but not its time, and, for a file in a value, not its path.
func TestMemoFiles(t *testing.T) {
	for name, x := range map[string]struct {
		change func(t *testing.T, path string) string
		calls  [2]int // of the node with Files, and of the node with the file as an input
		warns  bool
	}{
		"nothing": {change: func(_ *testing.T, path string) string { return path }},
		"file touched": {change: func(t *testing.T, path string) string {
			later := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
			require.NoError(t, os.Chtimes(path, later, later))
			return path
		}},
		"file written again": {change: func(t *testing.T, path string) string {
			require.NoError(t, os.WriteFile(path, []byte("first"), 0o600))
			return path
		}},
		"file changed": {change: func(t *testing.T, path string) string {
			require.NoError(t, os.WriteFile(path, []byte("other"), 0o600))
			return path
		}, calls: [2]int{1, 1}},
		"file copied": {change: func(t *testing.T, path string) string {
			require.NoError(t, os.WriteFile(path+".copy", []byte("first"), 0o600))
			return path + ".copy"
		}},
		"file gone": {change: func(t *testing.T, path string) string {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.WriteFile(path+".copy", []byte("first"), 0o600))
			return path + ".copy"
		}, calls: [2]int{1, 0}, warns: true},
	} {
		for _, whole := range []bool{false, true} {
			inBubble(t, fmt.Sprint(name, ", of a sub-graph ", whole), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "a.txt")
				require.NoError(t, os.WriteFile(path, []byte("first"), 0o600))
				declares := kahn.Node{ID: "declares", Memo: "1", Files: []string{path}}
				if whole {
					declares.Sub = graph(kahn.Node{ID: "inner"})
				}
				g := graph(declares, kahn.Node{ID: "gets", Memo: "1"})
				memo, c := &kahn.Memo{Cache: mapCache{}}, calls{}
				run := func(path string) trial {
					c = calls{}
					f, err := kahn.File(path)
					require.NoError(t, err)
					return try(t, g, c.count(func(_ context.Context, s *kahn.Step) (any, error) {
						if s.ID() != "gets" {
							return "done", nil
						}
						f, err := kahn.Root[kahn.FileRef](s, "file")
						if err != nil {
							return nil, err
						}
						text, err := f.Content()
						return string(text), err
					}), memo, kahn.Limit(1), kahn.Inputs(map[string]any{"file": f}))
				}
				run(path)
				require.Len(t, c.called(), 2)
				r := run(x.change(t, path))
				require.Equal(t, x.calls[0], c.of("declares")+c.of("inner"))
				require.Equal(t, x.calls[1], c.of("gets"))
				require.Equal(t, x.warns, len(r.find(event.NodeLog, "declares")) > 0)
			})
		}
	}
	t.Run("slips", func(t *testing.T) {
		_, err := kahn.File(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = kahn.File(t.TempDir())
		require.Error(t, err)
		for text, n := range map[string]kahn.Node{
			"no Memo": {ID: "A", Files: []string{"a"}}, "twice": {ID: "A", Memo: "1", Files: []string{"a", "a"}}, "without a name": {ID: "A", Memo: "1", Files: []string{""}},
		} {
			_, err := graph(n).Compile()
			require.ErrorIs(t, err, kahn.ErrBadValue)
			require.ErrorContains(t, err, text)
		}
	})
}

// TestFileRef: a codec or a blob store keeps the content of a FileRef, so that the file can be restored.
func TestFileRef(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) kahn.FileRef {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f, err := kahn.File(path)
		require.NoError(t, err)
		return f
	}
	f := write("a", "first")
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte("first"))), f.SHA256)
	type box struct {
		In    []any
		Named map[string]*kahn.FileRef
	}
	blobs := new(store.MemoryBlobs)
	codec := &store.Blobs{Codec: kahn.Types{"box": box{}}, Store: blobs, Over: 60, Patience: 10 * time.Millisecond}
	for name, x := range map[string]struct {
		value any
		files int
	}{
		"alone":    {f, 1},
		"in lists": {[]any{"x", []kahn.FileRef{f, write("b", "second")}}, 2},
		"deep":     {map[string]any{"x": map[string]any{"y": f}}, 1},
		"none":     {map[string]any{"$file": "x", "content": "y"}, 0},
		"long":     {[]any{f, strings.Repeat("x", 1000)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := blobs.Len()
			data, err := codec.Encode(x.value)
			require.NoError(t, err)
			keys := store.BlobKeys(data)
			require.Len(t, keys, x.files)
			require.GreaterOrEqual(t, blobs.Len(), before)
			for _, key := range keys {
				content, err := blobs.Get(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, key, fmt.Sprintf("%x", sha256.Sum256(content)))
			}
			back, err := codec.Decode(data)
			require.NoError(t, err)
			require.Equal(t, x.value, back)
		})
	}
	data, err := codec.Encode(box{In: []any{1}, Named: map[string]*kahn.FileRef{"g": {}, "f": &f}})
	require.Error(t, err, "%s", data) // the zero FileRef names no file
	require.NoError(t, os.Remove(f.Path))
	_, err = codec.Encode(f) // the codec still finds the file
	require.NoError(t, err)
	require.NoError(t, f.Restore(t.Context(), blobs))
	text, err := f.Content()
	require.NoError(t, err)
	require.Equal(t, "first", string(text))
	require.NoError(t, os.WriteFile(f.Path, []byte("changed"), 0o600))
	_, err = f.Content()
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.NoError(t, f.Restore(t.Context(), blobs))
	now, err := kahn.File(f.Path)
	require.NoError(t, err)
	require.Equal(t, f, now)

	g := write("c", "never kept")
	require.NoError(t, os.WriteFile(g.Path, []byte("changed"), 0o600))
	_, err = codec.Encode(g)
	require.ErrorIs(t, err, store.ErrNoBlob)
	require.ErrorIs(t, g.Restore(t.Context(), blobs), store.ErrNoBlob)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 3) // no unfinished files
	for _, text := range []string{`{}`, `{"$file": "a"}`, `{"$file": "a", "content": {"$blob": "12"}}`, `7`, `{"$file": "", "content": {"$blob": "` + f.SHA256 + `"}}`} {
		require.Error(t, json.Unmarshal([]byte(text), new(kahn.FileRef)), text)
	}
}
