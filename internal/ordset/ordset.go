// Package ordset is a set of small integers that knows its minimum: a bitmap with a summary bitmap over its words, and one
// over that, and so on. Every operation touches at most one word a level, three levels for a quarter of a million
// elements, and none allocates.
package ordset

import "math/bits"

const (
	shift     = 6
	wordBits  = 1 << shift
	maxLevels = 6 // 64^6 elements
)

// Set holds integers from 0 up to the size it was made for. The zero value is a set for no elements.
type Set struct {
	levels [maxLevels][]uint64 // bit i of level l says that word i of level l-1 is not zero
	depth  int
	len    int
}

// Make returns an empty set for the integers from 0 to n-1.
func Make(n int) Set {
	var s Set
	sizes, total := [maxLevels]int{}, 0
	for words := n; ; {
		words = (words + wordBits - 1) / wordBits
		sizes[s.depth] = words
		total += words
		s.depth++
		if words <= 1 {
			break
		}
	}
	all := make([]uint64, total)
	for l := range s.depth {
		s.levels[l], all = all[:sizes[l]:sizes[l]], all[sizes[l]:]
	}
	return s
}

// Made reports whether the set was made for at least one element.
func (s *Set) Made() bool { return s.depth > 0 }

// Len returns the number of elements.
func (s *Set) Len() int { return s.len }

// Insert adds i.
func (s *Set) Insert(i int) {
	for l := range s.depth {
		word := &s.levels[l][i>>shift]
		old, bit := *word, uint64(1)<<(i&(wordBits-1))
		if l == 0 {
			if old&bit != 0 {
				return
			}
			s.len++
		}
		*word = old | bit
		if old != 0 {
			return // the levels above know already
		}
		i >>= shift
	}
}

// Remove takes i out, and reports whether it was in.
func (s *Set) Remove(i int) bool {
	if s.depth == 0 || s.levels[0][i>>shift]>>(i&(wordBits-1))&1 == 0 {
		return false
	}
	s.len--
	s.clear(i)
	return true
}

func (s *Set) clear(i int) {
	for l := range s.depth {
		word := &s.levels[l][i>>shift]
		*word &^= 1 << (i & (wordBits - 1))
		if *word != 0 {
			return
		}
		i >>= shift
	}
}

// Min returns the smallest element.
func (s *Set) Min() (int, bool) {
	if s.len == 0 {
		return 0, false
	}
	i := 0
	for l := s.depth - 1; l >= 0; l-- {
		i = i<<shift | bits.TrailingZeros64(s.levels[l][i])
	}
	return i, true
}

// PopMin removes and returns the smallest element.
func (s *Set) PopMin() (int, bool) {
	i, ok := s.Min()
	if ok {
		s.len--
		s.clear(i)
	}
	return i, ok
}
