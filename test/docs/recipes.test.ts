import { execFile } from "node:child_process";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { linkPackages, thisCode } from "../platform/earlier.ts";

const execute = promisify(execFile);
const bin = join(thisCode, "node_modules/.bin");

/** What follows a line of a file, which must stand there once. */
type Additions = Readonly<Record<string, readonly (readonly [line: string, added: string])[]>>;

const recipes: Readonly<Record<string, Additions>> = {
  "A field of the sandbox record": {
    "proto/sandgate/sandbox/v1/sandbox.proto": [["  repeated TimelineEntry timeline = 21;", "  string region = 100;"]],
    "services/sandbox/src/domain/sandbox.ts": [
      ["  createdBy: string;", "  region?: string;"],
      ["    ...given,", '    region: "eu-1",'],
    ],
    "facade/src/resources/sandboxes/schemas.ts": [
      ["  created_by: readOnly(Type.String()),", "  region: NullableText,"],
    ],
  },

  "A field of an image": {
    "proto/sandgate/imageregistry/v1/image_registry.proto": [
      ["  string registry_name = 15;", "  string architecture = 16;"],
      [
        "message CreateImageRequest {",
        "  // Unset: amd64.\n  optional string architecture = 11 [(buf.validate.field).string.max_len = 16];",
      ],
      [
        "message UpdateImageRequest {",
        "  optional string architecture = 13 [(buf.validate.field).string.max_len = 16];",
      ],
    ],
    "services/image-registry/src/domain/images.ts": [
      ["  readonly tag: string;", "  readonly architecture?: string;"],
      ["    enabled: request.enabled ?? true,", '    architecture: request.architecture ?? "amd64",'],
      [
        "    enabled: request.enabled ?? image.enabled,",
        '    architecture: request.architecture ?? image.architecture ?? "amd64",',
      ],
    ],
    "services/image-registry/src/store/tables.sqlite.ts": [
      [
        '  "CREATE INDEX images_enabled ON images (workspace_id, created_at, id) WHERE enabled = 1;",',
        '  "ALTER TABLE images ADD COLUMN architecture TEXT;",',
      ],
      ['  image: "value",', '  architecture: "value",'],
    ],
    "facade/src/resources/sandbox-images/schemas.ts": [
      [
        '  image: fieldSchema(Request, "image"),',
        '  architecture: Type.Optional(fieldSchema(Request, "architecture")),',
      ],
      ["  image: Type.String(),", "  architecture: Type.String(),"],
    ],
  },

  "An endpoint": {
    "proto/sandgate/workspace/v1/workspace.proto": [
      [
        "service WorkspaceService {",
        `  rpc LeaveWorkspace(LeaveWorkspaceRequest) returns (LeaveWorkspaceResponse) {
    option (sandgate.common.v1.access) = {
      callers: ["facade"]
      least_role: ROLE_MEMBER
      permission: PERMISSION_MANAGE
    };
  }`,
      ],
      ["message RemoveMemberResponse {}", "\nmessage LeaveWorkspaceRequest {}\nmessage LeaveWorkspaceResponse {}"],
    ],
    "services/workspace/src/handlers/members.ts": [
      [
        "  return {",
        `    async leaveWorkspace(_request, context) {
      const call = callOf(context);
      await removeMember(o, call, userOf(call).id);
      return {};
    },
`,
      ],
    ],
    "facade/src/resources/members/routes.ts": [
      [
        "export const memberRoutes: RoutePlugin = async (app, { clients: { workspace } }) => {",
        `  app.post(
    "/workspaces/:workspace_id/leave",
    {
      config: { rules: { rpc: rpc.leaveWorkspace, audit: "member.remove", errors: ["CONFLICT"] } },
      schema: { tags, summary: "Leave a workspace", params: WorkspaceParams, response: { 204: NoContent } },
    },
    async (request, reply) => {
      await workspace.leaveWorkspace({}, callFor(request));
      return reply.code(204).send(null);
    },
  );
`,
      ],
    ],
    "test/conformance/demands.ts": [
      [
        "export const demands: Record<string, Demand> = {",
        '  "POST /workspaces/{workspace_id}/leave": { ...manages, least: "member", answers: 204, disposable: true },',
      ],
    ],
  },
};

