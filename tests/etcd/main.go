// Command etcd is etcd and its client etcdctl, by the name under which it is called.
//
// tests/registry/build builds it once for each version: go.mod has 3.6, and vXY.mod has X.Y. It also sets the path of the
// file "hosts" in the working directory, which has the addresses of names.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
)

func main() {
	// The default of 64 MB would take 128 MB of disk for each member.
	*segmentBytes = 4 << 20
	// A name that is not in the file must not reach a name server of this machine.
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("there is no name server")
		},
	}
	if filepath.Base(os.Args[0]) == "etcdctl" {
		runClient()
		return
	}
	runServer()
}
