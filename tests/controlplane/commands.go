package main

import (
	"fmt"
	"strings"

	"innkeeper.dev/tests/controlplane/internal/ports"
)

// Names of the processes and relays, as ctl takes them.
const (
	etcdName          = "etcd"
	apiserver1        = "apiserver"
	apiserver2        = "apiserver-2"
	controllerManager = "controller-manager"
	schedulerName     = "scheduler"
	kwokName          = "kwok"
	front             = "front"
)

const (
	serviceRange   = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1"
	podRange       = "10.244.0.0/16"
	nodeIP         = "10.240.0.1"
)

// auditOptions select the content and the mode of the audit logs.
type auditOptions struct {
	level string // off, metadata or request
	mode  string // blocking, blocking-strict or batch
}

func (a auditOptions) check() error {
	switch a.level {
	case "off", "metadata", "request":
	default:
		return fmt.Errorf("--audit=%s is unknown; use off, metadata or request", a.level)
	}
	switch a.mode {
	case "blocking", "blocking-strict", "batch":
		return nil
	}
	return fmt.Errorf("--audit-mode=%s is unknown; use blocking, blocking-strict or batch", a.mode)
}

// policy returns the audit policy. At level request it logs the bodies of
// writes, except those of the components, which would be nearly all of the file.
func (a auditOptions) policy() string {
	request := ""
	if a.level == "request" {
		request = `
- level: Metadata
  users: ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver", "kwok"]
- level: Metadata
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Request
  verbs: ["create", "update", "patch", "delete", "deletecollection"]`
	}
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"]` + request + `
- level: Metadata
`
}

func etcdCommand(l layout, p ports.Ports) []string {
	return []string{
		etcdName,
		"--data-dir=" + l.etcd(),
		fmt.Sprintf("--client-port=%d", p.Etcd),
		fmt.Sprintf("--peer-port=%d", p.EtcdPeer),
	}
}

func apiserverCommand(l layout, name string, port, etcdPort int, options clusterOptions) []string {
	address, audit := "127.0.0.1", options.audit
	if options.real.count > 0 {
		// Also at the address of the Node, for Pods.
		address = "0.0.0.0"
	}
	args := []string{
		"apiserver",
		"--bind-address=" + address,
		"--advertise-address=127.0.0.1",
		"--kubelet-client-certificate=" + l.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + l.pki("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		fmt.Sprintf("--secure-port=%d", port),
		"--etcd-servers=http://" + ports.Loopback(etcdPort),
		// Two API servers on one address would take turns in overwriting each
		// other's lease. With a real Node, bootstrap writes the endpoint.
		"--endpoint-reconciler-type=none",
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceRange,
		"--token-auth-file=" + l.pki("tokens.csv"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--tls-cert-file=" + l.pki("apiserver.crt"),
		"--tls-private-key-file=" + l.pki("apiserver.key"),
		"--requestheader-client-ca-file=" + l.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.pki("front-proxy.crt"),
		"--proxy-client-key-file=" + l.pki("front-proxy.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.pki("sa.pub"),
		"--service-account-signing-key-file=" + l.pki("sa.key"),
		"--profiling=false",
	}
	if audit.level != "off" {
		args = append(args,
			"--audit-policy-file="+l.config("audit.yaml"),
			"--audit-log-path="+l.audit(name),
			"--audit-log-mode="+audit.mode,
			// In MB. Tests read this one file, so it must never rotate; 0 would mean 100 MB.
			"--audit-log-maxsize=1000000",
		)
	}
	return append(args, options.apiserverArgs...)
}

func controllerManagerCommand(l layout) []string {
	return []string{
		controllerManager,
		"--kubeconfig=" + l.config("kubeconfig-controller-manager"),
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.pki("sa.key"),
		"--root-ca-file=" + l.pki("ca.crt"),
		"--enable-hostpath-provisioner=true",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
		"--controllers=*," + strings.Join([]string{
			"-certificatesigningrequest-approving-controller",
			"-certificatesigningrequest-cleaner-controller",
			"-certificatesigningrequest-signing-controller",
			"-persistentvolume-attach-detach-controller",
			"-service-lb-controller",
			"-node-route-controller",
			"-cloud-node-lifecycle-controller",
		}, ","),
	}
}

func schedulerCommand(l layout) []string {
	return []string{
		schedulerName,
		"--kubeconfig=" + l.config("kubeconfig-scheduler"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	}
}

func kwokCommand(l layout) []string {
	return []string{
		kwokName,
		"--kubeconfig=" + l.config("kubeconfig-kwok"),
		"--config=" + l.config("kwok.yaml"),
		"--manage-nodes-with-label-selector=!" + realLabel,
		"--cidr=" + podRange,
		"--node-ip=" + nodeIP,
		// Without a server for logs and exec, two clusters cannot collide on its port.
		"--node-port=0",
		"--node-lease-duration-seconds=40",
	}
}
