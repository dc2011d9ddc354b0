// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
)

const (
	memberMessage = `{apiVersion: hanse.dev/v1alpha1, kind: Message, metadata: {name: introduction, namespace: x},
		spec: {to: $TO, statement: '$STATEMENT', signature: $SIGNATURE}}`
	signedRequest = `{apiVersion: hanse.dev/v1alpha1, kind: Request, metadata: {name: shop, namespace: x},
		spec: {application: {uid: a}, components: [{name: web, replicas: 1}], expirationTime: "2026-01-01T00:00:00Z",
			signed: {statement: '$STATEMENT', signature: $SIGNATURE}},
		status: {sequence: 7, signed: {statement: '$ANSWER', signature: $SEAL}}}`
	signedQuote = `{apiVersion: hanse.dev/v1alpha1, kind: Quote, metadata: {name: shop, namespace: x},
		spec: {application: {uid: a}, components: [{name: web, replicas: 1}], deadline: "2026-01-01T00:00:00Z", expirationTime: "2026-01-01T00:00:00Z",
			signed: {statement: '$STATEMENT', signature: $SIGNATURE}},
		status: {sequence: 7, signed: {statement: '$ANSWER', signature: $SEAL}}}`
	knownMember = `{apiVersion: hanse.dev/v1alpha1, kind: Member, metadata: {name: $NAME}, spec: {publicKey: $KEY},
		status: {sequence: 7, brokers: [$BROKERS], offer: {availability: {$RESOURCES}, labels: {region: $REGION}}}}`
)

