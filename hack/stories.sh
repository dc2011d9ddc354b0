#!/usr/bin/env bash
# Runs the stories of test/e2e on real clusters. Those that share lubeck and hamburg run side by side. Then two rows of stories are
# told at once, since most of their time is waiting: those that need the two alone, one by one, and those of the network on three
# clusters of their own, first side by side and then one by one. More rows would be slower: each cluster that is up takes a tenth of a
# processor. Whoever is done first tells those of the market on four clusters, and whoever is done then takes its part of what
# is left of either, on other clusters. RUN selects stories by name (a regular expression): only what these need is built and started.
# KEEP=1 keeps the clusters for the next call. KUBERNETES=v1.36.3 has lubeck and hamburg of the phases shared and alone in that version.
# What the stories that failed said last is also written to the file FAILURES.
set -euo pipefail
cd "$(dirname "$0")/.."
export HANSE_E2E=1
state=$PWD/.testbed/e2e network=$PWD/.testbed/e2e-network
market=$PWD/.testbed/e2e-market rest=$PWD/.testbed/e2e-rest
audit=(--audit --arg "apiserver:audit-policy-file=$PWD/test/e2e/audit-policy.yaml")

beside='' # the process that tells the second row
output=$(mktemp) told=$(mktemp -d) claims=$(mktemp -d)
finish() {
	local bed
	[ -z "$beside" ] || { kill "$beside" 2>/dev/null || true; cat "$output"; }
	rm -rf "$output" "$told" "$claims"
	for bed in "$state" "$market" "$network" "$rest"; do
		if [ -n "${KEEP:-}" ]; then
			[ ! -d "$bed" ] || echo "the clusters are kept: bin/testbed --state $bed status" >&2
			continue
		fi
		[ ! -d "$bed" ] || bin/testbed --state "$bed" down
		rm -rf "$bed-memory"
	done
}
trap finish EXIT

testbed/progress 'the stories' '2 min' go test -c -trimpath -o bin/e2e.test ./test/e2e
# What the selected stories need: each line is a phase, and what it needs besides the usual clusters.
needs=$(cd test/e2e && ../../bin/e2e.test -phase plan -test.v -test.run "${RUN:-.}" | sed -n 's/.*needs: //p')
need() { grep -qE "$1" <<<"$needs"; }

[ -n "$needs" ] || { echo "no story is called ${RUN:-}" >&2; exit 1; }
! need '\bskew\b' || hack/skew.sh v0.2.0 v0.3.0
! need '\bsuite\b' || hack/suite.sh
! need '\bmetrics\b' || make --no-print-directory -C testbed "$PWD/bin/metrics-server"
! need '\b(storage|snapshots)\b' || make --no-print-directory -C testbed "$PWD/bin/provisioner"
! need '\bsnapshots\b' || make --no-print-directory -C testbed "$PWD/bin/snapshot-controller"
! need '\borders\b' || make --no-print-directory bin/images/orders.tar
! need '\bingress\b' || make --no-print-directory -C testbed "$PWD/bin/traefik"

# start_pair brings up what stories of the phases shared and alone need.
start_pair() {
	local testbed=(bin/testbed --state "$state") skewed
	"${testbed[@]}" up lubeck hamburg --workers 1 "${audit[@]}" ${KUBERNETES:+--kubernetes "$KUBERNETES"} $(! need '\bmetrics\b' || echo --metrics) \
		$(! need '^(shared|alone).*\bstorage\b' || echo --storage) $(! need '^(shared|alone).*\bsnapshots\b' || echo --snapshots)
	! need '^(shared|alone).*\brostock\b' || "${testbed[@]}" up rostock --workers 0
	mkdir -p "$state-memory"
	"${testbed[@]}" load bin/hanse.tar lubeck hamburg
	! need '\bskew\b' || for skewed in bin/skew/*.tar; do "${testbed[@]}" load "$skewed" hamburg; done
}

# start_rest brings up clusters on which a part of the stories of a phase is told: start_rest WORKERS CLUSTER...
start_rest() {
	local testbed=(bin/testbed --state "$rest") workers=$1
	shift
	"${testbed[@]}" up "$@" --workers "$workers" "${audit[@]}" && mkdir -p "$rest-memory" && "${testbed[@]}" load bin/hanse.tar "$@"
}

start_market() {
	local testbed=(bin/testbed --state "$market")
	"${testbed[@]}" up lubeck hamburg bremen wismar --workers 1 &&
		"${testbed[@]}" load bin/hanse.tar lubeck hamburg bremen wismar
}

start_network() {
	local three
	three=$(grep -vE '\bdual\b' <<<"$needs") || true
	mkdir -p "$network-memory" && { ! grep -qE '^(connected|network)\b' <<<"$three" || start_three; } && { ! need '\bdual\b' || start_dual; }
}

# start_three brings up the clusters of most stories of the network.
start_three() {
	local testbed=(bin/testbed --state "$network")
	bin/scratch-image -o bin/images/kubectl.tar -tag hanse.dev/test/kubectl:v1 -file bin/kubectl=/kubectl -entrypoint /kubectl &&
		"${testbed[@]}" up lubeck hamburg bremen --workers 2 --audit $(! need '^(connected|network).*\bstorage\b' || echo --storage) \
			$(! need '^(connected|network).*\bsnapshots\b' || echo --snapshots) \
			$(! need '\bingress\b' || echo --ingress) $(! need '\bmulticluster\b' || echo --multicluster) \
			$(! need '\borders\b' || echo --arg kubelet:sync-frequency=10s) && # files of ConfigMaps follow sooner than in a minute and a half
		{ ! need '\bvisby\b' || { "${testbed[@]}" up visby --workers 1 --nat && "${testbed[@]}" load bin/hanse.tar visby; }; } &&
		{ ! need '^network.*\brostock\b' || "${testbed[@]}" up rostock --workers 0; } &&
		"${testbed[@]}" load bin/hanse.tar lubeck hamburg bremen && "${testbed[@]}" load bin/images/kubectl.tar hamburg &&
		{ ! need '\borders\b' || "${testbed[@]}" load bin/images/orders.tar lubeck hamburg bremen; }
}

# start_dual brings up two more clusters of the network, one with IPv4 and IPv6, the other with IPv6 alone.
start_dual() {
	local testbed=(bin/testbed --state "$network")
	"${testbed[@]}" up stade --workers 1 --ip-families dual && "${testbed[@]}" up stralsund --workers 1 --ip-families ipv6 &&
		"${testbed[@]}" load bin/hanse.tar stade stralsund
}

# without_skipped leaves out the stories of other phases.
without_skipped() {
	awk '/^=== RUN/ { run = $0; next }
		/^    [a-z_]+_test\.go:[0-9]+: needs: / || /^--- SKIP: / { run = ""; next }
		run != "" { print run; run = "" }
		{ print; fflush() }'
}

# tell runs the stories of one phase: tell PHASE STATE [FLAG...]
tell() {
	local start=$SECONDS code=0 phase=$1 bed=$2
	shift 2
	echo "== stories: $phase in ${bed##*/}"
	(cd test/e2e && HANSE_TESTBED_STATE=$bed ../../bin/e2e.test -phase "$phase" "$@" -test.v -test.timeout 40m -test.parallel 8 -test.run "${RUN:-.}") |
		tee "$told/$phase-${bed##*/}" | without_skipped || code=$?
	echo "== stories: $phase in ${bed##*/} took $((SECONDS - start)) s"
	return "$code"
}

