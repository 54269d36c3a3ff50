package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/chrometrace"
)

// good is a module without errors: c imports b, which imports a.
var good = map[string]string{
	"a/a.go": "package a\n\nconst Name = \"a\"\n",
	"b/b.go": "package b\n\nimport \"example.com/m/a\"\n\nfunc Name() string { return a.Name + \"b\" }\n",
	"c/c.go": "package c\n\nimport \"example.com/m/b\"\n\nvar Name = b.Name()\n",
}

// bad is good with a type error in b, and a package d that does not depend on it.
var bad = with(good, map[string]string{
	"b/b.go": "package b\n\nimport \"example.com/m/a\"\n\nfunc Name() int { return a.Name }\n",
	"d/d.go": "package d\n\nimport _ \"example.com/m/a\"\n",
})

func with(files, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, files)
	maps.Copy(all, more)
	return all
}

// module writes a module example.com/m and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	t.Setenv("GOPROXY", "off") // a missing package is not downloaded
	t.Setenv("GOTOOLCHAIN", "local")
	dir := t.TempDir()
	for name, text := range with(files, map[string]string{"go.mod": "module example.com/m\n\ngo 1.25\n"}) {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// gocheck runs the program and returns its exit code and what it wrote.
func gocheck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, progress bytes.Buffer
	code = run(t.Context(), args, &out, &progress)
	return code, out.String(), progress.String()
}

// gocheckJSON runs the program with -json, and returns the exit code and the decoded report.
func gocheckJSON(t *testing.T, args ...string) (int, report) {
	t.Helper()
	code, stdout, stderr := gocheck(t, append([]string{"-json"}, args...)...)
	var rep report
	if err := json.Unmarshal([]byte(stdout), &rep); err != nil {
		t.Fatalf("%v in %q, stderr %q", err, stdout, stderr)
	}
	return code, rep
}

// statuses returns the statuses of the packages of module example.com/m by their paths in it.
func (r *report) statuses() map[string]kahn.Status {
	m := map[string]kahn.Status{}
	for _, pkg := range r.Packages {
		if path, ok := strings.CutPrefix(pkg.Path, "example.com/m/"); ok {
			m[path] = pkg.Status
		}
	}
	return m
}

func (r *report) find(t *testing.T, path string) packageReport {
	t.Helper()
	i := slices.IndexFunc(r.Packages, func(p packageReport) bool { return p.Path == path })
	if i < 0 {
		t.Fatalf("no package %s in the report", path)
	}
	return r.Packages[i]
}

func wantStatuses(t *testing.T, got, want map[string]kahn.Status) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
}

func wantCode(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("exit code %d, want %d", got, want)
	}
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("no %q in:\n%s", w, got)
		}
	}
}

func TestCompleted(t *testing.T) {
	code, stdout, stderr := gocheck(t, "-C", module(t, good), "./...")
	wantCode(t, code, exitCompleted)
	wantText(t, stdout, "3 packages with 2 imports: 3 completed\nrun completed\n",
		"critical path", "3 packages, example.com/m/a to example.com/m/c\n")
	wantText(t, stderr, "run started: 3 nodes\n", " example.com/m/c: started\n", " [3/3] run completed in ")
}

