package main

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// browserCommand returns the command that opens a file in the browser, with all arguments that precede the name of the file. It returns nil
// if there is no desktop.
func browserCommand(goos string, getenv func(string) string) []string {
	switch {
	case goos == "darwin":
		return []string{"open"}
	case goos == "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	case getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != "":
		return []string{"xdg-open"}
	}
	return nil
}

// browse opens a link in the browser. Without a desktop it does nothing. The link contains a token, and other users of the machine can see the
// arguments of programs. So browse gives the browser a file instead of the link. The file redirects to the link, and only this user can read the
// file. The function `end` removes the file.
func browse(link string) (end func(), err error) {
	end = func() {}
	command := browserCommand(runtime.GOOS, os.Getenv)
	if command == nil {
		return end, nil
	}
	dir, err := os.MkdirTemp("", "kahn-ui-") // only this user can read the folder
	if err != nil {
		return end, err
	}
	end = func() { _ = os.RemoveAll(dir) } // if RemoveAll fails, the file stays in the folder for temporary files
	file := filepath.Join(dir, "open.html")
	text := fmt.Sprintf("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%[1]s\"><a href=\"%[1]s\">kahn</a>\n", html.EscapeString(link))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return end, err
	}
	cmd := exec.Command(command[0], append(command[1:], file)...)
	if err := cmd.Start(); err != nil {
		return end, err
	}
	return end, cmd.Process.Release() // browse does not wait for the command, which may run until the user closes the browser
}
