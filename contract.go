package kahn

import (
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// Contract judges the inputs or the output of a node: see Node.InputSchema and Node.OutputSchema. It may be used by any
// number of goroutines at once.
type Contract interface {
	// Check returns the violations of a value, nothing if it conforms. It must not change the value.
	Check(value any) []Violation
}

// Violation is one way in which a value breaks its contract.
type Violation struct {
	// Path is the place in the value, as a JSON pointer; empty for the whole of it.
	Path string `json:"path"`
	// Message says what is wrong there.
	Message string `json:"message"`
}

// String renders the violation for people.
func (v Violation) String() string {
	if v.Path == "" {
		return v.Message
	}
	return v.Path + ": " + v.Message
}

// SchemaCompiler turns a schema that is data into a Contract. The module kahn/schema has one for JSON Schema.
type SchemaCompiler interface {
	// Graph.Compile calls Compile once for each schema. The error describes the defect of the schema.
	Compile(schema any) (Contract, error)
}

// Phase tells which side of a step is judged.
type Phase = event.Phase

const phaseCount = PhaseOutput + 1

// The phases.
const (
	PhaseInput  Phase = event.PhaseInput  // the parameters, before the step's first attempt
	PhaseOutput Phase = event.PhaseOutput // what an attempt returned
)

// ContractError is the error of a node whose inputs or output violate its contract, of kind [CauseContractInput] or
// [CauseContractOutput].
type ContractError struct {
	Phase      Phase
	Violations []Violation
}

// Error lists the first violations.
func (e *ContractError) Error() string {
	const most = 5
	var parts []string
	for i, v := range e.Violations {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Violations)-most))
			break
		}
		parts = append(parts, foreign.Shorten(v.String()))
	}
	return fmt.Sprintf("%v_contract_violation: %s", e.Phase, strings.Join(parts, "; "))
}

func isContract(schema any) bool {
	_, ok := schema.(Contract)
	return ok
}

// contract makes the Contract of a node's schema.
func (c *compiler) contract(n *node, field string, schema any) (contract Contract) {
	if isNull(schema) {
		return nil
	}
	if contract, ok := schema.(Contract); ok {
		return contract
	}
	if isNull(c.schemas) {
		c.ofNode(n.ID, field, "%w: it has an %s, the graph no Schemas", ErrNoSchemas, field)
		return nil
	}
	err := contain(func() (err error) {
		if contract, err = c.schemas.Compile(schema); err == nil && isNull(contract) {
			err = fmt.Errorf("the compiler returned no contract")
		}
		return err
	})
	if err != nil {
		c.ofNode(n.ID, field, "%s: %w: %w", field, ErrBadSchema, bounded(err))
		return nil
	}
	return contract
}
