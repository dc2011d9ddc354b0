package offload

import corev1 "k8s.io/api/core/v1"

// allowedVolume lets through volumes that hold nothing but what the pod itself writes or is, and the ConfigMaps and
// Secrets of its namespace.
func allowedVolume(in corev1.Volume) corev1.Volume {
	out := corev1.Volume{Name: in.Name}
	if dir := in.EmptyDir; dir != nil {
		out.EmptyDir = &corev1.EmptyDirVolumeSource{Medium: dir.Medium, SizeLimit: dir.SizeLimit, Mode: dir.Mode}
	}
	if down := in.DownwardAPI; down != nil {
		out.DownwardAPI = &corev1.DownwardAPIVolumeSource{
			Items:       mapped(down.Items, allowedDownwardFile),
			DefaultMode: down.DefaultMode,
			DefaultUser: down.DefaultUser,
		}
	}
	out.ConfigMap, out.Secret = allowedConfigMapVolume(in.ConfigMap), allowedSecretVolume(in.Secret)
	if projected := in.Projected; projected != nil {
		out.Projected = &corev1.ProjectedVolumeSource{
			Sources:     mapped(projected.Sources, allowedProjection),
			DefaultMode: projected.DefaultMode,
			DefaultUser: projected.DefaultUser,
		}
	}
	return out
}

func allowedProjection(in corev1.VolumeProjection) corev1.VolumeProjection {
	out := corev1.VolumeProjection{
		ConfigMap: allowedConfigMapProjection(in.ConfigMap), Secret: allowedSecretProjection(in.Secret),
	}
	if in.DownwardAPI != nil {
		out.DownwardAPI = &corev1.DownwardAPIProjection{Items: mapped(in.DownwardAPI.Items, allowedDownwardFile)}
	}
	return out
}

func allowedDownwardFile(in corev1.DownwardAPIVolumeFile) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{
		Path: in.Path, FieldRef: allowedField(in.FieldRef), ResourceFieldRef: allowedResourceField(in.ResourceFieldRef),
		Mode: in.Mode, User: in.User,
	}
}
