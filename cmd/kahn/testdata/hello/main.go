// Hello greets.
package main

import "os"

func main() {
	name := "world"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if _, err := os.Stdout.WriteString(greeting(name) + "\n"); err != nil {
		os.Exit(1)
	}
}

func greeting(name string) string { return "Hello, " + name + "!" }
