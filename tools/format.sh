#!/usr/bin/env bash
# Lays out the C++ of src, tests and fuzz as .clang-format says.
#
#   tools/format.sh           rewrite the files that differ
#   tools/format.sh --check   change nothing; exit status 1 and a list when files differ
#   tools/format.sh --can     exit status 0 when the version that counts is here, else say what is
#                             missing and 1
#
# Versions of clang-format lay the same code out differently, so only version 14 (Debian 12) counts;
# ./setup installs it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=14
format=
for name in "clang-format-$version" clang-format; do
  if command -v "$name" >/dev/null && [[ $("$name" --version) == *"version $version."* ]]; then
    format=$name
    break
  fi
done
if [[ ! $format ]]; then
  found=
  command -v clang-format >/dev/null && found=" ($(clang-format --version) is)"
  echo "format: clang-format $version is not here$found;" \
    "other versions lay code out differently; ./setup installs it" >&2
  exit 1
fi

files() {
  find src tests fuzz -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) \
    -print0 | sort -z
}
each() { files | xargs -0 -n 32 -P "${TESSERA_JOBS:-$(nproc)}" "$format" --style=file "$@"; }
case ${1:-} in
  '') each -i ;;
  --can) ;;
  --check)
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if each --dry-run --Werror >"$log" 2>&1; then
      echo "format: $(files | tr -cd '\0' | wc -c) files are laid out as .clang-format says"
      exit 0
    fi
    sed -n 's/^\([^:]*\):\([0-9]*\):[0-9]*: error:.*/\1:\2/p' "$log" | sort -t: -k1,1 -u | head -40
    # Another failure than a difference is shown as it is.
    grep -q ': error:' "$log" || cat "$log"
    echo "format: these files differ, each at the line shown; tools/format.sh rewrites them" >&2
    exit 1
    ;;
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" ;;
  *) echo "format: unknown option $1 (see --help)" >&2; exit 2 ;;
esac
