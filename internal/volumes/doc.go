// SPDX-License-Identifier: Apache-2.0

// Package volumes makes volumes for claims of StorageClasses whose provisioner is volumes.hanse.dev: where the scheduler sends the
// first pod with the claim. At a peer that is a claim in the twin namespace, which the peer makes for a ShadowClaim, and at home a
// PersistentVolume that stands for it and binds pods to the virtual node. On a node of this cluster it is a volume of another
// class, made by that one's own provisioner.
//
// Two controllers share the work. provisioner looks at claims without a volume, and keeper at the volumes that are at peers: it has
// them grow, and deletes them. What exists decides, and nothing is remembered.
package volumes
