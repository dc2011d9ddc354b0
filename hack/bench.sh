#!/usr/bin/env bash
# Measures Hanse on real API servers and prints tables, which also go to bench/results. Arguments go to the program:
# bench.sh -run bursts -bursts 100.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 # as the rest is built, so that packages are compiled once
state=$PWD/.testbed/bench

trap 'bin/testbed --state "$state" down' EXIT

go build -trimpath -o bin/bench ./bench
go build -trimpath -o bin/bench-null ./bench/null
go test -c -trimpath -o bin/bench-paths ./internal/kernel
bin/bench -bin bin -state "$state" "$@"
go test -run '^$' -bench . -benchtime 1s ./bench
