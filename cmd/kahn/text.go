package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// screenText prepares a text for the terminal if the text comes from a step, a command or a server. It makes escape sequences visible, and indents
// all lines except the first, so that they do not look like lines of this program.
func screenText(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = foreign.Line(strings.TrimSuffix(line, "\r"), math.MaxInt)
	}
	return strings.Join(lines, "\n    ")
}

// The function `visible` makes the escape sequences in a text of several lines visible. It keeps tabs and newlines.
func visible(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		columns := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		for j, column := range columns {
			columns[j] = foreign.Line(column, math.MaxInt)
		}
		lines[i] = strings.Join(columns, "\t")
	}
	return strings.Join(lines, "\n")
}

// The function `some` lists the first twelve names, and says how many more there are.
func some(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// shellWord renders a text as one word for a shell.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./:@%+,=", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// outputText renders the output of a run. Each value that has no JSON form is replaced by the error.
func outputText(output any) string {
	text, err := json.MarshalIndent(output, "", "  ")
	if err == nil {
		return string(text)
	}
	values, ok := output.(map[string]any)
	if !ok {
		return fmt.Sprintf("the output cannot be shown as JSON: %v", err)
	}
	values = maps.Clone(values)
	for name, value := range values {
		if _, err := json.MarshalIndent(value, "", "  "); err != nil {
			values[name] = fmt.Sprintf("cannot be shown as JSON: %v", err)
		}
	}
	if text, err = json.MarshalIndent(values, "", "  "); err != nil {
		return fmt.Sprintf("the outputs cannot be shown as JSON: %v", err)
	}
	return string(text)
}
