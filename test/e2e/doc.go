// Package e2e holds the stories: what a user of Hanse does and sees, on real clusters of the testbed. hack/stories.sh
// runs them.
//
// The clusters lubeck and hamburg have Hanse installed and are peered both ways. Stories that call shared run side by
// side in namespaces of their own. Stories that call alone stop components or use up a cluster, so they run one by one
// after the others.
package e2e
