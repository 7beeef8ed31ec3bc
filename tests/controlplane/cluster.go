package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"innkeeper.dev/tests/controlplane/internal/files"
	"innkeeper.dev/tests/controlplane/internal/pki"
	"innkeeper.dev/tests/controlplane/internal/ports"
	"innkeeper.dev/tests/controlplane/internal/relay"
	"innkeeper.dev/tests/controlplane/internal/stages"
)

// clusterOptions are the flags of `up`, checked.
type clusterOptions struct {
	apiOnly         bool
	secondAPIServer bool
	audit           auditOptions
	apiserverArgs   []string
	kubernetes      string // empty: this program
	nodes           int
	real            realNodeOptions
}

// cluster owns the processes and relays of one directory.
type cluster struct {
	layout    layout
	ports     ports.Ports
	options   clusterOptions
	processes []*process // in the order of starting
	relays    []*relay.Relay
	client    kubernetes.Interface
	first     contents

	// faults lets one verb at a time change more than one process.
	faults sync.Mutex
}

// errPortTaken means that another process took a port between the choice of the
// port and its use.
var errPortTaken = errors.New("another process has taken a port")

func newCluster(l layout, options clusterOptions) (*cluster, error) {
	p, err := ports.Choose(l.state())
	if err != nil {
		return nil, err
	}
	c := &cluster{layout: l, ports: p, options: options}
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	config, err := adminConfig(l, apiserver1)
	if err != nil {
		return nil, err
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	return c, c.addProcesses()
}

func (c *cluster) writeFiles() error {
	if err := pki.Make(c.layout.path("pki"), firstServiceIP); err != nil {
		return err
	}
	if err := writeKubeconfigs(c.layout, c.ports); err != nil {
		return err
	}
	if err := files.Write(c.layout.config("audit.yaml"), []byte(c.options.audit.policy()), 0o600); err != nil {
		return err
	}
	documents, err := stages.Documents(kubernetesVersion)
	if err != nil {
		return fmt.Errorf("failed to write kwok's stages: %w", err)
	}
	return files.Write(c.layout.config("kwok.yaml"), documents, 0o600)
}

func (c *cluster) addProcesses() error {
	spawner := newSpawner()
	// The path of this program may by now name a newer build; /proc/self/exe does not.
	const self = "/proc/self/exe"
	kubernetes := self
	if c.options.kubernetes != "" {
		kubernetes = c.options.kubernetes
	}
	add := func(name, program string, command func() []string, health func(context.Context) error) {
		c.processes = append(c.processes, newProcess(name, program, c.layout, spawner, command, health))
	}
	apiserver := func(name string, port, etcdPort int) error {
		health, err := c.apiserverHealth(port)
		if err != nil {
			return err
		}
		add(name, kubernetes, func() []string {
			return apiserverCommand(c.layout, name, port, etcdPort, c.options)
		}, health)
		return nil
	}
	add(etcdName, self, func() []string { return etcdCommand(c.layout, c.ports) }, c.etcdHealth)
	if err := apiserver(apiserver1, c.ports.APIServer, c.ports.Etcd); err != nil {
		return err
	}
	if err := apiserver(apiserver2, c.ports.APIServer2, c.ports.EtcdRelay); err != nil {
		return err
	}
	if !c.options.apiOnly {
		add(controllerManager, kubernetes, func() []string { return controllerManagerCommand(c.layout) }, nil)
		add(schedulerName, kubernetes, func() []string { return schedulerCommand(c.layout) }, nil)
		add(kwokName, self, func() []string { return kwokCommand(c.layout) }, nil)
	}
	if c.options.real.count > 0 {
		return c.addRealNode(add)
	}
	return nil
}

func (c *cluster) process(name string) (*process, error) {
	var names []string
	for _, p := range c.processes {
		if p.name == name {
			return p, nil
		}
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("there is no process %q; there are %s", name, strings.Join(names, ", "))
}

func (c *cluster) relay(name string) (*relay.Relay, error) {
	var names []string
	for _, r := range c.relays {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, fmt.Errorf("there is no relay %q; there are %s", name, strings.Join(names, ", "))
}

// start brings the cluster up in the order of dependence: a component without
// an API server waits for seconds before it tries again.
func (c *cluster) start(ctx, keep context.Context) error {
	if err := c.openRelays(); err != nil {
		return errors.Join(errPortTaken, err)
	}
	for _, p := range c.processes {
		go p.keep(keep)
	}
	imported := make(chan error, 1)
	if c.options.real.count > 0 {
		// It takes as long as the start of the API server.
		go func() { imported <- c.importImages(ctx) }()
	}
	if err := c.startFirst(ctx, etcdName); err != nil {
		return err
	}
	if err := c.startFirst(ctx, apiserver1); err != nil {
		return err
	}
	if c.options.secondAPIServer {
		// Only after the rest runs: two API servers that start at the same time
		// slow each other down.
		defer func() { c.mustProcess(apiserver2).start() }()
	}
	if c.options.apiOnly {
		return c.remember(ctx)
	}
	for _, name := range []string{controllerManager, kwokName, schedulerName} {
		c.mustProcess(name).start()
	}
	if c.options.real.count > 0 {
		go provisionDirectories(keep, c.client)
	} else {
		go recordVolumes(keep, c.layout, c.client)
	}
	if err := bootstrap(ctx, c.client, c.options, c.ports.APIServer); err != nil {
		return err
	}
	if c.options.real.count > 0 {
		if err := c.startRealNode(ctx, imported); err != nil {
			return err
		}
	}
	if err := awaitUsable(ctx, c.client, c.options.nodes+c.options.real.count); err != nil {
		return err
	}
	return c.remember(ctx)
}

func (c *cluster) openRelays() error {
	etcdRelay, err := relay.Open(apiserver2, ports.Loopback(c.ports.EtcdRelay), ports.Loopback(c.ports.Etcd))
	if err != nil {
		return err
	}
	c.relays = append(c.relays, etcdRelay)
	frontRelay, err := relay.Open(front, ports.Loopback(c.ports.Front), ports.Loopback(c.ports.APIServer))
	if err != nil {
		return err
	}
	c.relays = append(c.relays, frontRelay)
	return nil
}

func (c *cluster) mustProcess(name string) *process {
	p, err := c.process(name)
	if err != nil {
		panic("a process that every cluster has is missing: " + name)
	}
	return p
}

// startFirst starts a process and waits until it is healthy. A process that
// dies startsMax times is an error here; later it is restarted forever.
func (c *cluster) startFirst(ctx context.Context, name string) error {
	const startsMax = 3
	p := c.mustProcess(name)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for ctx.Err() == nil {
			p.mu.Lock()
			starts, running, changed := p.starts, p.running != nil, p.changed
			p.mu.Unlock()
			if !running && starts > 0 && strings.Contains(p.logTail(), "address already in use") {
				cancel(errPortTaken)
			} else if !running && starts >= startsMax {
				cancel(fmt.Errorf("%s died %d times", name, starts))
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	p.start()
	if err := p.awaitHealthy(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
			return fmt.Errorf("%w\n%s", cause, p.logTail())
		}
		return err
	}
	return nil
}

// stop ends all processes. It kills all but etcd, which alone has data to
// write; the others survive a kill without loss.
func (c *cluster) stop() {
	_ = os.Remove(c.layout.ready())
	for _, r := range c.relays {
		r.Close()
	}
	var all sync.WaitGroup
	for _, p := range c.processes {
		all.Go(func() {
			if p.name != etcdName {
				p.mu.Lock()
				p.wanted = false
				p.notify()
				if p.running != nil {
					_ = p.running.Kill()
				}
				p.mu.Unlock()
			}
			p.stop()
		})
	}
	all.Wait()
}

func (c *cluster) etcdHealth(ctx context.Context) error {
	return probe(ctx, http.DefaultClient, "http://"+ports.Loopback(c.ports.Etcd)+"/health", "")
}

func (c *cluster) apiserverHealth(port int) (func(context.Context) error, error) {
	pem, err := os.ReadFile(c.layout.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	tokens, err := pki.ReadTokens(c.layout.pki("tokens.csv"))
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		// A new connection for each probe: a kept one to a killed server would
		// fail the first probe of its successor.
		DisableKeepAlives: true,
	}}
	url := "https://" + ports.Loopback(port) + "/readyz"
	return func(ctx context.Context) error { return probe(ctx, client, url, tokens["admin"]) }, nil
}

func probe(ctx context.Context, client *http.Client, url, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
