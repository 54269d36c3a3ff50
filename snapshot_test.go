package kahn

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/vary"
	"github.com/seed-c794f7ef/kahn/machine"
)

// TestNodesAreWrittenLikeJSON sets every member of a node's state, alone and together with all others, to values of many kinds. It fails if the
// writer omits a member or writes members in another order than package json.
func TestNodesAreWrittenLikeJSON(t *testing.T) {
	t.Parallel()
	like := func(n *nodeState, what string) {
		var w nodeWriter
		w.node(n)
		require.NoError(t, w.Err, what)
		want, err := json.Marshal(n)
		require.NoError(t, err, what)
		require.Equal(t, string(want), string(w.Data), what)
	}
	var members []reflect.StructField // including the members of embedded structs
	for _, f := range reflect.VisibleFields(reflect.TypeFor[nodeState]()) {
		if !f.Anonymous && f.IsExported() {
			members = append(members, f)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for variant := range 12 {
		var all, some nodeState
		for _, f := range members {
			var one nodeState
			vary.Set(t, reflect.ValueOf(&one).Elem().FieldByIndex(f.Index), variant, ofNode)
			like(&one, f.Name)
			reflect.ValueOf(&all).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(one).FieldByIndex(f.Index))
			if rng.IntN(2) == 0 {
				reflect.ValueOf(&some).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(one).FieldByIndex(f.Index))
			}
		}
		like(&all, "all")
		like(&some, "some")
	}
}

// ofNode sets a value whose type occurs only in the state of a node. It returns false for any other type.
func ofNode(at any, variant int) bool {
	switch x := at.(type) {
	case *stored:
		*x = stored{raw: vary.JSON(variant)}
	case *CauseKind:
		*x = CauseKind(variant % 2)
	case *Status:
		*x = Status(variant % 2)
	case *machine.SkipKind:
		*x = machine.SkipKind(variant % 2)
	case *timeoutScope:
		*x = timeoutScope(variant % 2)
	case *Compensation:
		*x = Compensation(variant % 2)
	case *RunStatus:
		*x = RunStatus(variant % 2)
	case *[]insideState: // iterations
	case *[]nodeState: // nodes inside nodes, which are written like other nodes
	default:
		return false
	}
	return true
}

// TestNodesNeedEncodedValues: the writer returns an error for a value that no codec has encoded, wherever it occurs.
func TestNodesNeedEncodedValues(t *testing.T) {
	t.Parallel()
	for _, n := range []nodeState{{Value: new(stored)}, {Merged: map[string]stored{"a": {}}}, {Inside: &insideState{Previous: new(stored)}}} {
		var w nodeWriter
		w.node(&n)
		require.ErrorIs(t, w.Err, ErrNotEncodable)
	}
}
