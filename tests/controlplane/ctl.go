package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func ctlCommand() *cobra.Command {
	var dir string
	var help strings.Builder
	help.WriteString("Control the cluster of a directory.\n\nVerbs:\n")
	for _, name := range verbNames() {
		fmt.Fprintf(&help, "  %-18s %s\n", strings.TrimSpace(name+" "+verbs[name].usage), verbs[name].help)
	}
	fmt.Fprintf(&help, `
NAME is a process: %s, %s, %s, %s, %s, %s, and with a real Node %s, %s, %s, %s.
RELAY is %s (between that API server and etcd: a cut makes its data stale) or
%s (between the clients of the kubeconfigs *-front and their API server).
The result is printed as JSON. The exit code is 1 if the verb failed.`,
		etcdName, apiserver1, apiserver2, controllerManager, schedulerName, kwokName,
		containerdName, kubeletName, kubeProxyName, corednsName, apiserver2, front)
	command := &cobra.Command{
		Use:   "ctl --dir DIR VERB [ARGS]",
		Short: "Stop, pause, kill, cut, compact ... a running cluster",
		Long:  help.String(),
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := newLayout(dir)
			if err != nil {
				return err
			}
			return ctl(l, controlRequest{Verb: args[0], Args: args[1:]})
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "directory of the cluster")
	return command
}

func ctl(l layout, request controlRequest) error {
	path, release, err := shortSocketPath(l.socket())
	if err != nil {
		return fmt.Errorf("%s is not the directory of a cluster: %w", l.dir, err)
	}
	conn, err := net.Dial("unix", path)
	release()
	if err != nil {
		return fmt.Errorf("no cluster runs in %s (`up --dir %s` starts one): %w", l.dir, l.dir, err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return fmt.Errorf("failed to send the request: %w", err)
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the supervisor ended before it answered: %w", err)
	}
	var response struct {
		OK     bool            `json:"ok"`
		Error  string          `json:"error"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(line, &response); err != nil {
		return fmt.Errorf("failed to read the answer: %w", err)
	}
	if !response.OK {
		return errors.New(response.Error)
	}
	if len(response.Result) > 0 {
		fmt.Fprintln(os.Stdout, string(response.Result))
	}
	return nil
}
