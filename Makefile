# Every target that a developer types has a line of help behind two hashes. `make help` prints them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# VERSION is that of the newest tag and what was added since, or, before there is one, the coming release's.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.1.0-g$$(git describe --always --dirty 2>/dev/null || echo unknown))
# IMAGE is the name of the image. Without it the tag tells what is inside, so that other code has another tag.
IMAGE   ?=
# RUN selects stories and tests by name, such as RUN='^TestLogsAndExec$'; empty runs all.
RUN     ?=
# KEEP=1 keeps the clusters of stories and of integration tests for the next call.
KEEP    ?=
# RESULTS is the folder for JUnit files, and for logs and objects of tests that failed.
RESULTS ?= bin/results
FUZZTIME ?= 2m
# SEED and DURATION are those of the fault suite: another plan each time, for 3 minutes, unless they are given. DURATION is
# also that of the attacks of a provider.
SEED     ?=
DURATION ?=
# RACE=1 builds unit tests with the race detector, which needs a C compiler.
RACE     ?=

# Tools of the build, at exact versions.
ACTIONLINT     := bin/actionlint-v1.7.12
CONTROLLER_GEN := bin/controller-gen-v0.23.0
GOLANGCI_LINT  := bin/golangci-lint-v2.15.0
GOTESTSUM      := bin/gotestsum-v1.13.0
GOVULNCHECK    := bin/govulncheck-v1.9.0

# One setting for all builds, tests and linters, so that each package is compiled once.
export CGO_ENABLED ?= 0
export GOFLAGS     ?= -trimpath
GOBUILD := go build -v -trimpath -ldflags '-s -w -X github.com/hanse-dev/hanse/internal/version.Version=$(VERSION)'

##@ Use

.PHONY: help
help: ## show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: root ## two real clusters that share, and an application that spans them
	@$(MAKE) --no-print-directory programs
	@hack/demo.sh up

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "real kubelets and containers need root: run this as root, best in a virtual machine" >&2; exit 1; }

.PHONY: demo-down
demo-down: ## remove all that the demo made
	@hack/demo.sh down

##@ Build

.PHONY: build
build: ## build bin/hanse and bin/kubectl-hanse
	@mkdir -p bin
	@testbed/progress 'hanse and kubectl-hanse' '3 min' $(GOBUILD) -o bin/ ./cmd/hanse ./cmd/kubectl-hanse

.PHONY: testbed
testbed: testbed-tools ## build bin/testbed, bin/kubectl and Kubernetes itself, from Go modules
	@$(MAKE) --no-print-directory -C testbed clusters

# They come first, since both clusters and images are made with them.
.PHONY: testbed-tools
testbed-tools:
	@$(MAKE) --no-print-directory -C testbed $(abspath bin/testbed bin/scratch-image)

.PHONY: image
image: build testbed-tools ## make the container image bin/hanse.tar, without Docker
	@hack/image.sh $(IMAGE)

