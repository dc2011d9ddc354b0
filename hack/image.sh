#!/usr/bin/env bash
# Makes the container image bin/hanse.tar of bin/hanse and writes its name to bin/hanse.image: image.sh [NAME:TAG]
set -euo pipefail
cd "$(dirname "$0")/.."
image=${1:-hanse.dev/hanse:$(sha256sum bin/hanse | cut -c1-12)}
if [ "$(cat bin/hanse.image 2>/dev/null)" = "$image" ] && [ bin/hanse.tar -nt bin/hanse ]; then
	exit 0
fi
bin/scratch-image -o bin/hanse.tar -tag "$image" -file bin/hanse=/hanse -entrypoint /hanse -user 65532
echo "$image" >bin/hanse.image
