#!/bin/sh
# Generates code from the contracts of others that the facade has in folders of its own. `check` compares it instead.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/node_modules/.bin:$PATH
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

for template in $(find facade/src -name buf.gen.yaml); do
  if [ "${1:-}" = check ]; then
    gen=$(dirname "$template")/gen
    buf generate --template "$template" --output "$fresh"
    diff -r "$fresh/$gen" "$gen"
  else
    buf generate --template "$template"
  fi
done
