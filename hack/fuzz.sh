#!/usr/bin/env bash
# Runs every fuzz target for a time: fuzz.sh 10s. A finding is written to testdata/fuzz. A run that ends with "context
# deadline exceeded" and wrote none is no finding: Go's fuzzer says so now and then when its time is up on a busy machine.
# It is run once more. A package is built once for all of its targets.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
output=$work/output cache=$(go env GOCACHE)/fuzz

# fuzz runs one target: fuzz DIRECTORY TARGET
fuzz() {
	(cd "$1" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzminimizetime 20x \
		-test.fuzzcachedir "$cache/$(go list .)" </dev/null) 2>&1 | tee "$output"
}

timed_out() {
	grep -q 'context deadline exceeded' "$output" && ! grep -q 'Failing input written' "$output"
}

for dir in $(grep -rlE '^func Fuzz' --include='*_test.go' api internal | xargs -n 1 dirname | sort -u); do
	go test -c -fuzz=Fuzz -o "$work/fuzz.test" "./$dir"
	for target in $(grep -ohE '^func Fuzz[A-Za-z0-9]*' "$dir"/*_test.go | awk '{print $2}'); do
		echo "== ./$dir $target for $time"
		fuzz "$dir" "$target" || { timed_out && fuzz "$dir" "$target"; }
	done
done
