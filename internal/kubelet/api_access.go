package kubelet

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// How long an answer of the API server about who may use the kubelet API is believed.
const (
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
)

// access says who may use the kubelet API: those whom the cluster itself lets use the virtual Node, by the same
// subresources as at a kubelet. Nobody is anonymous.
type access struct {
	authenticator authenticator.Request
	authorizer    authorizer.UnconditionalAuthorizer
}

// newAccess asks the API server about tokens and rights, and takes client certificates of those authorities.
func newAccess(clients kubernetes.Interface, authorities dynamiccertificates.CAContentProvider) (access, error) {
	retries := &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4}
	authentication, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                           deniedFor,
		ClientCertificateCAContentProvider: authorities,
		TokenAccessReviewClient:            clients.AuthenticationV1(),
		TokenAccessReviewTimeout:           10 * time.Second,
		WebhookRetryBackoff:                retries,
	}.New()
	if err != nil {
		return access{}, fmt.Errorf("make authenticator: %w", err)
	}
	authorization, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: clients.AuthorizationV1(),
		AllowCacheTTL:             allowedFor,
		DenyCacheTTL:              deniedFor,
		WebhookRetryBackoff:       retries,
	}.New()
	if err != nil {
		return access{}, fmt.Errorf("make authorizer: %w", err)
	}
	return access{authenticator: authentication, authorizer: authorization}, nil
}

// check returns nil if whoever sends the request may do that to one of the subresources of the node.
func (a access) check(r *http.Request, node, verb string, subresources ...string) *refusal {
	who, known, err := a.authenticator.AuthenticateRequest(r)
	if err != nil || !known {
		return &refusal{status: http.StatusUnauthorized, message: "Unauthorized", err: err}
	}
	refused := &refusal{status: http.StatusForbidden, message: "Forbidden"}
	for _, subresource := range subresources {
		refused = a.authorize(r, who.User, node, verb, subresource)
		if refused == nil {
			return nil
		}
	}
	return refused
}

func (a access) authorize(r *http.Request, who user.Info, node, verb, subresource string) *refusal {
	decision, reason, err := a.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
		User:            who,
		Verb:            verb,
		APIVersion:      "v1",
		Resource:        "nodes",
		Subresource:     subresource,
		Name:            node,
		ResourceRequest: true,
		Path:            r.URL.Path,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return &refusal{status: http.StatusInternalServerError, message: "Cannot ask who may do this", err: err}
	}
	return &refusal{status: http.StatusForbidden, message: fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource=%s): %s", who.GetName(), verb, subresource, reason)}
}
