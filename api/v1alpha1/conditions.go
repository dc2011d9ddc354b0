// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types. Each kind names those that it uses in the comment of its status.
const (
	// ConditionReady sums up the others: the object does what its spec says.
	ConditionReady = "Ready"
	// ConditionReachable says that the peer's API server answers.
	ConditionReachable = "Reachable"
	// ConditionAuthenticated says that the peer knows us, and is the cluster that its Peer names.
	ConditionAuthenticated = "Authenticated"
	// ConditionCompatible says that the peer's version of Hanse and ours understand each other.
	ConditionCompatible = "Compatible"
	// ConditionWithinBudget says that the peer sends no more than this cluster takes from one peer.
	ConditionWithinBudget = "WithinBudget"
	// ConditionAdvertised says that an advertisement of the peer has been accepted and is current.
	ConditionAdvertised = "Advertised"
	// ConditionConnected says that pods of the two clusters reach each other over the network fabric.
	ConditionConnected = "Connected"
	// ConditionSession says that our credentials at the peer are good and are renewed in time.
	ConditionSession = "Session"
	// ConditionJoined says that the peer has used our invitation and may be our consumer.
	ConditionJoined = "Joined"
	// ConditionAccepted says that the receiver of the advertisement will use it.
	ConditionAccepted = "Accepted"
	// ConditionApplied says that the provider has made the object of a ShadowObject as it is asked for.
	ConditionApplied = "Applied"
	// ConditionClockSkew says that the clocks of sender and receiver differ by more than the receiver puts up with.
	ConditionClockSkew = "ClockSkew"
	// ConditionPlaced says that it was decided where new pods of a namespace go, or that every component of an Application has its room.
	ConditionPlaced = "Placed"
	// ConditionNetworkPoliciesKept is False as long as there are NetworkPolicies in an offloaded namespace, which hold for its pods at
	// home alone.
	ConditionNetworkPoliciesKept = "NetworkPoliciesKept"
	// ConditionScheduled says that the provider's scheduler found a node for the remote pod.
	ConditionScheduled = "Scheduled"
	// ConditionUnrecoverable says that the remote pod can no longer be made, so home should run another.
	ConditionUnrecoverable = "Unrecoverable"
	// ConditionUpdated says, where it is False, that a change at home was not carried over to the remote pod.
	ConditionUpdated = "Updated"
	// ConditionOnward says whether the remote pod may be sent on to a further cluster by what spec.onward asks.
	ConditionOnward = "Onward"
	// ConditionMetadata says, where it is False, which labels and annotations the provider has left out of the remote pod.
	ConditionMetadata = "Metadata"
	// ConditionDebug says, where it is False, that ephemeral containers were not added to the remote pod.
	ConditionDebug = "Debug"
	// ConditionComplete says that a pod has moved, or, where it is False, why it has not (yet).
	ConditionComplete = "Complete"
	// ConditionAcknowledged says that the provider has reserved what a Request asks for.
	ConditionAcknowledged = "Acknowledged"
	// ConditionIntroduced says of a Broker that its other members know this cluster, and of a Peer with an introducer how asking for its
	// invitation goes. Of one that is both it says the latter until there is a session.
	ConditionIntroduced = "Introduced"
	// ConditionAdmitted says of a Member that it reads what other members say, and is heard by them.
	ConditionAdmitted = "Admitted"
	// ConditionRelayed says that a broker has brought a Message to whom it is for.
	ConditionRelayed = "Relayed"
	// ConditionCurrent says that what is known of a Member is not out of date.
	ConditionCurrent = "Current"
	// ConditionOffered: the provider takes all of what a Quote asks for, or a part of it.
	ConditionOffered = "Offered"
	// ConditionRestored says of a PodMove that failed after its pod was evicted whether there is such a pod again.
	ConditionRestored = "Restored"
	// ConditionAgreed says that consumer and provider have counted the same in an Account.
	ConditionAgreed = "Agreed"
)

