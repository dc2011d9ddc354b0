// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
	"github.com/hanse-dev/hanse/testbed/internal/relay"
)

func lubeck(change ...func(*plan.Cluster)) *plan.Cluster {
	c := &plan.Cluster{
		Name: "lubeck", Slot: 3, Index: 1, Ports: plan.UsualPorts, Options: plan.DefaultOptions(),
		Dir: "/state/lubeck", Bin: "/bin",
	}
	for _, change := range change {
		change(c)
	}
	return c
}

func badLink(c *plan.Cluster) {
	c.Options.Links = []plan.Link{{Impairment: plan.Impairment{MTU: 1280}}}
}

func TestLinkKnowsWhatIsBadAndWhomToSpare(t *testing.T) {
	part, err := Find(lubeck(badLink), "link")
	if err != nil || !part.Cable {
		t.Fatalf("it holds the cable: %v, %v", part.Cable, err)
	}
	var got relay.Relay
	if err := json.Unmarshal([]byte(part.Files[0].Text), &got); err != nil {
		t.Fatal(err)
	}
	exempt := []netip.Prefix{netip.MustParsePrefix("10.213.0.0/24"), netip.MustParsePrefix("fd00:213::/112")}
	want := relay.Relay{Exempt: exempt, Links: lubeck(badLink).Options.Links}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func names(parts []Component) []string {
	var all []string
	for _, part := range parts {
		all = append(all, part.Name)
	}
	return all
}

func TestComponentsOfACluster(t *testing.T) {
	for _, test := range []struct {
		name string
		of   *plan.Cluster
		want string
	}{
		{"by default", lubeck(), "etcd containerd/1 apiserver controller-manager scheduler coredns kubelet/1 proxy/1"},
		{"two workers", lubeck(func(c *plan.Cluster) { c.Options.Workers = 2 }), "etcd containerd/1 containerd/2 apiserver " +
			"controller-manager scheduler coredns kubelet/1 proxy/1 kubelet/2 proxy/2"},
		{"simulated nodes and another scheduler", lubeck(func(c *plan.Cluster) {
			c.Options.Workers, c.Options.SimulatedNodes = 0, 3
			c.Options.ExtraSchedulers = []plan.ExtraScheduler{{Name: "slow"}}
		}), "etcd apiserver controller-manager scheduler scheduler/slow coredns kwok"},
		{"metrics", lubeck(func(c *plan.Cluster) { c.Options.Metrics = true }), "etcd containerd/1 apiserver controller-manager " +
			"scheduler coredns kubelet/1 proxy/1 metrics-server"},
		{"storage", lubeck(func(c *plan.Cluster) { c.Options.Storage = true }), "etcd containerd/1 apiserver controller-manager " +
			"scheduler coredns kubelet/1 proxy/1 provisioner"},
		{"snapshots, and so storage", lubeck(func(c *plan.Cluster) { c.Options.Snapshots = true }), "etcd containerd/1 apiserver " +
			"controller-manager scheduler coredns kubelet/1 proxy/1 provisioner snapshot-controller"},
		{"a bad link", lubeck(badLink), "link etcd containerd/1 apiserver controller-manager scheduler coredns kubelet/1 proxy/1"},
		{"without root", lubeck(func(c *plan.Cluster) { c.Options.Workers, c.Options.Metrics, c.Rootless = 0, true, true }), "etcd apiserver controller-manager scheduler"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Fields(test.want), names(All(test.of))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFind(t *testing.T) {
	two := lubeck(func(c *plan.Cluster) { c.Options.Workers = 2 })
	for _, test := range []struct {
		of         *plan.Cluster
		name, want string
	}{
		{lubeck(), "apiserver", "apiserver"},
		{lubeck(), "kubelet/1", "kubelet/1"},
		{lubeck(), "kubelet", "kubelet/1"},
		{two, "kubelet/2", "kubelet/2"},
		{two, "kubelet", ""}, // which one?
		{lubeck(), "kubelet/2", ""},
		{lubeck(), "", ""},
	} {
		got, err := Find(test.of, test.name)
		if got.Name != test.want || (err == nil) != (test.want != "") {
			t.Errorf("Find(%q) = %q, %v; want %q", test.name, got.Name, err, test.want)
		}
	}
}

func TestComponentRunsOnItsNode(t *testing.T) {
	for name, want := range map[string]string{
		"apiserver": "nsenter --net=/run/netns/hanse3-lubeck-0 -- /bin/kubernetes-v1.37.1 kube-apiserver",
		"proxy/1":   "nsenter --net=/run/netns/hanse3-lubeck-1 -- /bin/kubernetes-v1.37.1 kube-proxy",
		"kubelet/1": "nsenter --net=/run/netns/hanse3-lubeck-1 --mount=/run/hanse-testbed-3/hanse3-lubeck-1 -- /bin/kubernetes-v1.37.1 kubelet",
	} {
		part, err := Find(lubeck(), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(part.FullCommand(), " "); !strings.HasPrefix(got, want+" ") {
			t.Errorf("%s: got %s, want %s ...", name, got, want)
		}
	}
	rootless, err := Find(lubeck(func(c *plan.Cluster) { c.Options.Workers, c.Rootless = 0, true }), "apiserver")
	if err != nil || rootless.FullCommand()[0] != "/bin/kubernetes-v1.37.1" {
		t.Errorf("without root: %v, %v", rootless.FullCommand(), err)
	}
}

func TestFlagsThatWereAskedForComeLast(t *testing.T) {
	asked := map[string]string{
		"apiserver": "apiserver", "etcd": "etcd", "controller-manager": "controller-manager", "scheduler": "scheduler",
		"scheduler/slow": "scheduler", "coredns": "coredns", "kubelet/1": "kubelet", "containerd/1": "containerd",
		"proxy/1": "proxy", "kwok": "kwok", "metrics-server": "metrics-server",
		"provisioner": "provisioner", "snapshot-controller": "snapshot-controller",
	}
	c := lubeck(func(c *plan.Cluster) {
		c.Options.SimulatedNodes, c.Options.Metrics, c.Options.Snapshots = 1, true, true
		c.Options.ExtraSchedulers = []plan.ExtraScheduler{{Name: "slow"}}
		for _, name := range plan.Components {
			c.Options.Args = append(c.Options.Args, plan.Arg{Component: name, Flag: "flag-of", Value: name})
		}
	})
	for _, part := range All(c) {
		if got, want := part.Command[len(part.Command)-1], "--flag-of="+asked[part.Name]; got != want {
			t.Errorf("%s: the last flag is %s, want %s", part.Name, got, want)
		}
	}
}

func TestAuditIsLoggedOnDemand(t *testing.T) {
	quiet, _ := Find(lubeck(), "apiserver")
	if len(quiet.Files) != 0 || strings.Contains(strings.Join(quiet.Command, " "), "audit") {
		t.Errorf("not asked for, yet %v", quiet.Command)
	}
	loud, _ := Find(lubeck(func(c *plan.Cluster) { c.Options.Audit = true }), "apiserver")
	if !slices.Contains(loud.Command, "--audit-log-path=/state/lubeck/logs/audit.log") || len(loud.Files) != 1 {
		t.Errorf("asked for, yet %v", loud.Command)
	}
}

func TestKubeletGetsWhatItsNodeHas(t *testing.T) {
	c := lubeck(func(c *plan.Cluster) { c.Options.ServiceCIDR = plan.Ranges{netip.MustParsePrefix("10.64.0.0/16")} })
	part, err := Find(c, "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	config := part.Files[1].Text
	for _, want := range []string{
		"cgroupRoot: /hanse-testbed-3/lubeck-1\n", "clusterDNS: [\"10.64.0.10\"]\n", "address: \"0.0.0.0\"\n", "anonymous: {enabled: false}\n",
		`clientCAFile: "/state/lubeck/pki/ca.crt"`, `tlsCertFile: "/state/lubeck/pki/lubeck-worker-1.crt"`,
	} {
		if !strings.Contains(config, want) {
			t.Errorf("want %q in:\n%s", want, config)
		}
	}
	if !slices.Contains(part.Command, "--node-ip=10.213.1.11") {
		t.Errorf("command: %v", part.Command)
	}
}

func TestDualStackIsToldToAll(t *testing.T) {
	c := lubeck(func(c *plan.Cluster) {
		var err error
		if c.Options.PodCIDR, c.Options.ServiceCIDR, err = plan.DefaultRanges("dual"); err != nil {
			t.Fatal(err)
		}
	})
	for name, want := range map[string][]string{
		"apiserver": {"--bind-address=::", "--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112", "--advertise-address=10.213.1.1"},
		"controller-manager": {
			"--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112",
			"--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64",
		},
		"kubelet": {"--node-ip=10.213.1.11,fd00:213::1:11"},
		"proxy":   {"--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--healthz-bind-address=[::]:10256"},
	} {
		part, err := Find(c, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range want {
			if !slices.Contains(part.Command, flag) {
				t.Errorf("%s lacks %s: %v", name, flag, part.Command)
			}
		}
	}
	dns, _ := Find(c, "coredns")
	if want := "bind 10.213.1.1 fd00:213::1:1 127.0.0.1\n"; !strings.Contains(dns.Files[0].Text, want) {
		t.Errorf("want %q in:\n%s", want, dns.Files[0].Text)
	}
}

func TestPodsHaveAddressesAndRoutesOfAllFamilies(t *testing.T) {
	var got struct {
		Plugins []struct {
			Type string
			IPAM struct {
				Ranges [][]struct{ Subnet string }
				Routes []struct{ Dst string }
			}
		}
	}
	file := CNIConfig(plan.Ranges{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")})
	if err := json.Unmarshal([]byte(file.Text), &got); err != nil {
		t.Fatal(err)
	}
	if want := "[{ptp {[[{10.244.1.0/24}] [{fd00:10:244:1::/64}]] [{0.0.0.0/0} {::/0}]}} {portmap {[] []}}]"; fmt.Sprint(got.Plugins) != want {
		t.Errorf("got %v, want %s", got.Plugins, want)
	}
}

func TestExtraSchedulerHasItsNameAndDelay(t *testing.T) {
	plain := schedulerConfig("/k", plan.ExtraScheduler{Name: "second"})
	if !strings.Contains(plain, "schedulerName: second\n") || strings.Contains(plain, "TestbedDelay") {
		t.Errorf("without a delay:\n%s", plain)
	}
	slow := schedulerConfig("/k", plan.ExtraScheduler{Name: "slow", Delay: 1500 * time.Millisecond})
	if !strings.Contains(slow, "args: {delay: 1.5s}") {
		t.Errorf("with a delay:\n%s", slow)
	}
}

func TestSimulationIsAsSlowAsAsked(t *testing.T) {
	text := simulation("v1.36.3", 2*time.Second)
	if !strings.Contains(text, "delay: {durationMilliseconds: 2000}") || !strings.Contains(text, "kubeletVersion: v1.36.3\n") {
		t.Errorf("simulation:\n%s", text)
	}
	for _, placeholder := range []string{"START_MILLISECONDS", "KUBELET_VERSION"} {
		if strings.Contains(text, placeholder) {
			t.Errorf("%s is left in it", placeholder)
		}
	}
}

func TestCertificatesNameTheirServers(t *testing.T) {
	c := lubeck()
	requests := Certificates(c)[ClusterCA]
	byName := map[string]int{} // name of a certificate → its position
	for i, request := range requests {
		byName[request.Name] = i
	}
	server := requests[byName["apiserver"]]
	for _, want := range []netip.Addr{c.Address(), c.KubernetesService(), loopback} {
		if !slices.Contains(server.Addresses, want) {
			t.Errorf("the API server's certificate lacks %s: %v", want, server.Addresses)
		}
	}
	node := requests[byName["lubeck-worker-1"]]
	if node.User != "system:node:lubeck-worker-1" || !slices.Equal(node.Groups, []string{"system:nodes"}) {
		t.Errorf("the kubelet is %s of %v", node.User, node.Groups)
	}
	for path, cert := range Kubeconfigs(c) {
		if _, ok := byName[cert]; !ok {
			t.Errorf("%s is made of %s, which nobody issues", path, cert)
		}
	}
}

// The provisioner is outside of the workers' mount namespaces, so it is told where their disks are.
func TestProvisionerKnowsTheDiskOfEachWorker(t *testing.T) {
	part, err := Find(lubeck(func(c *plan.Cluster) { c.Dir, c.Options.Workers, c.Options.Storage = "/state/lubeck", 2, true }), "provisioner")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--disk=lubeck-worker-1=/state/lubeck/worker-1/var-lib", "--disk=lubeck-worker-2=/state/lubeck/worker-2/var-lib",
	}
	if diff := cmp.Diff(want, part.Command[len(part.Command)-2:]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Where there are no definitions of snapshots, it would ask for them for ever.
func TestProvisionerTakesSnapshotsOnDemand(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		part, err := Find(lubeck(func(c *plan.Cluster) { c.Options.Storage, c.Options.Snapshots = true, wanted }), "provisioner")
		if err != nil || slices.Contains(part.Command, "--snapshots") != wanted {
			t.Errorf("snapshots %v: %v, %v", wanted, part.Command, err)
		}
	}
}
