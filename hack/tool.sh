#!/usr/bin/env bash
# Builds a tool at the version that its file name ends in: tool.sh bin/NAME-vX.Y.Z PACKAGE
set -euo pipefail
target=$1 package=$2
version=${target##*-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir CGO_ENABLED=0 testbed/progress "${package##*/} $version" '3 min' go install -v "$package@$version"
mkdir -p "$(dirname "$target")"
mv "$dir/${package##*/}" "$target"
