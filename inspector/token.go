package inspector

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"mime"
	"net/http"
	"strings"
)

const (
	sessionPath = "api/v1/session"
	leastToken  = 16 // minimum length of a token in bytes
)

// tokenGate admits clients that have the token.
type tokenGate struct {
	token  string
	cookie string // the cookie's name; it depends on the token, so that handlers on two ports of a machine do not overwrite each other's cookie
	pass   string // the cookie's value; it does not reveal the token
}

// newTokenGate makes a gate for a token. If the token is empty, newTokenGate generates a token.
func newTokenGate(token string) *tokenGate {
	if token == "" {
		random := make([]byte, 24)
		_, _ = rand.Read(random) // never fails
		token = base64.RawURLEncoding.EncodeToString(random)
	}
	return &tokenGate{token: token, cookie: "kahn-" + derived(token, "name")[:12], pass: derived(token, "pass")}
}

// The function `derived` returns a text that can be computed only with the token and does not reveal the token.
func derived(token, purpose string) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("kahn inspector " + purpose)) // writing to a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// The function `same` compares two secrets in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// The method `admits` reports whether a request has the token, or the cookie that openSession sets.
func (g *tokenGate) admits(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && same(token, g.token) {
		return true
	}
	for _, c := range r.CookiesNamed(g.cookie) {
		if same(c.Value, g.pass) {
			return true
		}
	}
	return false
}

// sessionBody contains the token. The token is in the body and not in the query, so that logs of requests do not contain it.
type sessionBody struct {
	Token string `json:"token"`
}

// openSession checks the token and sets the cookie. The cookie names no path, so the browser uses the path of this endpoint without the last segment.
// The other endpoints are below the same path. Behind a proxy, the handler would not know which path to name.
func (c *call) openSession() error {
	if _, err := parseQuery(c.route.params, c.r.URL.RawQuery); err != nil {
		return err
	}
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != jsonType {
		return errNotJSON
	}
	if _, err := c.readBody(); err != nil {
		return err
	}
	g := c.h.gate
	if g == nil {
		return &fault{Status: http.StatusNotFound, Code: "no_token", Message: "there is no token: Options.Authorize decides who may see the page"}
	}
	if !same(c.body.(*sessionBody).Token, g.token) {
		c.h.log().Warn("inspector", "action", "session", "remote", c.r.RemoteAddr, "outcome", errNoToken.Code)
		return errNoToken
	}
	http.SetCookie(c.w, &http.Cookie{Name: g.cookie, Value: g.pass, HttpOnly: true, Secure: c.r.TLS != nil, SameSite: http.SameSiteStrictMode})
	return c.reply(http.StatusAccepted, accepted)
}
