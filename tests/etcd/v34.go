//go:build v34

package main

import (
	"go.etcd.io/etcd/etcdctl/ctlv3"
	"go.etcd.io/etcd/etcdmain"
	"go.etcd.io/etcd/wal"
)

var segmentBytes = &wal.SegmentSizeBytes

func runClient() { ctlv3.Start() }

func runServer() { etcdmain.Main() }
