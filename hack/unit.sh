#!/usr/bin/env bash
# Runs the unit tests of all modules and prints their results as `go test -json` does, each package as a whole. `make unit`
# gives them to gotestsum. Linking 60 test binaries takes longer than running them, and `go test` links all of them again
# each time. So they are kept in bin/unit, where `go test -c` replaces only those that are out of date.
#
# RUN selects tests by name. RACE=1 adds the race detector, which needs a C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
binaries=$PWD/bin/unit
flags=(-trimpath -vet=off)
export CGO_ENABLED=0 RUN=${RUN:-}
if [ -n "${RACE:-}" ]; then
	binaries+=-race
	flags+=(-race)
	CGO_ENABLED=1
fi
mkdir -p "$binaries"
LOCK=$binaries/.lock
TEST2JSON=$(go tool -n test2json)
export LOCK TEST2JSON

# build links the test binaries of packages whose last names differ, and prints a line for each: package, its folder, binary.
# build NAME FOLDER PACKAGES...
build() {
	local into=$binaries/$1
	(
		cd "$2"
		shift 2
		mkdir -p "$into"
		go test "${flags[@]}" -c -o "$into/" "$@" >/dev/null
		go list -f "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}} $into{{end}}" "$@" |
			awk 'NF {n = split($1, path, "/"); print $1, $2, $3 "/" path[n] ".test"}'
	)
}

build_all() {
	build bench bench ./... # its packages share names with packages of internal
	# Stories and integration tests need clusters.
	build hanse . $(go list ./... | grep -vE '/(bench|test/e2e|test/integration)(/|$)') ./test/e2e/runner
	build fit test/fit ./...
	build orders demo/orders ./...
	build testbed testbed ./internal/... ./images/...
	build testbed-cmd testbed ./cmd/...
	build provisioner testbed/provisioner ./...
}

# run runs the tests of a package in its folder: run PACKAGE FOLDER BINARY
run() {
	local results code=0
	results=$(mktemp)
	cd "$2"
	"$TEST2JSON" -t -p "$1" "$3" -test.v=test2json -test.paniconexit0 -test.timeout=10m -test.run="$RUN" >"$results" || code=$?
	flock "$LOCK" cat "$results"
	rm "$results"
	return "$code"
}
export -f run

# Some tests wait for a timeout of the kernel: one process more than processors keeps these busy meanwhile.
build_all | xargs -L1 -P $(($(nproc) + 1)) bash -c 'run "$@"' run
