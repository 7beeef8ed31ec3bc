package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// cgroupName is the name of the cgroup that has all Pods of a cluster, in each hierarchy.
func cgroupName(l layout) string {
	sum := sha256.Sum256([]byte(l.dir))
	return "controlplane-" + filepath.Base(l.dir) + "-" + hex.EncodeToString(sum[:6])
}

// cgroupDirectories lists the directory of the cluster's cgroup in each mounted hierarchy.
func cgroupDirectories(l layout) ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var directories []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			directories = append(directories, filepath.Join(fields[1], cgroupName(l)))
		}
	}
	return directories, nil
}

func makeCgroups(l layout) error {
	directories, err := cgroupDirectories(l)
	if err != nil {
		return err
	}
	if len(directories) == 0 {
		return errors.New("no cgroup hierarchy is mounted; mount one at /sys/fs/cgroup")
	}
	for _, directory := range directories {
		if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("failed to make a cgroup: %w", err)
		}
	}
	return nil
}

func removeCgroups(l layout) error {
	directories, err := cgroupDirectories(l)
	if err != nil {
		return err
	}
	var failed []error
	for _, directory := range directories {
		failed = append(failed, removeCgroup(directory))
	}
	return errors.Join(failed...)
}

// removeCgroup removes a cgroup, those below it first. Its files disappear with it.
func removeCgroup(directory string) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to remove the cgroup %s: %w", directory, err)
	}
	return nil
}

// removeNode removes all that the processes of a real Node left outside of their namespaces. Those that just got SIGKILL
// keep their cgroups, and write files, for a moment.
func removeNode(l layout) error {
	const limit, poll = 10 * time.Second, 20 * time.Millisecond
	for end := time.Now().Add(limit); ; time.Sleep(poll) {
		err := errors.Join(removeCgroups(l), os.RemoveAll(l.node()), os.RemoveAll(l.ready()))
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// reapCommand runs beside `up`, which may be killed. It inherits the lock of the directory, which no other `up` uses
// before it ends.
func reapCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:    "reap --dir DIR",
		Short:  "Wait for the end of standard input, and remove what a real Node left",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := newLayout(dir)
			if err != nil {
				return err
			}
			nameProcess("reap")
			_, _ = io.Copy(io.Discard, os.Stdin)
			return removeNode(l)
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "directory of the cluster")
	return command
}
