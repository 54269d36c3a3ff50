package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// A mistake on the command line is refused before anything runs, and the error suggests a correction.
func TestSlips(t *testing.T) {
	t.Parallel()
	const approval = "definitions/approval.yaml"
	for _, row := range []struct {
		want string
		args []string
	}{
		{"usage: kahn COMMAND", nil},
		{`unknown command "vett"; did you mean "vet"?`, []string{"vett", approval}},
		{`unknown command "publish"; choose from vet, draw, run`, []string{"publish"}},
		{`unknown command "runn"; did you mean "run"?`, []string{"help", "runn"}},
		{`unknown flag -inptu; did you mean -input?`, []string{"run", approval, "-inptu", "out=x"}},
		{`unknown flag -colour; choose from -case, -kinds, -timeout, -v`, []string{"test", "-colour", approval}},
		{`unknown flag -x; the command has none`, []string{"completion", "-x", "bash"}},
		{`FILE is missing`, []string{"vet"}},
		{`SHELL is missing`, []string{"completion"}},
		{`unexpected argument "b"`, []string{"draw", approval, "b"}},
		{`unexpected argument "-lr"`, []string{"draw", "--", approval, "-lr"}},
		{`unknown value "dto"; did you mean "dot"?`, []string{"draw", "-format", "dto", approval}},
		{`unknown shell "fsh"; did you mean "fish"?`, []string{"completion", "fsh"}},
		{`flag needs an argument: -input`, []string{"run", approval, "-input"}},
		{`expected name=value`, []string{"run", "-input", "x", approval}},
		{`"[1" is not JSON`, []string{"run", "-input", "x:=[1", approval}},
		{`no such file`, []string{"vet", "missing.yaml"}},
		{`no such file`, []string{"draw", "missing.yaml"}},
		{`no such file`, []string{"run", "missing.yaml"}},
		{`no such file`, []string{"test", "missing.test.yaml"}},
		{`definitions/survey.json has no tests: none of these files exists: definitions/survey.test.yaml`, []string{"test", "definitions/survey.json"}},
		{`there is no case whose name contains "nothing"`, []string{"test", "-case", "nothing", approval}},
		{`-answer: there is no gate "aprove"; gates are approve; did you mean "approve"?`, []string{"run", "-answer", "aprove=yes", approval}},
		{`-input: there is no input "redaer"; inputs are out, reader; did you mean "reader"?`, []string{"run", "-input", "redaer=x", approval}},
		{`-input: here is the folder of the definition`, []string{"run", "-input", "here=/", approval}},
		{`-dry runs nothing`, []string{"run", "-dry", "-ask", approval}},
		{`-lease needs -store`, []string{"run", "-lease", "3s", approval}},
		{`-anew needs -node`, []string{"run", "-store", "x.db", "-run", "r", "-redrive", "-anew", approval}},
		{`-timeout must not be negative`, []string{"test", "-timeout", "-5s", approval}},
		{`invalid value "5" for flag -timeout: expected a duration with a unit, such as 30s`, []string{"run", "-timeout", "5", approval}},
		{`invalid value "30d" for flag -keep: expected a duration with a unit, such as 30s, 15m or 720h (30 days)`, []string{"serve", "-keep", "30d", "."}},
		{`invalid value "x" for flag -limit: expected a whole number`, []string{"run", "-limit", "x", approval}},
		{`unknown value "pretty"; choose from auto, tty, plain, json`, []string{"run", "-progress", "pretty", approval}},
		{`there is no nofile.yaml`, []string{"test", "nofile.yaml"}},
		{`-ask and -ui do not go together`, []string{"run", "-ui", ":0", "-ask", approval}},
		{`-ui-remote and -ui-stay need -ui`, []string{"run", "-ui-stay", approval}},
		{`other machines may reach 0.0.0.0; use localhost, or add -ui-remote`, []string{"run", "-ui", "0.0.0.0:0", approval}},
		{`other machines may reach example.com`, []string{"run", "-ui", "example.com:0", approval}},
		{`-ui: address here`, []string{"run", "-ui", "here", approval}},
		{`file is not a database`, []string{"run", "-store", "commands_test.go", approval}},
	} {
		code, stdout, stderr := invoke(t, "", row.args...)
		require.Equal(t, exitUsage, code, "%v", row.args)
		require.Empty(t, stdout, "%v", row.args)
		require.Contains(t, stderr, row.want, "%v", row.args)
	}
}

