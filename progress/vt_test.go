package progress

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/creack/pty"
)

// terminal is a pseudo-terminal with a simulated screen. The screen supports only the control sequences that a frame may contain. It has its own
// table of character widths.
type terminal struct {
	t    *testing.T
	tty  *os.File // the program writes to it
	done chan struct{}

	width, height int
	cells         [][]string // an empty string is the right half of a wide character
	row, col      int        // of the next character; col may equal width
	hidden        bool       // whether the cursor is hidden
	noWrap        bool
	colour        bool
	snapshots     map[string]string
}

// newTerminal opens a terminal. Until close, a goroutine outside any synctest bubble reads what the program writes.
func newTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	v := &terminal{t: t, tty: tty, done: make(chan struct{}), width: width, height: height, snapshots: map[string]string{}}
	for range height {
		v.cells = append(v.cells, v.blank())
	}
	go func() {
		defer close(v.done)
		defer func() { _ = master.Close() }() // an error does not matter after reading
		all, err := readAll(master)
		if err != nil {
			t.Error(err)
		}
		v.interpret(all)
	}()
	return v
}

// onTerminal calls f in a synctest bubble with a terminal, takes a snapshot of the terminal at each of the times, and closes it.
func onTerminal(t *testing.T, width, height int, at []time.Duration, f func(*testing.T, *terminal)) *terminal {
	t.Helper()
	t.Setenv("CI", "")
	t.Setenv("TERM", "xterm")
	v := newTerminal(t, width, height)
	synctest.Test(t, func(t *testing.T) {
		go func() {
			start := time.Now()
			for _, d := range at {
				time.Sleep(d - time.Since(start))
				synctest.Wait()
				v.snapshot(d.String())
			}
		}()
		f(t, v)
	})
	v.close()
	return v
}

// readAll reads until the program's side of the terminal is closed. On Linux the read then returns an error, and readAll ignores this error.
func readAll(master *os.File) (string, error) {
	var all strings.Builder
	_, err := io.Copy(&all, master)
	if err != nil && strings.Contains(err.Error(), "input/output error") {
		err = nil
	}
	return all.String(), err
}

// snapshot saves the screen under a name, once all earlier output is on the screen.
func (v *terminal) snapshot(name string) {
	fmt.Fprintf(v.tty, "\x1b]%s\a", name)
}

// close closes the program's side and waits until all output is on the screen.
func (v *terminal) close() {
	_ = v.tty.Close() // may be the second Close
	<-v.done
}

func (v *terminal) blank() []string {
	return strings.Split(strings.Repeat(" ", v.width), "")
}

// String returns the text on the screen, without trailing blanks and blank lines.
func (v *terminal) String() string {
	var b strings.Builder
	for _, cells := range v.cells {
		b.WriteString(strings.TrimRight(strings.Join(cells, ""), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// atRest returns an error if the program has changed the state of the terminal and not restored it.
func (v *terminal) atRest() error {
	if v.hidden || v.noWrap || v.colour || v.col != 0 {
		return fmt.Errorf("cursor hidden %v, no wrap %v, coloured %v, column %d", v.hidden, v.noWrap, v.colour, v.col)
	}
	return nil
}

var sequence = regexp.MustCompile(`^\x1b(?:\[(\??)(\d*)([A-Za-z])|\]([^\a]*)\a)`)

func (v *terminal) interpret(text string) {
	for text != "" {
		if m := sequence.FindStringSubmatch(text); m != nil {
			v.control(m[1]+m[3], m[2], m[4])
			text = text[len(m[0]):]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		v.print(r, text[:size])
		text = text[size:]
	}
}

func (v *terminal) control(final, number, name string) {
	n, _ := strconv.Atoi(number)
	switch final + number {
	case "?l25", "?h25":
		v.hidden = final == "?l"
	case "?l7", "?h7":
		v.noWrap = final == "?l"
	case "m31", "m":
		v.colour = n == 31
	case "K":
		copy(v.cells[v.row][v.cursor():], v.blank())
	case "J":
		copy(v.cells[v.row][v.cursor():], v.blank())
		for row := v.row + 1; row < v.height; row++ {
			v.cells[row] = v.blank()
		}
	case "A" + number:
		if n < 1 || n > v.row {
			v.t.Errorf("%d lines up from line %d", n, v.row)
		}
		v.row = max(v.row-n, 0)
	case "":
		v.snapshots[name] = v.String()
	default:
		v.t.Errorf("control sequence %s%s", number, final)
	}
}

// cursor returns the column of the cursor. The cursor stays in the last column after a character was written there.
func (v *terminal) cursor() int { return min(v.col, v.width-1) }

func (v *terminal) print(r rune, text string) {
	switch {
	case r == '\r':
		v.col = 0
		return
	case r == '\n':
		if v.row++; v.row == v.height {
			v.row--
			v.cells = append(v.cells[1:], v.blank())
		}
		return
	case !unicode.IsPrint(r):
		v.t.Errorf("%q reached the terminal", r)
		return
	case unicode.Is(unicode.Mn, r):
		v.cells[v.row][max(v.col-1, 0)] += text
		return
	}
	width := 1
	if r >= 0x1100 && r <= 0x115f || r >= 0x2e80 && r <= 0xd7a3 || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300 && r <= 0x1faff {
		width = 2
	}
	if v.col+width > v.width && !v.noWrap {
		v.print('\r', "\r")
		v.print('\n', "\n")
	}
	if v.col+width > v.width {
		v.t.Errorf("%q does not fit into the line any more", r)
		return
	}
	v.cells[v.row][v.col] = text
	if width == 2 {
		v.cells[v.row][v.col+1] = ""
	}
	v.col += width
}
