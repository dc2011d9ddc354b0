// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: Domain, Version: "v1alpha1"}

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers every kind of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(
		GroupVersion,
		&Peer{}, &PeerList{},
		&Advertisement{}, &AdvertisementList{},
		&NamespaceOffloading{}, &NamespaceOffloadingList{},
		&NamespaceMapping{}, &NamespaceMappingList{},
		&ShadowPod{}, &ShadowPodList{},
		&ShadowEndpointSlice{}, &ShadowEndpointSliceList{},
		&ShadowClaim{}, &ShadowClaimList{},
		&ShadowObject{}, &ShadowObjectList{},
		&PeeringClaim{}, &PeeringClaimList{},
		&Connection{}, &ConnectionList{},
		&ExportedService{}, &ExportedServiceList{},
		&Request{}, &RequestList{},
		&Quote{}, &QuoteList{},
		&Application{}, &ApplicationList{},
		&Account{}, &AccountList{},
		&PodMove{}, &PodMoveList{},
		&Message{}, &MessageList{},
		&Member{}, &MemberList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
