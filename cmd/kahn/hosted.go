package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// performer says which program performs the steps of a definition: this command, or a host. This command knows only the names of a host's kinds.
type performer struct {
	hosted []string // the kinds of the host; nil if this command performs the steps
}

// The method `kinds` registers the flag -kinds, which names the kinds of a host.
func (f *flags) kinds(to *performer) {
	f.Func("kinds", "the kinds of a host, as `kind,kind`, or as @file with a kind a line; may be repeated", func(value string) error {
		list, err := kindsOf(value)
		to.hosted = append(to.hosted, list...)
		return err
	})
}

// kindsOf returns the kinds that a value of the flag -kinds names.
func kindsOf(value string) ([]string, error) {
	if file, ok := strings.CutPrefix(value, "@"); ok {
		return kindsIn(file)
	}
	if strings.TrimSpace(value) == "" {
		return nil, errors.New("the list of kinds is empty; name kinds as fetch,sql, or a file of kinds as @kinds.txt")
	}
	list := strings.Split(value, ",")
	for i, name := range list {
		list[i] = strings.TrimSpace(name)
		switch err := checkKind(list[i]); {
		case list[i] == "":
			return nil, errors.New("an empty name between commas")
		case strings.HasPrefix(list[i], "@"):
			return nil, fmt.Errorf("%s: give a file of kinds in a flag of its own: -kinds %[1]s", list[i])
		case err != nil:
			return nil, err
		}
	}
	if isFile := strings.ContainsAny(value, `./\`); isFile {
		if info, err := os.Stat(value); err == nil && info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is a file; -kinds @%[1]s reads the kinds in it", value)
		}
	}
	return list, nil
}

// kindsIn returns the kinds that a file lists.
func kindsIn(file string) (list []string, err error) {
	if file == "" {
		return nil, errors.New("the name of a file is missing after @")
	}
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if most := (definition.Limits{}).Resolved().Bytes; len(data) > most {
		return nil, fmt.Errorf("%s: it is longer than %d bytes", file, most)
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		number++
		name := strings.TrimSpace(withoutComment(line))
		if name == "" {
			continue
		}
		if err = checkKind(name); err == nil && strings.ContainsAny(name, ",:") {
			err = fmt.Errorf("%q: a line names one kind", name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		list = append(list, name)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s names no kind; each line names a kind, and # begins a comment", file)
	}
	return list, nil
}

// withoutComment removes the comment from a line. A comment begins with a # at the beginning of the line or after a space.
func withoutComment(line string) string {
	before := ' '
	for i, r := range line {
		if r == '#' && unicode.IsSpace(before) {
			return line[:i]
		}
		before = r
	}
	return line
}

// checkKind returns an error for a name that cannot be a kind in a definition.
func checkKind(name string) error {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("the kind %q has a character that no kind may have", name)
	}
	return nil
}

// The method `kinds` returns the kinds that a definition may name. It omits the schemas of the kinds, since vet checks configs itself: vet
// also checks documents that Load refuses.
func (p performer) kinds() map[string]definition.Kind {
	all := map[string]definition.Kind{}
	for _, name := range p.hosted {
		all[name] = definition.Kind{}
	}
	if p.hosted == nil {
		for name := range kinds {
			all[name] = definition.Kind{}
		}
	}
	return all
}

// The method `step` returns the step function of a definition. If a host performs the definition, the function returns an error for every
// node except the end node: this command cannot call the steps of a host.
func (p performer) step() kahn.StepFunc {
	if p.hosted == nil {
		return steps().Step
	}
	return func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Kind() == kahn.KindEnd {
			return nil, nil
		}
		return nil, kahn.Permanent(fmt.Errorf("a host performs the kind %q: the node needs a mock here", s.Kind()))
	}
}

// The method `inputs` returns the inputs of a run: the given inputs and, if this command performs the definition, the folder of the definition.
func (p performer) inputs(file string, given map[string]any) (map[string]any, error) {
	all := map[string]any{}
	if p.hosted == nil {
		root, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		all[here] = root
	}
	maps.Copy(all, given)
	return all, nil
}
