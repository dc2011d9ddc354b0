package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Facts are what a question is about. What is nil is not known, and is not in the input.
type Facts struct {
	// Time is when the question is asked.
	Time time.Time
	// Peer is the other side.
	Peer *v1alpha1.Peer
	// Advertisement is what is offered, to us (Incoming) or by us (Outgoing, ShadowPod).
	Advertisement *v1alpha1.AdvertisementSpec
	// Previous is the advertisement that was accepted last.
	Previous *v1alpha1.AdvertisementSpec
	// Table is what all providers offer, made by NewTable.
	Table *Value
	// Load is how busy this cluster is.
	Load *Load
	// Namespace is the one whose pods are placed, or the twin of the shadow pod's.
	Namespace *corev1.Namespace
	// Class is the name of the class of its pods that is placed; empty if it is the namespace itself.
	Class string
	// Wish is what the user of the namespace has asked for, for the class if there is one.
	Wish *v1alpha1.Placement
	// Request is what one of its pods asks for.
	Request corev1.ResourceList
	// Pod is the pod that is made for a consumer.
	Pod *corev1.Pod
}

// A Load is how busy a cluster is.
type Load struct {
	// Allocatable is what its nodes have, Free what of it is not in use.
	Allocatable, Free corev1.ResourceList
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
	in := ast.NewObjectWithCapacity(11)
	b.set(in, "time", b.time(f.Time))
	b.set(in, "peer", b.peer(f.Peer))
	b.set(in, "advertisement", b.advertisement(f.Advertisement))
	b.set(in, "previous", b.advertisement(f.Previous))
	b.set(in, "load", b.load(f.Load))
	b.set(in, "namespace", b.namespace(f.Namespace))
	b.set(in, "class", b.known(f.Class))
	b.set(in, "wish", b.wish(f.Wish))
	b.set(in, "request", b.list(f.Request))
	pod, err := b.pod(f.Pod)
	if err != nil {
		return Input{}, err
	}
	b.set(in, "pod", pod)
	if b.size > maxInput {
		return Input{}, fmt.Errorf("input has more than %d bytes: %w", maxInput, ErrTooLarge)
	}
	if f.Table != nil {
		if f.Table.size > maxTable {
			return Input{}, fmt.Errorf("table has more than %d bytes: %w", maxTable, ErrTooLarge)
		}
		in.Insert(ast.StringTerm("table"), f.Table.term)
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

func (b *builder) peer(peer *v1alpha1.Peer) *ast.Term {
	if peer == nil {
		return nil
	}
	o := ast.NewObjectWithCapacity(6)
	b.set(o, "name", b.text(peer.Name))
	b.set(o, "clusterID", b.known(peer.Spec.ClusterID))
	b.set(o, "roles", array(b, peer.Spec.Roles, func(role v1alpha1.PeerRole) *ast.Term { return b.text(string(role)) }))
	b.set(o, "labels", texted(b, peer.Labels))
	b.set(o, "ready", ast.BooleanTerm(isTrue(peer.Status.Conditions, v1alpha1.ConditionReady)))
	if peer.Status.RoundTripTime != nil {
		b.set(o, "roundTripSeconds", b.seconds(peer.Status.RoundTripTime.Duration))
	}
	return ast.NewTerm(o)
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	for _, condition := range conditions {
		if condition.Type == kind {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return false
}

func (b *builder) load(load *Load) *ast.Term {
	if load == nil {
		return nil
	}
	o := ast.NewObjectWithCapacity(2)
	b.set(o, "allocatable", b.list(load.Allocatable))
	b.set(o, "free", b.list(load.Free))
	return ast.NewTerm(o)
}

func (b *builder) namespace(ns *corev1.Namespace) *ast.Term {
	if ns == nil {
		return nil
	}
	o := ast.NewObjectWithCapacity(3)
	b.set(o, "name", b.text(ns.Name))
	b.set(o, "labels", texted(b, ns.Labels))
	b.set(o, "annotations", texted(b, ns.Annotations))
	return ast.NewTerm(o)
}

func (b *builder) wish(wish *v1alpha1.Placement) *ast.Term {
	if wish == nil {
		return nil
	}
	o := ast.NewObjectWithCapacity(6)
	b.set(o, "prefer", b.known(string(wish.Prefer)))
	b.set(o, "request", b.list(wish.Request))
	if wish.MaxPrice != nil {
		price := ast.NewObjectWithCapacity(2)
		b.set(price, "amount", b.quantity(wish.MaxPrice.Amount))
		b.set(price, "currency", b.text(wish.MaxPrice.Currency))
		b.set(o, "maxPrice", ast.NewTerm(price))
	}
	if wish.MaxLatency != nil {
		b.set(o, "maxLatencySeconds", b.seconds(wish.MaxLatency.Duration))
	}
	b.set(o, "exclude", array(b, wish.Exclude, b.text))
	b.set(o, "strict", ast.BooleanTerm(wish.Strict))
	return ast.NewTerm(o)
}

// pod is written as JSON first: nobody asks about one so often that this would matter, and a rule may read any field.
func (b *builder) pod(pod *corev1.Pod) (*ast.Term, error) {
	if pod == nil {
		return nil, nil
	}
	text, err := json.Marshal(pod.Spec)
	if err != nil {
		return nil, fmt.Errorf("write pod as JSON: %w", err)
	}
	b.size += len(text)
	spec, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read pod from JSON: %w", err)
	}
	metadata := ast.NewObjectWithCapacity(4)
	b.set(metadata, "name", b.text(pod.Name))
	b.set(metadata, "namespace", b.text(pod.Namespace))
	b.set(metadata, "labels", texted(b, pod.Labels))
	b.set(metadata, "annotations", texted(b, pod.Annotations))
	o := ast.NewObjectWithCapacity(2)
	b.set(o, "metadata", ast.NewTerm(metadata))
	b.set(o, "spec", ast.NewTerm(spec))
	return ast.NewTerm(o), nil
}

func (b *builder) seconds(d time.Duration) *ast.Term {
	return b.decimal(d.Nanoseconds(), nano)
}
