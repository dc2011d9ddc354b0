#!/usr/bin/env bash
# Runs the fault suite of test/faults on three real clusters. SEED replays a run, DURATION is how long things are broken
# (3m), KEEP=1 keeps the clusters for the next call.
set -euo pipefail
cd "$(dirname "$0")/.."
export HANSE_E2E=1 HANSE_TESTBED_STATE=${HANSE_TESTBED_STATE:-$PWD/.testbed/faults}
testbed=(bin/testbed --state "$HANSE_TESTBED_STATE")
clusters=(lubeck hamburg bremen)

finish() {
	if [ -n "${KEEP:-}" ]; then
		echo "the clusters are kept: ${testbed[*]} status" >&2
	else
		"${testbed[@]}" down
	fi
}
trap finish EXIT

# Etcd forgets soon, so that watches that were interrupted expire.
"${testbed[@]}" up "${clusters[@]}" --workers 1 --audit \
	--arg "apiserver:audit-policy-file=$PWD/test/faults/audit-policy.yaml" --arg apiserver:etcd-compaction-interval=20s
"${testbed[@]}" load bin/hanse.tar "${clusters[@]}"
# The image of all pods, under two tags: a pod whose image changes gets another container. Providers rewrite its name.
for tag in v1 v2; do
	for name in test mirror; do
		archive=bin/images/faults-$name-$tag.tar
		bin/scratch-image -o "$archive" -tag "hanse.dev/$name/faults:$tag" -file "$(command -v busybox)=/bin/busybox" -entrypoint /bin/busybox
		"${testbed[@]}" load "$archive" "${clusters[@]}"
	done
done
go test -c -trimpath -o bin/faults.test ./test/faults
(cd test/faults && ../../bin/faults.test -test.v -test.timeout 30m -test.run '^TestFaults$' -seed "${SEED:-0}" -duration "${DURATION:-3m}")
