#!/usr/bin/env bash
# Makes Tessera build on a machine where nothing can be installed (written for Ubuntu 24.04,
# x86-64): fetches the packages that such a machine lacks, here, where there is a network, and
# unpacks them into an ignored folder that travels with the tree.
#
#   tools/carry.sh [--whole] [--arch amd64] [--out .carry/amd64] [--sources FILE.sources] \
#     [PACKAGE...]
#
# and then on the other machine:
#
#   TESSERA_CARRY=.carry/amd64 ./check
#   cmake --preset release -DTESSERA_CARRY=.carry/amd64        (or this)
#
# With --whole it makes the folder that cross compiling needs instead (./setup --cross calls it):
# the packages with everything they depend on, except what the cross compiler brings (libc,
# libstdc++).
#
# Convention: apt runs on a private root under a temporary folder with this machine's sources and
# keys, so nothing on this system changes (no foreign architecture is added, no package list
# touched). The result holds plain files only, no links, so any copying tool will do.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=amd64
out=
sources=
whole=
packages=()
while (($#)); do
  case $1 in
    --whole) whole=1; shift ;;
    --arch) arch=${2:?--arch needs a Debian architecture}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --sources) sources=$(realpath "${2:?--sources needs a file}"); shift 2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "carry: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) packages+=("$1"); shift ;;
  esac
done
out=${out:-.carry/$arch}
everything=(libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libxxhash-dev
  libsqlite3-dev libspng-dev libjpeg-dev libcurl4-openssl-dev zlib1g-dev libssl-dev libhwy-dev
  libgtest-dev)
((${#packages[@]})) || [[ ! $whole ]] || packages=("${everything[@]}")
((${#packages[@]})) ||
  packages=(libhwy-dev libtomlplusplus-dev libspng-dev libsqlite3-dev libxxhash-dev)
case $arch in
  amd64) triplet=x86_64-linux-gnu ;;
  arm64) triplet=aarch64-linux-gnu ;;
  *)
    echo "carry: architecture $arch is not one that Tessera is built for (amd64, arm64)" >&2
    exit 2
    ;;
esac
for tool in apt-get apt-cache dpkg-deb; do
  command -v $tool >/dev/null || {
    echo "carry: $tool not found; run this on Debian or Ubuntu" >&2
    exit 1
  }
done

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{state/lists/partial,cache/archives/partial,debs,tree}
: >"$root/status"
apt=(-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$root/state"
  -o Dir::State::status="$root/status" -o Dir::Cache="$root/cache"
  -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o APT::Get::List-Cleanup=0)
. /etc/os-release 2>/dev/null || true
if [[ ! $sources && ${ID:-} == ubuntu ]]; then  # Ubuntu keeps its architectures on two servers
  sources=$root/ubuntu.sources
  server=http://archive.ubuntu.com/ubuntu
  [[ $arch == amd64 ]] || server=http://ports.ubuntu.com/ubuntu-ports
  printf '%s\n' "Types: deb" "URIs: $server" "Components: main universe" \
    "Suites: $VERSION_CODENAME $VERSION_CODENAME-updates $VERSION_CODENAME-security" \
    "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg" >"$sources"
fi
[[ -z $sources ]] || apt+=(-o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=/dev/null)

echo "carry: package lists for $arch, in a private apt root"
if ! apt-get "${apt[@]}" -qq update >"$root/log" 2>&1 ||
    ! apt-cache "${apt[@]}" show "${packages[0]}" >/dev/null 2>&1; then
  cat "$root/log" >&2
  echo "carry: this machine's package sources have no $arch packages (or cannot be reached); name" \
    "others with --sources FILE.sources" >&2
  exit 1
fi

if [[ $whole ]]; then
  brought='libc6|libc6-dev|libc-dev-bin|linux-libc-dev|libcrypt|libcrypt1|libcrypt-dev|libnsl.*'
  brought+='|libtirpc.*|rpcsvc-proto|libstdc\+\+6|libgcc-s1|gcc-[0-9]*-base|debconf|perl-base|dpkg'
  brought+='|tar'
  mapfile -t wanted < <(
    apt-get "${apt[@]}" -qq --no-install-recommends --print-uris install "${packages[@]}" |
      sed -n "s/^'[^']*' \([a-z0-9.+-]*\)_.*/\1/p" |
      grep -Ev "^($brought)\$" || true)
  ((${#wanted[@]})) || {
    echo "carry: apt could not resolve what ${packages[*]} need on $arch" >&2
    exit 1
  }
else
  # A -dev package holds headers and the link name; the library itself is among its direct
  # dependencies (libhwy1 or libhwy1t64, ...). Further down lies only what every machine has (libc,
  # libstdc++, zlib).
  wanted=("${packages[@]}")
  for package in "${packages[@]}"; do
    stem=${package%-dev}
    while read -r dependency; do
      [[ $dependency == "${stem%%-*}"* ]] && wanted+=("$dependency")
    done < <(apt-cache "${apt[@]}" depends --no-recommends --no-suggests --no-conflicts \
      --no-breaks --no-replaces --no-enhances "$package" |
      sed -n 's/^ *|\{0,1\}Depends: \([a-z0-9.+-]*\)$/\1/p')
  done
  mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
fi
(cd "$root/debs" && apt-get "${apt[@]}" -q download "${wanted[@]}" 2>&1 |
  sed -n 's/^Get:[0-9]* [^ ]* \(.*\)/carry:   \1/p')
for deb in "$root"/debs/*.deb; do dpkg-deb -x "$deb" "$root/tree"; done

lib=$root/tree/usr/lib/$triplet
[[ -d $lib ]] || { echo "carry: the packages hold nothing for $triplet" >&2; exit 1; }
if [[ $whole ]]; then
  # One folder of libraries, and links that lead to their neighbours instead of this machine's own.
  [[ ! -d $root/tree/lib/$triplet ]] || cp -a "$root/tree/lib/$triplet/." "$lib/"
  find "$lib" -maxdepth 1 -type l -lname '/*' | while read -r link; do
    ln -sf "$(basename "$(readlink "$link")")" "$link"
  done
  find "$root/tree/usr/share" -mindepth 1 -maxdepth 1 ! -name cmake ! -name pkgconfig \
    -exec rm -rf {} +
  rm -rf "$root"/tree/{bin,sbin,etc,lib,var} "$root"/tree/usr/{bin,sbin}
else
  # Keep headers and shared libraries, as plain files: each library under its soname (for running)
  # and its link name (for linking).
  rm -rf "$root/tree/usr/share" "$lib/pkgconfig" "$lib/cmake"
  find "$lib" \( -name '*.a' -o -name 'libhwy_*' -o -name 'libtomlplusplus*' \
    -o -name 'libblas*' \) -delete
  find "$root/tree" -type l | while read -r link; do
    if [[ -f $link ]]; then
      cp --remove-destination -L "$(readlink -f "$link")" "$link"
    else
      rm "$link"
    fi
  done
  # The long-numbered twin goes, now that its short names are files.
  find "$lib" -regex '.*\.so\.[0-9]+\.[0-9.]+' -delete
  find "$root/tree" -depth -type d -empty -delete
fi

mkdir -p "$(dirname "$out")"
rm -rf "$out"
cp -r "$root/tree" "$out"
(cd "$root/debs" && ls -1 ./*.deb | sed 's|^\./||') >"$out/packages.txt"
echo "carry: $(du -sh "$out" | cut -f1) in $out: $(tr '\n' ' ' <"$out/packages.txt")"
[[ $whole ]] || echo "carry: on the other machine: TESSERA_CARRY=$out ./check"
