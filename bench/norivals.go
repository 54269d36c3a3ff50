//go:build !rivals

package main

// libraries are none: to compile what they require takes longer than all the rest, so that they need the build tag rivals.
var libraries []contestant
