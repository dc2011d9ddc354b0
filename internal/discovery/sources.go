// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/mdns"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	maxServers      = 8
	maxServerLength = 253
)

// An Announcement is what a cluster says of itself. Nothing in it is proven.
type Announcement struct {
	// ClusterID is the id of the cluster.
	ClusterID string
	// Servers are the URLs of its API server.
	Servers []string
}

// fields are the announcement as fields of a TXT record (RFC 6763, section 6).
func (a Announcement) fields() []string {
	fields := []string{"id=" + a.ClusterID}
	for _, server := range a.Servers {
		fields = append(fields, "server="+server)
	}
	return fields
}

// errAnnouncement means that a record is not one of ours, or makes no sense.
var errAnnouncement = errors.New("not the announcement of a cluster")

// parse reads the fields of a TXT record. Unknown ones are ignored.
func parse(fields []string) (Announcement, error) {
	found := Announcement{}
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "id":
			found.ClusterID = value
		case "server":
			if len(found.Servers) < maxServers {
				found.Servers = append(found.Servers, value)
			}
		}
	}
	return found, found.check()
}

func (a Announcement) check() error {
	if len(a.ClusterID) > 30 || len(validation.IsDNS1123Label(a.ClusterID)) > 0 {
		return fmt.Errorf("%w: its id is not a DNS label of at most 30 characters", errAnnouncement)
	}
	for _, server := range a.Servers {
		u, err := url.Parse(server)
		if err != nil || len(server) > maxServerLength || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			return fmt.Errorf("%w: its server is not a URL such as https://host:6443", errAnnouncement)
		}
	}
	return nil
}

// merge puts together what several sources tell of the same clusters, at most limit of them, sorted by id.
func merge(found []Announcement, own string, limit int) []Announcement {
	servers := map[string][]string{} // cluster id → its servers
	for _, a := range found {
		if a.ClusterID != own {
			servers[a.ClusterID] = append(servers[a.ClusterID], a.Servers...)
		}
	}
	var merged []Announcement
	for id, all := range servers {
		slices.Sort(all)
		all = slices.Compact(all)
		merged = append(merged, Announcement{ClusterID: id, Servers: all[:min(len(all), maxServers)]})
	}
	slices.SortFunc(merged, func(a, b Announcement) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	return merged[:min(len(merged), limit)]
}

const (
	// service is what clusters announce themselves as. It is not registered with IANA.
	service = "_hanse._tcp"
	// listening is how long answers are waited for.
	listening = 3 * time.Second
	// maxAnswers bounds what one look takes in.
	maxAnswers = 256
	// mdnsPort is only told because every record has one: the servers are in the TXT record.
	mdnsPort = 5353
)

// silent keeps the library's own messages, which are for nobody, out of our log.
var silent = log.New(io.Discard, "", 0)

// A source finds clusters.
type source interface {
	find(ctx context.Context) ([]Announcement, error)
}

// multicast announces this cluster on the local network and finds others there.
type multicast struct {
	self    Announcement
	address net.IP
}

// announce answers who asks until ctx ends.
func (m *multicast) announce(ctx context.Context) error {
	zone, err := mdns.NewMDNSService(
		m.self.ClusterID, service, "", m.self.ClusterID+".local.", mdnsPort, []net.IP{m.address}, m.self.fields())
	if err != nil {
		return fmt.Errorf("prepare the announcement: %w", err)
	}
	server, err := mdns.NewServer(&mdns.Config{Zone: zone, Logger: silent})
	if err != nil {
		return fmt.Errorf("listen for multicast DNS: %w", err)
	}
	<-ctx.Done()
	return server.Shutdown()
}

// find asks the local network.
func (m *multicast) find(ctx context.Context) ([]Announcement, error) {
	entries := make(chan *mdns.ServiceEntry, maxAnswers)
	err := mdns.QueryContext(ctx, &mdns.QueryParam{
		Service: service, Timeout: listening, Entries: entries, DisableIPv6: m.address.To4() != nil,
		DisableIPv4: m.address.To4() == nil, Logger: silent,
	})
	close(entries)
	if err != nil {
		return nil, fmt.Errorf("ask by multicast DNS: %w", err)
	}
	var found []Announcement
	for entry := range entries {
		if a, err := parse(entry.InfoFields); err == nil && strings.HasPrefix(entry.Name, a.ClusterID+".") {
			found = append(found, a)
		}
	}
	return found, nil
}

// A resolver looks records up. *net.Resolver is one.
type resolver interface {
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
	LookupTXT(ctx context.Context, name string) ([]string, error)
}

// domain finds the clusters that SRV records of a domain name. The TXT record of _hanse._tcp.TARGET tells the id of the
// cluster behind each target.
type domain struct {
	name     string
	resolver resolver
}

func (d *domain) find(ctx context.Context) ([]Announcement, error) {
	_, records, err := d.resolver.LookupSRV(ctx, "hanse", "tcp", d.name)
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the clusters of domain %s: %w", d.name, err)
	}
	var (
		found    []Announcement
		problems []error
	)
	for _, record := range records[:min(len(records), maxAnswers)] {
		a, err := d.ask(ctx, record)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		found = append(found, a)
	}
	return found, errors.Join(problems...)
}

func (d *domain) ask(ctx context.Context, record *net.SRV) (Announcement, error) {
	host := strings.TrimSuffix(record.Target, ".")
	fields, err := d.resolver.LookupTXT(ctx, service+"."+record.Target)
	if err != nil {
		return Announcement{}, fmt.Errorf("look up the cluster at %s: %w", host, err)
	}
	fields = append(fields, "server=https://"+net.JoinHostPort(host, strconv.Itoa(int(record.Port))))
	return parse(fields)
}
