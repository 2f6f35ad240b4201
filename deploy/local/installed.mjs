// Exits 0 when node_modules holds what package-lock.json asks for. Plain JavaScript, since it runs before anything is installed.
import { readFileSync } from "node:fs";

function readPackages(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8")).packages;
  } catch {
    return undefined;
  }
}

const wanted = readPackages("package-lock.json");
// npm writes this file last, so an installation that was interrupted has none.
const installed = readPackages("node_modules/.package-lock.json");

const complete =
  wanted !== undefined &&
  installed !== undefined &&
  Object.entries(wanted).every(
    ([path, { version, optional }]) =>
      !path.includes("node_modules/") || (path in installed ? installed[path].version === version : optional === true),
  );
process.exit(complete ? 0 : 1);
