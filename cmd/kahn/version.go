package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// library is the path of the module that performs the runs.
const library = "github.com/seed-c794f7ef/kahn"

var versionCommand = command{
	name: "version", summary: "print the versions of the command, the library and Go",
	text: `
It prints a line for each, such as

    kahn v1.2.3
    library v1.2.3
    go go1.26.0 linux/amd64

(devel) is a build from a working tree; its commit follows if Go has recorded it. A report of a defect has these lines.

The exit code is 0.`,
	register: func(*flags) action {
		return func(_ context.Context, t *terminal, _ []string) int {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			t.write(versionLines(info))
			return exitOK
		}
	},
}

// versionLines returns the lines that `kahn version` prints for a build.
func versionLines(info *debug.BuildInfo) string {
	command, used := cmp.Or(info.Main.Version, "unknown"), "unknown"
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			command += ", commit " + setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			command += ", modified"
		}
	}
	for _, module := range info.Deps {
		if module.Path != library {
			continue
		}
		used = cmp.Or(module.Version, "unknown")
		if by := module.Replace; by != nil && by.Version != "" {
			used += fmt.Sprintf(", replaced by %s %s", by.Path, by.Version)
		} else if by != nil {
			used += ", replaced by " + by.Path
		}
	}
	return fmt.Sprintf("kahn %s\nlibrary %s\ngo %s %s/%s\n", command, used, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
