#!/bin/sh
# Usage: scripts/need.sh TOOL... with TOOL one of rust, cc, cxx, python, java, maven, browser.
# Print in one line which tool is missing or too old and how to install it; print nothing if all tools exist.
set -eu

missing() {
    echo "logdex: $1" >&2
    exit 1
}

# at_least FOUND LEAST: succeed if version FOUND (MAJOR.MINOR...) is LEAST (MAJOR.MINOR) or newer.
at_least() {
    printf '%s %s\n' "$1" "$2" | awk '{ split($1, f, "."); split($2, l, "."); exit !(f[1] > l[1] || f[1] == l[1] && f[2]+0 >= l[2]+0) }'
}

need_rust() {
    least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
    how="Rust $least or newer is needed: https://rustup.rs, or 'rustup update'"
    command -v cargo >/dev/null 2>&1 || missing "cargo is missing: $how"
    found=$(rustc --version 2>/dev/null | cut -d' ' -f2)
    at_least "${found:-0.0}" "$least" || missing "Rust ${found:-(no rustc)} is too old: $how"
}

need_cc() {
    command -v cc >/dev/null 2>&1 || missing "cc is missing: Rust links with a C compiler: 'apt install gcc libc6-dev', macOS 'xcode-select --install'"
}

need_cxx() {
    command -v c++ >/dev/null 2>&1 || missing "c++ is missing: 'make fuzz' builds libFuzzer with it: 'apt install g++', macOS 'xcode-select --install'"
}

need_python() {
    python=${PYTHON:-python3}
    how="'apt install python3 python3-venv', or use another one: make PYTHON=/path/to/python3 TARGET"
    command -v "$python" >/dev/null 2>&1 || missing "$python is missing: Python 3.10 or newer is needed: $how"
    found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    at_least "$found" 3.10 || missing "$python is $found: Python 3.10 or newer is needed: $how"
    "$python" -c 'import venv, ensurepip' 2>/dev/null || missing "$python has no venv module: $how"
}

need_java() {
    how="'apt install openjdk-17-jdk-headless', or set JAVA_HOME to one"
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command -v "$java" >/dev/null 2>&1 || missing "$java is missing: Spark needs Java 17 or newer: $how"
    # "17.0.15", "21", and "1.8.0_402" for old versions.
    found=$("$java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
    at_least "${found:-0}.0" 17.0 || missing "$java is ${found:-unknown}: Spark needs Java 17 or newer: $how"
}

need_maven() {
    command -v mvn >/dev/null 2>&1 || missing "mvn is missing: the tests with real servers need Maven: 'apt install maven'"
    javac=${JAVA_HOME:+$JAVA_HOME/bin/}javac
    command -v "$javac" >/dev/null 2>&1 || missing "$javac is missing: the tests with real servers need a JDK: 'apt install openjdk-17-jdk-headless'"
}

need_browser() {
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        missing "chromium is missing: 'make test-web' needs a browser: 'apt install chromium'"
}

for tool in "$@"; do
    "need_$tool"
done