# said_last prints what the stories that failed said last: errors of a command have lines that are indented further. What is at
# the margin is of no story, such as the objects that are printed after a failure.
said_last() {
	awk '/^[^ ]/ { more = 0 }
		/^=== (NAME|RUN|CONT)/ { story = $3 }
		/^    [a-z_]+_test\.go:[0-9]+: / { more = !/: (waited|needs:) / }
		/^ *--- FAIL: / { n = split(said[$3], lines, "\n"); for (i = n > 16 ? n - 16 : 1; i < n; i++) print $3 lines[i]; more = 0 }
		/^    / && more { said[story] = said[story] substr($0, 1, 500) "\n" }'
}

# free ends clusters that no row needs any more, unless they are kept.
free() {
	[ -n "${KEEP:-}" ] || bin/testbed --state "$@"
}

# tell_network tells the stories of the network.
tell_network() {
	local code=0
	start_network || return 1
	! need '^connected\b' || tell connected "$network" || code=1
	! need '\bdual\b' || free "$network" down stade stralsund || code=1
	! need '^network\b' || tell network "$network" -claims "$claims" || code=1
	touch "$claims/.network"
	free "$network" down || code=1
	return "$code"
}

# tell_alone tells the stories that need two clusters alone.
tell_alone() {
	local code=0
	tell alone "$state" -claims "$claims" || code=1
	touch "$claims/.alone"
	free "$state" down || code=1
	return "$code"
}

# tell_market tells the stories of the market, unless the other row has begun to.
tell_market() {
	local code=0
	mkdir "$claims/.market-begun" 2>/dev/null || return 0
	start_market && tell market "$market" -claims "$claims" || code=1
	touch "$claims/.market"
	free "$market" down || code=1
	return "$code"
}

# tell_rest tells those stories of the other row that nobody has begun to tell: tell_rest PHASE WORKERS CLUSTER...
tell_rest() {
	local phase=$1
	shift
	[ -z "${KEEP:-}" ] && need "^$phase *$" && [ ! -e "$claims/.$phase" ] || return 0
	start_rest "$@" && tell "$phase" "$rest" -claims "$claims" -plain
}

tell_second_row() {
	local code=0
	! need '^(connected|network)\b' || tell_network || code=1
	! need '^market\b' || tell_market || code=1
	! need '^alone\b' || tell_rest alone 1 lubeck hamburg || code=1
	! need '^market\b' || tell_rest market 1 lubeck hamburg bremen wismar || code=1
	return "$code"
}

status=0
if need '^(shared|alone)\b'; then start_pair; fi
if need '^shared\b'; then tell shared "$state" || status=1; fi
if need '^(market|connected|network)\b'; then
	tell_second_row >"$output" 2>&1 &
	beside=$!
fi
if need '^alone\b'; then
	tell_alone || status=1
	! need '^market\b' || tell_market || status=1
	! need '^network\b' || tell_rest network 2 lubeck hamburg bremen || status=1
	! need '^market\b' || tell_rest market 1 lubeck hamburg bremen wismar || status=1
fi
if [ -n "$beside" ]; then
	wait "$beside" || status=1
	beside=''
	cat "$output"
fi
if [ "$status" != 0 ]; then
	echo '== what the stories that failed said last'
	cat "$told"/* | said_last | tee "${FAILURES:-/dev/null}"
fi
echo '== the longest stories, in seconds'
sed -nE 's/^--- (PASS|FAIL): (\w+) \(([0-9.]+)s\)$/\3 \2/p' "$told"/* | sort -rn | sed -n 1,15p
exit $status
