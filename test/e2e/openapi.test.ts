// The OpenAPI description in the hands of others' tools: linters, and generators of clients.
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { installNodeTools, installPythonTools } from "../openapi-tools.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";

const execute = promisify(execFile);
const hasNodeTools = await requireServer("openapi-tools", installNodeTools);
const hasPythonTools = await requireServer("openapi-python-tools", installPythonTools);

describe.runIf(await requireServer("docker", probeEngine))("the OpenAPI description", () => {
  let platform: TestPlatform;
  let folder: { path: string; remove(): Promise<void> };
  let description: string;

  beforeAll(async () => {
    platform = await startPlatform();
    folder = await createTempFolder();
    description = join(folder.path, "openapi.json");
    await writeFile(description, await (await fetch(`${platform.url}/openapi.json`)).text());
  });
  afterAll(async () => {
    await platform?.stop();
    await folder?.remove();
  });

  const signIn = () => [platform.url, platform.admin.username, platform.admin.password];
  const result = (made: string) => ({ state: "provisioning", labels: { made }, code: "sandbox_not_found" });

  test.runIf(hasNodeTools)(
    "has no finding of Redocly or Spectral but routes that only redirect or upgrade",
    async () => {
      const { stdout } = await execute("node", ["lint.mjs", description], { cwd: await installNodeTools() });
      expect(JSON.parse(stdout)).toEqual([
        "operation-2xx-response #/paths/~1auth~1sso~1{provider}/get/responses",
        "operation-2xx-response #/paths/~1auth~1sso~1{provider}~1callback/get/responses",
        "operation-2xx-response #/paths/~1sandboxes~1{sandbox_id}~1processes~1{process_id}~1attach/get/responses",
        "operation-2xx-response #/paths/~1sandboxes~1{sandbox_id}~1ports~1{port}~1tcp/get/responses",
        "operation-success-response paths//sandboxes/{sandbox_id}/processes/{process_id}/attach/get/responses",
        "operation-success-response paths//sandboxes/{sandbox_id}/ports/{port}/tcp/get/responses",
      ]);
    },
  );

  test.runIf(hasNodeTools)("makes types for TypeScript, on which a program compiles and runs", async () => {
    const cwd = await installNodeTools();
    await execute("node_modules/.bin/openapi-typescript", [description, "-o", "api.ts"], { cwd });
    const strict = ["--strict", "--noEmit", "--skipLibCheck", "--allowImportingTsExtensions"];
    const module = ["--module", "nodenext", "--target", "es2022", "--types", "node"];
    await execute("node_modules/.bin/tsc", [...strict, ...module, "client.ts"], { cwd });
    const { stdout } = await execute(process.execPath, ["client.ts", ...signIn()], { cwd });
    expect(JSON.parse(stdout)).toEqual(result("typescript"));
  });

  test.runIf(hasPythonTools)(
    "makes a package for Python with a model for each noun, on which a program runs",
    async () => {
      const cwd = await installPythonTools();
      const env = { ...process.env, PATH: `${cwd}/venv/bin:${process.env.PATH}` };
      const generate = ["generate", "--path", description, "--output-path", "sandgate_api", "--meta", "none"];
      const generator = ["-m", "openapi_python_client", ...generate, "--overwrite"];
      const { stdout: said } = await execute("python", generator, { cwd, env });
      expect(said).not.toMatch(/warning/i);
      const models = await readFile(join(cwd, "sandgate_api/models/__init__.py"), "utf8");
      expect(models).not.toMatch(/_type_\d|_response_\d/);
      const { stdout } = await execute("python", ["client.py", ...signIn()], { cwd, env });
      expect(JSON.parse(stdout)).toEqual(result("python"));
    },
  );
});
