// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Of what a kubelet gives a pod of its own cluster, the remote pod finds home's in a Secret of its own: tokens of its service
// account, each under the Key of the Token, and under these keys the certificates of home's API server and home's namespace.
const (
	KeyRootCertificates = "ca.crt"
	KeyNamespace        = "namespace"
)

// tokenVolumePrefix begins the name of the volume that Kubernetes adds for the token of a pod's service account.
const tokenVolumePrefix = "kube-api-access-"

// defaultTokenSeconds is for how long Kubernetes asks where the author of the pod does not say.
const defaultTokenSeconds = 3600

// TokenSecret returns the name of that Secret of the home pod with the UID.
func TokenSecret(pod types.UID) string { return TokenSecretPrefix + string(pod) }

// TokenSecretPrefix begins the name of each TokenSecret.
const TokenSecretPrefix = "hanse-token-"

// A Token is one of its service account that a pod has in its files.
type Token struct {
	Audience string // "" is the API server
	Seconds  int64  // for how long it is asked for
}

// Key is the token's in the TokenSecret. It is the same for equal tokens.
func (t Token) Key() string {
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%d %s", t.Seconds, t.Audience) // a hash never fails
	return fmt.Sprintf("token-%016x", sum.Sum64())
}

func tokenOf(p *corev1.ServiceAccountTokenProjection) Token {
	return Token{Audience: p.Audience, Seconds: ptr.Deref(p.ExpirationSeconds, defaultTokenSeconds)}
}

// Tokens returns those that the pod has in its files, each once.
func Tokens(spec *corev1.PodSpec) []Token {
	var found []Token
	for i := range spec.Volumes {
		for _, source := range projections(&spec.Volumes[i]) {
			if p := source.ServiceAccountToken; p != nil && !slices.Contains(found, tokenOf(p)) {
				found = append(found, tokenOf(p))
			}
		}
	}
	return found
}

func projections(v *corev1.Volume) []corev1.VolumeProjection {
	if v.Projected == nil {
		return nil
	}
	return v.Projected.Sources
}

func projectsToken(v *corev1.Volume) bool {
	return slices.ContainsFunc(projections(v), func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

func isTokenVolume(v *corev1.Volume) bool {
	return v.Projected != nil && strings.HasPrefix(v.Name, tokenVolumePrefix)
}

// SkipsToken says whether the author of the pod wants no token of its service account taken to a provider.
func SkipsToken(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationSkipToken] == "true" }

// LeavesToken says whether the home pod lacks a token of its service account where TakesTokenSecret says that it has no
// TokenSecret: its author has not given up on it.
func LeavesToken(home *corev1.Pod) bool {
	return !SkipsToken(home) && slices.ContainsFunc(home.Spec.Volumes, func(v corev1.Volume) bool { return isTokenVolume(&v) })
}

// TakesTokenSecret says whether the pod goes to a provider with a TokenSecret: if it asks by itself for a token or for the
// certificates of home's API server, or if it reaches that server. Every other pod is given a token too, which it could not use.
// One that went out without, and says so, goes on without; and one that went out with it waits for it, whatever else has changed.
func TakesTokenSecret(home *corev1.Pod, connected bool) bool {
	return takesAnyway(home) || connected && LeavesToken(home) && !saysOfToken(home, v1alpha1.ReasonTokenLeftAtHome)
}

// takesAnyway says whether the pod has a TokenSecret also where no network connects the clusters.
func takesAnyway(home *corev1.Pod) bool {
	return asksForIdentity(home) || saysOfToken(home, v1alpha1.ReasonTokenRefused)
}

func saysOfToken(home *corev1.Pod, reason string) bool {
	c := PodCondition(&home.Status, v1alpha1.PodToken)
	return c != nil && c.Reason == reason
}

// WaitsForTokens says whether the remote pod cannot start because its TokenSecret is not there, as its kubelet says.
func WaitsForTokens(home *corev1.Pod, shadow *v1alpha1.ShadowPod) bool {
	return shadow.Status.Phase == string(corev1.PodPending) && slices.ContainsFunc(shadow.Status.Events, func(e v1alpha1.RemoteEvent) bool {
		return e.Reason == "FailedMount" && strings.Contains(e.Message, TokenSecret(home.UID))
	})
}

// asksForIdentity says whether the author of the pod asks for something that is in a TokenSecret.
func asksForIdentity(home *corev1.Pod) bool {
	skips := SkipsToken(home)
	for i := range home.Spec.Volumes {
		v := &home.Spec.Volumes[i]
		if !isTokenVolume(v) && (!skips && projectsToken(v) || readsRootCertificates(v)) {
			return true
		}
	}
	asks := false
	forEachKindOfContainer(ptr.To(home.Spec), func(c *corev1.Container) {
		asks = asks || slices.ContainsFunc(c.Env, showsRootCertificates)
	})
	return asks
}

func readsRootCertificates(v *corev1.Volume) bool {
	return v.ConfigMap != nil && v.ConfigMap.Name == rootCertificates ||
		slices.ContainsFunc(projections(v), func(s corev1.VolumeProjection) bool {
			return s.ConfigMap != nil && s.ConfigMap.Name == rootCertificates
		})
}

func showsRootCertificates(v corev1.EnvVar) bool {
	return v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil && v.ValueFrom.ConfigMapKeyRef.Name == rootCertificates
}

// KeepTokens returns volumes by which Tokens and TakesTokenSecret say the same as by the pod, for caches that do not keep the
// pod's own spec and conditions.
func KeepTokens(pod *corev1.Pod) []corev1.Volume {
	var kept []corev1.Volume
	left := saysOfToken(pod, v1alpha1.ReasonTokenLeftAtHome)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		automatic := isTokenVolume(v)
		if !projectsToken(v) || SkipsToken(pod) || automatic && left {
			continue
		}
		slim := corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}
		if automatic {
			slim.Name = tokenVolumePrefix
		}
		for _, source := range v.Projected.Sources {
			if p := source.ServiceAccountToken; p != nil {
				slim.Projected.Sources = append(slim.Projected.Sources, corev1.VolumeProjection{
					ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: p.Audience, ExpirationSeconds: p.ExpirationSeconds},
				})
			}
		}
		kept = append(kept, slim)
	}
	if takesAnyway(pod) {
		kept = append(kept, corev1.Volume{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: rootCertificates},
		}}})
	}
	return kept
}

