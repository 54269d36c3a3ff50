// Package typed builds pipelines whose wiring the Go compiler checks. A pipeline is written like a program: functions are called with the
// values of other functions.
//
//	checkout := typed.New("checkout", func(b *typed.Block) typed.Val[Receipt] {
//		order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
//		stock := typed.Do1(b, "reserve", reserve, order)
//		card := typed.Do1(b, "charge", charge, order).With(typed.Options{Retry: kahn.RetryStandard()})
//		return typed.Do3(b, "receipt", write, order, stock, card)
//	})
//	receipt, err := typed.Run(ctx, checkout, kahn.Inputs(map[string]any{"id": "7"}))
//
// Here load is a func(context.Context, string) (Order, error), and write takes an Order, a Stock and a Card. reserve and charge run at the
// same time. A misspelt or forgotten input, a cycle, or a value of the wrong type does not compile.
//
// # Contents
//
//   - [New], [Pipeline], [Block], [Val]: a pipeline, the places to add nodes to, and the values of nodes.
//   - [Do0] to [Do8]: steps. [Options], [Val.With] and [Val.Fallback]: further settings of a node.
//   - [Val.Compensate], [Undo], [Undo0] to [Undo4], [UndoEach]: functions that undo the effects of nodes.
//   - [Root], [Gate]: values from outside: inputs of the run, and answers for which the run waits.
//   - [If], [Switch], [Either]: branches, and the value of the branch that was taken.
//   - [Try], [Tried]: a value or an error.
//   - [Each], [EachSub], [Items], [Filled]: lists, with the errors of their items.
//   - [Sub]: pipelines within pipelines.
//   - [Pipe], [Overlap], [Stage], [Values]: overlapping stages within one node. [ErrStage]: a function of a stage ended its goroutine.
//   - [Run], [Pipeline.Execute], [Pipeline.Start], [Pipeline.Output]: runs and their results.
//   - [Pipeline.Graph], [Pipeline.Plan], [Pipeline.Encoding], [Pipeline.Types]: for other code that works with graphs.
//
// # What becomes of a node
//
// A pipeline becomes a [kahn.Graph]. For each function, the graph has a node with the id that was given with the function. Stores, events,
// pictures, limits, retries, test mode and package kahntest see that graph, and treat it like any other.
//
// A node runs when all of its values exist. A value may be missing for three reasons:
//
//   - The node that should make it has failed or was stopped. Nodes that take the value are aborted, and the run fails, unless [Try] takes
//     the value, too.
//   - The node is on a branch that was not taken. Nodes on that branch are skipped. Outside the branch
//     only an [Either] may take the value; for other nodes [Pipeline.Plan] returns an error.
//   - The node skipped itself by [kahn.Skip]. Nodes that take the value are skipped.
//
// So kahn never calls a function without its values.
//
// # What the compiler cannot find
//
// [Pipeline.Plan], and every function that runs the pipeline, returns an error before anything runs if ids are not unique, a function is nil, or
// a value belongs to another pipeline. It also returns an error if a value of a branch is taken outside the branch, or an Either has no value
// for one of the branches. The error lists all of these mistakes. Two other mistakes fail a node during the run: a value for which a [Switch] has
// no case, and an input of the wrong type.
//
// # Costs
//
// A typed step reads its values and calls its function, like a hand-written step: it does not allocate and uses no reflection. A run gets
// one more option, [Pipeline.Encoding]. Two kinds of values are converted: values from outside, which have JSON's types, and the lists that an
// [Each] makes.
package typed
