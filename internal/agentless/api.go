package agentless

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/peers"
)

// API is the way to the API server of a peer. Two are equal when they are the same connection.
type API interface {
	Client() client.Client
	RESTConfig() *rest.Config
	HTTPClient() *http.Client
	TenantNamespace() string
	Done() <-chan struct{}
	// Mirror copies the selected objects until ctx or the connection ends.
	Mirror(ctx context.Context, example client.Object, of peers.Selection, changed func(types.NamespacedName)) (Mirror, error)
}

// Mirror is a copy of objects.
type Mirror interface {
	Get(key types.NamespacedName) (client.Object, bool)
	List() []client.Object
	HasSynced() bool
	WaitForSync(ctx context.Context) error
	Err() error
	// Failed returns a channel that is closed as soon as Err is not nil.
	Failed() <-chan struct{}
}

// Over returns the API at the end of a link.
func Over(link *peers.Link) API { return overLink{link} }

type overLink struct{ *peers.Link }

// Mirror implements API.
func (l overLink) Mirror(
	ctx context.Context, example client.Object, of peers.Selection, changed func(types.NamespacedName),
) (Mirror, error) {
	made, err := l.WatchSelected(ctx, example, of, changed)
	if err != nil {
		return nil, err
	}
	return made, nil
}
