// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	maxInput = 1 << 20  // bytes of what is asked about, without the table
	maxTable = 64 << 20 // bytes of the table: of 10,000 offers that each are far larger than usual
	maxRow   = 16 << 10 // bytes of a row of the table; of a larger one what is long is left out
)

// A Value is a part of an input that many questions share. It never changes.
type Value struct {
	term *ast.Term
	size int
}

// An Input is everything that the modules can read. It never changes.
type Input struct{ value ast.Value }

// Facts are what a question is about, under the names that rules read. What is nil, or a text or time that is empty, is not
// known, and is not in the input.
type Facts struct {
	// Time is when the question is asked.
	Time time.Time `json:"time"`
	// Peer is the other side.
	Peer *v1alpha1.Peer `json:"peer"`
	// Advertisement is what is offered, to us (Incoming) or by us (Outgoing, ShadowPod).
	Advertisement *v1alpha1.AdvertisementSpec `json:"advertisement"`
	// Previous is the advertisement that was accepted last.
	Previous *v1alpha1.AdvertisementSpec `json:"previous"`
	// Table is what all providers offer, made by NewTable.
	Table *Value `json:"table"`
	// Load is how busy this cluster is.
	Load *Load `json:"load"`
	// Namespace is the one whose pods are placed, or the twin of the shadow pod's.
	Namespace *corev1.Namespace `json:"namespace"`
	// Class is the name of the class of its pods that is placed; empty if it is the namespace itself.
	Class string `json:"class"`
	// Wish is what the user of the namespace has asked for, for the class if there is one.
	Wish *v1alpha1.Placement `json:"wish"`
	// Request is what one of its pods asks for; or, of a Request or Quote, what all of it asks for.
	Request corev1.ResourceList `json:"request"`
	// Pod is the pod that is made for a consumer.
	Pod *corev1.Pod `json:"pod"`
	// Reservation is the Request of a consumer.
	Reservation *v1alpha1.RequestSpec `json:"reservation"`
	// Quote is the Quote of a consumer.
	Quote *v1alpha1.QuoteSpec `json:"quote"`
	// Member is the id of the member that has asked through the peer, a Broker; empty if the peer itself has.
	Member string `json:"member"`
	// Marks are what the peer, as a Broker, says of that member; nil is nothing.
	Marks *v1alpha1.MemberMarks `json:"marks"`
	// Prices are those that the consumer is advertised; nil is none.
	Prices *v1alpha1.Prices `json:"prices"`
	// Price is what all that a consumer asks for costs for an hour; nil is nothing.
	Price *v1alpha1.Price `json:"price"`
}

// A Load is how busy a cluster is.
type Load struct {
	// Allocatable is what its nodes have, Free what of it is not in use.
	Allocatable corev1.ResourceList `json:"allocatable"`
	Free        corev1.ResourceList `json:"free"`
}

// A TableRow is what one provider offers.
type TableRow struct {
	// Peer is the name of the provider's Peer.
	Peer string
	// Open says whether the offer is for new pods.
	Open bool
	// Offer is what the provider says.
	Offer *v1alpha1.AdvertisementSpec
	// RoundTrip is how long a request to the provider takes; 0 is unknown.
	RoundTrip time.Duration
	// Bandwidth and Throughput are in bytes per second; 0 is unknown.
	Bandwidth, Throughput int64
	// Loss is in percent; nil is unknown.
	Loss *int32
}

// NewTable makes the table of all offers for an input. Unusually large rows lack images, nested offers and extensions, so
// that no single peer can make the table too large.
func NewTable(rows []TableRow) *Value {
	b := &builder{}
	terms := make([]*ast.Term, 0, len(rows))
	for _, row := range rows {
		terms = append(terms, b.row(row))
	}
	return &Value{term: ast.ArrayTerm(terms...), size: b.size}
}

// NewInput makes an input of the facts. The error is ErrTooLarge if they are too large.
func NewInput(f Facts) (Input, error) {
	b := &builder{}
	in := ast.NewObjectWithCapacity(16)
	b.fields(in, reflect.ValueOf(f), nil)
	switch {
	case b.failed != nil:
		return Input{}, b.failed
	case b.size > maxInput:
		return Input{}, fmt.Errorf("input has more than %d bytes: %w", maxInput, ErrTooLarge)
	case f.Table != nil && f.Table.size > maxTable:
		return Input{}, fmt.Errorf("table has more than %d bytes: %w", maxTable, ErrTooLarge)
	}
	return Input{value: in}, nil
}

