// SPDX-License-Identifier: Apache-2.0

// Package market tests how a consumer chooses clusters for an Application by price, by auction and by weights, and how consumer and
// provider account for its usage.
package market

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg, bremen *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg, "bremen": &bremen},
		Values:   func(*framework.Cluster) []string { return framework.FrequentMessages },
		Peers:    [][2]string{{"lubeck", "hamburg"}, {"lubeck", "bremen"}},
	})
}

// begin waits until lubeck can use both providers.
func begin(t *testing.T) {
	t.Helper()
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		lubeck.AwaitOpen(t, provider)
	}
}

// offloadedNamespace makes a namespace in lubeck whose pods are offloaded by the strategy.
func offloadedNamespace(t *testing.T, strategy v1alpha1.OffloadingStrategy) string {
	t.Helper()
	return lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: strategy})
}

// setCorePrices sets the price of a core for an hour in hamburg and in bremen, and waits until lubeck has received both.
func setCorePrices(t *testing.T, atHamburg, atBremen string) {
	t.Helper()
	for provider, price := range map[*framework.Cluster]string{hamburg: atHamburg, bremen: atBremen} {
		provider.SetPrices(t, lubeck, price)
		lubeck.AwaitPrice(t, provider, price)
	}
}

// setPolicy puts a policy of the provider in force, and waits until the provider uses it.
func setPolicy(t *testing.T, provider *framework.Cluster, question, source string) {
	t.Helper()
	provider.SetPolicy(t, question, source)
	framework.Eventually(t, "the policy about "+question+" is in force in "+provider.Name, func(ctx context.Context) error {
		out, err := provider.Hanse(ctx, "policy", "show", question)
		return outputContains(out, strings.TrimSpace(source), err)
	})
}

// refuseRequests makes the provider refuse every Request.
func refuseRequests(t *testing.T, provider *framework.Cluster) {
	t.Helper()
	setPolicy(t, provider, "request", "package hanse.request\n\ndeny contains \"closed on Thursdays\"\n")
}

// outputContains returns the error, or an error if the output does not contain the text.
func outputContains(out, text string, err error) error {
	if err == nil && !strings.Contains(out, text) {
		err = fmt.Errorf("the output does not contain %q:\n%s", text, out)
	}
	return err
}
