package kahn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Contract checks the inputs or the output of a node, or the answers of a gate: see Node.InputSchema, Node.OutputSchema and Gate.Schema. Several
// goroutines may use a Contract at once.
type Contract interface {
	// Check returns the violations in a value, or nothing if the value conforms. It must not change the value.
	Check(value any) []Violation
}

// Violation is one way in which a value breaks its contract.
type Violation struct {
	// Path is the place in the value, as a JSON pointer. It is empty for the whole value. For a missing field it is the path that the field would
	// have.
	Path string `json:"path"`
	// Message describes what is wrong at this place.
	Message string `json:"message"`
}

// String renders the violation for people.
func (v Violation) String() string {
	if v.Path == "" {
		return v.Message
	}
	return v.Path + ": " + v.Message
}

// schemaCompiler is the type of Graph.Schemas.
type schemaCompiler = interface {
	Compile(schema any) (Contract, error)
}

const phaseCount = event.PhaseOutput + 1

// ContractError is the error of a node whose inputs or output violate a contract. The node's cause is [CauseContractInput] or [CauseContractOutput].
// If an answer violates the Schema of a [Gate], the error unwraps to a ContractError with [event.PhaseOutput].
type ContractError struct {
	Phase      event.Phase
	Violations []Violation
}

// Error lists at most five violations, and counts the others.
func (e *ContractError) Error() string {
	return fmt.Sprintf("%v_contract_violation: %s", e.Phase, e.list())
}

func (e *ContractError) list() string {
	const most = 5
	var parts []string
	for i, v := range e.Violations {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Violations)-most))
			break
		}
		parts = append(parts, foreign.Shorten(v.String()))
	}
	return strings.Join(parts, "; ")
}

func isContract(schema any) bool {
	_, ok := schema.(Contract)
	return ok
}

