package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		code int
		want []string // in what is printed
		errs string
	}{
		"all":            {nil, 0, []string{"begins as number 2\n", "held by run b-1\n", "As it should be"}, ""},
		"without turns":  {[]string{"-without", "turns"}, 1, []string{"begins as number 201\n"}, "turns: the run of b is to begin as number 2, not as number 201"},
		"without runs":   {[]string{"-without", "runs"}, 1, []string{"begins as number 2\n"}, "at once, expected up to 2"},
		"without shared": {[]string{"-without", "shared"}, 1, []string{"begins as number 2\n"}, "at once, expected up to 5"},
		"unknown":        {[]string{"-without", "why"}, 2, nil, "unexpected argument"},
		"more":           {[]string{"7"}, 2, nil, "unexpected argument"},
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
