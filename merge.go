package kahn

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MergeFunc merges the values of the edges that share a parameter. It is called with the delivered values, at least one
// contribution, in the order in which the edges were declared. An error or a panic fails the node with [CauseMergeError].
type MergeFunc func([]Contribution) (any, error)

// Contribution is the value that one edge delivered to a merge.
type Contribution struct {
	From  string // the source node
	Label string // the source node's label, for people; may be empty
	Value any
}

// The built-in merge strategies. Two or more edges that are declared for one parameter are merged however many of them
// deliver, so the shape of the result does not depend on which branch ran.
const (
	// MergeLast takes the value of the last delivering edge in the order of declaration.
	MergeLast = "last_write_wins"
	// MergeConcat joins the values as text, with a blank line in between: strings and []byte as they are, errors as their
	// texts, everything else as JSON. Nulls are dropped.
	MergeConcat = "concat"
	// MergeArray collects the values as []any.
	MergeArray = "array"
	// MergeObject collects the values as map[string]any, keyed by the label of the source, or by its id where the label is
	// empty or not unique among the edges of the parameter.
	MergeObject = "json_object"
)

func builtinMerge(name string) bool {
	switch name {
	case MergeLast, MergeConcat, MergeArray, MergeObject:
		return true
	}
	return false
}

// mergeValues applies a built-in strategy. keys are the keys of the contributions under MergeObject.
func mergeValues(strategy string, asJSON bool, in []Contribution, keys []string) (any, error) {
	value := func(c Contribution) any {
		if err, is := c.Value.(error); is && asJSON {
			return errorText(err) // its fields are no contract, and some do not survive a snapshot
		}
		return c.Value
	}
	var merged any
	switch strategy {
	case MergeConcat:
		return concat(in)
	case MergeArray:
		values := make([]any, len(in))
		for i, c := range in {
			values[i] = value(c)
		}
		merged = values
	case MergeObject:
		object := make(map[string]any, len(in))
		for i, c := range in {
			object[keys[i]] = value(c)
		}
		merged = object
	default:
		return in[len(in)-1].Value, nil
	}
	if !asJSON {
		return merged, nil
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("rendering the merged value as JSON: %w", err)
	}
	return string(text), nil
}

func concat(in []Contribution) (any, error) {
	var parts []string
	for _, c := range in {
		if isNull(c.Value) {
			continue
		}
		switch v := c.Value.(type) {
		case string:
			parts = append(parts, v)
		case []byte:
			parts = append(parts, string(v))
		case error:
			parts = append(parts, errorText(v))
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("rendering the value of %s as JSON: %w", quoteID(c.From), err)
			}
			parts = append(parts, string(text))
		}
	}
	return strings.Join(parts, "\n\n"), nil
}
