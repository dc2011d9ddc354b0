#!/usr/bin/env bash
# Adds the licence header to each Go file that lacks it: headers.sh. With --check it names these files and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
header=$(cat hack/boilerplate.go.txt)
mode=${1:-}

# without_header reads names of files, which end with NUL, and prints those that have no header in their first three lines:
# a generated file may have a build constraint and an empty line before it.
without_header() {
	xargs -0 --no-run-if-empty awk -v header="$header" '
		FNR == 1 { if (file != "" && !found) print file; file = FILENAME; found = 0 }
		FNR <= 3 && $0 == header { found = 1 }
		END { if (file != "" && !found) print file }'
}

deleted=$(git ls-files --deleted -- '*.go')
[ -z "$deleted" ] || { printf 'deleted, and not committed: %s\n' "$deleted" >&2; exit 1; }
mapfile -t missing < <(git ls-files -z --cached --others --exclude-standard -- '*.go' | without_header)
((${#missing[@]} > 0)) || exit 0

if [ "$mode" = --check ]; then
	printf 'without a licence header: %s\n' "${missing[@]}" >&2
	echo 'add the headers: hack/headers.sh' >&2
	exit 1
fi
copy=$(mktemp)
trap 'rm -f "$copy"' EXIT
for file in "${missing[@]}"; do
	{ printf '%s\n\n' "$header"; cat "$file"; } >"$copy"
	cat "$copy" >"$file" # keeps its mode
done
echo "added the licence header to ${#missing[@]} files"
