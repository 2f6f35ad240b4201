// `npm run build:helper`: builds the helper for both architectures into dist/. The same source gives the same bytes on every
// machine, so `check.sh build` can build them again and compare (`--check`).
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliCompressSync, brotliDecompressSync, constants } from "node:zlib";

const folder = import.meta.dirname;
const dist = join(folder, "dist");
const scratch = mkdtempSync(join(tmpdir(), "sandgate-helper-build-"));

function build(architecture: string): Buffer {
  const output = join(scratch, architecture);
  execFileSync("go", ["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", output, "."], {
    cwd: folder,
    env: {
      ...process.env,
      CGO_ENABLED: "0",
      GOOS: "linux",
      GOARCH: architecture,
      GOAMD64: "v1",
      GOARM64: "v8.0",
      GOEXPERIMENT: "",
      GOFLAGS: "",
    },
    stdio: ["ignore", "inherit", "inherit"],
  });
  return readFileSync(output);
}

try {
  for (const architecture of ["amd64", "arm64"]) {
    const program = build(architecture);
    const file = join(dist, `helper-${architecture}.br`);
    if (process.argv[2] === "--check") {
      if (!brotliDecompressSync(readFileSync(file)).equals(program)) {
        throw new Error(`${file} was not built from this source: run npm run build:helper`);
      }
    } else {
      const params = {
        [constants.BROTLI_PARAM_QUALITY]: 11,
        [constants.BROTLI_PARAM_LGWIN]: 24,
        // Machine code repeats at distances whose last bits are the same.
        [constants.BROTLI_PARAM_NPOSTFIX]: 3,
      };
      mkdirSync(dist, { recursive: true });
      writeFileSync(file, brotliCompressSync(program, { params }));
    }
  }
} finally {
  rmSync(scratch, { recursive: true });
}
