package definition

import (
	"strings"
	"unicode"
)

// lookAlike returns the form in which two ids are the same if they can be told apart by nothing but the way in which their accents are
// encoded: as a letter of its own, such as U+00E9, or as a letter with combining marks after it, such as e and U+0301. The tables of the
// normal forms are no part of the standard library, so each letter with an accent has the same form; ids with the same form are alike only
// if just one of them has a combining mark, see alike.
func lookAlike(id string) string {
	if isASCII(id) {
		return id
	}
	letters := []rune{}
	for _, r := range id {
		switch {
		case unicode.Is(unicode.Mn, r) && len(letters) > 0:
			letters[len(letters)-1] = accented
		case r > unicode.MaxASCII && unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Hiragana, unicode.Katakana):
			letters = append(letters, accented)
		default:
			letters = append(letters, r)
		}
	}
	return string(letters)
}

const accented = unicode.ReplacementChar

// alike reports whether two different ids look the same.
func alike(a, b string) bool {
	return a != b && lookAlike(a) == lookAlike(b) && hasMark(a) != hasMark(b)
}

func hasMark(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.Is(unicode.Mn, r) }) >= 0
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}
