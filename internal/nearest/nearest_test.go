package nearest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestName(t *testing.T) {
	t.Parallel()
	fields := []string{"max_attempts", "initial_delay", "after", "kind", "id"}
	for _, c := range []struct {
		written string
		choices []string
		want    string // "" for no suggestion
	}{
		{"aproved", []string{"rejected", "approved"}, "approved"}, // a missing letter
		{"approvved", []string{"rejected", "approved"}, "approved"},
		{"apprived", []string{"rejected", "approved"}, "approved"},
		{"ture", []string{"true", "false", "default"}, "true"}, // two letters swapped
		{"flase", []string{"true", "false", "default"}, "false"},
		{"maxAttempts", fields, "max_attempts"},
		{"MAX-ATEMPTS", fields, "max_attempts"},
		{"After", fields, "after"},
		{"redaer", []string{"writer", "reader"}, "reader"},
		{"Größe", []string{"größe"}, "größe"},
		{"grose", []string{"größe"}, ""},      // two wrong letters of five
		{"perhaps", []string{"approved"}, ""}, // another word
		{"ix", fields, ""},                    // too short for a slip
		{"x", []string{"a", "b"}, ""},         //
		{"after", fields, ""},                 // the name is one of the choices
		{"approved", []string{"aproved", "approved"}, ""},
		{"", fields, ""},
		{"a", nil, ""},
		{"-", []string{"_"}, ""},
		{"caat", []string{"cart", "cat", "coat"}, "cart"}, // the first of the equally similar choices
		{"carts", []string{"carrts2", "cart"}, "cart"},    // the most similar choice, not the first
		{strings.Repeat("a", maxRunes+1), []string{strings.Repeat("a", maxRunes)}, ""},
		{strings.Repeat("a", maxRunes-1), []string{strings.Repeat("a", maxRunes+1), strings.Repeat("a", maxRunes)}, strings.Repeat("a", maxRunes)},
	} {
		got, ok := Name(c.written, c.choices)
		require.Equal(t, c.want, got, "%q of %q", c.written, c.choices)
		require.Equal(t, c.want != "", ok)
	}
}

// Name compares a bounded number of choices, so a misspelt name costs no more in a large graph than in a small one.
func TestBound(t *testing.T) {
	t.Parallel()
	choices := make([]string, compared, compared+1)
	for i := range choices {
		choices[i] = strings.Repeat("x", i%9)
	}
	last := append(slices.Clone(choices[1:]), "after")
	got, ok := Name("aftre", last)
	require.True(t, ok)
	require.Equal(t, "after", got)
	_, ok = Name("aftre", append(choices, "after"))
	require.False(t, ok, "a choice beyond the bound was looked at")
}

// The bounded distance agrees with a recursive definition if the distance does not exceed the bound.
func TestDistance(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	word := func() []rune {
		w := make([]rune, random.IntN(7))
		for i := range w {
			w[i] = 'a' + rune(random.IntN(3))
		}
		return w
	}
	for range 2000 {
		a, b, allowed := word(), word(), random.IntN(5)
		want, got := slips(a, b), distance(a, b, allowed)
		if want <= allowed {
			require.Equal(t, want, got, "%q %q", string(a), string(b))
		} else {
			require.Greater(t, got, allowed, "%q %q", string(a), string(b))
		}
	}
}

func slips(a, b []rune) int {
	if len(a) == 0 || len(b) == 0 {
		return len(a) + len(b)
	}
	i, j := len(a)-1, len(b)-1
	if a[i] == b[j] {
		return slips(a[:i], b[:j])
	}
	d := 1 + min(slips(a[:i], b), slips(a, b[:j]), slips(a[:i], b[:j]))
	if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
		d = min(d, 1+slips(a[:i-1], b[:j-1]))
	}
	return d
}
