//go:build !rivals

package main

// libraries is empty without the build tag rivals: the libraries and their dependencies take longer to compile than all other code.
var libraries []contestant