// namesOf finds gates and inputs in sub-graphs, expressions and templates, and nothing else.
func TestNames(t *testing.T) {
	t.Parallel()
	inside := file(t, "inside.yaml", `version: 1
nodes:
  - {id: g, graph: {nodes: [{id: ok, kind: gate}]}}
  - {id: t, kind: template, config: {text: 'hello {{with $x := input "who" "you"}}{{$x}}{{end}}, input "no"'}, when: "$inputs.name == 'x'"}
`)
	expect(t, exitUsage, `gates are g/ok`, "", "run", "-answer", "g/okay=yes", inside)
	expect(t, exitUsage, `inputs are name, who`, "", "run", "-input", "nmae=yes", inside)
	expect(t, exitOK, `hello me`, "", "run", "-answer", "g/ok=yes", "-input", "name=x", "-input", "who=me", inside)
}

// Inputs in a template are found even if the template reads a field of an input. A template that computes the name of an input may use any input.
func TestNamesInTemplates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{(input "user").name}}`:                     "inputs are user",
		`{{(param "user").name.first}}`:               "inputs are user",
		`{{"user" | input}}`:                          "",
		`{{with $n := "user"}}{{input $n}}{{end}}`:    "",
		`{{input (print "us" "er")}}`:                 "",
		`{{input (print "us" "er") "somebody else"}}`: "",
	} {
		definition := file(t, "names.yaml", "version: 1\nnodes:\n  - {id: t, kind: template, config: {text: '"+text+"'}}\n")
		code, stdout, stderr := invoke(t, "", "run", "-input", `user:={"name":{"first":"Ada"}}`, definition)
		require.Equal(t, exitOK, code, "%s: %s", text, stderr)
		require.Contains(t, stdout, "Ada", text)
		if want != "" {
			expect(t, exitUsage, want, "", "run", "-input", "usr=x", definition)
		}
	}
	expect(t, exitOK, "", "", "vet", file(t, "names.yaml", `version: 1
inputs: [user]
nodes: [{id: t, kind: template, config: {text: '{{with $n := "usr"}}{{input $n}}{{end}}'}}]
`))
	expect(t, exitProblems, `unknown input "usr"`, "", "vet", file(t, "names.yaml", `version: 1
