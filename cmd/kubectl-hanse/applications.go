// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/install"
)

// errUnplaced is returned by a verb that waits for an application that gets no place.
var errUnplaced = errors.New("not placed")

func newApplicationsCommand(global *globalFlags) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "applications",
		Short: "Show which applications run elsewhere, and what peers have reserved here",
		Long: "Shows two tables: the Applications of this cluster, with where their components are and what they cost for an hour, and what\n" +
			"peers have reserved here for theirs. With -n only those of that namespace, and nothing of peers.",
		Example: `  kubectl hanse applications
  kubectl hanse applications -n shop -o json | jq '.ours[].where'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.within(command, 30*time.Second, func(ctx context.Context, c *connection) error {
				view, err := viewApplications(ctx, c.client, global.namespace)
				if err != nil {
					return err
				}
				now := clock.RealClock{}.Now()
				return show(command.OutOrStdout(), view, output, func(d *document) { view.print(d, now) })
			})
		},
	}
	command.Flags().VarP(oneOf(&output, "json", "yaml"), "output", "o", "json or yaml; by default text")
	return command
}

// applicationsView is what `applications` shows. Its JSON is for scripts: fields are added, never renamed.
type applicationsView struct {
	Ours   []applicationView `json:"ours"`
	Theirs []requestView     `json:"theirs"`
}

// applicationView is an application of ours.
type applicationView struct {
	Namespace string                    `json:"namespace"`
	Name      string                    `json:"name"`
	Phase     v1alpha1.ApplicationPhase `json:"phase"`
	Where     string                    `json:"where,omitempty"`
	Ready     int32                     `json:"ready"`    // pods
	Replicas  int32                     `json:"replicas"` // for which there is room
	Price     *v1alpha1.Price           `json:"price,omitempty"`
	Since     metav1.Time               `json:"since"`
	Message   string                    `json:"message,omitempty"`
}

// requestView is what a peer has reserved here.
type requestView struct {
	Peer        string                `json:"peer"`
	Member      string                `json:"member,omitempty"` // that has asked through the peer, its broker
	Application string                `json:"application"`
	UID         string                `json:"uid"`
	Components  []string              `json:"components"`
	Phase       v1alpha1.RequestPhase `json:"phase"`
	Price       *v1alpha1.Price       `json:"price,omitempty"`
	Since       metav1.Time           `json:"since"`
	ValidUntil  *metav1.Time          `json:"validUntil,omitempty"`
}

func viewApplications(ctx context.Context, c client.Client, namespace string) (applicationsView, error) {
	view := applicationsView{Ours: []applicationView{}, Theirs: []requestView{}}
	apps := &v1alpha1.ApplicationList{}
	if err := c.List(ctx, apps, client.InNamespace(namespace)); err != nil {
		return view, fmt.Errorf("list Applications: %w", err)
	}
	for i := range apps.Items {
		view.Ours = append(view.Ours, viewApplication(&apps.Items[i]))
	}
	if namespace != "" {
		return view, nil
	}
	requests := &v1alpha1.RequestList{}
	if err := c.List(ctx, requests); err != nil {
		return view, fmt.Errorf("list Requests: %w", err)
	}
	for i := range requests.Items {
		view.Theirs = append(view.Theirs, viewRequest(&requests.Items[i]))
	}
	return view, nil
}

func viewApplication(app *v1alpha1.Application) applicationView {
	view := applicationView{
		Namespace: app.Namespace, Name: app.Name, Phase: cmp.Or(app.Status.Phase, v1alpha1.ApplicationPending),
		Where: app.Status.Where, Price: app.Status.Price, Since: app.CreationTimestamp,
	}
	for _, c := range app.Status.Components {
		view.Ready += c.ReadyReplicas
		view.Replicas += c.Replicas
	}
	if placed := meta.FindStatusCondition(app.Status.Conditions, v1alpha1.ConditionPlaced); placed != nil {
		view.Since, view.Message = placed.LastTransitionTime, placed.Message
	}
	return view
}

func viewRequest(request *v1alpha1.Request) requestView {
	view := requestView{
		Peer: strings.TrimPrefix(request.Namespace, v1alpha1.TenantNamespace("")), Member: request.Labels[v1alpha1.LabelFrom],
		Application: request.Spec.Application.Name, UID: string(request.Spec.Application.UID),
		Phase: cmp.Or(request.Status.Phase, v1alpha1.RequestPending), Price: request.Status.Price,
		Since: request.CreationTimestamp, ValidUntil: request.Status.ValidUntil,
	}
	for _, c := range request.Spec.Components {
		view.Components = append(view.Components, fmt.Sprintf("%s %d", c.Name, c.Replicas))
	}
	return view
}

func (v *applicationsView) print(d *document, now time.Time) {
	ours := [][]string{{"NAMESPACE", "NAME", "PHASE", "COMPONENTS", "READY", "PRICE/H", "SINCE"}}
	for _, app := range v.Ours {
		ours = append(ours, []string{
			app.Namespace, app.Name, string(app.Phase), orElse(app.Where, none), fmt.Sprintf("%d/%d", app.Ready, app.Replicas), priceText(app.Price), sinceText(app.Since, now),
		})
	}
	if len(v.Ours) == 0 {
		d.printf("There are no Applications: `kubectl hanse request` creates one.\n")
	} else {
		d.table(ours...)
	}
	theirs := [][]string{{"PEER", "APPLICATION", "COMPONENTS", "PHASE", "PRICE/H", "SINCE", "ENDS IN"}}
	for _, r := range v.Theirs {
		ends := none
		if r.ValidUntil != nil && r.Phase == v1alpha1.RequestAcknowledged {
			ends = duration.HumanDuration(r.ValidUntil.Sub(now))
		}
		theirs = append(theirs, []string{
			asker(&r), orElse(r.Application, r.UID), strings.Join(r.Components, ", "), string(r.Phase), priceText(r.Price), sinceText(r.Since, now), ends,
		})
	}
	d.section("Reserved here by peers:\n", theirs...)
}

// asker is who has reserved it, and through which broker.
func asker(request *requestView) string {
	if request.Member != "" {
		return throughBroker(request.Member, request.Peer)
	}
	return request.Peer
}

func priceText(price *v1alpha1.Price) string {
	if price == nil {
		return none
	}
	amount := price.Amount.DeepCopy()
	return exchange.Digits(amount.AsDec()) + " " + price.Currency
}

func sinceText(since metav1.Time, now time.Time) string {
	return duration.HumanDuration(now.Sub(since.Time))
}

// requestFlags are those of `request`.
type requestFlags struct {
	waitFlags
	file string
}

func newRequestCommand(global *globalFlags) *cobra.Command {
	flags := &requestFlags{}
	command := &cobra.Command{
		Use:   "request -f FILE",
		Short: "Have applications placed as a whole, where their room is reserved",
		Long: "Creates the Applications in a file, or changes them, and waits until each of their components has its room. The namespace must\n" +
			"be offloaded. When the command has ended, also with --wait=false, pods of the components that are created wait for their place.\n" +
			"The exit code is 1 if one gets no place in time: the command says why each cluster is unsuitable, and the\n" +
			"manager goes on looking for a place until the Application is deleted.",
		Example: `  kubectl hanse request -f app.yaml -n shop
  kubectl hanse request -f - --wait=false < app.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				apps, err := readApplications(command, flags.file, c.namespace)
				if err != nil {
					return err
				}
				return runRequest(ctx, command, c.client, apps, flags.wait)
			})
		},
	}
	command.Flags().StringVarP(&flags.file, "filename", "f", "", "the file with the Applications, - for the standard input")
	_ = command.MarkFlagRequired("filename") // it is there
	flags.bind(command.Flags(), 2*time.Minute, "every component has its room")
	return command
}

