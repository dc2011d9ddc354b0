// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestAPodBecomesAReplicaSetOfOne(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	set := w.replicaSet()
	own := map[string]string{v1alpha1.LabelAgentless: peerID, v1alpha1.LabelHomeUID: "home-uid-1"}
	if diff := cmp.Diff(own, set.Spec.Selector.MatchLabels); diff != "" {
		t.Error(diff)
	}
	if *set.Spec.Replicas != 1 || set.Spec.Template.Spec.Hostname != "web-0" || set.Spec.Template.Labels["app"] != "web" {
		t.Errorf("it is not the pod of home: %+v", set.Spec)
	}
	if len(set.Spec.Template.Name+set.Spec.Template.Namespace) > 0 || set.OwnerReferences != nil {
		t.Error("the template has a name or an owner")
	}
}

func TestTheStatusOfThePodIsThatOfTheShadowPod(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	set := w.replicaSet()
	w.run(set, "web-0-abcde", corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	seen := w.shadow()
	if seen.Spec.HomeUID != "home-uid-1" || seen.UID != set.UID || seen.Annotations["hanse.dev/home-revision"] != "1" {
		t.Errorf("the ShadowPod is another one: %+v", seen.ObjectMeta)
	}
	if seen.Status.Phase != "Running" || w.told().Phase != corev1.PodRunning ||
		!meta.IsStatusConditionTrue(seen.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("it runs, and the ShadowPod says %+v", seen.Status)
	}
	remote, found := w.link.RemotePod(seen)
	if want := (types.NamespacedName{Namespace: there, Name: "web-0-abcde"}); !found || remote != want {
		t.Errorf("the pod is %v, want %v", remote, want)
	}
}

func TestAPodThatIsNotRestartedBecomesAJobOfOne(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, func(template *corev1.PodTemplateSpec) {
		never(template)
		template.Labels = map[string]string{"job-name": "once", batchv1.ControllerUidLabel: "home", "app": "once"}
	}))
	job := w.job()
	if labels := job.Spec.Template.Labels; labels["job-name"] != "" || labels[batchv1.ControllerUidLabel] != "" || labels["app"] != "once" {
		t.Errorf("its pod has labels %v", labels)
	}
	if *job.Spec.Completions != 1 || *job.Spec.BackoffLimit != 0 || *job.Spec.PodReplacementPolicy != batchv1.Failed {
		t.Errorf("the Job may run it more than once: %+v", job.Spec)
	}
	rule := job.Spec.PodFailurePolicy.Rules[0]
	if rule.Action != batchv1.PodFailurePolicyActionIgnore || rule.OnPodConditions[0].Type != corev1.DisruptionTarget {
		t.Errorf("a disruption ends it: %+v", rule)
	}
	w.run(job, "web-0-abcde", corev1.PodFailed, func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3}
	})
	if got := w.told(); got.Phase != corev1.PodFailed || w.shadow().Status.Phase != "Failed" {
		t.Errorf("it has failed, and home is told %s", got.Phase)
	}
}

func TestWhatAClusterWithoutHanseCannotHoldIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.PodTemplateSpec)
		says   string
	}{
		"restarted on failure": {
			func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }, "OnFailure",
		},
		"restarted until a deadline": {
			func(p *corev1.PodTemplateSpec) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) }, "activeDeadlineSeconds",
		},
		"a host network": {func(p *corev1.PodTemplateSpec) { p.Spec.HostNetwork = true }, "hostNetwork"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			err := w.link.Client().Create(t.Context(), shadow(t, test.change))
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a refusal that says %q", err, test.says)
			}
			if w.shadow() != nil {
				t.Error("there is something of it")
			}
		})
	}
}

