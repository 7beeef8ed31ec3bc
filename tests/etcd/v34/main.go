// Command v34 is etcd 3.4 and its client etcdctl, by the name under which it is called.
//
// Names have the addresses in the file "hosts" of the working directory; tests/registry/build sets its path.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdctl/ctlv3"
	"go.etcd.io/etcd/etcdmain"
	"go.etcd.io/etcd/wal"
)

func main() {
	// The default of 64 MB would take 128 MB of disk for each member.
	wal.SegmentSizeBytes = 4 << 20
	// A name that is not in the file must not reach a name server of this machine.
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("there is no name server")
		},
	}
	if filepath.Base(os.Args[0]) == "etcdctl" {
		ctlv3.Start()
		return
	}
	etcdmain.Main()
}
