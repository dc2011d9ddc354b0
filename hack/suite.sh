#!/usr/bin/env bash
# Builds the end-to-end suite of virtual-kubelet and the images of its pods, into bin/suite.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 # the images hold nothing but the program
mkdir -p bin/suite
(cd test/virtualkubelet && go test -c -o ../../bin/suite/suite.test . && go build -trimpath -o ../../bin/suite/wait ./cmd/wait)
for image in foo bar baz; do
	bin/scratch-image -o "bin/suite/$image.tar" -tag "docker.io/library/$image:latest" -file bin/suite/wait=/wait -entrypoint /wait
done
