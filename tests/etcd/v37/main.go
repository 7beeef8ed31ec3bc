// Command v37 is etcd 3.7 and its client etcdctl, by the name under which it is called.
//
// Names have the addresses in the file "hosts" of the working directory; tests/registry/build sets its path.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
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
		ctlv3.MustStart()
		return
	}
	etcdmain.Main(os.Args)
}
