// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func etcd(c *plan.Cluster) Component {
	client := fmt.Sprintf("https://%s:%d", loopback, c.Ports.EtcdClient)
	peer := fmt.Sprintf("http://%s:%d", loopback, c.Ports.EtcdPeer)
	return Component{Name: "etcd", Node: c.ControlPlane(), Command: kubernetes(c, "etcd", "etcd",
		"--name=default",
		"--data-dir="+filepath.Join(c.ControlPlane().Dir(), "etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer,
		"--cert-file="+cert(c, "etcd"),
		"--key-file="+key(c, "etcd"),
		"--client-cert-auth",
		"--trusted-ca-file="+cert(c, EtcdCA),
		"--unsafe-no-fsync", // the data is to be thrown away, and the disk is not to be waited for
		"--quota-backend-bytes=4294967296",
	)}
}

func apiserver(c *plan.Cluster) Component {
	flags := []string{
		"--etcd-servers=" + fmt.Sprintf("https://%s:%d", loopback, c.Ports.EtcdClient),
		"--etcd-cafile=" + cert(c, EtcdCA),
		"--etcd-certfile=" + cert(c, "apiserver-etcd-client"),
		"--etcd-keyfile=" + key(c, "apiserver-etcd-client"),
		"--bind-address=" + bindAddress(c),
		"--secure-port=" + strconv.Itoa(c.Ports.APIServer),
		"--tls-cert-file=" + cert(c, "apiserver"),
		"--tls-private-key-file=" + key(c, "apiserver"),
		"--client-ca-file=" + cert(c, ClusterCA),
		"--service-cluster-ip-range=" + c.Options.ServiceCIDR.String(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(c.PKIDir(), ServiceAccountKey+".pub"),
		"--service-account-signing-key-file=" + key(c, ServiceAccountKey),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-client-certificate=" + cert(c, "apiserver-kubelet-client"),
		"--kubelet-client-key=" + key(c, "apiserver-kubelet-client"),
		"--kubelet-preferred-address-types=InternalIP", // or the names of nodes would be looked up in DNS
		"--requestheader-client-ca-file=" + cert(c, FrontProxyCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + cert(c, "front-proxy-client"),
		"--proxy-client-key-file=" + key(c, "front-proxy-client"),
		// Webhooks and aggregated APIs are reached at the pods' own addresses, which the control plane has routes to: it
		// needs no kube-proxy.
		"--enable-aggregator-routing=true",
		"--shutdown-watch-termination-grace-period=2s", // or open watches keep a stopped server from ending for a minute
		"--profiling=false",
	}
	if c.Rootless {
		flags = append(flags, "--endpoint-reconciler-type=none") // it refuses to announce a loopback address
	} else {
		flags = append(flags, "--advertise-address="+c.Address().String())
	}
	var files []File
	if c.Options.Audit {
		policy := File{Path: filepath.Join(c.ControlPlane().ConfigDir(), "audit-policy.yaml"), Text: auditPolicy}
		files = append(files, policy)
		flags = append(flags,
			"--audit-policy-file="+policy.Path,
			"--audit-log-path="+filepath.Join(c.LogDir(), "audit.log"),
			"--audit-log-maxsize=4096", // megabytes: whoever counts requests wants them in one file
		)
	}
	return Component{
		Name: "apiserver", Node: c.ControlPlane(), Files: files,
		Command: kubernetes(c, "kube-apiserver", "apiserver", flags...),
	}
}

// auditPolicy logs who did what to which object, once for each request.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func controllerManager(c *plan.Cluster) Component {
	flags := []string{
		"--kubeconfig=" + kubeconfig(c, "controller-manager"),
		"--authentication-kubeconfig=" + kubeconfig(c, "controller-manager"),
		"--authorization-kubeconfig=" + kubeconfig(c, "controller-manager"),
		"--bind-address=" + loopback.String(),
		"--secure-port=" + strconv.Itoa(c.Ports.ControllerManager),
		"--leader-elect=false", // there is only one, and it is not to wait for its predecessor's lease
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + key(c, ServiceAccountKey),
		"--root-ca-file=" + cert(c, ClusterCA),
		"--cluster-signing-cert-file=" + cert(c, ClusterCA),
		"--cluster-signing-key-file=" + key(c, ClusterCA),
		"--requestheader-client-ca-file=" + cert(c, FrontProxyCA),
		"--client-ca-file=" + cert(c, ClusterCA),
		"--allocate-node-cidrs=true",
		"--cluster-cidr=" + c.Options.PodCIDR.String(),
		"--service-cluster-ip-range=" + c.Options.ServiceCIDR.String(),
		"--profiling=false",
	}
	for _, family := range c.Families() {
		flag := map[plan.Family]string{plan.IPv4: "ipv4", plan.IPv6: "ipv6"}[family]
		flags = append(flags, fmt.Sprintf("--node-cidr-mask-size-%s=%d", flag, plan.NodeRange(family)))
	}
	return Component{
		Name: "controller-manager", Node: c.ControlPlane(),
		Command: kubernetes(c, "kube-controller-manager", "controller-manager", flags...),
	}
}

func scheduler(c *plan.Cluster) Component {
	return Component{Name: "scheduler", Node: c.ControlPlane(), Command: kubernetes(c, "kube-scheduler", "scheduler",
		"--kubeconfig="+kubeconfig(c, "scheduler"),
		"--authentication-kubeconfig="+kubeconfig(c, "scheduler"),
		"--authorization-kubeconfig="+kubeconfig(c, "scheduler"),
		"--requestheader-client-ca-file="+cert(c, FrontProxyCA),
		"--client-ca-file="+cert(c, ClusterCA),
		"--bind-address="+loopback.String(),
		"--secure-port="+strconv.Itoa(c.Ports.Scheduler),
		"--leader-elect=false",
		"--profiling=false",
	)}
}

// extraScheduler listens nowhere: there may be any number of them.
func extraScheduler(c *plan.Cluster, extra plan.ExtraScheduler) Component {
	config := File{
		Path: filepath.Join(c.ControlPlane().ConfigDir(), "scheduler-"+extra.Name+".yaml"),
		Text: schedulerConfig(kubeconfig(c, "scheduler"), extra),
	}
	return Component{
		Name: "scheduler/" + extra.Name, Node: c.ControlPlane(), Files: []File{config},
		Command: kubernetes(c, "kube-scheduler", "scheduler", "--config="+config.Path, "--secure-port=0"),
	}
}

func schedulerConfig(kubeconfig string, extra plan.ExtraScheduler) string {
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: false}
profiles:
- schedulerName: %s
`, kubeconfig, extra.Name)
	if extra.Delay == 0 {
		return text
	}
	return text + fmt.Sprintf(`  plugins: {reserve: {enabled: [{name: TestbedDelay}]}}
  pluginConfig: [{name: TestbedDelay, args: {delay: %s}}]
`, extra.Delay)
}

func coreDNS(c *plan.Cluster) Component {
	config := File{
		Path: filepath.Join(c.ControlPlane().ConfigDir(), "Corefile"),
		Text: corefile(join(c.Addresses(), " "), kubeconfig(c, "coredns"), c.Options.Multicluster),
	}
	command := []string{filepath.Join(c.Bin, "coredns"), "-conf=" + config.Path}
	return Component{
		Name: "coredns", Node: c.ControlPlane(), Files: []File{config},
		Command: append(command, c.Options.ArgsOf("coredns")...),
	}
}

// MetricsPort is where metrics-server listens, beside the API server.
const MetricsPort = 4443

// metricsServer asks all kubelets. The certificates of virtual nodes are signed by nobody that it knows.
func metricsServer(c *plan.Cluster) Component {
	config := kubeconfig(c, "metrics-server")
	command := []string{
		filepath.Join(c.Bin, "metrics-server"),
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=" + bindAddress(c),
		"--secure-port=" + strconv.Itoa(MetricsPort),
		"--tls-cert-file=" + cert(c, "metrics-server"),
		"--tls-private-key-file=" + key(c, "metrics-server"),
		"--kubelet-insecure-tls",
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-use-node-status-port",
		"--metric-resolution=15s",
	}
	return Component{
		Name: "metrics-server", Node: c.ControlPlane(), Command: append(command, c.Options.ArgsOf("metrics-server")...),
	}
}

// provisioner makes volumes on the disks of the workers, which it reaches from outside.
func provisioner(c *plan.Cluster) Component {
	command := []string{filepath.Join(c.Bin, "provisioner"), "--kubeconfig=" + kubeconfig(c, "provisioner")}
	for _, worker := range c.Workers() {
		command = append(command, "--disk="+worker.Name()+"="+worker.LibraryDir())
	}
	if c.HasSnapshots() {
		command = append(command, "--snapshots")
	}
	return Component{
		Name: "provisioner", Node: c.ControlPlane(), Command: append(command, c.Options.ArgsOf("provisioner")...),
	}
}

// snapshotController binds VolumeSnapshots to their contents, which the provisioner makes.
func snapshotController(c *plan.Cluster) Component {
	command := []string{c.SnapshotController(), "--kubeconfig=" + kubeconfig(c, "snapshot-controller")}
	return Component{
		Name: "snapshot-controller", Node: c.ControlPlane(), Command: append(command, c.Options.ArgsOf("snapshot-controller")...),
	}
}

// corefile answers for the cluster, and says at once that there is nothing else: the bridge is the whole world. The two
// are apart because CoreDNS would ask the template first, wherever it is written. So is what answers for the cluster set: without
// definitions of its objects it answers nothing.
func corefile(addresses, kubeconfig string, multicluster bool) string {
	clusterSet := ""
	if multicluster {
		clusterSet = fmt.Sprintf(`
clusterset.local:53 {
  import common
  kubernetes clusterset.local {
    kubeconfig %s
    multicluster clusterset.local
    ttl 1
    startup_timeout 1s
  }
}
`, kubeconfig)
	}
	//nolint:dupword // any class, any type
	return fmt.Sprintf(`(common) {
  bind %s 127.0.0.1
  errors
  cache 5
  loadbalance
}

cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
  import common
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig %s
    pods insecure
    ttl 5
  }
}
%s
.:53 {
  import common
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
`, addresses, kubeconfig, clusterSet)
}

// bindAddress is where a server listens that others reach. Without root that is the loopback interface of a machine that
// may have other users.
func bindAddress(c *plan.Cluster) string {
	if c.Rootless {
		return loopback.String()
	}
	if c.HasIPv6() {
		return "::" // IPv4 too
	}
	return "0.0.0.0"
}

func join(addresses []netip.Addr, separator string) string {
	texts := make([]string, len(addresses))
	for i, address := range addresses {
		texts[i] = address.String()
	}
	return strings.Join(texts, separator)
}
