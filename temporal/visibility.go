package temporal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// The search attributes of runs, of type Keyword: see Workflow.SearchAttributes.
const (
	WorkflowAttribute = "KahnWorkflow" // the name of the graph
	StatusAttribute   = "KahnStatus"   // the status of the run, in the words of kahn.RunStatus
)

var (
	workflowAttribute = sdk.NewSearchAttributeKeyKeyword(WorkflowAttribute)
	statusAttribute   = sdk.NewSearchAttributeKeyKeyword(StatusAttribute)
)

// RegisterSearchAttributes adds the search attributes of runs to a namespace. It returns no error if the namespace already has them.
func RegisterSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	for _, name := range []string{WorkflowAttribute, StatusAttribute} {
		_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: namespace, SearchAttributes: map[string]enums.IndexedValueType{name: enums.INDEXED_VALUE_TYPE_KEYWORD},
		})
		var has *serviceerror.AlreadyExists
		if err != nil && !errors.As(err, &has) {
			return fmt.Errorf("kahn/temporal: the search attribute %s of namespace %q: %w", name, namespace, err)
		}
	}
	return nil
}

// show sets the search attribute for the status if the run has search attributes and the status has changed. An execution that continues
// an earlier execution always sets the attribute once.
func (x *interpreter) show(status kahn.RunStatus) {
	if !x.in.SearchAttributes || status == x.shown {
		return
	}
	x.shown = status
	if err := workflow.UpsertTypedSearchAttributes(x.ctx, statusAttribute.ValueSet(status.String())); err != nil {
		panic(err) // this is a bug, because the attribute is a text
	}
}

// shownStatus returns the status in the search attribute of a run.
func shownStatus(w *workflowpb.WorkflowExecutionInfo) (status kahn.RunStatus, ok bool) {
	var text string
	field := w.GetSearchAttributes().GetIndexedFields()[StatusAttribute]
	if field == nil || converter.GetDefaultDataConverter().FromPayload(field, &text) != nil {
		return 0, false
	}
	return status, status.UnmarshalText([]byte(text)) == nil
}

// The method visible translates a filter into a list query of Temporal. It leaves out the conditions that a query cannot express.
func (s Store) visible(f store.Filter) string {
	types := "WorkflowType NOT IN (" + literals(BatchName, ItemsName) + ")"
	if len(s.Types) > 0 {
		types = "WorkflowType IN (" + literals(s.Types...) + ")"
	}
	terms := []string{types + " AND ExecutionStatus != 'ContinuedAsNew'"}
	if f.Prefix != "" {
		terms = append(terms, "WorkflowId STARTS_WITH "+literal(f.Prefix))
	}
	if f.Workflow != "" && s.SearchAttributes {
		terms = append(terms, WorkflowAttribute+" = "+literal(f.Workflow))
	}
	if len(f.Statuses) > 0 {
		terms = append(terms, "("+strings.Join(s.having(f.Statuses), " OR ")+")")
	}
	for _, bound := range []struct {
		at   time.Time
		term string
	}{{f.CreatedFrom, "StartTime >="}, {f.CreatedBefore, "StartTime <"}, {f.EndedFrom, "CloseTime >="}, {f.EndedBefore, "CloseTime <"}} {
		if !bound.at.IsZero() {
			terms = append(terms, fmt.Sprintf("%s '%s'", bound.term, bound.at.UTC().Format(time.RFC3339Nano)))
		}
	}
	return strings.Join(terms, " AND ")
}

// The method having returns the terms that select runs in the wanted statuses. A term for runs that have ended compares the status of the
// workflow, so it also selects terminated workflows, whose search attribute is out of date.
func (s Store) having(wanted []kahn.RunStatus) (terms []string) {
	ended := map[kahn.RunStatus]string{
		kahn.RunCompleted: "ExecutionStatus = 'Completed'", kahn.RunCancelled: "ExecutionStatus = 'Canceled'",
		kahn.RunFailed: "ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut')",
	}
	for _, status := range wanted {
		term, is := ended[status]
		if !is {
			term = "ExecutionStatus = 'Running'"
			if s.SearchAttributes {
				term += " AND " + StatusAttribute + " = " + literal(status.String())
			}
		}
		terms = append(terms, term)
	}
	slices.Sort(terms)
	return slices.Compact(terms)
}

// The function literals returns texts as literals of Temporal's list queries.
func literals(texts ...string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = literal(text)
	}
	return strings.Join(list, ", ")
}

// literal returns a text as a literal of Temporal's list queries.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
