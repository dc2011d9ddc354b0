package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

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
