// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Domain is the domain of the labels and annotations that only Hanse itself sets.
const Domain = "hanse.dev"

// IsOwn reports whether only Hanse itself sets labels and annotations of the key.
func IsOwn(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == Domain || strings.HasSuffix(domain, "."+Domain))
}

// Labels, annotations, taints and finalizers that Hanse puts on objects. They are part of the API: users may select by
// them.
const (
	// LabelType says what an object is for Hanse: one of the Type values below.
	LabelType = "hanse.dev/type"
	// LabelPeer names the Peer that an object belongs to: a tenant or twin namespace, a virtual node.
	LabelPeer = "hanse.dev/peer"
	// LabelClusterID carries the id of the cluster that a virtual node stands for, or whose twin a namespace is.
	LabelClusterID = "hanse.dev/cluster-id"
	// LabelHomeUID carries, on a remote pod, the UID of the home pod that it runs for.
	LabelHomeUID = "hanse.dev/home-uid"
	// LabelRequest carries, on a remote pod, the name of the Request whose reservation it uses.
	LabelRequest = "hanse.dev/request"
	// LabelFrom carries, on a Message that a broker has copied, the Peer whose it is there; on a Quote or Request of a member of a broker, its id.
	LabelFrom = "hanse.dev/from"
	// AnnotationMessage names, on such a copy, the Message that it is of: namespace and name, with a slash between.
	AnnotationMessage = "hanse.dev/message"
	// AnnotationIntroducedBy names, on a Peer that Hanse has made for a member, the Broker through which that has asked.
	AnnotationIntroducedBy = "hanse.dev/introduced-by"
	// LabelAgentless carries, on what runs a pod in a cluster without Hanse, and on copies of what the pod refers to, the id by
	// which its home knows that cluster. No two homes know a cluster by the same one.
	LabelAgentless = "hanse.dev/agentless"
	// LabelManaged marks with "true" a namespace in which Hanse's own service accounts may write.
	LabelManaged = "hanse.dev/managed"
	// LabelOffloads marks with "true" a user's namespace that has a NamespaceOffloading or pods on virtual nodes: Hanse's
	// own service accounts may change pods there. The manager keeps it.
	LabelOffloads = "hanse.dev/offloads"

	// LabelRoom carries, on a twin namespace, how many bytes of etcd there are for the peer's ShadowPods in it, and again for
	// its copies.
	LabelRoom = "hanse.dev/room"

	// LabelReflected marks with "true" a copy, in a twin namespace, of an object of the consumer's. A peer may change
	// nothing else there. Kubernetes gives all labels of a Service to the EndpointSlices that it makes for it.
	LabelReflected = "hanse.dev/reflected"
	// LabelSkipReflection is a label or an annotation: set to "true" on an object it says that no copy of it goes to providers.
	LabelSkipReflection = "hanse.dev/skip-reflection"
	// AnnotationReflect set to "true" on an object has it copied to providers, where administrators have set that for its kind.
	AnnotationReflect = "hanse.dev/reflect"
	// AnnotationForceRemoteNodePort set to "true" on a Service has its copies keep its node ports, where the provider allows that.
	AnnotationForceRemoteNodePort = "hanse.dev/force-remote-node-port"
	// EndpointSliceManager is, in the label endpointslice.kubernetes.io/managed-by, who writes the EndpointSlices of a ShadowEndpointSlice.
	EndpointSliceManager = "reflector.hanse.dev"
	// LabelKind carries, on a ShadowObject, the kind of its object: Ingress, or such as Widget.example.org.
	LabelKind = "hanse.dev/kind"
	// AnnotationAddressAt and the name of a peer make the annotation that says, on an Ingress, at which addresses it is reached at
	// that peer, with commas between them.
	AnnotationAddressAt = "hanse.dev/address-at."
	// AnnotationSkipToken set to "true" on a pod says that no token of its service account goes to providers.
	AnnotationSkipToken = "hanse.dev/skip-token" //nolint:gosec // no credential but a name

	// LabelVolumes marks with "true" the virtual node of a peer that has volumes for our claims.
	LabelVolumes = "hanse.dev/volumes"
	// LabelOfferToPeers on a StorageClass says with "true" or "false" whether claims of consumers can get its volumes. Without it
	// that goes for the default class alone.
	LabelOfferToPeers = "hanse.dev/offer-to-peers"

	// LabelClusterSet marks with "true" what Hanse makes of multi-cluster Services in namespaces of users: ServiceImports, and their
	// Services and EndpointSlices.
	LabelClusterSet = "hanse.dev/cluster-set"
	// ClusterSetManager is, in the label endpointslice.kubernetes.io/managed-by, who writes the EndpointSlices of ServiceImports.
	ClusterSetManager = "clusterset.hanse.dev"

	// LabelPolicy marks a ConfigMap in Hanse's own namespace as policy. Its value is the question that its modules, keys
	// that end in .rego, answer: incoming, outgoing, shadowpod or placement.
	LabelPolicy = "hanse.dev/policy"

	// LabelGateway marks with ActiveGateway the pod of the gateway that is active: the Service of the gateway leads to it. The
	// gateway itself keeps it.
	LabelGateway = "hanse.dev/gateway"

	// AnnotationHomeNamespace carries, on a twin namespace, the namespace at home that it stands for.
	AnnotationHomeNamespace = "hanse.dev/home-namespace"
	// AnnotationOriginUID carries, on an object with LabelReflected, the UID of the object at home that it is a copy of, and, on
	// our copy of an advertisement, that of the provider's.
	AnnotationOriginUID = "hanse.dev/origin-uid"
	// AnnotationOriginVersion carries, on an object with LabelReflected, which version it is of what was copied, and, on a Secret
	// with the tokens of a pod, when they are renewed, as RFC 3339 has it.
	AnnotationOriginVersion = "hanse.dev/origin-version"
	// AnnotationStandsInFor names, on a claim in Hanse's own namespace, the claim (namespace/name) that gets its volume.
	AnnotationStandsInFor = "hanse.dev/stands-in-for"
	// AnnotationPeerUID carries, on a tenant namespace, the UID of the Peer that it was made for.
	AnnotationPeerUID = "hanse.dev/peer-uid"
	// AnnotationExpires carries when an invitation or a tombstone ends, as RFC 3339 has it.
	AnnotationExpires = "hanse.dev/expires"
	// AnnotationSerial carries, on an InvitationSecret, the serial of the invitation.
	AnnotationSerial = "hanse.dev/serial"
	// AnnotationJoin carries, on a Peer, the id of the invitation that was put into JoinSecret: the manager does not watch
	// Secrets, and looks when this changes.
	AnnotationJoin = "hanse.dev/join"
	// AnnotationAllowOnVirtualNodes set to "true" on a DaemonSet lets its pods run on virtual nodes.
	AnnotationAllowOnVirtualNodes = "hanse.dev/allow-on-virtual-nodes"
	// AnnotationDecision is an administrator's word on our copy of a peer's advertisement: one of the Decision values below.
	// It holds until the peer changes its terms.
	AnnotationDecision = "hanse.dev/decision"
	// AnnotationPrefer on a pod overrides spec.placement.prefer of its namespace's NamespaceOffloading.
	AnnotationPrefer = "hanse.dev/prefer"
	// AnnotationExclude on a pod names peers, separated by commas, that it must not run in, besides those that
	// spec.placement.exclude names.
	AnnotationExclude = "hanse.dev/exclude"
	// AnnotationShare on a pod of a component that several clusters share says which of them it is for: the name of the virtual node,
	// or ShareOfHome.
	AnnotationShare = "hanse.dev/share"
	// AnnotationReportEnd on a ShadowPod asks the provider with "true" to tell, while it deletes the pod, how its containers
	// ended: somebody at home waits for it. The provider keeps the ShadowPod with the end until home says with "false" that it
	// knows, for two minutes at most. Where the provider takes the twin namespace away, it does so unasked.
	AnnotationReportEnd = "hanse.dev/report-end"
	// AnnotationTraceparent is the context of the trace that a ShadowPod's pod is part of, as W3C's trace context has it.
	AnnotationTraceparent = "hanse.dev/traceparent"
	// AnnotationPath carries, on a pod that a provider may send on to a provider of its own, the ids of the clusters that it
	// has come through, its home first and that one last, with commas between them.
	AnnotationPath = "hanse.dev/path"
	// AnnotationOnward carries, on a pod with a path, what spec.onward of its ShadowPod asks of clusters that it is sent on to.
	AnnotationOnward = "hanse.dev/onward"
	// AnnotationSentOn says, on a pod whose ShadowPod has a spec.onward, where it may be sent on to and where not.
	AnnotationSentOn = "hanse.dev/sent-on"
	// AnnotationKeptOffloading marks with "true" a NamespaceOffloading that Hanse keeps because its namespace is one of those
	// that the administrator has offloaded. Taking it off makes it the user's own.
	AnnotationKeptOffloading = "hanse.dev/kept"
	// AnnotationRunsAtHome is put by admission on a pod of an offloaded namespace that cannot run remotely and was
	// therefore kept on the nodes of its own cluster. It says why.
	AnnotationRunsAtHome = "hanse.dev/runs-at-home"

	// AnnotationAuthor carries, on a PodMove, who has created it. The API server puts it on.
	AnnotationAuthor = "hanse.dev/author"
	// AnnotationMove carries, on the copy of a pod that moves, the UID of the PodMove. It goes when the move is over.
	AnnotationMove = "hanse.dev/move"
	// AnnotationNextIsGated is put by the API server on an eviction for a move, if the owner's next pod will be created with
	// GateMove. Without it the eviction is refused.
	AnnotationNextIsGated = "hanse.dev/next-is-gated"

	// TaintVirtualNode is the key of the taints that keep pods off virtual nodes unless they tolerate it. Its value is
	// "true".
	TaintVirtualNode = "hanse.dev/virtual-node"
	// TaintWithdrawn is the key of the taint on a virtual node whose offer has ended: it takes no more pods, and goes
	// when it is empty. It is not the cordon, so that an administrator's own cordon is neither undone nor taken for
	// Hanse's; and it is no taint of TaintVirtualNode, since offloaded pods tolerate all of those.
	TaintWithdrawn = "hanse.dev/withdrawn"
	// TaintFull is the key of the taint on a virtual node that has less room for one pod than it offers in all. Its value is
	// the name of the Peer. Pods that fit tolerate it: from the start, or as soon as they do.
	TaintFull = "hanse.dev/full"

	// GateNoClusterFits is the scheduling gate that admission puts on a pod that must leave this cluster while no other
	// takes it. The manager takes it off when one does, or when the pod need not leave any more.
	GateNoClusterFits = "hanse.dev/no-cluster-fits"
	// GateMove is the scheduling gate that admission puts on the pod that takes the place of one that a PodMove has evicted,
	// until the manager has said where to run it.
	GateMove = "hanse.dev/move"

	// FinalizerShadowPod holds a ShadowPod until the pod that it keeps is gone, and until home knows how that ended where home
	// asked for it (AnnotationReportEnd). The provider's API server puts it on and only the provider's manager takes it off.
	FinalizerShadowPod = "hanse.dev/shadow-pod"
	// FinalizerRemotePod holds a remote pod that may run to its end until that end is in the status of its ShadowPod: a
	// completed pod that went unseen would run again. The provider's manager puts it on and takes it off.
	FinalizerRemotePod = "hanse.dev/remote-pod"
	// FinalizerRoleBinding holds the RoleBindings of a twin namespace that is being deleted until no pod and no ShadowPod is
	// left there: the provider's manager still has to end them, and home to read how they ended.
	FinalizerRoleBinding = "hanse.dev/role-binding"
	// FinalizerNamespaceMapping holds a NamespaceMapping until its twin namespace is gone.
	FinalizerNamespaceMapping = "hanse.dev/namespace-mapping"
	// FinalizerPeer holds a Peer until what was made for it in this cluster is gone.
	FinalizerPeer = "hanse.dev/peer"
	// FinalizerApplication holds an Application until its Requests at peers are gone.
	FinalizerApplication = "hanse.dev/application"
	// FinalizerPodMove holds a PodMove until the move is over, or what it did is undone. The API server puts it on.
	FinalizerPodMove = "hanse.dev/pod-move"
)

