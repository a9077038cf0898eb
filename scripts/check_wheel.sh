#!/bin/sh
# Build the release wheel and run it in environments that hold only its one dependency: the newest and the oldest version that
# pyproject.toml allows. PY is the Python with maturin. COMPATIBILITY (manylinux2014) builds for an older C library, with zig.
set -eu
cd "$(dirname "$0")/.."

rm -rf build/wheel
if test -n "${COMPATIBILITY:-}"; then
    "$PY" -m pip install --quiet 'ziglang>=0.17,<0.18'
    PATH=$(cd "$(dirname "$PY")" && pwd):$PATH
    set -- --zig --compatibility "$COMPATIBILITY"
fi
"$PY" -m maturin build --release --locked --quiet --out build/wheel "$@"
set -- build/wheel/logdex-*.whl
test "$#" -eq 1
case "$1" in
*-cp310-abi3-*) ;;
*)
    echo "$1 is not an abi3 wheel for Python 3.10 and newer" >&2
    exit 1
    ;;
esac

"$PY" -m venv --clear build/wheel/venv
alone=build/wheel/venv/bin/python
"$alone" -m pip install --quiet "$1"
"$alone" tests/wheel_alone.py
diff -r logdex.data/data/share build/wheel/venv/share
if command -v man >/dev/null; then
    man -M build/wheel/venv/share/man -w logdex
fi
"$alone" -m pip install --quiet 'arro3-core==0.8.*'
"$alone" tests/wheel_alone.py
