// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Each pod checks from inside that it is what its author wrote, and says so in its log.
func TestEveryKindOfPod(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	for name, story := range map[string]struct {
		change func(pod *corev1.Pod)
		script string // prints what is expected
		want   string
	}{
		"init-containers": {
			change: func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				mount := []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
				pod.Spec.InitContainers = []corev1.Container{
					{Name: "one", Image: framework.BusyboxImage, Command: []string{"/bin/sh", "-c", "echo first > /shared/file"}, VolumeMounts: mount},
					{Name: "two", Image: framework.BusyboxImage, Command: []string{"/bin/sh", "-c", "echo second >> /shared/file"}, VolumeMounts: mount},
				}
				pod.Spec.Containers[0].VolumeMounts = mount
			},
			script: "cat /shared/file", want: "first\nsecond",
		},
		"sidecar": {
			change: func(pod *corev1.Pod) {
				pod.Spec.ShareProcessNamespace = ptr.To(true)
				pod.Spec.InitContainers = []corev1.Container{{
					Name: "helper", Image: framework.BusyboxImage, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
					Command: []string{"/bin/sh", "-c", "exec sleep 123456"},
				}}
			},
			script: "ps | grep -c '[s]leep 123456'", want: "1",
		},
		"own-fields": {
			change: func(pod *corev1.Pod) {
				field := func(name, path string) corev1.EnvVar {
					return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
				}
				pod.Spec.Containers[0].Env = []corev1.EnvVar{
					field("NAME", "metadata.name"), field("SPACE", "metadata.namespace"), field("NODE", "spec.nodeName"),
					field("ACCOUNT", "spec.serviceAccountName"), field("LABEL", "metadata.labels['app']"),
					{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
						Resource: "requests.cpu", Divisor: resource.MustParse("1m"),
					}}},
				}
			},
			script: "echo $NAME $SPACE $NODE $ACCOUNT $LABEL $CPU", want: "own-fields " + ns + " hanse-hamburg default own-fields 10",
		},
		"text-like-a-number": {
			change: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GIT_SHA", Value: "1e12345"}}
			},
			script: "echo $GIT_SHA", want: "1e12345",
		},
		"downward-volume": {
			change: func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "me", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
						{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
						{Path: "space", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
					}}}},
				}}}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "me", MountPath: "/me"}}
			},
			script: "echo $(cat /me/name) $(cat /me/space)", want: "downward-volume " + ns,
		},
		"hostname": {
			change: func(pod *corev1.Pod) {
				pod.Spec.Hostname, pod.Spec.Subdomain = "captain", "ship"
				pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"harbour"}}}
			},
			script: "hostname; grep harbour /etc/hosts | tr '\\t' ' '; grep -c captain.ship /etc/hosts", want: "captain\n192.0.2.7 harbour\n1",
		},
		"security-context": {
			change: func(pod *corev1.Pod) {
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{
					RunAsUser: ptr.To[int64](1234), RunAsGroup: ptr.To[int64](2345), SupplementalGroups: []int64{3456}, RunAsNonRoot: ptr.To(true),
				}
				pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
			},
			script: "id -u; id -G; touch /file 2>/dev/null || echo read-only", want: "1234\n2345 3456\nread-only",
		},
		"dns": {
			change: func(pod *corev1.Pod) {
				pod.Spec.DNSPolicy = corev1.DNSNone
				pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"port.example"}}
			},
			script: "cat /etc/resolv.conf", want: "search port.example\nnameserver 192.0.2.53",
		},
		"probes": {
			change: func(pod *corev1.Pod) {
				exec := func(command string) corev1.ProbeHandler {
					return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", command}}}
				}
				pod.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: exec("test -f /tmp/log"), PeriodSeconds: 1}
				pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: exec("true"), PeriodSeconds: 5}
				pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: exec("true"), PeriodSeconds: 1}
			},
			script: "touch /tmp/log; echo probed", want: "probed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := framework.NewShellPod(ns, name, story.script+"; "+strings.TrimPrefix(framework.RunForever, "trap 'exit 0' TERM; echo started; "))
			story.change(pod)
			lubeck.MustCreate(t, pod)
			home := lubeck.AwaitReadyPods(t, ns, name, 1)[0]
			framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
			framework.Eventually(t, "its log says that it is what it should be", func(ctx context.Context) error {
				out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, name, "-c", "main")
				if err == nil && strings.TrimSpace(out) != story.want {
					err = fmt.Errorf("it says %q, want %q", out, story.want)
				}
				return err
			})
		})
	}
}

