package docs

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
)

// table returns the cells of the first table after a heading, without the table's head.
func table(t *testing.T, text, heading string) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(text, heading)
	require.True(t, found, heading)
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00")
		if strings.HasPrefix(line, "#") {
			break
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "|---") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.ReplaceAll(strings.TrimSpace(cell), "\x00", "|"))
		}
		rows = append(rows, cells)
	}
	return rows[1:]
}

var quoted = regexp.MustCompile("`([^`]+)`")

// joins maps the names of constants to join rules, and modes to skip modes.
var (
	joins = map[string]kahn.Join{
		"AllSucceeded": kahn.AllSucceeded, "AnySucceeded": kahn.AnySucceeded, "AllDone": kahn.AllDone, "AllDoneMinOne": kahn.AllDoneMinOne, "OneFailed": kahn.OneFailed,
		"AllFailed": kahn.AllFailed, "NoneFailed": kahn.NoneFailed, "NoneSkipped": kahn.NoneSkipped, "AllSkipped": kahn.AllSkipped, "OneDone": kahn.OneDone,
	}
	modes = map[string]machine.SkipMode{"SkipStrict": kahn.SkipStrict, "SkipSatisfy": kahn.SkipSatisfy}
)

// Both tables of docs/joins.md agree with the engine.
func TestJoinsGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/joins.md")
	require.NoError(t, err)
	rules := table(t, string(guide), "## Trigger rules of Airflow")
	require.Len(t, rules, 11)
	columns := []string{"SS", "SN", "SX", "NN", "SF", "NF", "FF"}
	for _, row := range rules {
		var n kahn.Node
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			join, isJoin := joins[name[1]]
			mode, isMode := modes[name[1]]
			require.True(t, isJoin || isMode, name[1])
			if isJoin {
				n.Join = join
			} else {
				n.SkipMode = mode
			}
		}
		for i, letters := range columns {
			status, err := kahntest.Joined(n, letters)
			require.NoError(t, err)
			want := "skipped"
			switch status {
			case "ok":
				want = "runs"
			case "X":
				want = "aborted"
			}
			require.Equal(t, want, row[2+i], "%s, %s", row[0], letters)
		}
	}

	expressions := table(t, string(guide), "## Depends expressions of Argo")
	require.Len(t, expressions, len(depends))
	for _, row := range expressions {
		expression, notation := strings.Trim(row[0], "`"), strings.Trim(row[2], "`")
		runs, ok := depends[expression]
		require.True(t, ok, expression)
		for _, a := range ends {
			for _, b := range ends {
				require.Equal(t, runs(a, b), performs(t, notation, a, b), "%s, which is %s, with A %v and B %v", expression, notation, a, b)
			}
		}
	}
}

// ends lists the ways in which a node before T can end.
var ends = []kahn.Status{kahn.Completed, kahn.Failed, kahn.Skipped}

// depends maps Argo's expressions to their meaning by Argo's documentation. The name of a task alone means that it succeeded or was skipped.
var depends = map[string]func(a, b kahn.Status) bool{
	"A && B": func(a, b kahn.Status) bool { return a != kahn.Failed && b != kahn.Failed },
	"A.Succeeded && B.Succeeded": func(a, b kahn.Status) bool {
		return a == kahn.Completed && b == kahn.Completed
	},
	"A || B": func(a, b kahn.Status) bool { return a != kahn.Failed || b != kahn.Failed },
	"A.Succeeded || B.Succeeded": func(a, b kahn.Status) bool {
		return a == kahn.Completed || b == kahn.Completed
	},
	"A.Failed":                func(a, _ kahn.Status) bool { return a == kahn.Failed },
	"A.Succeeded && B.Failed": func(a, b kahn.Status) bool { return a == kahn.Completed && b == kahn.Failed },
	"A.Failed || B.Failed":    func(a, b kahn.Status) bool { return a == kahn.Failed || b == kahn.Failed },
	"A.Failed && B.Failed":    func(a, b kahn.Status) bool { return a == kahn.Failed && b == kahn.Failed },
	"(A.Succeeded || A.Failed) && (B.Succeeded || B.Failed)": func(a, b kahn.Status) bool {
		return a != kahn.Skipped && b != kahn.Skipped
	},
}

// performs reports whether T runs in a graph whose nodes A and B end in the given ways.
func performs(t *testing.T, notation string, a, b kahn.Status) bool {
	t.Helper()
	status := map[string]kahn.Status{"A": a, "B": b}
	for id, s := range status {
		if s == kahn.Skipped {
			notation += " " + id + "{when:0}" // the node's own guard skips it, like Argo's when
		}
	}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if status[s.ID()] == kahn.Failed {
			return nil, errors.New("no luck")
		}
		return nil, nil
	}
	trial := kahntest.Run(t, kahntest.Graph(t, notation), step)
	n, ok := trial.Node("T")
	require.True(t, ok)
	return n.Status == kahn.Completed
}
