#!/bin/sh
# The helper's checks: `build` (dist/ was built from this source), `generated` (its Go code is what the contract generates) and
# `tests`. Exit code 77 means that a check could not be made here.
set -u
cd "$(dirname "$0")/../../.." || exit 1
PATH=$PWD/node_modules/.bin:$PATH:/usr/local/go/bin
helper=services/sandbox/helper

GOTOOLCHAIN=$(sed -n 's/^toolchain //p' $helper/go.mod)
GOFLAGS=
export PATH GOTOOLCHAIN GOFLAGS
if ! command -v go >/dev/null 2>&1 || ! go -C $helper version >/dev/null 2>&1; then
  echo "the toolchain $GOTOOLCHAIN is not here, so the helper is NEITHER BUILT NOR TESTED"
  exit 77
fi
if ! go -C $helper mod download >/dev/null 2>&1; then
  echo "the helper's Go modules can't be had, so it is NEITHER BUILT NOR TESTED"
  exit 77
fi

check_build() { node $helper/build.ts --check; }

check_generated() {
  fresh=$(mktemp -d)
  buf generate --template $helper/buf.gen.yaml --output "$fresh" &&
    diff -r "$fresh/$helper/internal/helperv1" $helper/internal/helperv1
  result=$?
  rm -rf "$fresh"
  return $result
}

check_tests() { (cd $helper && test -z "$(gofmt -l .)" && go vet ./... && go test ./...); }

for check in ${*:-generated tests build}; do
  "check_$check" || exit
done
