package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"

	"innkeeper.dev/tests/controlplane/internal/ports"
)

// contents is what a cluster held when it became ready.
type contents struct {
	objects map[string][]byte // by etcd's key
	served  []string          // groups with versions
}

// componentPrefixes begin the keys that components write at any time: their service accounts, Leases and statuses, which
// they create on first use, and the API server's own allocations.
var componentPrefixes = []string{
	"/registry/configmaps/kube-",
	"/registry/ipaddresses/10.96.0.1",
	"/registry/leases/kube-",
	"/registry/minions/",
	"/registry/ranges/",
	"/registry/serviceaccounts/kube-",
	"/registry/services/specs/default/kubernetes",
}

// slowPrefixes begin the keys of objects that API servers go on to obey for seconds after the end of the object.
var slowPrefixes = []string{
	"/registry/mutatingadmissionpolic",
	"/registry/mutatingwebhookconfigurations/",
	"/registry/validatingadmissionpolic",
	"/registry/validatingwebhookconfigurations/",
}

// remember notes the contents of the cluster for reset.
func (c *cluster) remember(ctx context.Context) error {
	client, err := c.etcdClient()
	if err != nil {
		return fmt.Errorf("failed to reach etcd: %w", err)
	}
	defer client.Close()
	if c.first.objects, err = allObjects(ctx, client); err != nil {
		return err
	}
	c.first.served, err = served(c.client)
	return err
}

// reset puts the objects back that the cluster had when it became ready, empties the audit logs, and removes the
// directories of volumes. API servers and controllers see it as deletions and updates. It fails if the cluster would
// differ from a new one all the same.
func (c *cluster) reset(ctx context.Context) error {
	c.faults.Lock()
	defer c.faults.Unlock()
	if err := c.undisturbed(); err != nil {
		return err
	}
	client, err := c.etcdClient()
	if err != nil {
		return fmt.Errorf("failed to reach etcd: %w", err)
	}
	defer client.Close()
	if err := c.replaceAll(ctx, client); err != nil {
		return err
	}
	for _, server := range []string{apiserver1, apiserver2} {
		if err := os.Truncate(c.layout.audit(server), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("failed to empty the audit log: %w", err)
		}
	}
	return removeVolumes(c.layout)
}

// undisturbed fails if a process or a relay is not as it was when the cluster became ready.
func (c *cluster) undisturbed() error {
	if c.options.real.count > 0 {
		return errors.New("a real Node has state of its own")
	}
	for _, p := range c.processes {
		starts := 1
		if p.name == apiserver2 && !c.options.secondAPIServer {
			starts = 0
		}
		status := p.status()
		// Controllers keep no state of their own.
		stateless := p.name != etcdName && p.health == nil && status.State == "running"
		if status.State == "paused" || (status.Starts != starts && !stateless) {
			return fmt.Errorf("%s has been started %d times and is %s", p.name, status.Starts, status.State)
		}
	}
	for _, r := range c.relays {
		if status := r.Status(); status.Cut || (r.Name == front && status.Target != ports.Loopback(c.ports.APIServer)) {
			return fmt.Errorf("the relay %s is cut or leads elsewhere", r.Name)
		}
	}
	return nil
}

// replaceAll makes etcd hold the first objects, and waits until the API server serves the first kinds. It repeats that,
// because controllers create objects again whose owners or Namespaces they have not yet seen disappear.
func (c *cluster) replaceAll(ctx context.Context, client *clientv3.Client) error {
	const poll = 25 * time.Millisecond
	for {
		now, err := allObjects(ctx, client)
		if err != nil {
			return err
		}
		late := c.late(now)
		for _, key := range late {
			if hasPrefix(key, slowPrefixes) {
				return fmt.Errorf("API servers obey %s for seconds after its deletion", key)
			}
		}
		if err := c.replace(ctx, client, now, late); err != nil {
			return err
		}
		kinds, err := served(c.client)
		if err == nil && len(late) == 0 && slices.Equal(kinds, c.first.served) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("controllers go on to create objects, or the API server still serves other kinds: %v, %v, %w", late, kinds, err)
		case <-time.After(poll):
		}
	}
}

// late returns the keys that etcd did not hold at first: of Namespaces first, so that controllers fill them no more, and of
// definitions last, so that API servers still see the deletions of their objects.
func (c *cluster) late(now map[string][]byte) []string {
	order := func(key string) int {
		switch {
		case strings.HasPrefix(key, "/registry/namespaces/"):
			return -1
		case strings.HasPrefix(key, "/registry/apiextensions.k8s.io/"):
			return 1
		}
		return 0
	}
	var late []string
	for key := range now {
		if _, early := c.first.objects[key]; !early {
			late = append(late, key)
		}
	}
	slices.SortFunc(late, func(a, b string) int { return cmp.Or(order(a)-order(b), strings.Compare(a, b)) })
	return late
}

// replace deletes these keys, and writes the first objects where others are.
func (c *cluster) replace(ctx context.Context, client *clientv3.Client, now map[string][]byte, late []string) error {
	for _, key := range late {
		if _, err := client.Delete(ctx, key); err != nil {
			return fmt.Errorf("failed to delete %s: %w", key, err)
		}
	}
	for key, value := range c.first.objects {
		if old, exists := now[key]; exists && bytes.Equal(old, value) {
			continue
		}
		if _, err := client.Put(ctx, key, string(value)); err != nil {
			return fmt.Errorf("failed to restore %s: %w", key, err)
		}
	}
	return nil
}

// served lists the groups and versions of an API server, sorted.
func served(client kubernetes.Interface) ([]string, error) {
	groups, err := client.Discovery().ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("failed to list the groups of the API server: %w", err)
	}
	var all []string
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			all = append(all, version.GroupVersion)
		}
	}
	slices.Sort(all)
	return all, nil
}

// allObjects reads all objects but those of the components.
func allObjects(ctx context.Context, client *clientv3.Client) (map[string][]byte, error) {
	response, err := client.Get(ctx, "/registry/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("failed to read the objects in etcd: %w", err)
	}
	objects := make(map[string][]byte, len(response.Kvs))
	for _, entry := range response.Kvs {
		if key := string(entry.Key); !hasPrefix(key, componentPrefixes) {
			objects[key] = entry.Value
		}
	}
	return objects, nil
}

func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
