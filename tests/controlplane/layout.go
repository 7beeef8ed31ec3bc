package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// layout names the files of one cluster, all below one directory.
type layout struct{ dir string }

func (l layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l layout) pki(name string) string      { return l.path("pki", name) }
func (l layout) config(name string) string   { return l.path("config", name) }
func (l layout) log(name string) string      { return l.path("log", name+".log") }
func (l layout) audit(server string) string  { return l.path("log", server+".audit") }
func (l layout) pid(name string) string      { return l.path("pid", name) }
func (l layout) ready() string               { return l.path("ready") }
func (l layout) socket() string              { return l.path("ctl.sock") }
func (l layout) etcd() string                { return l.path("etcd") }
func (l layout) node() string                { return l.path("node") }
func (l layout) snapshot(name string) string { return l.path("snapshots", name) }
func (l layout) volumes() string             { return l.path("volumes") }
func (l layout) state() string               { return l.path("state.json") }
func (l layout) kubeconfig(user, server string) string {
	name := "kubeconfig"
	if user != "admin" {
		name += "-" + user
	}
	if server != apiserver1 {
		name += "-" + server
	}
	return l.path(name)
}

func newLayout(dir string) (layout, error) {
	if dir == "" {
		return layout{}, errors.New("--dir is missing: name the directory of the cluster")
	}
	absolute, err := filepath.Abs(dir)
	return layout{absolute}, err
}

func (l layout) create() error {
	for _, dir := range []string{"pki", "config", "log", "pid", "snapshots"} {
		if err := os.MkdirAll(l.path(dir), 0o700); err != nil {
			return fmt.Errorf("failed to create the cluster directory: %w", err)
		}
	}
	return nil
}

// lock keeps a second supervisor out of the directory. The lock ends with the
// process, so a killed supervisor does not leave it behind.
func (l layout) lock() (*os.File, error) {
	file, err := os.OpenFile(l.path("lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is in use by another `up`; stop that one or choose another --dir", l.dir)
	}
	return file, nil
}