// WithoutToken returns the pod without the token that Kubernetes has added by itself.
func WithoutToken(pod *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	leaveTokenAtHome(&out.Spec)
	return out
}

func leaveTokenAtHome(spec *corev1.PodSpec) {
	var dropped []string
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		if !isTokenVolume(&v) {
			return false
		}
		dropped = append(dropped, v.Name)
		return true
	})
	forEachKindOfContainer(spec, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(dropped, m.Name)
		})
	})
}

// skipTokens leaves at home all tokens of a pod whose author wants that. The volumes of others lack the file.
func skipTokens(spec *corev1.PodSpec) {
	leaveTokenAtHome(spec)
	for i := range spec.Volumes {
		if p := spec.Volumes[i].Projected; p != nil {
			p.Sources = slices.DeleteFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
		}
	}
}

// A tokenReader has the pod read from the Secret of that name what a kubelet at home gives it.
type tokenReader struct {
	secret string
	mode   *int32 // of tokens
}

func readTokens(spec *corev1.PodSpec, secret string) {
	r := tokenReader{secret: secret, mode: tokenMode(spec)}
	for i := range spec.Volumes {
		r.inVolume(&spec.Volumes[i])
	}
	forEachKindOfContainer(spec, func(c *corev1.Container) { r.inEnv(c.Env) })
}

// tokenMode is what a kubelet makes of the mode of a token: with a group, which it adds itself, nobody else reads the file. With
// a user the kubelet would give the file to that one, and a Secret's file is always root's.
func tokenMode(spec *corev1.PodSpec) *int32 {
	if c := spec.SecurityContext; c != nil && c.FSGroup != nil {
		return ptr.To[int32](0o600)
	}
	hasUser := spec.SecurityContext != nil && spec.SecurityContext.RunAsUser != nil
	forEachContainer(spec, func(c *corev1.Container) {
		hasUser = hasUser || c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil
	})
	if hasUser {
		return ptr.To[int32](0o644)
	}
	return nil
}

func (r tokenReader) inVolume(v *corev1.Volume) {
	if from := v.ConfigMap; from != nil && from.Name == rootCertificates {
		v.VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: r.secret, Items: certificateItems(from.Items), DefaultMode: from.DefaultMode, DefaultUser: from.DefaultUser,
			Optional: from.Optional,
		}}
	}
	withToken := projectsToken(v)
	var sources []corev1.VolumeProjection
	for _, source := range projections(v) {
		switch {
		case source.ServiceAccountToken != nil:
			p := source.ServiceAccountToken
			sources = append(sources, r.files(corev1.KeyToPath{Key: tokenOf(p).Key(), Path: p.Path, Mode: r.mode, User: p.User}))
		case source.ConfigMap != nil && source.ConfigMap.Name == rootCertificates:
			read := r.files(certificateItems(source.ConfigMap.Items)...)
			read.Secret.Optional = source.ConfigMap.Optional
			sources = append(sources, read)
		case source.DownwardAPI != nil && withToken:
			sources = append(sources, r.withNamespace(source)...)
		default:
			sources = append(sources, source)
		}
	}
	if v.Projected != nil {
		v.Projected.Sources = sources
	}
}

func (r tokenReader) files(items ...corev1.KeyToPath) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: r.secret}, Items: items,
	}}
}

// certificateItems keeps the files that the author names. The ConfigMap has one key.
func certificateItems(items []corev1.KeyToPath) []corev1.KeyToPath {
	if len(items) > 0 {
		return items
	}
	return []corev1.KeyToPath{{Key: KeyRootCertificates, Path: KeyRootCertificates}}
}

// withNamespace has the namespace read beside the token. As metadata of the remote pod it would keep that from being sent on.
func (r tokenReader) withNamespace(source corev1.VolumeProjection) []corev1.VolumeProjection {
	var others []corev1.DownwardAPIVolumeFile
	var items []corev1.KeyToPath
	for _, file := range source.DownwardAPI.Items {
		if file.FieldRef != nil && file.FieldRef.FieldPath == "metadata.namespace" {
			items = append(items, corev1.KeyToPath{Key: KeyNamespace, Path: file.Path, Mode: file.Mode, User: file.User})
			continue
		}
		others = append(others, file)
	}
	var out []corev1.VolumeProjection
	if len(items) > 0 {
		out = append(out, r.files(items...))
	}
	if len(others) > 0 {
		out = append(out, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: others}})
	}
	return out
}

func (r tokenReader) inEnv(env []corev1.EnvVar) {
	for i := range env {
		if showsRootCertificates(env[i]) {
			from := env[i].ValueFrom.ConfigMapKeyRef
			env[i].ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: r.secret}, Key: from.Key, Optional: from.Optional,
			}}
		}
	}
}
