// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// maxOfQuote and maxOfRequest are how many components are asked for at most, as the definitions of Quotes and Requests say.
	maxOfQuote, maxOfRequest = 24, 32
	// maxAnswer bounds the words of an answer.
	maxAnswer = 256
)

// A SignedQuote is the body of a statement by which one cluster asks another for an offer: a peer, or a member of its broker.
type SignedQuote struct {
	// Name is that of the Quote, and of the Request that may follow when the two are peers.
	Name string `json:"name"`
	// Quote is what is asked, without a signature.
	Quote v1alpha1.QuoteSpec `json:"quote"`
}

// A SignedOffer is the body of the statement that answers one.
type SignedOffer struct {
	// Name is that of the Quote.
	Name string `json:"name"`
	// Quote is the sequence of the statement that it answers.
	Quote int64 `json:"quote"`
	// Whole is the offer for all components together, and Components are those for each.
	Whole      *v1alpha1.Offer           `json:"whole"`
	Components []v1alpha1.ComponentOffer `json:"components,omitempty"`
}

// A SignedRequest is the body of a statement by which a consumer asks for room.
type SignedRequest struct {
	// Name is that of the Request.
	Name string `json:"name"`
	// Request is what is asked, without a signature.
	Request v1alpha1.RequestSpec `json:"request"`
}

// A SignedAnswer is the body of the statement that answers one: what the consumer relies on.
type SignedAnswer struct {
	// Name is that of the Request.
	Name string `json:"name"`
	// Request is the sequence of the statement that it answers.
	Request int64 `json:"request"`
	// Acknowledged says whether what was asked is reserved, and Reason and Message why.
	Acknowledged bool   `json:"acknowledged"`
	Reason       string `json:"reason,omitempty"`
	Message      string `json:"message,omitempty"`
	// The others are those of the status.
	Phase      v1alpha1.RequestPhase `json:"phase"`
	Reserved   corev1.ResourceList   `json:"reserved,omitempty"`
	Price      *v1alpha1.Price       `json:"price,omitempty"`
	ValidUntil *metav1.Time          `json:"validUntil,omitempty"`
}

// A SignedRelease is the body of a statement by which a member gives back what it has asked for, or does not want any more.
type SignedRelease struct {
	// Name is that of the Request.
	Name string `json:"name"`
}

var (
	quantitiesOfRequest = sanitize.QuantitiesIn(reflect.TypeFor[SignedRequest]())
	quantitiesOfAnswer  = sanitize.QuantitiesIn(reflect.TypeFor[SignedAnswer]())
	quantitiesOfQuote   = sanitize.QuantitiesIn(reflect.TypeFor[SignedQuote]())
	quantitiesOfOffer   = sanitize.QuantitiesIn(reflect.TypeFor[SignedOffer]())
)

// ReadSignedQuote reads what a member asks for. All else is checked as of any other Quote, when one is made of it, and when it is answered.
func ReadSignedQuote(body []byte) (*SignedQuote, error) {
	asked := &SignedQuote{}
	if err := readSigned(body, quantitiesOfQuote, asked); err != nil {
		return nil, err
	}
	if err := cmp.Or(judgeName(asked.Name), judgeComponents("body.quote", asked.Quote.Components, maxOfQuote)); err != nil {
		return nil, err
	}
	return asked, nil
}

// ReadSignedRequest reads for what room a member asks. All else is checked as of any other Request, as that of a Quote.
func ReadSignedRequest(body []byte) (*SignedRequest, error) {
	asked := &SignedRequest{}
	if err := readSigned(body, quantitiesOfRequest, asked); err != nil {
		return nil, err
	}
	if err := cmp.Or(judgeName(asked.Name), judgeComponents("body.request", asked.Request.Components, maxOfRequest)); err != nil {
		return nil, err
	}
	return asked, nil
}

// ReadSignedRelease reads what a member gives back.
func ReadSignedRelease(body []byte) (*SignedRelease, error) {
	released := &SignedRelease{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, released); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return released, judgeName(released.Name)
}

func judgeName(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("body.name: %s is no name of a Quote or Request", quoted(name))
	}
	return nil
}

func judgeComponents(at string, components []v1alpha1.RequestedComponent, most int) error {
	if len(components) > most {
		return fmt.Errorf("%s.components: there are %d, and may be %d", at, len(components), most)
	}
	for i, c := range components {
		if err := judgeResources(fmt.Sprintf("%s.components[%d].resources", at, i), c.Resources); err != nil {
			return err
		}
	}
	return nil
}

// ReadSignedOffer reads what a member offers. Whether that makes sense CheckOffer says.
func ReadSignedOffer(body []byte) (*SignedOffer, error) {
	offer := &SignedOffer{}
	if err := readSigned(body, quantitiesOfOffer, offer); err != nil {
		return nil, err
	}
	if offer.Whole == nil || len(offer.Components) > maxOfQuote {
		return nil, fmt.Errorf("body: it is an offer for the whole, and for at most %d components", maxOfQuote)
	}
	return offer, nil
}

