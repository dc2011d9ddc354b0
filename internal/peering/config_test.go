// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"testing"
	"time"
)

func TestConfigIsChecked(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*Config)
		wrong  bool
	}{
		"the defaults are right":                {change: func(*Config) {}},
		"a key is needed":                       {change: func(c *Config) { c.ClusterKey = nil }, wrong: true},
		"an id is needed":                       {change: func(c *Config) { c.ClusterID = "" }, wrong: true},
		"servers are URLs":                      {change: func(c *Config) { c.Servers = []string{"192.0.2.1"} }, wrong: true},
		"certificates are PEM":                  {change: func(c *Config) { c.CA = []byte("none") }, wrong: true},
		"sessions live as long as a token must": {change: func(c *Config) { c.SessionLife = time.Minute }, wrong: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := Config{ClusterID: "c-lubeck", ClusterKey: key, Version: "v0.1.0"}
			config.Default()
			tc.change(&config)
			if err := config.Validate(); (err != nil) != tc.wrong {
				t.Errorf("error %v", err)
			}
		})
	}
}
