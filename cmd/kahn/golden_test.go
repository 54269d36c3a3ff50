package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("write", false, "write the golden files anew, to be read before they are committed")

// golden compares a text with a file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run %s -write writes %s anew", t.Name(), path)
}

// The help of every command and the overview match the golden files.
func TestHelp(t *testing.T) {
	t.Parallel()
	code, text, _ := invoke(t, "", "help")
	require.Equal(t, exitOK, code)
	for _, name := range commandNames() {
		code, out, errs := invoke(t, "", "help", name)
		require.Equal(t, exitOK, code)
		require.Empty(t, errs)
		_, asked, _ := invoke(t, "", name, "-h")
		require.Equal(t, out, asked, "kahn %s -h", name)
		text += "\n---- kahn help " + name + "\n" + out
	}
	golden(t, "help.golden", text)
	for _, arg := range []string{"-h", "-help", "--help"} {
		code, out, _ := invoke(t, "", arg)
		require.Equal(t, exitOK, code)
		require.True(t, strings.HasPrefix(text, out))
	}
}

// vet reports all defects of files with many defects, sorted by place.
func TestVetGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/vet/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	code, text, errs := invoke(t, "", append([]string{"vet"}, files...)...)
	require.Equal(t, exitProblems, code, errs)
	for _, file := range files {
		require.Contains(t, text, filepath.ToSlash(file)+":")
	}
	golden(t, "vet.golden", filepath.ToSlash(text))
	code, text, _ = invoke(t, "", "vet", "-format", "json", "testdata/vet/kinds.yaml")
	require.Equal(t, exitProblems, code)
	golden(t, "vet.json.golden", text)
	code, text, _ = invoke(t, "", "vet", "-format", "github", "testdata/vet/kinds.yaml", "testdata/vet/unused.yaml")
	require.Equal(t, exitProblems, code)
	golden(t, "vet.github.golden", filepath.ToSlash(text))
}

// The SARIF report contains a place and a rule for each problem, as its readers require.
func TestVetSARIF(t *testing.T) {
	t.Parallel()
	strange := file(t, "a b%.yaml", "version: 1\nnodes:\n  - {id: a, kind: sleep, config: {for: soon}}\n")
	code, text, errs := invoke(t, "", "vet", "-format", "sarif", "testdata/vet/unused.yaml", strange)
	require.Equal(t, exitProblems, code, errs)
	var report struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct{ ID string }
				}
			}
			ColumnKind string
			Results    []struct {
				RuleID, Level string
				RuleIndex     int
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
					LogicalLocations []struct{ FullyQualifiedName string }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Equal(t, "2.1.0", report.Version)
	require.Len(t, report.Runs, 1)
	run := report.Runs[0]
	require.Equal(t, "kahn", run.Tool.Driver.Name)
	require.Equal(t, "unicodeCodePoints", run.ColumnKind)
	require.Len(t, run.Results, 5)
	levels := map[string]int{}
	for _, r := range run.Results {
		levels[r.Level]++
		require.Equal(t, r.RuleID, run.Tool.Driver.Rules[r.RuleIndex].ID)
		require.Len(t, r.Locations, 1)
		require.Positive(t, r.Locations[0].PhysicalLocation.Region.StartLine)
		require.NotEmpty(t, r.Message.Text)
	}
	require.Equal(t, map[string]int{"warning": 4, "error": 1}, levels)
	require.Equal(t, "testdata/vet/unused.yaml", run.Results[0].Locations[0].PhysicalLocation.ArtifactLocation.URI)
	last := run.Results[4]
	require.Equal(t, `node "a": config of kind sleep: for: expected a duration such as 1m30s`, last.Message.Text)
	at := last.Locations[0]
	require.Equal(t, "$.nodes[0].config.for", at.LogicalLocations[0].FullyQualifiedName)
	require.Equal(t, 3, at.PhysicalLocation.Region.StartLine)
	require.Equal(t, 40, at.PhysicalLocation.Region.StartColumn)
	require.True(t, strings.HasPrefix(at.PhysicalLocation.ArtifactLocation.URI, "file:///"), at.PhysicalLocation.ArtifactLocation.URI)
	require.True(t, strings.HasSuffix(at.PhysicalLocation.ArtifactLocation.URI, "/a%20b%25.yaml"), at.PhysicalLocation.ArtifactLocation.URI)

	_, text, _ = invoke(t, "", "vet", "-format", "sarif", "definitions/approval.yaml")
	require.Contains(t, text, `"results": []`)
}

// Characters that would end a workflow command of GitHub Actions, or its properties, are escaped.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	p := problem{File: "a,b:c%\r.yaml", Line: 3, Column: 7, Node: "n%0A", Severity: isError, Message: "100%\r\nof ::it, all"}
	require.Equal(t, `::error file=a%2Cb%3Ac%25%0D.yaml,line=3,col=7,title=kahn::node "n%250A": 100%25%0D%0Aof ::it, all`, p.annotation())
	require.Equal(t, `::warning file=x,title=kahn::whole`, problem{File: "x", Severity: isWarning, Message: "whole"}.annotation())
}