func TestPodThatFailsAndIsRestarted(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "clumsy", "echo fell over > /dev/termination-log; exit 5")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	lubeck.MustCreate(t, pod)
	framework.Eventually(t, "home counts its restarts and tells why", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "clumsy")
		if err != nil {
			return err
		}
		for _, s := range now.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if s.RestartCount > 0 && last != nil && last.ExitCode == 5 && strings.Contains(last.Message, "fell over") {
				return nil
			}
		}
		return fmt.Errorf("%+v", now.Status.ContainerStatuses)
	})
	// Whoever looks for the log of the container that fell over finds it.
	if _, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "clumsy", "--previous"); err != nil {
		t.Error(err)
	}
}

func TestDeadlineEndsThePod(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "late", framework.RunForever)
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](5)
	lubeck.MustCreate(t, pod)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "later", framework.RunForever))
	lubeck.AwaitReadyPods(t, ns, "later", 1)
	if _, err := lubeck.Kubectl(t.Context(), "patch", "pod", "-n", ns, "later", "-p", `{"spec":{"activeDeadlineSeconds":5}}`); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"late", "later"} {
		framework.Eventually(t, name+" has failed because of its deadline", func(ctx context.Context) error {
			now, err := lubeck.GetPod(ctx, ns, name)
			if err == nil && (now.Status.Phase != corev1.PodFailed || now.Status.Reason != "DeadlineExceeded") {
				err = fmt.Errorf("%s %s", now.Status.Phase, now.Status.Reason)
			}
			return err
		})
	}
}

func TestControllersWork(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	once := framework.NewShellPodSpec("echo index $JOB_COMPLETION_INDEX")
	once.RestartPolicy = corev1.RestartPolicyNever
	jobSpec := batchv1.JobSpec{
		Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), CompletionMode: ptr.To(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{Spec: once},
	}
	t.Run("indexed Job", func(t *testing.T) {
		t.Parallel()
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "indexed"}, Spec: jobSpec}
		lubeck.MustCreate(t, job)
		framework.Eventually(t, "it is complete", func(ctx context.Context) error { return lubeck.CheckJobSucceeded(ctx, job, 3) })
		for index := range 3 {
			out, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "-l", fmt.Sprintf("batch.kubernetes.io/job-completion-index=%d,job-name=indexed", index))
			if err != nil || out != fmt.Sprintf("index %d\n", index) {
				t.Errorf("index %d says %q, %v", index, out, err)
			}
		}
	})
	t.Run("CronJob", func(t *testing.T) {
		t.Parallel()
		cron := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cron"},
			Spec:       batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec}},
		}
		lubeck.MustCreate(t, cron)
		if _, err := lubeck.Kubectl(t.Context(), "create", "job", "-n", ns, "by-cron", "--from=cronjob/cron"); err != nil {
			t.Fatal(err)
		}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "by-cron"}}
		framework.Eventually(t, "it is complete", func(ctx context.Context) error { return lubeck.CheckJobSucceeded(ctx, job, 3) })
	})
	t.Run("StatefulSet", func(t *testing.T) {
		t.Parallel()
		labels := map[string]string{"app": "ordered"}
		lubeck.MustCreate(t, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ordered"},
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](2), ServiceName: "ordered", Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: framework.NewShellPodSpec(framework.RunForever)},
			},
		})
		for _, home := range lubeck.AwaitReadyPods(t, ns, "ordered", 2) {
			out, err := lubeck.Kubectl(t.Context(), "exec", "-n", ns, home.Name, "--", "hostname")
			if err != nil || strings.TrimSpace(out) != home.Name {
				t.Errorf("%s says that it is %q, %v", home.Name, out, err)
			}
		}
	})
	t.Run("Deployment that is updated", func(t *testing.T) {
		t.Parallel()
		lubeck.MustCreate(t, framework.NewDeployment(ns, "rolling", 2, framework.NewShellPodSpec(framework.RunForever)))
		lubeck.AwaitReadyPods(t, ns, "rolling", 2)
		for _, args := range [][]string{
			{"set", "env", "-n", ns, "deployment/rolling", "VERSION=2"},
			{"rollout", "status", "-n", ns, "deployment/rolling", "--timeout=120s"},
		} {
			if _, err := lubeck.Kubectl(t.Context(), args...); err != nil {
				t.Error(err)
			}
		}
	})
}

