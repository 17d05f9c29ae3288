#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: tools/tidy.sh [FILE...] (default: every source of
# src that this machine compiles).
#
# It reads the compile commands of the release preset from a folder of its own, where nothing is
# built: of all sources those of a unity build (build-tidy), which takes a quarter of the time, of
# named ones their own (build-tidy-files).
#   TESSERA_JOBS=N   look at N files at a time (default: one per core)
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v clang-tidy >/dev/null; then
  echo "tidy: clang-tidy is not here; ./setup --fuzz installs it" >&2
  exit 1
fi
files=("$@") folder=build-tidy unity=ON
((${#files[@]})) && folder=build-tidy-files unity=OFF
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset release -B $folder -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DCMAKE_UNITY_BUILD=$unity >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
if ((${#files[@]} == 0)); then
  # The database leaves out back ends that are not here. Of CUDA clang 14 knows too little.
  mapfile -t files < <(
    sed -n 's/^ *"file": "\(.*\.c[px][px]\)",\{0,1\}$/\1/p' $folder/compile_commands.json |
      grep -Ev "^$PWD/(tests|fuzz|$folder/tests|$folder/fuzz)/|/cmake_pch|/room_headers" | sort -u)
fi
((${#files[@]})) || { echo "tidy: no sources in $folder/compile_commands.json" >&2; exit 1; }
# Flags and attributes of g++ that clang does not know are no finding. Instructions of aarch64 that
# g++ takes from an attribute clang takes from a flag.
flags=(-Wno-unknown-warning-option -Wno-unused-command-line-argument -Wno-ignored-attributes)
[[ $(uname -m) != aarch64 ]] || flags+=(-march=armv8.2-a+bf16+dotprod+i8mm)
if ! printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${TESSERA_JOBS:-$(nproc)}" \
  clang-tidy -p $folder --quiet "${flags[@]/#/--extra-arg=}" 2>"$log"; then
  grep -v 'warnings\{0,1\} generated\|Suppressed\|^Use -' "$log" >&2 || true
  echo "tidy: findings above; .clang-tidy lists the checks" >&2
  exit 1
fi
echo "tidy: ${#files[@]} files, no findings"
