package keyset

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, at := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		for _, id := range []string{"", "a", "a/b", "\x00\xff", "日本"} {
			gotAt, gotID, err := Decode(Encode(at, id))
			require.NoError(t, err)
			require.Equal(t, at, gotAt)
			require.Equal(t, id, gotID)
		}
	}
	for _, text := range []string{"x", "?", Encode(1, "a") + "=", "", "YQ", Encode(1, "a")[1:]} {
		_, _, err := Decode(text)
		require.ErrorIs(t, err, enum.ErrBadValue, text)
	}
}
