package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"innkeeper.dev/tests/controlplane/internal/files"
)

// Names of a real Node's processes, as ctl takes them.
const (
	containerdName = "containerd"
	kubeletName    = "kubelet"
	kubeProxyName  = "kube-proxy"
	corednsName    = "coredns"
)

const (
	realNodeName = "real-1"
	// realLabel is on real Nodes, and kwok leaves those alone.
	realLabel = "controlplane.test/real"
	// Documentation ranges, which nothing outside can have.
	realNodeIP   = "203.0.113.10"
	realPodRange = "198.51.100.0/24"

	// nodeState is the state of the Node as its processes see it: the directory `node` of the cluster. With short paths,
	// its sockets fit into the 108 bytes that the kernel allows.
	nodeState        = "/run/node"
	containerdSocket = "/run/containerd/containerd.sock"
	sandboxImage     = "controlplane.test/pause:1"
)

// realNodeOptions are the flags of `up` for real Nodes.
type realNodeOptions struct {
	count    int    // 0 or 1
	programs string // directory of the programs that tests/kubelet/build builds
	images   string // directory of archives of images
	inside   bool   // this process runs in the namespaces of the Node
}

// check tells what is missing for real Nodes, and makes the paths absolute.
func (o *realNodeOptions) check() error {
	if o.count == 0 {
		return nil
	}
	if o.count != 1 {
		return fmt.Errorf("--real-nodes=%d is out of range; use 0 or 1", o.count)
	}
	if os.Geteuid() != 0 {
		return errors.New("a real Node needs root, for namespaces, mounts and cgroups; run the command as root")
	}
	var missing []string
	for _, program := range []string{"runc", "iptables", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	var err error
	if o.programs, err = filepath.Abs(o.programs); err != nil {
		return err
	}
	if o.images, err = filepath.Abs(o.images); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(o.programs, kubeletName), filepath.Join(o.images, "pause.tar")} {
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, path)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("a real Node needs %s; run tests/setup --only node", strings.Join(missing, ", "))
	}
	return nil
}

// addRealNode adds the processes of the Node, and writes their files.
func (c *cluster) addRealNode(add func(name, program string, command func() []string, health func(context.Context) error)) error {
	if err := c.writeNodeFiles(); err != nil {
		return fmt.Errorf("failed to write the files of the real Node: %w", err)
	}
	programs := c.options.real.programs
	kubelet := filepath.Join(programs, kubeletName)
	add(containerdName, filepath.Join(programs, containerdName), func() []string {
		return []string{"--config=" + c.layout.config("containerd.toml")}
	}, listens(containerdSocket))
	add(kubeletName, kubelet, func() []string { return kubeletCommand(c.layout) }, answers("127.0.0.1:10248/healthz"))
	add(kubeProxyName, kubelet, func() []string { return kubeProxyCommand(c.layout) }, answers("127.0.0.1:10256/healthz"))
	add(corednsName, kubelet, func() []string {
		return []string{corednsName, "-conf", c.layout.config("Corefile")}
	}, answers("127.0.0.1:8181/ready"))
	return nil
}

func listens(socket string) func(context.Context) error {
	return func(context.Context) error {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func answers(address string) func(context.Context) error {
	return func(ctx context.Context) error { return probe(ctx, http.DefaultClient, "http://"+address, "") }
}

func kubeletCommand(l layout) []string {
	return []string{
		kubeletName,
		"--config=" + l.config("kubelet.yaml"),
		"--kubeconfig=" + l.config("kubeconfig-kubelet"),
		"--hostname-override=" + realNodeName,
		"--node-ip=" + realNodeIP,
		"--node-labels=" + realLabel + "=true",
		"--root-dir=" + nodeState + "/kubelet",
		"--cert-dir=" + nodeState + "/kubelet/pki",
	}
}

func kubeProxyCommand(l layout) []string {
	return []string{
		kubeProxyName,
		"--kubeconfig=" + l.config("kubeconfig-kube-proxy"),
		"--hostname-override=" + realNodeName,
		"--proxy-mode=iptables",
		"--cluster-cidr=" + realPodRange,
		"--healthz-bind-address=127.0.0.1:10256",
		"--metrics-bind-address=127.0.0.1:10249",
		// These are limits of the whole machine.
		"--conntrack-max-per-core=0",
		"--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
	}
}

func (c *cluster) writeNodeFiles() error {
	for path, content := range map[string]string{
		c.layout.config("containerd.toml"):  containerdConfig(c.options.real.programs),
		c.layout.config("kubelet.yaml"):     kubeletConfig(c.layout),
		c.layout.config("Corefile"):         corefile(c.layout),
		nodeState + "/cni/10-pods.conflist": cniConfig,
		nodeState + "/resolv.conf":          "nameserver " + realNodeIP + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := files.Write(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// containerdConfig leaves the machine's own directories alone: all state is below /run, which is the Node's own.
func containerdConfig(programs string) string {
	return fmt.Sprintf(`version = 3
root = "%[1]s/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "%[2]s"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "%[3]s"
[plugins."io.containerd.cri.v1.runtime"]
# Some machines lack CAP_SYS_RESOURCE, without which runc cannot lower the score of a sandbox.
restrict_oom_score_adj = true
enable_cdi = false
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["%[4]s"]
conf_dir = "%[1]s/cni"
use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "%[4]s/containerd-shim-runc-v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
`, nodeState, containerdSocket, sandboxImage, programs)
}

func kubeletConfig(l layout) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /%[3]s
clusterDNS: [%[1]s]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://%[4]s
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi}
failCgroupV1: false
failSwapOn: false
# Nothing could pull a removed image again.
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
oomScoreAdj: 0
podLogsDir: %[5]s/logs
resolvConf: %[5]s/resolv.conf
serializeImagePulls: false
volumePluginDir: %[5]s/plugins
`, realNodeIP, l.pki("ca.crt"), cgroupName(l), containerdSocket, nodeState)
}

// Every Pod has an interface of its own on the Node. On a common bridge, answers between Pods would bypass the rules of
// kube-proxy.
const cniConfig = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "ptp",
    "ipam": {
      "type": "host-local",
      "dataDir": "` + nodeState + `/addresses",
      "ranges": [[{"subnet": "` + realPodRange + `"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`

func corefile(l layout) string {
	return `cluster.local in-addr.arpa ip6.arpa {
    errors
    ready 127.0.0.1:8181
    cache 5
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig ` + l.config("kubeconfig-coredns") + `
    }
}
# Nothing outside of the cluster can be reached.
. {
    template ANY ANY {
        rcode NXDOMAIN
    }
}
`
}

// importImages gives containerd every archive in the directory of images, and waits for containerd before.
func (c *cluster) importImages(ctx context.Context) error {
	if err := c.startFirst(ctx, containerdName); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(c.options.real.images, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		command := exec.CommandContext(ctx, filepath.Join(c.options.real.programs, "ctr"),
			"--address="+containerdSocket, "--namespace=k8s.io", "images", "import", archive)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("failed to import %s: %w\n%s", archive, err, strings.TrimSpace(string(output)))
		}
	}
	return nil
}

// startRealNode starts the rest of the Node, whose images were imported meanwhile.
func (c *cluster) startRealNode(ctx context.Context, imported <-chan error) error {
	for _, name := range []string{kubeletName, kubeProxyName, corednsName} {
		c.mustProcess(name).start()
	}
	select {
	case err := <-imported:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, name := range []string{kubeletName, kubeProxyName, corednsName} {
		if err := c.mustProcess(name).awaitHealthy(ctx); err != nil {
			return err
		}
	}
	return nil
}