// contract returns the Contract for a node's schema. If the schema cannot be compiled, it records a problem and returns nil.
func (c *compiler) contract(n *node, field string, schema any) (contract Contract) {
	if isNull(schema) {
		return nil
	}
	if contract, ok := schema.(Contract); ok {
		return contract
	}
	if isNull(c.schemas) {
		c.ofNode(n.ID, field, "%w: %s is set, but the graph has no Schemas", ErrNoSchemas, field)
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

// For the inputs of a step, the contract judges first, and the moderator second. For its output, the moderator judges first, and the contract
// second. Inputs are judged once, when the node has its slot and has not started. A node whose inputs are refused changes from ready to failed.
// Outputs, including the output of a fallback, are judged within the attempt.

// moderator is the function given to [Moderate].
type moderator = func(ctx context.Context, phase event.Phase, node *Step, value any) error

// Flag returns the error by which a moderator refuses a value: see [Moderate].
func Flag(reasons ...string) error { return &flagError{reasons} }

type flagError struct{ reasons []string }

func (e *flagError) Error() string { return "flagged: " + strings.Join(e.reasons, "; ") }

// ModerationError is the error of a node with the cause [CauseModeration].
type ModerationError struct {
	Phase event.Phase
	// Reasons are the moderator's reasons for flagging the value.
	Reasons []string
	// Err is the error that kept the moderator from judging. It is nil if the moderator flagged the value.
	Err error
}

// Error lists the moderator's reasons, or says why the moderator could not judge.
func (e *ModerationError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("moderation of the %v failed: %s", e.Phase, errorText(e.Err))
	}
	return foreign.Shorten(fmt.Sprintf("%v flagged: %s", e.Phase, strings.Join(e.Reasons, "; ")))
}

// Unwrap returns Err.
func (e *ModerationError) Unwrap() error { return e.Err }

// Moderation determines what the run's moderator judges: the inputs of a step, its output, both or nothing. See [Moderate].
type Moderation uint8

// The values of Moderation.
const (
	ModerateNone Moderation = iota
	ModerateInput
	ModerateOutput
	ModerateBoth

	moderationCount
)

var moderationNames = enum.Of[Moderation]("moderation", "none", "input", "output", "both")

// covers reports whether the moderator judges the phase.
func (m Moderation) covers(p event.Phase) bool {
	return m == ModerateBoth || m == ModerateInput && p == event.PhaseInput || m == ModerateOutput && p == event.PhaseOutput
}

// String returns "none", "input", "output" or "both".
func (m Moderation) String() string { return moderationNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m Moderation) MarshalText() ([]byte, error) { return moderationNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *Moderation) UnmarshalText(text []byte) error { return moderationNames.Parse(m, text) }

// Moderate sets the run's moderator. The moderator judges the inputs and outputs that the Moderation fields of the nodes select. If a node has a
// Moderation and the run has no moderator, the run does not start: the error matches [ErrNoModerator].
//
// The function check returns nil to accept a value, and [Flag] to refuse it. Any other error, or a panic, also refuses the value, because check has
// not judged it. In [event.PhaseInput] the value is the map of parameters. In [event.PhaseOutput] it is the result of the step. The function must
// not change the value. The parameter ctx is the context of the attempt: it ends when the attempt times out, and when the node or the run is
// stopped.
func Moderate(check func(ctx context.Context, phase event.Phase, node *Step, value any) error) Option {
	return optionFunc(func(c *config) error {
		if check == nil {
			return fmt.Errorf("%w: Moderate(nil)", ErrBadOption)
		}
		c.moderator = check
		return nil
	})
}

var errNotAdmitted = errors.New("the node was stopped while its inputs were judged")

// admission judges the inputs of an attempt whose node has not started yet.
func (w *worker) admission() (refused attemptResult) {
	if w.step.flags&stepAdmitting != 0 {
		refused = w.admit()
	}
	return refused
}

// admit judges the inputs of a node that has its slot. If the inputs are accepted, admit starts the node. It runs as a part of the attempt, so a
// panic or a Goexit of the contract or the moderator fails the node.
func (w *worker) admit() attemptResult {
	r, step := w.run, w.step
	if n := r.plan.node(step.ref); r.plan.contracts[step.ref][event.PhaseInput] != nil || n.Moderation.covers(event.PhaseInput) {
		if refused := r.inspect(step, event.PhaseInput, r.params(step.ref, step.flags, false)); refused.err != nil {
			return refused
		}
	}
	now := r.now()
	r.st.Lock()
	x := r.extras[step.ref]
	if r.current(step.ref) != step || r.st.Word(step.ref).Is(machine.WordStopping) || x != nil && x.timedOut != timeoutNone {
		r.st.Unlock()
		return attemptResult{err: errNotAdmitted, kind: CauseStepError} // this error has no effect: the stop or the timeout decides the outcome of the attempt
	}
	r.records[step.ref].attempts = step.attempt
	r.st.Admitted(step.ref)
	r.release(now)
	return attemptResult{}
}

// judgeOutput judges the value that a step or a fallback has returned.
func (w *worker) judgeOutput(value any) (refused attemptResult) {
	r, step := w.run, w.step
	if v, ok := value.(EndVerdict); ok && step.ref == r.plan.end {
		value = v.Output
	}
	err := w.protect(func() error {
		refused = r.inspect(step, event.PhaseOutput, value)
		return nil
	})
	if err != nil {
		refused = attemptResult{err: err, kind: CausePanic}
	}
	w.now = r.now()
	return refused
}

// inspect judges a value. If the value is accepted, the result has no error.
func (r *Run) inspect(step *Step, phase event.Phase, value any) (refused attemptResult) {
	if phase == event.PhaseInput {
		if refused = r.holdAgainstContract(step, phase, value); refused.err == nil {
			refused = r.moderate(step, phase, value)
		}
		return refused
	}
	if refused = r.moderate(step, phase, value); refused.err == nil {
		refused = r.holdAgainstContract(step, phase, value)
	}
	return refused
}

func (r *Run) holdAgainstContract(step *Step, phase event.Phase, value any) attemptResult {
	breach := r.plan.violated(step.ref, phase, value)
	if breach == nil {
		return attemptResult{}
	}
	r.refused(step, evContractViolated, func(*extra) any {
		violated := event.Breach{Phase: phase}
		for _, v := range breach.Violations {
			violated.Errors = append(violated.Errors, foreign.Shorten(v.String()))
		}
		return violated
	})
	kind := CauseContractInput
	if phase == event.PhaseOutput {
		kind = CauseContractOutput
	}
	return attemptResult{err: breach, kind: kind}
}

// The method `refused` logs that a contract or the moderator has refused a value. If the attempt has timed out meanwhile, it logs nothing, because
// the attempt then ends with the timeout.
func (r *Run) refused(step *Step, kind eventKind, arg func(*extra) any) {
	r.stepEvent(step, kind, func(x *extra) any {
		if x.timedOut != timeoutNone {
			return nil
		}
		return arg(x)
	})
}

func (r *Run) moderate(step *Step, phase event.Phase, value any) attemptResult {
	if !step.node().Moderation.covers(phase) {
		return attemptResult{}
	}
	refusal := moderated(r.cfg.moderator, step, phase, value)
	switch {
	case refusal == nil:
		return attemptResult{}
	case refusal.Err == nil:
		r.refused(step, evModerationFlagged, func(*extra) any { return event.Refusal{Phase: phase, Errors: refusal.Reasons} })
	case step.ended() != nil: // the end of the attempt interrupted the moderator, so the moderator has not refused the value
		return attemptResult{err: refusal, kind: CauseStepError}
	}
	return attemptResult{err: refusal, kind: CauseModeration}
}

// The method `violated` checks a value against the contract of a node.
func (p *Plan) violated(r machine.Ref, phase event.Phase, value any) *ContractError {
	contract := p.contracts[r][phase]
	if contract == nil {
		return nil
	}
	if violations := contract.Check(value); len(violations) > 0 {
		return &ContractError{Phase: phase, Violations: violations}
	}
	return nil
}

// judgeAnswer checks an answer against the Schema of a gate. If the answer violates the Schema, the error is a [*ContractError].
func (p *Plan) judgeAnswer(r machine.Ref, answer any) error {
	contract := p.answerContracts[r]
	if contract == nil {
		return nil
	}
	if violations := contract.Check(answer); len(violations) > 0 {
		return &ContractError{Phase: event.PhaseOutput, Violations: violations}
	}
	return nil
}

// refusalText returns the reason why an answer was refused. For a violated contract, the reason is the list of violations, without the phase.
func refusalText(err error) string {
	if violated, ok := err.(*ContractError); ok {
		return violated.list()
	}
	return errorText(err)
}

// The function `moderated` calls a moderator to judge a value. It returns nil if the value is accepted.
func moderated(m moderator, step *Step, phase event.Phase, value any) *ModerationError {
	if m == nil {
		return &ModerationError{Phase: phase, Err: ErrNoModerator}
	}
	err := contain(func() error { return m(step, phase, step, value) })
	if err == nil {
		return nil
	}
	var flag *flagError
	walkError(err, func(e error) bool {
		f, ok := e.(*flagError)
		if ok {
			flag = f
		}
		return !ok
	})
	if flag != nil {
		return &ModerationError{Phase: phase, Reasons: flag.reasons}
	}
	return &ModerationError{Phase: phase, Err: bounded(err)}
}
