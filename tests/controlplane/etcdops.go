package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/grpclog"

	"innkeeper.dev/tests/controlplane/internal/ports"
)

// compactionKey is the key of the API server's own compactor.
const compactionKey = "compact_rev_key"

// revisionResult is the result of revision and compact.
type revisionResult struct {
	Revision int64 `json:"revision"`
}

// quietGRPC drops the warnings of the etcd client about connections that are
// closed while they are being made; verbs report their own errors.
func quietGRPC() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
}

func (c *cluster) etcdClient() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{ports.Loopback(c.ports.Etcd)},
		DialTimeout: 5 * time.Second,
	})
}

func (c *cluster) revision(ctx context.Context) (any, error) {
	client, err := c.etcdClient()
	if err != nil {
		return nil, fmt.Errorf("failed to reach etcd: %w", err)
	}
	defer client.Close()
	revision, err := presentRevision(ctx, client)
	if err != nil {
		return nil, err
	}
	return revisionResult{revision}, nil
}

// presentRevision reads any key: every answer carries the store's revision.
// Unlike Status, this read goes through consensus.
func presentRevision(ctx context.Context, client *clientv3.Client) (int64, error) {
	response, err := client.Get(ctx, "revision", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("failed to read etcd's revision: %w", err)
	}
	return response.Header.Revision, nil
}

// compact drops the history before the revision; 0 means the current revision.
func (c *cluster) compact(ctx context.Context, revision int64) (any, error) {
	client, err := c.etcdClient()
	if err != nil {
		return nil, fmt.Errorf("failed to reach etcd: %w", err)
	}
	defer client.Close()
	if revision == 0 {
		if revision, err = presentRevision(ctx, client); err != nil {
			return nil, err
		}
	}
	// The API servers announce their own compactions by this key, and drop old
	// revisions from their caches when the key changes. Without this write they
	// would still answer from those caches.
	if _, err := client.Put(ctx, compactionKey, strconv.FormatInt(revision, 10)); err != nil {
		return nil, fmt.Errorf("failed to announce the compaction: %w", err)
	}
	// Physical: when this returns, the old revisions are really gone.
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return nil, fmt.Errorf("failed to compact etcd at revision %d: %w", revision, err)
	}
	return revisionResult{revision}, nil
}

var snapshotName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// snapshot copies etcd's data while etcd is down, which takes some 100 ms;
// the API servers only see their connection break.
func (c *cluster) snapshot(ctx context.Context, name string) (any, error) {
	if !snapshotName.MatchString(name) {
		return nil, fmt.Errorf("%q is no name of a snapshot; use letters, digits, dots, dashes", name)
	}
	c.faults.Lock()
	defer c.faults.Unlock()
	etcd := c.mustProcess(etcdName)
	etcd.stop()
	err := errors.Join(
		os.RemoveAll(c.layout.snapshot(name)),
		os.CopyFS(c.layout.snapshot(name), os.DirFS(c.layout.etcd())),
	)
	etcd.start()
	if err != nil {
		return nil, fmt.Errorf("failed to copy etcd's data: %w", err)
	}
	if err := etcd.awaitHealthy(ctx); err != nil {
		return nil, err
	}
	return nil, c.mustProcess(apiserver1).awaitHealthy(ctx)
}

// restore puts a snapshot in the place of etcd's data. Every other process
// holds caches that would now be from the future, so all of them go down first.
func (c *cluster) restore(ctx context.Context, name string) (any, error) {
	c.faults.Lock()
	defer c.faults.Unlock()
	if _, err := os.Stat(c.layout.snapshot(name)); !snapshotName.MatchString(name) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no snapshot %q; `ctl snapshot NAME` makes one", name)
	}
	var again []*process
	for i := len(c.processes) - 1; i >= 0; i-- {
		p := c.processes[i]
		if p.status().State != "stopped" {
			again = append([]*process{p}, again...)
			p.stop()
		}
	}
	if err := os.RemoveAll(c.layout.etcd()); err != nil {
		return nil, fmt.Errorf("failed to remove etcd's data: %w", err)
	}
	if err := os.CopyFS(c.layout.etcd(), os.DirFS(c.layout.snapshot(name))); err != nil {
		return nil, fmt.Errorf("failed to put the snapshot in place: %w", err)
	}
	for _, p := range again {
		p.start()
		if err := p.awaitHealthy(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
