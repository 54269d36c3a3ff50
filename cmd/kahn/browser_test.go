package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command opens the browser if there is a desktop. The arguments of the browser do not contain the token, because other users of the machine
// can see arguments.
func TestBrowse(t *testing.T) {
	none := func(string) string { return "" }
	require.Equal(t, []string{"open"}, browserCommand("darwin", none))
	require.Equal(t, "rundll32", browserCommand("windows", none)[0])
	require.Nil(t, browserCommand("linux", none))
	require.Equal(t, []string{"xdg-open"}, browserCommand("linux", func(name string) string { return map[string]string{"WAYLAND_DISPLAY": "wayland-0"}[name] }))
	if runtime.GOOS != "linux" {
		return
	}
	bin, temp := t.TempDir(), t.TempDir()
	args, page := filepath.Join(bin, "args"), filepath.Join(bin, "page")
	script := "#!/bin/sh\necho \"$@\" > " + args + ".new\ncp \"$1\" " + page + "\nmv " + args + ".new " + args + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	t.Setenv("TMPDIR", temp)
	end, err := browse("http://localhost:8080/#token=a&b")
	require.NoError(t, err)
	until(t, nil, "the program that opens the browser", func() bool { _, err := os.Stat(args); return err == nil })
	given, err := os.ReadFile(args)
	require.NoError(t, err)
	require.NotContains(t, string(given), "token")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), `url=http://localhost:8080/#token=a&amp;b"`)
	found, err := filepath.Glob(filepath.Join(temp, "kahn-ui-*", "open.html"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	info, err := os.Stat(found[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	end()
	require.NoFileExists(t, found[0])
}