// readApplications reads the Applications of a file. Those that name no namespace are for the one that the command is about.
func readApplications(command *cobra.Command, file, namespace string) (apps []*v1alpha1.Application, err error) {
	var content []byte
	if file == "-" {
		content, err = io.ReadAll(command.InOrStdin())
	} else {
		content, err = os.ReadFile(file) //nolint:gosec // the user names it
	}
	if err != nil {
		return nil, fmt.Errorf("read --filename: %w", err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(bytes.Trim(text, "- \n")) == 0 {
			continue
		}
		app := &v1alpha1.Application{}
		if err := yaml.UnmarshalStrict(text, app); err != nil {
			return nil, fmt.Errorf("%s: an Application: %w", file, err)
		}
		if app.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("Application") {
			return nil, fmt.Errorf("%s: it has kind %s of %s, and only kind Application of %s can be requested",
				file, orElse(app.Kind, "nothing"), orElse(app.APIVersion, "nothing"), v1alpha1.GroupVersion)
		}
		app.Namespace = orElse(app.Namespace, namespace)
		apps = append(apps, app)
	}
	if len(apps) == 0 {
		return nil, fmt.Errorf("%s: there is no Application in it", file)
	}
	return apps, nil
}

func runRequest(ctx context.Context, command *cobra.Command, c client.Client, apps []*v1alpha1.Application, wait bool) error {
	for _, app := range apps {
		wanted := app.DeepCopy()
		err := write(ctx, c, app, func() error {
			app.Spec = wanted.Spec
			for key, value := range wanted.Labels {
				metav1.SetMetaDataLabel(&app.ObjectMeta, key, value)
			}
			for key, value := range wanted.Annotations {
				metav1.SetMetaDataAnnotation(&app.ObjectMeta, key, value)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := awaitKnown(ctx, command, c, app); err != nil {
			return err
		}
	}
	if !wait {
		return say(command, "%d applications are to be placed: see `kubectl hanse applications`.\n", len(apps))
	}
	var failed []error
	for _, app := range apps {
		failed = append(failed, awaitPlaced(ctx, command, c, app))
	}
	return errors.Join(failed...)
}

// awaitKnown waits until admission is told of the components: pods that are created before that do not wait for their place.
func awaitKnown(ctx context.Context, command *cobra.Command, c client.Client, app *v1alpha1.Application) error {
	offloading := offloadingOf(app.Namespace)
	return install.Until(ctx, "pods of Application "+app.Name+" to wait for their place", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(offloading), offloading)
		if apierrors.IsNotFound(err) {
			reporter(command)("Namespace %s is not offloaded, so no pod leaves it: kubectl hanse offload %s", app.Namespace, app.Namespace)
			return true, nil
		}
		if offloading.Spec.Strategy == v1alpha1.StrategyLocal {
			return err == nil, err
		}
		placement := offloading.Status.Placement
		return err == nil && placement != nil && !slices.ContainsFunc(app.Spec.Components, func(component v1alpha1.ApplicationComponent) bool {
			return !slices.ContainsFunc(placement.Classes, func(class v1alpha1.PlacementClassStatus) bool {
				return class.Name == app.Name+"/"+component.Name
			})
		}), err
	})
}

// awaitPlaced waits until the application is placed, and says where. If it is not placed in time it says why each cluster is unsuitable.
func awaitPlaced(ctx context.Context, command *cobra.Command, c client.Client, app *v1alpha1.Application) error {
	told := &progress{report: reporter(command)}
	err := install.Until(ctx, "Application "+app.Name+" to be placed", func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
			return false, err
		}
		view := viewApplication(app)
		current := app.Status.ObservedGeneration == app.Generation
		if current && app.Status.Phase != v1alpha1.ApplicationPlaced {
			told.tell(fmt.Sprintf("%s: %s: %s", app.Name, view.Phase, view.Message))
		}
		return current && app.Status.Phase == v1alpha1.ApplicationPlaced, nil
	})
	if err == nil {
		return say(command, "%s is placed: %s%s\n", app.Name, app.Status.Where, forPrice(app.Status.Price))
	}
	if ctx.Err() == nil || app.Status.Phase == "" {
		return err
	}
	for _, u := range app.Status.Unsuitable {
		reporter(command)("  %s does not fit in %s: %s", u.Component, orElse(u.Peer, "this cluster"), u.Message)
	}
	return fmt.Errorf("%w in time: Application %s is %s", errUnplaced, app.Name, app.Status.Phase)
}

func forPrice(price *v1alpha1.Price) string {
	if price == nil {
		return ""
	}
	return ", for " + priceText(price) + " an hour"
}