// ParseInput reads an input that somebody wrote as JSON.
func ParseInput(text []byte) (Input, error) {
	if len(text) > maxInput {
		return Input{}, fmt.Errorf("input has more than %d bytes: %w", maxInput, ErrTooLarge)
	}
	if !json.Valid(text) { // the decoder stops after the first value
		return Input{}, errors.New("input is not JSON")
	}
	value, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return Input{}, fmt.Errorf("parse input: %w", err)
	}
	if _, isObject := value.(ast.Object); !isObject {
		return Input{}, errors.New("input must be an object")
	}
	return Input{value: value}, nil
}

// A metadata is what rules are told of the metadata of an object.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// seconds is a duration; 0 is not known.
type seconds time.Duration

func secondsOf(d *metav1.Duration) seconds { return seconds(ptr.Deref(d, metav1.Duration{}).Duration) }

func valueOf(q *resource.Quantity) int64 {
	value := ptr.Deref(q, resource.Quantity{})
	return value.Value()
}

// measured returns nil for 0, which is not known.
func measured(bytes int64) *int64 {
	if bytes == 0 {
		return nil
	}
	return &bytes
}

// described returns what rules are told of an object that they are not told of as it is.
func described(object any) any {
	switch o := object.(type) {
	case v1alpha1.Peer:
		return struct {
			Name       string              `json:"name"`
			ClusterID  string              `json:"clusterID"`
			Roles      []v1alpha1.PeerRole `json:"roles"`
			Labels     map[string]string   `json:"labels"`
			Ready      bool                `json:"ready"`
			RoundTrip  seconds             `json:"roundTripSeconds"`
			Bandwidth  *int64              `json:"bandwidthBytesPerSecond"`
			Throughput *int64              `json:"throughputBytesPerSecond"`
			Loss       *int32              `json:"lossPercent"`
		}{
			o.Name, o.Spec.ClusterID, o.Spec.Roles, o.Labels, meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady),
			secondsOf(o.Status.RoundTripTime), measured(valueOf(o.Status.Bandwidth)), measured(valueOf(o.Status.Throughput)), o.Status.LossPercent,
		}
	case v1alpha1.Placement:
		return struct {
			Prefer       v1alpha1.PlacementPreference `json:"prefer"`
			Request      corev1.ResourceList          `json:"request"`
			MaxPrice     *v1alpha1.Price              `json:"maxPrice"`
			MaxLatency   seconds                      `json:"maxLatencySeconds"`
			MinBandwidth *resource.Quantity           `json:"minBandwidthBytesPerSecond"`
			Exclude      []string                     `json:"exclude"`
			Strict       bool                         `json:"strict"`
		}{o.Prefer, o.Request, o.MaxPrice, secondsOf(o.MaxLatency), o.MinBandwidth, o.Exclude, o.Strict}
	case v1alpha1.MemberMarks:
		return struct {
			Since        metav1.Time `json:"since"`
			LongestGap   seconds     `json:"longestGapSeconds"`
			Quotes       int32       `json:"quotes"`
			Offers       int32       `json:"offers"`
			Declined     int32       `json:"declined"`
			OfferTime    seconds     `json:"offerTimeSeconds"`
			Requests     int32       `json:"requests"`
			Acknowledged int32       `json:"acknowledged"`
			HandOvers    int32       `json:"handOvers"`
			Invitations  int32       `json:"invitations"`
			Refusals     int32       `json:"refusals"`
		}{
			o.Since, secondsOf(o.LongestGap), o.Quotes, o.Offers, o.Declined, secondsOf(o.OfferTime), o.Requests, o.Acknowledged,
			o.HandOvers, o.Invitations, o.Refusals,
		}
	case corev1.Namespace:
		return metadata{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}
	case corev1.Pod:
		return struct {
			Metadata metadata       `json:"metadata"`
			Spec     corev1.PodSpec `json:"spec"`
		}{metadata{o.Name, o.Namespace, o.Labels, o.Annotations}, o.Spec}
	default:
		return nil
	}
}

// asWritten takes the way over JSON: nobody asks about a pod so often that this would matter, and a rule may read any field.
func (b *builder) asWritten(spec corev1.PodSpec) *ast.Term {
	text, err := json.Marshal(spec)
	if err != nil {
		b.failed = fmt.Errorf("write pod as JSON: %w", err)
		return nil
	}
	b.size += len(text)
	value, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		b.failed = fmt.Errorf("read pod from JSON: %w", err)
		return nil
	}
	return ast.NewTerm(value)
}
