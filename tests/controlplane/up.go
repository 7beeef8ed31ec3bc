package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"innkeeper.dev/tests/controlplane/internal/files"
)

func upCommand() *cobra.Command {
	var dir string
	var options clusterOptions
	var timeout time.Duration
	var untilStdinCloses bool
	command := &cobra.Command{
		Use:   "up --dir DIR",
		Short: "Run a cluster in a directory until a signal",
		Long: `Run a cluster in a directory until a signal.
		DIR/ready appears when the cluster is usable; DIR/kubeconfig connects to it.
		A directory that was used before continues its cluster, on the same ports if they are free.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			l, err := newLayout(dir)
			if err != nil {
				return err
			}
			if err := options.audit.check(); err != nil {
				return err
			}
			if options.real.count > 0 && !command.Flags().Changed("nodes") {
				options.nodes = 0
			}
			if options.nodes+options.real.count < 1 || options.nodes > 100 {
				return fmt.Errorf("--nodes=%d is out of range; use 1 to 100", options.nodes)
			}
			if options.real.count > 0 && options.apiOnly {
				return errors.New("--real-nodes needs the controllers; leave --api-only away")
			}
			if err := options.real.check(); err != nil {
				return err
			}
			return up(l, options, timeout, untilStdinCloses)
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "dir", "", "directory of the cluster; created if missing")
	flags.BoolVar(&options.apiOnly, "api-only", false, "run only etcd and the API server")
	flags.BoolVar(&options.secondAPIServer, "second-apiserver", false, "start apiserver-2 as well (ctl start apiserver-2 does it later)")
	flags.StringVar(&options.audit.level, "audit", "request", "audit log: off, metadata, or request (metadata, and the bodies of writes)")
	flags.StringVar(&options.audit.mode, "audit-mode", "blocking", "audit log: blocking, blocking-strict or batch")
	flags.StringArrayVar(&options.apiserverArgs, "apiserver-arg", nil, "additional argument for the API servers; repeatable")
	flags.StringVar(&options.kubernetes, "kubernetes", "", "program with the API server, the controller manager and the scheduler of another version")
	flags.IntVar(&options.nodes, "nodes", 2, "number of imitated Nodes; 0 by default beside a real Node")
	flags.IntVar(&options.real.count, "real-nodes", 0, `number of real Nodes, 0 or 1, whose Pods run in containers.
The whole cluster runs in namespaces of its own, without a route to the outside. Needs root and tests/setup --only node`)
	flags.StringVar(&options.real.programs, "node-programs", besideProgram("kubelet"), "directory of the programs of real Nodes")
	flags.StringVar(&options.real.images, "images", besideProgram("images"), "directory of archives with the images of real Nodes")
	flags.BoolVar(&options.real.inside, "inside", false, "run in the namespaces of a real Node")
	// `up` sets it itself.
	_ = flags.MarkHidden("inside")
	flags.DurationVar(&timeout, "timeout", 2*time.Minute, "longest time until the cluster is ready")
	flags.BoolVar(&untilStdinCloses, "until-stdin-closes", false, "also end when standard input closes, so that the cluster cannot outlive its test")
	return command
}

// besideProgram is a directory beside that of this program, where tests/setup puts what it builds.
func besideProgram(name string) string {
	program, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(filepath.Dir(program)), name)
}

func up(l layout, options clusterOptions, timeout time.Duration, untilStdinCloses bool) error {
	quietGRPC()
	if err := l.create(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	if options.real.inside {
		return run(ctx, stop, l, options, timeout)
	}
	lock, err := l.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	self := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := files.Write(l.pid("up"), self, 0o600); err != nil {
		return err
	}
	defer os.Remove(l.pid("up"))
	if untilStdinCloses {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	if options.real.count > 0 {
		return upInNamespaces(ctx, l, lock)
	}
	return run(ctx, stop, l, options, timeout)
}

// run runs the cluster until the context ends or stop is called.
func run(ctx context.Context, stop func(), l layout, options clusterOptions, timeout time.Duration) error {
	began := time.Now()
	if err := os.Remove(l.ready()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := removeVolumes(l); err != nil {
		return err
	}
	fmt.Printf("starting a cluster in %s\n", l.dir)
	c, end, err := startRetrying(ctx, l, options, timeout)
	if err != nil {
		return err
	}
	defer end()
	control, err := listenControl(c, stop)
	if err != nil {
		return err
	}
	defer control.close()
	if err := files.Write(l.ready(), []byte(l.kubeconfig("admin", apiserver1)+"\n"), 0o600); err != nil {
		return err
	}
	fmt.Printf("ready after %.1f s\n", time.Since(began).Seconds())
	fmt.Printf("export KUBECONFIG=%s\n", l.kubeconfig("admin", apiserver1))
	<-ctx.Done()
	fmt.Println("stopping")
	return nil
}

// startRetrying starts the cluster. If another process takes a port between its
// choice and its use, it tries again with other ports.
func startRetrying(ctx context.Context, l layout, options clusterOptions, timeout time.Duration) (*cluster, func(), error) {
	const attemptsMax = 5
	for attempt := 1; ; attempt++ {
		c, err := newCluster(l, options)
		if err != nil {
			return nil, nil, err
		}
		keep, cancel := context.WithCancel(context.Background())
		end := func() {
			cancel()
			c.stop()
			if err := removeVolumes(l); err != nil {
				fmt.Fprintln(os.Stderr, "warning:", err)
			}
		}
		limited, done := context.WithTimeout(ctx, timeout)
		err = c.start(limited, keep)
		done()
		if err == nil {
			return c, end, nil
		}
		end()
		if ctx.Err() != nil {
			return nil, nil, errors.New("stopped before the cluster was ready")
		}
		if !errors.Is(err, errPortTaken) || attempt == attemptsMax {
			return nil, nil, err
		}
		fmt.Println("another process has taken a port, trying other ports")
	}
}

func cleanCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "clean --dir DIR",
		Short: "Remove a directory that no cluster uses any more, and its volumes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := newLayout(dir)
			if err != nil {
				return err
			}
			// Only a cluster directory has these files. Never remove another directory.
			for _, mark := range []string{l.pki("tokens.csv"), l.state()} {
				if _, err := os.Stat(mark); err != nil {
					return fmt.Errorf("%s is not the directory of a cluster: %w", l.dir, err)
				}
			}
			lock, err := l.lock()
			if err != nil {
				return err
			}
			defer lock.Close()
			if err := errors.Join(removeVolumes(l), removeNode(l)); err != nil {
				return err
			}
			return os.RemoveAll(l.dir)
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "directory of the cluster")
	return command
}
