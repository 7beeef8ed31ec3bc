package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"innkeeper.dev/tests/controlplane/internal/ports"
)

// runEtcd runs one etcd member on loopback with flags of our own: etcd's
// AddFlags does not read its URL flags back, and would listen on 2379.
func runEtcd() int {
	flags := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	dataDir := flags.String("data-dir", "", "directory of the data")
	clientPort := flags.Int("client-port", 0, "loopback port for clients")
	peerPort := flags.Int("peer-port", 0, "loopback port for peers (unused, but etcd requires one)")
	if err := flags.Parse(os.Args[1:]); err != nil {
		if err == pflag.ErrHelp {
			return 0
		}
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	if *dataDir == "" || *clientPort == 0 || *peerPort == 0 {
		fmt.Fprintln(os.Stderr, "error: etcd needs --data-dir, --client-port and --peer-port")
		return 2
	}

	// etcd preallocates the segments of its write-ahead log. With the default
	// of 64 MB every cluster directory has 124 MiB instead of 10 MiB.
	wal.SegmentSizeBytes = 4 << 20

	config := embed.NewConfig()
	config.Name = "etcd"
	config.Dir = *dataDir
	config.ListenClientUrls = []url.URL{loopbackURL(*clientPort)}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{loopbackURL(*peerPort)}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "warn"
	config.LogOutputs = []string{"stderr"}
	// NewConfig leaves this at 0, which would log every single request.
	config.WarningUnaryRequestDuration = time.Second
	// A killed process keeps its written data in the page cache. Only a crash of
	// the machine would lose data, and that ends the tests as well.
	config.UnsafeNoFsync = true

	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: failed to start etcd:", err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		server.Close()
		return 0
	case err := <-server.Err():
		fmt.Fprintln(os.Stderr, "error: etcd ended:", err)
		return 1
	}
}

func loopbackURL(port int) url.URL {
	return url.URL{Scheme: "http", Host: ports.Loopback(port)}
}
