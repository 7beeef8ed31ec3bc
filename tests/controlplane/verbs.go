package main

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"innkeeper.dev/tests/controlplane/internal/ports"
	"innkeeper.dev/tests/controlplane/internal/relay"
)

// verbTimeout is the longest time of a verb, which may wait for a process to become healthy.
const verbTimeout = time.Minute

// verb is a command of ctl.
type verb struct {
	usage   string // arguments, for the help text
	help    string
	argsMin int
	argsMax int
	run     func(ctx context.Context, s *controlServer, args []string) (any, error)
}

// verbs are all verbs by name.
var verbs = map[string]verb{
	"status": {"", "Show all processes, relays and ports", 0, 0, verbStatus},
	"stop": {"NAME", "End a process (SIGTERM, SIGKILL after 1 s) and keep it down", 1, 1,
		func(_ context.Context, s *controlServer, args []string) (any, error) {
			p, err := s.cluster.process(args[0])
			if err != nil {
				return nil, err
			}
			p.stop()
			return p.status(), nil
		}},
	"start": {"NAME", "Start a stopped process and wait until it is healthy", 1, 1,
		func(ctx context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.healthyAfter(ctx, args[0], func(p *process) error {
				p.start()
				return nil
			})
		}},
	"restart": {"NAME", "Stop and start a process and wait until it is healthy", 1, 1,
		func(ctx context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.healthyAfter(ctx, args[0], func(p *process) error {
				p.stop()
				p.start()
				return nil
			})
		}},
	"kill": {"NAME", "SIGKILL a process; the supervisor restarts it, `wait` waits for that", 1, 1,
		func(_ context.Context, s *controlServer, args []string) (any, error) {
			p, err := s.cluster.process(args[0])
			if err != nil {
				return nil, err
			}
			if err := p.kill(); err != nil {
				return nil, err
			}
			return p.status(), nil
		}},
	"pause": {"NAME", "Freeze a process (SIGSTOP)", 1, 1,
		func(_ context.Context, s *controlServer, args []string) (any, error) {
			p, err := s.cluster.process(args[0])
			if err != nil {
				return nil, err
			}
			if err := p.setPaused(true); err != nil {
				return nil, err
			}
			return p.status(), nil
		}},
	"resume": {"NAME", "Thaw a process (SIGCONT) and wait until it is healthy", 1, 1,
		func(ctx context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.healthyAfter(ctx, args[0], func(p *process) error { return p.setPaused(false) })
		}},
	"wait": {"[NAME...]", "Wait until the processes named, or all that should run, are healthy", 0, 10, verbWait},
	"cut": {"RELAY", "Hold all data in a relay; connections stay open", 1, 1,
		func(_ context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.setCut(args[0], true)
		}},
	"mend": {"RELAY", "Forward data through a relay again, the held data first", 1, 1,
		func(_ context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.setCut(args[0], false)
		}},
	"front": {"NAME", "Connect the clients of kubeconfig-front and kubeconfig-innkeeper-front to an API server", 1, 1, verbFront},
	"revision": {"", "Show the current revision of etcd", 0, 0,
		func(ctx context.Context, s *controlServer, _ []string) (any, error) {
			return s.cluster.revision(ctx)
		}},
	"compact": {"[REVISION]", "Compact etcd up to a revision, or up to the current one", 0, 1, verbCompact},
	"snapshot": {"NAME", "Keep a copy of etcd's data (etcd is down for a moment)", 1, 1,
		func(ctx context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.snapshot(ctx, args[0])
		}},
	"restore": {"NAME", "Go back to a snapshot; all processes are restarted", 1, 1,
		func(ctx context.Context, s *controlServer, args []string) (any, error) {
			return s.cluster.restore(ctx, args[0])
		}},
	"reset": {"", "Go back to the objects that the cluster had when it became ready; nothing is restarted", 0, 0,
		func(ctx context.Context, s *controlServer, _ []string) (any, error) {
			return nil, s.cluster.reset(ctx)
		}},
	"shutdown": {"", "End the cluster, as SIGTERM does", 0, 0,
		func(_ context.Context, s *controlServer, _ []string) (any, error) {
			s.shutdown()
			return nil, nil
		}},
}

func verbNames() []string {
	names := make([]string, 0, len(verbs))
	for name := range verbs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (s *controlServer) run(ctx context.Context, request controlRequest) (any, error) {
	v, ok := verbs[request.Verb]
	if !ok {
		return nil, fmt.Errorf("there is no verb %q; there are %s", request.Verb, strings.Join(verbNames(), ", "))
	}
	if len(request.Args) < v.argsMin || len(request.Args) > v.argsMax {
		return nil, fmt.Errorf("%s takes: %s", request.Verb, strings.TrimSpace(request.Verb+" "+v.usage))
	}
	ctx, cancel := context.WithTimeout(ctx, verbTimeout)
	defer cancel()
	return v.run(ctx, s, request.Args)
}

// clusterStatus is the result of status.
type clusterStatus struct {
	Dir       string          `json:"dir"`
	Ports     ports.Ports     `json:"ports"`
	Processes []processStatus `json:"processes"`
	Relays    []relay.Status  `json:"relays"`
}

func verbStatus(_ context.Context, s *controlServer, _ []string) (any, error) {
	c := s.cluster
	status := clusterStatus{Dir: c.layout.dir, Ports: c.ports}
	for _, p := range c.processes {
		status.Processes = append(status.Processes, p.status())
	}
	for _, r := range c.relays {
		status.Relays = append(status.Relays, r.Status())
	}
	return status, nil
}

func verbWait(ctx context.Context, s *controlServer, args []string) (any, error) {
	waited := []processStatus{}
	if len(args) == 0 {
		for _, p := range s.cluster.processes {
			if state := p.status().State; state != "stopped" && state != "paused" {
				args = append(args, p.name)
			}
		}
	}
	for _, name := range args {
		p, err := s.cluster.process(name)
		if err != nil {
			return nil, err
		}
		if err := p.awaitHealthy(ctx); err != nil {
			return nil, err
		}
		waited = append(waited, p.status())
	}
	return waited, nil
}

func verbFront(_ context.Context, s *controlServer, args []string) (any, error) {
	r, err := s.cluster.relay(front)
	if err != nil {
		return nil, err
	}
	switch args[0] {
	case apiserver1:
		r.SetTarget(ports.Loopback(s.cluster.ports.APIServer))
	case apiserver2:
		r.SetTarget(ports.Loopback(s.cluster.ports.APIServer2))
	default:
		return nil, fmt.Errorf("%q is no API server; use %s or %s", args[0], apiserver1, apiserver2)
	}
	return r.Status(), nil
}

func verbCompact(ctx context.Context, s *controlServer, args []string) (any, error) {
	var revision int64
	if len(args) == 1 {
		number, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || number < 1 {
			return nil, fmt.Errorf("%q is no revision; give a positive number, or none for the current revision", args[0])
		}
		revision = number
	}
	return s.cluster.compact(ctx, revision)
}

// healthyAfter applies do to a process and waits until it is healthy.
func (c *cluster) healthyAfter(ctx context.Context, name string, do func(*process) error) (any, error) {
	p, err := c.process(name)
	if err != nil {
		return nil, err
	}
	if err := do(p); err != nil {
		return nil, err
	}
	if err := p.awaitHealthy(ctx); err != nil {
		return nil, err
	}
	return p.status(), nil
}

func (c *cluster) setCut(name string, cut bool) (any, error) {
	r, err := c.relay(name)
	if err != nil {
		return nil, err
	}
	r.SetCut(cut)
	return r.Status(), nil
}
