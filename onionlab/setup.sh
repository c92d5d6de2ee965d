#!/bin/sh
# Prepare a machine. `make setup` runs it; running it again does only what is left.
#
#   setup.sh            Debian packages that are missing, then the virtual environment .venv with the
#                       packages of requirements.lock
#   setup.sh --ahead    that, and beside the second the first builds (onionlab/commands/_ahead.py),
#                       then beside those what runs of NAME take (onionlab/commands/_ahead_of_runs.py)
#   setup.sh --dev      the first, and the packages of requirements-dev.lock on top of it
#   setup.sh LIST...    the Debian packages of these lists that are missing, and nothing else
#
# PYTHON names the interpreter to use (3.11, 3.12 or 3.13).
set -eu
cd "$(dirname "$0")/.."
# The sentinel keeps a line break at the end, which $() would remove.
root=$(pwd -P && echo .)
root=${root%??}
venv=.venv
stamp=$venv/ready
# Where the environment was made: the Makefile calls us where that is another place.
place_file=$venv/place
# Of what stands on top; while that is being installed, there is a mark.
dev_stamp=$venv/ready-dev
dev_mark=$venv/dev-under-way
dev_wheels=$venv/dev-wheels
default_packages=configs/apt-packages.txt
dev=
ahead=
lists_only=
case "${1:-}" in
--dev) dev=yes ;;
--ahead) ahead=yes ;;
*) lists_only=${1:-} ;;
esac

fail() {
    echo "error: $1" >&2
    shift
    for line in "$@"; do echo "$line" >&2; done
    exit 2
}

# venv, the launchers in its bin, Snakemake, apt and the guest's kernel each fail on some of these
# characters, most of them late. The list is also in onionlab/paths.py.
require_usable_path() {
    for character in '"' "$" "\`" "\\" "{" "}" ":"; do
        case $root in *"$character"*) refuse_path "the character $character" ;; esac
    done
    case $root in *[[:cntrl:]]*) refuse_path "a control character, such as a line break" ;; esac
    printf '%s' "$root" | LC_ALL=C.UTF-8 grep -qax '.*' || refuse_path "bytes that are not UTF-8"
}

refuse_path() {
    fail "the path of this checkout contains $1, which tools of the set-up cannot handle" \
        "Move or rename the folder so that its path is free of it, and run the same command again."
}

# The packages of the lists that are the arguments. A question mark behind a name: it is wanted, and
# not needed.
wanted_packages() {
    sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' "$@"
}

missing_packages() {
    for package in $(wanted_packages "$@"); do
        status=$(dpkg-query -W -f '${db:Status-Status}' "${package%\?}" 2>/dev/null) || status=
        [ "$status" = installed ] || echo "$package"
    done
}

# Run apt-get as root. Wait up to ten minutes while another program, such as unattended-upgrades,
# holds one of its three locks. DPkg::Lock::Timeout would cover one of them.
apt_get() {
    waits=0
    while :; do
        status=0
        # shellcheck disable=SC2086 # $as_root is empty or one word
        { errors=$($as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive \
            apt-get -q "$@" 2>&1 >&3) || status=$?; } 3>&1
        case $status$errors in
        [1-9]*"Could not get lock"*) ;;
        *) break ;;
        esac
        holder=$(echo "$errors" | sed -n 's/.*held by \(process [0-9]* ([^)]*)\).*/\1/p' | sed 1q)
        [ "$waits" -lt 120 ] || fail \
            "${holder:-another program} still holds apt's lock after ten minutes" \
            "Let it end or stop it. Then run the same command again."
        [ "$waits" -gt 0 ] ||
            echo "setup: waiting for ${holder:-another program}, which holds apt's lock"
        waits=$((waits + 1))
        sleep 5
    done
    [ -z "$errors" ] || echo "$errors" >&2
    return "$status"
}

apt_install() {
    apt_get install -y --no-install-recommends "$@"
}

install_packages() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "setup: this is not Debian or Ubuntu; what these packages hold must be installed:"
        echo "setup:   $(wanted_packages "$@" | tr '\n' ' ')"
        return
    fi
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    needed=$(echo "$missing" | sed '/?$/d' | tr '\n' ' ')
    optional=$(echo "$missing" | sed -n 's/?$//p' | tr '\n' ' ')
    echo "setup: Debian packages to install: $needed$optional"
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif command -v sudo >/dev/null; then
        as_root=sudo
        echo "setup: installing them with sudo"
    elif [ -n "$needed" ]; then
        fail "installing packages takes root, and there is no sudo here" \
            "As root: apt-get install --no-install-recommends $needed"
    else
        echo "setup: goes on without them: installing takes root, and there is no sudo here"
        return
    fi
    apt_get update && updated=yes || updated=
    if [ -n "$needed" ]; then
        # shellcheck disable=SC2086 # words on purpose: several packages
        { [ -n "$updated" ] && apt_install $needed; } || fail "apt-get could not install: $needed" \
            "Its own messages stand above. Then run the same command again."
    fi
    for package in $optional; do
        { [ -n "$updated" ] && apt_install "$package"; } ||
            echo "setup: goes on without $package, which apt-get could not install"
    done
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
    cat requirements-build.lock requirements.lock pyproject.toml onionlab/setup.sh "$@" |
        sha256sum | cut -d ' ' -f 1
}

