// Makes the package `sandgate` as npm gets it, in `dist` or the folder that is given: JavaScript, for runtimes that don't
// strip types.
import { execFile } from "node:child_process";
import { chmod, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { writeReadme } from "../readme.ts";

const execute = promisify(execFile);
const folder = import.meta.dirname;
const dist = resolve(process.argv[2] ?? join(folder, "dist"));
await rm(dist, { recursive: true, force: true });
// Its declarations are what this is compiled against (tsconfig.build.json).
await execute(process.execPath, [join(folder, "../typescript/build.ts")]);
const compiler = join(folder, "../../node_modules/.bin/tsc");
await execute(compiler, ["-p", "tsconfig.build.json", "--outDir", join(dist, "src")], { cwd: folder });

const launcher = `#!/usr/bin/env node
import module from "node:module";

// Spares every later start the compilation.
module.enableCompileCache?.();
await import("./main.js");
`;
const program = join(dist, "src/sandgate.js");
await writeFile(program, launcher);
await chmod(program, 0o755);

const { private: _, scripts, ...manifest } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
const published = { ...manifest, name: "sandgate", files: ["src"] };
await writeFile(join(dist, "package.json"), `${JSON.stringify(published, null, 2)}\n`);
await writeReadme("cli.md", dist);
