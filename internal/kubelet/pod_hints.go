package kubelet

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Conditions of home pods that say what a provider does not do for them. They are there only while they are False. Their
// times are our own: providers' clocks may be wrong.
const (
	podPlaced  corev1.PodConditionType = v1alpha1.PodPlaced
	podUpdated corev1.PodConditionType = v1alpha1.PodUpdated
	podDebug   corev1.PodConditionType = v1alpha1.PodDebug
)

// hints say which condition of a ShadowPod, where it is False, is shown as which of the home pod.
var hints = []struct {
	theirs string
	ours   corev1.PodConditionType
}{
	{v1alpha1.ConditionScheduled, podPlaced},
	{v1alpha1.ConditionUpdated, podUpdated},
	{v1alpha1.ConditionDebug, podDebug},
}

// showHints sets those conditions in the status of the home pod, and returns the ones that are news.
func showHints(status *corev1.PodStatus, shadow *v1alpha1.ShadowPod, now metav1.Time) []corev1.PodCondition {
	var news []corev1.PodCondition
	for _, hint := range hints {
		told := meta.FindStatusCondition(shadow.Status.Conditions, hint.theirs)
		at := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == hint.ours })
		if told == nil || told.Status != metav1.ConditionFalse || hint.ours == podPlaced && !isRoomless(told) {
			if at >= 0 {
				status.Conditions = slices.Delete(status.Conditions, at, at+1)
			}
			continue
		}
		c := corev1.PodCondition{
			Type: hint.ours, Status: corev1.ConditionFalse, LastTransitionTime: now,
			Reason: word(told.Reason), Message: bounded(told.Message),
		}
		if at < 0 {
			status.Conditions = append(status.Conditions, c)
			news = append(news, c)
			continue
		}
		c.LastTransitionTime = status.Conditions[at].LastTransitionTime
		if c.Reason != status.Conditions[at].Reason {
			news = append(news, c)
		}
		status.Conditions[at] = c
	}
	return news
}

var wordPattern = regexp.MustCompile(`^[A-Za-z]{1,63}$`)

// word returns the reason that a peer gives if it is one.
func word(reason string) string {
	if !wordPattern.MatchString(reason) {
		return "Unknown"
	}
	return reason
}
