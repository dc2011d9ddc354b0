package main

import (
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// renewDeadline is controller-runtime's own default. A request for the lease must be shorter.
const renewDeadline = 10 * time.Second

// electAsPod makes the name of the pod the identity in leader election: a process that was killed and is started again
// in its pod holds the lease still, and need not wait until it ends. Outside of a pod every start is somebody new, as
// controller-runtime has it.
func electAsPod(config *rest.Config, options *ctrl.Options) error {
	pod := os.Getenv("POD_NAME")
	if pod == "" || !options.LeaderElection {
		return nil
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.LeaderElectionNamespace,
		options.LeaderElectionID, resourcelock.ResourceLockConfig{Identity: pod}, config, renewDeadline)
	options.LeaderElectionResourceLockInterface = lock
	return err
}
