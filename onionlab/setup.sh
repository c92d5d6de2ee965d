#!/bin/sh
# Prepare this machine: Debian packages, then the Python environment .venv. `make` calls it.
#
#   setup.sh            install what experiments need
#   setup.sh --dev      also install what tests, checks and documentation need
#   setup.sh LIST...    install only the Debian packages of these lists
#
# PYTHON selects the interpreter (3.11, 3.12 or 3.13).
set -eu
cd "$(dirname "$0")/.."
# apt_get captures errors; other output goes here.
exec 3>&1
try_again="See the messages above, then run the same command again."

# fail MESSAGE [HINT]
fail() {
    printf '%s\n' "error: $1" ${2:+"$2"} >&2
    exit 2
}

# apt waits for dpkg's lock by itself, but not for the locks of its lists and archives.
apt_get() {
    waits=0
    newline='
'
    until errors=$($sudo env LC_ALL=C DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=600 "$@" 2>&1 >&3); do
        case $errors in *"Could not get lock"*) ;; *) waits=120 ;; esac
        [ $((waits += 1)) -le 120 ] || break
        holder=${errors#*Could not get lock }
        [ "$waits" -gt 1 ] || echo "setup: waiting for apt's lock ${holder%%"$newline"*}"
        sleep 5
    done
    [ -z "$errors" ] || echo "$errors" >&2
    [ "$waits" -le 120 ]
}

# Install the packages of the given lists that are missing. A question mark marks an optional one.
install_debian_packages() {
    needed='' optional=''
    # shellcheck disable=SC2013 # words, not lines
    for package in $(sed 's/#.*//' "$@"); do
        name=${package%\?}
        case $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) in installed) continue ;; esac
        case $package in *\?) optional="$optional $name" ;; *) needed="$needed $name" ;; esac
    done
    [ -n "$needed$optional" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "setup: this is not Debian or Ubuntu; install the equivalents of:$needed$optional"
        return
    fi
    echo "setup: installing Debian packages:$needed$optional"
    sudo=''
    if [ "$(id -u)" -ne 0 ] && ! sudo=$(command -v sudo); then
        [ -z "$needed" ] || fail "installing packages requires root, and sudo is not installed" \
            "As root: apt-get install --no-install-recommends$needed"
        echo "setup: skipping them, because installing requires root and sudo is not installed"
        return
    fi
    apt_get update || [ -z "$needed" ] || fail "apt-get update failed" "$try_again"
    # shellcheck disable=SC2086 # a list of packages
    [ -z "$needed" ] || apt_get install -y --no-install-recommends $needed ||
        fail "apt-get could not install:$needed" "$try_again"
    for package in $optional; do
        apt_get install -y --no-install-recommends "$package" ||
            echo "setup: continuing without $package, which apt-get could not install"
    done
}

is_supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

# Set `python` to the absolute path of a supported interpreter, and refuse unsupported paths.
find_python() {
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if is_supported "$candidate"; then
            python=$(command -v "$candidate")
            return
        fi
        [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not Python 3.11, 3.12 or 3.13"
    done
    fail "Python 3.11, 3.12 or 3.13 is not on the PATH" \
        "Install python3 (Debian 12 or newer), or name one: make setup PYTHON=/path/to/python3.12"
}

create_environment() {
    owner=$(sed 1q .venv/place 2>/dev/null || true)
    if [ -L .venv ] && [ -e .venv/pyvenv.cfg ] && [ "$owner" != "$(pwd -P)" ]; then
        fail ".venv is a link to an environment of ${owner:-another program}" \
            "To create one for this checkout: rm .venv"
    fi
    echo "setup: creating the Python environment .venv (about 620 MB)"
    # venv would call ensurepip, which takes longer than unpacking its wheel of pip. Debian's Python has
    # the wheel in WHEEL_PKG_DIR.
    {
        wheel=$("$python" -c 'import ensurepip, pathlib, sysconfig
bundled = pathlib.Path(ensurepip.__file__).parent / "_bundled"
folder = pathlib.Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or bundled)
print(max(folder.glob("pip-*.whl")))' 2>/dev/null) &&
            "$python" -m venv --clear --without-pip "$(readlink -f .venv)" &&
            "$python" -m zipfile -e "$wheel" .venv/lib/python3*/site-packages
    } || fail "$python cannot create an environment" \
        "On Debian and Ubuntu: apt-get install python3-venv"
    # uv installs the rest in a moment. It needs setuptools for packages that have no wheel.
    sed -n '/^uv==/,/# via/p; /^setuptools==/,/# via/p' requirements-build.lock >.venv/first.lock
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        --require-hashes -r .venv/first.lock ||
        fail "pip could not install uv and setuptools" "$try_again"
    echo "$place" >.venv/place
}

# Build without isolation: an isolated build would fetch a build backend without checking its hash.
uv_pip() {
    action=$1
    shift
    .venv/bin/uv --quiet pip "$action" --python .venv --no-build-isolation "$@" ||
        fail "uv could not install the Python packages" \
            "$try_again If you use a mirror, set UV_DEFAULT_INDEX."
}

# Make .venv contain exactly the packages of the locks.
install_python_packages() {
    # pip's configuration may name a mirror. uv does not read it.
    index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    locks="requirements-build.lock requirements.lock${1:+ requirements-dev.lock}"
    # An interrupted installation may leave incomplete packages, which uv would not notice.
    reinstall=
    [ ! -e .venv/incomplete ] || reinstall=--reinstall
    touch .venv/incomplete
    echo "setup: installing Python packages into .venv"
    # shellcheck disable=SC2086 # several locks
    uv_pip sync --require-hashes $reinstall $locks
    uv_pip install --no-deps --editable .
    rm .venv/incomplete
    touch .venv/ready ${1:+.venv/ready-dev}
}

# Lock a file that always exists, so that one setup of this checkout runs at a time.
exec 9>>configs/apt-packages.txt
flock --nonblock 9 || {
    echo "setup: waiting for another setup of this checkout"
    flock 9
}
dev=
case ${1:-} in
--dev) dev=yes ;;
?*)
    install_debian_packages "$@"
    exit
    ;;
esac
find_python
"$python" -m onionlab.paths || exit 2
install_debian_packages configs/apt-packages.txt
# Scripts in .venv/bin contain the path of the checkout.
place=$(pwd -P && "$python" -c 'import sys; print(sys.version, sys.prefix)')
if [ "$place" != "$(cat .venv/place 2>/dev/null)" ] || ! .venv/bin/uv --version >/dev/null 2>&1; then
    create_environment
fi
[ ! -e .venv/ready-dev ] || dev=yes
install_python_packages $dev
