package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// terminal holds the standard input, the standard output and the standard error of a command.
type terminal struct {
	in   *bufio.Reader
	out  *output
	err  io.Writer
	both bool // the standard output and the standard error are terminals
}

func newTerminal(in io.Reader, out, err io.Writer) *terminal {
	t := &terminal{in: bufio.NewReader(in), out: &output{Writer: out}, err: err, both: isTerminal(out) && isTerminal(err)}
	return t
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// The method `write` writes to the standard output. It makes escape sequences visible, even in a file or a pipe, since a terminal may show the text
// later.
func (t *terminal) write(text string) {
	_, _ = io.WriteString(t.out, visible(text)) // t.out stores a write error
}

// writeJSON writes JSON to the standard output. It replaces each character that controls a terminal by the JSON escape of this
// character.
func (t *terminal) writeJSON(text string) {
	_, _ = t.out.Write(append(foreign.VisibleJSON([]byte(text)), '\n')) // t.out stores a write error
}

// output is the standard output. It stores the first write error, which the command reports when it ends.
type output struct {
	io.Writer
	mu  sync.Mutex // guards err
	err error
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = cmp.Or(o.err, err)
	return n, err
}

// The method `end` returns the exit code of a command. If a write to the standard output has failed, `end` reports this, and returns
// exitProblems instead of exitOK.
func (t *terminal) end(code int) int {
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	if t.out.err == nil {
		return code
	}
	t.printf("kahn: the standard output: %v\n", t.out.err)
	return cmp.Or(code, exitProblems)
}

// The method `refuse` reports an error, and returns exitUsage.
func (t *terminal) refuse(err error) int {
	t.printf("kahn: %v\n", err)
	return exitUsage
}

// printf writes to the standard error, and makes escape sequences visible.
func (t *terminal) printf(format string, args ...any) {
	_, _ = io.WriteString(t.err, visible(fmt.Sprintf(format, args...))) // a failure could not be reported anywhere
}

// manyFiles is the greatest number of arguments for commands that take a list of files.
const manyFiles = 1 << 20

// action performs a command and returns its exit code. args are the arguments without the flags.
type action func(ctx context.Context, t *terminal, args []string) int

// command is a subcommand. Its fields supply the usage text and the completions.
type command struct {
	name     string
	args     string          // the arguments, as the usage line names them
	least    int             // the least number of arguments
	most     int             // the greatest number of arguments
	alone    string          // the flag that replaces the arguments, or ""
	summary  string          // one line
	text     string          // the help below the summary
	words    func() []string // the possible arguments; nil if the arguments are names of files
	register func(*flags) action
}

// The function `commands` returns the subcommands, in the order of the help. The commands `help` and `completion` need the list. If the list
// were a variable, its initialization would depend on itself.
func commands() []command {
	return []command{vetCommand, drawCommand, runCommand, serveCommand, listCommand, testCommand, schemaCommand, completionCommand(), versionCommand, helpCommand()}
}

func helpCommand() command {
	return command{
		name: "help", args: "[COMMAND]", most: 1, summary: "explain a command", words: commandNames,
		text:     "Without a command it lists the commands.",
		register: func(*flags) action { return printHelp },
	}
}

// The function `named` returns the command with the given name. If there is none, it returns an error.
func named(name string) (*command, error) {
	for _, c := range commands() {
		if c.name == name {
			return &c, nil
		}
	}
	return nil, unknown("command", name, commandNames())
}

func commandNames() (list []string) {
	for _, c := range commands() {
		list = append(list, c.name)
	}
	return list
}

// kahnCommand runs the program, and returns the exit code instead of exiting the process.
func kahnCommand(ctx context.Context, args []string, t *terminal) int {
	if len(args) == 0 {
		writeOverview(t.err)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help":
		writeOverview(t.out)
		return exitOK
	case "-version", "--version":
		args = slices.Concat([]string{versionCommand.name}, args[1:])
	}
	c, err := named(args[0])
	if err != nil {
		return t.refuse(err)
	}
	f := newFlags(c)
	act := c.register(f)
	rest, err := f.parse(args[1:])
	least, most := c.least, c.most
	if c.alone != "" && slices.Contains(f.given(), c.alone) {
		least, most = 0, 0
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		writeUsage(t.out, c, f)
		return exitOK
	case err == nil && len(rest) < least:
		err = fmt.Errorf("%s is missing", strings.Trim(strings.TrimSuffix(c.args, "..."), "[]"))
	case err == nil && len(rest) > most:
		err = fmt.Errorf("unexpected argument %q", rest[most])
	}
	if err != nil {
		t.printf("kahn %s: %v\nRun \"kahn help %s\" for its flags.\n", c.name, err, c.name)
		return exitUsage
	}
	return t.end(act(ctx, t, rest))
}

// printHelp performs the command `kahn help`.
func printHelp(_ context.Context, t *terminal, args []string) int {
	if len(args) == 0 {
		writeOverview(t.out)
		return exitOK
	}
	c, err := named(args[0])
	if err != nil {
		return t.refuse(err)
	}
	f := newFlags(c)
	c.register(f)
	writeUsage(t.out, c, f)
	return exitOK
}

// The function `unknown` returns the error for a word that is not among the choices.
func unknown(what, written string, choices []string) error {
	if meant, ok := nearest.Name(written, choices); ok {
		return fmt.Errorf("unknown %s %q; did you mean %q?", what, written, meant)
	}
	return fmt.Errorf("unknown %s %q; choose from %s", what, written, strings.Join(choices, ", "))
}

// The type `flags` holds the flags of one command.
type flags struct {
	*flag.FlagSet
	choices map[string][]string // the allowed words of each flag that takes one of a few words
	files   map[string]bool     // flags whose values are names of files
}

func newFlags(c *command) *flags {
	f := &flags{flag.NewFlagSet(c.name, flag.ContinueOnError), map[string][]string{}, map[string]bool{}}
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// The method `given` returns the names of the flags that were set, in alphabetical order.
func (f *flags) given() (names []string) {
	f.Visit(func(g *flag.Flag) { names = append(names, g.Name) })
	return names
}

// The method `file` registers a flag that names a file.
func (f *flags) file(to *string, name, usage string) {
	f.Func(name, usage, func(text string) error {
		if *to = text; text == "" {
			return errors.New("the name of the file is empty")
		}
		return nil
	})
	f.files[name] = true
}

// The method `choice` registers a flag that takes one of the given words. The first word is its default.
func (f *flags) choice(to *string, name, usage string, words ...string) {
	*to = words[0]
	f.Var(&choice{to, words}, name, usage)
	f.choices[name] = words
}

// choice is a flag that takes one of a few words.
type choice struct {
	to    *string
	words []string
}

// String implements flag.Value.
func (c *choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Set implements flag.Value.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return unknown("value", word, c.words)
	}
	*c.to = word
	return nil
}

// The method `parse` parses the flags in args, and returns the other arguments. Flags may stand before, between and after these arguments. All words
// after "--" are arguments.
func (f *flags) parse(args []string) (rest []string, err error) {
	for {
		before := len(args)
		if err := f.Parse(args); err != nil {
			return nil, f.explain(err)
		}
		parsed := before - f.NArg()
		if parsed > 0 && args[parsed-1] == "--" {
			return append(rest, f.Args()...), nil
		}
		if f.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, f.Arg(0))
		args = f.Args()[1:]
	}
}

