#!/usr/bin/env bash
# Runs every fuzz target for a time: fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
grep -rlE '^func Fuzz' --include='*_test.go' api internal | sort | while read -r file; do
	dir=./$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9]*' "$file" | awk '{print $2}' | while read -r target; do
		echo "== $dir $target for $time"
		go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x </dev/null
	done
done
