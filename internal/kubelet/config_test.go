package kubelet

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		want   string // part of the error, "" for none
	}{
		"an address is enough":              {Config{NodeIP: netip.MustParseAddr("192.0.2.7")}, ""},
		"and needed":                        {Config{}, "node IP"},
		"nobody reaches the unspecified":    {Config{NodeIP: netip.IPv4Unspecified()}, "node IP"},
		"ports are a range":                 {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), FirstPort: 30000, LastPort: 20000}, "range of ports"},
		"workers work":                      {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), Workers: -1}, "workers"},
		"a lease is renewed before it ends": {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), LeaseRenewal: time.Minute}, "lease"},
		"a certificate needs its key":       {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), CertFile: "tls.crt"}, "key"},
	} {
		t.Run(name, func(t *testing.T) {
			config := tc.config
			config.Default()
			err := config.Validate()
			if tc.want == "" && err != nil {
				t.Errorf("error %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
}
