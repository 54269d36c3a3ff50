package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestKeysOfBytes: inputs that differ only in bytes that are not UTF-8 have different keys, although package json writes the same text for
// them.
func TestKeysOfBytes(t *testing.T) {
	t.Parallel()
	keys := map[string]any{}
	for _, v := range []any{"\xff", "\xfe", "\xff\xff", "\ufffd", `\ufffd`, []string{"\xff"}, []any{"\xff"}, map[string]any{"a": "\xff"}} {
		for _, inputs := range []map[string]any{{"order": v}, {"order": v, "more": 1}} {
			key, err := kahn.IdempotencyKey("w", inputs)
			require.NoError(t, err)
			again, err := kahn.IdempotencyKey("w", inputs)
			require.NoError(t, err)
			require.Equal(t, key, again)
			require.NotContains(t, keys, key, "%q has the key of %q", inputs, keys[key])
			keys[key] = inputs
		}
	}
	valid, err := kahn.IdempotencyKey("w", map[string]any{"order": "\ufffd"})
	require.NoError(t, err)
	// printf 'w{"order":"\xef\xbf\xbd"}' | sha256sum
	require.Equal(t, "9120c5184de17d0a5887c1435836ac15754903f831a779c36eb0aaffda744d34", valid)
	escaped, err := kahn.IdempotencyKey("w", map[string]any{"order": `\ufffd`, "n": 1})
	require.NoError(t, err)
	plain, err := kahn.IdempotencyKey("w", map[string]any{"order": `\ufffd`, "n": 1.0})
	require.NoError(t, err)
	require.Equal(t, escaped, plain, "the text is UTF-8, and 1 is 1")
	for _, v := range []any{struct{ Name string }{"\xff"}, map[string]any{"\xff": 1}} {
		_, err := kahn.IdempotencyKey("w", map[string]any{"order": v})
		require.ErrorIs(t, err, kahn.ErrNotEncodable)
	}
}