inputs: [user]
nodes: [{id: t, kind: template, config: {text: '{{(input "usr").name}}'}}]
`))
}

// A file that cannot be read does not keep the problems of other files from being reported.
func TestVetWithoutAFile(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := invoke(t, "", "vet", "missing.yaml", "testdata/vet/graph.yaml")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "no such file")
	require.Contains(t, stdout, "timout")
}

func TestVetFindsNothing(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("definitions/*")
	require.NoError(t, err)
	require.Len(t, files, 5)
	code, stdout, stderr := invoke(t, "", append([]string{"vet"}, files...)...)
	require.Equal(t, exitOK, code)
	require.Empty(t, stdout+stderr)
	code, stdout, _ = invoke(t, "", "vet", "-format", "json", files[0])
	require.Equal(t, exitOK, code)
	require.Equal(t, "[]\n", stdout)
}

// A definition with problems is neither drawn nor run, and the problems are reported.
func TestProblemsStopEverything(t *testing.T) {
	t.Parallel()
	const bad = "testdata/vet/graph.yaml"
	expect(t, exitProblems, `unknown field "timout"`, "", "draw", bad)
	expect(t, exitUsage, `unknown field "timout"`, "", "run", bad)
	expect(t, exitProblems, `unknown field "timout"`, "", "test", file(t, "x.test.yaml", "definition: "+absolute(t, bad)+"\ncases: [{name: x, expect: {status: failed}}]\n"))
}

func absolute(t *testing.T, path string) string {
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}

func TestDraw(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"mermaid": "flowchart TD\n", "dot": "digraph ", "svg": "<svg "} {
		expect(t, exitOK, want, "", "draw", "-format", format, "definitions/approval.yaml")
		out := filepath.Join(t.TempDir(), "picture")
		code, stdout, stderr := invoke(t, "", "draw", "definitions/approval.yaml", "-o", out, "-format", format)
		require.Equal(t, exitOK, code)
		require.Empty(t, stdout+stderr)
		contains(t, out, want)
	}
	expect(t, exitOK, "flowchart LR\n", "", "draw", "-lr", "definitions/approval.yaml")
	expect(t, exitUsage, "no such file", "", "draw", "-o", filepath.Join(t.TempDir(), "none", "x"), "definitions/approval.yaml")
}

// A problem of a definition is reported once, even if its tests are vetted, too.
func TestVetWithTests(t *testing.T) {
	t.Parallel()
	definition := tested(t, "version: 1\nnodes: [{id: a, kind: exce}]\n", "cases: [{name: x, expect: {status: failed}}]\n")
	dir := filepath.Dir(definition)
	_, stdout, _ := invoke(t, "", "vet", dir+"/./work.yaml", filepath.Join(dir, "work.test.yaml"))
	require.Equal(t, 1, strings.Count(stdout, `unknown kind "exce"`), stdout)
}

// A definition cannot declare the input "here", which is the folder of the definition.
func TestReservedInput(t *testing.T) {
	t.Parallel()
	_, stdout, _ := invoke(t, "", "vet", file(t, "here.yaml", `version: 1
inputs: [who, {name: here, default: x}]
nodes: [{id: a, kind: template, config: {text: '{{input "here"}} {{input "who"}}'}}]
`))
	require.True(t, strings.HasSuffix(stdout, "here.yaml:2:15: here is the folder of the definition; give the input another name\n"), stdout)
	require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
}

// The schema for editors accepts each definition that vet accepts, and refuses each config that vet refuses.
func TestSchema(t *testing.T) {
	t.Parallel()
	code, text, _ := invoke(t, "", "schema")
	require.Equal(t, exitOK, code)
	contract := compile([]byte(text))
	check := func(file string) (messages string) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		root, err := parserOf(file)(data, definition.Limits{})
		require.NoError(t, err)
		for _, violation := range contract.Check(valueOf(root)) {
			messages += violation.String() + "\n"
		}
		return messages
	}
	for _, good := range []string{"definitions/approval.yaml", "definitions/release.yaml", "definitions/survey.json"} {
		require.Empty(t, check(good))
	}
	for want, node := range map[string]string{
		"/nodes/0/kind: expected ":                               "{id: a, kind: exce}",
		"/nodes/0/config/command: the field is missing":          "{id: a, kind: exec, config: {}}",
		"/nodes/0/config/cmd: there is no field of this name":    "{id: a, kind: exec, config: {command: [ls], cmd: x}}",
		"/nodes/0/config/env/CGO: expected text, got a number":   "{id: a, kind: exec, config: {command: [ls], env: {CGO: 0}}}",
		"/nodes/0/config/expect: expected at most 599, got 2000": "{id: a, kind: http, config: {url: x, expect: 2000}}",
	} {
		require.Contains(t, check(file(t, "a.yaml", "version: 1\nnodes: ["+node+"]\n")), want)
	}

	code, text, _ = invoke(t, "", "schema", "-test")
	require.Equal(t, exitOK, code)
	require.True(t, json.Valid([]byte(text)))
	require.Equal(t, string(testSchema), text)
}

// Each completion script is generated from the table of commands and contains all commands and flags. bash can run its script and complete with
// it.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for shell := range completions() {
		code, script, _ := invoke(t, "", "completion", shell)
		require.Equal(t, exitOK, code)
		for _, name := range commandNames() {
			require.Contains(t, script, name)
		}
		for _, word := range []string{"ui-remote", "mermaid dot svg", "auto tty plain json", "bash zsh fish"} {
			require.Contains(t, script, word, shell)
		}
	}
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	for line, want := range map[string]string{
		"kahn ":                         "completion draw help list run schema serve test version vet",
		"kahn v":                        "version vet",
		"kahn run -ui":                  "-ui -ui-remote -ui-stay",
		"kahn draw -format ":            "dot mermaid svg",
		"kahn run -progress p":          "plain",
		"kahn completion ":              "bash fish zsh",
		"kahn vet definitions/approval": "definitions/approval.test.yaml definitions/approval.yaml",
		"kahn run -input ":              "",
	} {
		words := strings.Split(line, " ")
		script := bashCompletion() + "COMP_WORDS=(" + quoted(words) + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_kahn\nprintf '%s\\n' \"${COMPREPLY[@]}\" | sort | tr '\\n' ' '\n"
		out, err := exec.Command(bash, "-c", script).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, strings.TrimSpace(string(out)), line)
	}
}

func quoted(words []string) string {
	var b strings.Builder
	for _, word := range words {
		b.WriteString("'" + word + "' ")
	}
	return b.String()
}

// vet reports templates with the name of a node that is not an ancestor, or of a parameter that no edge delivers, also in sub-graphs. It does not
// report names that the node may have.
func TestVetScope(t *testing.T) {
	t.Parallel()
	code, stdout, _ := invoke(t, "", "vet", file(t, "scope.yaml", `
