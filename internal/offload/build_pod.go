package offload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// allowedPodSpec is the allow-list of a pod's fields.
func allowedPodSpec(in *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		InitContainers:                mapped(in.InitContainers, allowedContainer),
		Containers:                    mapped(in.Containers, allowedContainer),
		EphemeralContainers:           mapped(in.EphemeralContainers, allowedEphemeral),
		Volumes:                       mapped(in.Volumes, allowedVolume),
		ImagePullSecrets:              mapped(in.ImagePullSecrets, allowedPullSecret),
		RestartPolicy:                 in.RestartPolicy,
		TerminationGracePeriodSeconds: in.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds:         in.ActiveDeadlineSeconds,
		DNSPolicy:                     in.DNSPolicy,
		DNSConfig:                     in.DNSConfig,
		Hostname:                      in.Hostname,
		Subdomain:                     in.Subdomain,
		SetHostnameAsFQDN:             in.SetHostnameAsFQDN,
		HostnameOverride:              in.HostnameOverride,
		HostAliases:                   in.HostAliases,
		ShareProcessNamespace:         in.ShareProcessNamespace,
		EnableServiceLinks:            in.EnableServiceLinks,
		HostUsers:                     in.HostUsers,
		OS:                            in.OS,
		Resources:                     allowedPodResources(in.Resources),
		SecurityContext:               allowedPodSecurity(in.SecurityContext),
		AutomountServiceAccountToken:  onlyIf(in.AutomountServiceAccountToken, false),
	}
}

func allowedPodResources(in *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if in == nil {
		return nil
	}
	return ptr.To(allowedResources(in))
}

func allowedResources(in *corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: in.Limits, Requests: in.Requests}
}

// allowedPodSecurity is the part of a pod's security context that Pod Security "baseline" allows, less what names
// things of a node.
func allowedPodSecurity(in *corev1.PodSecurityContext) *corev1.PodSecurityContext {
	if in == nil {
		return nil
	}
	return &corev1.PodSecurityContext{
		SELinuxOptions:           allowedSELinux(in.SELinuxOptions),
		RunAsUser:                in.RunAsUser,
		RunAsGroup:               in.RunAsGroup,
		RunAsNonRoot:             in.RunAsNonRoot,
		SupplementalGroups:       in.SupplementalGroups,
		SupplementalGroupsPolicy: in.SupplementalGroupsPolicy,
		FSGroup:                  in.FSGroup,
		FSGroupChangePolicy:      in.FSGroupChangePolicy,
		SELinuxChangePolicy:      in.SELinuxChangePolicy,
		Sysctls:                  mapped(in.Sysctls, allowedSysctl),
		SeccompProfile:           allowedSeccomp(in.SeccompProfile),
		AppArmorProfile:          allowedAppArmor(in.AppArmorProfile),
	}
}

// allowedSecurity is the same for a container.
func allowedSecurity(in *corev1.SecurityContext) *corev1.SecurityContext {
	if in == nil {
		return nil
	}
	return &corev1.SecurityContext{
		Capabilities:             allowedCapabilities(in.Capabilities),
		Privileged:               onlyIf(in.Privileged, false),
		SELinuxOptions:           allowedSELinux(in.SELinuxOptions),
		RunAsUser:                in.RunAsUser,
		RunAsGroup:               in.RunAsGroup,
		RunAsNonRoot:             in.RunAsNonRoot,
		ReadOnlyRootFilesystem:   in.ReadOnlyRootFilesystem,
		AllowPrivilegeEscalation: in.AllowPrivilegeEscalation,
		ProcMount:                onlyIf(in.ProcMount, corev1.DefaultProcMount),
		SeccompProfile:           allowedSeccomp(in.SeccompProfile),
		AppArmorProfile:          allowedAppArmor(in.AppArmorProfile),
	}
}

func allowedCapabilities(in *corev1.Capabilities) *corev1.Capabilities {
	if in == nil {
		return nil
	}
	out := &corev1.Capabilities{Drop: in.Drop}
	if !slices.ContainsFunc(in.Add, isHarmful) {
		out.Add = in.Add
	}
	return out
}

// harmless are the capabilities that container runtimes give anyway, and that Pod Security "baseline" lets a pod name.
var harmless = []corev1.Capability{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
	"SETPCAP", "SETUID", "SYS_CHROOT",
}

func isHarmful(name corev1.Capability) bool { return !slices.Contains(harmless, name) }

var selinuxTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

func allowedSELinux(in *corev1.SELinuxOptions) *corev1.SELinuxOptions {
	if in == nil {
		return nil
	}
	out := &corev1.SELinuxOptions{Level: in.Level}
	if slices.Contains(selinuxTypes, in.Type) {
		out.Type = in.Type
	}
	return out
}

func allowedSeccomp(in *corev1.SeccompProfile) *corev1.SeccompProfile {
	if in == nil || in.Type != corev1.SeccompProfileTypeRuntimeDefault {
		return nil
	}
	return &corev1.SeccompProfile{Type: in.Type}
}

func allowedAppArmor(in *corev1.AppArmorProfile) *corev1.AppArmorProfile {
	if in == nil || in.Type != corev1.AppArmorProfileTypeRuntimeDefault {
		return nil
	}
	return &corev1.AppArmorProfile{Type: in.Type}
}

// sysctls are those that Pod Security "baseline" calls safe: each is of the pod's own namespaces.
var sysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_syncookies",
}

func allowedSysctl(in corev1.Sysctl) corev1.Sysctl {
	if slices.Contains(sysctls, in.Name) {
		return in
	}
	return corev1.Sysctl{}
}

// onlyIf returns the pointer if it points to the only allowed value.
func onlyIf[T comparable](in *T, allowed T) *T {
	if in == nil || *in != allowed {
		return nil
	}
	return in
}

// mapped applies f to each element. It keeps nil nil.
func mapped[T any](in []T, f func(T) T) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}
