package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("write", false, "write the golden files anew, to be read before they are committed")

// golden compares a text with a file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run %s -write writes %s anew", t.Name(), path)
}

// The help of every command, and of the command without one.
func TestHelp(t *testing.T) {
	t.Parallel()
	code, text, _ := invoke(t, "", "help")
	require.Equal(t, exitOK, code)
	for _, name := range commandNames() {
		code, out, errs := invoke(t, "", "help", name)
		require.Equal(t, exitOK, code)
		require.Empty(t, errs)
		_, asked, _ := invoke(t, "", name, "-h")
		require.Equal(t, out, asked, "kahn %s -h", name)
		text += "\n---- kahn help " + name + "\n" + out
	}
	golden(t, "help.golden", text)
	for _, arg := range []string{"-h", "-help", "--help"} {
		code, out, _ := invoke(t, "", arg)
		require.Equal(t, exitOK, code)
		require.True(t, strings.HasPrefix(text, out))
	}
}

// What vet reports about files that are wrong in many ways, each in all of them, sorted by place.
func TestVetGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/vet/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	code, text, errs := invoke(t, "", append([]string{"vet"}, files...)...)
	require.Equal(t, exitProblems, code, errs)
	for _, file := range files {
		require.Contains(t, text, filepath.ToSlash(file)+":")
	}
	golden(t, "vet.golden", filepath.ToSlash(text))
	code, text, _ = invoke(t, "", "vet", "-json", "testdata/vet/kinds.yaml")
	require.Equal(t, exitProblems, code)
	golden(t, "vet.json.golden", text)
}
