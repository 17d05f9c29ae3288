#!/usr/bin/env bash
# Packs what is built and looks at the result: a .deb without errors of lintian, both with a manual
# and completions, and a .tar.gz whose program takes nothing but the C library from the machine.
# With --chroot (root and a network) both run a training in a bare Debian that has no compiler.
#
#   tools/package.sh [--chroot] [BUILD]        BUILD: a folder in which tessera was built
#                                              (default: build)
#
# Exit status 0: all of it was looked at and holds; 77: what was looked at holds, but lintian or
# debootstrap is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
chroot=
[[ ${1:-} != --chroot ]] || { chroot=1; shift; }
build=$(realpath "${1:-build}")
[[ -x $build/tessera ]] || {
  echo "package: $build/tessera is not built: cmake --preset release && ninja -C build tessera" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$build" && cpack -G "DEB;TGZ" >"$work/log" 2>&1) || { cat "$work/log" >&2; exit 1; }
deb=$(ls -t "$build"/tessera_*.deb | head -n 1) tgz=$(ls -t "$build"/tessera-*.tar.gz | head -n 1)

missing=
if command -v lintian >/dev/null; then
  lintian --fail-on error "$deb" || {
    echo "package: lintian finds errors in $(basename "$deb")" >&2
    exit 1
  }
  echo "package: lintian finds no error in $(basename "$deb")"
else
  missing="lintian is not installed, so nobody looked for errors in $(basename "$deb")"
fi

dpkg -c "$deb" >"$work/in_deb"
tar tzf "$tgz" >"$work/in_tgz"
for file in man/man1/tessera.1.gz bash-completion/completions/tessera \
    zsh/vendor-completions/_tessera fish/vendor_completions.d/tessera.fish; do
  for list in in_deb in_tgz; do
    grep -q "/share/$file\$" "$work/$list" || {
      echo "package: $list: there is no share/$file" >&2
      exit 1
    }
  done
done
tar xzf "$tgz" -C "$work"
gzip -dc "$work"/tessera-*/share/man/man1/tessera.1.gz >"$work/manual"
grep -q '^.TH TESSERA 1' "$work/manual" || { echo "package: the manual is none" >&2; exit 1; }
echo "package: both have the manual and completions for three shells"
program=$(echo "$work"/tessera-*/bin/tessera)
# Outside of the package: the loader, and what the C library consists of.
others=$(env -i ldd "$program" | grep -v "$work\|linux-vdso\|ld-linux" | awk '{print $1}' |
  grep -Ev '^lib(c|m|pthread|dl|rt|resolv|util)\.so' || true)
[[ ! $others ]] || {
  echo "package: $(basename "$tgz") needs from the machine: $others" >&2
  exit 1
}
env -i "$program" version >/dev/null
echo "package: $(basename "$tgz") brings all libraries but the C library's"

end() {
  [[ $missing ]] || exit 0
  echo "package: not run: $missing"
  exit 77
}
[[ $chroot ]] || end
((EUID == 0)) && command -v debootstrap >/dev/null || {
  missing="a bare Debian needs root and debootstrap"
  end
}
root=$work/root
debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" \
  >"$work/log" 2>&1 || {
  tail -n 5 "$work/log" >&2
  exit 1
}
cp -r "$work"/tessera-* "$root/opt/"
cp "$deb" "$root/tmp/package.deb"
cp /etc/resolv.conf "$root/etc/"
run='train --model vit_micro --data synthetic --steps 2 --global-batch 16 --threads 1 --quiet'
run+=' --set data.train_size=64 --set data.test_size=32'
chroot "$root" /bin/sh -euc "mount -t proc proc /proc; trap 'umount /proc' EXIT; cd /tmp
  ! command -v cc && ! command -v cmake
  /opt/tessera-*/bin/tessera $run --out /tmp/a
  apt-get -qq update
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq install -y --no-install-recommends /tmp/package.deb >/dev/null
  tessera $run --out /tmp/b" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
echo "package: both train in a bare $(. /etc/os-release && echo "$PRETTY_NAME") without a compiler"
end
