#!/usr/bin/env bash
# Checks the messages of commits: commits.sh RANGE, such as origin/main..HEAD. CONTRIBUTING.md states the rules.
set -euo pipefail
cd "$(dirname "$0")/.."
range=$1
bad=0

# complain reports what is wrong with the message of the current commit.
complain() {
	printf '%s %s: %s\n' "${commit:0:10}" "$subject" "$1" >&2
	bad=1
}

commits=$(git rev-list --no-merges "$range")
for commit in $commits; do
	subject=$(git log -1 --format=%s "$commit")
	[[ $subject =~ ^[a-z0-9][a-z0-9./,-]*:\ [a-zA-Z0-9] ]] || complain 'the subject is not "area: summary"'
	((${#subject} <= 72)) || complain 'the subject is longer than 72 characters'
	[[ ! ${subject,,} =~ (^|[^a-z])wip([^a-z]|$) && ! $subject =~ ^(fixup|squash|amend)! ]] || complain 'the commit is not finished'
	[ -n "$(git log -1 --format=%b "$commit")" ] || complain 'the body does not say why'
done
exit "$bad"
