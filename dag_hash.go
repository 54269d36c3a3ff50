package kahn

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
)

// Hash identifies the graph for snapshots: the hex SHA-256 of everything in the graph that decides the result of a run. It
// covers nodes, defaults of inputs, the graphs inside of them, edges, joins, policies, configuration as far as it has a JSON
// form, and the presence of Go functions, which cannot be compared. It leaves out fields that only decide when and how often
// steps are performed: Retry, Timeout, OverallTimeout, MaxCrashes, Priority, Estimate, Groups, Key and the Pause of a loop; and fields
// that only Compile reads: the Choices of a condition and the Outputs of a node.
//
// It calls the MarshalJSON methods of the values that it covers. A MarshalJSON that calls Hash of the same graph gets "".
func (p *Plan) Hash() string {
	p = p.orEmpty()
	if h := p.hashed.Load(); h != nil {
		return h.whole
	}
	if p.hashing.Load() > 0 && isHashing() {
		return ""
	}
	// User code may end the goroutine, so there is no lock: concurrent callers compute the same hash.
	p.hashing.Add(1)
	defer p.hashing.Add(-1)
	h := &hashes{nodes: make([]string, len(p.names))}
	all := sha256.New()
	for i := range p.inputs {
		if in := &p.inputs[i]; in.Default != nil {
			fmt.Fprintf(all, "Input %q=%s\n", in.Name, hashedForm(reflect.ValueOf(in.Default)))
		}
	}
	for _, ref := range p.declared {
		h.nodes[ref] = p.hashNode(ref)
		fmt.Fprintln(all, h.nodes[ref])
	}
	h.whole = hex.EncodeToString(all.Sum(nil))
	p.hashed.CompareAndSwap(nil, h)
	return h.whole
}

// hashes are the hash of a plan and those of its nodes, by Ref.
type hashes struct {
	whole string
	nodes []string
}

// nodeHash is the hash of a node of a plan that has been hashed; "" while it is being computed.
func (p *Plan) nodeHash(ref Ref) string {
	if h := p.hashed.Load(); h != nil {
		return h.nodes[ref]
	}
	return ""
}

// isHashing reports whether the goroutine is in user code that hashedForm has called.
func isHashing() bool {
	name := runtime.FuncForPC(reflect.ValueOf(hashedForm).Pointer()).Name()
	var pcs [256]uintptr
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == name {
				return true
			}
		}
	}
}

// unhashed are the fields of a Node that its hash leaves out; After and In are empty in a plan, and Sub has a plan of its own.
var unhashed = []string{"After", "In", "Sub", "Retry", "Timeout", "OverallTimeout", "MaxCrashes", "Priority", "Estimate", "Groups", "Key", "Choices", "Outputs"}

// hashNode hashes a node with its in-edges and the defaults that apply to it.
func (p *Plan) hashNode(ref Ref) string {
	h := sha256.New()
	join, skip, upstream := p.net.Rules(ref)
	fmt.Fprintf(h, "%v %v %v\n", join, skip, upstream)
	resolved := p.node(ref).whole()
	resolved.GuardErrors = p.guard(ref)
	n := reflect.ValueOf(resolved)
	for i := range n.NumField() {
		name, field := n.Type().Field(i).Name, n.Field(i)
		if field.IsZero() || slices.Contains(unhashed, name) {
			continue
		}
		if loop, ok := field.Interface().(*Loop); ok {
			unpaused := *loop
			unpaused.Pause = 0
			field = reflect.ValueOf(&unpaused)
		}
		if gate, ok := field.Interface().(*Gate); ok && gate.Check != nil {
			unchecked := *gate
			unchecked.Check = nil
			if reflect.ValueOf(unchecked).IsZero() {
				continue
			}
		}
		fmt.Fprintf(h, "%s=%s\n", name, hashedForm(field))
	}
	if sub := p.sub(ref); sub != nil {
		fmt.Fprintf(h, "Sub=%s\n", sub.Hash())
	}
	for _, i := range p.net.In(ref) {
		e := reflect.ValueOf(p.Edge(i))
		for i := range e.NumField() {
			if !e.Field(i).IsZero() {
				fmt.Fprintf(h, "%s=%s ", e.Type().Field(i).Name, hashedForm(e.Field(i)))
			}
		}
		fmt.Fprintln(h)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// hashedForm is a field by its JSON form, or by its type if it has none. MarshalJSON is user code.
func hashedForm(v reflect.Value) (text string) {
	if v.Kind() == reflect.Func {
		return "func"
	}
	err := contain(func() error {
		data, err := json.Marshal(v.Interface())
		text = string(data)
		return err
	})
	if err == nil {
		return text
	}
	if _, ok := err.(*PanicError); ok {
		return fmt.Sprintf("<%v>", v.Type())
	}
	if text, ok := hashedStruct(v); ok {
		return text
	}
	return fmt.Sprintf("<%T>", v.Interface())
}

// hashedStruct is hashedForm for a struct with functions in it, or a pointer to one.
func hashedStruct(v reflect.Value) (text string, ok bool) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return "", false
	}
	for i := range v.NumField() {
		if f := v.Field(i); v.Type().Field(i).IsExported() && !f.IsZero() {
			text += fmt.Sprintf("%s=%s ", v.Type().Field(i).Name, hashedForm(f))
		}
	}
	return text, true
}
