# `make` alone lists the targets.
#
# Every target creates what it needs: .venv with the locked Python packages, and the extension. Stamps in .venv record that, so
# a second call only runs. Paths are relative, because make splits paths at spaces.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
PY := $(VENV)/bin/python

export PYTHON
# Spark's workers must run the driver's Python.
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)
# maturin and PyO3 build for this Python, in any environment of the caller.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
# A fixed seed for the generated Rust tests, as in pyproject.toml for Python. Set another seed to search further.
export PROPTEST_RNG_SEED ?= 20260321
# A command that leaves its output in a buffer must fail its test.
unexport PYTHONUNBUFFERED
# The tests start commands thousands of times: each must find its modules compiled.
unexport PYTHONDONTWRITEBYTECODE
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find src -name '*.rs')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: need-java $(VENV)/.extension ## read, index and search a real broker's store, with Spark and without
	@$(PY) examples/demo.py

# Each process takes whole files of tests, because the tests of a file may share a server, a Spark session or a count.
TEST_PROCESSES ?= 2

.PHONY: test
test: need-java $(VENV)/.extension ## run all tests: Rust, Python, Spark
	@echo '== cargo test'
	@$(CARGO) test --locked --quiet
	@echo '== pytest'
	@$(PY) -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --ignore tests/python/browse

.PHONY: test-web
test-web: need-browser $(VENV)/.extension ## test the pages of `logdex browse` in Chromium
	@echo '== pytest tests/python/browse'
	@$(PY) -m pytest -q -n $(TEST_PROCESSES) --dist loadfile tests/python/browse

.PHONY: test-storage
test-storage: need-java need-maven $(VENV)/.extension ## test other stores than S3 on real servers: Azure, HDFS (needs npm, Maven)
	@command -v npm >/dev/null || { echo 'make test-storage needs node and npm'; exit 1; }
	@npm ci --silent --no-audit --no-fund --prefix tests/storage
	@mvn -q -B -ntp -f tests/storage/hdfs/pom.xml package
	@$(PY) -m pytest -q tests/storage

.PHONY: check
check: need-cxx $(VENV)/.extension ## check formatting, lints, types, stubs, workflows; that benchmarks and fuzz targets compile
	@echo '== cargo fmt, clippy, doc'
	@$(CARGO) fmt --check
	@$(CARGO) clippy --locked --quiet --all-targets -- -D warnings
	@$(CARGO) clippy --locked --quiet --all-targets --features python,remote,hdfs -- -D warnings
	@$(CARGO) clippy --locked --quiet --features python -- -D warnings
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --quiet --no-deps
	@echo '== cargo check of the fuzz targets'
	@cd fuzz && $(CARGO) check --locked --quiet
	@echo '== ruff, mypy, stubtest'
	@$(PY) -m ruff format --check
	@$(PY) -m ruff check
	@$(PY) -m mypy
	@$(PY) -m mypy tests/interop
	@$(PY) -m mypy.stubtest logdex._core
	@echo '== workflows'
	@$(VENV)/bin/zizmor --offline --quiet --pedantic .github/workflows

# The classes of a second release of Kafka, as the first has them in target/lib.
COPY_JARS := org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime '-DoutputDirectory=$${project.build.directory}/lib-4.3.1'

.PHONY: interop
interop: need-java need-maven $(VENV)/.extension-release ## test files of logdex in the real broker's classes (needs Maven)
	@echo '== maven'
	@mvn -q -B -ntp -f tests/interop/pom.xml package
	@mvn -q -B -ntp -f tests/interop/kafka/pom.xml package
	@mvn -q -B -ntp -f tests/interop/kafka/pom.xml -Dkafka.version=4.3.1 -Djackson.version=2.21.2 $(COPY_JARS)
	@mvn -q -B -ntp -f tests/interop/spark/pom.xml package
	@mvn -q -B -ntp -f tests/interop/wire/pom.xml package
	@echo '== clients in Go and Python'
	@if command -v go >/dev/null; then go -C tests/interop/wire/go build -o ../target/go-client .; else echo 'no Go: its client is not tested'; fi
	@test -d tests/interop/wire/target/python || $(PY) -m pip install --no-deps --require-hashes \
	    --target tests/interop/wire/target/python --requirement tests/interop/wire/python/requirements.txt || \
	    echo 'no wheel of the Python client: it is not tested'
	@echo '== pytest tests/interop'
	@$(PY) -m pytest -q tests/interop

.PHONY: bench
bench: $(VENV)/.extension-release ## run short benchmarks: criterion and pytest-benchmark
	@$(CARGO) bench --locked --quiet -- --warm-up-time 1 --measurement-time 2
	@$(PY) -m pytest -q benches/python --benchmark-only

.PHONY: bench-report
bench-report: need-java need-maven $(VENV)/.extension-release $(VENV)/.bench ## run all benchmarks, with other systems; write docs/benchmarks.md
	@$(PY) -m benches.report $(REPORT)

