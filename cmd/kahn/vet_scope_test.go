package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The names that a template may use depend on the edges of the definition. If an edge could not be read, a name that it may provide is not
// reported. All other problems are reported together.
func TestVetScopeBesideOtherProblems(t *testing.T) {
	t.Parallel()
	const text = `version: 1
inputs: [user]%s
nodes:
  - {id: a, kind: template, config: {text: x}%s}
  - {id: b, kind: template, after: %s, config: {text: '{{param "x"}} {{status "a"}}'}}
  - {id: c, kind: template, after: b, config: {text: '{{status "a"}}'}%s}
`
	for name, row := range map[string]struct {
		top, a, after, c string
		want             []string
	}{
		"nothing":                          {"", "", "{from: a, param: x}", "", nil},
		"another field":                    {"", ", timeout: 5", "{from: a, param: z}", "", []string{`expected a duration`, `parameter "x"`}},
		"another field at the top":         {"\nnmae: x", "", "{from: a, param: z}", "", []string{`"nmae"`, `parameter "x"`}},
		"a kind":                           {"", "", "{from: a, param: z}", ", groups: [pool]", []string{`group "pool"`, `parameter "x"`}},
		"no edge":                          {"", ", lable: x", "[]", "", []string{`"lable"`, `parameter "x"`, `from node "a"`, `from node "a"`}},
		"the field of an edge":             {"", "", "{from: a, parma: x}", "", []string{`"parma"`}},
		"the fields of an edge":            {"", "", "{form: a, param: x}", "", []string{`"form"`}},
		"an unknown node before":           {"", "", "{from: aa, param: x}", "", []string{`no node "aa"`}},
		"an unknown node before, no param": {"", "", "aa", "", []string{`no node "aa"`}},
		"an unknown node after":            {"", ", next: [{to: bb, param: x}]", "[]", "", []string{`no node "bb"`}},
		"the field of an edge after":       {"", ", next: [{to: b, praam: x}]", "[]", "", []string{`"praam"`}},
		"another edge after":               {"", ", next: [{to: c, praam: x}]", "a", "", []string{`"praam"`, `parameter "x"`}},
		"a field of the node":              {"", ", nxet: {to: b, param: x}", "[]", "", []string{`"nxet"`}},
		"any field of the node":            {"", ", zzzzzz: {to: b, param: x}", "[]", "", []string{`"zzzzzz"`}},
		"a field of another node":          {"", "", "a", ", aftre: a", []string{`"aftre"`, `parameter "x"`}},
		"a list of edges":                  {"\nedges: 5", "", "[]", "", []string{`expected a list`}},
		"another list of edges":            {"\nedegs: [{from: a, to: b, param: x}]", "", "[]", "", []string{`"edegs"`}},
		"an edge of the list":              {"\nedges: [{from: a, to: b, parm: x}]", "", "[]", "", []string{`"parm"`}},
		"an id":                            {"", "}\n  - {id: 5, next: {to: b, param: x}", "a", "", []string{`write it in quotes`}},
		"no id":                            {"", "}\n  - {next: {to: b, param: x}", "a", "", []string{`"id" is missing`}},
		"a cycle":                          {"", ", after: c", "{from: a, param: z}", "", []string{`cycle`, `parameter "x"`}},
		"params":                           {"", "", "a", "}\n  - {id: d, kind: template, after: a, params: 5, config: {text: '{{param \"z\"}}'}", []string{`expected an object`, `parameter "x"`}},
	} {
		path := file(t, "d.yaml", fmt.Sprintf(text, row.top, row.a, row.after, row.c))
		_, stdout, _ := invoke(t, "", "vet", path)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var errs []string
		for _, line := range lines {
			if line != "" && !strings.Contains(line, "warning:") {
				errs = append(errs, line)
			}
		}
		require.Len(t, errs, len(row.want), "%s:\n%s", name, stdout)
		for _, want := range row.want {
			at := -1
			for i, line := range errs {
				if strings.Contains(line, want) {
					at = i
				}
			}
			require.GreaterOrEqual(t, at, 0, "%s: %s\n%s", name, want, stdout)
			errs = append(errs[:at], errs[at+1:]...)
		}
	}
}

// A node without edges inside a composite may use the composite's parameters, even if the node has params.
func TestVetScopeOfInner(t *testing.T) {
	t.Parallel()
	_, stdout, _ := invoke(t, "", "vet", file(t, "inner.yaml", `version: 1
nodes:
  - {id: a, kind: template, config: {text: x}}
  - id: s
    after: {from: a, param: why}
    graph:
      nodes:
        - {id: x, kind: template, params: {z: 1}, config: {text: '{{param "why"}}{{param "z"}}'}}
        - {id: w, kind: template, after: x, config: {text: '{{param "why"}}'}}
`))
	require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
	require.Contains(t, stdout, `node "s/w": template: nothing delivers a parameter "why"`)
}

// Vetting templates with names of nodes is fast for many nodes, edges and templates.
func TestVetScopeOfManyNodes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("version: 1\nnodes:\n- {id: n0, kind: template, config: {text: x}}\n")
	const nodes = 3000
	for i := 1; i < nodes; i++ {
		fmt.Fprintf(&b, "- {id: n%d, kind: template, after: [n%d], config: {text: '{{status \"n0\"}}{{error \"n%d\"}}'}}\n", i, i-1, i-1)
	}
	begin := time.Now()
	_, found := performer{}.vet("many.yaml", []byte(b.String()))
	require.Empty(t, found)
	require.Less(t, time.Since(begin), time.Minute)
}

// An edge whose label the test of its node never yields causes a warning, wherever the edge is written.
func TestVetLabels(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"true": "", "No": "", "YES": "", "default": "", "flase": `did you mean "false"?`, "maybe": "answers true, false", "completed": "answers true, false",
	} {
		for _, edge := range []string{
			"branches: {'" + label + "': b}", "next: [{to: b, label: '" + label + "'}]", "id: c, after: {from: a, label: '" + label + "'}", "edges: '" + label + "'",
		} {
			test, rest, top := ", "+edge, "", ""
			if strings.HasPrefix(edge, "id: c") {
				test, rest = "", "\n  - {"+edge+", kind: template, config: {text: x}}"
			}
			if strings.HasPrefix(edge, "edges") {
				test, top = "", "\nedges: [{from: a, to: b, label: '"+label+"'}]"
			}
			path := file(t, "d.yaml", "version: 1"+top+"\nnodes:\n  - {id: s, kind: template, config: {text: x}}\n  - {id: a, after: s, test: '$nodes.s.output == 1'"+test+"}\n  - {id: b, kind: template, config: {text: x}}"+rest+"\n")
			code, stdout, stderr := invoke(t, "", "vet", path)
			require.Equal(t, exitOK, code, stdout+stderr)
			if want == "" {
				require.NotContains(t, stdout, "never taken", "%s in %s", label, edge)
			} else {
				require.Contains(t, stdout, "warning: ", stdout)
				require.Contains(t, stdout, fmt.Sprintf("the branch %q is never taken: the test of \"a\"", label), stdout)
				require.Contains(t, stdout, want)
			}
		}
	}
}
