#!/usr/bin/env bash
# The worked examples of docs/add_a*.md are patches (docs/examples/*.patch). This shows that they
# hold.
#
#   tests/examples/run.sh --apply         each patch applies to this tree by itself, and all of them
#                                         one after the other; it takes a second
#   tests/examples/run.sh FOLDER          then a copy of the tree with all of them is built in
#                                         FOLDER, and what they add is run
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
patches=("$root"/docs/examples/*.patch)
[[ -e ${patches[0]} ]] || { echo "examples: docs/examples holds no patch" >&2; exit 1; }

# Outside of any repository `git apply` takes paths as they are written.
apply() {
  GIT_DIR=/nonexistent git -C "$1" apply "${@:3}" "$2" || {
    echo "examples: ${2##*/} does not apply" >&2
    exit 1
  }
}
files() {  # of the working tree, as it is
  if git ls-files >/dev/null 2>&1; then
    git ls-files -co --exclude-standard
  else
    find . -type f -not -path './build*' -not -path './.git/*' | sed 's|^\./||'
  fi
}

for patch in "${patches[@]}"; do apply "$root" "$patch" --check; done
if [[ ${1:-} == --apply ]]; then
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  # All files that they change.
  sed -n 's|^--- a/||p' "${patches[@]}" | sort -u | while IFS= read -r file; do
    mkdir -p "$tree/$(dirname "$file")" && cp "$file" "$tree/$file"
  done
  for patch in "${patches[@]}"; do apply "$tree" "$patch"; done
  echo "examples: ${#patches[@]} patches apply"
  exit 0
fi

tree=${1:?"usage: tests/examples/run.sh --apply | FOLDER"}
fresh=$tree.fresh
rm -rf "$fresh"
mkdir -p "$tree" "$fresh"
files | grep -E '^(src|tests|docs|cmake|tools|fuzz)/|^CMake' | grep -v '^tests/golden/' |
  while IFS= read -r file; do [[ ! -f $file ]] || echo "$file"; done |
  tar cf - -T - | tar xf - -C "$fresh"
for patch in "${patches[@]}"; do apply "$fresh" "$patch"; done
# What did not change keeps its time, so that little is built again.
(cd "$tree" && find . -path ./build -prune -o -type f -print) | while IFS= read -r file; do
  [[ -e $fresh/$file ]] || rm -f "$tree/$file"
done
(cd "$fresh" && find . -type f) | while IFS= read -r file; do
  mkdir -p "$tree/$(dirname "$file")"
  cmp -s "$fresh/$file" "$tree/$file" || cp "$fresh/$file" "$tree/$file"
done
rm -rf "$fresh"
cd "$tree"
tools/build.sh release build examples_test ops_test ir_test
build/tests/examples_test --gtest_brief=1
build/tests/ops_test --gtest_brief=1 --gtest_filter='*quick_gelu*:*OnDevice*'
# What the pages call generated is generated, and then right.
TESSERA_UPDATE_GOLDENS=1 build/tests/ops_test --gtest_brief=1 --gtest_filter='OpText.*' || true
TESSERA_UPDATE_GOLDENS=1 build/tests/ir_test --gtest_brief=1 >/dev/null || true
build/tests/ops_test --gtest_brief=1 --gtest_filter='OpText.*'
build/tests/ir_test --gtest_brief=1
grep -q quick_gelu docs/ir.md && grep -q quick_gelu tests/ir/every_op.ir
echo "examples: ${#patches[@]} patches apply, build and pass"
