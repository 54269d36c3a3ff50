package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

func completionCommand() command {
	return command{
		name: "completion", args: "SHELL", least: 1, most: 1, summary: "print the completions for bash, zsh or fish",
		words:    func() []string { return []string{"bash", "zsh", "fish"} },
		register: func(*flags) action { return printCompletion },
		text: `
    bash    source <(kahn completion bash)
    zsh     source <(kahn completion zsh)
    fish    kahn completion fish | source

The completions know commands, flags, the values of flags that take a few words, and files.`,
	}
}

// printCompletion performs the command `kahn completion`.
func printCompletion(_ context.Context, t *terminal, args []string) int {
	script, ok := completions()[args[0]]
	if !ok {
		return t.refuse(unknown("shell", args[0], slices.Sorted(maps.Keys(completions()))))
	}
	_, _ = io.WriteString(t.out, script()) // t.out stores a write error
	return exitOK
}

// The function `completions` returns, for each shell, the function that makes the script.
func completions() map[string]func() string {
	return map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
}

// eachFlag calls f with each flag of a command.
func eachFlag(c command, f func(*flags, *flag.Flag)) {
	fs := newFlags(&c)
	c.register(fs)
	fs.VisitAll(func(g *flag.Flag) { f(fs, g) })
}

// isSwitch reports whether a flag takes no value.
func isSwitch(g *flag.Flag) bool {
	b, ok := g.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

func bashCompletion() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion of kahn
_kahn() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W "%s" -- "$word"))
		return
	fi
	case "${COMP_WORDS[1]} $before" in
`, strings.Join(commandNames(), " "))
	for _, c := range commands() {
		eachFlag(c, func(f *flags, g *flag.Flag) {
			if words := f.choices[g.Name]; words != nil {
				fmt.Fprintf(&b, "\t\"%s -%s\") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", c.name, g.Name, strings.Join(words, " "))
			} else if !isSwitch(g) && !f.files[g.Name] {
				fmt.Fprintf(&b, "\t\"%s -%s\") return ;;\n", c.name, g.Name)
			}
		})
	}
	b.WriteString("\tesac\n\tcase \"${COMP_WORDS[1]} $word\" in\n")
	for _, c := range commands() {
		var names []string
		eachFlag(c, func(_ *flags, g *flag.Flag) { names = append(names, "-"+g.Name) })
		if len(names) > 0 {
			fmt.Fprintf(&b, "\t\"%s -\"*) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", c.name, strings.Join(names, " "))
		}
		if c.words != nil {
			fmt.Fprintf(&b, "\t\"%s \"*) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", c.name, strings.Join(c.words(), " "))
		}
	}
	b.WriteString("\tesac\n\tCOMPREPLY=($(compgen -f -- \"$word\"))\n}\ncomplete -o filenames -F _kahn kahn\n")
	return b.String()
}

// zshQuoted quotes a description for the zsh functions _arguments and _describe.
func zshQuoted(text string) string {
	return strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`, "`", "").Replace(text)
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef kahn\n_kahn() {\n\tif (( CURRENT == 2 )); then\n\t\tlocal -a commands=(\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "\t\t\t'%s:%s'\n", c.name, zshQuoted(c.summary))
	}
	b.WriteString("\t\t)\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n\tcase $command in\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments", c.name)
		eachFlag(c, func(f *flags, g *flag.Flag) {
			value, usage := flag.UnquoteUsage(g)
			fmt.Fprintf(&b, " \\\n\t\t\t'*-%s[%s]", g.Name, zshQuoted(usage))
			switch words := f.choices[g.Name]; {
			case words != nil:
				fmt.Fprintf(&b, ":%s:(%s)", g.Name, strings.Join(words, " "))
			case f.files[g.Name]:
				fmt.Fprintf(&b, ":%s:_files", value)
			case !isSwitch(g):
				fmt.Fprintf(&b, ":%s:", value)
			}
			b.WriteString("'")
		})
		if c.words != nil {
			fmt.Fprintf(&b, " \\\n\t\t\t'*:%s:(%s)'", strings.ToLower(strings.Trim(c.args, "[].")), strings.Join(c.words(), " "))
		} else if c.most > 0 {
			b.WriteString(" \\\n\t\t\t'*:file:_files'")
		}
		b.WriteString("\n\t\t;;\n")
	}
	b.WriteString("\tesac\n}\ncompdef _kahn kahn\n")
	return b.String()
}

func fishCompletion() string {
	quoted := func(text string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`, "`", "").Replace(text) }
	var b strings.Builder
	b.WriteString("# fish completion of kahn\ncomplete -c kahn -n __fish_use_subcommand -f\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "complete -c kahn -n __fish_use_subcommand -a %s -d '%s'\n", c.name, quoted(c.summary))
		when := fmt.Sprintf("complete -c kahn -n '__fish_seen_subcommand_from %s'", c.name)
		eachFlag(c, func(f *flags, g *flag.Flag) {
			_, usage := flag.UnquoteUsage(g)
			value := ""
			switch words := f.choices[g.Name]; {
			case words != nil:
				value = fmt.Sprintf(" -x -a '%s'", strings.Join(words, " "))
			case f.files[g.Name]:
				value = " -r"
			case !isSwitch(g):
				value = " -x"
			}
			fmt.Fprintf(&b, "%s -o %s -d '%s'%s\n", when, g.Name, quoted(usage), value)
		})
		if c.words != nil {
			fmt.Fprintf(&b, "%s -f -a '%s'\n", when, strings.Join(c.words(), " "))
		}
	}
	return b.String()
}
