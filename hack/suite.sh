#!/usr/bin/env bash
# Builds the end-to-end suite of virtual-kubelet and the images of its pods, into bin/suite.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 # the images hold nothing but the program
mkdir -p bin/suite
(cd test/virtualkubelet && go test -c -o ../../bin/suite/suite.test . && go build -trimpath -o ../../bin/suite/bridge ./cmd/bridge)
for image in foo bar baz; do
	bin/scratch-image -o "bin/suite/$image.tar" -tag "docker.io/library/$image:latest" -file bin/suite/bridge=/bridge \
		-entrypoint /bridge -cmd wait
done
bin/scratch-image -o bin/suite/bridge.tar -tag hanse.dev/test/bridge:v1 -file bin/suite/bridge=/bridge -entrypoint /bridge -user 65532
