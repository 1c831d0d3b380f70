#!/bin/sh
# install.sh [--base URL] [--prefix FOLDER] [--dry-run] | --remove [--prefix FOLDER]
#
# Installs Skua from a release archive: the program, man pages, completions and units of systemd, below
# /usr/local. It starts and enables nothing. --remove deletes these files again; configuration and history stay.
#
#   --base URL       where SHA256SUMS and the archives are (SKUA_BASE_URL); else the newest release
#   --prefix FOLDER  where to (SKUA_PREFIX); /usr/local
#   --dry-run        downloads and checks, and says what it would do
#
# The archive must have the SHA-256 that SHA256SUMS gives. Both come from the same place, by HTTPS; plain HTTP is
# taken from this machine alone. DESTDIR is put before each path that is written, as packagers know it.
set -eu

say() { echo "skua: $*"; }
die() {
    echo "skua: $*" >&2
    exit 1
}
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0" 2>/dev/null || true; }

base=${SKUA_BASE_URL:-https://github.com/skua-project/skua/releases/latest/download}
prefix=${SKUA_PREFIX:-/usr/local}
# Skua itself warns of variables that it does not know.
unset SKUA_BASE_URL SKUA_PREFIX
dry= remove=
while [ $# -gt 0 ]; do
    case $1 in
    --base | --prefix)
        [ $# -ge 2 ] || die "$1 wants a value"
        case $1 in --base) base=$2 ;; *) prefix=$2 ;; esac
        shift
        ;;
    --dry-run) dry=yes ;;
    --remove) remove=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) die "unknown argument $1 (--help lists them)" ;;
    esac
    shift
done
case $prefix in /*) ;; *) die "--prefix wants an absolute path, not $prefix" ;; esac
to=${DESTDIR:-}$prefix
receipt=$to/share/skua/installed

# Deletes what a receipt lists: files below the prefix, and nothing else.
delete_installed() {
    while read -r file; do
        case $file in /* | *..*) die "$receipt has a path that is not below $prefix: $file" ;; esac
        rm -f "$to/$file"
    done <"$receipt"
    rm -f "$receipt"
    rmdir "$to/share/skua" "$to/share/doc/skua/docs" "$to/share/doc/skua/examples/"* "$to/share/doc/skua/examples" \
        "$to/share/doc/skua" 2>/dev/null || true
}

main() {
    if [ "$remove" ]; then
        [ -e "$receipt" ] || die "$receipt is not there: nothing was installed below $prefix"
        delete_installed
        say "removed from $to; /etc/skua.yaml and /var/lib/skua stay"
        return
    fi

    [ "$(uname -s)" = Linux ] || die "Skua runs on Linux; this is $(uname -s)"
    case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) die "there is no Skua for $(uname -m): x86-64 and arm64 only" ;;
    esac
    case $base in
    https://* | http://127.0.0.1:* | http://localhost:* | http://\[::1\]:*) ;;
    *) die "--base wants an https:// address, not $base" ;;
    esac
    for tool in tar gzip sha256sum; do
        command -v "$tool" >/dev/null || die "needs $tool"
    done

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    get SHA256SUMS 65536
    # One archive of this kind, by its whole name.
    archive=$(sed -n "s/^[0-9a-f]\{64\}  \(skua-[0-9][0-9.]*-linux-$machine\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
    case $(echo "$archive" | wc -w) in
    1) ;;
    0) die "$base has no archive for $machine" ;;
    *) die "$base has more than one archive for $machine: $(echo "$archive" | tr '\n' ' ')" ;;
    esac
    say "downloading $base/$archive"
    get "$archive" 134217728
    wanted=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$work/SHA256SUMS")
    found=$(sha256sum "$work/$archive" | cut -d ' ' -f 1)
    [ "$wanted" = "$found" ] ||
        die "$archive has the SHA-256 $found, but SHA256SUMS says $wanted: nothing was installed"
    say "its SHA-256 is the one in SHA256SUMS: $found"

    folder=${archive%.tar.gz}
    tar -xzf "$work/$archive" -C "$work" "$folder"
    (cd "$work/$folder" && find bin lib share -type f | sort) >"$work/files"
    "$work/$folder/bin/skua" --version >/dev/null 2>&1 || die "the program in $archive does not run here"
    if [ "$dry" ]; then
        say "would write $(wc -l <"$work/files") files below $to:"
        sed "s|^|  $to/|" "$work/files"
        return
    fi
    mkdir -p "$to" 2>/dev/null && [ -w "$to" ] || die "cannot write to $to: run it as root, or name a --prefix of yours"

    # An older Skua may have files that this one has not.
    [ ! -e "$receipt" ] || delete_installed
    while read -r file; do
        mode=644
        case $file in bin/*) mode=755 ;; esac
        mkdir -p "$to/${file%/*}"
        # Beside it and then over it: a Skua that runs goes on with the old one.
        cp "$work/$folder/$file" "$to/$file.new"
        case $file in
        *.service)
            sed "s|^ExecStart=/usr/bin/skua|ExecStart=$prefix/bin/skua|" "$work/$folder/$file" >"$to/$file.new"
            ;;
        esac
        chmod "$mode" "$to/$file.new"
        mv "$to/$file.new" "$to/$file"
    done <"$work/files"
    mkdir -p "${receipt%/*}"
    cp "$work/files" "$receipt"

    say "installed $("$to/bin/skua" --version): $to/bin/skua, man pages, completions, units of systemd"
    say "nothing was started. Try: sudo $prefix/bin/skua top"
}

# Takes no more than so many bytes, and follows only to HTTPS.
get() { # NAME BYTES
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --proto '=https,http' --proto-redir '=https' \
            --connect-timeout 10 --max-time 600 --retry 2 --max-filesize "$2" --output "$work/$1" "$base/$1" ||
            die "cannot download $base/$1"
    elif command -v wget >/dev/null; then
        wget -q --timeout=60 --tries=3 -O "$work/$1" "$base/$1" || die "cannot download $base/$1"
    else
        die "needs curl or wget"
    fi
    [ "$(wc -c <"$work/$1")" -le "$2" ] || die "$base/$1 is larger than $2 bytes"
}

# All of it is read before anything runs: a download that breaks off does nothing.
main