func TestWhatOnlyTheClusterOfItsAuthorHasIsRefused(t *testing.T) {
	projected := func(source corev1.VolumeProjection) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}},
		}}}}
	}
	named := corev1.LocalObjectReference{Name: "kube-root-ca.crt"}
	for says, spec := range map[string]corev1.PodSpec{
		"projects more":      projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}),
		"kube-root-ca.crt":   projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named}}),
		"set spec.hostname.": {},
	} {
		name := "web-0"
		if len(spec.Volumes) == 0 {
			name = "web.v1"
		}
		if got := refusal(name, &spec); !strings.Contains(got+".", says) {
			t.Errorf("got %q, want %q", got, says)
		}
	}
	if got := refusal("web.v1", &corev1.PodSpec{Hostname: "web"}); got != "" {
		t.Errorf("a name that is no host name, with one: got %q", got)
	}
}

func TestDeletionEndsThePodWithTheGraceOfHome(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	set := w.replicaSet()
	pod := w.run(set, "web-0-abcde", corev1.PodRunning, held)
	w.giveGrace(5)
	if got := w.shadow().Spec.DeletionGracePeriodSeconds; got == nil || *got != 5 {
		t.Errorf("the grace is %v", got)
	}
	err := w.end("another")
	if deletions := w.deletions(); !apierrors.IsConflict(err) || len(deletions) > 0 {
		t.Errorf("deleting another one gives %v and deletes %v", err, deletions)
	}
	if err := w.end(set.UID); err != nil {
		t.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	want := []client.DeleteOptions{
		{PropagationPolicy: &foreground, Preconditions: metav1.NewUIDPreconditions(string(set.UID))},
		{GracePeriodSeconds: ptr.To[int64](5), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	if diff := cmp.Diff(want, w.deletions()); diff != "" {
		t.Errorf("deletions: %s", diff)
	}
	if w.shadow().DeletionTimestamp.IsZero() || w.told().Phase != corev1.PodRunning {
		t.Errorf("while it ends home is told %+v", w.shadow())
	}
	w.giveGrace(1)
	if last := w.deletions(); len(last) != 1 || *last[0].GracePeriodSeconds != 1 {
		t.Errorf("a shorter grace is not carried: %+v", last)
	}
}

func TestAShadowPodLastsUntilItsPodIsGone(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	pod := w.run(w.replicaSet(), "web-0-abcde", corev1.PodRunning, held)
	if err := w.end(w.replicaSet().UID); err != nil {
		t.Fatal(err)
	}
	if err := w.link.Client().Get(t.Context(), web, &v1alpha1.ShadowPod{}); err != nil {
		t.Errorf("asked for while it ends: %v", err)
	}
	// The garbage collector of the peer lets the ReplicaSet go last.
	for _, object := range []client.Object{pod, w.replicaSet()} {
		object.SetFinalizers(nil)
		w.cluster.Put(object)
	}
	if w.shadow() != nil {
		t.Error("the ShadowPod is still there")
	}
	if err := w.link.Client().Get(t.Context(), web, &v1alpha1.ShadowPod{}); !apierrors.IsNotFound(err) {
		t.Errorf("asked for what is gone: %v", err)
	}
}

func TestAPodOfTheSameNameWaitsForTheOneBefore(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	next := shadow(t, never) // a Job, whose name the ReplicaSet does not stand against
	next.Spec.HomeUID = "home-uid-2"
	if err := w.link.Client().Create(t.Context(), next); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
	found := &v1alpha1.ShadowPod{}
	if err := w.link.Client().Get(t.Context(), web, found); err != nil || found.Spec.HomeUID != "home-uid-1" {
		t.Errorf("got %v, %v", found.Spec.HomeUID, err)
	}
}

func TestChangesGoToThePodAndItsTemplate(t *testing.T) {
	w := newWorld(t)
	cpu := func(amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}}
	}
	w.create(shadow(t, func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Resources = cpu("1") }))
	pod := w.run(w.replicaSet(), "web-0-aaaaa", corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Labels["theirs"] = "stays"
	})
	changed := w.shadow().DeepCopy()
	changed.Spec.Pod = shadow(t, func(p *corev1.PodTemplateSpec) {
		p.Labels = map[string]string{"tier": "front"}
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Resources = "registry.example/web:2", cpu("2")
	}).Spec.Pod
	changed.Annotations["hanse.dev/home-revision"] = "2"
	if err := w.link.Client().Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	pod = testkit.Get[corev1.Pod](w.cluster, there, pod.Name)
	want := map[string]string{
		"tier": "front", "theirs": "stays", v1alpha1.LabelAgentless: peerID, v1alpha1.LabelHomeUID: "home-uid-1",
	}
	if diff := cmp.Diff(want, pod.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	requests := pod.Spec.Containers[0].Resources.Requests
	if pod.Spec.Containers[0].Image != "registry.example/web:2" || requests.Cpu().String() != "2" {
		t.Errorf("the pod has %+v", pod.Spec.Containers[0])
	}
	template := w.replicaSet().Spec.Template
	if template.Spec.Containers[0].Image != "registry.example/web:2" || template.Labels["app"] != "" {
		t.Errorf("the template has %+v", template)
	}
	if got := w.shadow().Annotations["hanse.dev/home-revision"]; got != "2" {
		t.Errorf("the revision is %q", got)
	}
}

