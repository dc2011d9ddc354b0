package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// What is believed of a peer's metrics at most. A value beyond is none.
const (
	maxPodUsages       = 20_000
	maxContainerUsages = 64 << 10 // bytes of the list of one pod's containers
	maxCores           = 1 << 16
	maxBytes           = 1 << 50
)

// errNoMetrics says that a peer has no metrics API, or does not let us use it.
var errNoMetrics = errors.New("the peer has no metrics API: metrics-server has to run there")

// usage is what a container uses at a moment.
type usage struct {
	cores, bytes float64
}

// plus returns the sum of both.
func (u usage) plus(other usage) usage {
	return usage{cores: u.cores + other.cores, bytes: u.bytes + other.bytes}
}

// podMetrics is what we read of a PodMetrics of metrics.k8s.io. Quantities are texts, since those of a peer can be such that
// they take minutes to decode.
type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Containers json.RawMessage `json:"containers"`
}

type containerMetrics struct {
	Name  string `json:"name"`
	Usage struct {
		CPU    string `json:"cpu"`
		Memory string `json:"memory"`
	} `json:"usage"`
}

// podsUsage asks the peer what the pods of a twin namespace use, and has each container of it told that makes sense. The
// link bounds the size and the duration of the answer.
func podsUsage(ctx context.Context, to *peers.Link, twin string, tell func(pod, container string, used usage)) error {
	base, _, err := rest.DefaultServerUrlFor(to.RESTConfig())
	if err != nil {
		return fmt.Errorf("address of peer: %w", err)
	}
	address := base.JoinPath("apis", "metrics.k8s.io", "v1beta1", "namespaces", twin, "pods").String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("ask for metrics: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := to.HTTPClient().Do(req)
	if err != nil {
		return fmt.Errorf("ask for metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read as far as it is wanted
	switch resp.StatusCode {
	case http.StatusOK:
		return decodeUsage(resp.Body, tell)
	case http.StatusNotFound, http.StatusForbidden:
		return errNoMetrics
	default:
		return fmt.Errorf("ask for metrics: status %d", resp.StatusCode)
	}
}

// decodeUsage reads a PodMetricsList piece by piece, so that a long one takes no more memory than a short one.
func decodeUsage(from io.Reader, tell func(pod, container string, used usage)) error {
	decoder := json.NewDecoder(from)
	found, err := enterItems(decoder)
	if err != nil {
		return fmt.Errorf("decode metrics: %w", err)
	}
	for i := 0; found && i < maxPodUsages && decoder.More(); i++ {
		pod := podMetrics{}
		if err := decoder.Decode(&pod); err != nil {
			return fmt.Errorf("decode metrics: %w", err)
		}
		tellContainers(pod, tell)
	}
	return nil
}

var errNoList = errors.New("it is no list")

// enterItems goes to the first element of the list's items. It reports whether there is such a list.
func enterItems(decoder *json.Decoder) (bool, error) {
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return false, errors.Join(errNoList, err)
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return false, err
		}
		if key != "items" {
			if err := decoder.Decode(&json.RawMessage{}); err != nil {
				return false, err
			}
			continue
		}
		token, err := decoder.Token()
		if err != nil || token != nil && token != json.Delim('[') {
			return false, errors.Join(errNoList, err)
		}
		return token != nil, nil
	}
	return false, nil
}

func tellContainers(pod podMetrics, tell func(pod, container string, used usage)) {
	var containers []containerMetrics
	if len(pod.Containers) > maxContainerUsages || json.Unmarshal(pod.Containers, &containers) != nil {
		return
	}
	for i := range containers {
		cores, sensible := amount(containers[i].Usage.CPU, maxCores)
		bytes, also := amount(containers[i].Usage.Memory, maxBytes)
		if sensible && also {
			tell(pod.Metadata.Name, containers[i].Name, usage{cores: cores, bytes: bytes})
		}
	}
}

// amount returns the quantity that the text is, if it is one from zero to most.
func amount(text string, most float64) (float64, bool) {
	if !sanitize.Quantity(text) {
		return 0, false
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	value := quantity.AsApproximateFloat64()
	return value, value >= 0 && value <= most
}
