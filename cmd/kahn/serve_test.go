//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// folder writes definitions into a folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// linesIn returns the lines of a file, or none if it does not exist.
func linesIn(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

const everySecond = `
version: 1
schedule: {every: 1s, inputs: {who: clock}}
nodes: [{id: log, kind: exec, config: {dir: '{{input "here"}}', command: [sh, -c, 'echo {{input "who"}} {{input "tick"}} >> ticks']}}]
`

// A command serves a folder: runs begin at the times of their schedules, over a store in a file, with a page. The command shuts down gracefully.
// The next command continues, and no tick runs twice.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"beat.yaml":      everySecond,
		"beat.test.yaml": "cases: [{name: none, expect: {status: completed}}]",
		"other.json":     `{"version": 1, "name": "greeting", "inputs": ["name"], "nodes": [{"id": "a", "kind": "template", "config": {"text": "hello {{input \"name\"}}"}}]}`,
		"notes.txt":      "no definition",
	})
	db, ticks := filepath.Join(dir, "runs.db"), filepath.Join(dir, "ticks")
	p := start(t, "serve", "-store", db, "-ui", "localhost:0", dir)
	until(t, p, "two ticks", func() bool { return len(linesIn(ticks)) >= 2 })
	url := linked(p.String())
	require.NotEmpty(t, url, p)
	var answer struct {
		Schedules []struct {
			Name string
			Next []string
			Last []struct{ ID, Status string }
		}
	}
	get(t, url+"api/v1/schedules", &answer)
	require.Len(t, answer.Schedules, 1)
	require.Equal(t, "beat", answer.Schedules[0].Name)
	require.Len(t, answer.Schedules[0].Next, 5)
	require.NotEmpty(t, answer.Schedules[0].Last)

	post(t, url+"api/v1/start?workflow=greeting", `{"inputs": {"name": "ann"}}`)
	until(t, p, "the run of the page", func() bool { return regexp.MustCompile(`greeting-\w+: completed`).MatchString(p.String()) })
	post(t, url+"api/v1/schedule/pause?schedule=beat", `{}`)
	get(t, url+"api/v1/schedules", &answer)
	require.Empty(t, answer.Schedules[0].Next)
	post(t, url+"api/v1/schedule/run?schedule=beat", `{}`)
	until(t, p, "the run of an operator", func() bool { return strings.Contains(p.String(), "/now: completed") })
	post(t, url+"api/v1/schedule/resume?schedule=beat", `{}`)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, p.exit(), p)
	require.Contains(t, p.String(), "beat: every 1s, next at ")
	before, said := len(linesIn(ticks)), p.String()

	p = start(t, "serve", "-store", db, "-ui", "none", dir)
	until(t, p, "further ticks", func() bool { return len(linesIn(ticks)) >= before+2 })
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.exit(), p)
	seen := map[string]bool{}
	for _, end := range regexp.MustCompile(`(beat@\S+Z): completed`).FindAllStringSubmatch(said+p.String(), -1) {
		require.False(t, seen[end[1]], end[1])
		seen[end[1]] = true
	}
	require.GreaterOrEqual(t, len(seen), 4)
	for _, line := range linesIn(ticks) {
		require.True(t, strings.HasPrefix(line, "clock 20"), line)
	}

	// A schedule whose definition is gone is reported, and can be removed.
	require.NoError(t, os.Remove(filepath.Join(dir, "beat.yaml")))
	p = start(t, "serve", "-store", db, "-ui", "none", filepath.Join(dir, "other.json"))
	until(t, p, "the report", func() bool { return strings.Contains(p.String(), "-forget beat") })
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.exit(), p)
	p = start(t, "serve", "-store", db, "-ui", "none", "-forget", "beat", filepath.Join(dir, "other.json"))
	until(t, p, "the begin", func() bool { return strings.Contains(p.String(), "serving 1 definition over") })
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.exit(), p)
	require.NotContains(t, p.String(), "none of the definitions")
}

