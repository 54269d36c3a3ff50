package inspector

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// The bundle is small, and the handler serves all its files. The page has no inline script or style, which its content security policy would
// block.
func TestBundle(t *testing.T) {
	t.Parallel()
	h := Handler(free(Options{Runner: &kahn.Runner{}}))
	fetch := func(name string) (int, string, http.Header) {
		q := httptest.NewRequest(http.MethodGet, "/"+name, nil)
		q.RemoteAddr, q.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Code, w.Body.String(), w.Header()
	}
	var size bytes.Buffer
	kinds := map[string]int{}
	require.NoError(t, fs.WalkDir(dist, "page/dist/assets", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := dist.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimPrefix(file, "page/dist/")
		code, body, header := fetch(name)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, string(data), body)
		require.Contains(t, header.Get("Content-Type"), "text/")
		kinds[path.Ext(file)]++
		if path.Ext(file) != ".txt" {
			z, err := gzip.NewWriterLevel(&size, gzip.BestCompression)
			require.NoError(t, err)
			_, err = z.Write(data)
			require.NoError(t, err)
			require.NoError(t, z.Close())
		}
		return nil
	}))
	require.LessOrEqual(t, size.Len(), 60<<10, "bytes, compressed")
	require.Equal(t, map[string]int{".js": 2, ".css": 1, ".txt": 1}, kinds)

	code, index, _ := fetch("")
	require.Equal(t, http.StatusOK, code)
	require.NotRegexp(t, regexp.MustCompile(`<style|style=|<script(?:(?: type="module"| crossorigin))*>|\son\w+=`), index)
	for _, m := range regexp.MustCompile(`(?:src|href)="\./([^"]+)"`).FindAllStringSubmatch(index, -1) {
		code, _, _ := fetch(m[1])
		require.Equal(t, http.StatusOK, code, m[1])
	}
	_, notices, _ := fetch("assets/notices.txt")
	for _, name := range []string{"preact ", "@preact/signals ", "@preact/signals-core ", "Permission is hereby granted"} {
		require.Contains(t, notices, name)
	}
	for _, name := range []string{"assets/../index.html", "assets/", "assets/none.js", "assets/%2e%2e/index.html"} {
		code, _, _ := fetch(name)
		require.Equal(t, http.StatusNotFound, code, name)
	}
}
