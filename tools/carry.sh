#!/usr/bin/env bash
# Makes Tessera build on a machine where nothing can be installed (written for Ubuntu 24.04, x86-64): fetches the packages that such a machine
# lacks, here, where there is a network, and unpacks them into an ignored folder that travels with the tree.
#
#   tools/carry.sh [--arch amd64] [--out .carry/amd64] [--sources FILE.sources] [PACKAGE...]
#
# and then on the other machine:
#
#   TESSERA_CARRY=.carry/amd64 ./check        (or: cmake --preset release -DTESSERA_CARRY=.carry/amd64)
#
# Convention: apt runs on a private root under a temporary folder with this machine's sources and keys, so nothing on this system changes
# (no foreign architecture is added, no package list touched). The result holds plain files only, no links, so any copying tool will do.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=amd64
out=
sources=
packages=()
while (($#)); do
  case $1 in
    --arch) arch=${2:?--arch needs a Debian architecture}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --sources) sources=$(realpath "${2:?--sources needs a file}"); shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "carry: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) packages+=("$1"); shift ;;
  esac
done
out=${out:-.carry/$arch}
((${#packages[@]})) || packages=(libhwy-dev libtomlplusplus-dev libspng-dev libsqlite3-dev libxxhash-dev)
case $arch in
  amd64) triplet=x86_64-linux-gnu ;;
  arm64) triplet=aarch64-linux-gnu ;;
  *) echo "carry: architecture $arch is not one that Tessera is built for (amd64, arm64)" >&2; exit 2 ;;
esac
for tool in apt-get apt-cache dpkg-deb; do
  command -v $tool >/dev/null || { echo "carry: $tool not found; run this on Debian or Ubuntu" >&2; exit 1; }
done

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{state/lists/partial,cache/archives/partial,debs,tree}
: >"$root/status"
apt=(-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$root/state" -o Dir::State::status="$root/status"
  -o Dir::Cache="$root/cache" -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o APT::Get::List-Cleanup=0)
[[ -z $sources ]] || apt+=(-o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=/dev/null)

echo "carry: package lists for $arch, in a private apt root"
if ! apt-get "${apt[@]}" -qq update >"$root/log" 2>&1 || ! apt-cache "${apt[@]}" show "${packages[0]}" >/dev/null 2>&1; then
  cat "$root/log" >&2
  echo "carry: this machine's package sources have no $arch packages (or cannot be reached); name others with --sources FILE.sources" >&2
  exit 1
fi

# A -dev package holds headers and the link name; the library itself is among its direct dependencies (libhwy1 or libhwy1t64, ...).
# Further down lies only what every machine has (libc, libstdc++, zlib).
wanted=("${packages[@]}")
for package in "${packages[@]}"; do
  stem=${package%-dev}
  while read -r dependency; do
    [[ $dependency == "${stem%%-*}"* ]] && wanted+=("$dependency")
  done < <(apt-cache "${apt[@]}" depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$package" |
    sed -n 's/^ *|\{0,1\}Depends: \([a-z0-9.+-]*\)$/\1/p')
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
(cd "$root/debs" && apt-get "${apt[@]}" -q download "${wanted[@]}" 2>&1 | sed -n 's/^Get:[0-9]* [^ ]* \(.*\)/carry:   \1/p')
for deb in "$root"/debs/*.deb; do dpkg-deb -x "$deb" "$root/tree"; done

# Keep headers and shared libraries, as plain files: each library under its soname (for running) and its link name (for linking).
lib=$root/tree/usr/lib/$triplet
[[ -d $lib ]] || { echo "carry: the packages hold nothing for $triplet" >&2; exit 1; }
rm -rf "$root/tree/usr/share" "$lib/pkgconfig" "$lib/cmake"
find "$lib" \( -name '*.a' -o -name 'libhwy_*' -o -name 'libtomlplusplus*' -o -name 'libblas*' \) -delete
find "$root/tree" -type l | while read -r link; do
  if [[ -f $link ]]; then cp --remove-destination -L "$(readlink -f "$link")" "$link"; else rm "$link"; fi
done
find "$lib" -regex '.*\.so\.[0-9]+\.[0-9.]+' -delete  # the long-numbered twin, now that its short names are files
find "$root/tree" -depth -type d -empty -delete

mkdir -p "$(dirname "$out")"
rm -rf "$out"
cp -r "$root/tree" "$out"
(cd "$root/debs" && ls -1 ./*.deb | sed 's|^\./||') >"$out/packages.txt"
echo "carry: $(du -sh "$out" | cut -f1) in $out: $(tr '\n' ' ' <"$out/packages.txt")"
echo "carry: on the other machine: TESSERA_CARRY=$out ./check"
