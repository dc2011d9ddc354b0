// SPDX-License-Identifier: Apache-2.0

// Package worker makes a part of this machine look like a machine of its own to a container runtime and a kubelet: a
// mount namespace in which /run, /var/lib, /var/log are the worker's, and a control group in each hierarchy.
//
// Everything that the runtime and the kubelet mount, they mount in that namespace. It all goes away with the namespace's
// last process, however that ends.
package worker
