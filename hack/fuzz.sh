#!/usr/bin/env bash
# Runs every fuzz target for a time: fuzz.sh 10s. A finding is written to testdata/fuzz. A run that ends with "context
# deadline exceeded" and wrote none is no finding: Go's fuzzer says so now and then when its time is up on a busy machine.
# It is run once more.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# fuzz runs one target: fuzz DIRECTORY TARGET
fuzz() {
	go test "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 20x </dev/null 2>&1 | tee "$output"
}

timed_out() {
	grep -q 'context deadline exceeded' "$output" && ! grep -q 'Failing input written' "$output"
}

grep -rlE '^func Fuzz' --include='*_test.go' api internal | sort | while read -r file; do
	dir=./$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9]*' "$file" | awk '{print $2}' | while read -r target; do
		echo "== $dir $target for $time"
		fuzz "$dir" "$target" || { timed_out && fuzz "$dir" "$target"; }
	done
done
