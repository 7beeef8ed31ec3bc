//go:build !v34 && !v35

package main

import (
	"os"

	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

var segmentBytes = &wal.SegmentSizeBytes

func runClient() { ctlv3.MustStart() }

func runServer() { etcdmain.Main(os.Args) }
