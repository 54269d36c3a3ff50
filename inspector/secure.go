package inspector

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// policy is the content security policy of the page. The page may load what this handler serves and images in data URLs, but nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; worker-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// The function `secure` sets the headers of every response, including error responses.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// The method `admit` checks a request before it is decoded: its host, its origin, and, if Options.Authorize is set, the permission to View.
func (h *handler) admit(r *http.Request) error {
	host := hostname(r.Host)
	if !loopbackName(host) && !slices.ContainsFunc(h.Hosts, func(name string) bool { return strings.EqualFold(hostname(name), host) }) {
		return &fault{Status: http.StatusForbidden, Code: "host_refused", Message: "this host is neither a loopback name nor in Options.Hosts"}
	}
	if err := h.origins.Check(r); err != nil {
		return &fault{Status: http.StatusForbidden, Code: "origin_refused", Message: "the request comes from another site"}
	}
	if h.gate != nil {
		return nil // clients need a token: see the method `pass`
	}
	return h.authorize(r, View)
}

// The method `pass` returns an error if a request lacks the token. Requests for the page and its assets need no token, since they contain nothing
// about runs. The page asks the user for the token, and posts it to sessionPath, which openSession serves.
func (h *handler) pass(r *http.Request, path string) error {
	if h.gate == nil || path == "" || asset(path) || path == sessionPath || h.gate.admits(r) {
		return nil
	}
	return errNoToken
}

// authorize returns an error if a request may not perform the Action.
func (h *handler) authorize(r *http.Request, a Action) error {
	if h.allows(r, a) {
		return nil
	}
	return &fault{Status: http.StatusForbidden, Code: "forbidden", Message: "you may not do this", Action: a}
}

func (h *handler) allows(r *http.Request, a Action) bool {
	if h.Authorize != nil {
		return h.contain(r, "Authorize", func() error { return h.Authorize(r, a) }) == nil
	}
	return h.gate.admits(r)
}

// The method `contain` calls a function of the host. If the function panics, contain logs the panic and returns it as an error.
func (h *handler) contain(r *http.Request, name string, f func() error) error {
	return foreign.Contain(f, func(v any) error {
		err := foreign.NewPanicError(v)
		h.log().LogAttrs(r.Context(), slog.LevelError, "inspector", slog.String("function", name), slog.String("panic", text(err)), slog.String("stack", string(err.Stack)))
		return err
	})
}

// hostname returns a host without its port, without a final dot, and without the brackets of an IPv6 address.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
}

// loopbackName reports whether a host always means this machine.
func loopbackName(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// The function `below` returns the part of the request's path after the mount: "" for the page itself. It returns false if the slash after the
// mount is missing. An http.ServeMux does not change the path, but an http.StripPrefix does. Inside the ServeMux, a StripPrefix removes the pattern
// or a part of it. Around the ServeMux, a StripPrefix removes a prefix that stands before the pattern. The function cannot always tell where the
// StripPrefix is. So it first assumes a StripPrefix inside the ServeMux. If `known` returns false for the resulting path, it assumes a StripPrefix
// around the ServeMux.
func below(r *http.Request, known func(path string) bool) (rest string, ok bool) {
	path := r.URL.EscapedPath()
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil {
		if stripped, found := strings.CutSuffix(asked.EscapedPath(), path); found && stripped != "" {
			if path == "" {
				return "", strings.HasSuffix(stripped, "/")
			}
			if rest, ok = within(afterSegments(r.Pattern, strings.Count(strings.TrimSuffix(stripped, "/"), "/")), path); ok && known(rest) {
				return rest, ok
			}
		}
	}
	return within(r.Pattern, path)
}

// afterSegments removes n segments from the beginning of a pattern's path. It returns "" if the pattern has no further segments.
func afterSegments(pattern string, n int) string {
	i := strings.IndexByte(pattern, '/')
	for ; i >= 0 && n > 0; n-- {
		next := strings.IndexByte(pattern[i+1:], '/')
		if next < 0 {
			return ""
		}
		i += 1 + next
	}
	if i < 0 || pattern[i:] == "/" {
		return ""
	}
	return pattern[i:]
}

// The function `within` removes the pattern of an http.ServeMux from the beginning of an escaped path. If the path does not begin with the pattern,
// an http.StripPrefix has removed the pattern already, and within returns the whole path. The result `ok` is false if the slash after the mount is
// missing.
func within(pattern, path string) (rest string, ok bool) {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		want := strings.Split(pattern[i+1:], "/")
		have := strings.Split(strings.TrimPrefix(path, "/"), "/")
		last := len(want) - 1
		fits := len(have) > last && (want[last] == "" || strings.HasSuffix(want[last], "...}"))
		for k := range want[:last] {
			fits = fits && (have[k] == want[k] || strings.HasPrefix(want[k], "{"))
		}
		if fits {
			return strings.Join(have[last:], "/"), true
		}
	}
	return strings.TrimPrefix(path, "/"), path != ""
}

// The function `slashed` returns the target of the redirect that adds the missing final slash to a request URI. The target is relative and begins
// with "./", so that clients do not read a segment as a scheme or a host.
func slashed(uri string) string {
	path, _, _ := strings.Cut(uri, "?")
	return "./" + path[strings.LastIndexByte(path, '/')+1:] + "/"
}
