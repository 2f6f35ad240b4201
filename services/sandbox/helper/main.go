// Helper runs in a sandbox and does what the sandbox service asks: commands, terminals, files, ports.
package main

import (
	"fmt"
	"os"

	"sandgate/helper/internal/daemon"
	"sandgate/helper/internal/dial"
	"sandgate/helper/internal/install"
	"sandgate/helper/internal/reaper"
)

func main() {
	run := map[string]func() error{
		"dial":   dial.Run,
		"daemon": daemon.Run,
		"run":    reaper.Run,
		// Does nothing; the reaper learns from it that a folder and a user are all right.
		"true": func() error { return nil },
	}
	if len(os.Args) == 3 && os.Args[1] == "install" {
		run["install"] = func() error { return install.Into(os.Args[2]) }
	} else if len(os.Args) != 2 || run[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: helper dial | install <folder>")
		os.Exit(64)
	}
	if err := run[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}
