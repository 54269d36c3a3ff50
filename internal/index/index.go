// Package index finds the position of a string in a list. A table does not store the strings, and takes eight to sixteen bytes per string. A table of a
// short list takes no memory, since a search of the list is as fast.
package index

import (
	"hash/maphash"
	"slices"
)

// Table is a hash index of a list of strings, with open addressing. The caller keeps the list and passes it with every call. The zero value is
// the index of an empty list, and of a list of at most `short` strings.
type Table struct {
	slots []int32 // a slot is a position in the list plus one, or 0 if it is empty; the number of slots is a power of two, and at least half are empty
}

const short = 8

var seed = maphash.MakeSeed()

// Make returns a table with room for n strings.
func Make(n int) Table {
	if n <= short {
		return Table{}
	}
	size := 2
	for size < 2*n {
		size *= 2
	}
	return Table{make([]int32, size)}
}

// The method `slot` returns the slot of s. If the table does not contain s, the method returns the empty slot into which s belongs.
func (t *Table) slot(list []string, s string) *int32 {
	mask := len(t.slots) - 1
	for i := int(maphash.String(seed, s)) & mask; ; i = (i + 1) & mask {
		if at := &t.slots[i]; *at == 0 || list[*at-1] == s {
			return at
		}
	}
}

// Add enters the string at position i of the list into the table. If the table already contains this string, Add changes nothing and returns false.
func (t *Table) Add(list []string, i int) bool {
	if len(t.slots) == 0 {
		return !slices.Contains(list[:i], list[i])
	}
	at := t.slot(list, list[i])
	if *at != 0 {
		return false
	}
	*at = int32(i) + 1
	return true
}

// Find returns the position of s in the list, and whether the list contains s.
func (t *Table) Find(list []string, s string) (int, bool) {
	if len(t.slots) == 0 {
		if len(list) > short {
			return 0, false
		}
		i := slices.Index(list, s)
		return max(i, 0), i >= 0
	}
	at := *t.slot(list, s)
	return max(int(at)-1, 0), at != 0
}

// Move updates the table after the caller has reordered the list. The function "to" returns the new position of the string that was at position i.
func (t *Table) Move(to func(i int) int) {
	for i, at := range t.slots {
		if at != 0 {
			t.slots[i] = int32(to(int(at)-1)) + 1
		}
	}
}
