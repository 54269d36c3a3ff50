package inspector

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy lets the page load what this handler serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; worker-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// secure sets the headers that every answer has, refusals included.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// admit judges what is known of a request before it is decoded: its host, its origin, and whether it may View.
func (h *handler) admit(r *http.Request) error {
	host := hostname(r.Host)
	if !loopbackName(host) && !slices.ContainsFunc(h.Hosts, func(name string) bool { return strings.EqualFold(hostname(name), host) }) {
		return &fault{Status: http.StatusForbidden, Code: "host_refused", Message: "this host is neither a loopback name nor in Options.Hosts"}
	}
	if err := h.origins.Check(r); err != nil {
		return &fault{Status: http.StatusForbidden, Code: "origin_refused", Message: "the request comes from another site"}
	}
	return h.authorize(r, View)
}

// authorize asks whether a request may do something.
func (h *handler) authorize(r *http.Request, a Action) error {
	if h.allows(r, a) {
		return nil
	}
	return &fault{Status: http.StatusForbidden, Code: "forbidden", Message: "you may not do this", Action: a}
}

func (h *handler) allows(r *http.Request, a Action) bool {
	if h.Authorize != nil {
		return h.Authorize(r, a) == nil
	}
	return loopbackPeer(r.RemoteAddr) && loopbackName(hostname(r.Host)) && !forwarded(r.Header)
}

// forwarded reports whether a proxy says that it has passed a request on: the client may be anywhere.
func forwarded(header http.Header) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if header.Get(name) != "" {
			return true
		}
	}
	return false
}

// hostname is a host without its port and without the brackets of an IPv6 address.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
}

// loopbackName reports whether a host can mean nothing but this machine.
func loopbackName(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// loopbackPeer reports whether a connection comes from this machine.
func loopbackPeer(remote string) bool {
	addr, err := netip.ParseAddrPort(remote)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// within returns the part of an escaped path below the pattern that an http.ServeMux has matched: "" for the page itself. A path that
// the pattern does not begin is below http.StripPrefix, and is taken from the root. It reports false if the slash after the
// mount is missing.
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

// slashed is where a request URI without a slash at its end is sent: the same with it, relative, so that no segment is taken for a scheme
// or a host.
func slashed(uri string) string {
	path, _, _ := strings.Cut(uri, "?")
	return "./" + path[strings.LastIndexByte(path, '/')+1:] + "/"
}
