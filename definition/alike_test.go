package definition_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/definition"
)

// Two ids look alike if and only if their normal forms, as Unicode defines them, are the same.
func TestLookAlikes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b  string
		alike bool
	}{
		{"caf\u00e9", "cafe\u0301", true},
		{"\u1ebf", "e\u0302\u0301", true},       // two marks, one after the other
		{"\u1ed9", "o\u0302\u0323", true},       // the marks in the other order
		{"\u0451", "\u0435\u0308", true},        // Cyrillic
		{"\u304c", "\u304b\u3099", true},        // Kana
		{"\ud55c", "\u1112\u1161\u11ab", true},  // Hangul with a final consonant
		{"\uac00", "\u1100\u1161", true},        // without a final consonant
		{"\u00df", "s\u0308", false},            // a different letter
		{"\u00e9", "e\u0323", false},            // a different mark
		{"\u00e9", "\u00e8", false},             // two letters with accents
		{"a\u0301b", "ab\u0301", false},         // the mark is on a different letter
		{"\u0301\u00e9", "\u0301\u00e8", false}, // a mark without a letter
	} {
		text := fmt.Sprintf(`{"version": 1, "nodes": [{"id": %q}, {"id": %q}]}`, row.a, row.b)
		_, err := definition.Decode([]byte(text), definition.Limits{})
		if row.alike {
			require.ErrorContains(t, err, "looks the same", "%+q and %+q", row.a, row.b)
		} else {
			require.NoError(t, err, "%+q and %+q", row.a, row.b)
		}
	}
}