// Annotations in which Hanse keeps notes for itself. They may change with any version: nobody else should rely on them.
const (
	// AnnotationLeaving is put on a tenant namespace when nothing of ours is left at the peer, before the peer is told: if the
	// manager is killed right after, the peer may have revoked our credentials already.
	AnnotationLeaving = "hanse.dev/leaving"
	// AnnotationPeerLabels lists, on a virtual node, which of its labels came from the peer.
	AnnotationPeerLabels = "hanse.dev/peer-labels"
	// AnnotationHomeRevision carries, on a ShadowPod, the revision of the home pod that was sent.
	AnnotationHomeRevision = "hanse.dev/home-revision"
	// AnnotationAsked carries, on a remote pod, fingerprints of what home asked for when the pod was made or changed last.
	AnnotationAsked = "hanse.dev/asked"
	// AnnotationLeftOut names, on a remote pod, the labels and annotations of the home pod that the provider does not take.
	AnnotationLeftOut = "hanse.dev/left-out"
	// AnnotationHomePod carries the name of the home pod, on what runs it in a cluster without Hanse.
	AnnotationHomePod = "hanse.dev/home-pod"
	// AnnotationHomeName carries, on a copy in a cluster without Hanse, the name of the object at home.
	AnnotationHomeName = "hanse.dev/home-name"
	// AnnotationDeletionGrace carries the grace period, in seconds, with which such a pod is deleted.
	AnnotationDeletionGrace = "hanse.dev/deletion-grace"
	// AnnotationRecord carries, as JSON, the record of the pods that ran there before for the same home pod.
	AnnotationRecord = "hanse.dev/record"
	// AnnotationDebugAsked is there when ephemeral containers were asked for such a pod.
	AnnotationDebugAsked = "hanse.dev/debug-asked"
	// AnnotationAccepted marks with "true" our copy of an advertisement whose spec was accepted. It is not in the status,
	// because a peer that is our consumer too can write there.
	AnnotationAccepted = "hanse.dev/accepted"
	// AnnotationReceived carries, on our copy of an advertisement, when its message came in by our own clock, as RFC 3339
	// has it. A copy without it was never accepted.
	AnnotationReceived = "hanse.dev/received"
	// AnnotationTerms carries, on our copy of an advertisement, the fingerprint of the terms of the newest valid message, so
	// that an administrator's decision does not outlive the terms it was made on.
	AnnotationTerms = "hanse.dev/terms"
	// AnnotationPrevious carries, as JSON, on our copy of an advertisement that was not accepted, the spec that was accepted
	// last. Policies compare the two.
	AnnotationPrevious = "hanse.dev/previous"
	// AnnotationFullSent carries, on our own advertisement, when it was last sent in full by our own clock.
	AnnotationFullSent = "hanse.dev/full-sent"
	// AnnotationInvitation carries, on JoinSecret, the id of the invitation that the other notes on it are about.
	AnnotationInvitation = "hanse.dev/invitation"
	// AnnotationRefusal and AnnotationRefusalMessage say, on JoinSecret, why the invitation can never be used.
	AnnotationRefusal        = "hanse.dev/refusal"
	AnnotationRefusalMessage = "hanse.dev/refusal-message"
	// AnnotationIssued carries, on LinkSecret, when the session was made or renewed, by our clock.
	AnnotationIssued = "hanse.dev/issued"
)

