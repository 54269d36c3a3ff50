// Package saturate adds times and durations without overflow.
package saturate

import "math"

// Add returns a+b; a sum that does not fit is the largest or the smallest number.
func Add(a, b int64) int64 {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	}
	return sum
}
