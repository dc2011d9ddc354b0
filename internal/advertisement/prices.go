package advertisement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// PricesConfigMap is the ConfigMap in Hanse's own namespace that says what resources cost, see exchange.ParsePrices.
const PricesConfigMap = "hanse-prices"

// priceTag is what is asked for.
type priceTag struct {
	prices  *v1alpha1.Prices
	old     bool // the setting is broken, and these are what was asked for last, changes by policies included
	unknown bool // the setting is broken, and nothing was asked for yet
}

// readPrices reads the setting. As long as it is broken, each consumer is asked for what it was asked for before.
func (p *Publisher) readPrices(ctx context.Context, said *v1alpha1.Advertisement) (priceTag, error) {
	setting := &corev1.ConfigMap{}
	err := p.client.Get(ctx, types.NamespacedName{Namespace: p.config.Namespace, Name: PricesConfigMap}, setting)
	if apierrors.IsNotFound(err) {
		return priceTag{}, nil
	}
	if err != nil {
		return priceTag{}, fmt.Errorf("read the prices: %w", err)
	}
	prices, err := exchange.ParsePrices(setting.Data)
	switch {
	case err == nil:
		return priceTag{prices: prices}, nil
	case said != nil:
		return priceTag{prices: said.Spec.Prices, old: true}, nil
	default:
		return priceTag{unknown: true}, nil
	}
}

func (p *Publisher) isPrices(object client.Object) bool {
	return object.GetNamespace() == p.config.Namespace && object.GetName() == PricesConfigMap
}

// onPrices has all consumers told of new prices, and tells the administrator if they are broken: once for each change,
// which is why it is done here and not where the prices are used.
func (p *Publisher) onPrices(ctx context.Context, object client.Object) []reconcile.Request {
	if setting, isConfigMap := object.(*corev1.ConfigMap); isConfigMap {
		if _, err := exchange.ParsePrices(setting.Data); err != nil {
			p.recorder.Eventf(setting, nil, corev1.EventTypeWarning, "InvalidPrices", "ReadPrices",
				"Consumers are asked for the prices of before, and new ones are offered nothing, until this is repaired: %s",
				bounded(err.Error()))
		}
	}
	return p.consumers(ctx)
}
