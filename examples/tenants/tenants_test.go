package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		code int
		want []string // in the output
		errs string
	}{
		"all":     {nil, 0, []string{"begins as number 2\n", "held by run b-1\n", "nightly: a, b and c", "As it should be"}, ""},
		"without": {[]string{"-without", "turns"}, 1, []string{"begins as number 201\n"}, "tenants: turns: the run of b is to begin as number 2, not as number 201"},
		"unknown": {[]string{"-without", "why"}, 2, nil, "unexpected argument"},
		"more":    {[]string{"7"}, 2, nil, "unexpected argument"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := command(row.args, &out, &errs)
			if code != row.code || !strings.Contains(errs.String(), row.errs) || row.errs == "" && errs.Len() > 0 || row.want == nil && out.Len() > 0 {
				t.Errorf("exit code %d\n%s%s", code, &out, &errs)
			}
			for _, want := range row.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
		})
	}
}

// TestClaims checks that each claim fails without the setting that makes it true.
func TestClaims(t *testing.T) {
	want := map[string]string{
		"turns": "as number 201", "runs": "at once, expected up to 2", "shared": "at once, expected up to 5", "nightly": `has the key ""`,
	}
	for _, claim := range claims {
		text, ok := want[claim.name]
		if !ok {
			continue
		}
		var out bytes.Buffer
		err := claim.check(t.Context(), &out, filepath.Join(t.TempDir(), "runs.db"), false)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v\n%s", claim.name, err, &out)
		}
	}
}
