//go:build !rivals

package main

// libraries is empty without the build tag rivals, because the libraries' dependencies take longer to compile than all other code.
var libraries []contestant
