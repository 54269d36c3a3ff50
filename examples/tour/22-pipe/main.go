// Stages that overlap form one node. While a model still writes, one stage joins the model's tokens into sentences, and the next stage turns the
// sentences into speech. If a stage fails, kahn retries the whole node.
package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/typed"
)

// tokens yields the tokens of a model's answer to a prompt.
func tokens(prompt string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, token := range []string{"You", " asked", " for ", prompt, ".", " Here", " it", " is", "."} {
			if !yield(token, nil) {
				return
			}
		}
	}
}

// The function `sentences` joins tokens into sentences.
func sentences(tokens iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		text := ""
		for token, err := range tokens {
			if err != nil {
				yield("", err)
				return
			}
			if text += token; token == "." {
				if !yield(text, nil) {
					return
				}
				text = ""
			}
		}
	}
}

// speak turns a sentence into speech. In the first attempt of the node it fails, because the voice is busy.
func speak(ctx context.Context, sentence string) (string, error) {
	if kahn.StepOf(ctx).Attempt() == 1 {
		return "", errors.New("the voice is busy")
	}
	return fmt.Sprintf("<speech of %q>", sentence), nil
}

func main() {
	answer := typed.New("answer", func(b *typed.Block) typed.Val[int] {
		return typed.Do1(b, "say", func(ctx context.Context, prompt string) (said int, err error) {
			written := typed.Overlap(ctx, sentences(typed.Overlap(ctx, tokens(prompt), 16)), 4)
			for audio, err := range typed.Pipe(ctx, written, speak, typed.Stage{Parallel: 2}) {
				if err != nil {
					return 0, err
				}
				fmt.Println(audio)
				said++
			}
			return said, nil
		}, typed.Root[string](b, "prompt")).With(typed.Options{Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}})
	})
	said, err := typed.Run(context.Background(), answer, kahn.Inputs(map[string]any{"prompt": "a poem"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(said, "sentences")
}