// A webhook of that cluster has changed the image. It stays until home asks for another one, and for the first one again.
func TestWhatThatClusterChangedStays(t *testing.T) {
	for name, kind := range map[string]func(*corev1.PodTemplateSpec){"ReplicaSet": nil, "Job": never} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			asked := func(image, label string) func(*corev1.PodTemplateSpec) {
				return func(p *corev1.PodTemplateSpec) {
					if kind != nil {
						kind(p)
					}
					p.Spec.Containers[0].Image, p.Labels = image, map[string]string{"label": label}
				}
			}
			w.create(shadow(t, asked("web:1", "a")))
			owner := client.Object(&appsv1.ReplicaSet{})
			if kind != nil {
				owner = &batchv1.Job{}
			}
			w.cluster.Get(owner, there, remoteName(peerID, web))
			w.run(owner, "web-0-aaaaa", corev1.PodRunning, func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "mirror/web:1" })
			for _, step := range []struct{ image, label, want string }{
				{"web:1", "b", "mirror/web:1"}, {"web:2", "b", "web:2"}, {"web:1", "b", "web:1"},
			} {
				changed := w.shadow().DeepCopy()
				changed.Spec.Pod = shadow(t, asked(step.image, step.label)).Spec.Pod
				if err := w.link.Client().Update(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
				pod := testkit.Get[corev1.Pod](w.cluster, there, "web-0-aaaaa")
				if got := pod.Spec.Containers[0].Image; got != step.want || pod.Labels["label"] != step.label {
					t.Errorf("home asks for %s: the pod has %s, label %s", step.image, got, pod.Labels["label"])
				}
			}
		})
	}
}

func TestWhatOthersHaveMadeIsNotOurs(t *testing.T) {
	labels := map[string]string{v1alpha1.LabelAgentless: peerID, v1alpha1.LabelHomeUID: "u"}
	origin := map[string]string{v1alpha1.AnnotationHomeNamespace: web.Namespace, v1alpha1.AnnotationHomePod: web.Name}
	w := newWorld(t,
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "copied", Labels: labels, Annotations: origin}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: there, Name: remoteName(peerID, web), Labels: map[string]string{v1alpha1.LabelAgentless: "other"}, Annotations: origin,
		}},
	)
	if seen := w.shadow(); seen != nil {
		t.Errorf("it is taken for ours: %+v", seen)
	}
}

func TestEveryNamespaceHasATwin(t *testing.T) {
	w := newWorld(t)
	mapping := w.link.Mapping("blog")
	if w.link.Twin("blog") != "blog" || !meta.IsStatusConditionTrue(mapping.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("got %+v", mapping)
	}
	w.create(shadow(t, nil))
	if diff := cmp.Diff([]string{"shop"}, w.link.Leftovers()); diff != "" {
		t.Errorf("namespaces of which there is something: %s", diff)
	}
}

