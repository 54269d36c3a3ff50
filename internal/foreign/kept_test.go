package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// numbered is an error of the test's own type.
type numbered int

func (n numbered) Error() string {
	if n < 0 {
		panic("rude")
	}
	return fmt.Sprint("number ", int(n))
}

// A kept error is found wherever it is wrapped; the first of its type counts. A form that panics, is damaged or is unknown is left out.
func TestKeptErrors(t *testing.T) {
	KeepErrors("test.numbered", KeptError{
		Write: func(err error) json.RawMessage {
			if n, is := err.(numbered); is {
				return json.RawMessage(fmt.Sprintf(`"%s"`, n.Error()))
			}
			return nil
		},
		Read: func(data json.RawMessage) error {
			var text string
			if json.Unmarshal(data, &text) != nil {
				return nil
			}
			return errors.New(text)
		},
	})
	t.Cleanup(func() { delete(kept, "test.numbered") })
	first := fmt.Errorf("outer: %w", errors.Join(errors.New("other"), numbered(1), numbered(2)))
	forms := WriteKept(first)
	require.Equal(t, map[string]json.RawMessage{"test.numbered": json.RawMessage(`"number 1"`)}, forms)
	require.Equal(t, []error{errors.New("number 1")}, ReadKept(forms))
	for _, none := range []error{nil, errors.New("other"), numbered(-1)} {
		require.Nil(t, WriteKept(none))
	}
	require.Empty(t, ReadKept(map[string]json.RawMessage{"test.numbered": json.RawMessage(`7`), "of another program": json.RawMessage(`"x"`)}))
}
