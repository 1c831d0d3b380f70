# Skua. `make run` and `make test` are the two commands to know; `make help` lists the rest.

SHELL = /bin/bash
CARGO ?= cargo
SKUA = target/release/skua
# As it is packaged: what benchmarks measure.
SHIPPED = target/shipped/skua
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help needs build run release deb dist image test test-release test-kernels test-arm64 test-kafka test-stream lint fuzz bench-flow bench-collector bench-fleet bench-lake bench-reduction bench-networks test-apps test-lake test-peers test-skydive bench-addresses bench-drain \
	bench-breaking-point bench-replay bench-sockets bench-graph bench-history \
	bench-receive bench-steer bench-tap bench-tap-guest bench-top bench-console bench-answers bench-clients bench screenshot screenshots film record clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

needs:
	@packaging/needs $(NEEDS)

$(SKUA): needs
	@web/build
	@echo "skua: building (the first time 6 minutes on two cores, then seconds)"
	@$(CARGO) build --release -p skua

build: $(SKUA) ## build target/release/skua
$(SHIPPED): needs
	@web/build
	@echo "skua: building as it is packaged (the first time up to 20 minutes on two cores)"
	@$(CARGO) build --profile shipped -p skua
.PHONY: $(SKUA) $(SHIPPED)

run: $(SKUA) ## install what the build needs, build, watch all interfaces (ARGS='--interface eth0')
	@if [ "$$(id -u)" = 0 ]; then exec $(SKUA) run $(ARGS); else exec sudo $(SKUA) run $(ARGS); fi

release: needs ## one statically linked file: target/dist/skua
	@web/build
	@packaging/release

dist: needs ## all that a release has, for x86-64 and arm64: archives, .deb, .rpm, image, install script, formula, in target/dist
	@web/build
	@packaging/dist $(PROFILE)

deb: release ## Debian package: target/dist/skua_VERSION_amd64.deb
	@packaging/deb

ENGINE ?= $(shell command -v podman || echo docker)
image: release ## container image skua:VERSION, by podman or docker
	@packaging/progress "skua: building the image" $(ENGINE) build --quiet --file packaging/Containerfile \
		--tag skua:$$(target/dist/skua --version | cut -d ' ' -f 2) --tag skua:latest target/dist

test: NEEDS = tests
test: needs ## everything on this kernel: format, lints, all tests with root, the static program (about 20 minutes from nothing)
	@tests/all

test-release: NEEDS = tests
test-release: needs release ## the program as it is packaged: packaging, smoke, server and live tests against it
	@SKUA=$(CURDIR)/target/dist/skua tests/packaging/run
	@TESTED_SKUA=$(CURDIR)/target/dist/skua $(CARGO) test --quiet -p skua --test smoke --test server --test live $(ARGS)

test-kernels: NEEDS = tests
test-kernels: needs ## the privileged tests on every kernel of the matrix (about 30 minutes; ARGS=5.10,6.12 for these, 7 minutes)
	@tests/all kernels $(ARGS)

test-arm64: ## the program for arm64 in an emulated machine with Debian's kernel for arm64 (needs a cross-compiler; minutes)
	@[ -e target/dist/aarch64/skua ] || packaging/release shipped aarch64
	@tests/arm64/run

test-kafka: NEEDS = kafka
test-kafka: needs ## the sink kafka:// and a real broker; agent, collector and broker are killed (about 3 minutes)
	@tests/kafka/run

test-stream: NEEDS = kafka
test-stream: needs ## the stream job on a real Flink, beside the same in process, and killed (about 5 minutes, downloads 330 MB once)
	@tests/kafka/run flink

