// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	peer = `{apiVersion: hanse.dev/v1alpha1, kind: Peer, metadata: {name: $NAME},
		spec: {clusterID: $ID, roles: $ROLES}}`
	richPeer = `{apiVersion: hanse.dev/v1alpha1, kind: Peer, metadata: {name: hamburg}, spec: {$SPEC}}`
	claim    = `{apiVersion: hanse.dev/v1alpha1, kind: PeeringClaim, metadata: {name: $NAME, namespace: x},
		spec: {invitation: $INVITATION, clusterID: lubeck, publicKey: $KEY, sealingKey: $KEY, proof: $PROOF, phase: $PHASE}}`
	advertisement = `{apiVersion: hanse.dev/v1alpha1, kind: Advertisement, metadata: {name: hamburg, namespace: x},
		spec: {clusterID: $ID, sequence: $SEQ, timestamp: "2026-01-01T00:00:00Z", timeToLive: "$TTL",
			availability: {cpu: $CPU}, prices: {currency: $CUR}}}`
	offloading = `{apiVersion: hanse.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: $NAME, namespace: x},
		spec: {strategy: $STRATEGY, clusterSelector: {matchLabels: {$LABEL: $WITH},
			matchExpressions: [{key: $KEY, operator: $OP, values: $VALUES}]}}}`
	placement = `{apiVersion: hanse.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: x},
		spec: {placement: {prefer: $PREFER, maxLatency: $LATENCY, minBandwidth: $BANDWIDTH, maxPrice: {amount: $AMOUNT, currency: $CURRENCY}, exclude: $EXCLUDE}}}`
	classes = `{apiVersion: hanse.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: x},
		spec: {placement: {strict: true, classes: [
			{name: $CLASS, podLabels: $LABELS, prefer: $PREFER, maxPrice: {amount: $AMOUNT, currency: EUR}},
			{name: web, podLabels: {app: web}} $MORE]}}}`
	onOffloading = `{apiVersion: hanse.dev/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: x},
		spec: {$FIELD: $VALUE}}`
	mapping = `{apiVersion: hanse.dev/v1alpha1, kind: NamespaceMapping, metadata: {name: $NAME, namespace: x},
		spec: {homeNamespace: $HOME}}`
	onPeerNetwork = `{apiVersion: hanse.dev/v1alpha1, kind: Peer, metadata: {name: hamburg}, spec: {network: {$FIELD: $VALUE}}}`
	onNetwork     = `{apiVersion: hanse.dev/v1alpha1, kind: Advertisement, metadata: {name: hamburg, namespace: x},
		spec: {clusterID: hamburg, sequence: 1, timestamp: "2026-01-01T00:00:00Z", timeToLive: "2026-01-01T00:30:00Z",
			availability: {cpu: "4"}, network: {$FIELD: $VALUE}}, status: {network: {$FIELD: $VALUE}}}`
	connection = `{apiVersion: hanse.dev/v1alpha1, kind: Connection, metadata: {name: $NAME, namespace: x},
		spec: {publicKey: $KEY, endpoints: [$ENDPOINT], theirs: [{own: $OWN, seen: $SEEN}], ours: [{own: $SEEN, seen: $OWN}],
			gatewayAddresses: [$ADDRESS], nameservers: [$ADDRESS], openings: [{from: {peerNamespace: shop}, to: {namespace: stock}}]},
		status: {endpoint: $ENDPOINT, lastHandshake: "2026-01-01T00:00:00Z", roundTripTime: 12ms, lossPercent: $LOSS, throughput: 12M,
			receivedBytes: 1200M, sentBytes: "0", mtu: 1420}}`
	podMove = `{apiVersion: hanse.dev/v1alpha1, kind: PodMove, metadata: {name: web, namespace: x},
		spec: {pod: {name: $POD, uid: $UID}, destination: $TO, bind: $BIND, deadline: $DEADLINE $MORE}}`
	shadowPod = `{apiVersion: hanse.dev/v1alpha1, kind: ShadowPod, metadata: {name: web, namespace: x},
		spec: {homeUID: $UID, pod: $POD, deletionGracePeriodSeconds: $GRACE}}`
	request = `{apiVersion: hanse.dev/v1alpha1, kind: Request, metadata: {name: $NAME, namespace: x},
		spec: {application: {uid: $UID, name: shop}, expirationTime: "$UNTIL", maxPrice: {amount: $AMOUNT, currency: EUR},
			components: [{name: web, replicas: $REPLICAS, resources: {$RESOURCE: $CPU}}, {name: $SECOND, replicas: 1}]}}`
	quote = `{apiVersion: hanse.dev/v1alpha1, kind: Quote, metadata: {name: shop, namespace: x},
		spec: {application: {uid: $UID, name: shop}, deadline: "$DEADLINE", expirationTime: "$UNTIL",
			components: [{name: web, replicas: $REPLICAS, resources: {$RESOURCE: 500m}}, {name: $SECOND, replicas: 1}]},
		status: {whole: {interest: $INTEREST, price: {amount: $AMOUNT, currency: EUR}}, components: [{name: web, interest: 7}]}}`
	application = `{apiVersion: hanse.dev/v1alpha1, kind: Application, metadata: {name: shop, namespace: x},
		spec: {components: [{name: web, podLabels: $LABELS, replicas: $REPLICAS, resources: {$RESOURCE: 500m}$MORE}, {name: $SECOND, podLabels: {app: db}}],
			placement: {replaceAfter: $AFTER, maxPrice: {amount: $PRICE, currency: $CURRENCY}, prefer: $PREFER, together: [{components: $TOGETHER}]},
			auction: {when: $WHEN, deadline: $DEADLINE}, timeToLive: $TTL}}`
	account = `{apiVersion: hanse.dev/v1alpha1, kind: Account, metadata: {name: $NAME, namespace: x},
		spec: {countedUntil: "2026-01-01T00:05:00Z", entries: [{application: $APP, currency: $CURRENCY, used: {$RESOURCE: $HOURS}, reserved: {cpu: "2"}, cost: $COST}]}}`
	exportedService = `{apiVersion: hanse.dev/v1alpha1, kind: ExportedService, metadata: {name: $NAME, namespace: x},
		spec: {by: $BY, namespace: $SPACE, name: web, part: "0", type: $TYPE, exportedAt: "2026-01-01T00:00:00Z", addressType: IPv4,
			ports: [{port: $PORT}], endpointPorts: [{port: 8080}], endpoints: [{address: $ADDRESS}]}}`
	shadowClaim = `{apiVersion: hanse.dev/v1alpha1, kind: ShadowClaim, metadata: {name: pvc-1, namespace: x},
		spec: {homeUID: $UID, storage: $STORAGE, accessModes: [$MODE], volumeMode: $VOLUME, storageClass: $CLASS$MORE}}`
	shadowObject = `{apiVersion: hanse.dev/v1alpha1, kind: ShadowObject, metadata: {name: widget-1, namespace: x},
		spec: {group: $GROUP, version: $VERSION, kind: $KIND, name: $NAME, object: $OBJECT}, status: {addresses: [$ADDRESS]}}`
	lending = `{apiVersion: hanse.dev/v1alpha1, kind: Peer, metadata: {name: hamburg},
		spec: {objects: [{group: $GROUP, kind: $KIND}], ingress: {hosts: [$HOST], className: $CLASS, gateway: {namespace: web, name: main}}}}`
)

// fill puts values into a template: pairs are a placeholder without its dollar sign and a value. Of several pairs for
// one placeholder the first counts.
func fill(template string, pairs ...string) string {
	oldnew := slices.Clone(pairs)
	for i := 0; i < len(oldnew); i += 2 {
		oldnew[i] = "$" + oldnew[i]
	}
	return strings.NewReplacer(oldnew...).Replace(template)
}

func TestRules(t *testing.T) {
	goodPeer := []string{"NAME", "hamburg", "ID", "hamburg", "ROLES", "[Provider]"}
	goodAd := []string{"ID", "hamburg", "SEQ", "1", "TTL", "2026-01-01T00:30:00Z", "CPU", `"4"`, "CUR", "EUR"}
	goodOffloading := []string{"NAME", "offloading", "STRATEGY", "Remote", "LABEL", "hanse.dev/peer", "WITH", "hamburg", "KEY", "zone", "OP", "In", "VALUES", "[a]"}
	goodPlacement := []string{"PREFER", "Price", "LATENCY", "50ms", "BANDWIDTH", "100M", "AMOUNT", `"0.05"`, "CURRENCY", "EUR", "EXCLUDE", "[bremen]"}
	goodObject := []string{"GROUP", "example.org", "VERSION", "v1", "KIND", "Widget", "NAME", "one", "OBJECT", "'{\"spec\": {}}'", "ADDRESS", "192.0.2.1"}
	goodLending := []string{"GROUP", "example.org", "KIND", "Widget", "HOST", `"*.example.org"`, "CLASS", "web"}
	goodVolume := []string{"UID", "a", "STORAGE", "1Gi", "MODE", "ReadWriteOnce", "VOLUME", "Filesystem", "CLASS", "fast", "MORE", ""}
	goodClasses := []string{"CLASS", "gold", "LABELS", `{example.com/tier: gold, app: ""}`, "PREFER", "Price", "AMOUNT", `"0.05"`, "MORE", ""}
	goodMove := []string{"POD", "web-1", "UID", "u-1", "TO", "{node: worker-2}", "BIND", "Scheduler", "DEADLINE", "5m", "MORE", ", ttlSecondsAfterFinished: 60, onFailure: Restore"}
	const oneDestination = "exactly one of node, peer, nodeSelector and elsewhere"
	goodMapping := []string{"NAME", "shop", "HOME", "shop"}
	goodShadow := []string{"UID", "u-1", "POD", "'{\"spec\": {\"containers\": []}}'", "GRACE", "5"}

	goodApplication := []string{"LABELS", "{app: web}", "REPLICAS", "3", "RESOURCE", "cpu", "SECOND", "db", "PRICE", `"0.5"`, "CURRENCY", "EUR", "PREFER", "Price", "TOGETHER", "[web, db]", "MORE", "", "AFTER", "5m", "WHEN", "Always", "DEADLINE", "10s", "TTL", "10m"}
	goodAccount := []string{"NAME", "lent-2026-01-01", "APP", "shop/web", "CURRENCY", "EUR", "RESOURCE", "memory", "HOURS", `"1.5"`, "COST", `"0.25"`}
	goodRequest := []string{"NAME", "shop", "UID", "u-1", "UNTIL", "2026-01-01T00:30:00Z", "AMOUNT", `"0.5"`, "REPLICAS", "3", "RESOURCE", "cpu", "CPU", "500m", "SECOND", "db"}
	goodQuote := []string{"UID", "u-1", "DEADLINE", "2026-01-01T00:30:00Z", "UNTIL", "2026-01-01T00:32:00Z", "REPLICAS", "3", "RESOURCE", "cpu", "SECOND", "db", "INTEREST", "80", "AMOUNT", `"0.5"`}
	const counted = "pods are counted by replicas"
	goodExport := []string{"NAME", "provider.shop.web.0", "BY", "Provider", "SPACE", "shop", "TYPE", "ClusterSetIP", "PORT", "80", "ADDRESS", "100.64.1.5"}

	joined := []string{"SPEC", "clusterID: hamburg, roles: [Consumer]"}
	key := strings.Repeat("A", 43) + "="
	goodClaim := []string{"NAME", "claim", "INVITATION", "i1", "KEY", key, "PROOF", strings.Repeat("A", 86) + "==", "PHASE", "Joined"}
	goodConnection := []string{"NAME", "hanse", "KEY", key, "ENDPOINT", "'203.0.113.7:51820'", "OWN", "10.244.0.0/16", "SEEN", "100.64.0.0/16", "ADDRESS", "240.0.0.0", "LOSS", "5"}

	tests := []struct {
		name     string
		plural   string
		template string
		change   []string // replaces values of the good object
		good     []string
		update   bool   // the good object is the old one
		want     string // part of the message; empty: accepted
	}{
		{name: "a peer", plural: "peers", template: peer, good: goodPeer},
		{name: "a peer that is both", plural: "peers", template: peer, good: goodPeer, change: []string{"ROLES", "[Provider, Consumer]"}},
		{name: "a peer without a role", plural: "peers", template: peer, good: goodPeer, change: []string{"ROLES", "[]"}},
		{name: "a peer with an unknown role", plural: "peers", template: peer, good: goodPeer, change: []string{"ROLES", "[King]"}, want: "Unsupported value"},
		{name: "a peer with one role twice", plural: "peers", template: peer, good: goodPeer, change: []string{"ROLES", "[Provider, Provider]"}, want: "Duplicate"},
		{name: "a peer whose name has 40 characters", plural: "peers", template: peer, good: goodPeer, change: []string{"NAME", strings.Repeat("a", 40)}},
		{name: "a peer whose name has 41 characters", plural: "peers", template: peer, good: goodPeer, change: []string{"NAME", strings.Repeat("a", 41)}, want: "at most 40 characters"},
		{name: "a peer whose name has dots", plural: "peers", template: peer, good: goodPeer, change: []string{"NAME", "a.b"}, want: "DNS label"},
		{name: "a peer with a long cluster id", plural: "peers", template: peer, good: goodPeer, change: []string{"ID", strings.Repeat("a", 31)}, want: "clusterID"},
		{name: "a peer with a cluster id in capitals", plural: "peers", template: peer, good: goodPeer, change: []string{"ID", "Hamburg"}, want: "clusterID"},
		{name: "a peer that becomes another cluster", plural: "peers", template: peer, good: goodPeer, update: true, change: []string{"ID", "berlin"}, want: "clusterID is immutable"},
		{name: "a peer that stays the same cluster", plural: "peers", template: peer, good: goodPeer, update: true, change: []string{"ROLES", "[Consumer]"}},
		{name: "a peer that is not known yet", plural: "peers", template: richPeer, change: []string{"SPEC", "roles: [Consumer], invitation: {timeToLive: 10m}"}},
		{name: "a peer that becomes known", plural: "peers", template: richPeer, update: true, good: []string{"SPEC", "roles: [Consumer]"}, change: joined},
		{name: "a peer that is not known any more", plural: "peers", template: richPeer, update: true, good: joined, change: []string{"SPEC", "roles: [Consumer]"}, want: "clusterID is immutable"},
		{name: "a provider that is invited", plural: "peers", template: richPeer, change: []string{"SPEC", "roles: [Provider], invitation: {}"}, want: "only a peer of role Consumer is invited"},
		{name: "an invitation of a year", plural: "peers", template: richPeer, change: []string{"SPEC", "roles: [Consumer], invitation: {timeToLive: 8760h}"}, want: "between 1s and 168h"},
		{name: "an invitation to plain http", plural: "peers", template: richPeer, change: []string{"SPEC", `roles: [Consumer], invitation: {servers: ["http://h"]}`}, want: "spec.invitation.servers"},
		{name: "a key that is none", plural: "peers", template: richPeer, change: []string{"SPEC", "publicKey: abc"}, want: "spec.publicKey"},
		{name: "limits", plural: "peers", template: richPeer, change: []string{"SPEC", `limits: {resources: {cpu: "4", "nvidia.com/gpu": 1}, objects: 5}`}},
		{name: "limits of a quota's names", plural: "peers", template: richPeer, change: []string{"SPEC", `limits: {resources: {"requests.cpu": "4"}}`}, want: "name the resource itself"},
		{name: "an agentless peer", plural: "peers", template: richPeer, change: []string{"SPEC", "mode: Agentless, roles: [Provider], namespaces: [a]"}},
		{name: "an agentless peer without namespaces", plural: "peers", template: richPeer, change: []string{"SPEC", "mode: Agentless, roles: [Provider]"}, want: "needs namespaces"},
		{name: "an agentless consumer", plural: "peers", template: richPeer, change: []string{"SPEC", "mode: Agentless, roles: [Consumer], namespaces: [a]"}, want: "its only role is Provider"},
		{name: "an agentless peer with copies", plural: "peers", template: richPeer, change: []string{"SPEC", "mode: Agentless, roles: [Provider], namespaces: [a], copies: Configuration"}},
		{name: "copies of everything", plural: "peers", template: richPeer, change: []string{"SPEC", "mode: Agentless, roles: [Provider], namespaces: [a], copies: All"}, want: "spec.copies"},
		{name: "copies for a peer with Hanse", plural: "peers", template: richPeer, change: []string{"SPEC", "roles: [Provider], copies: Configuration"}, want: "copies is for Agentless peers alone"},
		{name: "a move", plural: "podmoves", template: podMove, good: goodMove},
		{name: "a move to a peer", plural: "podmoves", template: podMove, good: goodMove, change: []string{"TO", "{peer: hamburg}"}},
		{name: "a move to one of many nodes", plural: "podmoves", template: podMove, good: goodMove, change: []string{"TO", "{nodeSelector: {topology.kubernetes.io/zone: north}}"}},
		{name: "a move to nowhere", plural: "podmoves", template: podMove, good: goodMove, change: []string{"TO", "{}"}, want: oneDestination},
		{name: "a move to wherever there is room", plural: "podmoves", template: podMove, good: goodMove, change: []string{"TO", "{elsewhere: AnyNode}"}},
		{name: "a move past the scheduler to wherever", plural: "podmoves", template: podMove, good: goodMove, change: []string{"BIND", "AtCreation", "TO", "{elsewhere: AnyNode}"}, want: "nobody chooses"},
		{name: "a move to two places", plural: "podmoves", template: podMove, good: goodMove, change: []string{"TO", "{node: worker-2, peer: hamburg}"}, want: oneDestination},
		{name: "a move to nodes by what is no label", plural: "podmoves", template: podMove, good: goodMove, change: []string{"TO", "{nodeSelector: {'a b': c}}"}, want: "label key"},
		{name: "a move of no pod", plural: "podmoves", template: podMove, good: goodMove, change: []string{"POD", `""`}, want: "name"},
		{name: "a move of any pod of that name", plural: "podmoves", template: podMove, good: goodMove, change: []string{"UID", `""`}, want: "uid"},
		{name: "a move past the scheduler", plural: "podmoves", template: podMove, good: goodMove, change: []string{"BIND", "AtCreation"}},
		{name: "a move past the scheduler to a peer", plural: "podmoves", template: podMove, good: goodMove, change: []string{"BIND", "AtCreation", "TO", "{peer: hamburg}"}},
		{name: "a move past the scheduler to one of many nodes", plural: "podmoves", template: podMove, good: goodMove, change: []string{"BIND", "AtCreation", "TO", "{nodeSelector: {zone: north}}"}, want: "nobody chooses"},
		{name: "a move by what is no binding", plural: "podmoves", template: podMove, good: goodMove, change: []string{"BIND", "Somehow"}, want: "Unsupported value"},
		{name: "a move that nobody looks at behind", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", ttlSecondsAfterFinished: 0"}},
		{name: "a move that is gone before it is over", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", ttlSecondsAfterFinished: -1"}, want: "ttlSecondsAfterFinished"},
		{name: "a move with a copy", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: Surge"}},
		{name: "a move of what is evicted", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: Steer"}},
		{name: "a move of what is evicted past the scheduler", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: Steer", "BIND", "AtCreation"}, want: "needs bind Scheduler"},
		{name: "a move of what is deleted first past the scheduler", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: DeleteFirst", "BIND", "AtCreation"}},
		{name: "a move whose pod is left where it does not start", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: DeleteFirst, onFailure: Leave"}},
		{name: "a move with a copy that is left", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: Surge, onFailure: Leave"}, want: "onFailure Leave is for methods"},
		{name: "a move that fails otherwise", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", onFailure: Pray"}, want: "Unsupported value"},
		{name: "a move by another method", plural: "podmoves", template: podMove, good: goodMove, change: []string{"MORE", ", method: Magic"}, want: "Unsupported value"},
		{name: "a move without time", plural: "podmoves", template: podMove, good: goodMove, change: []string{"DEADLINE", "1s"}, want: "at least 5s"},
		{name: "a move that may take days", plural: "podmoves", template: podMove, good: goodMove, change: []string{"DEADLINE", "25h"}, want: "at most 24h"},
		{name: "a move that stays", plural: "podmoves", template: podMove, good: goodMove, update: true},
		{name: "a move that changes", plural: "podmoves", template: podMove, good: goodMove, update: true, change: []string{"TO", "{node: worker-3}"}, want: "immutable"},

		{name: "a claim", plural: "peeringclaims", template: claim, good: goodClaim},
		{name: "a claim of another name", plural: "peeringclaims", template: claim, good: goodClaim, change: []string{"NAME", "mine"}, want: "only name"},
		{name: "a claim that leaves", plural: "peeringclaims", template: claim, good: goodClaim, update: true, change: []string{"PHASE", "Leaving"}},
		{name: "a claim that comes back", plural: "peeringclaims", template: claim, update: true, good: append([]string{"PHASE", "Leaving"}, goodClaim...), change: []string{"PHASE", "Joined"}, want: "must be invited again"},
		{name: "a claim of another invitation", plural: "peeringclaims", template: claim, good: goodClaim, update: true, change: []string{"INVITATION", "i2"}, want: "who claims an invitation cannot change"},

		{name: "an advertisement", plural: "advertisements", template: advertisement, good: goodAd},
		{name: "an advertisement that ends before it begins", plural: "advertisements", template: advertisement, good: goodAd, change: []string{"TTL", "2025-12-31T23:00:00Z"}, want: "timeToLive must be later"},
		{name: "an advertisement that becomes another cluster's", plural: "advertisements", template: advertisement, good: goodAd, update: true, change: []string{"ID", "berlin"}, want: "clusterID is immutable"},
		{name: "an advertisement with a new sequence", plural: "advertisements", template: advertisement, good: goodAd, update: true, change: []string{"SEQ", "2"}},
		{name: "an advertisement with a negative sequence", plural: "advertisements", template: advertisement, good: goodAd, change: []string{"SEQ", "-1"}, want: "spec.sequence"},
		{name: "an advertisement with a malformed quantity", plural: "advertisements", template: advertisement, good: goodAd, change: []string{"CPU", "lots"}, want: "availability"},
		{name: "an advertisement in shells", plural: "advertisements", template: advertisement, good: goodAd, change: []string{"CUR", "shells"}, want: "currency"},

		{name: "a namespace offloading", plural: "namespaceoffloadings", template: offloading, good: goodOffloading},
		{name: "a namespace offloading of another name", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"NAME", "mine"}, want: "must be called"},
		{name: "a namespace offloading with an unknown strategy", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"STRATEGY", "Elsewhere"}, want: "Unsupported value"},
		{name: "a selector that needs values and has none", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"VALUES", "[]"}, want: "need values"},
		{name: "a selector that takes no values and has some", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"OP", "Exists"}, want: "take none"},
		{name: "a selector for existence", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"OP", "Exists", "VALUES", "[]"}},

		{name: "a selector for a label that cannot be", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"LABEL", `"not a label"`}, want: "must be a label key"},
		{name: "a selector for a value that cannot be", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"WITH", `"two words"`}, want: "matchLabels"},
		{name: "a requirement on a label that cannot be", plural: "namespaceoffloadings", template: offloading, good: goodOffloading, change: []string{"KEY", `"a/b/c"`}, want: "must be a label key"},

		{name: "an offloading with a time", plural: "namespaceoffloadings", template: onOffloading, change: []string{"FIELD", "placementTimeout", "VALUE", "30s"}},
		{name: "an offloading with no time to place", plural: "namespaceoffloadings", template: onOffloading, change: []string{"FIELD", "placementTimeout", "VALUE", "1ms"}, want: "placementTimeout must be at least 1s"},
		{name: "an offloading with days to scale up", plural: "namespaceoffloadings", template: onOffloading, change: []string{"FIELD", "scaleUpTimeout", "VALUE", "25h"}, want: "at most 24h"},
		{name: "an offloading that replaces after months", plural: "namespaceoffloadings", template: onOffloading, change: []string{"FIELD", "replaceAfter", "VALUE", "721h"}, want: "at most 720h"},
		{name: "an offloading with a twin of a chosen name", plural: "namespaceoffloadings", template: onOffloading, change: []string{"FIELD", "twin", "VALUE", "{naming: Chosen, name: store}"}},
		{name: "an offloading with a twin of a name that cannot be", plural: "namespaceoffloadings", template: onOffloading, change: []string{"FIELD", "twin", "VALUE", "{naming: Chosen, name: A_b}"}, want: "name"},
		{name: "a placement", plural: "namespaceoffloadings", template: placement, good: goodPlacement},
		{name: "a placement that prefers nonsense", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"PREFER", "Beauty"}, want: "Unsupported value"},
		{name: "a placement below nothing", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"AMOUNT", `"-0.05"`}, want: "must not be negative"},
		{name: "a placement in no currency", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"CURRENCY", "euros"}, want: "currency"},
		{name: "a placement faster than light", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"LATENCY", "0s"}, want: "maxLatency must be above"},
		{name: "a placement of a bandwidth that is a number", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"BANDWIDTH", `64000`}},
		{name: "a placement of no bandwidth", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"BANDWIDTH", `"0"`}, want: "minBandwidth must be above"},
		{name: "a placement of a bandwidth below nothing", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"BANDWIDTH", `-1M`}, want: "minBandwidth must be above"},
		{name: "a placement of a bandwidth that is none", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"BANDWIDTH", `fast`}, want: "minBandwidth"},
		{name: "a placement that names a peer twice", plural: "namespaceoffloadings", template: placement, good: goodPlacement, change: []string{"EXCLUDE", "[a, a]"}, want: "Duplicate"},
		{name: "a placement of classes", plural: "namespaceoffloadings", template: classes, good: goodClasses},
		{name: "a class without labels", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"LABELS", "{}"}, want: "podLabels"},
		{name: "a class for a label that cannot be", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"LABELS", `{"a/b/c": x}`}, want: "must be a label key"},
		{name: "a class for a value that cannot be", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"LABELS", `{tier: "two words"}`}, want: "podLabels"},
		{name: "a class for too many labels", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"LABELS", "{a: a, b: b, c: c, d: d, e: e, f: f, g: g, h: h, i: i}"}, want: "at most 8"},
		{name: "a class of a name that cannot be", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"CLASS", "Gold!"}, want: "name"},
		{name: "two classes of one name", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"CLASS", "web"}, want: "Duplicate"},
		{name: "a class that prefers nonsense", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"PREFER", "Beauty"}, want: "Unsupported value"},
		{name: "a class below nothing", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"AMOUNT", `"-0.05"`}, want: "must not be negative"},
		{name: "too many classes", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"MORE", manyClasses(7)}, want: "at most 8"},
		{name: "as many classes as may be", plural: "namespaceoffloadings", template: classes, good: goodClasses, change: []string{"MORE", manyClasses(6)}},

		{name: "a network", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "podCIDRs", "VALUE", `[10.244.0.0/16, "fd00:1::/48"]`}},
		{name: "a network of a range that is none", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "podCIDRs", "VALUE", "[10.244.0.0]"}, want: "must be a CIDR without host bits"},
		{name: "a network of a range with host bits", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "serviceCIDRs", "VALUE", "[10.96.0.1/12]"}, want: "must be a CIDR without host bits"},
		{name: "a network of as many ranges as may be", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "podCIDRs", "VALUE", manyRanges(v1alpha1.MaxCIDRs)}},
		{name: "a network of too many ranges", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "podCIDRs", "VALUE", manyRanges(v1alpha1.MaxCIDRs + 1)}, want: "at most 8"},
		{name: "a network that relays as much as may be", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "relayedCIDRs", "VALUE", manyRanges(v1alpha1.MaxRelayedCIDRs)}},
		{name: "a network that relays too much", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "relayedCIDRs", "VALUE", manyRanges(v1alpha1.MaxRelayedCIDRs + 1)}, want: "at most 16"},
		{name: "a network that relays what is no range", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "relayedCIDRs", "VALUE", "[all]"}, want: "must be a CIDR without host bits"},
		{name: "a network with a name server", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "nameservers", "VALUE", `[10.96.0.10, "fd00::a"]`}},
		{name: "a network with a name server without an address", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "nameservers", "VALUE", "[dns]"}, want: "must be an IP address"},
		{name: "a network that sees the other one", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "mappings", "VALUE", "[{own: 10.244.0.0/16, seen: 100.64.0.0/16}]"}},
		{name: "a network that sees the other one as smaller", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "mappings", "VALUE", "[{own: 10.244.0.0/16, seen: 100.64.0.0/17}]"}, want: "same family and length"},
		{name: "a network that sees the other one as of IPv6", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "mappings", "VALUE", `[{own: 10.0.0.0/16, seen: "fd00::/16"}]`}, want: "same family and length"},
		{name: "a network with a gateway", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "gateway", "VALUE", "{publicKey: " + key + ", endpoints: ['gw.example.com:51820', '[2001:db8::7]:51820'], protocols: [wireguard], addresses: [10.96.0.0]}"}},
		{name: "a network with a gateway that only dials", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "gateway", "VALUE", "{publicKey: " + key + "}"}},
		{name: "a network with a gateway without a key", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "gateway", "VALUE", "{endpoints: ['203.0.113.7:51820']}"}, want: "publicKey"},
		{name: "a network with a gateway without a port", plural: "advertisements", template: onNetwork, change: []string{"FIELD", "gateway", "VALUE", "{publicKey: " + key + ", endpoints: [203.0.113.7]}"}, want: "gateway.endpoints"},

		{name: "a peer with a range for each of its own", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "mappings", "VALUE", "[{own: 10.244.0.0/16, seen: 10.7.0.0/16}, {own: 10.96.0.0/12, seen: 240.0.0.0/12}]"}},
		{name: "a peer with a range of IPv6", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "mappings", "VALUE", `[{own: "fd00::/48", seen: "fd01::/48"}]`}},
		{name: "a peer with a range that is none", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "mappings", "VALUE", "[{own: 10.244.0.0/16, seen: 10.200.0.0}]"}, want: "must be a CIDR"},
		{name: "a peer with two ranges for one of its own", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "mappings", "VALUE", "[{own: 10.244.0.0/16, seen: 10.7.0.0/16}, {own: 10.244.0.0/16, seen: 10.8.0.0/16}]"}, want: "Duplicate"},
		{name: "a peer with a range that is too small", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "mappings", "VALUE", "[{own: 10.244.0.0/16, seen: 10.7.0.0/24}]"}, want: "same family and length"},
		{name: "an opening for one of the peer's namespaces", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}}]"}},
		{name: "an opening towards all of the peer's", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {namespace: stock}, to: {peerNamespace: '*'}}]"}},
		{name: "an opening between two of the peer's namespaces", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: a}, to: {peerNamespace: b}}]"}, want: "one side of an opening must be a peerNamespace"},
		{name: "an opening between two of our namespaces", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {namespace: a}, to: {namespace: b}}]"}, want: "one side of an opening must be a peerNamespace"},
		{name: "an opening of a side that is both", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {namespace: a, peerNamespace: b}, to: {namespace: c}}]"}, want: "either a namespace or a peerNamespace"},
		{name: "an opening for nobody", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {}, to: {peerNamespace: a}}]"}, want: "either a namespace or a peerNamespace"},
		{name: "an opening of all of our namespaces", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {namespace: '*'}, to: {peerNamespace: a}}]"}, want: "namespace"},
		{name: "an opening of a port, a range and a protocol", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{port: 80}, {protocol: TCP, port: 8000, endPort: 8000}, {protocol: SCTP, port: 1, endPort: 65535}, {protocol: UDP}]}]"}},
		{name: "an opening of no ports", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: []}]"}},
		{name: "an opening of a range that ends before it begins", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{port: 80, endPort: 79}]}]"}, want: "endPort must not be less than port"},
		{name: "an opening of a range that does not begin", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{endPort: 80}]}]"}, want: "set port too"},
		{name: "an opening of a port beyond all", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{port: 65536}]}]"}, want: "ports[0].port"},
		{name: "an opening of port 0", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{port: 0}]}]"}, want: "ports[0].port"},
		{name: "an opening of a port with a name", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{port: http}]}]"}, want: "ports[0].port"},
		{name: "an opening of a protocol that has no ports", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{protocol: ICMP}]}]"}, want: "ports[0].protocol"},
		{name: "an opening of too many ports", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "open", "VALUE", "[{from: {peerNamespace: shop}, to: {namespace: stock}, ports: [{port: 1}, {port: 2}, {port: 3}, {port: 4}, {port: 5}, {port: 6}, {port: 7}, {port: 8}, {port: 9}, {port: 10}, {port: 11}, {port: 12}, {port: 13}, {port: 14}, {port: 15}, {port: 16}, {port: 17}]}]"}, want: "Too many"},

		{name: "a peer for which something is passed on", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "relayBandwidth", "VALUE", "10M"}},
		{name: "a peer for which nothing is passed on", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "relayBandwidth", "VALUE", `"0"`}, want: "relayBandwidth must be bytes a second"},
		{name: "a peer for which too much is passed on", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "relayBandwidth", "VALUE", "1P"}, want: "relayBandwidth must be bytes a second"},
		{name: "a peer for which no quantity is passed on", plural: "peers", template: onPeerNetwork, change: []string{"FIELD", "relayBandwidth", "VALUE", "much"}, want: "relayBandwidth"},

		{name: "a connection", plural: "connections", template: connection, good: goodConnection},
		{name: "a connection of another name", plural: "connections", template: connection, good: goodConnection, change: []string{"NAME", "mine"}, want: "only name"},
		{name: "a connection to a key that is none", plural: "connections", template: connection, good: goodConnection, change: []string{"KEY", "key"}, want: "publicKey"},
		{name: "a connection to a port that is none", plural: "connections", template: connection, good: goodConnection, change: []string{"ENDPOINT", "203.0.113.7:0"}, want: "endpoints"},
		{name: "a connection with a range of another size", plural: "connections", template: connection, good: goodConnection, change: []string{"SEEN", "100.64.0.0/17"}, want: "same family and length"},
		{name: "a connection with a range that is none", plural: "connections", template: connection, good: goodConnection, change: []string{"OWN", "10.244.7.0/16"}, want: "without host bits"},
		{name: "a connection to an address that is none", plural: "connections", template: connection, good: goodConnection, change: []string{"ADDRESS", "here"}, want: "must be an IP address"},
		{name: "a connection that loses more than all", plural: "connections", template: connection, good: goodConnection, change: []string{"LOSS", "101"}, want: "lossPercent"},

		{name: "a namespace mapping", plural: "namespacemappings", template: mapping, good: goodMapping},
		{name: "a namespace mapping of another name", plural: "namespacemappings", template: mapping, good: goodMapping, change: []string{"NAME", "other"}, want: "called like its homeNamespace"},
		{name: "a namespace mapping that changes its mind", plural: "namespacemappings", template: mapping, good: goodMapping, update: true, change: []string{"HOME", "other"}, want: "homeNamespace is immutable"},
		{name: "a namespace mapping that stays", plural: "namespacemappings", template: mapping, good: goodMapping, update: true},

		{name: "a shadow object", plural: "shadowobjects", template: shadowObject, good: goodObject},
		{name: "a shadow object of no group", plural: "shadowobjects", template: shadowObject, good: goodObject, change: []string{"GROUP", `""`}, want: "group"},
		{name: "a shadow object of a path", plural: "shadowobjects", template: shadowObject, good: goodObject, change: []string{"NAME", "a/b"}, want: "name"},
		{name: "a shadow object that changes", plural: "shadowobjects", template: shadowObject, good: goodObject, update: true, change: []string{"OBJECT", `"{}"`}},
		{name: "a shadow object of a later version", plural: "shadowobjects", template: shadowObject, good: goodObject, update: true, change: []string{"VERSION", "v2"}},
		{name: "a shadow object of another name", plural: "shadowobjects", template: shadowObject, good: goodObject, update: true, change: []string{"NAME", "two"}, want: "cannot change"},
		{name: "a shadow object of another kind", plural: "shadowobjects", template: shadowObject, good: goodObject, update: true, change: []string{"KIND", "Gadget"}, want: "cannot change"},
		{name: "a shadow object of another group", plural: "shadowobjects", template: shadowObject, good: goodObject, update: true, change: []string{"GROUP", "a.org"}, want: "cannot change"},
		{name: "a shadow object that is too large", plural: "shadowobjects", template: shadowObject, good: goodObject, change: []string{"OBJECT", strings.Repeat("a", 256<<10+1)}, want: "object"},
		{name: "a kind of others", plural: "peers", template: lending, good: goodLending},
		{name: "a kind of the core", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", `""`}, want: "group"},
		{name: "a kind that makes pods", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", "apps"}, want: "cannot be allowed"},
		{name: "a kind that gives rights", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", "rbac.authorization.k8s.io"}, want: "cannot be allowed"},
		{name: "a kind of Hanse", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", "hanse.dev"}, want: "cannot be allowed"},
		{name: "a kind like one of Hanse", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", "x.hanse.dev"}, want: "cannot be allowed"},
		{name: "a kind of a gateway", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", "gateway.networking.k8s.io"}, want: "cannot be allowed"},
		{name: "routes of a gateway", plural: "peers", template: lending, good: goodLending, change: []string{"GROUP", "gateway.networking.k8s.io", "KIND", "HTTPRoute"}},
		{name: "any host", plural: "peers", template: lending, good: goodLending, change: []string{"HOST", `"*"`}},
		{name: "one host", plural: "peers", template: lending, good: goodLending, change: []string{"HOST", "www.example.org"}},
		{name: "hosts with a star elsewhere", plural: "peers", template: lending, good: goodLending, change: []string{"HOST", `"www.*.org"`}, want: "hosts"},
		{name: "hosts with a star for a part of a label", plural: "peers", template: lending, good: goodLending, change: []string{"HOST", `"*w.example.org"`}, want: "hosts"},
		{name: "a shadow claim", plural: "shadowclaims", template: shadowClaim, good: goodVolume},
		{name: "a shadow claim without a home", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"UID", `""`}, want: "homeUID"},
		{name: "a shadow claim that is no mode", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"MODE", "Always"}, want: "accessModes"},
		{name: "a shadow claim that grows", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"STORAGE", "2Gi"}},
		{name: "a shadow claim as Kubernetes writes it", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"STORAGE", "12e6"}},
		{name: "a shadow claim that keeps its reader busy", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"STORAGE", `"1e-999999999"`}, want: "storage"},
		{name: "a shadow claim of a million digits", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"STORAGE", `"1` + strings.Repeat("0", 1_000_000) + `"`}, want: "storage"},
		{name: "a shadow claim of less than nothing", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"STORAGE", `"-1Gi"`}, want: "storage"},
		{name: "a shadow claim for another", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"UID", "b"}, want: "immutable"},
		{name: "a shadow claim of another mode", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"MODE", "ReadWriteMany"}, want: "immutable"},
		{name: "a shadow claim of a device now", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"VOLUME", "Block"}, want: "immutable"},
		{name: "a shadow claim that begins with a snapshot", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"MORE", ", dataSource: snapshot-1"}},
		{name: "a shadow claim for a snapshot", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"MORE", ", snapshotOf: pvc-0"}},
		{name: "a snapshot that begins with another", plural: "shadowclaims", template: shadowClaim, good: goodVolume, change: []string{"MORE", ", snapshotOf: pvc-0, dataSource: snapshot-1"}, want: "not both"},
		{name: "a shadow claim that begins with something now", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"MORE", ", dataSource: snapshot-1"}, want: "immutable"},
		{name: "a shadow claim that becomes a snapshot", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"MORE", ", snapshotOf: pvc-0"}, want: "immutable"},
		{name: "a snapshot that grows", plural: "shadowclaims", template: shadowClaim, good: append([]string{"MORE", ", snapshotOf: pvc-0"}, goodVolume...), update: true, change: []string{"STORAGE", "2Gi"}, want: "storage"},
		{name: "a shadow claim of another class", plural: "shadowclaims", template: shadowClaim, good: goodVolume, update: true, change: []string{"CLASS", "slow"}, want: "immutable"},
		{name: "a request", plural: "requests", template: request, good: goodRequest},
		{name: "a request that is renewed and grows", plural: "requests", template: request, good: goodRequest, update: true, change: []string{"UNTIL", "2026-01-02T00:30:00Z", "REPLICAS", "4"}},
		{name: "a request for another application", plural: "requests", template: request, good: goodRequest, update: true, change: []string{"UID", "u-2"}, want: "uid is immutable"},
		{name: "a request for no application", plural: "requests", template: request, good: goodRequest, change: []string{"UID", `""`}, want: "application.uid"},
		{name: "a request of a long name", plural: "requests", template: request, good: goodRequest, change: []string{"NAME", strings.Repeat("a", 64)}, want: "at most 63 characters"},
		{name: "a request of no replicas", plural: "requests", template: request, good: goodRequest, change: []string{"REPLICAS", "0"}, want: "replicas"},
		{name: "a request of negative replicas", plural: "requests", template: request, good: goodRequest, change: []string{"REPLICAS", "-1"}, want: "replicas"},
		{name: "a request of too many replicas", plural: "requests", template: request, good: goodRequest, change: []string{"REPLICAS", "10001"}, want: "replicas"},
		{name: "a request of replicas beyond 32 bits", plural: "requests", template: request, good: goodRequest, change: []string{"REPLICAS", "4294967297"}, want: "replicas"},
		{name: "a request of a whole number", plural: "requests", template: request, good: goodRequest, change: []string{"CPU", "2"}},
		{name: "a request of more pods for each pod", plural: "requests", template: request, good: goodRequest, change: []string{"RESOURCE", "pods"}, want: counted},
		{name: "a request by a quota's names", plural: "requests", template: request, good: goodRequest, change: []string{"RESOURCE", "requests.cpu"}, want: counted},
		{name: "a request of one component twice", plural: "requests", template: request, good: goodRequest, change: []string{"SECOND", "web"}, want: "Duplicate"},
		{name: "a quote", plural: "quotes", template: quote, good: goodQuote},
		{name: "a quote of another round", plural: "quotes", template: quote, good: goodQuote, update: true, change: []string{"DEADLINE", "2026-01-01T00:31:00Z"}},
		{name: "a quote for another application", plural: "quotes", template: quote, good: goodQuote, update: true, change: []string{"UID", "u-2"}, want: "uid is immutable"},
		{name: "a quote for no application", plural: "quotes", template: quote, good: goodQuote, change: []string{"UID", `""`}, want: "application.uid"},
		{name: "a quote that is forgotten before it is due", plural: "quotes", template: quote, good: goodQuote, change: []string{"UNTIL", "2026-01-01T00:29:59Z"}, want: "expirationTime must not be before deadline"},
		{name: "a quote of no replicas", plural: "quotes", template: quote, good: goodQuote, change: []string{"REPLICAS", "0"}, want: "replicas"},
		{name: "a quote of more pods for each pod", plural: "quotes", template: quote, good: goodQuote, change: []string{"RESOURCE", "pods"}, want: counted},
		{name: "a quote of one component twice", plural: "quotes", template: quote, good: goodQuote, change: []string{"SECOND", "web"}, want: "Duplicate"},
		{name: "an offer of negative interest", plural: "quotes", template: quote, good: goodQuote, change: []string{"INTEREST", "-1"}, want: "interest"},
		{name: "an offer of too much interest", plural: "quotes", template: quote, good: goodQuote, change: []string{"INTEREST", "101"}, want: "interest"},
		{name: "an offer at a negative price", plural: "quotes", template: quote, good: goodQuote, change: []string{"AMOUNT", `"-1"`}, want: "amount must"},
		{name: "an application", plural: "applications", template: application, good: goodApplication},
		{name: "an application of no replicas", plural: "applications", template: application, good: goodApplication, change: []string{"REPLICAS", "0"}, want: "replicas"},
		{name: "an application of negative replicas", plural: "applications", template: application, good: goodApplication, change: []string{"REPLICAS", "-1"}, want: "replicas"},
		{name: "an application of more pods for each pod", plural: "applications", template: application, good: goodApplication, change: []string{"RESOURCE", "pods"}, want: counted},
		{name: "an application of one component twice", plural: "applications", template: application, good: goodApplication, change: []string{"SECOND", "web"}, want: "Duplicate"},
		{name: "an application whose pods have no labels", plural: "applications", template: application, good: goodApplication, change: []string{"LABELS", "{}"}, want: "podLabels"},
		{name: "an application together with what it has not", plural: "applications", template: application, good: goodApplication, change: []string{"TOGETHER", "[web, cache]"}, want: "name components of this Application"},
		{name: "an application with a group of one", plural: "applications", template: application, good: goodApplication, change: []string{"TOGETHER", "[web]"}, want: "together"},
		{name: "an application at a negative price", plural: "applications", template: application, good: goodApplication, change: []string{"PRICE", `"-1"`}, want: "amount"},
		{name: "an application at a price that takes minutes", plural: "applications", template: application, good: goodApplication, change: []string{"PRICE", `"1e999999999"`}, want: "amount"},
		{name: "an application without a currency", plural: "applications", template: application, good: goodApplication, change: []string{"CURRENCY", `""`}, want: "currency"},
		{name: "an application of shares", plural: "applications", template: application, good: goodApplication, change: []string{"MORE", ", weights: [{peer: hamburg, weight: 2}, {weight: 1}]"}},
		{name: "an application of shares for one cluster", plural: "applications", template: application, good: goodApplication, change: []string{"MORE", ", weights: [{weight: 2}, {weight: 1}]"}, want: "Duplicate"},
		{name: "an application of shares of nothing", plural: "applications", template: application, good: goodApplication, change: []string{"MORE", ", weights: [{peer: hamburg, weight: 0}]"}, want: "weight"},
		{name: "an application of shares with a price each", plural: "applications", template: application, good: goodApplication, change: []string{"MORE", `, weights: [{weight: 1}], maxPrice: {amount: "1", currency: EUR}`}, want: "set the one of placement"},
		{name: "an application that is looked for at no time", plural: "applications", template: application, good: goodApplication, change: []string{"TTL", "-10m"}, want: "timeToLive"},
		{name: "an application that waits for no time", plural: "applications", template: application, good: goodApplication, change: []string{"AFTER", "0s"}, want: "replaceAfter"},
		{name: "an application with an auction now and then", plural: "applications", template: application, good: goodApplication, change: []string{"WHEN", "Sometimes"}, want: "auction.when"},
		{name: "an application with an auction of no time", plural: "applications", template: application, good: goodApplication, change: []string{"DEADLINE", "500ms"}, want: "deadline must be at least 1s"},
		{name: "an application with an auction of an hour", plural: "applications", template: application, good: goodApplication, change: []string{"DEADLINE", "1h"}, want: "deadline must be at least 1s"},
		{name: "an application that spreads", plural: "applications", template: application, good: goodApplication, change: []string{"PREFER", "Spread"}, want: "is not spread"},
		{name: "an account", plural: "accounts", template: account, good: goodAccount},
		{name: "an account of what was borrowed", plural: "accounts", template: account, good: goodAccount, change: []string{"NAME", "borrowed-2026-01-01"}},
		{name: "an account of all other applications", plural: "accounts", template: account, good: goodAccount, change: []string{"APP", `"*"`, "CURRENCY", `""`}},
		{name: "an account of no day", plural: "accounts", template: account, good: goodAccount, change: []string{"NAME", "lent"}, want: "the name of an Account"},
		{name: "an account of an application of no name", plural: "accounts", template: account, good: goodAccount, change: []string{"APP", `"a b"`}, want: "application"},
		{name: "an account in no currency", plural: "accounts", template: account, good: goodAccount, change: []string{"CURRENCY", "euro"}, want: "currency"},
		{name: "an account of negative hours", plural: "accounts", template: account, good: goodAccount, change: []string{"HOURS", `"-1"`}, want: "used"},
		{name: "an account of a huge exponent", plural: "accounts", template: account, good: goodAccount, change: []string{"HOURS", `"1e999999999"`}, want: "used"},
		{name: "an account of too many hours", plural: "accounts", template: account, good: goodAccount, change: []string{"HOURS", `"1000000000000"`}, want: "used"},
		{name: "an account of a quantity", plural: "accounts", template: account, good: goodAccount, change: []string{"HOURS", "500m"}, want: "used"},
		{name: "an account of a long name of a resource", plural: "accounts", template: account, good: goodAccount, change: []string{"RESOURCE", strings.Repeat("a", 101)}, want: "at most 100"},
		{name: "an account of a negative cost", plural: "accounts", template: account, good: goodAccount, change: []string{"COST", `"-1"`}, want: "cost"},
		{name: "a request at a negative price", plural: "requests", template: request, good: goodRequest, change: []string{"AMOUNT", `"-1"`}, want: "amount must"},
		{name: "a request at a price of a huge exponent", plural: "requests", template: request, good: goodRequest, change: []string{"AMOUNT", `"1e999999999"`}, want: "amount must"},
		{name: "an exported service", plural: "exportedservices", template: exportedService, good: goodExport},
		{name: "an exported service of the consumer", plural: "exportedservices", template: exportedService, good: goodExport, change: []string{"BY", "Consumer", "NAME", "consumer.shop.web.0"}},
		{name: "an exported service by nobody", plural: "exportedservices", template: exportedService, good: goodExport, change: []string{"BY", "Admin"}, want: "spec.by"},
		{name: "an exported service of another type", plural: "exportedservices", template: exportedService, good: goodExport, change: []string{"TYPE", "LoadBalancer"}, want: "spec.type"},
		{name: "an exported service of no port", plural: "exportedservices", template: exportedService, good: goodExport, change: []string{"PORT", "0"}, want: "spec.ports"},
		{name: "an exported service at a name", plural: "exportedservices", template: exportedService, good: goodExport, change: []string{"ADDRESS", "web.example"}, want: "spec.endpoints"},
		{name: "an exported service that changes sides", plural: "exportedservices", template: exportedService, good: goodExport, update: true, change: []string{"BY", "Consumer", "NAME", "consumer.shop.web.0"}, want: "by is immutable"},
		{name: "a peer that shares namespaces", plural: "peers", template: richPeer, change: []string{"SPEC", "clusterSet: {namespaces: [shop, team-*]}"}},
		{name: "a peer that shares what is no pattern", plural: "peers", template: richPeer, change: []string{"SPEC", "clusterSet: {namespaces: [Shop/x]}"}, want: "spec.clusterSet.namespaces"},
		{name: "a shadow pod", plural: "shadowpods", template: shadowPod, good: goodShadow},
		{name: "a shadow pod without a home", plural: "shadowpods", template: shadowPod, good: goodShadow, change: []string{"UID", `""`}, want: "homeUID"},
		{name: "a shadow pod whose pod changes", plural: "shadowpods", template: shadowPod, good: goodShadow, update: true, change: []string{"POD", "'{}'"}},
		{name: "a shadow pod whose pod is an object", plural: "shadowpods", template: shadowPod, good: goodShadow, change: []string{"POD", "{spec: {a: b}}"}, want: "spec.pod"},
		{name: "a shadow pod of the largest size", plural: "shadowpods", template: shadowPod, good: goodShadow, change: []string{"POD", strings.Repeat("a", v1alpha1.MaxShadowPodBytes)}},
		{name: "a shadow pod that is too large", plural: "shadowpods", template: shadowPod, good: goodShadow, change: []string{"POD", strings.Repeat("a", v1alpha1.MaxShadowPodBytes+1)}, want: "spec.pod"},
		{name: "a shadow pod with a negative grace", plural: "shadowpods", template: shadowPod, good: goodShadow, change: []string{"GRACE", "-1"}, want: "deletionGracePeriodSeconds"},
	}
	kinds := map[string]kind{} // plural → validator, made once
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, ok := kinds[tt.plural]; !ok {
				kinds[tt.plural] = loadKind(t, tt.plural)
			}
			var old map[string]any
			if tt.update {
				old = parse(t, fill(tt.template, tt.good...))
			}
			object := parse(t, fill(tt.template, append(tt.change, tt.good...)...))
			expect(t, kinds[tt.plural].validate(t, object, old), tt.want)
		})
	}
}

func expect(t *testing.T, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) > 0:
		t.Errorf("want accepted, got %v", errs.ToAggregate())
	case want != "" && len(errs) == 0:
		t.Errorf("want refused with %q, got accepted", want)
	case want != "" && !strings.Contains(errs.ToAggregate().Error(), want):
		t.Errorf("want refused with %q, got %v", want, errs.ToAggregate())
	}
}
