package kahn

func init() { panicOnBug = true }
