// Package former builds programs with a former version of this repository. Tests use it to deploy a new version next to an old one.
package former

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Trees returns two folders: one with the current code, and one with the code of a former commit. It skips the test if neither KAHN_LONG nor
// KAHN_SAMPLE is set, or if the git history lacks the commit.
func Trees(t *testing.T, commit string) (now, former string) {
	t.Helper()
	if os.Getenv("KAHN_LONG")+os.Getenv("KAHN_SAMPLE") == "" {
		t.Skip("it builds the former version: with KAHN_LONG or KAHN_SAMPLE")
	}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip("this is no checkout of git: there is no former version to build")
	}
	now = strings.TrimSpace(string(top))
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history lacks the former version %s: a shallow clone?", commit)
	}
	former = t.TempDir()
	archive := exec.Command("git", "archive", "--format=tar", commit)
	archive.Dir = now
	data, err := archive.Output()
	require.NoError(t, err)
	tar := exec.Command("tar", "-x", "-C", former)
	tar.Stdin = bytes.NewReader(data)
	out, err := tar.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return now, former
}

// Build builds the program in the folder "upgrade" of a module, and writes it to the file `to`. The parameter "replaced" is an overlay: it maps paths
// in the module to the files that the go command reads instead. In this way callers add the files of the program, and replace files of the module.
// Build uses -trimpath, so that builds in different folders share the build cache.
func Build(t *testing.T, module string, replaced map[string]string, to string) {
	t.Helper()
	files := map[string]string{}
	for name, file := range replaced {
		path, err := filepath.Abs(file)
		require.NoError(t, err)
		files[filepath.Join(module, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-overlay", file, "-o", to, "./upgrade")
	cmd.Dir = module
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