// When the command ends, a running step gets some time to return. After this time the step is stopped, and the next command calls it again, as
// after a kill.
func TestServeStops(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"long.yaml": `
version: 1
schedule: {every: 1h}
nodes:
  - {id: first, kind: exec, config: {dir: '{{input "here"}}', command: [sh, -c, 'echo first >> log']}, next: second}
  - id: second
    kind: exec
    config: {dir: '{{input "here"}}', command: [sh, -c, 'echo second >> log; [ -e over ] || { echo $$ > pid; exec sleep 1000; }']}
`})
	db, log := filepath.Join(dir, "runs.db"), filepath.Join(dir, "log")
	serving := func(lease string) (p *process, url string) {
		p = start(t, "serve", "-store", db, "-lease", lease, "-grace", "50ms", "-ui", "localhost:0", dir)
		until(t, p, "the begin", func() bool { return strings.Contains(p.String(), "serving") })
		url = linked(p.String())
		until(t, p, "the schedule", func() bool {
			var answer struct{ Schedules []any }
			get(t, url+"api/v1/schedules", &answer)
			return len(answer.Schedules) == 1
		})
		return p, url
	}
	p, url := serving("1m") // a process that stops returns its lease
	post(t, url+"api/v1/schedule/run?schedule=long", `{}`)
	pid := pidIn(t, p, dir)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.exit(), p)
	require.Contains(t, p.String(), "steps were stopped")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	require.Equal(t, []string{"first", "second"}, linesIn(log))

	require.NoError(t, os.Remove(filepath.Join(dir, "pid")))
	p, _ = serving("3s")
	second := pidIn(t, p, dir)
	t.Cleanup(func() { _ = syscall.Kill(second, syscall.SIGKILL) })
	require.NoError(t, p.Process.Signal(syscall.SIGKILL))
	require.Equal(t, -1, p.exit())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "over"), nil, 0o600))
	p, _ = serving("1m")
	until(t, p, "the end", func() bool { return strings.Contains(p.String(), "completed after") })
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.exit(), p)
	require.Equal(t, []string{"first", "second", "second", "second"}, linesIn(log))
}

// If a definition or a flag is wrong, serve does not start, and reports all problems.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	db := "-store=" + filepath.Join(t.TempDir(), "runs.db")
	valid := "version: 1\nname: same\nschedule: {every: 1h}\nnodes: [{id: a, kind: fail, config: {message: x}}]\n"
	expect(t, exitUsage, "there is no definition in this folder", "", "serve", db, t.TempDir())
	expect(t, exitUsage, "no such file", "", "serve", db, filepath.Join(t.TempDir(), "x.yaml"))
	two := folder(t, map[string]string{"a.yaml": valid, "b.yaml": valid})
	expect(t, exitUsage, filepath.Join(two, "b.yaml")+": "+filepath.Join(two, "a.yaml")+` has the name "same", too`, "", "serve", db, two)
	names := folder(t, map[string]string{"a.yaml": valid, "b.yaml": "version: 1\nschedule: {name: same, every: 1h}\nnodes: [{id: a, kind: fail, config: {message: x}}]\n"})
	expect(t, exitUsage, `a.yaml has the name "same", too`, "", "serve", db, names)
	wrong := folder(t, map[string]string{"a.yaml": strings.Replace(valid, "every: 1h", "cron: 61 * * * *", 1), "b.yaml": "version: 1\nnodes: [{id: a, kind: none}]\n"})
	code, _, stderr := invoke(t, "", "serve", db, wrong)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, filepath.Join(wrong, "a.yaml")+`:3:18: bad schedule: cron "61 * * * *"`)
	require.Contains(t, stderr, filepath.Join(wrong, "b.yaml")+":2:")
	require.Contains(t, stderr, "nothing is served, because of 2 problems")
	for flag, part := range map[string]string{
		"-grace=-1s": "-grace must not be negative", "-keep=-1s": "-keep must not be negative", "-lease=0s": "-lease must be longer", "-runs=-1": "-runs and -limit must not be negative",
		"-forget=x": `-forget: unknown schedule "x"`, "-ui=8.8.8.8:80": "other machines may reach",
	} {
		expect(t, exitUsage, part, "", "serve", db, flag, file(t, "a.yaml", valid))
	}
	expect(t, exitUsage, "-ui-remote needs -ui", "", "serve", db, "-ui=none", "-ui-remote", file(t, "a.yaml", valid))
}

// Vet reports the defects of a schedule at their places.
func TestVetSchedule(t *testing.T) {
	t.Parallel()
	path := file(t, "a.yaml", "version: 1\nschedule:\n  cron: 30 2 * * 8\n  zone: Europe/Berlim\nnodes: [{id: a, kind: fail, config: {message: x}}]\n")
	code, stdout, _ := invoke(t, "", "vet", path)
	require.Equal(t, exitProblems, code)
	require.Equal(t, []string{
		path + `:3:9: bad schedule: cron "30 2 * * 8": day of week "8": end of range (8) above maximum (6): 8`,
		path + `:4:9: bad schedule: zone "Europe/Berlim" is not in the IANA database`,
	}, strings.Split(strings.TrimSpace(stdout), "\n"))
}