// ReadSignedAnswer reads what a member has reserved, if anything.
func ReadSignedAnswer(body []byte) (*SignedAnswer, error) {
	answer := &SignedAnswer{}
	if err := readSigned(body, quantitiesOfAnswer, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func readSigned(body []byte, quantities sanitize.Quantities, into any) error {
	// Names in another case would be read, and not be checked before.
	if err := cmp.Or(quantities.Check(body), kjson.UnmarshalCaseSensitivePreserveInts(body, into)); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

// What is signed beside an object counts only if the object says the same: the functions below return why it does not, as the reason and
// the message of a condition, which are empty if it does.

const changed = "the object says something else than what was signed"

// RequestSigned compares the Request with what its consumer has signed.
func RequestSigned(body []byte, asked *v1alpha1.Request) (reason, message string) {
	return signed(body, quantitiesOfRequest, RequestToSign(asked))
}

// QuoteSigned compares the Quote with what its consumer has signed.
func QuoteSigned(body []byte, asked *v1alpha1.Quote) (reason, message string) {
	return signed(body, quantitiesOfQuote, QuoteToSign(asked))
}

// AnswerSigned compares the status of the Request, whose statement has that sequence, with what the provider has signed.
func AnswerSigned(body []byte, asked *v1alpha1.Request, sequence int64) (reason, message string) {
	return signed(body, quantitiesOfAnswer, AnswerToSign(asked, sequence))
}

// OfferSigned compares the status of the Quote, whose statement has that sequence, with what the provider has signed.
func OfferSigned(body []byte, asked *v1alpha1.Quote, sequence int64) (reason, message string) {
	return signed(body, quantitiesOfOffer, OfferToSign(asked, sequence))
}

func signed[T any](body []byte, quantities sanitize.Quantities, lies T) (reason, message string) {
	var said T
	if err := readSigned(body, quantities, &said); err != nil {
		return v1alpha1.ReasonMalformed, err.Error()
	}
	if !equality.Semantic.DeepEqual(said, lies) {
		return v1alpha1.ReasonForged, changed
	}
	return "", ""
}

// RequestToSign is what the consumer signs of a Request.
func RequestToSign(asked *v1alpha1.Request) SignedRequest {
	spec := asked.Spec
	spec.Signed = nil
	return SignedRequest{Name: v1alpha1.OwnName(asked), Request: spec}
}

// AsRequest is the Request with that spec and this answer, as it would be at a peer.
func (a *SignedAnswer) AsRequest(spec *v1alpha1.RequestSpec) *v1alpha1.Request {
	said := metav1.Condition{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionFalse, Reason: a.Reason, Message: a.Message}
	if a.Acknowledged {
		said.Status = metav1.ConditionTrue
	}
	return &v1alpha1.Request{Spec: *spec, Status: v1alpha1.RequestStatus{
		Phase: a.Phase, Reserved: a.Reserved, Price: a.Price, ValidUntil: a.ValidUntil, Conditions: []metav1.Condition{said},
	}}
}

// QuoteToSign is what the consumer signs of a Quote.
func QuoteToSign(asked *v1alpha1.Quote) SignedQuote {
	spec := asked.Spec
	spec.Signed = nil
	return SignedQuote{Name: v1alpha1.OwnName(asked), Quote: spec}
}

// AnswerToSign is what the provider signs of the status of a Request, as the answer to the statement of that sequence.
func AnswerToSign(asked *v1alpha1.Request, sequence int64) SignedAnswer {
	status := &asked.Status
	answer := SignedAnswer{
		Name: v1alpha1.OwnName(asked), Request: sequence, Phase: status.Phase, Reserved: status.Reserved, Price: status.Price, ValidUntil: status.ValidUntil,
	}
	if said := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged); said != nil {
		answer.Acknowledged, answer.Reason, answer.Message = said.Status == metav1.ConditionTrue, said.Reason, sanitize.Text(said.Message, maxAnswer)
	}
	return answer
}

// OfferToSign is what the provider signs of the status of a Quote, as the answer to the statement of that sequence.
func OfferToSign(asked *v1alpha1.Quote, sequence int64) SignedOffer {
	return SignedOffer{Name: v1alpha1.OwnName(asked), Quote: sequence, Whole: asked.Status.Whole, Components: Terse(asked.Status.Components)}
}

// Terse are the offers without messages, so that they always fit into a statement.
func Terse(offers []v1alpha1.ComponentOffer) []v1alpha1.ComponentOffer {
	terse := slices.Clone(offers)
	for i := range terse {
		terse[i].Message = ""
	}
	return terse
}
