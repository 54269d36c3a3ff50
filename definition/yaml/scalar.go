package yaml

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// resolve returns the type of a plain scalar. The result `ok` is false if readers of YAML 1.1, YAML 1.2 and JSON disagree about the type.
func resolve(text string) (t definition.Type, ok bool) {
	switch text {
	case "", "~", "null":
		return definition.Null, true
	case "true", "false":
		return definition.Bool, true
	}
	if looksLikeNumber(text) && json.Valid([]byte(text)) {
		return definition.Number, true
	}
	return definition.Text, !ambiguous.MatchString(text)
}

func looksLikeNumber(text string) bool {
	return strings.IndexByte("-0123456789", text[0]) >= 0
}

// ambiguous matches plain scalars that some readers do not read as text. It also matches null, true, false and JSON
// numbers, but resolve recognizes these before it uses the pattern.
var ambiguous = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`(?i:y|n|yes|no|on|off|true|false|null)`,
	`[-+]?0b[01_]+`,
	`[-+]?0o[0-7_]+`,
	`[-+]?0x[0-9a-fA-F_]+`,
	`[-+]?[0-9][0-9_]*`,
	`[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?`, // numbers to base 60, and times of day
	`[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9_]+)?`,
	`[-+]?[0-9][0-9_]*[eE][-+]?[0-9_]+`,
	`[-+]?(?i:\.inf)`,
	`(?i:\.nan)`,
	`[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?`,
	`=`,
	`<<`,
}, `|`) + `)$`)
