// Package ports chooses the loopback ports of a cluster.
package ports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"

	"innkeeper.dev/tests/controlplane/internal/files"
)

// Ports are the loopback ports of one cluster. They are kept in state.json, so
// that kubeconfigs stay valid when the cluster is started again.
type Ports struct {
	Etcd       int `json:"etcd"`
	EtcdPeer   int `json:"etcdPeer"`
	EtcdRelay  int `json:"etcdRelay"`
	APIServer  int `json:"apiserver"`
	APIServer2 int `json:"apiserver2"`
	Front      int `json:"front"`
}

func (p *Ports) all() []*int {
	return []*int{&p.Etcd, &p.EtcdPeer, &p.EtcdRelay, &p.APIServer, &p.APIServer2, &p.Front}
}

// Choose returns the ports in the file as far as they are free, and others
// for the rest, and writes them all to the file.
func Choose(state string) (Ports, error) {
	var p Ports
	data, err := os.ReadFile(state)
	if err == nil {
		if err := json.Unmarshal(data, &p); err != nil {
			return p, fmt.Errorf("failed to read %s: %w; remove the file to get new ports", state, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	taken := map[int]bool{}
	for _, port := range p.all() {
		if *port == 0 || taken[*port] || !portFree(*port) {
			if *port, err = freePort(taken); err != nil {
				return p, err
			}
		}
		taken[*port] = true
	}
	data, err = json.Marshal(p)
	if err != nil {
		return p, err
	}
	return p, files.Write(state, append(data, '\n'), 0o600)
}

// freePort picks from below the range that the kernel hands out for outgoing
// connections (from 32768): a port of that range could be taken by any
// connection while its server is stopped by a test.
func freePort(taken map[int]bool) (int, error) {
	const low, high = 20000, 30000
	for range 1000 {
		port := low + rand.IntN(high-low)
		if !taken[port] && portFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("found no free loopback port between %d and %d", low, high)
}

func portFree(port int) bool {
	listener, err := net.Listen("tcp4", Loopback(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// Loopback is the address of a port on this machine.
func Loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
