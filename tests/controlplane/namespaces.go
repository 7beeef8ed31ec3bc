package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"innkeeper.dev/tests/controlplane/internal/ports"
	"innkeeper.dev/tests/controlplane/internal/relay"
)

// A cluster with a real Node runs in namespaces of its own, which the kernel removes with all processes, mounts and
// interfaces when their first process ends. Three processes stand around it:
//
//	up       outside: passes connections to the API servers on, and is the parent of the others
//	inside   the first process of the namespaces: reaps, and gets SIGKILL if `up` ends
//	reap     outside: removes the cgroups and the files when `up` has ended, even by SIGKILL

const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// upInNamespaces runs this command again in namespaces, until it ends or the context does.
func upInNamespaces(ctx context.Context, l layout, lock *os.File) (err error) {
	if err := removeNode(l); err != nil {
		return fmt.Errorf("failed to remove what an earlier real Node left: %w", err)
	}
	outside, chosen, err := listenOutside(l)
	if err != nil {
		return err
	}
	reaped, err := startReaper(l, lock)
	if err != nil {
		return fmt.Errorf("failed to start the process that cleans up: %w", err)
	}
	defer func() { err = errors.Join(err, reaped()) }()
	if err := makeCgroups(l); err != nil {
		return err
	}
	if err := os.MkdirAll(l.node(), 0o755); err != nil {
		return err
	}
	first := exec.Command("/proc/self/exe", append([]string{"inside", "--dir=" + l.dir, "--"}, os.Args[1:]...)...)
	first.Stdout, first.Stderr = os.Stdout, os.Stderr
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	// The child asks for its parent-death signal only after its start. Until then, the end of this pipe ends it.
	if _, err := first.StdinPipe(); err != nil {
		return err
	}
	if err := newSpawner().start(first); err != nil {
		return fmt.Errorf("failed to make the namespaces of the real Node: %w", err)
	}
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", first.Process.Pid))
	if err != nil {
		return fmt.Errorf("failed to open the network namespace: %w", err)
	}
	defer network.Close()
	for i, listener := range outside {
		r := relay.Serve(front, listener, ports.Loopback(chosen[i]), dialIn(int(network.Fd())))
		defer r.Close()
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			_ = first.Process.Signal(syscall.SIGTERM)
		case <-ended:
		}
	}()
	if err := first.Wait(); err != nil {
		return fmt.Errorf("the cluster in the namespaces of the real Node ended: %w", err)
	}
	return nil
}

// listenOutside opens the ports of the API servers outside of the namespaces too, so that the kubeconfigs are valid on
// both sides.
func listenOutside(l layout) ([]net.Listener, []int, error) {
	const attemptsMax = 5
	var err error
	for range attemptsMax {
		var p ports.Ports
		if p, err = ports.Choose(l.state()); err != nil {
			return nil, nil, err
		}
		chosen := []int{p.APIServer, p.APIServer2, p.Front}
		var listeners []net.Listener
		for _, port := range chosen {
			var listener net.Listener
			if listener, err = net.Listen("tcp4", ports.Loopback(port)); err != nil {
				break
			}
			listeners = append(listeners, listener)
		}
		if err == nil {
			return listeners, chosen, nil
		}
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}
	return nil, nil, errors.Join(errPortTaken, err)
}

// dialIn connects from inside a network namespace.
func dialIn(namespace int) func(address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	return func(address string) (net.Conn, error) {
		dialled := make(chan result)
		go func() {
			// Never unlocked: the thread ends with the goroutine, instead of running others in this namespace.
			runtime.LockOSThread()
			if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
				dialled <- result{nil, err}
				return
			}
			conn, err := net.Dial("tcp4", address)
			dialled <- result{conn, err}
		}()
		r := <-dialled
		return r.conn, r.err
	}
}

// startReaper returns the function that lets the process clean up, and waits for its end.
func startReaper(l layout, lock *os.File) (func() error, error) {
	command := exec.Command("/proc/self/exe", "reap", "--dir="+l.dir)
	command.Stderr = os.Stderr
	command.ExtraFiles = []*os.File{lock}
	// What ends the group or the session of `up` must not end this process.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_ = input.Close()
		if err := command.Wait(); err != nil {
			return fmt.Errorf("failed to clean up: %w; `clean --dir %s` tries it again", err, l.dir)
		}
		return nil
	}, nil
}

func insideCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:    "inside --dir DIR -- ARGS",
		Short:  "Prepare new namespaces for a real Node, and run this program in them",
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := newLayout(dir)
			if err != nil {
				return err
			}
			nameProcess("inside")
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				os.Exit(1)
			}()
			if err := prepareMachine(l); err != nil {
				return fmt.Errorf("failed to prepare the namespaces of the real Node: %w", err)
			}
			code, err := runFirst(append(args, "--inside"))
			if err != nil {
				return err
			}
			os.Exit(code)
			return nil
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "directory of the cluster")
	return command
}

// runFirst runs this program until it ends, and is the parent of all orphans meanwhile. It returns the exit code.
func runFirst(args []string) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	command := exec.Command("/proc/self/exe", args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		return 0, err
	}
	go func() {
		for range signals {
			_ = command.Process.Signal(syscall.SIGTERM)
		}
	}()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("failed to wait for processes: %w", err)
		case pid == command.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == command.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// machineSysctls are settings of the whole machine that a kubelet writes. It gets files in their place.
var machineSysctls = map[string]string{
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
}

// prepareMachine gives the namespaces mounts and a network, none of which the machine sees.
func prepareMachine(l layout) error {
	if strings.HasPrefix(l.dir+"/", "/run/") || strings.HasPrefix(l.dir+"/", "/var/run/") {
		return errors.New("the Node has a /run of its own: choose a --dir elsewhere")
	}
	if err := unix.Sethostname([]byte(realNodeName)); err != nil {
		return err
	}
	mount := func(source, target, kind string, flags uintptr) error {
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			return fmt.Errorf("failed to mount %s: %w", target, err)
		}
		return nil
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return err
	}
	// The kubelet links logs below /var/log.
	for _, directory := range []string{"/run", "/var/log"} {
		if err := mount("tmpfs", directory, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(nodeState, 0o755); err != nil {
		return err
	}
	if err := mount(l.node(), nodeState, "", unix.MS_BIND); err != nil {
		return err
	}
	for name, value := range machineSysctls {
		file := filepath.Join(nodeState, "sysctl", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := mount(file, "/proc/sys/"+name, "", unix.MS_BIND); err != nil {
			return err
		}
	}
	// As systemd makes it. Volumes that a Pod mounts for others need it.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SHARED); err != nil {
		return err
	}
	return prepareNetwork()
}

// prepareNetwork gives the Node an address. No interface and no route leads out of the namespace.
func prepareNetwork() error {
	for _, line := range []string{
		"link set lo up",
		"link add eth0 type bridge",
		"address add " + realNodeIP + "/24 dev eth0",
		"link set eth0 up",
	} {
		if output, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(output)))
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