// A scheduling gate holds a pod before it is placed, a readiness gate after it runs: both are home's.
func TestGatesAreOfHome(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "gated", framework.RunForever)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/wait"}}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/open"}}
	lubeck.MustCreate(t, pod)
	if _, err := lubeck.Kubectl(ctx, "patch", "pod", "-n", ns, "gated", "--type=json", `-p=[{"op":"remove","path":"/spec/schedulingGates"}]`); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "its containers are ready, and it waits for its gate", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "gated")
		if err == nil && (framework.PodConditionStatus(now, corev1.ContainersReady) != corev1.ConditionTrue || framework.IsPodReady(now)) {
			err = fmt.Errorf("%+v", now.Status.Conditions)
		}
		return err
	})
	opened := `{"status":{"conditions":[{"type":"example.org/open","status":"True"}]}}`
	if _, err := lubeck.Kubectl(ctx, "patch", "pod", "-n", ns, "gated", "--subresource=status", "-p", opened); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitReadyPods(t, ns, "gated", 1)
}

// ConfigMaps and Secrets that pods refer to come along, and so do their changes.
func TestConfigurationComesAlong(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "config"}, Data: map[string]string{"colour": "green", "file": "one"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "secret"}, StringData: map[string]string{"word": "anchor"}}
	unused := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "unused"}, StringData: map[string]string{"word": "rudder"}}
	lubeck.MustCreate(t, config)
	lubeck.MustCreate(t, secret)
	lubeck.MustCreate(t, unused)
	registry := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{}}`},
	}
	lubeck.MustCreate(t, registry)
	lubeck.MustCreate(t, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "puller"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	})
	pod := framework.NewShellPod(ns, "reader", "echo $COLOUR $word $(cat /config/file) $(cat /secret/word); "+strings.TrimPrefix(framework.RunForever, "trap 'exit 0' TERM; echo started; "))
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "colour",
	}}}}
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
		}}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}, {Name: "secret", MountPath: "/secret"}}
	pod.Spec.ServiceAccountName = "puller"
	lubeck.MustCreate(t, pod)
	home := lubeck.AwaitReadyPods(t, ns, "reader", 1)[0]
	remote := hamburg.MustGetRemotePod(t, &home)
	framework.ExpectSamePod(t, &home, remote)
	framework.Eventually(t, "what the service account pulls images with is there", func(ctx context.Context) error {
		copied := &corev1.Secret{}
		err := hamburg.Get(ctx, client.ObjectKey{Namespace: remote.Namespace, Name: registry.Name}, copied)
		if err == nil && copied.Type != corev1.SecretTypeDockerConfigJson {
			err = fmt.Errorf("it is of type %s", copied.Type)
		}
		return err
	})
	logSays(t, lubeck, ns, "reader", "green anchor one anchor\n")
	if err := hamburg.CheckGone(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: remote.Namespace, Name: "unused"}}); err != nil {
		t.Errorf("a Secret that no pod refers to: %v", err)
	}
	if _, err := lubeck.Kubectl(ctx, "patch", "configmap", "-n", ns, "config", "--type=merge", `-p={"data":{"file":"two"}}`); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the pod reads the new file", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "exec", "-n", ns, "reader", "--", "cat", "/config/file")
		if err == nil && out != "two" {
			err = fmt.Errorf("it reads %q", out)
		}
		return err
	})
	if err := lubeck.Delete(ctx, &home); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the copies are gone when nobody needs them", func(ctx context.Context) error {
		if err := hamburg.CheckGone(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: remote.Namespace, Name: "secret"}}); err != nil {
			return err
		}
		return hamburg.CheckGone(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: remote.Namespace, Name: "config"}})
	})
}
