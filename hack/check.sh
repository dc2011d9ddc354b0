#!/usr/bin/env bash
# Checks what a linter does not: generated files and go.mod are up to date, every Go file has the licence header, also in modules that
# are not linted, and no large file is tracked.
# check.sh CONTROLLER_GEN
set -euo pipefail
cd "$(dirname "$0")/.."
controller_gen=$1
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

# A large file stays in the history for ever, and is nearly always a binary that was added by accident.
large=$(git ls-files -z | xargs -0 sh -c 'find "$@" -maxdepth 0 -type f -size +1000000c' sh)
[ -z "$large" ] || { echo "tracked files over 1 MB: $large" >&2; exit 1; }

hack/headers.sh --check

"$controller_gen" crd:maxDescLen=1000 paths=./api/... output:crd:dir="$fresh/crds"
"$controller_gen" object:headerFile=hack/boilerplate.go.txt paths=./api/... output:object:dir="$fresh"
diff -ru charts/hanse/crds "$fresh/crds" || { echo "CRDs are out of date: make generate" >&2; exit 1; }
diff -u api/v1alpha1/zz_generated.deepcopy.go "$fresh/zz_generated.deepcopy.go" ||
	{ echo "deepcopy functions are out of date: make generate" >&2; exit 1; }
for module in . testbed test/fit test/virtualkubelet demo/orders; do
	(cd "$module" && go mod tidy -diff) || { echo "$module/go.mod is not tidy: go mod tidy" >&2; exit 1; }
done
go build ./...
echo "generated files and go.mod are up to date, every Go file has its header, and no tracked file is over 1 MB"