# --no-compile: Python compiles what is imported when it is imported; most of it never is.
pip_install() {
    pip install --quiet --no-compile "$@" || pip_failed "install the Python packages"
}

pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

pip_failed() {
    fail "pip could not $1" \
        "Its own messages stand above. Behind a proxy or a mirror, pip's usual settings count" \
        "(PIP_INDEX_URL, pip.conf). Then run the same command again."
}

check_environment() {
    pip check >/dev/null ||
        fail "the packages in $venv do not fit together" "Show how: $venv/bin/python -m pip check"
}

# Most of an installation waits for the network or keeps one CPU busy. The builder ends with this
# shell, however that ends, and does not hold its lock.
start_builds() {
    builds=
    { [ -n "$ahead" ] && command -v setpriv >/dev/null; } || return 0
    setpriv --pdeathsig TERM "$python" -m onionlab.commands._ahead 9>&- &
    builds=$!
}

# What went wrong there is said by whatever needs the builds.
wait_for_builds() {
    [ -n "$builds" ] || return 0
    if [ -n "${NAME:-}" ]; then
        setpriv --pdeathsig TERM "$venv/bin/python" -m onionlab.commands._ahead_of_runs 9>&- || true
    fi
    wait "$builds" || true
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
    # Making it anew would empty what somebody else works with.
    if [ -L "$venv" ] && [ -e "$venv/pyvenv.cfg" ] && [ "$was" != "$root" ]; then
        fail "$venv is a link to an environment of ${was:-something else}, which is left as it is" \
            "For one of this checkout: rm $venv"
    fi
    if [ -n "$was" ] && [ "$was" != "$root" ]; then
        echo "setup: $venv was made in $was, and this is $root: it is made anew"
    fi
    # Without the stamp an environment counts as broken: whatever stops us here, the next one
    # begins anew.
    rm -f "$stamp"
    if [ "${found%% *}" = "$place" ]; then
        echo "setup: bringing $venv up to date"
    else
        echo "setup: Python environment $venv with $("$python" --version) (about 620 MB)"
        # By its own path: venv makes none where a link is.
        "$python" -m venv --clear "$(readlink -f "$venv")" ||
            fail "$python cannot make a virtual environment" \
                "On Debian and Ubuntu: apt-get install python3-venv"
    fi
    start_builds
    # The build backend first: the packages that come as source (one does) are then built with it
    # and not with one fetched without a hash.
    pip_install --require-hashes -r requirements-build.lock
    pip_install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
    # Two pages of setuptools' on how projects are laid out are nobody's concern here.
    export PYTHONWARNINGS=ignore
    pip_install --no-deps --no-build-isolation --editable .
    # With what stands on top, next time: now that may be of an older lock.
    [ -e "$dev_stamp" ] || check_environment
    printf '%s\n' "$root" >"$place_file"
    echo "$key" >"$stamp"
    echo "setup: done"
    wait_for_builds
}

# Both locks have no package in common: whatever happens here, what experiments run with stays as it
# is. pip fetches everything before anything is changed, so that nothing is without a network either.
install_dev() {
    key="$(cat "$stamp") $(content_key requirements-dev.lock)"
    found=$(cat "$dev_stamp" 2>/dev/null) || found=
    if [ "$found" = "$key" ]; then
        touch "$dev_stamp"
        return
    fi
    echo "setup: adding the packages for tests, checks and documentation (about 330 MB)"
    rm -rf "$dev_wheels"
    pip download --quiet --no-deps --only-binary :all: --require-hashes \
        -r requirements-dev.lock --dest "$dev_wheels" ||
        pip_failed "fetch the packages for tests, checks and documentation"
    : >"$dev_mark"
    rm -f "$dev_stamp"
    pip_install --no-deps --no-index --find-links "$dev_wheels" \
        --require-hashes -r requirements-dev.lock
    check_environment
    rm -rf "$dev_mark" "$dev_wheels"
    echo "$key" >"$dev_stamp"
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
    exec 9>>"$default_packages"
    flock --nonblock 9 && return
    echo "setup: another setup of this checkout is at work; waiting for it"
    flock 9
}

require_usable_path
wait_for_turn
if [ -n "$lists_only" ]; then
    install_packages "$@"
    exit
fi
install_packages "$default_packages"
# Half of a package may be there, and pip would take it for a whole one.
if [ -n "$dev" ] && [ -e "$dev_mark" ]; then
    echo "setup: an installation was cut short: $venv is made anew"
    rm -f "$stamp"
fi
install_environment
[ -z "$dev" ] || install_dev