// invalidValue matches the error of package flag for a value that is no number or no duration. Its group is the name of the flag.
var invalidValue = regexp.MustCompile(`^invalid value (?s:.*) for flag -([^:]+): parse error$`)

// The method `explain` adds a suggestion or the list of flags to the error for an unknown flag. It says what a flag expects in place of a value that is
// no number or no duration. It returns other errors unchanged.
func (f *flags) explain(err error) error {
	if found := invalidValue.FindStringSubmatch(err.Error()); found != nil {
		expected := "a whole number"
		if value, ok := f.Lookup(found[1]).Value.(flag.Getter); ok {
			if _, ok := value.Get().(time.Duration); ok {
				expected = "a duration with a unit, such as 30s, 15m or 720h (30 days)"
			}
		}
		return fmt.Errorf("%s: expected %s", strings.TrimSuffix(err.Error(), ": parse error"), expected)
	}
	written, found := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !found {
		return err
	}
	var list []string
	f.VisitAll(func(g *flag.Flag) { list = append(list, g.Name) })
	switch meant, ok := nearest.Name(written, list); {
	case ok:
		return fmt.Errorf("unknown flag -%s; did you mean -%s?", written, meant)
	case len(list) == 0:
		return fmt.Errorf("unknown flag -%s; the command has none", written)
	}
	return fmt.Errorf("unknown flag -%s; choose from -%s", written, strings.Join(list, ", -"))
}

// writeOverview writes the list of commands.
func writeOverview(w io.Writer) {
	var b strings.Builder
	b.WriteString("kahn checks, draws, runs and tests definitions: graphs of steps in JSON or YAML files.\n\nusage: kahn COMMAND [flags] [arguments]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-22s %s\n", strings.TrimSpace(c.name+" "+c.args), c.summary)
	}
	b.WriteString("\n\"kahn help COMMAND\" explains a command and lists its flags.\n")
	_, _ = io.WriteString(w, b.String()) // a failure could not be reported anywhere
}

// writeUsage writes the help of a command.
func writeUsage(w io.Writer, c *command, f *flags) {
	var b strings.Builder
	flagsWord, flagsSection := "", ""
	if flagged := flagLines(f); flagged != "" {
		flagsWord, flagsSection = " [flags]", "\nFlags, before or after the arguments:\n\n"+flagged
	}
	fmt.Fprintf(&b, "usage: %s\n\n%s.\n", strings.TrimSpace("kahn "+c.name+flagsWord+" "+c.args), strings.ToUpper(c.summary[:1])+c.summary[1:])
	if c.text != "" {
		fmt.Fprintf(&b, "%s\n", c.text)
	}
	b.WriteString(flagsSection)
	_, _ = io.WriteString(w, b.String()) // a failure could not be reported anywhere
}

// flagLines describes the flags.
func flagLines(f *flags) string {
	var b strings.Builder
	f.VisitAll(func(g *flag.Flag) {
		value, usage := flag.UnquoteUsage(g)
		if words := f.choices[g.Name]; words != nil {
			value = strings.Join(words, "|")
		}
		fmt.Fprintf(&b, "  %s\n        %s%s\n", strings.TrimSpace("-"+g.Name+" "+value), usage, defaultOf(g))
	})
	return b.String()
}

// defaultOf returns a text that names the default of a flag, or "" if the default is false, 0 or empty.
func defaultOf(g *flag.Flag) string {
	switch cmp.Or(g.DefValue, "false") {
	case "false", "0", "0s":
		return ""
	}
	return fmt.Sprintf(" (default %s)", g.DefValue)
}
