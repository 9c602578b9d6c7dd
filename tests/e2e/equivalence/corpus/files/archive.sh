#!/bin/sh
# An archive of three small packages in /srv/archive, and apt that knows no other.
set -e
export SOURCE_DATE_EPOCH=1700000000
cd /srv/archive
make() { # name version, then lines of its control file
  top=$1_$2
  mkdir -p "$top/DEBIAN" "$top/etc" && chmod 755 "$top"
  { printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\n' "$1" "$2"
    printf 'Description: a test\n'; shift 2; [ $# = 0 ] || printf '%s\n' "$@"; } >"$top/DEBIAN/control"
  name=${top%_*}
  echo "/etc/$name.conf" >"$top/DEBIAN/conffiles"
  echo "$top" >"$top/etc/$name.conf"
  dpkg-deb --root-owner-group --build "$top" "$top.deb" >/dev/null
  rm -r "$top"
}
make lamp-glass 1.0
make lamp 1.0 'Depends: lamp-glass' 'Provides: lamp-light'
make lamp 2.0 'Depends: lamp-glass' 'Provides: lamp-light'
make candle 0.5
make candle 0.6
for file in *.deb; do
  dpkg-deb -f "$file"
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' \
    "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d' ' -f1)"
done >Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d
echo 'deb [trusted=yes] file:/srv/archive ./' >/etc/apt/sources.list
