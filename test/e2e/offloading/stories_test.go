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
	"TestDaemonSetStaysHome":                 {},
	"TestDeadlineEndsThePod":                 {},
	"TestDebugWhereAllowed":                  {Alone: true},
	"TestDeploymentSpansClusters":            {Core: true},
	"TestEarlierRunningSurvives":             {},
	"TestEndThatNobodySawIsNoLoss":           {Alone: true},
	"TestEventsOfRemotePods":                 {},
	"TestEveryKindOfPod":                     {Core: true},
	"TestEvictionAtHome":                     {},
	"TestExplainAPodThatWasMadeTooEarly":     {},
	"TestExplainPod":                         {},
	"TestGatesAreOfHome":                     {},
	"TestGraceIsCarried":                     {},
	"TestHomeDeletionDeletesRemote":          {Core: true},
	"TestHomeNamespaceDeleted":               {},
	"TestKubectlVerbs":                       {Core: true},
	"TestLargestNamespaceOffloading":         {},
	"TestLogsAndExec":                        {Core: true},
	"TestNamespaceNotOffloaded":              {},
	"TestNetworkPoliciesOfRemotePodsAreTold": {},
	"TestNodeObjectDeleted":                  {},
	"TestOffloadSaysWhetherItHolds":          {},
	"TestOffloadedByDefault":                 {},
	"TestOverridesByCluster":                 {Core: true},
	"TestPodThatCannotLeaveStaysHome":        {},
	"TestPodThatFailsAndIsRestarted":         {},
	"TestPodThatProvidersRefuseStaysHome":    {},
	"TestPreStopHookRuns":                    {},
	"TestReplicaSetDeletesByTheseRules":      {},
	"TestResizeInPlace":                      {},
	"TestTop":                                {With: []framework.Extra{framework.Metrics}},
	"TestTraceAcrossClusters":                {},
	"TestTwinNameIsChosen":                   {Alone: true},
	"TestUnassignedLoses":                    {},
	"TestUnoffloadBringsHome":                {},
	"TestUnrecoverableTellsHome":             {Alone: true},
	"TestVirtualKubeletSuite":                {Alone: true, With: []framework.Extra{framework.VirtualKubeletSuite}},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
