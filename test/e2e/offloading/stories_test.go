// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"os"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The clusters of the stories.
var (
	lubeck  = framework.Lubeck
	hamburg = framework.Hamburg
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestAdvertisementBecomesVirtualNode":    {Core: true},
	"TestChangeKeepsOrEvicts":                {},
	"TestCompletedPodIsNotRunAgain":          {Alone: true},
	"TestConfigurationComesAlong":            {Core: true},
	"TestControllersWork":                    {},
	"TestDeadlineEndsThePod":                 {},
	"TestDebugWhereAllowed":                  {Alone: true},
	"TestDeploymentSpansClusters":            {Core: true},
	"TestEarlierRunningSurvives":             {OnRequest: true},
	"TestEndThatNobodySawIsNoLoss":           {Alone: true},
	"TestEventsOfRemotePods":                 {},
	"TestEveryKindOfPod":                     {Core: true},
	"TestEvictionAtHome":                     {},
	"TestExplainPod":                         {},
	"TestGatesAreOfHome":                     {},
	"TestGraceIsCarried":                     {},
	"TestHomeDeletionDeletesRemote":          {Core: true},
	"TestHomeNamespaceDeleted":               {},
	"TestKubectlVerbs":                       {Core: true},
	"TestLogsAndExec":                        {Core: true},
	"TestNamespaceNotOffloaded":              {},
	"TestNetworkPoliciesOfRemotePodsAreTold": {},
	"TestNodeObjectDeleted":                  {},
	"TestOffloadedByDefault":                 {},
	"TestOverridesByCluster":                 {Core: true},
	"TestPodThatFailsAndIsRestarted":         {},
	"TestPreStopHookRuns":                    {},
	"TestReplicaSetDeletesByTheseRules":      {OnRequest: true},
	"TestResizeInPlace":                      {},
	"TestTop":                                {With: []framework.Extra{framework.Metrics}},
	"TestTraceAcrossClusters":                {},
	"TestUnassignedLoses":                    {OnRequest: true},
	"TestUnoffloadBringsHome":                {},
	"TestUnrecoverableTellsHome":             {Alone: true},
	"TestVirtualKubeletSuite":                {Alone: true, With: []framework.Extra{framework.VirtualKubeletSuite}},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
