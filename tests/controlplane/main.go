// Command controlplane is a real Kubernetes control plane in one binary, for tests.
//
// Every component is a sub-command, and `up` runs them as child processes of
// one supervisor. API servers keep global registries, so a process can have only
// one of them, and faults such as pause and kill need processes anyway.
// It runs no containers: kwok acts as the kubelet, see internal/stages.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	if filepath.Base(os.Args[0]) == "kubectl" {
		// A link by this name makes the binary a plain kubectl.
		os.Exit(runKubectl())
	}
	if len(os.Args) > 1 {
		if run, ok := components[os.Args[1]]; ok {
			// The components read os.Args themselves (kwok's configuration,
			// kubectl's verbosity), so the sub-command has to go first.
			nameProcess(os.Args[1])
			os.Args = append([]string{os.Args[1]}, os.Args[2:]...)
			os.Exit(run())
		}
	}
	if err := rootCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "A local Kubernetes control plane for tests, without containers",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	// The components register a global --version, which cobra would show.
	pflag.CommandLine.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	root.AddCommand(upCommand(), ctlCommand(), cleanCommand(), insideCommand(), reapCommand())
	for _, name := range componentNames() {
		// Only for the help text: main dispatches these before cobra sees them.
		root.AddCommand(&cobra.Command{
			Use:                name,
			Short:              "Run " + name + " with its own flags",
			DisableFlagParsing: true,
			Run:                func(*cobra.Command, []string) {},
		})
	}
	return root
}

// nameProcess makes ps and top show the component instead of the binary.
// It ignores a failure, which only affects these displays.
func nameProcess(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}
