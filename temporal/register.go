package temporal

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// registerWith registers the workflows and the activities of the host. It begins with the types that do not depend on the Options. So a second
// Register for the same worker fails before it changes anything.
func (h *host) registerWith(r Registry) error {
	if r == nil {
		return fmt.Errorf("kahn/temporal: %w: no worker", kahn.ErrBadOption)
	}
	for _, name := range []string{BatchName, ItemsName, WorkflowName} {
		f := any(h.batch)
		if name == WorkflowName {
			f = h.run
		}
		if err := registered("workflow", name, "", func() { r.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name}) }); err != nil {
			return err
		}
	}
	kinds := h.activityTypes()
	for _, name := range leading(kinds, ActivityName) {
		if err := registered("activity", name, kinds[name], func() { r.RegisterActivityWithOptions(h.step, activity.RegisterOptions{Name: name}) }); err != nil {
			return err
		}
	}
	graphs := h.workflowTypes()
	for _, name := range leading(graphs, "") {
		if err := registered("workflow", name, graphs[name], func() { r.RegisterWorkflowWithOptions(h.run, workflow.RegisterOptions{Name: name}) }); err != nil {
			return err
		}
	}
	return nil
}

// leading returns the sorted keys of a map. If the map has the key that the parameter "first" names, this key comes first.
func leading(names map[string]string, first string) []string {
	list := slices.Sorted(maps.Keys(names))
	if i := slices.Index(list, first); i > 0 {
		list = slices.Insert(slices.Delete(list, i, i+1), 0, first)
	}
	return list
}

// registered calls a function that registers a type with a worker. If the worker has the type already, the SDK panics, and registered returns an
// error. The parameter "of" says to which graph or kind the type belongs. It is "" if kahn itself has chosen the type.
func registered(what, name, of string, register func()) error {
	err := foreign.Contain(func() error { register(); return nil }, func(v any) error { return foreign.NewPanicError(v) })
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(foreign.ErrorText(err), "panic: ")
	if !strings.Contains(text, "already registered") {
		return fmt.Errorf("kahn/temporal: %w: the worker refuses the %s type %q: %s", kahn.ErrBadOption, what, name, text)
	}
	field, thing, article := "WorkflowType", "graph", "a "
	if what == "activity" {
		field, thing, article = "ActivityType", "kind", "an "
	}
	if of == "" {
		return fmt.Errorf("kahn/temporal: %w: the worker already has the %s type %q, from an earlier Register: call Register once for each worker, with the plans of all graphs in one Options.Plans",
			kahn.ErrBadOption, what, name)
	}
	return fmt.Errorf("kahn/temporal: %w: the worker already has %s of the type %q, which is also the type of %s: rename your %s or the %s, let Options.%s return another type, or use a worker of its own on another task queue",
		kahn.ErrBadOption, article+what, name, of, what, thing, field)
}

// activityTypes returns the activity types of the plans, as the keys of a map. The value for a type names its kind, and a node of the kind.
func (o Options) activityTypes() map[string]string {
	types := map[string]string{ActivityName: ""}
	for k, path := range o.kinds(func(kahn.Node) bool { return true }) {
		name := o.activityType(k)
		if of := kindText(k) + path; name != ActivityName && (types[name] == "" || of < types[name]) {
			types[name] = of
		}
	}
	return types
}

// kinds returns the kinds of the selected nodes of the plans, and the kinds of all compensations by CompensateBy. The kinds are the keys of a map.
// The value for a kind names the first node of the kind, in brackets.
func (o Options) kinds(selects func(kahn.Node) bool) map[string]string {
	kinds := map[string]string{}
	note := func(kind, path string, p *kahn.Plan) {
		if _, known := kinds[kind]; !known {
			kinds[kind] = fmt.Sprintf(" (node %q of graph %q)", path, p.Name())
		}
	}
	for _, root := range o.Plans {
		if root == nil {
			continue
		}
		for prefix, p := range levels(root) {
			for r := range p.Declared() {
				n := p.Node(r)
				if selects(n) {
					note(n.Kind, prefix+n.ID, root)
				}
				if n.CompensateBy != nil {
					note(n.CompensateBy.Kind, prefix+n.ID, root)
				}
			}
		}
	}
	return kinds
}

func kindText(kind string) string {
	if kind == "" {
		return "nodes without a kind"
	}
	return fmt.Sprintf("kind %q", kind)
}

// workflowTypes returns the workflow types of the plans, as the keys of a map. The value for a type names the first graph with this type.
func (o Options) workflowTypes() map[string]string {
	types := map[string]string{}
	for _, p := range o.Plans {
		name := workflowType(p.Name(), o.WorkflowType)
		if _, known := types[name]; !known {
			types[name] = fmt.Sprintf("graph %q", p.Name())
		}
	}
	return types
}

// Warnings returns a warning for each entry of Kinds that has no effect, because the Plans have no attempts of its kind. [Options.Register] and
// [NewWorker] log the warnings with slog.Default. They return no error for these entries, since workers with different Plans may share their Kinds.
// Each warning matches [kahn.ErrUnknownKind] and lists the kinds of the Plans.
func (o Options) Warnings() (warnings []error) {
	kinds := o.kinds(hasAttempts)
	for _, name := range slices.Sorted(maps.Keys(o.Kinds)) {
		if _, known := kinds[name]; known {
			continue
		}
		meant := ""
		var choices []string
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			choices = append(choices, fmt.Sprintf("%q", kind))
		}
		if near, ok := nearest.Name(name, slices.Sorted(maps.Keys(kinds))); ok {
			meant = fmt.Sprintf("; did you mean %q?", near)
		}
		text := "they have no attempts at all"
		if len(choices) > 0 {
			text = "they have attempts of the kinds " + strings.Join(choices, ", ")
		}
		warnings = append(warnings, fmt.Errorf("kahn/temporal: %w: Options.Kinds[%q] has no effect, because the plans have no attempts of this kind%s; %s", kahn.ErrUnknownKind, name, meant, text))
	}
	return warnings
}

func (o Options) logWarnings() {
	for _, w := range o.Warnings() {
		slog.Default().Warn(w.Error())
	}
}
