package e2e

import "testing"

// The name of this file makes it the last of the stories about the network: it leaves bremen without Hanse.
func TestUninstallRestoresNode(t *testing.T) {
	ctx := network(t)
	bremen.awaitNoRemotePods(t)
	for _, c := range []*cluster{lubeck, hamburg} {
		c.awaitNoRemotePods(t)
		if _, err := c.Hanse(ctx, "unpeer", bremen.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bremen.Hanse(ctx, "uninstall"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the nodes of bremen are as they were", bremen.hasNodesAgain)
}
