// Package typed builds pipelines whose wiring the Go compiler checks. A pipeline is written like a program: functions are called with the values
// of others.
//
//	checkout := typed.New("checkout", func(b *typed.Block) typed.Val[Receipt] {
//		order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
//		stock := typed.Do1(b, "reserve", reserve, order)
//		card := typed.Do1(b, "charge", charge, order).With(typed.Options{Retry: kahn.RetryStandard()})
//		return typed.Do3(b, "receipt", write, order, stock, card)
//	})
//	receipt, err := typed.Run(ctx, checkout, kahn.Inputs(map[string]any{"id": "7"}))
//
// Here load is a func(context.Context, string) (Order, error), and write takes an Order, a Stock and a Card. reserve and charge run at the same time.
// A misspelt or forgotten input, a cycle and a value of the wrong type do not compile.
//
// # Contents
//
//   - [New], [Pipeline], [Block], [Val]: a pipeline, the places to add nodes to, and the values of nodes.
//   - [Do0] to [Do8]: steps. [Options], [Val.With] and [Val.Fallback]: what else a node has.
//   - [Val.Compensate], [Undo], [Undo0] to [Undo4], [UndoEach]: functions that undo what nodes have done.
//   - [Root], [Gate]: values from outside, given before the run and while it waits.
//   - [If], [Switch], [Either]: branches, and the value of the branch that was taken.
//   - [Try], [Tried]: a value or an error.
//   - [Each], [EachSub], [Items], [Filled]: lists, with the errors of their items.
//   - [Sub]: pipelines within pipelines.
//   - [Pipe], [Overlap], [Stage], [Values]: stages within one node that overlap. [ErrStage]: a stage ended its goroutine.
//   - [Run], [Pipeline.Execute], [Pipeline.Start], [Pipeline.Output]: runs and their results.
//   - [Pipeline.Graph], [Pipeline.Plan], [Pipeline.Encoding], [Pipeline.Types]: for everything else that works with graphs.
//
// # What becomes of a node
//
// A pipeline is lowered to a [kahn.Graph] with a node for each function, named by its id. Stores, events, pictures, limits, retries, test mode and
// package kahntest see that graph, and treat it like any other.
//
// A node runs when all of its values are there. There are three reasons for a value to be missing:
//
//   - The node that makes it failed, or was stopped: what takes the value is aborted, and the run fails, unless [Try] takes it, too.
//   - The node is on a branch that was not taken: so is everything that may take the value, but for an [Either]. [New] returns an error if a value
//     of a branch is taken elsewhere.
//   - The node skipped itself by [kahn.Skip]: what takes the value is skipped.
//
// So no function is ever called without its values.
//
// # What the compiler cannot find
//
// [Pipeline.Plan], and every function that runs the pipeline, returns an error before anything runs for duplicate ids, nil functions, a value of
// another pipeline, a value of a branch that is taken outside the branch, and an Either without a value for one of the branches. The error lists
// all slips at once. A case that a [Switch] does not have, and an input of the wrong type, fail the node in the run.
//
// # Costs
//
// A typed step reads its values and calls its function, as a step that is written by hand does: it allocates nothing of its own, and uses no
// reflection. A run has one option more. Only values that come from outside, as JSON has them, are converted.
package typed