/** Tests that are added to the copy: each says what its recipe promises. */
const outcomes: Readonly<Record<string, string>> = {
  "services/sandbox/src/recipe.test.ts": `
    import { expect, test } from "vitest";
    import { acceptSandbox } from "./domain/sandbox.ts";
    import { toMessage } from "./messages.ts";

    test("the message has the record's field", () => {
      const image = { imageId: "i", reference: "r", registryId: "", isDefault: false, memoryMb: 256 };
      const given = { id: "s", workspaceId: "w", image, createdBy: "u", name: "box", labels: {}, now: new Date() };
      expect(toMessage(acceptSandbox(given)).region).toBe("eu-1");
    });`,
  "services/image-registry/src/recipe.test.ts": `
    import { createLogger } from "@sandgate/kit/base/logging";
    import { createTempFolder } from "@sandgate/test-support/temp-folder";
    import { expect, test } from "vitest";
    import { newImage, readNewImage } from "./domain/images.ts";
    import { toImage } from "./messages.ts";
    import { openSqliteStore } from "./store/store.sqlite.ts";
    import { create } from "@bufbuild/protobuf";
    import { CreateImageRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
    import { readAllowedHosts } from "@sandgate/registry-client/allowed-hosts";

    test("what was asked for is stored, and in the answer", async () => {
      const { path, remove } = await createTempFolder();
      const logger = createLogger({ service: "test", level: "silent" });
      const store = await openSqliteStore({ file: path + "/images.sqlite", logger });
      const request = create(CreateImageRequestSchema, { name: "tool", image: "alpine", architecture: "arm64" });
      const image = newImage(readNewImage(request, readAllowedHosts([])), "w");
      await store.images.create(image, undefined, { maxImages: 0, maxRegistries: 0 }, [], undefined);
      const stored = await store.images.find(image.id, "w");
      expect(stored && toImage(stored).architecture).toBe("arm64");
      await store.close();
      await remove();
    });`,
  "facade/src/recipe.test.ts": `
    import { expect, test } from "vitest";
    import { apiToken, at, openTestPlatform, sandboxMessage, workspaceId } from "./test-platform.ts";

    test("clients see the new fields and the new endpoint", async () => {
      const left: string[] = [];
      const asked: (string | undefined)[] = [];
      const platform = await openTestPlatform({
        handlers: {
          sandbox: { getSandbox: () => ({ sandbox: { ...sandboxMessage(), region: "eu-1" } }) },
          workspace: { leaveWorkspace: () => { left.push("left"); return {}; } },
          imageRegistry: {
            createImage: ({ name, image, architecture }) => {
              asked.push(architecture);
              return { image: { id: "i", name, image, tag: "t", memoryMb: 256, createdAt: at, updatedAt: at, architecture: architecture ?? "" } };
            },
          },
        },
      });
      const headers = { authorization: "Bearer " + apiToken, "x-workspace-id": workspaceId };
      const sandbox = await platform.app.inject({ method: "GET", url: "/sandboxes/box", headers });
      expect(sandbox.json()).toMatchObject({ region: "eu-1" });
      const create = (architecture: string) => platform.app.inject({
        method: "POST", url: "/sandbox-images", headers, payload: { name: "tool", image: "alpine", architecture },
      });
      expect((await create("arm64")).json()).toMatchObject({ architecture: "arm64" });
      expect((await create("a".repeat(17))).statusCode).toBe(422);
      expect(asked).toEqual(["arm64"]);
      const leave = { method: "POST", url: \`/workspaces/\${workspaceId}/leave\` } as const;
      expect((await platform.app.inject({ ...leave, headers })).statusCode).toBe(204);
      expect((await platform.app.inject(leave)).statusCode).toBe(401);
      expect(left).toEqual(["left"]);
      await platform.close();
    });`,
};

/** The files that a recipe's table in CONTRIBUTING.md names. */
function filesOf(guide: string, title: string): string[] {
  const [, section = ""] = guide.split(`## ${title}\n`);
  const [table = ""] = section.split("\n## ");
  return [...table.matchAll(/^\| `([^`]+)` \|/gm)].map(([, file = ""]) => file);
}

describe("the recipes of CONTRIBUTING.md, followed in a copy of the code", { timeout: 600_000 }, () => {
  let copy: { root: string; remove(): Promise<void> };
  const run = (command: string, ...args: string[]) =>
    execute(join(bin, command), args, { cwd: copy.root, env: { ...process.env, PATH: `${bin}:${process.env.PATH}` } });

  beforeAll(async () => {
    const { path, remove } = await createTempFolder();
    const root = join(path, "code");
    copy = { root, remove };
    const leftOut = new Set(["node_modules", ".git", "data"].map((name) => join(thisCode, name)));
    await cp(thisCode, root, { recursive: true, filter: (source) => !leftOut.has(source) });
    await linkPackages(root);
    await execute("git", ["init", "--quiet"], { cwd: root });
    for (const additions of Object.values(recipes)) {
      for (const [file, lines] of Object.entries(additions)) {
        let text = await readFile(join(root, file), "utf8");
        for (const [line, added] of lines) {
          expect(text.split(`${line}\n`), `${file}: ${line}`).toHaveLength(2);
          text = text.replace(`${line}\n`, () => `${line}\n${added}\n`);
        }
        await writeFile(join(root, file), text);
      }
    }
    await run("buf", "generate");
  });
  afterAll(() => copy?.remove());

  test.each(Object.entries(recipes))("%s: the table names every file that it takes", async (title, additions) => {
    const guide = await readFile(join(thisCode, "CONTRIBUTING.md"), "utf8");
    expect(filesOf(guide, title)).toEqual(Object.keys(additions));
  });

  test("types, style and the contracts' style find nothing missing", async () => {
    const outputs = await Promise.allSettled([
      run("tsc", "--noEmit"),
      run(
        "biome",
        "check",
        ...Object.values(recipes)
          .flatMap(Object.keys)
          .filter((file) => file.endsWith(".ts")),
      ),
      run("buf", "lint"),
    ]);
    expect(outputs.filter(({ status }) => status === "rejected")).toEqual([]);
  });

  test("each does what it promises", async () => {
    for (const [file, text] of Object.entries(outcomes)) {
      await mkdir(dirname(join(copy.root, file)), { recursive: true });
      await writeFile(join(copy.root, file), text);
    }
    await run("vitest", "run", "--project", "unit", ...Object.keys(outcomes));
  });
});
