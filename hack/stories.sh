#!/usr/bin/env bash
# Runs the stories of test/e2e on real clusters: first those that share them, side by side; then those that need them
# alone; last those of the market, which need more clusters. RUN selects stories by name (a regular expression), KEEP=1
# keeps the clusters for the next call.
set -euo pipefail
cd "$(dirname "$0")/.."
export HANSE_E2E=1 HANSE_TESTBED_STATE=$PWD/.testbed/e2e
testbed=(bin/testbed --state "$HANSE_TESTBED_STATE")

finish() {
	if [ -n "${KEEP:-}" ]; then
		echo "the clusters are kept: ${testbed[*]} status" >&2
	else
		"${testbed[@]}" down
		rm -rf "$HANSE_TESTBED_STATE-memory"
	fi
}
trap finish EXIT

"${testbed[@]}" up lubeck hamburg --workers 1 --audit --metrics
"${testbed[@]}" up rostock --workers 0
mkdir -p "$HANSE_TESTBED_STATE-memory"
"${testbed[@]}" load bin/hanse.tar lubeck hamburg
for skewed in bin/skew/*.tar; do
	"${testbed[@]}" load "$skewed" hamburg
done
go test -c -o bin/e2e.test ./test/e2e

status=0
tell() {
	echo "== stories: $1"
	(cd test/e2e && ../../bin/e2e.test -phase "$1" -test.v -test.timeout 30m -test.parallel 8 -test.run "${RUN:-.}") || status=1
}
tell shared
tell alone
"${testbed[@]}" down rostock
"${testbed[@]}" up bremen wismar --workers 1
"${testbed[@]}" load bin/hanse.tar bremen wismar
tell market
exit $status
