# Every recipe is one command, so that people without make lose nothing.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GOLANGCI_VERSION := v2.12.2
TOOLS := $(CURDIR)/bin

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/eventproof
	@go build -trimpath -o bin/eventproof ./cmd/eventproof

.PHONY: bench
bench: build ## the standard suite on every store that can be had here (about two minutes)
	@bin/eventproof bench

.PHONY: test
test: ## all tests
	go test ./...

.PHONY: test-race
test-race: ## all tests under the race detector
	go test -race ./...

.PHONY: fuzz
fuzz: ## a minute of fuzzing for each parser of persisted or foreign data
	go test -run '^$$' -fuzz FuzzReader -fuzztime 60s ./history
	go test -run '^$$' -fuzz FuzzParseNeverPanics -fuzztime 60s ./scenarios

.PHONY: lint
lint: bin/golangci-lint ## golangci-lint and gofmt
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	GOLANGCI_LINT_CACHE=$(CURDIR)/bin/lint-cache bin/golangci-lint run ./...

bin/golangci-lint:
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: prove
prove: build ## every control must be caught, every correct assembly left alone
	@bin/eventproof prove

.PHONY: prove-quick
prove-quick: build ## one seed of every control
	@bin/eventproof prove --quick

.PHONY: soak
soak: build ## look for false alarms: many short random runs of the correct variants (hours)
	@bin/eventproof run --scenario soak-bank --scenario soak-auction --target 'postgres/*' --correct --repeat 100 --out results/soak -q
	@bin/eventproof run --scenario soak-bank --scenario soak-auction --target memory/reference --repeat 1000 --out results/soak -q

FIGURES := go test -timeout 60m -count 1 -benchtime 1x -run

.PHONY: docker-smoke
docker-smoke: build ## the Docker provider on an engine, a private one if need be; exit 75 where none can be had
	deploy/docker-smoke/engine.sh deploy/docker-smoke/smoke.sh

.PHONY: figures
figures: ## the measurements behind docs/figures.md (about 15 minutes; nothing else should run)
	uptime
	$(FIGURES) '^$$' -bench '^BenchmarkCheckers$$' ./invariants
	$(FIGURES) '^$$' -bench '^Benchmark(RecordingOnNoOpTarget|RunnerMemory)$$' ./runner
	$(FIGURES) '^$$' -bench '^Benchmark(RecordingPrice|UnknownOutcomes)$$' ./runner
	$(FIGURES) '^TestAStallShowsInResponseTimeAndNotInServiceTime$$' -v ./runner
	uptime

.PHONY: fmt
fmt: ## gofmt
	gofmt -w .

.PHONY: clean
clean: ## remove what was built and all results
	rm -rf bin results