version: 1
inputs: [given]
nodes:
  - {id: a, kind: template, config: {text: '{{param "given"}} {{param "here"}} {{param "gone"}} {{error "a"}}'}}
  - {id: b, kind: template, config: {text: '{{status "a"}}'}}
  - {id: c, kind: template, after: b, config: {text: '{{status "b"}} {{param "lost"}}'}}
  - {id: d, kind: template, after: {from: c, param: text}, params: {x: 1}, config: {text: '{{param "text"}} {{param "x"}} {{param "txet"}} {{error "b"}}'}}
  - {id: e, kind: template, after: d, ports: [{name: p, default: 1}], config: {text: '{{param "p"}}'}}
  - {id: m, kind: template, after: {from: e, param: l}, map: {over: l}, config: {text: '{{param "item"}} {{param "index"}} {{param "l"}}'}}
  - id: s
    after: {from: e, param: l}
    map: {over: l}
    graph:
      nodes:
        - {id: x, kind: template, config: {text: '{{param "item"}}'}}
        - {id: w, kind: template, after: x, config: {text: '{{param "item"}} {{status "x"}}'}}
        - {id: z, kind: template, config: {text: '{{status "x"}}'}}
`))
	require.Equal(t, exitProblems, code)
	var found []string
	for line := range strings.Lines(stdout) {
		_, problem, _ := strings.Cut(line, ": node ")
		found = append(found, strings.TrimSpace(problem))
	}
	require.Equal(t, []string{
		`"a": template: nothing delivers a parameter "gone": let an edge to this node have it as its param, or write it into params, ports or inputs`,
		`"a": template: no edge leads from node "a" to this one, directly or through others, and templates see no other nodes; name it in the after of this node`,
		`"b": template: no edge leads from node "a" to this one, directly or through others, and templates see no other nodes; name it in the after of this node`,
		`"c": template: nothing delivers a parameter "lost": let an edge to this node have it as its param, or write it into params, ports or inputs`,
		`"d": template: nothing delivers a parameter "txet": let an edge to this node have it as its param, or write it into params, ports or inputs; did you mean "text"?`,
		`"s/w": template: nothing delivers a parameter "item": let an edge to this node have it as its param, or write it into params, ports or inputs`,
		`"s/z": template: no edge leads from node "x" to this one, directly or through others, and templates see no other nodes; name it in the after of this node`,
	}, found)
}

// Inside a map the inputs item and index exist, and inside a loop the input iteration, whether or not they are declared.
func TestVetInputsOfComposites(t *testing.T) {
	t.Parallel()
	code, stdout, _ := invoke(t, "", "vet", file(t, "inputs.yaml", `
