// Package release tests the script release.sh, which makes a release.
package release

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	core    = "github.com/seed-c794f7ef/kahn"
	version = "v0.0.1-played"
)

// use describes how a user's program uses a module.
type use struct {
	imports []string
	text    string // statements that change the graph g or the options opts of the program's run
}

// uses lists the modules of a release that users import.
var uses = map[string]use{
	"":                {},
	"expression":      {[]string{core + "/expression"}, `g.Evaluator, g.StrictGuards = expression.Evaluator{}, true; g.Add(kahn.Node{ID: "b", WhenExpr: "1 < 2"})`},
	"schema":          {[]string{core + "/schema"}, `g.Schemas = schema.Compiler{}; g.Add(kahn.Node{ID: "b", OutputSchema: map[string]any{"type": "null"}})`},
	"inspector":       {[]string{core + "/inspector"}, `_ = inspector.Handler(inspector.Options{Runner: &kahn.Runner{}})`},
	"otel":            {[]string{core + "/otel"}, `t, err := otelkahn.New(otelkahn.Options{}); check(err); opts = append(opts, t.Options()...)`},
	"schedule":        {[]string{core + "/schedule"}, `_, err := schedule.Cron("@daily", "Europe/Berlin"); check(err)`},
	"progress":        {[]string{core + "/progress", "io"}, `opts = append(opts, progress.New(io.Discard, progress.Plain).Options()...)`},
	"definition/yaml": {[]string{core + "/definition/yaml", core + "/definition"}, `var err error; g, err = yaml.Decode([]byte("{version: 1, nodes: [{id: a}]}"), definition.Limits{}); check(err)`},
	"store/postgres":  {[]string{core + "/store/postgres"}, `_ = postgres.Open`},
	"store/sqlite":    {[]string{core + "/store/sqlite"}, `db, err := sqlite.Open("runs.db", sqlite.Options{}); check(err); opts = append(opts, kahn.Durable(db), kahn.RunID("1"))`},
	"river":           {[]string{core + "/river"}, `_ = (&riverkahn.Performer{}).Register`},
	"temporal":        {[]string{core + "/temporal"}, `_ = temporal.NewWorker; plan, err := g.Compile(); check(err); check(temporal.Check(plan))`},
}

// program is a user's program that performs a run.
const program = `package main

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	%s
)

func main() {
	g, opts := new(kahn.Graph).Add(kahn.Node{ID: "a"}), []kahn.Option{}
	{
		%s
	}
	res, err := kahn.Execute(context.Background(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, opts...)
	check(err)
	fmt.Println(res.Status)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`

// command is the module with the command that a user installs.
const command = "cmd/kahn"

// small lists the modules without large dependencies.
var small = []string{"", "progress"}

// built returns the modules for which a user's program is compiled and run: the small modules and one other, chosen by sum, or all modules if the
// environment variable KAHN_LONG is set. sum is a hash of files, so when the files change, another module is chosen.
func built(sum uint32) []string {
	large := slices.DeleteFunc(slices.Sorted(maps.Keys(uses)), func(module string) bool { return slices.Contains(small, module) })
	if os.Getenv("KAHN_LONG") != "" {
		return append(large, small...)
	}
	return append([]string{large[sum%uint32(len(large))]}, small...)
}

