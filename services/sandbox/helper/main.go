// Helper runs in a sandbox and does what the sandbox service asks: commands, terminals, files, ports.
package main

import (
	"fmt"
	"os"

	"sandgate/helper/internal/connector"
	"sandgate/helper/internal/daemon"
	"sandgate/helper/internal/dial"
	"sandgate/helper/internal/install"
	"sandgate/helper/internal/reaper"
)

var programs = map[string]func() error{
	"dial":   dial.Run,
	"start":  dial.Start,
	"daemon": daemon.Run,
	"run":    reaper.Run,
	// Does nothing; the reaper learns from it that a folder and a user are all right.
	"true": func() error { return nil },
}

var programsWithFolder = map[string]func(string) error{
	"install":   install.Into,
	"connector": connector.Serve,
}

func main() {
	var run func() error
	switch len(os.Args) {
	case 2:
		run = programs[os.Args[1]]
	case 3:
		if program := programsWithFolder[os.Args[1]]; program != nil {
			run = func() error { return program(os.Args[2]) }
		}
	}
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: helper dial | start | install <folder> | connector <folder>")
		os.Exit(64)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}
