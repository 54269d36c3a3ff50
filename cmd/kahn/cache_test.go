package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

const cachedDefinition = `version: 1
name: build
inputs: [log, source, who, id, items]
nodes:
  - {id: fetch, kind: exec, memo: v1, files: [SOURCE], config: {command: [sh, -c, 'echo fetch >> "$1"; head -c 5 "$2"', sh, '{{input "log"}}', '{{input "source"}}']}}
  - {id: greet, kind: exec, memo: v1, after: {from: fetch, param: text}, config: {command: [sh, -c, 'echo greet >> "$1"; echo "hello $2, $3"', sh, '{{input "log"}}', '{{input "who"}}', '{{param "text"}}']}}
  - {id: each, kind: exec, memo: v1, map: {over: items}, config: {command: [sh, -c, 'echo "item $2" >> "$1"', sh, '{{input "log"}}', '{{param "item"}}']}}
  - id: sub
    memo: v1
    graph: {nodes: [{id: x, kind: exec, config: {command: [sh, -c, 'echo "sub/x" >> "$1"; echo "$2"', sh, '{{input "log"}}', '{{input "who"}}']}}]}
  - {id: plain, kind: exec, config: {command: [sh, -c, 'echo plain >> "$1"', sh, '{{input "log"}}']}}
`

// TestCache: with -cache, a command calls a step with a memo only if a change since the last run affects the step.
func TestCache(t *testing.T) {
	all := []string{"fetch", "greet", "item a", "item b", "sub/x"}
	for name, x := range map[string]struct {
		change func(t *testing.T, dir string, inputs map[string]string) // changes the inputs, or the folder with build.yaml and source.txt
		args   []string
		calls  []string
	}{
		"nothing":                      {},
		"an input that nothing names":  {change: func(_ *testing.T, _ string, in map[string]string) { in["id"] = `"2"` }},
		"an input":                     {change: func(_ *testing.T, _ string, in map[string]string) { in["who"] = `"Bo"` }, calls: []string{"greet", "sub/x"}},
		"an item more":                 {change: func(_ *testing.T, _ string, in map[string]string) { in["items"] = `["a","c","b"]` }, calls: []string{"item c"}},
		"items in another order":       {change: func(_ *testing.T, _ string, in map[string]string) { in["items"] = `["b","a"]` }},
		"the file":                     {change: writes("source.txt", "other text"), calls: []string{"fetch", "greet"}},
		"the file, and not its begin":  {change: writes("source.txt", "first, and more"), calls: []string{"fetch"}},
		"the file is written as it is": {change: writes("source.txt", "first text")},
		"the version": {change: func(t *testing.T, dir string, _ map[string]string) {
			rewrites(t, dir, "greet, kind: exec, memo: v1", "greet, kind: exec, memo: v2")
		}, calls: []string{"greet"}},
		"a config": {change: func(t *testing.T, dir string, _ map[string]string) { rewrites(t, dir, "hello $2", "hi $2") }, calls: []string{"greet"}},
		"the graph inside": {change: func(t *testing.T, dir string, _ map[string]string) {
			rewrites(t, dir, `echo "$2"', sh`, `echo "$2!"', sh`)
		}, calls: []string{"sub/x"}},
		"an entry that is damaged": {change: func(t *testing.T, dir string, _ map[string]string) {
			require.NoError(t, filepath.WalkDir(filepath.Join(dir, "cache"), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				if err == nil && strings.Contains(string(data), "hello") {
					err = os.WriteFile(path, data[:len(data)-3], 0o600)
				}
				return err
			}))
		}, calls: []string{"greet"}},
		"the folder":  {change: func(t *testing.T, dir string, _ map[string]string) { t.Chdir(dir) }, calls: all},
		"-refresh":    {args: []string{"-refresh"}, calls: all},
		"no cache":    {args: []string{"no -cache"}, calls: all},
		"over a file": {args: []string{"-store", filepath.Join(t.TempDir(), "runs.db")}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log, source, definition := filepath.Join(dir, "log"), filepath.Join(dir, "source.txt"), filepath.Join(dir, "build.yaml")
			require.NoError(t, os.WriteFile(source, []byte("first text"), 0o600))
			require.NoError(t, os.WriteFile(definition, []byte(strings.ReplaceAll(cachedDefinition, "SOURCE", source)), 0o600))
			inputs := map[string]string{"log": `"` + log + `"`, "source": `"` + source + `"`, "who": `"Ann"`, "id": `"1"`, "items": `["a","b"]`}
			run := func(more ...string) (calls []string, out string) {
				require.NoError(t, os.WriteFile(log, nil, 0o600))
				args := []string{"run", "-progress", "plain"}
				if !slices.Equal(more, []string{"no -cache"}) {
					args = append(args, "-cache", filepath.Join(dir, "cache"))
				} else {
					more = nil
				}
				for name, value := range inputs {
					args = append(args, "-input", name+":="+value)
				}
				code, stdout, stderr := invoke(t, "", append(append(args, more...), definition)...)
				require.Equal(t, exitOK, code, stdout+stderr)
				data, err := os.ReadFile(log)
				require.NoError(t, err)
				calls = strings.Split(strings.TrimSpace(string(data)), "\n")
				slices.Sort(calls)
				return calls, stdout + stderr
			}
			first, _ := run()
			require.Equal(t, append(slices.Clone(all), "plain")[:5], slices.DeleteFunc(first, func(call string) bool { return call == "plain" }))
			if x.change != nil {
				x.change(t, dir, inputs)
			}
			second, out := run(x.args...)
			require.Contains(t, second, "plain")
			require.Equal(t, x.calls, emptyIsNil(slices.DeleteFunc(second, func(call string) bool { return call == "plain" })))
			require.Equal(t, !slices.Contains(x.calls, "fetch"), strings.Contains(out, "fetch: from the cache: run "), out)
		})
	}
	expect(t, exitUsage, "-refresh needs -cache", "", "run", "-refresh", "definitions/release.yaml")
	expect(t, exitUsage, "-dry runs nothing", "", "run", "-dry", "-cache", t.TempDir(), "definitions/release.yaml")
}

func emptyIsNil(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func writes(name, text string) func(*testing.T, string, map[string]string) {
	return func(t *testing.T, dir string, _ map[string]string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

func rewrites(t *testing.T, dir, from, to string) {
	t.Helper()
	path := filepath.Join(dir, "build.yaml")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), from)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(data), from, to)), 0o600))
}

// TestCacheKeepsThePlan: the memo keys that the command sets do not change the hash of the graph. So a stored run continues with or without a
// cache.
func TestCacheKeepsThePlan(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("definitions/*.yaml")
	require.NoError(t, err)
	files = append(files, file(t, "cached.yaml", strings.ReplaceAll(cachedDefinition, "SOURCE", "cache.go")))
	for _, name := range files {
		if isTests(name) {
			continue
		}
		g, err := performer{}.load(name)
		require.NoError(t, err)
		before, err := g.Compile()
		require.NoError(t, err)
		g, err = keyed(g, t.TempDir())
		require.NoError(t, err)
		after, err := g.Compile()
		require.NoError(t, err)
		require.Equal(t, before.Hash(), after.Hash(), name)
		require.Equal(t, before.Warnings(), after.Warnings(), name)
	}
	exported := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[kahn.Graph]()) {
		if f.IsExported() {
			exported++
		}
	}
	require.Equal(t, 7, exported, "keyed copies each field of a Graph")
}
