// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const thirtyDays = "expirationSeconds: 2592000"

func TestPeersRenewTheirSessionAndNothingElse(t *testing.T) {
	const bound = "\nboundObjectRef: {kind: Secret, apiVersion: v1, name: hanse-session}\n"
	asks := func(by, namespace, name, spec string) review {
		return review{by: by, of: "serviceaccounts/token", object: tokenRequest(t, namespace, name, spec)}
	}
	own := func(spec string) review { return asks(peer, "hanse-peer-turin", "hanse-peer", spec) }
	const (
		notItself = "metadata.name: "
		notBound  = "spec.boundObjectRef: "
		tooLong   = "spec.expirationSeconds: "
	)
	expectDecisions(t, validatingPolicy(t, "hanse-peer-tokens"), map[string]decision{
		"for as long as may be": {review: own(thirtyDays + bound)},
		"for less":              {review: own("expirationSeconds: 600" + bound)},
		"for a second longer":   {review: own("expirationSeconds: 2592001" + bound), want: tooLong},
		"bound to nothing":      {review: own(thirtyDays), want: notBound},
		"bound to another Secret": {
			review: own(thirtyDays + "\nboundObjectRef: {kind: Secret, apiVersion: v1, name: hanse-link}"), want: notBound,
		},
		"bound to a pod": {
			review: own(thirtyDays + "\nboundObjectRef: {kind: Pod, apiVersion: v1, name: hanse-session}"), want: notBound,
		},
		"of another account of its namespace": {
			review: asks(peer, "hanse-peer-turin", "hanse-invitation", thirtyDays+bound), want: notItself,
		},
		"of another peer": {review: asks(peer, "hanse-peer-milan", "hanse-peer", thirtyDays+bound), want: notItself},
		"of Hanse itself": {review: asks(peer, "hanse-system", "hanse-manager", thirtyDays+bound), want: notItself},
		"by an invitation": {
			review: asks("system:serviceaccount:hanse-peer-turin:hanse-invitation", "hanse-peer-turin", "hanse-peer", thirtyDays+bound),
			want:   notItself,
		},
		"by the manager, bound to the invitation": {
			review: asks(manager, "hanse-peer-turin", "hanse-invitation", "expirationSeconds: 600"),
		},
		"by somebody whose name looks like it": {
			review: asks("system:serviceaccount:shop:hanse-peer-turin", "shop", "web", "expirationSeconds: 99999999"),
		},
	})
}

func TestHanseMakesTokensOfPodsAndPeersAlone(t *testing.T) {
	const (
		bound   = "expirationSeconds: 3607\nboundObjectRef: {kind: Pod, apiVersion: v1, name: web-0, uid: u-1}"
		where   = "metadata.namespace: "
		whose   = "metadata.name: "
		unbound = "spec.boundObjectRef: "
	)
	asks := func(in map[string]string, namespace, name, spec string) review {
		return review{by: manager, in: in, of: "serviceaccounts/token", object: tokenRequest(t, namespace, name, spec)}
	}
	byKubelet := asks(inMarked, "shop", "web", thirtyDays)
	byKubelet.by = kubelet
	byUser := asks(inShop, "shop", "web", thirtyDays)
	byUser.by = admin
	expectDecisions(t, validatingPolicy(t, "hanse-own-tokens"), map[string]decision{
		"of a pod that runs elsewhere":     {review: asks(inMarked, "shop", "web", bound)},
		"for another audience":             {review: asks(inMarked, "shop", "web", "audiences: [vault]\n"+bound)},
		"bound to nothing":                 {review: asks(inMarked, "shop", "web", thirtyDays), want: unbound},
		"bound to a Secret":                {review: asks(inMarked, "shop", "web", "boundObjectRef: {kind: Secret, apiVersion: v1, name: s, uid: u-1}"), want: unbound},
		"bound to whatever pod has a name": {review: asks(inMarked, "shop", "web", "boundObjectRef: {kind: Pod, apiVersion: v1, name: web-0}"), want: unbound},
		"where no pods leave from":         {review: asks(inShop, "shop", "web", bound), want: where},
		"of Hanse itself":                  {review: asks(inHanse, "hanse-system", "hanse-manager", bound), want: where},
		"in the twin of a peer":            {review: asks(map[string]string{v1alpha1.LabelManaged: "true", v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelOffloads: "true"}, "shop-x", "default", bound), want: where},
		"of a peer":                        {review: asks(inTenant, "hanse-peer-turin", "hanse-peer", thirtyDays)},
		"of another account there":         {review: asks(inTenant, "hanse-peer-turin", "default", bound), want: whose},
		"hanse kubelet is held to it too":  {review: byKubelet, want: unbound},
		"users make tokens as they like":   {review: byUser},
	})
}

func TestTheLifeOfSessionsCanBeSet(t *testing.T) {
	o := options()
	o.Values = map[string]any{"sessionLife": "10m"}
	policy := validatingPolicyOf(t, o, "hanse-peer-tokens")
	ask := func(spec string) review {
		return review{by: peer, of: "serviceaccounts/token", object: tokenRequest(t, "hanse-peer-turin", "hanse-peer",
			spec+"\nboundObjectRef: {kind: Secret, apiVersion: v1, name: hanse-session}")}
	}
	expectDecisions(t, policy, map[string]decision{
		"ten minutes":        {review: ask("expirationSeconds: 600")},
		"more than that":     {review: ask("expirationSeconds: 601"), want: "spec.expirationSeconds: a peer's token may live for 10m at most"},
		"the chart's thirty": {review: ask(thirtyDays), want: "spec.expirationSeconds: "},
	})
}

func TestTokensOfPeersAreForTheAPIServerAlone(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-peer-tokens")
	for name, test := range map[string]struct {
		by, spec string
		want     int
	}{
		"a peer asks for another audience": {by: peer, spec: "audiences: [vault, https://bank.example]", want: 0},
		"a peer asks for none":             {by: peer, spec: thirtyDays, want: 0},
		"a pod of this cluster does":       {by: "system:serviceaccount:shop:web", spec: "audiences: [vault]", want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			request := tokenRequest(t, "hanse-peer-turin", "hanse-peer", test.spec)
			policy.t = t
			got := policy.mutate(review{by: test.by, of: "serviceaccounts/token", object: request})
			if n := len(got.(*authenticationv1.TokenRequest).Spec.Audiences); n != test.want {
				t.Errorf("%d audiences, want %d", n, test.want)
			}
		})
	}
}

func tokenRequest(t *testing.T, namespace, name, spec string) *authenticationv1.TokenRequest {
	t.Helper()
	request := withKind(&authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		"authentication.k8s.io", "v1", "TokenRequest")
	if err := yaml.UnmarshalStrict([]byte(spec), &request.Spec); err != nil {
		t.Fatal(err)
	}
	return request
}
