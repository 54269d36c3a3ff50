package foreign_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

func TestContain(t *testing.T) {
	failure := errors.New("failure")
	panicked := func(v any) error { return fmt.Errorf("panic of %v", v) }

	require.NoError(t, foreign.Contain(func() error { return nil }, panicked))
	require.Equal(t, failure, foreign.Contain(func() error { return failure }, panicked))
	require.EqualError(t, foreign.Contain(func() error { panic("f") }, panicked), "panic of f")
	require.PanicsWithValue(t, "on", func() {
		_ = foreign.Contain(func() error { panic("f") }, func(any) error { panic("on") })
	})

	t.Run("a panic that recover does not tell of", func(t *testing.T) {
		t.Setenv("GODEBUG", "panicnil=1")
		require.EqualError(t, foreign.Contain(func() error { panic(nil) }, panicked), "panic of <nil>")
	})
}

type (
	nilError  struct{ text string }
	ringError struct{}
	rudeValue struct{}
	tree      []error
)

func (e *nilError) Error() string { return e.text }
func (e *nilError) Unwrap() error { panic(e.text) }
func (e ringError) Error() string { return "ring" }
func (e ringError) Unwrap() error { return e }
func (rudeValue) String() string  { panic("String") }
func (tree) Error() string        { return "tree" }
func (e tree) Unwrap() []error    { return e }

func TestWalk(t *testing.T) {
	a, b, c, d := errors.New("a"), errors.New("b"), errors.New("c"), errors.New("d")
	err := tree{a, tree{b, nil, c}, d}
	visited := func(next func(error) foreign.Next) (texts []string) {
		require.Equal(t, foreign.Sound, foreign.Walk(err, func(e error) foreign.Next {
			texts = append(texts, e.Error())
			return next(e)
		}))
		return texts
	}
	require.Equal(t, []string{"tree", "a", "tree", "b", "c", "d"}, visited(func(error) foreign.Next { return foreign.Descend }))
	require.Equal(t, []string{"tree", "a", "tree", "b"}, visited(func(e error) foreign.Next {
		if e == b {
			return foreign.Stop
		}
		return foreign.Descend
	}))
	require.Equal(t, []string{"tree", "a", "tree", "d"}, visited(func(e error) foreign.Next {
		if x, ok := e.(tree); ok && len(x) == 3 && x[0] == b {
			return foreign.Pass
		}
		return foreign.Descend
	}))

	all := func(error) foreign.Next { return foreign.Descend }
	require.Equal(t, foreign.Sound, foreign.Walk(nil, all))
	require.Equal(t, foreign.Rude, foreign.Walk((*nilError)(nil), all))
	require.Equal(t, foreign.Endless, foreign.Walk(ringError{}, all))
	require.Equal(t, foreign.Sound, foreign.Walk(foreign.Shield((*nilError)(nil)), all))
}

type rudeError struct{}

func (rudeError) Error() string { panic("Error") }
func (rudeError) Is(error) bool { panic("Is") }
func (rudeError) As(any) bool   { panic("As") }

func TestShield(t *testing.T) {
	a := errors.New("a")
	s := foreign.Shield(tree{rudeError{}, a, (*nilError)(nil), errors.New("behind it")})
	require.Same(t, s, foreign.Shield(s))
	require.Equal(t, "tree", s.Error())
	require.ErrorIs(t, s, a)
	require.NotErrorIs(t, s, errors.New("b"))
	require.NotErrorIs(t, s, tree{}) // not comparable
	var (
		found *nilError
		ring  ringError
	)
	require.ErrorAs(t, s, &found)
	require.Nil(t, found)
	require.False(t, errors.As(s, &ring))
	require.False(t, foreign.Renders(rudeError{}))
	require.True(t, foreign.Renders(s))

	stopped := 0
	require.Equal(t, foreign.Sound, foreign.Walk(tree{s, a}, func(e error) foreign.Next {
		if stopped++; e == a {
			return foreign.Stop
		}
		return foreign.Descend
	}))
	require.Equal(t, 4, stopped) // the tree, the tree behind the shield, and two errors in that tree
}

func TestTexts(t *testing.T) {
	long := strings.Repeat("é", 1_000_000)
	require.Equal(t, "<nil>", foreign.ErrorText(nil))
	require.Equal(t, "text", foreign.ErrorText(errors.New("text")))
	require.Equal(t, "<*foreign_test.nilError>", foreign.ErrorText((*nilError)(nil)))
	require.Equal(t, strings.Repeat("é", foreign.MaxText/2)+"... (2000000 bytes)", foreign.ErrorText(errors.New(long)))
	require.Equal(t, "12", foreign.ValueText(12))
	require.Equal(t, "<foreign_test.rudeValue>", foreign.ValueText(rudeValue{}))
	require.Equal(t, "<map[string]int>", foreign.ValueText(map[string]int{"a": 1}))
	require.Equal(t, "text", foreign.ValueText(errors.New("text")))
	require.Equal(t, `"a\nb"`, foreign.Quote("a\nb"))
	require.Len(t, []rune(foreign.Quote(long)), 62)
}
