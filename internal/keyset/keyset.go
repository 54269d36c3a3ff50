// Package keyset encodes a position in an ordered list. The next page of the list begins after this position.
package keyset

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Encode encodes the position after the last entry of a page. The list is ordered by the number `at` of its entries. Entries with the same number
// are ordered by their `id`.
func Encode(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 36) + "/" + id))
}

// Decode is the reverse of Encode. The error matches enum.ErrBadValue if the text does not come from Encode.
func Decode(text string) (at int64, id string, err error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	number, id, ok := strings.Cut(string(data), "/")
	if err == nil {
		at, err = strconv.ParseInt(number, 36, 64)
	}
	if err != nil || !ok {
		return 0, "", fmt.Errorf("%w: cursor %.40q does not come from a page", enum.ErrBadValue, text)
	}
	return at, id, nil
}
