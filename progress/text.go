package progress

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// The function `clean` changes a text so that a terminal can safely show it on one line.
func clean(text string) string { return foreign.Line(text, math.MaxInt) }

// If a text is wider than the given number of columns, the function `fit` shortens the text: it cuts between grapheme clusters and adds "…". The
// text must be a result of the function `clean`.
func fit(text string, columns int) string {
	if uniseg.StringWidth(text) <= columns {
		return text
	}
	end, used, state := 0, 0, -1
	for rest := text; rest != ""; {
		cluster, more, width, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if used += width; used > columns-1 {
			break
		}
		end += len(cluster)
		rest, state = more, next
	}
	if columns < 1 {
		return ""
	}
	return text[:end] + "…"
}

// The function `beside` returns a line of the given width, with one text at the left and a short text at the right.
func beside(left, right string, columns int) string {
	left = fit(left, max(columns-len(right)-1, 0))
	gap := max(columns-uniseg.StringWidth(left)-len(right), 0)
	return fit(left+strings.Repeat(" ", gap)+right, columns)
}

// The function `clock` renders an elapsed time: "00:12", "1:02:03".
func clock(d time.Duration) string {
	s := int(max(d, 0) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// The function `tenths` renders the running time of a step: "3.2s", "1m03s", "1h02m".
func tenths(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(time.Second/10))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// The function `seconds` renders a duration: "1.500s".
func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

// The function `plural` renders a count with its noun: "1 run", "2 runs".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// The function `cut` shortens a text to at most the given number of bytes. It cuts between characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