// A second run checks only packages that have changed, and packages that import changed exports.
func TestCache(t *testing.T) {
	dir, cache := module(t, with(good, map[string]string{
		"a/a.go": "package a\n\nimport \"strings\"\n\ntype Names []string\n\nfunc (n Names) Text() string { return strings.Join(n, \", \") }\n\nconst Name = \"a\"\n",
		"b/b.go": "package b\n\nimport \"example.com/m/a\"\n\nfunc Name() string { return a.Name + \"b\" }\n\nfunc Names() a.Names { return a.Names{Name()} }\n",
		"c/c.go": "package c\n\nimport \"example.com/m/b\"\n\nvar Name = b.Names().Text()\n",
	})), t.TempDir()
	write := func(name, old, now string) {
		name = filepath.Join(dir, name)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), old) {
			t.Fatalf("no %q in %s", old, text)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(text), old, now, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name   string
		change func()
		called string // of the module
		code   int
	}{
		{"the first run", func() {}, "a b c", exitCompleted},
		{"nothing", func() {}, "", exitCompleted},
		{"a file is touched", func() {
			if err := os.Chtimes(filepath.Join(dir, "a/a.go"), time.Now(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}, "", exitCompleted},
		{"a body and a comment", func() { write("a/a.go", "return strings", "// Text joins.\n\treturn \"\" + strings") }, "a", exitCompleted},
		{"a constant that b uses inside", func() { write("a/a.go", `"a"`, `"aa"`) }, "a b", exitCompleted},
		{"a method", func() { write("a/a.go", "const Name", "func (n Names) More() {}\n\nconst Name") }, "a b c", exitCompleted},
		{"an error", func() { write("c/c.go", "b.Names().Text()", "b.Names().Texts()") }, "c", exitFailed},
		{"the error again", func() {}, "c", exitFailed},
		{"mended", func() { write("c/c.go", "Texts", "Text") }, "", exitCompleted},
		{"the last package", func() { write("c/c.go", "Text()", "Text() + b.Name()") }, "c", exitCompleted},
	} {
		x.change()
		code, rep := gocheckJSON(t, "-cache", cache, "-C", dir, "./...")
		wantCode(t, code, x.code)
		called, others := []string{}, 0
		for _, pkg := range rep.Packages {
			if path, ok := strings.CutPrefix(pkg.Path, "example.com/m/"); ok && !pkg.Cached {
				called = append(called, path)
			} else if !pkg.Cached {
				others++
			}
		}
		slices.Sort(called)
		if got := strings.Join(called, " "); got != x.called || (others > 0) != (x.name == "the first run") {
			t.Errorf("%s: called %q and %d others, want %q", x.name, got, others, x.called)
		}
	}
	if _, stdout, _ := gocheck(t, "-cache", cache, "-C", dir, "./..."); !strings.Contains(stdout, " of them as they were\n") {
		t.Error(stdout)
	}
}

func TestTypeError(t *testing.T) {
	dir := module(t, bad)
	want := map[string]kahn.Status{"a": kahn.Completed, "b": kahn.Failed, "c": kahn.Aborted, "d": kahn.Completed}
	for _, flags := range [][]string{nil, {"-limit", "1"}, {"-limit", "8"}, {"-waves"}} {
		code, rep := gocheckJSON(t, append(flags, "-C", dir, "./...")...)
		wantCode(t, code, exitFailed)
		wantStatuses(t, rep.statuses(), want)
		wantText(t, rep.find(t, "example.com/m/b").Error, filepath.FromSlash("b/b.go")+":5:26: cannot use a.Name")
		if origins := rep.find(t, "example.com/m/c").Origins; !slices.Equal(origins, []string{"example.com/m/b"}) {
			t.Errorf("c was aborted because of %v", origins)
		}
	}

	code, stdout, _ := gocheck(t, "-C", dir, "./a", "./b", "./c", "./d")
	wantCode(t, code, exitFailed)
	wantText(t, stdout, "example.com/m/b: failed (dependents aborted: 1)\n", "b.go:5:26: cannot use",
		"4 packages with 3 imports: 2 completed, 1 failed, 1 aborted\nrun failed\n")
}

func TestManyErrors(t *testing.T) {
	dir := module(t, map[string]string{"a/a.go": "package a\n\nvar (" + strings.Repeat("\n\t_ = missing", 20) + "\n)\n"})
	_, rep := gocheckJSON(t, "-C", dir, "./a")
	lines := strings.Split(rep.find(t, "example.com/m/a").Error, "\n")
	if len(lines) != maxErrors+1 || lines[maxErrors] != "too many errors" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// An error of the go command about a package fails only that package.
func TestUnloadable(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  map[string]kahn.Status
		error string
	}{
		"syntax": {
			files: map[string]string{"b/b.go": "package b\n\nfunc Name() string { return }}\n"},
			want:  map[string]kahn.Status{"a": kahn.Completed, "b": kahn.Failed, "c": kahn.Aborted},
			error: "b.go:3:30: ",
		},
		"syntax of imports": {
			files: map[string]string{"b/b.go": "package b\n\nimport \"fmt\n"},
			want:  map[string]kahn.Status{"a": kahn.Completed, "b": kahn.Failed, "c": kahn.Aborted},
			error: "b.go:3:8: ",
		},
		"missing import": {
			files: map[string]string{"b/b.go": "package b\n\nimport \"example.com/m/missing\"\n"},
			want: map[string]kahn.Status{
				"a": kahn.Completed, "missing": kahn.Failed, "b": kahn.Aborted, "c": kahn.Aborted,
			},
			error: "b.go:3:8: ",
		},
		"import cycle": {
			files: map[string]string{"b/b.go": "package b\n\nimport _ \"example.com/m/c\"\n"},
			// The go command reports the cycle for the package through which it enters the cycle.
			want:  map[string]kahn.Status{"a": kahn.Completed, "b": kahn.Failed, "c": kahn.Aborted},
			error: "example.com/m/b imports example.com/m/c imports example.com/m/b: import cycle not allowed",
		},
		"two packages": {
			files: map[string]string{"b/other.go": "package other\n"},
			want:  map[string]kahn.Status{"a": kahn.Completed, "b": kahn.Failed, "c": kahn.Aborted},
			error: "found packages b (b.go) and other (other.go)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, rep := gocheckJSON(t, "-C", module(t, with(good, test.files)), "./...")
			wantCode(t, code, exitFailed)
			wantStatuses(t, rep.statuses(), test.want)
			for _, pkg := range rep.Packages {
				if pkg.Status == kahn.Failed {
					wantText(t, pkg.Error, test.error)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	dir := module(t, good)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no pattern":         {nil, "usage: gocheck"},
		"unknown flag":       {[]string{"-x", "./..."}, "usage: gocheck"},
		"negative limit":     {[]string{"-C", dir, "-limit", "-1", "./..."}, "Limit(-1)"},
		"unknown progress":   {[]string{"-progress", "fancy", "./..."}, "usage: gocheck"},
		"negative timeout":   {[]string{"-C", dir, "-timeout", "-1s", "./..."}, "Timeout(-1s)"},
		"unknown package":    {[]string{"-C", dir, "./missing"}, "missing"},
		"unknown besides":    {[]string{"-C", dir, "./...", "example.com/m/missing"}, "missing"},
		"pattern of nothing": {[]string{"-C", dir, "missing/..."}, "no packages to check"},
		"not a package":      {[]string{"-C", dir, "--", "-x"}, "-x"},
		"unknown directory":  {[]string{"-C", filepath.Join(dir, "missing"), "./..."}, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gocheck(t, test.args...)
			wantCode(t, code, exitUsage)
			wantText(t, stderr, test.want)
			if stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
	code, _, stderr := gocheck(t, "-h")
	wantCode(t, code, exitCompleted)
	wantText(t, stderr, "usage: gocheck")
}

func TestTimeout(t *testing.T) {
	dir := module(t, nil)
	code, rep := gocheckJSON(t, "-C", dir, "-timeout", "1ns", "net/http")
	wantCode(t, code, exitFailed)
	if rep.Status != kahn.RunFailed || rep.Cause != kahn.ErrRunTimeout.Error() || rep.Statuses[kahn.Aborted] == 0 {
		t.Errorf("run %v, cause %q, statuses %v", rep.Status, rep.Cause, rep.Statuses)
	}
}

func TestCancelled(t *testing.T) {
	dir := module(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	atFirstLine := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	wantCode(t, run(ctx, []string{"-C", dir, "net/http"}, &stdout, atFirstLine), exitCancelled)
	wantText(t, stdout.String(), " cancelled\nrun cancelled: context canceled\n")

	// By now the context has ended, which stops the go command too.
	stdout.Reset()
	wantCode(t, run(ctx, []string{"-C", dir, "net/http"}, &stdout, io.Discard), exitCancelled)
	if stdout.Len() > 0 {
		t.Errorf("stdout %q", &stdout)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStandardLibrary checks the standard library in both modes, with generics, vendored packages and assembly. Only .ci/run runs it, since
// TestTrace also checks the library.
func TestStandardLibrary(t *testing.T) {
	if os.Getenv("KAHN_SAMPLE") == "" && os.Getenv("KAHN_LONG") == "" {
		t.Skip("KAHN_SAMPLE=1 checks the standard library in both modes")
	}
	dir := module(t, nil)
	for _, mode := range []string{"-waves=false", "-waves"} {
		code, rep := gocheckJSON(t, "-C", dir, mode, "std")
		wantCode(t, code, exitCompleted)
		if n := rep.Statuses[kahn.Completed]; n != len(rep.Packages) || n < 200 || rep.Imports < 5*n {
			t.Errorf("%d of %d packages completed, %d imports", n, len(rep.Packages), rep.Imports)
		}
		if rep.CriticalPath > rep.Wall || rep.SpeedUp > rep.Bound || len(rep.CriticalPackages) < 10 {
			t.Errorf("wall %v, critical path %v of %d packages, speed-up %v of %v",
				rep.Wall, rep.CriticalPath, len(rep.CriticalPackages), rep.SpeedUp, rep.Bound)
		}
	}
}

// The timeline of a check of the standard library is a valid trace, contains every package, and has as many slots as the limit.
func TestTrace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.json")
	code, rep := gocheckJSON(t, "-C", module(t, nil), "-limit", "3", "-trace", name, "std")
	wantCode(t, code, exitCompleted)
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // an error does not matter after reading
	timeline, err := chrometrace.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	named, tracks := map[string]int{}, map[int]bool{}
	for _, e := range timeline.TraceEvents {
		if e.Phase == "X" && strings.HasPrefix(*e.Cat, "attempt") {
			named[*e.Name]++
			tracks[*e.TID] = true
		}
	}
	for _, pkg := range rep.Packages {
		if named[pkg.Path] != 1 {
			t.Errorf("%s is named %d times", pkg.Path, named[pkg.Path])
		}
	}
	if len(named) != len(rep.Packages) || len(tracks) != 3 {
		t.Errorf("%d names for %d packages, %d slots", len(named), len(rep.Packages), len(tracks))
	}

	code, _, stderr := gocheck(t, "-C", module(t, good), "-trace", filepath.Join(t.TempDir(), "missing", "trace.json"), "./...")
	wantCode(t, code, exitUsage)
	wantText(t, stderr, "no such file")

	// The program finds an unwritable trace file before it does anything else.
	code, _, stderr = gocheck(t, "-C", filepath.Join(t.TempDir(), "nowhere"), "-trace", filepath.Join(t.TempDir(), "missing", "trace.json"), "./...")
	wantCode(t, code, exitUsage)
	wantText(t, stderr, "trace.json")
}
