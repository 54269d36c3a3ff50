// Package keyset encodes a position in an ordered list. A page of the list names the position at which the next page begins.
package keyset

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Encode encodes a position in a list. The entries of the list are ordered by a number, and entries with the same number by an id. The parameters are
// the number and the id at the position.
func Encode(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 36) + "/" + id))
}

// Decode is the reverse of Encode. It returns an error that matches enum.ErrBadValue if the text does not come from Encode.
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
