# Every verb a person needs; CI calls only these. Needs cargo, python3 with venv, a C compiler and make; sets up the rest.

VENV   := .venv
PYTHON := $(VENV)/bin/python
BINARY := target/release/plimsoll
CHECKED := target/checked/plimsoll
CARGO  := cargo
# Tests and lint use the sources as they are; the binary is the one that was just built.
LAB     = PLIMSOLL_BIN=$(CURDIR)/$(BINARY) PYTHONPATH=$(CURDIR)/lab
# Tests use a binary that links fast and checks its own arithmetic (profile `checked` in Cargo.toml); measurements use the release.
# Tests start the laboratory hundreds of times: where a machine asks for no bytecode on disk, each start would compile it anew.
CHECKED_LAB = PLIMSOLL_BIN=$(CURDIR)/$(CHECKED) PYTHONPATH=$(CURDIR)/lab PYTHONDONTWRITEBYTECODE=
# Cargo warns of a jobserver that it is told of and cannot reach.
RUST_TEST   = env -u MAKEFLAGS -u MFLAGS $(CARGO) test --profile checked --locked --quiet
SOURCES = lab tests bench suites

# Rows of ratios; the other scripts ask questions of their own, or are parts of these.
BENCHES = $(addprefix bench/,beside.py capture.py echo.py forward.py generators.py http.py reload.py tables.py)
MDBOOK  = target/tools/bin/mdbook
# Peers that distributions do not have. A row whose peer could not be had says so.
OHA     = target/tools/bin/oha
FORTIO  = target/tools/bin/fortio
K6      = target/tools/bin/k6

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-lab lint fmt peers bench measure million soak fuzz mutants docs reference build install lock clean binary

help: ## show this
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

# Exit 4 means measured, but the machine or the generator was the limit: the report says so, and make need not fail.
demo: $(VENV)/.locked binary ## answer "which I/O model should my server use?" on this machine, in two to three minutes
	@$(LAB) $(PYTHON) -m plimsoll_lab run demo; code=$$?; test $$code -eq 0 -o $$code -eq 4

# Most tests wait for programs, not for a CPU: so the two runners go beside each other, and more tests at once than there are CPUs.
test: $(VENV)/.locked ## run every test
	$(RUST_TEST) --workspace --no-run
	$(CARGO) build --profile checked --locked --quiet -p plimsoll
	$(MAKE) --no-print-directory --jobs 2 --output-sync test-rust test-lab

test-rust:
	$(RUST_TEST) --workspace -- --test-threads 6

# Files of tests in the order in which they are collected, which has the longest first: ordered by how many tests they have, those came last.
test-lab:
	$(CHECKED_LAB) $(PYTHON) -m pytest --numprocesses 6 --dist loadfile --no-loadscope-reorder

peers: ## install the programs that tests and bench compare ours with (Debian, as root); a part whose program is missing is skipped and says so
	apt-get install --yes --no-install-recommends haproxy nginx-light libnginx-mod-stream rinetd socat postgresql postgresql-contrib \
		redis-server redis-tools nghttp2-client iperf3 apache2-utils wrk curl tcpdump tshark strace chromium zsh fish

bench: $(VENV)/.locked binary $(OHA) $(FORTIO) ## compare the tools with their competitors, as ratios
	@set -e; for script in $(BENCHES); do $(PYTHON) $$script; done

lint: $(VENV)/.locked ## check format, lint, types and documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --profile checked --locked --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --profile checked --locked --quiet
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(PYTHON) tests/line_width.py
	$(VENV)/bin/mypy

fmt: $(VENV)/.locked ## format everything
	$(CARGO) fmt --all
	$(VENV)/bin/ruff check --fix-only --quiet $(SOURCES)
	$(VENV)/bin/ruff format $(SOURCES)

measure: $(VENV)/.locked binary $(FORTIO) ## test what takes how long, on a machine that does nothing else
	$(RUST_TEST) -p plimsoll --test measure -- --nocapture --test-threads 1
	$(LAB) $(PYTHON) -m pytest -m measures

million: $(VENV)/.locked binary ## 1 to 1,000,000 connections between one server and one generator command
	$(PYTHON) bench/scale.py