// Types of conditions on home pods that say what a provider does not do for them. A pod has them only while they are False.
const (
	// PodPlaced is False while the provider finds no room for the pod, or refuses to run it.
	PodPlaced = "hanse.dev/placed"
	// PodUpdated is False while a change of the pod does not reach the provider.
	PodUpdated = "hanse.dev/updated"
	// PodMetadata is False while the remote pod lacks labels or annotations, because the provider does not take them.
	PodMetadata = "hanse.dev/metadata"
	// PodDebug is False while an ephemeral container of the pod cannot run at the provider.
	PodDebug = "hanse.dev/debug"
	// PodReported is False while what the provider reports about the pod cannot be read, so that nobody knows how the pod is.
	PodReported = "hanse.dev/reported"
	// PodReleased is False while home deletes the pod, the pod has ended at the provider, and finalizers of others hold the
	// pod's record there.
	PodReleased = "hanse.dev/released"
	// PodToken is False while the pod runs without the token of its service account, or waits for it.
	PodToken = "hanse.dev/token" //nolint:gosec // the type of a condition
)

// NodeFlaps is a condition of virtual nodes: True while the peer changes what it tells of pods so often that home writes less of it.
const NodeFlaps = "hanse.dev/flaps"

// NodeRefusesPods is a condition of virtual nodes: True while a pod waits there that the peer refuses to run.
const NodeRefusesPods = "hanse.dev/refuses-pods"

