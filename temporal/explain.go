package temporal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// The advice that errors get. The usual cause of these errors is that the host has not set a field of Options, Workflow, Store or client.Options.
const (
	setTypes         = "set the field Types of both Options and Workflow, as in kahn.Types{\"order\": Order{}}; a page needs Store.Codec with these types"
	setDataConverter = "set the field DataConverter of Options, Workflow, Store and BlobPrune to the DataConverter of the workers' clients"
	dialWith         = "set the DataConverter and FailureConverter of client.Options as for the clients of the workers, and the field DataConverter of Options, Workflow and Store"
)

// explained is a codec whose errors say which fields the host has to set.
type explained struct{ kahn.Codec }

// Encode implements [kahn.Codec].
func (e explained) Encode(value any) (json.RawMessage, error) {
	data, err := e.Codec.Encode(value)
	return data, explain(err)
}

// Decode implements [kahn.Codec].
func (e explained) Decode(data json.RawMessage) (any, error) {
	value, err := e.Codec.Decode(data)
	return value, explain(err)
}

// Check implements the method that [store.CheckCodec] calls.
func (e explained) Check() error { return store.CheckCodec(e.Codec) }

// Unwrap returns the codec whose errors have no advice.
func (e explained) Unwrap() store.Codec { return e.Codec }

// explain appends advice to an error of a codec if it knows the usual cause. It returns any other error unchanged.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrBlobDamaged):
		return fmt.Errorf("%w, or the writer had another data converter: %s; if the writer's Blobs wrap another BlobStore, wrap this store in the same way", err, setDataConverter)
	case strings.Contains(err.Error(), "is not registered") && (errors.Is(err, kahn.ErrBadValue) || errors.Is(err, kahn.ErrNotEncodable)):
		return fmt.Errorf("%w: %s", err, setTypes)
	}
	return err
}

// undecoded appends advice to the error of a data converter that cannot read a payload. If err is nil, it returns nil.
func undecoded(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the payload cannot be read: %w: %s", err, dialWith)
}

// unreadable appends advice to an error of the SDK if the data converter of the client or of a worker could not read a payload. It returns any other
// error unchanged.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	for _, text := range []string{converter.ErrEncodingIsNotSupported.Error(), converter.ErrUnableToDecode.Error(), "unable to decode the"} {
		if strings.Contains(err.Error(), text) {
			return undecoded(err)
		}
	}
	return err
}