# The application of the tutorial and of a story, in an image of its own.
bin/images/orders.tar: $(wildcard demo/orders/*.go) demo/orders/go.mod demo/orders/go.sum
	@mkdir -p $(@D)
	@testbed/progress 'the application Orders' '1 min' $(SHELL) -c "cd demo/orders && go build -v -trimpath -ldflags '-s -w' -o ../../bin/images/orders ."
	@$(MAKE) --no-print-directory testbed-tools
	@bin/scratch-image -o $@ -tag hanse.dev/test/orders:v1 -file bin/images/orders=/orders -entrypoint /orders -user 65532

# kubectl in an image, for pods that call the API server.
bin/images/kubectl.tar: bin/kubectl
	@mkdir -p $(@D)
	@bin/scratch-image -o $@ -tag hanse.dev/test/kubectl:v1 -file bin/kubectl=/kubectl -entrypoint /kubectl

.PHONY: skew-images
skew-images: # Hanse that claims to be other versions
	@hack/skew.sh v0.2.0 v0.3.0

.PHONY: virtual-kubelet-suite
virtual-kubelet-suite:
	@hack/suite.sh

# Kubernetes, Hanse and CoreDNS are built side by side: each downloads modules for a while, and a linker uses one core.
.PHONY: programs
programs: ## build all that clusters with Hanse consist of; it says how far it is
	@counter=$$(mktemp); trap 'rm -f "$$counter"' EXIT; \
	steps=$$($(MAKE) -n all-programs | grep -o "testbed/progress '[^']*'" | sort -u | wc -l); \
	PROGRESS=$$counter STEPS=$$steps $(MAKE) --no-print-directory -j 3 all-programs

.PHONY: all-programs
all-programs: testbed build image

.PHONY: generate
generate: $(CONTROLLER_GEN) ## generate deepcopy functions and CRDs
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt crd:maxDescLen=1000 paths=./api/... output:crd:dir=charts/hanse/crds

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## format the code
	$(GOLANGCI_LINT) fmt ./...

##@ Check

.PHONY: lint
lint: $(GOLANGCI_LINT) ## run the linters
	$(GOLANGCI_LINT) run ./...
	cd testbed && ../$(GOLANGCI_LINT) run --config ../.golangci.yml ./...
	cd test/fit && ../../$(GOLANGCI_LINT) run --config ../../.golangci.yml ./...
	cd test/virtualkubelet && ../../$(GOLANGCI_LINT) run --config ../../.golangci.yml ./...
	cd demo/orders && ../../$(GOLANGCI_LINT) run --config ../../.golangci.yml ./...

.PHONY: workflows
workflows: $(ACTIONLINT) ## lint the workflows of .github; it uses neither the network nor programs of the machine
	$(ACTIONLINT) -shellcheck= -pyflakes=

.PHONY: check
check: lint workflows $(CONTROLLER_GEN) ## linters, formatting, generated files, go.mod, workflows: what must hold before a commit
	hack/check.sh $(CONTROLLER_GEN)

.PHONY: unit
unit: $(GOTESTSUM) ## all unit tests: no root, no network; RACE=1 adds the race detector (needs gcc), RUN selects
	@mkdir -p $(RESULTS)
	@RUN='$(RUN)' RACE='$(RACE)' $(GOTESTSUM) --format pkgname --junitfile $(RESULTS)/unit.xml --raw-command -- hack/unit.sh

.PHONY: test
test: root programs ## unit tests, then the core stories on real clusters: at least one for each capability
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory stories STORIES=-core

.PHONY: integration
integration: build ## real API servers, without root and containers: objects, admission, rights, messages; RUN selects, KEEP=1 keeps them
	@$(MAKE) --no-print-directory -C testbed $(addprefix $(abspath bin)/,testbed kubectl kwok)
	@go build -trimpath -o bin/integration ./test/integration/run
	@bin/integration -run '$(RUN)' -results '$(RESULTS)' $(if $(KEEP),-keep)

.PHONY: e2e
e2e: programs ## every story on real clusters; RUN selects, KEEP=1 keeps the clusters
	@$(MAKE) --no-print-directory stories

.PHONY: e2e-rest
e2e-rest: programs ## the stories that make test leaves out
	@$(MAKE) --no-print-directory stories STORIES=-rest

.PHONY: stories
stories: bin/e2e
	@bin/e2e -results '$(RESULTS)' $(if $(RUN),-run '$(RUN)') $(if $(KEEP),-keep) $(STORIES)

.PHONY: bin/e2e
bin/e2e:
	@mkdir -p bin
	@testbed/progress 'the runner of stories' '1 min' go build -v -trimpath -o $@ ./test/e2e/runner

.PHONY: e2e-faults
e2e-faults: programs ## break three clusters while pods come and go; SEED replays a run, DURATION is how long (3m)
	SEED='$(SEED)' DURATION='$(DURATION)' hack/faults.sh

.PHONY: e2e-attacks
e2e-attacks: programs ## one hostile provider beside an honest one; DURATION is how long it attacks (10m)
	@HANSE_ATTACKS_FOR='$(or $(DURATION),10m)' $(MAKE) --no-print-directory stories RUN='^TestHostileProvider$$'

.PHONY: e2e-application
e2e-application: programs ## an application over three clusters that changes under load, and loses one of them; HANSE_LOST_FOR is for how long (1m)
	@$(MAKE) --no-print-directory stories RUN='^TestApplicationOverThreeClusters$$'

# The oldest Kubernetes that Hanse works with, and the stories that examine Kubernetes itself.
OLDEST   := v1.36.3
EXAMINES := ^(TestReplicaSetDeletesByTheseRules|TestEarlierRunningSurvives|TestUnassignedLoses)$$

.PHONY: e2e-oldest
e2e-oldest: programs ## what Hanse takes Kubernetes to do, on the oldest version that it works with; or RUN, of stories on two clusters
	@$(MAKE) --no-print-directory -C testbed $(abspath bin/kubernetes-$(OLDEST))
	@$(MAKE) --no-print-directory stories STORIES='-kubernetes $(OLDEST)' RUN='$(or $(RUN),$(EXAMINES))'

.PHONY: fuzz
fuzz: ## fuzz whatever reads bytes of a peer, FUZZTIME each (2m)
	hack/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: programs ## measure against the floors of the design; prints a table
	@$(MAKE) --no-print-directory -C testbed $(abspath bin/kwok)
	hack/bench.sh

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## look our dependencies up in the vulnerability database (needs the Internet)
	$(GOVULNCHECK) ./...

$(ACTIONLINT):
	@hack/tool.sh $@ github.com/rhysd/actionlint/cmd/actionlint
$(CONTROLLER_GEN):
	@hack/tool.sh $@ sigs.k8s.io/controller-tools/cmd/controller-gen
$(GOLANGCI_LINT):
	@hack/tool.sh $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(GOTESTSUM):
	@hack/tool.sh $@ gotest.tools/gotestsum
$(GOVULNCHECK):
	@hack/tool.sh $@ golang.org/x/vuln/cmd/govulncheck
