package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// An entry is a mutant in a list, with a note about the mutant.
type entry struct {
	plant.Bug
	note string
}

// readList reads a list of mutants. An entry is a paragraph:
//
//	machine/state_stop.go Locked.AskToStop
//	- the line, or lines, as they are, without their indentation
//	+ what stands there instead; nothing if they are deleted
//	a note, of one line or more
//
// If the lines occur several times in the function, "#2" after the function means the second occurrence. Lines that begin with # are comments.
func readList(name string) ([]entry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // an error does not matter after reading
	var list []entry
	var e *entry
	scanner := bufio.NewScanner(f)
	for number := 1; scanner.Scan(); number++ {
		line := scanner.Text()
		sign, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			e = nil
		case e == nil:
			list = append(list, entry{})
			e = &list[len(list)-1]
			words := strings.Fields(line)
			if len(words) == 3 {
				if _, err := fmt.Sscanf(words[2], "#%d", &e.Nth); err != nil {
					return nil, fmt.Errorf("%s:%d: %w", name, number, err)
				}
				e.Nth--
			}
			if len(words) < 2 || len(words) > 3 {
				return nil, fmt.Errorf("%s:%d: a file and a function are expected", name, number)
			}
			e.File, e.Func = words[0], words[1]
		case sign == "-":
			e.Old = join(e.Old, rest)
		case sign == "+":
			e.New = join(e.New, rest)
		default:
			e.note = join(e.note, line)
		}
	}
	return list, scanner.Err()
}

func join(text, line string) string {
	if text == "" {
		return line
	}
	return text + "\n" + line
}

// The function `format` returns a mutant in the form that readList reads. It removes the indentation of the lines.
func format(b plant.Bug) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s", b.File, b.Func)
	if b.Nth > 0 {
		fmt.Fprintf(&s, " #%d", b.Nth+1)
	}
	s.WriteByte('\n')
	for line := range strings.Lines(b.Old) {
		fmt.Fprintf(&s, "- %s\n", strings.TrimSpace(line))
	}
	if b.New != "" {
		for line := range strings.Lines(b.New) {
			fmt.Fprintf(&s, "+ %s\n", strings.TrimSpace(line))
		}
	}
	return s.String()
}

// The function `find` sets the Bug of every entry of a list to the Bug of the mutant with the same text. If there is no such mutant, find returns an
// error: the code has changed, so the entry must be changed or removed. It also returns an error for an entry without a note.
func find(list []entry, mutants []mutant) error {
	known := map[string]plant.Bug{}
	for _, m := range mutants {
		known[format(m.Bug)] = m.Bug
	}
	var errs []error
	for i, e := range list {
		b, ok := known[format(e.Bug)]
		if !ok {
			errs = append(errs, fmt.Errorf("no such mutant:\n%s", format(e.Bug)))
		}
		if e.note == "" {
			errs = append(errs, fmt.Errorf("this entry has no note:\n%s", format(e.Bug)))
		}
		list[i].Bug = b
	}
	return errors.Join(errs...)
}
