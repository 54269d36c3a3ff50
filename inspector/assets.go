package inspector

import (
	"embed"
	"mime"
	"net/http"
	"path"
	"strings"
)

// dist contains the page and the notices of the page's dependencies. The command `npm run build` in the folder `page` builds both.
//
//go:embed all:page/dist
var dist embed.FS

//go:embed openapi.json
var description []byte

// The function `asset` reports whether a path names a file of the page.
func asset(p string) bool { return strings.HasPrefix(p, "assets/") }

// serveAsset responds with a file of the page. Clients may cache the file, since its name changes with its content.
func serveAsset(w http.ResponseWriter, r *http.Request, p string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return &fault{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "choose one of GET, HEAD"}
	}
	data, err := dist.ReadFile("page/dist/" + p)
	if err != nil || path.Clean(p) != p {
		return &fault{Status: http.StatusNotFound, Code: "not_found", Message: "there is no such file"}
	}
	kind := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8"}[path.Ext(p)]
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(p))
	}
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Cache-Control", "private, max-age=31536000, immutable")
	_, _ = w.Write(data) // an error means that the client is gone
	return nil
}

// The method `page` responds with the HTML document, which loads the scripts and styles.
func (c *call) page() (any, error) {
	data, err := dist.ReadFile("page/dist/index.html")
	if err != nil {
		return nil, err
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = c.w.Write(data) // an error means that the client is gone
	return nil, nil
}

func (c *call) openAPI() (any, error) {
	c.w.Header().Set("Content-Type", jsonType)
	_, _ = c.w.Write(description) // an error means that the client is gone
	return nil, nil
}
