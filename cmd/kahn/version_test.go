package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines contain the version of the built module and of the library in it. The cases are an installed program, a build from a working tree,
// and programs with a replaced library.
func TestVersionLines(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]*debug.BuildInfo{
		"kahn v1.2.3\nlibrary v1.2.0\n": {
			Main: debug.Module{Path: library + "/cmd/kahn", Version: "v1.2.3"},
			Deps: []*debug.Module{{Path: "github.com/google/uuid", Version: "v1.6.0"}, {Path: library, Version: "v1.2.0"}, {Path: library + "/schema", Version: "v9.9.9"}},
		},
		"kahn (devel)\nlibrary (devel)\n": {
			Main: debug.Module{Path: library + "/cmd/kahn", Version: "(devel)"},
			Deps: []*debug.Module{{Path: library, Version: "(devel)"}},
		},
		"kahn (devel), commit 0123456789abcdef, modified\nlibrary v0.0.0, replaced by ../../\n": {
			Main:     debug.Module{Path: library + "/cmd/kahn", Version: "(devel)"},
			Deps:     []*debug.Module{{Path: library, Version: "v0.0.0", Replace: &debug.Module{Path: "../../"}}},
			Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}},
		},
		"kahn v1.2.3, commit abc\nlibrary v1.2.0, replaced by example.com/fork v1.2.1\n": {
			Main:     debug.Module{Path: library + "/cmd/kahn", Version: "v1.2.3"},
			Deps:     []*debug.Module{{Path: library, Version: "v1.2.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.1"}}},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}},
		},
		"kahn unknown\nlibrary unknown\n": {},
	} {
		require.Equal(t, want+"go "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n", versionLines(info))
	}
}

// The command prints the versions from its build information. Without build information it knows only the version of Go.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"-version"}, {"--version"}} {
		code, stdout, stderr := invoke(t, "", args...)
		require.Equal(t, exitOK, code, "%v", args)
		require.Empty(t, stderr, "%v", args)
		lines := strings.Split(stdout, "\n")
		require.Len(t, lines, 4, stdout)
		require.Regexp(t, `^kahn \S`, lines[0])
		require.Regexp(t, `^library \S`, lines[1])
		require.Equal(t, "go "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH, lines[2])
	}
	expect(t, exitUsage, `unexpected argument "x"`, "", "version", "x")
	expect(t, exitUsage, `unknown flag -v; the command has none`, "", "version", "-v")
	expect(t, exitUsage, `unknown command "vresion"; did you mean "version"?`, "", "vresion")
}