// TestRelease publishes a release of the last commit to a proxy in the file system, and installs and runs the command. It needs the environment
// variable KAHN_SAMPLE, which .ci/run sets, or KAHN_LONG. For each module a user's program requires only this module, and the go command resolves
// its packages, including embedded files. The programs of the modules that built returns are compiled and run.
func TestRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv("KAHN_SAMPLE") == "" && os.Getenv("KAHN_LONG") == "" {
		t.Skip("KAHN_SAMPLE=1 plays a release, which unpacks and resolves all that the modules require; KAHN_LONG=1 compiles all of it, too")
	}
	sum := fnv.New32a()
	for _, file := range append(goMods(), "internal/release/release.sh", command+"/version.go") { // read here, so that the go command's cached result depends on these files
		text, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		_, _ = sum.Write(text) // a hash cannot fail
	}
	dir := t.TempDir()
	clone, proxy := filepath.Join(dir, "clone"), filepath.Join(dir, "proxy")
	run(t, ".", nil, "git", "clone", "-q", "--no-tags", strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel")), clone)
	run(t, clone, nil, "git", "config", "user.name", "release")
	run(t, clone, nil, "git", "config", "user.email", "release@localhost")
	tags := strings.Fields(run(t, clone, nil, "bash", "internal/release/release.sh", version))
	require.Len(t, tags, len(uses)+1)
	require.Equal(t, version, tags[0], "the core comes first")
	require.Equal(t, command+"/"+version, tags[len(tags)-1], "the command requires other modules")
	for _, tag := range tags {
		publish(t, clone, proxy, strings.TrimSuffix(strings.TrimSuffix(tag, version), "/"))
	}
	_, err := exec.Command("bash", filepath.Join(clone, "internal/release/release.sh"), version).Output()
	require.Error(t, err, "the tags exist")

	env := map[string]string{}
	require.NoError(t, json.Unmarshal([]byte(run(t, ".", nil, "go", "env", "-json", "GOPROXY", "GOMODCACHE")), &env))
	user := []string{
		"GOWORK=off", "GONOSUMDB=*", "GOMODCACHE=" + filepath.Join(dir, "modules"), "GOBIN=" + filepath.Join(dir, "bin"),
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(env["GOMODCACHE"], "cache", "download") + "," + env["GOPROXY"],
	}
	// With -trimpath the build cache does not depend on the folder of the modules, which differs in each call of the test.
	const goflags = "GOFLAGS=-modcacherw -trimpath"
	for _, module := range slices.Sorted(maps.Keys(uses)) {
		use := uses[module]
		t.Run(path(module), func(t *testing.T) {
			home := filepath.Join(dir, "user", module)
			require.NoError(t, os.MkdirAll(home, 0o700))
			imports := ""
			if len(use.imports) > 0 {
				imports = `"` + strings.Join(use.imports, "\"\n\t\"") + `"`
			}
			write(t, filepath.Join(home, "main.go"), fmt.Sprintf(program, imports, use.text))
			write(t, filepath.Join(home, "go.mod"), "module user.example\n\ngo 1.25.0\n\nrequire "+path(module)+" "+version+"\n")
			if !slices.Contains(built(sum.Sum32()), module) {
				run(t, home, append(user, goflags+" -mod=mod"), "go", "list", "-deps", ".")
				return
			}
			run(t, home, append(user, goflags+" -mod=mod"), "go", "build", "-o", "program", ".")
			require.Equal(t, "completed\n", run(t, home, nil, "./program"))
		})
	}
	t.Run("install", func(t *testing.T) {
		home := filepath.Join(dir, "installer")
		require.NoError(t, os.MkdirAll(home, 0o700))
		run(t, home, append(user, goflags), "go", "install", path(command)+"@latest")
		installed := filepath.Join(dir, "bin", "kahn")
		require.Equal(t, "kahn "+version+"\nlibrary "+version+"\ngo "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n", run(t, home, nil, installed, "version"))
		write(t, filepath.Join(home, "hello.yaml"), "version: 1\nnodes: [{id: a, kind: template, config: {text: 'hello, user'}}]\n")
		require.Contains(t, run(t, home, nil, installed, "run", "-store", "runs.db", "hello.yaml"), "hello, user")
	})
}

// The script refuses to release a module with a requirement that users cannot fetch, in each form that the go command writes.
func TestReleaseRefusesAModule(t *testing.T) {
	t.Parallel()
	if os.Getenv("KAHN_SAMPLE") == "" && os.Getenv("KAHN_LONG") == "" {
		t.Skip("KAHN_SAMPLE=1 plays releases")
	}
	_, err := os.ReadFile("release.sh") // read here, so that the go command's cached result depends on this file
	require.NoError(t, err)
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, ".", nil, "git", "clone", "-q", "--no-tags", strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel")), clone)
	run(t, clone, nil, "git", "config", "user.name", "release")
	run(t, clone, nil, "git", "config", "user.email", "release@localhost")
	for _, edit := range [][]string{
		{"-replace=example.com/other=../../other"},
		{"-require=" + core + "/verify@v0.0.0"},
		{"-require=" + core + "/verify@v0.0.0-00010101000000-000000000000"},
	} {
		run(t, clone, []string{"GOWORK=off"}, "go", append([]string{"-C", command, "mod", "edit"}, edit...)...)
		run(t, clone, nil, "git", "commit", "-qam", "a requirement")
		out, err := exec.Command("bash", filepath.Join(clone, "internal/release/release.sh"), version).CombinedOutput()
		require.Error(t, err, "%v", edit)
		require.Contains(t, string(out), "release: cmd/kahn/go.mod requires what no user can fetch", "%v", edit)
		require.Empty(t, run(t, clone, nil, "git", "tag"))
		run(t, clone, nil, "git", "reset", "-q", "--hard", "HEAD^")
	}
}

// goMods returns the files go.mod of a release.
func goMods() (files []string) {
	for _, module := range append(slices.Sorted(maps.Keys(uses)), command) {
		files = append(files, filepath.Join(module, "go.mod"))
	}
	return files
}

// Without KAHN_LONG, built returns the small modules for every sum, and each other module for some sum.
func TestBuilt(t *testing.T) {
	t.Setenv("KAHN_LONG", "")
	tried := map[string]int{}
	for sum := range uint32(len(uses)) {
		for _, module := range built(sum) {
			tried[module]++
		}
	}
	require.Len(t, tried, len(uses))
	require.Equal(t, len(uses), tried[""])
	t.Setenv("KAHN_LONG", "1")
	require.ElementsMatch(t, slices.Collect(maps.Keys(uses)), built(0))
}

// All lists of modules agree. The workspace and RELEASE.md list released and unreleased modules. The script tags the released modules, the README
// installs them, and each of them except the command has a list of its API.
func TestModules(t *testing.T) {
	t.Parallel()
	text := func(name string) string {
		data, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		return string(data)
	}
	var work struct{ Use []struct{ DiskPath string } }
	require.NoError(t, json.Unmarshal([]byte(run(t, "../..", nil, "go", "work", "edit", "-json")), &work))
	var all []string
	for _, use := range work.Use {
		all = append(all, strings.TrimPrefix(strings.TrimPrefix(use.DiskPath, "."), "/"))
	}
	slices.Sort(all)
	code := regexp.MustCompile("`([a-z/]+)`")
	names := func(sentence string) (list []string) {
		found := regexp.MustCompile(sentence).FindStringSubmatch(strings.ReplaceAll(text("RELEASE.md"), "\n", " "))
		require.NotNil(t, found, "RELEASE.md does not say %q", sentence)
		for _, name := range code.FindAllStringSubmatch(found[1], -1) {
			list = append(list, name[1])
		}
		return list
	}
	imported := append(names(`The core and the modules (.*?) are released`), "")
	slices.Sort(imported)
	require.Equal(t, slices.Sorted(maps.Keys(uses)), imported)
	released := append(names(`are released together, under one version, with the command, module (.*?)\.`), imported...)
	slices.Sort(released)
	require.Equal(t, slices.Sorted(slices.Values(append([]string{command}, imported...))), released)
	both := append(names(`module \x60cmd/kahn\x60\. (.*?) are not released`), released...)
	slices.Sort(both)
	require.Equal(t, all, both)
	script := regexp.MustCompile(`(?m)^modules="(.*)"$`).FindStringSubmatch(text("internal/release/release.sh"))
	require.NotNil(t, script)
	tagged := append(strings.Fields(script[1]), "")
	slices.Sort(tagged)
	require.Equal(t, released, tagged)
	var installed []string
	for _, line := range regexp.MustCompile(`(?m)^    go get (\S+)`).FindAllStringSubmatch(text("README.md"), -1) {
		installed = append(installed, strings.TrimPrefix(strings.TrimPrefix(line[1], core), "/"))
	}
	slices.Sort(installed)
	require.Equal(t, imported, installed)
	require.Contains(t, text("README.md"), "    go install "+path(command)+"@latest")
	for _, module := range imported {
		require.NotEmpty(t, text(filepath.Join(module, "api.txt")))
	}
}

// path returns the path of the module in a directory.
func path(module string) string { return strings.TrimSuffix(core+"/"+module, "/") }

// publish puts the version of a module at its tag into the proxy.
func publish(t *testing.T, clone, proxy, module string) {
	at := filepath.Join(proxy, filepath.FromSlash(path(module)), "@v")
	require.NoError(t, os.MkdirAll(at, 0o700))
	tag := strings.TrimPrefix(module+"/"+version, "/")
	write(t, filepath.Join(at, "list"), version+"\n")
	write(t, filepath.Join(at, version+".info"), `{"Version":"`+version+`","Time":"2000-01-01T00:00:00Z"}`)
	write(t, filepath.Join(at, version+".mod"), run(t, clone, nil, "git", "show", tag+":"+strings.TrimPrefix(module+"/go.mod", "/")))
	args := []string{"archive", "--format=zip", "--prefix=" + path(module) + "@" + version + "/", "-o", filepath.Join(at, version+".zip"), tag + ":" + module, "--", "."}
	for file := range strings.FieldsSeq(run(t, clone, nil, "git", "ls-tree", "-r", "--name-only", tag+":"+module)) {
		if inner, ok := strings.CutSuffix(file, "/go.mod"); ok { // a nested module is not part of this module
			args = append(args, ":(exclude)"+inner)
		}
	}
	run(t, clone, nil, "git", args...)
}

func write(t *testing.T, file, text string) {
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

// run runs a program in a folder, with additional environment variables, and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s", name, args, &failure)
	return string(out)
}
