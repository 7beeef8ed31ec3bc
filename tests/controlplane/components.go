package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	_ "time/tzdata" // time zones of CronJobs, also on machines without them

	"github.com/spf13/pflag"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

// components maps each sub-command to the function that runs it and returns its
// exit code. The function reads its arguments from os.Args[1:].
var components = map[string]func() int{
	"etcd":               runEtcd,
	"apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kwok":               runKwok,
	"kubectl":            runKubectl,
}

func componentNames() []string {
	return slices.Sorted(maps.Keys(components))
}

func runKubectl() int {
	// kubectl wants its verbosity set before the command is constructed.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func runKwok() int {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, _ := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: failed to read the configuration of kwok:", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	// The Kubernetes components register a --version that is not a boolean,
	// and cobra dies when it meets it for a command that has a version.
	command.Version = ""
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error: kwok ended:", err)
		return 1
	}
	return 0
}
