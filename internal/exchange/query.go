package exchange

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/internal/sanitize"
)

// queryImage is the key of images in the text of a query.
const queryImage = "image"

// A Query is a pod that a cluster is looked for.
type Query struct {
	// Request is what the pod asks for.
	Request corev1.ResourceList
	// Images are those of its containers.
	Images []string
}

// ParseQuery reads a query such as cpu=2,memory=4Gi,image=nginx. An image may be named more than once.
func ParseQuery(text string) (Query, error) {
	query := Query{Request: corev1.ResourceList{}}
	if strings.TrimSpace(text) == "" {
		return query, errors.New("name at least one resource or image, such as cpu=2,memory=4Gi,image=nginx")
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || key == "" || value == "" {
			return Query{}, fmt.Errorf("%s is not of the form name=value, such as cpu=2", quoted(part))
		}
		if key == queryImage {
			query.Images = append(query.Images, value)
			continue
		}
		if err := query.ask(corev1.ResourceName(key), value); err != nil {
			return Query{}, err
		}
	}
	return query, nil
}

func (q *Query) ask(name corev1.ResourceName, value string) error {
	if _, twice := q.Request[name]; twice {
		return fmt.Errorf("%s is named twice", quoted(string(name)))
	}
	if !validResource(name) {
		return fmt.Errorf("%s is not the name of a node's resource, such as cpu or example.com/gpu, and not image", quoted(string(name)))
	}
	quantity, err := parseQuantity(value)
	if err != nil {
		return fmt.Errorf("%s=%s: %w", name, quoted(value), err)
	}
	if problem := quantityProblem(name, quantity); problem != "" {
		return fmt.Errorf("%s=%s: %s", name, quoted(value), problem)
	}
	q.Request[name] = quantity
	return nil
}

// parseQuantity takes no text that would keep the parser busy.
func parseQuantity(text string) (resource.Quantity, error) {
	if !sanitize.Quantity(text) {
		return resource.Quantity{}, errUntamedQuantity
	}
	return resource.ParseQuantity(text)
}
