// Package keyset encodes the places in ordered lists from which a reader asks for the next page.
package keyset

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Encode returns the text of a place: the last entry of a page has the number at, and among the entries with this number the
// given id.
func Encode(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 36) + "/" + id))
}

// Decode is the reverse of Encode. The error matches enum.ErrBadValue for any other text.
func Decode(text string) (at int64, id string, err error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	number, id, ok := strings.Cut(string(data), "/")
	if err == nil {
		at, err = strconv.ParseInt(number, 36, 64)
	}
	if err != nil || !ok {
		return 0, "", fmt.Errorf("%w: cursor %.40q is none that a page had", enum.ErrBadValue, text)
	}
	return at, id, nil
}