// Reasons of conditions, acknowledgements and events.
const (
	// ReasonReady means that nothing is wrong.
	ReasonReady = "Ready"
	// ReasonPending means that the object was not looked at yet, or waits for another one.
	ReasonPending = "Pending"
	// ReasonNotConsumed means that we do not consume from this peer, so there is nothing to reach at the peer.
	ReasonNotConsumed = "NotConsumed"
	// ReasonNoNetworkFabric means that there is no network between the pods of the two clusters.
	ReasonNoNetworkFabric = "NoNetworkFabric"

	// ReasonNotEnforced means that nothing enforces NetworkPolicies of home for pods that run at peers.
	ReasonNotEnforced = "NotEnforced"

	// ReasonCredentialsMissing means that the Secret with the link's credentials does not exist.
	ReasonCredentialsMissing = "CredentialsMissing"
	// ReasonCredentialsInvalid means that the Secret with the link's credentials cannot be used.
	ReasonCredentialsInvalid = "CredentialsInvalid"
	// ReasonUnreachable means that the peer's API server does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonOverBudget means that the peer sends more than this cluster takes from one peer.
	ReasonOverBudget = "OverBudget"
	// ReasonUnauthorized means that the peer's API server does not accept our credentials.
	ReasonUnauthorized = "Unauthorized"
	// ReasonClusterIDMismatch means that the answering cluster is not the one that the Peer names.
	ReasonClusterIDMismatch = "ClusterIDMismatch"
	// ReasonIncompatibleVersion means that the peer runs a version of Hanse that ours does not understand.
	ReasonIncompatibleVersion = "IncompatibleVersion"
	// ReasonNoAddressRange means that a range of the peer cannot be seen in any that is free here.
	ReasonNoAddressRange = "NoAddressRange"
	// ReasonNoCommonFamily means that there is no network, or no DNS for pods, because one side has IPv4 alone and the other IPv6.
	ReasonNoCommonFamily = "NoCommonFamily"
	// ReasonNetworkRefused means that what the peer says of its network cannot be used. The message names what.
	ReasonNetworkRefused = "NetworkRefused"
	// ReasonKeyTaken means that the key that a peer's gateway shows is that of another peer's, or our own.
	ReasonKeyTaken = "KeyTaken"
	// ReasonEndpointRefused means that an endpoint that a peer names for its gateway is not dialled: it lies in this cluster,
	// in a range that only the tunnel reaches, or nowhere.
	ReasonEndpointRefused = "EndpointRefused"
	// ReasonEndpointsRefused means that there is no EndpointSlice of a ShadowEndpointSlice; the message says why.
	ReasonEndpointsRefused = "EndpointsRefused"
	// ReasonExportRefused means that what a cluster exports is not imported by the peer; the message says why.
	ReasonExportRefused = "ExportRefused"
	// ReasonTooManyEndpoints means that peers are told of some endpoints of a ServiceExport alone.
	ReasonTooManyEndpoints = "TooManyEndpoints"
	// ReasonNotInClusterSet means that no Peer shares the namespace of a ServiceExport.
	ReasonNotInClusterSet = "NotInClusterSet"
	// ReasonEndpointFlaps means that what the peer's gateway sends comes in turns from several places.
	ReasonEndpointFlaps = "EndpointFlaps"
	// ReasonNoRelay means that this cluster's gateway cannot pass on packets for the peer.
	ReasonNoRelay = "NoRelay"
	// ReasonNoEndpoint means that neither of the two gateways can be reached by the other, and that no peer of both passes packets on.
	ReasonNoEndpoint = "NoEndpoint"
	// ReasonNoGateway means that no gateway of this cluster is running.
	ReasonNoGateway = "NoGateway"
	// ReasonNoPeerGateway means that the peer has told of no gateway that ours can talk to.
	ReasonNoPeerGateway = "NoPeerGateway"
	// ReasonTunnelDown means that the peer's gateway does not answer through the tunnel.
	ReasonTunnelDown = "TunnelDown"
	// ReasonKernelUnsupported means that the kernel of a node lacks what the network is made of, such as TUN or VXLAN.
	ReasonKernelUnsupported = "KernelUnsupported"

	// ReasonIncompatibleAPI means that the peer and we have no version of Hanse's API in common.
	ReasonIncompatibleAPI = "IncompatibleAPI"
	// ReasonForbidden means that the peer knows us and lets us do nothing: it has suspended us.
	ReasonForbidden = "Forbidden"
	// ReasonKeyMismatch means that a cluster of this id has another key than the pinned one.
	ReasonKeyMismatch = "KeyMismatch"
	// ReasonClusterIDTaken means that another Peer stands for this cluster already.
	ReasonClusterIDTaken = "ClusterIDTaken"
	// ReasonDiscovered means that the peer was only found in the network, and nobody has accepted it.
	ReasonDiscovered = "Discovered"
	// ReasonAgentless means that the peer runs no Hanse, and what needs one there does not work.
	ReasonAgentless = "Agentless"

	// ReasonNotInvited means that the peer has no invitation of ours, or we none of the peer's.
	ReasonNotInvited = "NotInvited"
	// ReasonInvited means that the invitation waits to be used.
	ReasonInvited = "Invited"
	// ReasonInvitationExpired means that the invitation was not used in time.
	ReasonInvitationExpired = "InvitationExpired"
	// ReasonInvitationInvalid means that what should be an invitation is none.
	ReasonInvitationInvalid = "InvitationInvalid"
	// ReasonInvitationUsed means that another cluster has used the invitation before.
	ReasonInvitationUsed = "InvitationUsed"
	// ReasonNoServerAddress means that an invitation cannot tell where our API server is.
	ReasonNoServerAddress = "NoServerAddress"
	// ReasonJoining means that we use an invitation right now.
	ReasonJoining = "Joining"
	// ReasonJoined means that an invitation was used by the peer that it was for.
	ReasonJoined = "Joined"
	// ReasonProofInvalid means that the claimer does not have the key that it names.
	ReasonProofInvalid = "ProofInvalid"
	// ReasonSessionShortened means that the peer's API server gives tokens of a shorter life than we ask for.
	ReasonSessionShortened = "SessionShortened"
	// ReasonRenewalFailed means that the session could not be renewed; it still lives.
	ReasonRenewalFailed = "RenewalFailed"

	// ReasonPeerCordoned means that the provider takes no more pods of this consumer.
	ReasonPeerCordoned = "PeerCordoned"
	// ReasonPeerDraining means that the provider has asked the consumer to move its pods away.
	ReasonPeerDraining = "PeerDraining"
	// ReasonPeerSuspended means that the consumer may do nothing for now.
	ReasonPeerSuspended = "PeerSuspended"
	// ReasonPeerLeft means that the other side has parted from us.
	ReasonPeerLeft = "PeerLeft"
	// ReasonParting means that the two clusters part.
	ReasonParting = "Parting"
	// ReasonLimitExceeded means that a limit of the provider for this consumer stands against it.
	ReasonLimitExceeded = "LimitExceeded"

	// ReasonAccepted means that the receiver uses the advertisement.
	ReasonAccepted = "Accepted"
	// ReasonNoAdvertisement means that the peer has not advertised anything yet.
	ReasonNoAdvertisement = "NoAdvertisement"
	// ReasonInvalidQuantity means that a quantity is negative, missing or beyond any real cluster.
	ReasonInvalidQuantity = "InvalidQuantity"
	// ReasonExpired means that the advertisement's time to live has passed, or hellos are missing; or that the time of a reservation is
	// over.
	ReasonExpired = "Expired"
	// ReasonClockSkew means that the sender's clock and ours differ by more than the bound.
	ReasonClockSkew = "ClockSkew"
	// ReasonStale means that a newer advertisement, or statement, of the same cluster was seen before.
	ReasonStale = "Stale"
	// ReasonInvalidField means that another field of the advertisement makes no sense.
	ReasonInvalidField = "InvalidField"
	// ReasonMalformed means that the object cannot be decoded or stored.
	ReasonMalformed = "Malformed"

	// ReasonLoop means that an aggregated advertisement, or a pod, has come back to a cluster that it has passed.
	ReasonLoop = "Loop"
	// ReasonPlacementObeyed means that a pod may be sent on to those clusters only that spec.onward lets it use.
	ReasonPlacementObeyed = "PlacementObeyed"
	// ReasonStaysHere means that a pod is not sent on.
	ReasonStaysHere = "StaysHere"
	// ReasonRefusedByPolicy means that a policy says no.
	ReasonRefusedByPolicy = "RefusedByPolicy"
	// ReasonPendingApproval means that a policy leaves it to an administrator.
	ReasonPendingApproval = "PendingApproval"
	// ReasonApproved means that an administrator has accepted it.
	ReasonApproved = "Approved"
	// ReasonRefusedByAdministrator means that an administrator says no.
	ReasonRefusedByAdministrator = "RefusedByAdministrator"
	// ReasonCorrected means that the receiver uses the advertisement with changes.
	ReasonCorrected = "Corrected"
	// ReasonPolicyFailed means that a policy could not be asked: it is broken, too slow, or answers nonsense.
	ReasonPolicyFailed = "PolicyFailed"
	// ReasonPolicyInvalid means that a policy cannot be loaded.
	ReasonPolicyInvalid = "PolicyInvalid"
	// ReasonNotPlacedInTime means that no place was found for an Application within its timeToLive, and that none is looked for any more.
	ReasonNotPlacedInTime = "NotPlacedInTime"
	// ReasonReleased means that what was reserved is given back.
	ReasonReleased = "Released"
	// ReasonClusterLost means that a pod was evicted because the cluster that it is in is cut off for longer than its user wants to wait.
	ReasonClusterLost = "ClusterLost"
	// ReasonNoWorkload means that a component says no replicas, and that no workload has pods with its labels.
	ReasonNoWorkload = "NoWorkload"
	// ReasonNoClusterFits means that placement leaves no cluster to choose.
	ReasonNoClusterFits = "NoClusterFits"

	// ReasonTwinCreated means that the twin namespace exists.
	ReasonTwinCreated = "TwinCreated"
	// ReasonNamespaceTaken means that a namespace of that name exists and is not this peer's twin.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNamespaceForbidden means that system namespaces are not offloaded.
	ReasonNamespaceForbidden = "NamespaceForbidden"
	// ReasonNamespaceTerminating means that the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"

	// ReasonPodRefused means that the provider's API server refuses the pod.
	ReasonPodRefused = "PodRefused"
	// ReasonPodInvalid means that the ShadowPod asks for something that the provider does not build.
	ReasonPodInvalid = "PodInvalid"
	// ReasonRefusedByProvider means that the provider says that it will not run the pod. The message has the reason.
	ReasonRefusedByProvider = "RefusedByProvider"
	// ReasonPodNameTaken means that a pod of that name exists and was not made for this ShadowPod.
	ReasonPodNameTaken = "PodNameTaken"
	// ReasonOffloadingBackOff means that the pod cannot be offloaded (yet). It goes on once what is missing is there.
	ReasonOffloadingBackOff = "OffloadingBackOff"
	// ReasonReserved means that what a Request asks for is reserved.
	ReasonReserved = "Reserved"
	// ReasonNotOffered means that the provider offers nothing to the consumer that asks.
	ReasonNotOffered = "NotOffered"
	// ReasonInvalidExpirationTime means that a Request is to expire in the past, or too late.
	ReasonInvalidExpirationTime = "InvalidExpirationTime"
	// ReasonTooExpensive means that what a Request asks for costs more than its maxPrice.
	ReasonTooExpensive = "TooExpensive"
	// ReasonOffered: there is an offer.
	ReasonOffered = "Offered"
	// ReasonInvalidDeadline: the deadline of a Quote is over before there is an offer.
	ReasonInvalidDeadline = "InvalidDeadline"
	// ReasonAuction: clusters are asked for offers for an Application.
	ReasonAuction = "Auction"
	// ReasonAuctionEnded: the offers for an Application were compared.
	ReasonAuctionEnded = "AuctionEnded"
	// ReasonNoRoom means that the provider has no node with room for the pod.
	ReasonNoRoom = "NoRoom"
	// ReasonScalingUp means that the provider's autoscaler makes room for the pod.
	ReasonScalingUp = "ScalingUp"
	// ReasonPlacementTimeout means that the provider had no room for the pod for too long, so that another node gets it.
	ReasonPlacementTimeout = "PlacementTimeout"
	// ReasonDisconnected means that the provider does not answer, so that nobody knows how its pods are.
	ReasonDisconnected = "PeerDisconnected"
	// ReasonMetadataLeftOut means that the provider does not take all labels and annotations of the pod.
	ReasonMetadataLeftOut = "MetadataLeftOut"
	// ReasonDebugForbidden means that the provider does not let this cluster add ephemeral containers.
	ReasonDebugForbidden = "DebugForbidden"
	// ReasonTokenLeftAtHome means that a pod runs at a provider without the token of its service account.
	ReasonTokenLeftAtHome = "TokenLeftAtHome"
	// ReasonTokenRefused means that home gives no token for a pod at a provider, or that the provider does not take it.
	ReasonTokenRefused = "TokenRefused"
	// ReasonTwinNameForbidden means that the provider does not let this cluster choose that name for its twin.
	ReasonTwinNameForbidden = "TwinNameForbidden"
	// ReasonOffloadingChanged means that the namespace's NamespaceOffloading does not let the pod run where it does.
	ReasonOffloadingChanged = "OffloadingChanged"
	// ReasonReflectionConflict means that a provider has an object of the name that is not our copy, so it is left alone.
	ReasonReflectionConflict = "ReflectionConflict"
	// ReasonReflectionRefused means that an object that offloaded pods refer to is not copied to their provider.
	ReasonReflectionRefused = "ReflectionRefused"
	// ReasonMandatoryConfigMapNotFound means that a ConfigMap is missing that the pod cannot start without.
	ReasonMandatoryConfigMapNotFound = "MandatoryConfigMapNotFound"
	// ReasonMandatorySecretNotFound means that a Secret is missing that the pod cannot start without.
	ReasonMandatorySecretNotFound = "MandatorySecretNotFound"
	// ReasonOptionalConfigMapNotFound means that a ConfigMap is missing that the pod can do without.
	ReasonOptionalConfigMapNotFound = "OptionalConfigMapNotFound"
	// ReasonOptionalSecretNotFound means that a Secret is missing that the pod can do without.
	ReasonOptionalSecretNotFound = "OptionalSecretNotFound"
	// ReasonStatusUnreadable means that what a provider reports about a pod cannot be read, or is too large.
	ReasonStatusUnreadable = "StatusUnreadable"
	// ReasonFlaps means that a provider changes what it tells of pods so often that most of it is left out.
	ReasonFlaps = "Flaps"
	// ReasonHeldByProvider means that finalizers of others hold the record of a pod at the provider.
	ReasonHeldByProvider = "HeldByProvider"
	// ReasonVolumeMade means that a provider keeps a volume for a claim.
	ReasonVolumeMade = "VolumeMade"
	// ReasonVolumeRefused means that a provider makes no volume for a claim, or does not make it larger. The message has the reason.
	ReasonVolumeRefused = "VolumeRefused"
	// ReasonVolumeLost means that the volume of a claim is gone at its provider, and its data with it.
	ReasonVolumeLost = "VolumeLost"
	// ReasonApplied means that a provider has the object of a ShadowObject as it is asked for.
	ReasonApplied = "Applied"
	// ReasonKindNotAllowed means that the provider does not let this cluster have objects of the kind.
	ReasonKindNotAllowed = "KindNotAllowed"
	// ReasonDefinitionMissing means that the provider has no definition of the kind, or not in that version.
	ReasonDefinitionMissing = "DefinitionMissing"
	// ReasonHostNotAllowed means that the provider does not let this cluster have a host name that an Ingress is for.
	ReasonHostNotAllowed = "HostNotAllowed"
	// ReasonHostTaken means that another namespace of the provider has a host name that an Ingress is for.
	ReasonHostTaken = "HostTaken"
	// ReasonNameTaken means that the provider has an object of the name that is not this cluster's, or that somebody has created a
	// pod of the name of one that moves.
	ReasonNameTaken = "NameTaken"
	// ReasonObjectRefused means that an object cannot be made at the provider as it is asked for. The message has the cause.
	ReasonObjectRefused = "ObjectRefused"
	// ReasonMoved means that the copy of a pod has taken the place of the original.
	ReasonMoved = "Moved"
	// ReasonMoving means that a pod is on its way. The message says what comes next.
	ReasonMoving = "Moving"
	// ReasonWaitsForOther means that another move of the same owner comes first.
	ReasonWaitsForOther = "WaitsForOther"
	// ReasonEvictionBlocked means that a PodDisruptionBudget does not let the original go, or not yet.
	ReasonEvictionBlocked = "EvictionBlocked"
	// ReasonPodNotFound means that there is no such pod, or that it is another one of that name.
	ReasonPodNotFound = "PodNotFound"
	// ReasonPodNotRunning means that the pod does not run: it waits, has ended, or is being deleted.
	ReasonPodNotRunning = "PodNotRunning"
	// ReasonUnsupportedOwner means that pods of such an owner cannot be moved.
	ReasonUnsupportedOwner = "UnsupportedOwner"
	// ReasonRolloutUnderWay means that the owner is replacing its pods anyway, or removes them.
	ReasonRolloutUnderWay = "RolloutUnderWay"
	// ReasonNodeNotFound means that there is no such node.
	ReasonNodeNotFound = "NodeNotFound"
	// ReasonNodeNotReady means that the node is not Ready.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonNodeClosed means that the node takes no such pods: it is cordoned, or has a taint that the pod does not tolerate.
	ReasonNodeClosed = "NodeClosed"
	// ReasonNodeFull means that the node has no room for the pod.
	ReasonNodeFull = "NodeFull"
	// ReasonNotOffloaded means that the namespace's NamespaceOffloading does not let pods run on such a node.
	ReasonNotOffloaded = "NotOffloaded"
	// ReasonRequested means that clusters were chosen for an Application, and that not all of them have answered.
	ReasonRequested = "Requested"
	// ReasonPlaced means that every component of an Application has its room.
	ReasonPlaced = "Placed"
	// ReasonCountsAgree means that consumer and provider have counted the same.
	ReasonCountsAgree = "CountsAgree"
	// ReasonCountsDiffer means that consumer and provider have counted more differently than they do for the moments at which they see things.
	ReasonCountsDiffer = "CountsDiffer"
	// ReasonInvalidCount means that what the other side has counted is no count.
	ReasonInvalidCount = "InvalidCount"
	// ReasonNotCounted means that consumer or provider has counted nothing yet, or no more for some time.
	ReasonNotCounted = "NotCounted"
	// ReasonIntroduced means that the other members of a broker know this cluster, or that an invitation came through one.
	ReasonIntroduced = "Introduced"
	// ReasonAdmitted means that a member reads what others say, and is heard by them.
	ReasonAdmitted = "Admitted"
	// ReasonRelayed means that a broker has brought a Message to whom it is for.
	ReasonRelayed = "Relayed"
	// ReasonBrokerDisabled means that this cluster is no broker: the value broker.enabled of the chart is not set.
	ReasonBrokerDisabled = "BrokerDisabled"
	// ReasonNotAMember means that a Message comes from a peer that is no Member.
	ReasonNotAMember = "NotAMember"
	// ReasonUnknownMember means that no Member of that id is known.
	ReasonUnknownMember = "UnknownMember"
	// ReasonRecipientFull means that there is no room for more Messages for the member.
	ReasonRecipientFull = "RecipientFull"
	// ReasonForged means that a statement is not signed by the key that is pinned for its sender, or that the object says something else.
	ReasonForged = "Forged"
	// ReasonUnsigned means that a Request, a Quote or an answer to one comes without a signature.
	ReasonUnsigned = "Unsigned"
	// ReasonMisaddressed means that a statement is for another cluster.
	ReasonMisaddressed = "Misaddressed"
	// ReasonNotAccepted means that a member does not let this cluster become its consumer.
	ReasonNotAccepted = "NotAccepted"
	// ReasonHeard means that what a Member has said last holds.
	ReasonHeard = "Heard"
	// ReasonNotHeard means that no broker names a Member any more.
	ReasonNotHeard = "NotHeard"
	// ReasonAlreadyThere means that the pod runs at the destination already.
	ReasonAlreadyThere = "AlreadyThere"
	// ReasonVolumeStays means that a volume of the pod cannot be used at the destination, or, with method Surge, not by two pods at once.
	ReasonVolumeStays = "VolumeStays"
	// ReasonQuotaExceeded means that a ResourceQuota leaves no room for one more pod.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonCopyRefused means that the API server refuses the copy. The message has its answer.
	ReasonCopyRefused = "CopyRefused"
	// ReasonCopyLost means that the copy has ended or was deleted before it took over.
	ReasonCopyLost = "CopyLost"
	// ReasonOriginalLost means that the original has ended or was deleted before the copy took over.
	ReasonOriginalLost = "OriginalLost"
	// ReasonOwnerLost means that the owner of the original was deleted.
	ReasonOwnerLost = "OwnerLost"
	// ReasonNotGated means that the pod in the place of the original got no gate, or lost it, and runs where the scheduler has put it.
	ReasonNotGated = "NotGated"
	// ReasonRestored means that a pod that was evicted and did not start at its destination was made again.
	ReasonRestored = "Restored"
	// ReasonPodTooLarge means that the pod is larger than what a PodMove can keep of it.
	ReasonPodTooLarge = "PodTooLarge"
	// ReasonDeadlineExceeded means that the copy was not Ready in time.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonAborted means that the PodMove was deleted.
	ReasonAborted = "Aborted"
	// ReasonRunsAtHome means that the pod cannot run remotely and was kept on the nodes of its own cluster.
	ReasonRunsAtHome = "RunsAtHome"
)

