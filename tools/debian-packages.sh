# Sourced, not run: packages of Debian without installing them, for the tools that need what a machine lacks.

# unpack_packages WORK 'ARCHITECTURE...' PACKAGE...: downloads the packages and all that they need, for these
# architectures, and unpacks them under WORK/root. Once: what is complete there is left as it is.
unpack_packages() {
    unpack_work=$1
    unpack_root=$1/root
    unpack_architectures=
    for unpack_name in $2; do
        unpack_architectures="$unpack_architectures -o APT::Architectures::=$unpack_name"
    done
    shift 2
    [ ! -e "$unpack_root/complete" ] || return 0
    mkdir -p "$unpack_work/state/lists/partial" "$unpack_work/cache/archives/partial" "$unpack_root"
    # An empty status file: apt then fetches what the packages need, and not what this machine lacks.
    : > "$unpack_work/state/status"
    # The same settings for both calls. The list of architectures is several words.
    unpack_apt() {
        apt-get -qq -o Dir::State="$unpack_work/state" -o Dir::State::status="$unpack_work/state/status" \
            -o Dir::Cache="$unpack_work/cache" $unpack_architectures -o APT::Install-Recommends=false \
            -o Debug::NoLocking=true "$@"
    }
    unpack_apt update
    unpack_apt install --download-only -y "$@"
    for unpack_package in "$unpack_work"/cache/archives/*.deb; do
        dpkg-deb -x "$unpack_package" "$unpack_root"
    done
    rm -rf "$unpack_work/cache"
    touch "$unpack_root/complete"
}