soak: $(VENV)/.locked binary $(FORTIO) ## what takes long: a million connections, every model churned for long under Valgrind, judgement over many seeds, the forwarder tortured
	PLIMSOLL_TORTURE_CONNECTIONS=1000000 $(RUST_TEST) -p plimsoll --test whole forward_torture::
	PLIMSOLL_VALGRIND_TIMES=10 $(RUST_TEST) -p plimsoll --test whole valgrind::
	PLIMSOLL_DESCRIPTOR_ROUNDS=10000 $(RUST_TEST) -p plimsoll --test whole serve_http::descriptors
	$(MAKE) measure PLIMSOLL_PARITY_ROUNDS=5 PLIMSOLL_FAIRNESS_ROUNDS=50
	$(PYTHON) bench/scale.py --loads 100000,1000000
	$(PYTHON) bench/relayed.py
	$(LAB) PLIMSOLL_KILLS=20 PLIMSOLL_LARGEST=1 $(PYTHON) -m pytest tests/test_killed_runs.py
	$(LAB) PLIMSOLL_ALIKE_RUNS=200 PLIMSOLL_FAMILIES=2000 $(PYTHON) -m pytest lab/tests/test_compare.py lab/tests/test_stats.py
	$(PYTHON) bench/simulations.py --out target/bench
	$(PYTHON) bench/slowdown.py
	$(LAB) PLIMSOLL_FAST_FORMS=all $(PYTHON) -m pytest tests/test_fast_forms.py
	$(LAB) PLIMSOLL_DAMAGES=all $(PYTHON) -m pytest lab/tests/test_damaged_runs.py

# In workspaces of their own: a fuzzer needs a nightly compiler and cargo-fuzz (`cargo install cargo-fuzz`). CRATE:TARGET; what is found
# stays in target/fuzz-corpus, so that the next run goes on from there.
FUZZ_SECONDS = 300
FUZZ_TARGETS = subject/serve:http subject/forward:table instrument/capture:pcapng instrument/capture:packets instrument/link:frame \
	instrument/load:tls base/wire:response
fuzz: ## fuzz each parser of what peers, files and devices send, for FUZZ_SECONDS each
	@set -e; for each in $(FUZZ_TARGETS); do \
		crate=$${each%:*}; target=$${each#*:}; corpus=$(CURDIR)/target/fuzz-corpus/$$target; mkdir -p $$corpus; \
		(cd crates/$$crate && $(CARGO) +nightly fuzz run $$target $$corpus fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=20000 -timeout=10 -rss_limit_mb=4096); \
	done

# Needs cargo-mutants (`cargo install --locked cargo-mutants`); .cargo/mutants.toml says which code. What is caught stays in target/mutants,
# so that a part that was broken off goes on with the rest.
PART = 0/8
mutants: ## change the code that counts, a line at a time, and tell which changes no test notices; an eighth of them: PART=0/8 to 7/8
	mkdir -p target/mutants/$(subst /,-of-,$(PART))
	$(CARGO) mutants --iterate --no-shuffle --shard $(PART) --output target/mutants/$(subst /,-of-,$(PART))

reference: $(VENV)/.locked binary ## write the schemas, the book's reference and what README.md says of stored runs anew
	$(LAB) $(PYTHON) -m plimsoll_lab.store.schemas
	$(LAB) $(PYTHON) -m plimsoll_lab.suite.reference
	$(LAB) $(PYTHON) -m plimsoll_lab.cli.reference
	$(LAB) $(PYTHON) bench/front_page.py

docs: $(MDBOOK) ## build the book (target/book) and the reference of the crates (target/doc)
	$(MDBOOK) build docs --dest-dir $(CURDIR)/target/book
	$(CARGO) doc --workspace --no-deps --locked --quiet

$(MDBOOK):
	$(CARGO) install --locked --quiet --root target/tools mdbook --version 0.5.0

$(OHA):
	-$(CARGO) install --locked --quiet --root target/tools oha --version 1.16.0

# Pinned: later versions need modules that the public proxy did not have.
$(FORTIO):
	-GOFLAGS=-mod=mod GOBIN=$(CURDIR)/target/tools/bin go install fortio.org/fortio@v1.66.5

$(K6):
	-GOFLAGS=-mod=mod GOBIN=$(CURDIR)/target/tools/bin go install go.k6.io/k6@v0.54.0

build: binary ## build the release binary

install: $(VENV)/.locked binary ## put plimsoll and plimsoll-lab into .venv/bin
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --no-index .

lock: $(VENV)/.locked ## choose the newest versions anew, and write them down with their hashes
	$(PYTHON) -m pip install --quiet uv
	{ head -1 requirements.lock; $(VENV)/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade --quiet; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean: ## remove what was built, but no run
	rm -rf $(VENV) target build *.egg-info

# Cargo knows best whether anything is to be done.
binary:
	$(CARGO) build --release --locked --quiet -p plimsoll

$(VENV)/.locked: requirements.lock
	python3 -m venv --clear $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@
