package v1alpha1

// Condition types. Each kind names those that it uses in the comment of its status.
const (
	// ConditionReady sums up the others: the object does what its spec says.
	ConditionReady = "Ready"
	// ConditionReachable: the peer's API server answers.
	ConditionReachable = "Reachable"
	// ConditionAuthenticated: the peer knows us, and is the cluster that its Peer names.
	ConditionAuthenticated = "Authenticated"
	// ConditionCompatible: the peer's version of Hanse and ours understand each other.
	ConditionCompatible = "Compatible"
	// ConditionAdvertised: an advertisement of the peer has been accepted and is current.
	ConditionAdvertised = "Advertised"
	// ConditionConnected: pods of the two clusters reach each other over the network fabric.
	ConditionConnected = "Connected"
	// ConditionAccepted: the receiver of the advertisement will use it.
	ConditionAccepted = "Accepted"
	// ConditionScheduled: the provider's scheduler found a node for the remote pod.
	ConditionScheduled = "Scheduled"
	// ConditionUnrecoverable: the remote pod can no longer be made, so home should run another.
	ConditionUnrecoverable = "Unrecoverable"
)

// Reasons of conditions, acknowledgements and events.
const (
	// ReasonReady: nothing is amiss.
	ReasonReady = "Ready"
	// ReasonPending: the object was not looked at yet, or waits for another one.
	ReasonPending = "Pending"
	// ReasonNotConsumed: we do not consume from this peer, so there is nothing to reach over there.
	ReasonNotConsumed = "NotConsumed"
	// ReasonNoNetworkFabric: there is no network between the pods of the two clusters.
	ReasonNoNetworkFabric = "NoNetworkFabric"

	// ReasonCredentialsMissing: the Secret with the link's credentials does not exist.
	ReasonCredentialsMissing = "CredentialsMissing"
	// ReasonCredentialsInvalid: the Secret with the link's credentials cannot be used.
	ReasonCredentialsInvalid = "CredentialsInvalid"
	// ReasonUnreachable: the peer's API server does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonUnauthorized: the peer's API server does not accept our credentials.
	ReasonUnauthorized = "Unauthorized"
	// ReasonClusterIDMismatch: the answering cluster is not the one that the Peer names.
	ReasonClusterIDMismatch = "ClusterIDMismatch"
	// ReasonIncompatibleVersion: the peer runs a version of Hanse that ours does not understand.
	ReasonIncompatibleVersion = "IncompatibleVersion"
	// ReasonNoAddressRange: no free range is left to map the peer's pod addresses into.
	ReasonNoAddressRange = "NoAddressRange"

	// ReasonAccepted: the receiver uses the advertisement.
	ReasonAccepted = "Accepted"
	// ReasonNoAdvertisement: the peer has not advertised anything yet.
	ReasonNoAdvertisement = "NoAdvertisement"
	// ReasonInvalidQuantity: a quantity is negative, missing or beyond any real cluster.
	ReasonInvalidQuantity = "InvalidQuantity"
	// ReasonExpired: the advertisement's time to live has passed, or hellos are missing.
	ReasonExpired = "Expired"
	// ReasonClockSkew: the sender's clock and ours differ by more than the bound.
	ReasonClockSkew = "ClockSkew"
	// ReasonStale: a newer advertisement of the same cluster was seen before.
	ReasonStale = "Stale"
	// ReasonInvalidField: another field of the advertisement makes no sense.
	ReasonInvalidField = "InvalidField"
	// ReasonMalformed: the object cannot be decoded or stored.
	ReasonMalformed = "Malformed"

	// ReasonTwinCreated: the twin namespace exists.
	ReasonTwinCreated = "TwinCreated"
	// ReasonNamespaceTaken: a namespace of that name exists and is not this peer's twin.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNamespaceForbidden: system namespaces are not offloaded.
	ReasonNamespaceForbidden = "NamespaceForbidden"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"

	// ReasonPodRefused: the provider's API server refuses the pod.
	ReasonPodRefused = "PodRefused"
	// ReasonPodInvalid: the ShadowPod asks for something that the provider does not build.
	ReasonPodInvalid = "PodInvalid"
	// ReasonPodNameTaken: a pod of that name exists and was not made for this ShadowPod.
	ReasonPodNameTaken = "PodNameTaken"
	// ReasonOffloadingBackOff: the pod cannot be offloaded (yet); Hanse tries again.
	ReasonOffloadingBackOff = "OffloadingBackOff"
	// ReasonRunsAtHome: the pod cannot run remotely and was kept on the nodes of its own cluster.
	ReasonRunsAtHome = "RunsAtHome"
)
