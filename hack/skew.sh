#!/usr/bin/env bash
# Makes images bin/skew/VERSION.tar of this code that pretends to be other versions: skew.sh VERSION...
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/skew
for version; do
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/hanse-dev/hanse/internal/version.Version=$version" \
		-o "bin/skew/$version" ./cmd/hanse
	image=hanse.dev/hanse:$version-$(sha256sum "bin/skew/$version" | cut -c1-12)
	if [ "$(cat "bin/skew/$version.image" 2>/dev/null)" != "$image" ] || [ ! -f "bin/skew/$version.tar" ]; then
		bin/scratch-image -o "bin/skew/$version.tar" -tag "$image" -file "bin/skew/$version=/hanse" -entrypoint /hanse -user 65532
		echo "$image" >"bin/skew/$version.image"
	fi
done
