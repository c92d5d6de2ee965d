#!/bin/sh
# Prepare a machine: Debian packages that are missing, then the virtual environment .venv with the
# packages of requirements.lock. `make setup` runs it; running it again does only what is left.
#
# PYTHON names the interpreter to use (3.11, 3.12 or 3.13).
#
# With the name of a list of packages as its argument it installs those that are missing, and nothing else.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd -P)
venv=.venv
stamp=$venv/ready
# Where the environment was made: the Makefile calls us where that is another place.
place_file=$venv/place
packages=${1:-}

fail() {
    echo "error: $1" >&2
    shift
    for line in "$@"; do echo "$line" >&2; done
    exit 2
}

wanted_packages() {
    sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' "${packages:-configs/apt-packages.txt}"
}

missing_packages() {
    for package in $(wanted_packages); do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
        [ "$status" = installed ] || echo "$package"
    done
}

install_packages() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "setup: this is not Debian or Ubuntu; what these packages hold must be installed:"
        echo "setup:   $(wanted_packages | tr '\n' ' ')"
        return
    fi
    missing=$(missing_packages | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    echo "setup: Debian packages to install: $missing"
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif command -v sudo >/dev/null; then
        as_root=sudo
        echo "setup: installing them with sudo"
    else
        fail "installing packages takes root, and there is no sudo here" \
            "As root: apt-get install --no-install-recommends $missing"
    fi
    # shellcheck disable=SC2086 # words on purpose: no sudo, several packages
    {
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
            $as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get -q install -y --no-install-recommends $missing
    } || fail "apt-get could not install: $missing" \
        "Its own messages stand above. Then run \`make setup\` again."
}

# Whether this interpreter will do: the version, and the module that makes environments.
usable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11, 3.12 or 3.13"
        command -v "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if usable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "there is no Python 3.11, 3.12 or 3.13 on the PATH" \
        "Debian 12 and newer have one: apt-get install python3 python3-venv." \
        "One that stands elsewhere can be named: make setup PYTHON=/path/to/python3.12"
}

# What an environment belongs to: the scripts in it hold its path, the packages its Python.
place_key() {
    {
        echo "$root"
        "$1" -c 'import sys; print(sys.version, sys.prefix)'
    } | sha256sum | cut -d ' ' -f 1
}

content_key() {
    cat requirements-build.lock requirements.lock pyproject.toml onionlab/setup.sh |
        sha256sum | cut -d ' ' -f 1
}

# --no-compile: Python compiles what is imported when it is imported; most of it never is.
pip_install() {
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-compile "$@" ||
        fail "pip could not install the Python packages" \
            "Its own messages stand above. Behind a proxy or a mirror, pip's usual settings count" \
            "(PIP_INDEX_URL, pip.conf). Then run \`make setup\` again."
}

install_environment() {
    python=$(find_python)
    place=$(place_key "$python")
    key="$place $(content_key)"
    found=$(cat "$stamp" 2>/dev/null) || found=
    if [ "$found" = "$key" ]; then
        printf '%s\n' "$root" >"$place_file"
        # For make, which goes by times.
        touch "$stamp"
        return
    fi
    was=$(cat "$place_file" 2>/dev/null) || was=
    if [ -n "$was" ] && [ "$was" != "$root" ]; then
        echo "setup: $venv was made in $was, and this is $root: it is made anew"
    fi
    # Without the stamp an environment counts as broken: whatever stops us here, the next one
    # begins anew.
    rm -f "$stamp"
    if [ "${found%% *}" = "$place" ]; then
        echo "setup: bringing $venv up to date"
    else
        echo "setup: Python environment $venv with $("$python" --version) (about 900 MB)"
        "$python" -m venv --clear "$venv" ||
            fail "$python cannot make a virtual environment" \
                "On Debian and Ubuntu: apt-get install python3-venv"
    fi
    # The build backend first: the packages that come as source (one does) are then built with it
    # and not with one fetched without a hash.
    pip_install --require-hashes -r requirements-build.lock
    pip_install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
    pip_install --no-deps --no-build-isolation --editable .
    "$venv/bin/python" -m pip --disable-pip-version-check check >/dev/null ||
        fail "the packages in $venv do not fit together" "Show how: $venv/bin/python -m pip check"
    printf '%s\n' "$root" >"$place_file"
    echo "$key" >"$stamp"
    echo "setup: done"
}

# One at a time in a checkout: the second one would remove the environment that the first one is
# filling. What is locked is a file that is there anyway (opened to append, which network file systems
# want, and never written), so nothing is left behind, whatever ends us; and not this script, because
# Linux does not execute a file that somebody has open to write it. The second one then finds what the
# first one did, and does what is left.
wait_for_turn() {
    command -v flock >/dev/null || fail "there is no flock on the PATH" \
        "It belongs to util-linux, which every Linux distribution has."
    exec 9>>configs/apt-packages.txt
    flock --nonblock 9 && return
    echo "setup: another setup of this checkout is at work; waiting for it"
    flock 9
}

wait_for_turn
install_packages
[ -n "$packages" ] || install_environment
