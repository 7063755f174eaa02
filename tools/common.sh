# Sourced by tools/check, tools/demo and tools/gpu-check: where the tree is, how to say what is wrong,
# and the packages that a fresh Debian 12 lacks.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

build_packages="gcc libc6-dev meson ninja-build pkg-config python3 libjansson-dev libinih-dev
zlib1g-dev libxxhash-dev liburing-dev libhwloc-dev"
check_packages="$build_packages g++ clang libclang-rt-14-dev libcriterion-dev libck-dev
spin git"

die()
{
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit "${die_status:-1}"
}

is_installed()
{
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root()
{
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -- "$@"; fi
}

apt_install()
{
    local apt="env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
    local try
    for try in 1 2 3; do
        # shellcheck disable=SC2086  # words are meant
        as_root $apt update && as_root $apt install -y --no-install-recommends "$@" && return 0
        [ "$try" = 3 ] || sleep $((try * 5))
    done
    return 1
}

# install_packages LOG PACKAGE...: installs those that are missing; touches nothing if none is
install_packages()
{
    local log=$1 missing=() package
    shift
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    # shellcheck disable=SC1091
    [ "$(. /etc/os-release 2>/dev/null; echo "${ID:-}${VERSION_ID:-}")" = debian12 ] ||
        die "this is not Debian 12; install what stands for these packages, then run again: ${missing[*]}"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        die "packages are missing and this is neither root nor is there sudo: ${missing[*]}"
    echo "installing ${#missing[@]} packages: ${missing[*]}"
    apt_install "${missing[@]}" >"$log" 2>&1 </dev/null ||
        { tail -n 5 "$log" >&2; die "apt-get failed three times; its output is in $log"; }
}