// Values of AnnotationDecision.
const (
	// DecisionAccept accepts an advertisement that a policy holds as pending.
	DecisionAccept = "Accept"
	// DecisionRefuse refuses an advertisement, whatever the policy says.
	DecisionRefuse = "Refuse"
)

// Values of LabelType.
const (
	// TypeVirtualNode marks a Node that stands for a provider.
	TypeVirtualNode = "virtual-node"
	// TypeTenant marks the namespace that holds a peer's messages.
	TypeTenant = "tenant"
	// TypeTombstone marks what is left of a tenant namespace after a forced parting: a signed record that the peer finds
	// when it comes back.
	TypeTombstone = "tombstone"
	// TypeTwin marks a namespace that stands for an offloaded namespace of a consumer.
	TypeTwin = "twin"
)

// Names that both sides of a peering, the chart and the client agree on.
const (
	// TenantNamespacePrefix and the name of a Peer make the name of its tenant namespace.
	TenantNamespacePrefix = "hanse-peer-"
	// VirtualNodePrefix and the name of a Peer make the name of its virtual node.
	VirtualNodePrefix = "hanse-"
	// LinkSecret is the Secret in a tenant namespace that holds the credentials of the link to that peer.
	LinkSecret = "hanse-link"
	// LinkSecretKey is the key of LinkSecret under which the kubeconfig lies.
	LinkSecretKey = "kubeconfig"
	// LinkSecretServers is the key of LinkSecret under which further addresses of the same API server lie, one in a line.
	LinkSecretServers = "servers"
	// LinkSecretInvitation is the key of LinkSecret under which the id of the invitation lies by which we joined.
	LinkSecretInvitation = "invitation"
	// InvitationSecret is the Secret in a tenant namespace that holds our invitation for that peer.
	InvitationSecret = "hanse-invitation"
	// InvitationToken is the key of InvitationSecret and of JoinSecret under which the invitation lies, as one line.
	InvitationToken = "token"
	// JoinSecret is the Secret in a tenant namespace that holds the invitation that the peer gave us. It is deleted when
	// the invitation was used.
	JoinSecret = "hanse-join"
	// SessionSecret is the Secret in a tenant namespace that the session tokens of that peer are bound to: they end with
	// it.
	SessionSecret = "hanse-session"
	// Tombstone is the ConfigMap in what is left of a tenant namespace that says, signed, that we have parted.
	Tombstone = "hanse-tombstone"
	// TombstoneStatement is the key of Tombstone under which the signed statement lies.
	TombstoneStatement = "statement"
	// PeeringClaimName is the only name that a PeeringClaim may have.
	PeeringClaimName = "claim"
	// InvitationServiceAccount is who uses an invitation: a ServiceAccount of this name in the tenant namespace.
	InvitationServiceAccount = "hanse-invitation"
	// PeerServiceAccount is a peer's identity at its provider: a ServiceAccount of this name in its tenant namespace.
	PeerServiceAccount = "hanse-peer"
	// ClusterInfo is the ConfigMap by which a cluster introduces itself: in Hanse's own namespace for its
	// administrators, and in each tenant namespace for the peer. Its keys are the ClusterInfo constants below.
	ClusterInfo = "hanse-cluster"
	// BandwidthSample is the ConfigMap in a tenant namespace that the peer reads to measure how fast data comes from here.
	// There is none in a cluster that does not measure.
	BandwidthSample = "hanse-bandwidth"
	// BandwidthSampleKey is the key of the text in BandwidthSample.
	BandwidthSampleKey = "noise"
	// BandwidthSampleSize is how many bytes the text has.
	BandwidthSampleSize = 256 << 10
	// ClusterInfoID is the key of the cluster id in ClusterInfo.
	ClusterInfoID = "clusterID"
	// ClusterInfoPublicKey is the key of the cluster's Ed25519 key, in base64, in ClusterInfo.
	ClusterInfoPublicKey = "publicKey"
	// ClusterInfoAPIVersions is the key of the versions of Hanse's API that the cluster speaks, separated by commas, in
	// ClusterInfo.
	ClusterInfoAPIVersions = "apiVersions"
	// ClusterInfoVersion is the key of Hanse's version in ClusterInfo.
	ClusterInfoVersion = "version"
	// OwnNetwork is the ConfigMap in Hanse's own namespace that has what this cluster tells of its network: a Network without
	// mappings, as JSON under OwnNetworkKey. The manager writes it; what peers are told, and what the gateway and the nodes
	// are set up by, begins with it.
	OwnNetwork = "hanse-network"
	// OwnNetworkKey is the key of the JSON in OwnNetwork.
	OwnNetworkKey = "network"
	// GatewayName is the name of what belongs to the gateway: in Hanse's own namespace the Secret with the private key, which the
	// manager makes; in NetworkNamespace the Deployment, the Service by which peers reach it, the Lease by which one of its pods
	// is the active one, and the ConfigMap in which that pod says where it is.
	GatewayName = "hanse-gateway"
	// FabricName is the name of the DaemonSet of the fabric in NetworkNamespace.
	FabricName = "hanse-fabric"
	// ShareOfHome is the value of AnnotationShare on pods that stay in this cluster.
	ShareOfHome = "home"
	// ActiveGateway is the value of LabelGateway.
	ActiveGateway = "active"
	// GatewaySecretKey is the key of the private key (Curve25519, in base64) in the Secret.
	GatewaySecretKey = "private-key"
	// PolicyStatus is the ConfigMap in Hanse's own namespace in which the manager says how the policies stand: for each
	// question under its name, as JSON.
	PolicyStatus = "hanse-policy-status"
	// VolumesDriver is the provisioner of StorageClasses whose volumes are at peers or at home, wherever the first pod goes, and the
	// driver of volumes that are at peers.
	VolumesDriver = "volumes.hanse.dev"
	// NamespaceOffloadingName is the only name that a NamespaceOffloading may have, so that a namespace has at most one.
	NamespaceOffloadingName = "offloading"
	// SystemNamespace is where Hanse is installed unless told otherwise.
	SystemNamespace = "hanse-system"

	// MembersNamespace is where a broker keeps what its members say to all: each of them may read it.
	MembersNamespace = "hanse-members"
	// ClusterRolePeerMembers is what a member may do there.
	ClusterRolePeerMembers = "hanse-peer-members"
	// ClusterRolePeerTenant is what a peer may do in its tenant namespace at its provider.
	ClusterRolePeerTenant = "hanse-peer-tenant"
	// ClusterRolePeerTwin is what a peer may do in its twin namespaces.
	ClusterRolePeerTwin = "hanse-peer-twin"
	// ClusterRolePeerInvitation is what an invitation allows: to create one PeeringClaim and to read it.
	ClusterRolePeerInvitation = "hanse-peer-invitation"
	// ClusterRolePeerTombstone is what is left to a peer that we have parted from by force: to read why.
	ClusterRolePeerTombstone = "hanse-peer-tombstone"
	// ClusterRoleManagerInTenant is what Hanse's manager may do in tenant namespaces.
	ClusterRoleManagerInTenant = "hanse-manager-in-tenant"
	// ClusterRoleManagerInTwin is what Hanse's manager may do in twin namespaces.
	ClusterRoleManagerInTwin = "hanse-manager-in-twin"
	// ClusterRoleReflectorInNamespace is what Hanse's manager may do in namespaces that pods leave from: read what they
	// refer to.
	ClusterRoleReflectorInNamespace = "hanse-reflector-in-namespace"
	// ClusterRoleKubeletInTenant is what `hanse kubelet` may do in tenant namespaces of its own cluster.
	ClusterRoleKubeletInTenant = "hanse-kubelet-in-tenant"
)

// TenantNamespace returns the name of the namespace that holds the messages of the peer.
func TenantNamespace(peer string) string { return TenantNamespacePrefix + peer }

// NetworkNamespace returns the name of the namespace of the gateway and the fabric, by that of Hanse's own one, in which no process
// may have the rights that these two need.
func NetworkNamespace(own string) string { return own + "-network" }

// TwinPeer returns the Peer whose twin the namespace is, "" if it is none. The labels of a namespace tell, which only Hanse's
// manager may set: those of the pods in it do not, since anybody may who may make pods.
func TwinPeer(namespace metav1.Object) string {
	labels := namespace.GetLabels()
	if labels[LabelType] != TypeTwin || labels[LabelManaged] != "true" || IsSystemNamespace(namespace.GetName(), "") {
		return ""
	}
	return labels[LabelPeer]
}

// IsSystemNamespace reports whether the namespace is one of Kubernetes or of Hanse, whose own one is named too. Such are
// never offloaded.
func IsSystemNamespace(name, own string) bool {
	return name == "default" || name == own || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "hanse-")
}

// VirtualNodeName returns the name of the Node that stands for the peer.
func VirtualNodeName(peer string) string { return VirtualNodePrefix + peer }