lint: ## format and clippy
	@$(CARGO) fmt --check
	@packaging/progress "skua: lints" $(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

fuzz: ## fuzz the parsers for a minute each
	@fuzz/run 60

bench: bench-flow bench-addresses bench-drain bench-breaking-point bench-replay bench-sockets bench-graph bench-history \
	bench-receive bench-steer bench-tap bench-top bench-console bench-answers bench-clients ## all benchmarks
bench-flow: ## kernel cost per packet (ARGS='--peer OBJECT' for netobserv)
	@$(CARGO) build --profile shipped --quiet -p skua-probe --example flow_hook
	@$(MAKE) -C bench flow ARGS='$(ARGS)'
bench-collector: $(SHIPPED) ## what a record costs a collector: decode, sum up, end to end, beside sfcapd, sfacctd, goflow2
	@$(CARGO) run --profile shipped --quiet -p skua-collect --example collect_speed
	@$(CARGO) build --profile shipped --quiet -p skua-probe --example decode
	@$(MAKE) -C bench collector ARGS='$(ARGS)'
bench-fleet: $(SHIPPED) ## a thousand agents on this machine against one collector: costs, and what is lost where
	@$(CARGO) build --profile shipped --quiet -p skua-collect --example agents
	@$(MAKE) -C bench fleet ARGS='$(ARGS)'
bench-lake: ## the lake: rows written per second beside DuckDB and Arrow, bytes a row, compaction, questions (ARGS=ROWS)
	@ROWS='$(ARGS)' tests/lake/run bench
test-peers: ## what tshark, sflowtool, goflow2 and sfcapd read of what collectors get, as far as they are installed (seconds)
	@$(CARGO) build --quiet -p skua
	@tests/peers/run
test-skydive: ## Skydive's own client and functional tests, which you have built, against skua (tests/skydive/run --help says how)
	@$(CARGO) build --quiet -p skua
	@tests/skydive/run $(ARGS)
test-apps: ## what is read of DNS, TLS and others in public captures, of which you have checkouts (ARGS='--suricata-verify DIR --ja4 DIR')
	@$(CARGO) build --quiet -p skua
	@tests/apps/run $(ARGS)
test-lake: ## the lake in a real S3 server and a real HDFS, read by DuckDB, ClickHouse and Arrow (gets them; a quarter of an hour when all is built)
	@tests/lake/run $(ARGS)
bench-reduction: ## messages by service and client beside messages by 5-tuple, for several mixes of traffic
	@$(CARGO) run --profile shipped --quiet -p skua-kafka --example reduction
bench-networks: ## what it costs to say whose addresses are (ARGS="COUNTRIES.mmdb SYSTEMS.mmdb")
	@$(CARGO) run --profile shipped --quiet -p skua-flow --example networks -- $(ARGS)
bench-addresses: ## cost of the address set per packet
	@$(CARGO) build --profile shipped --quiet -p skua-probe --example flow_hook
	@$(MAKE) -C bench addresses ARGS='$(ARGS)'
bench-top: $(SHIPPED) ## CPU time of skua top, and of the skua run that it asks, with 10,000 flows
	@$(MAKE) -C bench top ARGS='$(ARGS)'
bench-answers: $(SHIPPED) ## time, memory and the wait of others while 150,000 conversations are asked for
	@$(MAKE) -C bench answers ARGS='$(ARGS)'
bench-clients: $(SHIPPED) ## how long drains wait while 1,000 clients ask for 100,000 conversations
	@$(MAKE) -C bench clients ARGS='$(ARGS)'
bench-tap-guest: $(SHIPPED) ## copying packets beside Open vSwitch's kernel datapath, in a guest that counts instructions (some minutes)
	@$(MAKE) -C bench tap-guest ARGS='$(ARGS)'
bench-tap: $(SHIPPED) ## copying packets to a monitor, beside tc mirred and Open vSwitch
	@$(MAKE) -C bench tap ARGS='$(ARGS)'
bench-drain: $(SHIPPED) ## user-space cost and memory with 500,000 flows
	@$(MAKE) -C bench drain ARGS='$(ARGS)'
bench-breaking-point: $(SHIPPED) ## new flows per second until packets are lost
	@$(MAKE) -C bench breaking-point ARGS='$(ARGS)'
bench-replay: $(SHIPPED) ## replay speed beside softflowd and tshark
	@$(MAKE) -C bench replay ARGS='$(ARGS)'

bench-sockets: needs ## cost of watching sockets, per connection, idle and in bulk, beside tcplife
	@$(CARGO) build --profile shipped --quiet -p skua-kernel --example socket_trace
	@$(MAKE) -C bench sockets ARGS='$(ARGS)'
bench-graph: ## queries on 100,000 nodes and 1,000,000 flows that change (needs no root, 1 GB)
	@$(CARGO) run --profile shipped --quiet -p skua-query --example bench_graph
	@$(CARGO) run --profile shipped --quiet -p skua-sources --example bench_flows
bench-history: ## the history on disk: 1,200,000 changes of flows, a graph of 100,000 nodes (needs no root, 1 GB)
	@$(CARGO) run --profile shipped --quiet -p skua-store --example bench_history
bench-receive: ## records per CPU second of sFlow, NetFlow and IPFIX, beside nfcapd, sfcapd and goflow2
	@$(CARGO) build --profile shipped --quiet -p skua-probe --example receive
	@$(MAKE) -C bench receive ARGS='$(ARGS)'

bench-steer: needs ## cost of steering packets in the kernel, beside a forwarder in user space
	@$(MAKE) -C bench steer ARGS='$(ARGS)'

bench-console: needs $(SHIPPED) ## the web page with 5,000 nodes and 50,000 flows: first paint, frames, bytes, memory
	@SKUA=$(SHIPPED) tests/console/run bench.mjs

screenshot: $(SKUA) ## the pictures in docs/images
	@docs/images/screenshot
film: $(SKUA) ## docs/images/top.svg: skua top in the lab, moving
	@docs/lab/record --run docs/images/film
record: $(SKUA) ## run the commands of docs/tutorial.md and docs/trial.md in the lab, and write what they print there
	@docs/lab/record docs/tutorial.md docs/trial.md
screenshots: NEEDS = tests
screenshots: needs $(SKUA) ## the pictures of the web page in docs/pictures
	@SKUA=$(SKUA) tests/console/run pictures.mjs

clean: ## remove what was built
	@$(CARGO) clean
