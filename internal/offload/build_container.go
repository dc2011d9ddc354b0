package offload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// allowedContainer is the allow-list of a container's fields.
func allowedContainer(in corev1.Container) corev1.Container {
	return corev1.Container{
		Name:                     in.Name,
		Image:                    in.Image,
		ImagePullPolicy:          in.ImagePullPolicy,
		Command:                  in.Command,
		Args:                     in.Args,
		WorkingDir:               in.WorkingDir,
		Ports:                    mapped(in.Ports, allowedPort),
		EnvFrom:                  mapped(in.EnvFrom, allowedEnvFrom),
		Env:                      mapped(in.Env, allowedEnv),
		Resources:                allowedResources(&in.Resources),
		ResizePolicy:             in.ResizePolicy,
		RestartPolicy:            in.RestartPolicy,
		RestartPolicyRules:       in.RestartPolicyRules,
		VolumeMounts:             mapped(in.VolumeMounts, allowedMount),
		LivenessProbe:            allowedProbe(in.LivenessProbe),
		ReadinessProbe:           allowedProbe(in.ReadinessProbe),
		StartupProbe:             allowedProbe(in.StartupProbe),
		Lifecycle:                allowedLifecycle(in.Lifecycle),
		TerminationMessagePath:   in.TerminationMessagePath,
		TerminationMessagePolicy: in.TerminationMessagePolicy,
		SecurityContext:          allowedSecurity(in.SecurityContext),
		Stdin:                    in.Stdin,
		StdinOnce:                in.StdinOnce,
		TTY:                      in.TTY,
	}
}

func allowedPort(in corev1.ContainerPort) corev1.ContainerPort {
	return corev1.ContainerPort{Name: in.Name, ContainerPort: in.ContainerPort, Protocol: in.Protocol}
}

func allowedEnv(in corev1.EnvVar) corev1.EnvVar {
	return corev1.EnvVar{Name: in.Name, Value: in.Value, ValueFrom: allowedEnvSource(in.ValueFrom)}
}

// envFieldAllowed keeps the names and addresses of the provider's nodes out of the container.
func envFieldAllowed(path string) bool {
	return strings.HasPrefix(path, "metadata.") || path == "status.podIP" || path == "status.podIPs"
}

func allowedMount(in corev1.VolumeMount) corev1.VolumeMount {
	out := corev1.VolumeMount{
		Name:              in.Name,
		ReadOnly:          in.ReadOnly,
		RecursiveReadOnly: in.RecursiveReadOnly,
		MountPath:         in.MountPath,
		SubPath:           in.SubPath,
		SubPathExpr:       in.SubPathExpr,
		BindMountOptions:  in.BindMountOptions,
	}
	if p := in.MountPropagation; p != nil && *p != corev1.MountPropagationBidirectional {
		out.MountPropagation = p
	}
	return out
}

func allowedProbe(in *corev1.Probe) *corev1.Probe {
	if in == nil {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			Exec:      in.Exec,
			HTTPGet:   allowedHTTPGet(in.HTTPGet),
			TCPSocket: allowedTCPSocket(in.TCPSocket),
			GRPC:      in.GRPC,
		},
		InitialDelaySeconds:           in.InitialDelaySeconds,
		TimeoutSeconds:                in.TimeoutSeconds,
		PeriodSeconds:                 in.PeriodSeconds,
		SuccessThreshold:              in.SuccessThreshold,
		FailureThreshold:              in.FailureThreshold,
		TerminationGracePeriodSeconds: in.TerminationGracePeriodSeconds,
	}
}

func allowedLifecycle(in *corev1.Lifecycle) *corev1.Lifecycle {
	if in == nil {
		return nil
	}
	return &corev1.Lifecycle{
		PostStart:  allowedHandler(in.PostStart),
		PreStop:    allowedHandler(in.PreStop),
		StopSignal: in.StopSignal,
	}
}

func allowedHandler(in *corev1.LifecycleHandler) *corev1.LifecycleHandler {
	if in == nil {
		return nil
	}
	return &corev1.LifecycleHandler{
		Exec:      in.Exec,
		HTTPGet:   allowedHTTPGet(in.HTTPGet),
		TCPSocket: allowedTCPSocket(in.TCPSocket),
		Sleep:     in.Sleep,
	}
}

// allowedHTTPGet leaves out the host: the kubelet makes the request from the provider's node, and could be sent
// anywhere.
func allowedHTTPGet(in *corev1.HTTPGetAction) *corev1.HTTPGetAction {
	if in == nil {
		return nil
	}
	return &corev1.HTTPGetAction{
		Path: in.Path, Port: in.Port, Scheme: in.Scheme, HTTPHeaders: in.HTTPHeaders, Protocol: in.Protocol,
	}
}

func allowedTCPSocket(in *corev1.TCPSocketAction) *corev1.TCPSocketAction {
	if in == nil {
		return nil
	}
	return &corev1.TCPSocketAction{Port: in.Port}
}
