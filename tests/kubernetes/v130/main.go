// The parts of an older Kubernetes for the control plane of the tests: `controlplane up --kubernetes`.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	parts := map[string]func() *cobra.Command{
		"apiserver":          func() *cobra.Command { return apiserver.NewAPIServerCommand() },
		"controller-manager": controllermanager.NewControllerManagerCommand,
		"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes apiserver|controller-manager|scheduler FLAG...")
		os.Exit(2)
	}
	part := parts[os.Args[1]]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	os.Exit(cli.Run(part()))
}