func TestALinkThatFailsSaysSo(t *testing.T) {
	w := newWorld(t)
	m := w.link.FollowTwin(records, web.Namespace)
	if m.Err() != nil || !m.HasSynced() || w.link.Err() != nil {
		t.Error("it is not in order")
	}
	w.remote.Cut()
	if !errors.Is(m.Err(), peers.ErrCut) {
		t.Errorf("got %v", m.Err())
	}
	w.remote.Heal()
	if err := w.link.Err(); err != nil {
		t.Errorf("after it was healed it says %v", err)
	}
}

func TestALinkIsTheSameUntilSomethingChanges(t *testing.T) {
	w := newWorld(t)
	if w.Link(peer()) != w.link {
		t.Error("nothing has changed, and there is another link")
	}
	changed := peer()
	changed.Spec.Namespaces = []string{"b"}
	if w.Link(changed) == w.link {
		t.Error("the namespaces have changed, and there is no other link")
	}
	<-w.link.Done()
	unnamed := peer()
	unnamed.Spec.ClusterID = ""
	if _, err := w.Links.Ensure(t.Context(), unnamed); !errors.Is(err, errUnnamed) {
		t.Errorf("a peer without an id gives %v", err)
	}
}

// A controller may follow a twin as soon as it hears that all is known, while the feed that told it still does.
func TestWhatIsShownMayMakeAControllerFollowMore(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	other := peerstest.New(t, testkit.Scheme(), peers.Config{Adapt: Adapt})
	other.Add(peerName, v1alpha1.TenantNamespace(peerName), w.remote.Client)
	synced := make(chan struct{}, 1)
	source := peers.Changes(other.Links, peers.Mappings, func(_ context.Context, change peers.Change, _ peers.Queue[string]) {
		for _, home := range change.Link.Leftovers() {
			change.Link.FollowTwin(records, home)
		}
		synced <- struct{}{}
	})
	if err := source.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	link := other.Link(peer())
	link.Mappings()
	select {
	case <-synced:
	case <-time.After(time.Minute):
		t.Fatal("nobody is told that all is known")
	}
	if err := link.FollowTwin(records, web.Namespace).WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestALinkKeepsRecords(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	w.run(w.replicaSet(), "web-0-aaaaa", corev1.PodFailed, nil)
	w.run(w.replicaSet(), "web-0-bbbbb", corev1.PodRunning, nil)
	other := peerstest.New(t, testkit.Scheme(), peers.Config{Adapt: Adapt})
	other.Add(peerName, v1alpha1.TenantNamespace(peerName), w.remote.Client)
	other.Link(peer())
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return w.replicaSet().Annotations[v1alpha1.AnnotationRecord] != "", nil
	})
	if err != nil {
		t.Fatalf("nobody has kept the record: %v", err)
	}
}

func TestVersionsNeverGoBack(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	pod := w.run(w.replicaSet(), "web-0-aaaaa", corev1.PodRunning, nil)
	for range 5 {
		pod.Status.Message += "."
		w.cluster.Put(pod)
	}
	before := versionOf(w.shadow())
	w.cluster.Remove(pod)
	if after := versionOf(w.shadow()); after < before {
		t.Errorf("the version went from %d to %d", before, after)
	}
}

func TestNamesDoNotMeet(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{peerID, v1alpha1.AgentlessClusterID("visby", peerName)} {
		for _, home := range []types.NamespacedName{
			{Namespace: "shop", Name: "web-0"},
			{Namespace: "blog", Name: "web-0"},
			{Namespace: "shop", Name: strings.Repeat("long", 60)},
			{Namespace: "shop", Name: strings.Repeat("long", 61)},
		} {
			name := remoteName(id, home)
			if seen[name] || len(name) > 52 {
				t.Errorf("%v: name %q is taken or too long", home, name)
			}
			seen[name] = true
		}
	}
	if len(peerID) > 30 {
		t.Errorf("cluster id %q is too long", peerID)
	}
}
