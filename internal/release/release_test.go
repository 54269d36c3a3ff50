// Package release tests how a release is made.
package release

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	core    = "github.com/seed-c794f7ef/kahn"
	version = "v0.0.1-played"
)

// uses are the modules of a release, each with code of a user.
var uses = map[string]string{
	"":                "import \"github.com/seed-c794f7ef/kahn\"\n\nvar _ kahn.Graph\n",
	"expression":      "import _ \"github.com/seed-c794f7ef/kahn/expression\"\n",
	"river":           "import _ \"github.com/seed-c794f7ef/kahn/river\"\n",
	"schema":          "import _ \"github.com/seed-c794f7ef/kahn/schema\"\n",
	"inspector":       "import _ \"github.com/seed-c794f7ef/kahn/inspector\"\n",
	"otel":            "import _ \"github.com/seed-c794f7ef/kahn/otel\"\n",
	"progress":        "import _ \"github.com/seed-c794f7ef/kahn/progress\"\n",
	"definition/yaml": "import _ \"github.com/seed-c794f7ef/kahn/definition/yaml\"\n",
	"store/postgres":  "import _ \"github.com/seed-c794f7ef/kahn/store/postgres\"\n",
	"store/sqlite":    "import _ \"github.com/seed-c794f7ef/kahn/store/sqlite\"\n",
	"temporal":        "import _ \"github.com/seed-c794f7ef/kahn/temporal\"\n",
}

// small are modules without large dependencies.
var small = map[string]bool{"": true, "progress": true}

// TestRelease publishes a release of the last commit to a proxy in the file system, if the environment variable KAHN_SAMPLE is set, which .ci/run
// does, or KAHN_LONG. For each module the go command resolves the packages
// of a user who requires it alone, embedded files included, and compiles the user's package if the module is small, or if the environment
// variable KAHN_LONG is set.
func TestRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv("KAHN_SAMPLE") == "" && os.Getenv("KAHN_LONG") == "" {
		t.Skip("KAHN_SAMPLE=1 plays a release, which unpacks and resolves all that the modules require; KAHN_LONG=1 compiles all of it, too")
	}
	for module := range uses { // the go command keeps no result for what these were before
		_, err := os.ReadFile(filepath.Join("../..", module, "go.mod"))
		require.NoError(t, err)
	}
	_, err := os.ReadFile("release.sh")
	require.NoError(t, err)
	dir := t.TempDir()
	clone, proxy := filepath.Join(dir, "clone"), filepath.Join(dir, "proxy")
	run(t, ".", "git", "clone", "-q", "--no-tags", strings.TrimSpace(run(t, ".", "git", "rev-parse", "--show-toplevel")), clone)
	run(t, clone, "git", "config", "user.name", "release")
	run(t, clone, "git", "config", "user.email", "release@localhost")
	tags := strings.Fields(run(t, clone, "bash", "internal/release/release.sh", version))
	require.Len(t, tags, len(uses))
	require.Equal(t, version, tags[0], "the core comes first")
	for _, tag := range tags {
		publish(t, clone, proxy, strings.TrimSuffix(strings.TrimSuffix(tag, version), "/"))
	}
	_, err = exec.Command("bash", filepath.Join(clone, "internal/release/release.sh"), version).Output()
	require.Error(t, err, "the tags exist")

	env := map[string]string{}
	require.NoError(t, json.Unmarshal([]byte(run(t, ".", "go", "env", "-json", "GOPROXY", "GOMODCACHE")), &env))
	proxies := "file://" + proxy + ",file://" + filepath.Join(env["GOMODCACHE"], "cache", "download") + "," + env["GOPROXY"]
	for module, text := range uses {
		user := filepath.Join(dir, "user", module)
		require.NoError(t, os.MkdirAll(user, 0o700))
		write(t, filepath.Join(user, "user.go"), "package user\n\n"+text)
		write(t, filepath.Join(user, "go.mod"), "module user.example\n\ngo 1.25.0\n\nrequire "+path(module)+" "+version+"\n")
		cmd := exec.Command("go", "list", "-deps", ".")
		if small[module] || os.Getenv("KAHN_LONG") != "" {
			cmd = exec.Command("go", "build", ".")
		}
		cmd.Dir = user
		// -trimpath: the folder of the modules is another one each time, and what is compiled is not to depend on it.
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GONOSUMDB=*", "GOPROXY="+proxies,
			"GOMODCACHE="+filepath.Join(dir, "modules"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", path(module), out)
	}
}

// All lists of the modules agree: the workspace has those that are released and those that are not, the script tags the
// former, RELEASE.md names both, the README installs the former, and each of them has a list of its API.
func TestModules(t *testing.T) {
	t.Parallel()
	text := func(name string) string {
		data, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		return string(data)
	}
	var work struct{ Use []struct{ DiskPath string } }
	require.NoError(t, json.Unmarshal([]byte(run(t, "../..", "go", "work", "edit", "-json")), &work))
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
	released := append(names(`The core and the modules (.*?) are released`), "")
	slices.Sort(released)
	require.Equal(t, slices.Sorted(maps.Keys(uses)), released)
	both := append(names(`under one version\. (.*?) are not released`), released...)
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
	require.Equal(t, released, installed)
	for _, module := range released {
		require.NotEmpty(t, text(filepath.Join(module, "api.txt")))
	}
}

// path is the path of the module in a directory.
func path(module string) string { return strings.TrimSuffix(core+"/"+module, "/") }

// publish puts a module into the proxy, as it is at its tag.
func publish(t *testing.T, clone, proxy, module string) {
	at := filepath.Join(proxy, filepath.FromSlash(path(module)), "@v")
	require.NoError(t, os.MkdirAll(at, 0o700))
	tag := strings.TrimPrefix(module+"/"+version, "/")
	write(t, filepath.Join(at, "list"), version+"\n")
	write(t, filepath.Join(at, version+".info"), `{"Version":"`+version+`","Time":"2000-01-01T00:00:00Z"}`)
	write(t, filepath.Join(at, version+".mod"), run(t, clone, "git", "show", tag+":"+strings.TrimPrefix(module+"/go.mod", "/")))
	args := []string{"archive", "--format=zip", "--prefix=" + path(module) + "@" + version + "/", "-o", filepath.Join(at, version+".zip"), tag + ":" + module, "--", "."}
	for file := range strings.FieldsSeq(run(t, clone, "git", "ls-tree", "-r", "--name-only", tag+":"+module)) {
		if inner, ok := strings.CutSuffix(file, "/go.mod"); ok { // a module of its own is no part of this one
			args = append(args, ":(exclude)"+inner)
		}
	}
	run(t, clone, "git", args...)
}

func write(t *testing.T, file, text string) {
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s", name, args, &failure)
	return string(out)
}
