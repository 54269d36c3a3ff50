// Package nearest finds the name that is most similar to a misspelt name, for questions like "did you mean ...?".
package nearest

import (
	"strings"
	"unicode/utf8"
)

const (
	maxRunes = 64 // longer names are not compared
	maxSlips = 3
	compared = 1_000 // the maximum number of choices that are compared, to bound the time
)

// Name returns the choice that is most similar to the given name, or false if no choice is similar enough. Name ignores upper and lower case, and the
// separators "_", "-" and " ". It allows one slip for every three letters, but at most three slips. A slip is an additional letter, a missing letter,
// a wrong letter, or two neighbours in the wrong order. If several choices are equally similar, Name returns the first of them. If the name equals
// one of the choices, Name returns false. Name compares at most the first thousand choices.
func Name(written string, choices []string) (string, bool) {
	if utf8.RuneCountInString(written) > maxRunes {
		return "", false
	}
	folded := fold(written)
	best, at := maxSlips+1, -1
	for i, choice := range choices[:min(len(choices), compared)] {
		if choice == written {
			return "", false
		}
		if utf8.RuneCountInString(choice) > maxRunes {
			continue
		}
		c := fold(choice)
		allowed := min(max(len(folded), len(c))/3, maxSlips, best-1)
		if d := distance(folded, c, allowed); d <= allowed && len(c) > 0 {
			best, at = d, i
		}
	}
	if at < 0 {
		return "", false
	}
	return choices[at], true
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

func fold(name string) []rune { return []rune(strings.ToLower(separators.Replace(name))) }

// distance returns the number of slips between a and b (the optimal string alignment distance). If there are more than `allowed` slips, it returns
// a number above `allowed`.
func distance(a, b []rune, allowed int) int {
	if len(a)-len(b) > allowed || len(b)-len(a) > allowed {
		return allowed + 1
	}
	var rows [3][maxRunes + 1]int // the current row and the two rows before it
	before, last, this := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		this[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			d := last[j-1]
			if a[i-1] != b[j-1] {
				d++
			}
			d = min(d, last[j]+1, this[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			this[j] = d
			least = min(least, d)
		}
		if least > allowed {
			// No number in a later row is less than `least`. Without a swap, each number is a number of the row before or an earlier number of its
			// own row, plus zero or one. With a swap, a number in the next row is last[j]+1 for some j. This number is not less than `least`, since
			// this[j] is at most last[j]+1.
			return allowed + 1
		}
		before, last, this = last, this, before
	}
	return last[len(b)]
}