func TestRulesOfMembers(t *testing.T) {
	key, other := strings.Repeat("A", 43)+"=", strings.Repeat("B", 43)+"="
	goodMessage := []string{"TO", "wismar", "STATEMENT", "{}", "SIGNATURE", strings.Repeat("A", 86) + "=="}
	goodSigned := append([]string{"ANSWER", "{}", "SEAL", strings.Repeat("B", 86) + "=="}, goodMessage...)
	goodMember := []string{"NAME", "wismar", "KEY", key, "BROKERS", `{name: hamburg, heard: "2026-01-01T00:00:00Z", sequence: 7}`, "RESOURCES", `cpu: "4"`, "REGION", "north"}
	brokers := func(count int) string {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf(`{name: b%d, heard: "2026-01-01T00:00:00Z"}`, i))
		}
		return strings.Join(all, ", ")
	}
	resources := func(count int) string {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf(`example.org/r%d: "1"`, i))
		}
		return strings.Join(all, ", ")
	}
	marked := func(marks string) []string {
		return []string{"BROKERS", `{name: hamburg, heard: "2026-01-01T00:00:00Z", marks: {` + marks + `}}`}
	}
	spec := func(text string) []string { return []string{"SPEC", text} }
	const (
		asBroker   = "clusterID: hamburg, roles: [Provider, Broker]"
		byIDAndSo  = "must be named by clusterID, and be a Provider"
		longestID  = "aaaaaaaaaabbbbbbbbbbcccccccccc"
		atMostSome = "Too many"
	)
	tests := map[string]struct {
		plural, template string
		good, change     []string
		update           bool // the good object is the old one
		want             string
	}{
		"a broker":                             {"peers", richPeer, nil, spec(asBroker), false, ""},
		"a broker that is no provider":         {"peers", richPeer, nil, spec("roles: [Broker]"), false, "a Broker is a Provider too"},
		"a broker that is a consumer":          {"peers", richPeer, nil, spec("roles: [Consumer, Broker]"), false, "a Broker is a Provider too"},
		"a member":                             {"peers", richPeer, nil, spec("roles: [Consumer, Member]"), false, ""},
		"a member that is no consumer":         {"peers", richPeer, nil, spec("roles: [Provider, Member]"), false, "a Member is a Consumer too"},
		"all at once":                          {"peers", richPeer, nil, spec("roles: [Provider, Consumer, Broker, Member]"), false, ""},
		"an agentless broker":                  {"peers", richPeer, nil, spec("mode: Agentless, roles: [Provider, Broker], namespaces: [a]"), false, "its only role is Provider"},
		"whom to accept":                       {"peers", richPeer, nil, spec(asBroker + `, acceptMembers: [lubeck, "team-*", "*"]`), false, ""},
		"whom to accept of no broker":          {"peers", richPeer, nil, spec("roles: [Provider], acceptMembers: [lubeck]"), false, "acceptMembers is for a Broker alone"},
		"whom to accept of nobody":             {"peers", richPeer, nil, spec("acceptMembers: [lubeck]"), false, "acceptMembers is for a Broker alone"},
		"whom to ask":                          {"peers", richPeer, nil, spec(asBroker + `, askMembers: [lubeck, "team-*"]`), false, ""},
		"whom to ask of no broker":             {"peers", richPeer, nil, spec("roles: [Provider], askMembers: [lubeck]"), false, "askMembers is for a Broker alone"},
		"one who was a broker":                 {"peers", richPeer, spec(asBroker + ", acceptMembers: [a]"), spec("clusterID: hamburg, roles: [Provider], acceptMembers: [a]"), true, "acceptMembers is for a Broker alone"},
		"a class of letters":                   {"peers", richPeer, nil, spec(asBroker + `, acceptMembers: ["[a-z]"]`), false, "spec.acceptMembers"},
		"no name at all":                       {"peers", richPeer, nil, spec(asBroker + `, acceptMembers: [""]`), false, "spec.acceptMembers"},
		"a name that no cluster can have":      {"peers", richPeer, nil, spec(asBroker + ", acceptMembers: [" + longestID + "d]"), false, "spec.acceptMembers"},
		"the same twice":                       {"peers", richPeer, nil, spec(asBroker + ", acceptMembers: [a, a]"), false, "Duplicate"},
		"one that is asked through a broker":   {"peers", richPeer, nil, spec("clusterID: wismar, roles: [Provider], introducer: hamburg"), false, ""},
		"that may be anybody":                  {"peers", richPeer, nil, spec("roles: [Provider], introducer: hamburg"), false, byIDAndSo},
		"that is to be a consumer":             {"peers", richPeer, nil, spec("clusterID: wismar, roles: [Consumer], introducer: hamburg"), false, byIDAndSo},
		"that is to be nothing":                {"peers", richPeer, nil, spec("clusterID: wismar, introducer: hamburg"), false, byIDAndSo},
		"an introducer whose name is too long": {"peers", richPeer, nil, spec("clusterID: wismar, roles: [Provider], introducer: " + strings.Repeat("a", 64)), false, "spec.introducer"},

		"a message":                      {"messages", memberMessage, goodMessage, nil, false, ""},
		"to all":                         {"messages", strings.Replace(memberMessage, "to: $TO, ", "", 1), goodMessage, nil, false, ""},
		"that says something else":       {"messages", memberMessage, goodMessage, []string{"STATEMENT", "[]"}, true, ""},
		"to what is no cluster":          {"messages", memberMessage, goodMessage, []string{"TO", "Wismar"}, false, "spec.to"},
		"to an id that is too long":      {"messages", memberMessage, goodMessage, []string{"TO", longestID + "d"}, false, "spec.to"},
		"of no words":                    {"messages", memberMessage, goodMessage, []string{"STATEMENT", ""}, false, "spec.statement"},
		"of as many words as may be":     {"messages", memberMessage, goodMessage, []string{"STATEMENT", strings.Repeat("a", 16384)}, false, ""},
		"of too many words":              {"messages", memberMessage, goodMessage, []string{"STATEMENT", strings.Repeat("a", 16385)}, false, "spec.statement"},
		"with what is no signature":      {"messages", memberMessage, goodMessage, []string{"SIGNATURE", "signed"}, false, "spec.signature"},
		"without a signature":            {"messages", strings.Replace(memberMessage, ", signature: $SIGNATURE", "", 1), goodMessage, nil, false, "spec.signature"},
		"a signed request":               {"requests", signedRequest, goodSigned, nil, false, ""},
		"that is signed anew":            {"requests", signedRequest, goodSigned, []string{"STATEMENT", "[]", "ANSWER", "[]"}, true, ""},
		"that says too much":             {"requests", signedRequest, goodSigned, []string{"STATEMENT", strings.Repeat("a", 16385)}, false, "spec.signed.statement"},
		"that has no signature":          {"requests", signedRequest, goodSigned, []string{"SIGNATURE", "signed"}, false, "spec.signed.signature"},
		"that is answered too much":      {"requests", signedRequest, goodSigned, []string{"ANSWER", strings.Repeat("a", 16385)}, false, "status.signed.statement"},
		"that is answered by nobody":     {"requests", signedRequest, goodSigned, []string{"SEAL", "signed"}, false, "status.signed.signature"},
		"a signed quote":                 {"quotes", signedQuote, goodSigned, nil, false, ""},
		"a quote that says too much":     {"quotes", signedQuote, goodSigned, []string{"STATEMENT", strings.Repeat("a", 16385)}, false, "spec.signed.statement"},
		"a quote without a signature":    {"quotes", signedQuote, goodSigned, []string{"SIGNATURE", "signed"}, false, "spec.signed.signature"},
		"an offer of too many words":     {"quotes", signedQuote, goodSigned, []string{"ANSWER", strings.Repeat("a", 16385)}, false, "status.signed.statement"},
		"an offer without a signature":   {"quotes", signedQuote, goodSigned, []string{"SEAL", "signed"}, false, "status.signed.signature"},
		"a member that is known":         {"members", knownMember, goodMember, nil, false, ""},
		"by another key than before":     {"members", knownMember, goodMember, []string{"KEY", other}, true, "the key of a member is pinned"},
		"through another broker":         {"members", knownMember, goodMember, []string{"BROKERS", brokers(16)}, true, ""},
		"through too many brokers":       {"members", knownMember, goodMember, []string{"BROKERS", brokers(17)}, false, atMostSome},
		"through one broker twice":       {"members", knownMember, goodMember, []string{"BROKERS", brokers(1) + ", " + brokers(1)}, false, "Duplicate"},
		"that is marked":                 {"members", knownMember, goodMember, marked(`since: "2026-01-01T00:00:00Z", longestGap: 15m0s, quotes: 1000000000, offerTime: 1.2s`), false, ""},
		"that is marked since never":     {"members", knownMember, goodMember, marked("quotes: 1"), false, "since"},
		"that is marked beyond bounds":   {"members", knownMember, goodMember, marked(`since: "2026-01-01T00:00:00Z", quotes: 1000000001`), false, "quotes"},
		"that is marked below nothing":   {"members", knownMember, goodMember, marked(`since: "2026-01-01T00:00:00Z", refusals: -1`), false, "refusals"},
		"by what is no key":              {"members", knownMember, goodMember, []string{"KEY", "abc"}, false, "spec.publicKey"},
		"by the longest id":              {"members", knownMember, goodMember, []string{"NAME", longestID}, false, ""},
		"by a name that is no id":        {"members", knownMember, goodMember, []string{"NAME", longestID + "d"}, false, "it is the id of the cluster"},
		"with many resources to spare":   {"members", knownMember, goodMember, []string{"RESOURCES", resources(64)}, false, ""},
		"with too many":                  {"members", knownMember, goodMember, []string{"RESOURCES", resources(65)}, false, atMostSome},
		"whose region has a long text":   {"members", knownMember, goodMember, []string{"REGION", strings.Repeat("a", 10_000)}, false, "status.offer.labels"},
		"whose resources are no amounts": {"members", knownMember, goodMember, []string{"RESOURCES", "cpu: much"}, false, "status.offer.availability"},
	}
	kinds := map[string]kind{}
	for _, plural := range []string{"peers", "messages", "requests", "quotes", "members"} {
		kinds[plural] = loadKind(t, plural)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var old map[string]any
			if tt.update {
				old = parse(t, fill(tt.template, tt.good...))
			}
			object := parse(t, fill(tt.template, append(tt.change, tt.good...)...))
			expect(t, kinds[tt.plural].validate(t, object, old), tt.want)
		})
	}
}
