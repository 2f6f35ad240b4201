# Functions shared by start.sh and test/run.sh: what a machine needs before Sandgate can run on it. POSIX sh, sourced
# from the repository's root. Each function is quick and silent when there is nothing to do, and fails with one line
# that says what is missing.

# The engine's and the firewall's programs are here, and not on every root's PATH.
PATH=$PATH:/usr/sbin:/sbin
export PATH

say() { printf 'sandgate: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# quietly <what it does> <command...>: announces the step and shows the end of its output only when it fails.
quietly() {
  say "$1 ..."
  shift
  quiet_log=$(mktemp)
  if "$@" >"$quiet_log" 2>&1 </dev/null; then
    rm -f "$quiet_log"
    return 0
  fi
  tail -n 40 "$quiet_log" >&2
  rm -f "$quiet_log"
  return 1
}

# Installs the npm packages of package-lock.json when node_modules doesn't hold them, and sets $node to a Node.js 24
# that keeps what it compiles, which halves the time of a start.
prepare_packages() {
  command -v node >/dev/null 2>&1 || fail "Node.js 20 or newer is needed: https://nodejs.org/en/download"
  if ! node deploy/local/installed.mjs; then
    # No package needs its install script: they only build optional native parts.
    quietly "installing npm packages (a minute or so, once)" npm ci --include=dev --include=optional --ignore-scripts --no-audit --no-fund ||
      fail "npm ci failed; its last lines are above"
  fi
  export NODE_COMPILE_CACHE="$PWD/node_modules/.cache/node"
  node=node_modules/.bin/node
  [ -x "$node" ] && "$node" --version >/dev/null 2>&1 && return
  # No pinned runtime exists for this platform: the machine's own will do if it is new enough.
  node=node
  case $(node --version) in
    v2[4-9].* | v[3-9][0-9].*) ;;
    *) fail "Node.js 24 or newer is needed on this platform, and this is $(node --version): https://nodejs.org/en/download" ;;
  esac
}

is_root() { [ "$(id -u)" = 0 ]; }
has_apt() { command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; }
has_systemd() { [ -d /run/systemd/system ]; }

apt_lists_fresh=
refresh_apt_lists() {
  [ -z "$apt_lists_fresh" ] || return 0
  quietly "refreshing the package lists of apt" apt-get -o DPkg::Lock::Timeout=120 update || return 1
  apt_lists_fresh=1
}

# install_debian <package...>: needs root.
install_debian() {
  refresh_apt_lists || return 1
  quietly "installing $* with apt" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
}

engine() { "$node" deploy/local/src/engine.ts "$@"; }
. deploy/local/default-image/build.sh

# Waits at least two minutes for the engine to answer: its first start takes long on a slow machine.
await_engine() {
  began=$(date +%s)
  until engine probe 2>/dev/null; do
    [ $(($(date +%s) - began)) -lt 120 ] || return 1
    sleep 0.5
  done
}

# How whoever isn't root gets sandboxes.
root_advice() {
  is_root && return
  printf '%s' "Sandboxes are isolated by firewall rules, which need root: sudo env \"PATH=\$PATH\" npm start. To try it by yourself without isolation, let this user use the engine (sudo usermod -aG docker $(id -un), then sign in again) and set SANDGATE_ISOLATION=off."
}

# Finds a container engine, or as root on Debian or Ubuntu installs and starts one.
prepare_engine() {
  if problem=$(engine probe 2>&1); then return; fi
  [ -z "${SANDGATE_RUNTIME:-}${DOCKER_HOST:-}" ] || fail "$problem"
  if ! command -v dockerd >/dev/null 2>&1; then
    if ! is_root || ! has_apt; then
      fail "$problem. Install Docker Engine (on Debian or Ubuntu: sudo apt-get install docker.io), or set DOCKER_HOST to an engine's address. $(root_advice)"
    fi
    install_debian docker.io ca-certificates conntrack || fail "Docker Engine could not be installed; the last lines of apt are above"
  elif ! is_root; then
    fail "$problem. Start it if it is stopped (sudo systemctl start docker), or set DOCKER_HOST to an engine's address. $(root_advice)"
  fi
  say "starting Docker Engine ..."
  if has_systemd; then
    systemctl start docker || fail "Docker Engine did not start: see journalctl -u docker"
    await_engine || fail "Docker Engine does not answer: see journalctl -u docker, and restart it (systemctl restart docker)"
  else
    # In a session of its own, so that it outlives the platform. One that the package's installation started already
    # wins.
    setsid dockerd >>/var/log/dockerd.log 2>&1 </dev/null &
    if ! await_engine; then
      tail -n 20 /var/log/dockerd.log >&2
      fail "Docker Engine does not answer: the last lines of /var/log/dockerd.log are above"
    fi
  fi
}