version: 1
inputs: [who]
nodes:
  - id: M
    params: {list: [1]}
    map: {over: list}
    graph: {inputs: [list], nodes: [{id: x, kind: template, config: {text: '{{input "item"}} {{input "index"}} {{input "list"}} {{input "who"}} {{input "lits"}}'}}]}
  - id: L
    loop: {until: '$inputs.iteration == 2', max_iterations: 3}
    graph: {inputs: [{name: previous, optional: true}], nodes: [{id: x, kind: template, config: {text: '{{input "iteration"}} {{input "item"}}'}}]}
`))
	require.Equal(t, exitProblems, code, stdout)
	require.Contains(t, stdout, `node "M/x": template: unknown input "lits" (choose from who, list, item, index, here); did you mean "list"?`)
	require.Contains(t, stdout, `node "L/x": template: unknown input "item" (choose from who, previous, iteration, here)`)
	require.Equal(t, 2, strings.Count(stdout, "\n"), stdout)
}

// broken is a writer whose Write fails.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// Every command fails and reports the error if its output cannot be written.
func TestBrokenOutput(t *testing.T) {
	t.Parallel()
	definition := file(t, "a.yaml", "version: 1\nnodes: [{id: a, kind: template, config: {text: x}}]\n")
	for _, args := range [][]string{
		{"run", definition}, {"run", "-dry", definition}, {"run", "-v", definition}, {"draw", definition}, {"schema"}, {"help"}, {"help", "run"},
		{"completion", "bash"}, {"version"}, {"vet", "-format", "json", definition}, {"test", "definitions/approval.yaml"},
	} {
		var errs bytes.Buffer
		code := kahnCommand(t.Context(), args, newTerminal(strings.NewReader(""), broken{}, &errs))
		require.Equal(t, exitProblems, code, "%v: %s", args, &errs)
		require.Equal(t, 1, strings.Count(errs.String(), "kahn: the standard output: the disk is full\n"), "%v: %s", args, &errs)
	}
}

// If there are very many problems, vet reports the first ones, and the number of the remaining ones.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("version: 1\nnodes:\n")
	for i := range 300 { // each node has two problems
		fmt.Fprintf(&b, "  - {id: n%d, kind: sleep, timeout: soon}\n", i)
	}
	_, stdout, _ := invoke(t, "", "vet", file(t, "a.yaml", b.String()))
	require.Equal(t, maxProblems+1, strings.Count(stdout, "\n"), stdout)
	require.True(t, strings.HasSuffix(stdout, ": and 500 more problems\n"), stdout)
}

// A node that was running when its run was left is reported with a status and without an error.
func TestReportOfALeftRun(t *testing.T) {
	t.Parallel()
	var g kahn.Graph
	begun, left := make(chan struct{}), make(chan struct{})
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b"})
	var rec kahntest.Recorder
	run, err := kahn.Start(t.Context(), &g, func(context.Context, *kahn.Step) (any, error) {
		close(begun)
		<-left
		return nil, nil
	}, kahn.OnEvent(rec.Add), kahn.Limit(1))
	require.NoError(t, err)
	<-begun
	run.Leave()
	close(left)
	res, _ := run.Wait()
	require.NoError(t, kahntest.CheckEvents(&g, res, rec.Events()))
	var b strings.Builder
	reportNodes(&b, res)
	require.Equal(t, "b: ready when the run stopped\n", b.String())
}
