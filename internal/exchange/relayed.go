package exchange

import (
	"cmp"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// maxQuoteName bounds the name of a relayed Quote: the provider has it behind the id of the cluster that asks, in a name of an object.
	maxQuoteName = 63
	// maxRelayed is how many components are asked for at most, as the definition of Quotes says.
	maxRelayed = 24
)

// A RelayedQuote is the body of a statement by which one member of a broker asks another for an offer.
type RelayedQuote struct {
	// Name is that of the Quote, and of the Request that may follow when the two are peers.
	Name string `json:"name"`
	// Quote is what is asked.
	Quote v1alpha1.QuoteSpec `json:"quote"`
}

// A RelayedOffer is the body of the statement that answers one.
type RelayedOffer struct {
	// Quote is the sequence of the statement that it answers.
	Quote int64 `json:"quote"`
	// Whole is the offer for all components together, and Components are those for each.
	Whole      *v1alpha1.Offer           `json:"whole"`
	Components []v1alpha1.ComponentOffer `json:"components,omitempty"`
}

var (
	quantitiesOfQuote = sanitize.QuantitiesIn(reflect.TypeFor[RelayedQuote]())
	quantitiesOfOffer = sanitize.QuantitiesIn(reflect.TypeFor[RelayedOffer]())
)

// ReadRelayedQuote reads what a member asks for. All else is checked as of any other Quote, when one is made of it, and when it is answered.
func ReadRelayedQuote(body []byte) (*RelayedQuote, error) {
	asked := &RelayedQuote{}
	if err := readRelayed(body, quantitiesOfQuote, asked); err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Label(asked.Name); len(problems) > 0 || len(asked.Name) > maxQuoteName {
		return nil, fmt.Errorf("body.name: %s is no name of a Quote", quoted(asked.Name))
	}
	if len(asked.Quote.Components) > maxRelayed {
		return nil, fmt.Errorf("body.quote.components: there are %d, and may be %d", len(asked.Quote.Components), maxRelayed)
	}
	for i, c := range asked.Quote.Components {
		if err := judgeResources(fmt.Sprintf("body.quote.components[%d].resources", i), c.Resources); err != nil {
			return nil, err
		}
	}
	return asked, nil
}

// ReadRelayedOffer reads what a member offers. Whether that makes sense CheckOffer says.
func ReadRelayedOffer(body []byte) (*RelayedOffer, error) {
	offer := &RelayedOffer{}
	if err := readRelayed(body, quantitiesOfOffer, offer); err != nil {
		return nil, err
	}
	if offer.Whole == nil || len(offer.Components) > maxRelayed {
		return nil, fmt.Errorf("body: it is an offer for the whole, and for at most %d components", maxRelayed)
	}
	return offer, nil
}

func readRelayed(body []byte, quantities sanitize.Quantities, into any) error {
	// Names in another case would be read, and not be checked before.
	if err := cmp.Or(quantities.Check(body), kjson.UnmarshalCaseSensitivePreserveInts(body, into)); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}
