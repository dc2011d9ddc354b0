// SPDX-License-Identifier: Apache-2.0

// Package tenant is what a provider does for its consumers: twin namespaces for NamespaceMappings, and pods for
// ShadowPods, which it keeps running until home says otherwise. Whose they are is read from the namespace that they
// lie in and never from what the consumer wrote. It holds each consumer to its limits and its access: twins are guarded
// before the consumer gets into them, and whether there is room for one more pod is decided in one place, the ledger.
package tenant