// Answer has the conditions of a message say, by Accepted and its reason, why its reader does not take it. Of a message that is taken they say
// nothing, so that most messages cost no write.
func Answer(conditions *[]metav1.Condition, reason, why string, generation int64) {
	if why == "" {
		meta.RemoveStatusCondition(conditions, ConditionAccepted)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: why, ObservedGeneration: generation,
	})
}

// Objection returns the condition of the type by which the reader of a message says why it does not do what is asked for, or nil. It
// may be about what was asked for before.
func Objection(conditions []metav1.Condition, kind string) *metav1.Condition {
	if !meta.IsStatusConditionFalse(conditions, kind) {
		return nil
	}
	return meta.FindStatusCondition(conditions, kind)
}

// IsCutOff says whether the virtual node is shown as one whose peer does not answer, or sends too much to be heard.
func IsCutOff(node *corev1.Node) bool { return CutOff(node) != nil }

// CutOff returns the condition of the virtual node that says why its peer is cut off: reason PeerDisconnected or OverBudget.
// It returns nil if the peer is not cut off.
func CutOff(node *corev1.Node) *corev1.NodeCondition {
	at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && (c.Reason == ReasonDisconnected || c.Reason == ReasonOverBudget)
	})
	if at < 0 {
		return nil
	}
	return &node.Status.Conditions[at]
}
