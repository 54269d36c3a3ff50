package kahn

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store"
)

// Two different limits never have the same name in the store, whatever the names of the sets, keys and groups contain.
func TestNamesOfSharedLimits(t *testing.T) {
	t.Parallel()
	texts := []string{"", "a", "x", "all", "key", "group", "/", "//", "a/", "/a", "key/x", "/key/x", "x/key/y", "a/key/x", "a/group/x", "key-sha256/x", "\x00", "\xff", "a\x00", strings.Repeat("k", maxGrantText), strings.Repeat("k", maxGrantText+1)}
	for _, text := range []string{"\xff", strings.Repeat("k", maxGrantText+1)} {
		digest := sha256.Sum256([]byte(text))
		texts = append(texts, hex.EncodeToString(digest[:]), "-sha256/"+hex.EncodeToString(digest[:]))
	}
	seen, sets := map[string][3]string{}, 0
	add := func(limit string, of [3]string) {
		other, taken := seen[limit]
		require.False(t, taken, "%q is the name of the limits %q and %q", limit, other, of)
		seen[limit] = of
	}
	for _, name := range texts {
		g, err := (&Shared{Store: new(store.Memory), Name: name, Limit: 1}).granter()
		if err != nil {
			require.ErrorIs(t, err, ErrBadOption)
			continue
		}
		sets++
		add(g.far(nil, "/all", 1, Rate{}).limit, [3]string{name})
		for _, what := range []string{"key", "group"} {
			for _, text := range texts[1:] {
				add(g.far(nil, limitName(what, text), 1, Rate{}).limit, [3]string{name, what, text})
			}
		}
	}
	require.Greater(t, sets, 5)
}
