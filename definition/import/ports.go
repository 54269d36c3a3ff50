package importer

import (
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
)

// portTypes maps types of ports to types of JSON Schema; "" means any.
var portTypes = map[string]string{
	"any": "", "json": "", "unknown": "", "string": "string", "text": "string", "number": "number", "integer": "integer", "boolean": "boolean",
	"object": "object", "array": "array", "list": "array",
}

// inputPorts converts input ports, and turns their types into the schema of the node's parameters.
func (r *reader) inputPorts(p place) []definition.Value {
	var ports []definition.Value
	types := object(p)
	r.ports(p, func(p place, name definition.Value) {
		port := object(p, name)
		var schema definition.Value
		required := false
		if p.Type == definition.Object {
			r.read(p, format{fields: map[string]func(place){
				"name": func(place) {}, "type": func(p place) { schema = r.portType(p) },
				"required": func(p place) {
					required = p.Type == definition.Bool && p.Text == "true"
					put(&port, copied(p, "required"))
				},
				"default": func(p place) { put(&port, copied(p, "default")) },
			}, refused: portProse})
		} else if p.Key != "" {
			schema = r.portType(p)
		}
		ports = append(ports, port)
		if len(schema.Items) > 0 {
			put(&types, named(name.Text, orNull(p, schema, !required)))
		}
	})
	fields := []definition.Value{list(p, "ports", ports)}
	if len(types.Items) > 0 {
		fields = append(fields, named("input_schema", object(p, text(p, "type", "object"), named("properties", types))))
	}
	return fields
}

// outputPorts converts output ports, and turns their types into the schema of the node's output. The port "output" stands for
// the whole output.
func (r *reader) outputPorts(p place) []definition.Value {
	var names []definition.Value
	var whole definition.Value
	types := object(p)
	r.ports(p, func(p place, name definition.Value) {
		var schema definition.Value
		if p.Type == definition.Object {
			r.read(p, format{fields: map[string]func(place){
				"name": func(place) {}, "type": func(p place) { schema = r.portType(p) },
			}, refused: portProse})
		} else if p.Key != "" {
			schema = r.portType(p)
		}
		if name.Text == wholeOutput {
			whole = schema
		} else {
			names = append(names, named("", name))
		}
		if len(schema.Items) > 0 && name.Text != wholeOutput {
			put(&types, named(name.Text, orNull(p, schema, true)))
		}
	})
	var fields []definition.Value
	if len(names) > 0 || len(p.Items) == 0 {
		fields = append(fields, list(p, "outputs", names))
	}
	switch {
	case len(whole.Items) > 0 && len(names) > 0:
		r.add(p, definition.ErrUnsupported, "the port %q is the whole output: its type cannot stand beside the types of other ports", wholeOutput)
	case len(whole.Items) > 0:
		fields = append(fields, named("output_schema", orNull(p, whole, true)))
	case len(types.Items) > 0:
		fields = append(fields, named("output_schema", object(p, named("properties", types))))
	}
	return fields
}

// wholeOutput is the name of the port that stands for the whole output of a node.
const wholeOutput = "output"

var portProse = map[string]string{"description": "ports have no descriptions"}

// The method `ports` reads the declarations of ports, and calls the function `each` for every port. The declarations are a list or an object. An
// item of the list is a name, or an object with a name. A key of the object is a name, and its value is the type or the declaration of the port.
func (r *reader) ports(p place, each func(p place, name definition.Value)) {
	if p.Type == definition.Object {
		r.read(p, format{rest: func(p place) {
			each(p, scalar(place{&definition.Value{At: p.KeyAt, KeyAt: p.KeyAt}, p.path}, "name", definition.Text, p.Key))
		}})
		return
	}
	r.list(p, func(p place) {
		switch {
		case p.Type == definition.Object && p.has("name"):
			if name := p.member("name"); r.expect(name, definition.Text) {
				each(p, *name.Value)
			}
		case p.Type == definition.Object:
			r.add(p, definition.ErrMissing, `the field "name" is missing`)
		case r.expect(p, definition.Text):
			each(p, text(p, "name", p.Text))
		}
	})
}

// portNames returns the names of the ports that a step declares.
func portNames(p place) (names []string) {
	for _, item := range p.items() {
		switch {
		case p.Type == definition.Object:
			names = append(names, item.Key)
		case item.Type == definition.Object:
			names = append(names, item.member("name").text())
		default:
			names = append(names, item.text())
		}
	}
	return names
}

// portType converts a port's type to a JSON Schema. The type is a word such as string or number[], or is a JSON Schema already. A schema
// without members allows any value.
func (r *reader) portType(p place) definition.Value {
	if p.Type == definition.Object {
		return object(p, p.Items...)
	}
	if !r.expect(p, definition.Text) {
		return definition.Value{}
	}
	element, isList := strings.CutSuffix(p.Text, "[]")
	name, known := portTypes[element]
	if !known {
		suggest(r.add(p, definition.ErrValue, "the type %.60q of a port is none of any, array, boolean, integer, json, list, number, object, string, text, unknown, alone or followed by []",
			p.Text), p.Text, portTypes)
		return definition.Value{}
	}
	schema := object(p)
	if name != "" {
		put(&schema, text(p, "type", name))
	}
	if isList {
		return object(p, text(p, "type", "array"), named("items", schema))
	}
	return schema
}

// orNull returns the schema. If the parameter `null` is true, the returned schema also accepts null.
func orNull(p place, schema definition.Value, null bool) definition.Value {
	if !null {
		return schema
	}
	alternatives := []definition.Value{named("", schema), object(p, text(p, "type", "null"))}
	return object(p, list(p, "anyOf", alternatives))
}
