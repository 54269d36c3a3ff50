package definition

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// checkName returns the defect of a name, or "" if there is none. Names appear in logs, terminals and tables, so a name must be one line
// without changes of writing direction.
func checkName(s string, limits Limits) (kind ErrorKind, problem string) {
	switch {
	case s == "":
		return ErrValue, "must not be empty; leave it out instead"
	case len(s) > limits.NameBytes:
		return ErrLimit, fmt.Sprintf("is %d bytes long, more than %d", len(s), limits.NameBytes)
	case !utf8.ValidString(s):
		return ErrEncoding, "is not valid UTF-8"
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ErrValue, fmt.Sprintf("must not contain %U", r)
		}
	}
	return "", ""
}

// checkID returns the defect of a node's id, or "" if there is none. Ids become keys, paths and parts of pages. checkID
// rejects ids with a character of markup (<, > or "), and the id __proto__, which breaks JavaScript objects. So consumers
// need not handle such ids.
func checkID(s string, limits Limits) (kind ErrorKind, problem string) {
	if s == "" {
		return ErrValue, "must not be empty"
	}
	if kind, problem := checkName(s, limits); problem != "" {
		return kind, problem
	}
	if s == "__proto__" {
		return ErrValue, "is reserved"
	}
	for _, r := range s {
		if r == '<' || r == '>' || r == '"' {
			return ErrValue, fmt.Sprintf("must not contain %q", r)
		}
	}
	return "", ""
}