.PHONY: bench-short
# Without link-time optimisation, which takes longer than the runs.
bench-short: export CARGO_PROFILE_BENCH_LTO := false
bench-short: export CARGO_PROFILE_BENCH_CODEGEN_UNITS := 16
bench-short: need-java need-maven $(VENV)/.extension-release $(VENV)/.bench ## run every benchmark once, small, to see that it works
	@echo '== cargo bench --test'
	@$(CARGO) bench --locked --quiet -- --test
	@echo '== pytest benches/python'
	@$(PY) -m pytest -q benches/python --benchmark-disable
	@echo '== report'
	@$(PY) -m benches.report --short

.PHONY: docs
docs: $(VENV)/.extension $(VENV)/.docs ## build the documentation site into build/docs; a warning is an error
	@$(PY) scripts/draw_pictures.py
	@rm -rf build/docs
	@$(PY) -m sphinx -b html -q -W --keep-going docs build/docs
	@echo 'build/docs/index.html'

# The wheel installs these under the prefix of its environment.
SHARE := logdex.data/data/share

.PHONY: guides
guides: $(VENV)/.extension ## run the quick start and the guides, write their output, man page and completions, draw screens and pictures
	@$(PY) -m logdex --print-man-page > $(SHARE)/man/man1/logdex.1
	@$(PY) -m logdex --print-completion bash > $(SHARE)/bash-completion/completions/logdex
	@$(PY) -m logdex --print-completion zsh > $(SHARE)/zsh/site-functions/_logdex
	@$(PY) -m logdex --print-completion fish > $(SHARE)/fish/vendor_completions.d/logdex.fish
	@$(PY) scripts/run_guides.py --write
	@$(PY) scripts/draw_pictures.py --write
	@$(PY) scripts/draw_screens.py --write

FUZZ_SECONDS ?= 20
FUZZ_TARGETS := $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: fuzz
fuzz: need-rust need-cxx need-python ## run each fuzz target for a short time, with seeds from the golden files
	@$(PYTHON) fuzz/seed.py
	@cd fuzz && $(CARGO) build --release --locked --quiet
	@for target in $(FUZZ_TARGETS); do \
	    echo "== fuzz $$target, $(FUZZ_SECONDS) s"; \
	    fuzz/run.sh $$target $(FUZZ_SECONDS) || exit 1; \
	done

.PHONY: wheel
wheel: need-rust $(VENV)/.locked ## build the release wheel and test it; COMPATIBILITY=manylinux2014 builds it for old systems
	@echo '== wheel'
	@PY=$(PY) COMPATIBILITY=$(COMPATIBILITY) scripts/check_wheel.sh

.PHONY: lock
lock: need-python ## pin the Python development environment again
	@test -x build/uv/bin/uv || { $(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv; }
	@build/uv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --group dev --no-emit-index-url \
	    --custom-compile-command 'make lock' --output-file requirements-dev.lock
	@build/uv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --group bench --no-emit-index-url \
	    --constraint requirements-dev.lock --custom-compile-command 'make lock' --output-file requirements-bench.lock
	@build/uv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --group docs --no-emit-index-url \
	    --constraint requirements-dev.lock --custom-compile-command 'make lock' --output-file requirements-docs.lock

.PHONY: clean
clean: ## remove everything that these targets created
	@rm -rf $(VENV) build target fuzz/target fuzz/corpus fuzz/artifacts tests/interop/target tests/interop/kafka/target tests/interop/spark/target tests/interop/wire/target tests/storage/hdfs/target spark-warehouse .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@rm -f python/logdex/_core*.so
	@find python tests benches examples -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: need-rust need-cxx need-python need-java need-maven need-browser
need-rust:
	@scripts/need.sh rust cc
need-cxx:
	@scripts/need.sh cxx
need-python need-java need-maven need-browser: need-%:
	@scripts/need.sh $*

$(VENV)/.locked: requirements-dev.lock | need-python
	@echo '== Python packages into $(VENV)'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --requirement requirements-dev.lock
	@touch $@

$(VENV)/.bench: requirements-bench.lock $(VENV)/.locked
	@echo '== packages of the benchmarks into $(VENV)'
	@$(PY) -m pip install --requirement requirements-bench.lock
	@touch $@

$(VENV)/.docs: requirements-docs.lock $(VENV)/.locked
	@echo '== packages of the documentation into $(VENV)'
	@$(PY) -m pip install --requirement requirements-docs.lock
	@touch $@

# Both builds write the same file in python/logdex, so each removes the stamp of the other.
$(VENV)/.extension: $(VENV)/.locked pyproject.toml $(RUST_SOURCES) | need-rust
	@echo '== building logdex._core (some three minutes the first time)'
	@$(PY) -m maturin develop --locked --quiet
	@rm -f $(VENV)/.extension-release
	@touch $@

$(VENV)/.extension-release: $(VENV)/.locked pyproject.toml $(RUST_SOURCES) | need-rust
	@echo '== building logdex._core for release (six minutes the first time)'
	@$(PY) -m maturin develop --release --locked --quiet
	@rm -f $(VENV)/.extension
	@touch $@
