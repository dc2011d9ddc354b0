// Package tenant is what a provider does for its consumers: twin namespaces for NamespaceMappings, and pods for
// ShadowPods, which it keeps running until home says otherwise. Whose they are is read from the namespace that they
// lie in and never from what the consumer wrote.
package tenant
