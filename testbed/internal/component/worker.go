// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// PauseImage is the image of the container that holds each pod's namespaces.
const PauseImage = "hanse.dev/test/pause:v1"

// Within a worker's mount namespace everything is where it is on a real node.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	cniPlugins       = "/usr/lib/cni"
)

// CNIDir is where the worker's CNI configuration is.
func CNIDir(worker plan.Node) string {
	return filepath.Join(worker.ConfigDir(), "cni")
}

func containerd(worker plan.Node) Component {
	config := File{Path: filepath.Join(worker.ConfigDir(), "containerd.toml"), Text: containerdConfig(worker)}
	command := []string{"containerd", "--config=" + config.Path}
	return Component{
		Name: fmt.Sprintf("containerd/%d", worker.Number), Node: worker, Files: []File{config}, Machine: true,
		Command: append(command, worker.Cluster.Options.ArgsOf("containerd")...),
	}
}

// containerdConfig restricts oom_score_adj because a machine may lack CAP_SYS_RESOURCE, without which runc cannot lower
// it and dies.
func containerdConfig(worker plan.Node) string {
	return fmt.Sprintf(`version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q
`, PauseImage, cniPlugins, CNIDir(worker))
}

// CNIConfig gives pods addresses of the worker's range. Each pod has a point-to-point link to its node, so that all that
// pods send is routed, also between pods of one node: what goes through a Service finds its way back without bridge
// netfilter. A pod that asks for a hostPort gets it.
func CNIConfig(podCIDRs plan.Ranges) File {
	var ranges, routes []string
	for _, cidr := range podCIDRs {
		everywhere := netip.PrefixFrom(cidr.Addr(), 0).Masked()
		ranges = append(ranges, fmt.Sprintf(`[{"subnet": %q}]`, cidr))
		routes = append(routes, fmt.Sprintf(`{"dst": %q}`, everywhere))
	}
	return File{Path: "10-testbed.conflist", Text: fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "testbed",
  "plugins": [{
    "type": "ptp",
    "mtu": 1500,
    "ipam": {
      "type": "host-local",
      "ranges": [%s],
      "routes": [%s]
    }
  }, {
    "type": "portmap",
    "capabilities": {"portMappings": true}
  }]
}
`, strings.Join(ranges, ", "), strings.Join(routes, ", "))}
}

func kubelet(worker plan.Node) Component {
	c := worker.Cluster
	resolv := File{
		Path: filepath.Join(worker.ConfigDir(), "resolv.conf"),
		Text: fmt.Sprintf("nameserver %s\n", c.Address()),
	}
	config := File{
		Path: filepath.Join(worker.ConfigDir(), "kubelet.yaml"),
		Text: kubeletConfig(worker, resolv.Path),
	}
	return Component{
		Name: fmt.Sprintf("kubelet/%d", worker.Number), Node: worker, Files: []File{resolv, config}, Machine: true,
		Command: kubernetes(c, "kubelet", "kubelet",
			"--config="+config.Path,
			"--kubeconfig="+kubeconfig(c, worker.Name()),
			"--hostname-override="+worker.Name(),
			"--node-ip="+join(worker.Addresses(), ","),
			"--node-labels=topology.kubernetes.io/zone="+c.Name,
		),
	}
}

// kubeletConfig leaves out what needs rights or a file system that a container or a small virtual machine lacks. A container that was
// killed comes back at once, where a kubelet would wait for minutes: in tests that kill, nothing else would pass the time.
func kubeletConfig(worker plan.Node, resolv string) string {
	c := worker.Cluster
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %q
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
cgroupDriver: cgroupfs
cgroupRoot: %s
clusterDNS: [%q]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://%s
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
evictionHard: {memory.available: 100Mi}
failCgroupV1: false
failSwapOn: false
fileCheckFrequency: 20s
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
oomScoreAdj: 0
registryPullQPS: 0
resolvConf: %q
serializeImagePulls: false
staticPodPath: ""
volumePluginDir: /var/lib/kubelet/volume-plugins
`,
		bindAddress(c), cert(c, ClusterCA), cert(c, worker.Name()), key(c, worker.Name()),
		worker.Cgroup(), c.DNS()[0], containerdSocket, resolv)
}

// ProxyHealthPort is where kube-proxy tells whether Services work.
const ProxyHealthPort = 10256

// proxy has flags and no configuration file, because with a file kube-proxy ignores flags, the user's too.
func proxy(worker plan.Node) Component {
	c := worker.Cluster
	return Component{
		Name: fmt.Sprintf("proxy/%d", worker.Number), Node: worker,
		Command: kubernetes(c, "kube-proxy", "proxy",
			"--kubeconfig="+kubeconfig(c, "proxy"),
			"--hostname-override="+worker.Name(),
			"--proxy-mode=nftables",
			"--cluster-cidr="+c.Options.PodCIDR.String(),
			"--healthz-bind-address="+net.JoinHostPort(bindAddress(c), strconv.Itoa(ProxyHealthPort)),
			"--conntrack-max-per-core=0", // the limits are the machine's, not the namespace's to change
			"--conntrack-tcp-timeout-established=0s",
			"--conntrack-tcp-timeout-close-wait=0s",
			"--oom-score-adj=0",
		),
	}
}
