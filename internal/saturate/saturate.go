// Package saturate adds times and durations without overflow.
package saturate

import "math"

// Add returns a+b, or the largest or smallest int64 if the sum overflows.
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
