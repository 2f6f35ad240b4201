import { globSync } from "node:fs";
import { join } from "node:path";
import {
  create,
  createFileRegistry,
  type DescMethod,
  type DescService,
  type MessageInitShape,
  setExtension,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, MethodOptionsSchema } from "@bufbuild/protobuf/wkt";
import { AccessSchema, access as accessOption, Permission, Role } from "@sandgate/proto/common/v1/access";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { describe, expect, test } from "vitest";
import { callerNames } from "../base/service-names.ts";
import {
  accessOf,
  authorize,
  limitRole,
  permissionNames,
  requireLimitedRole,
  requireRole,
  toPermission,
  toPermissionName,
} from "./access.ts";
import type { UserCaller } from "./context.ts";

const session: UserCaller = { id: "u", credential: "session", credentialId: "s", operator: false };
const apiToken: UserCaller = { ...session, credential: "api_token" };
const { createWorkspace, updateWorkspace, getWorkspace, getMembership, batchGetWorkspaces } = WorkspaceService.method;
const { createApiToken } = IdentityService.method;

function reasonOf(method: DescMethod, service: string, user?: UserCaller): string {
  try {
    authorize(method, { service, ...(user && { user }) });
    return "allowed";
  } catch (error) {
    return error instanceof Error && "reason" in error ? String(error.reason) : String(error);
  }
}

test.each([
  ["a caller that is not listed", createWorkspace, "sandbox", session, "CALLER_NOT_ALLOWED"],
  ["a caller that is close to a listed one", createWorkspace, "Facade", session, "CALLER_NOT_ALLOWED"],
  ["no user", createWorkspace, "facade", undefined, "UNAUTHENTICATED"],
  ["a user", createWorkspace, "facade", apiToken, "allowed"],
  ["no user for a role", getWorkspace, "facade", undefined, "UNAUTHENTICATED"],
  ["no workspace", getWorkspace, "facade", session, "WORKSPACE_REQUIRED"],
  ["a workspace without a role", getWorkspace, "facade", { ...session, workspaceId: "w" }, "WORKSPACE_FORBIDDEN"],
  ["the least role", getWorkspace, "facade", { ...session, workspaceId: "w", role: "member" }, "allowed"],
  ["a role too low", updateWorkspace, "facade", { ...session, workspaceId: "w", role: "member" }, "INSUFFICIENT_ROLE"],
  ["a higher role", updateWorkspace, "facade", { ...session, workspaceId: "w", role: "owner" }, "allowed"],
  ["no user where none is needed", getMembership, "facade", undefined, "allowed"],
  ["a service that is listed", batchGetWorkspaces, "sandbox", undefined, "allowed"],
] as const)("%s", (_, method, service, user, answer) => {
  expect(reasonOf(method, service, user)).toBe(answer);
});

test("a role includes the lesser ones", () => {
  requireRole(Role.OWNER, Role.ADMIN);
  requireRole(Role.ADMIN, Role.MEMBER);
  requireRole(Role.MEMBER, Role.MEMBER);
});

test("a role that is too low is distinguished from none", () => {
  const refusal = (reason: string) => expect.objectContaining({ reason });
  expect(() => requireRole(Role.MEMBER, Role.ADMIN)).toThrow(refusal("INSUFFICIENT_ROLE"));
  expect(() => requireRole(Role.ADMIN, Role.OWNER)).toThrow(refusal("INSUFFICIENT_ROLE"));
  expect(() => requireRole(Role.UNSPECIFIED, Role.MEMBER)).toThrow(refusal("WORKSPACE_FORBIDDEN"));
});

test("a credential has the lower of its user's role and its limit", () => {
  expect(limitRole(Role.OWNER, { roleLimit: "member" })).toBe(Role.MEMBER);
  expect(limitRole(Role.MEMBER, { roleLimit: "owner" })).toBe(Role.MEMBER);
  expect(limitRole(Role.UNSPECIFIED, { roleLimit: "owner" })).toBe(Role.UNSPECIFIED);
  expect(limitRole(Role.OWNER, {})).toBe(Role.OWNER);
  expect(requireLimitedRole(Role.OWNER, { roleLimit: "admin" }, Role.ADMIN)).toBe("admin");
  const refusal = (message: string) => expect.objectContaining({ reason: "INSUFFICIENT_ROLE", message });
  expect(() => requireLimitedRole(Role.OWNER, { roleLimit: "member" }, Role.ADMIN)).toThrow(
    refusal("This requires the admin role, and the API token's is member."),
  );
  expect(() => requireLimitedRole(Role.MEMBER, { roleLimit: "owner" }, Role.ADMIN)).toThrow(
    refusal("This requires the admin role, and yours is member."),
  );
});

test("a session where one is needed", () => {
  expect(accessOf(createApiToken)?.sessionOnly).toBe(true);
  expect(reasonOf(createApiToken, "facade")).toBe("UNAUTHENTICATED");
  expect(reasonOf(createApiToken, "facade", apiToken)).toBe("FORBIDDEN");
  expect(reasonOf(createApiToken, "facade", session)).toBe("allowed");
});

describe("an API token with permissions", () => {
  const owner: UserCaller = { ...apiToken, workspaceId: "w", role: "owner" };
  const { listSandboxes, provisionSandbox, waitSandboxes, stopSandbox } = SandboxService.method;

  test.each([
    [getWorkspace, "read"],
    [listSandboxes, "read"],
    [WorkspaceService.method.listWorkspaces, "read"],
    [provisionSandbox, "provision"],
    [waitSandboxes, "provision"],
    [stopSandbox, "provision"],
    [ProcessService.method.runCommand, "use"],
    [ProcessService.method.listProcesses, "use"],
    [createWorkspace, "manage"],
    [ImageRegistryService.method.createImage, "manage"],
  ] as const)("calls %s with %s, and with no other", (method, needed) => {
    for (const name of permissionNames) {
      const answer = reasonOf(method, "facade", { ...owner, permissions: [name] });
      expect(answer, name).toBe(name === needed ? "allowed" : "FORBIDDEN");
    }
    expect(reasonOf(method, "facade", { ...owner, permissions: permissionNames })).toBe("allowed");
    expect(reasonOf(method, "facade", { ...owner, permissions: [] })).toBe("FORBIDDEN");
    expect(reasonOf(method, "facade", owner)).toBe("allowed");
  });

  test("is told which one it lacks", () => {
    const call = () => authorize(stopSandbox, { service: "facade", user: { ...owner, permissions: ["read"] } });
    expect(call).toThrow(expect.objectContaining({ hint: expect.stringContaining('"provision"') }));
  });

  test("has no more than its role", () => {
    const member: UserCaller = { ...owner, role: "member", permissions: permissionNames };
    expect(reasonOf(updateWorkspace, "facade", member)).toBe("INSUFFICIENT_ROLE");
    expect(reasonOf(createApiToken, "facade", member)).toBe("FORBIDDEN");
  });

  test("is answered by all services that one which it may call needs", () => {
    const { resolveImage } = ImageRegistryService.method;
    expect(reasonOf(resolveImage, "sandbox", { ...owner, permissions: ["provision"] })).toBe("allowed");
  });

  test("calls what tells of itself with any permission, and with none", () => {
    const { getAccount } = IdentityService.method;
    for (const some of [["read"], ["use"], []] as const) {
      expect(reasonOf(getAccount, "facade", { ...apiToken, permissions: some })).toBe("allowed");
    }
  });

  test("calls nothing that names no permission", () => {
    const method = describeMethod({ callers: ["facade"], user: true });
    expect(reasonOf(method, "facade", { ...apiToken, permissions: permissionNames })).toBe("FORBIDDEN");
    expect(reasonOf(method, "facade", apiToken)).toBe("allowed");
  });

  test("has names for all permissions of the contract", () => {
    const values = Object.values(Permission).filter((value) => typeof value === "number");
    expect(values.slice(1).map(toPermissionName)).toEqual(permissionNames);
    expect([Permission.UNSPECIFIED, ...permissionNames.map(toPermission)]).toEqual(values);
  });
});

test("a method without a rule is refused to everybody", () => {
  const method = describeMethod();
  for (const caller of callerNames) {
    expect(reasonOf(method, caller, { ...session, workspaceId: "w", role: "owner" })).toBe("CALLER_NOT_ALLOWED");
  }
});

const generated = join(import.meta.dirname, "../../../../proto/gen/sandgate");
const modules: object[] = await Promise.all(
  // The helper in a sandbox is no service: who may open its stream may call everything.
  globSync("*/v1/*_pb.ts", { cwd: generated, exclude: ["helper/**"] }).map((path) => import(join(generated, path))),
);
const methods = modules
  .flatMap((module): DescService[] => Object.values(module).filter(({ kind }) => kind === "service"))
  .flatMap((service) => service.methods);

test("every method of every service has a rule, and its callers exist", () => {
  const callers = new Set<string>(callerNames);
  expect(methods.length).toBeGreaterThan(90);
  for (const method of methods) {
    const access = accessOf(method);
    expect(access?.callers.length, String(method)).toBeGreaterThan(0);
    for (const caller of access?.callers ?? []) expect(callers).toContain(caller);
  }
});

test("every method that an API token may call through the facade names a permission, and no other does", () => {
  for (const method of methods) {
    const access = accessOf(method);
    const forTokens =
      access?.callers.includes("facade") &&
      !access.sessionOnly &&
      (access.user || access.leastRole !== Role.UNSPECIFIED);
    const named = [access?.permission !== Permission.UNSPECIFIED, access?.anyPermission].filter(Boolean).length;
    expect(named, String(method)).toBe(forTokens ? 1 : 0);
  }
});

/** A method with this access rule, or with none. */
function describeMethod(access?: MessageInitShape<typeof AccessSchema>): DescMethod {
  const type = ".open.Message";
  const options = create(MethodOptionsSchema);
  if (access) setExtension(options, accessOption, create(AccessSchema, access));
  const service = { name: "Open", method: [{ name: "Call", inputType: type, outputType: type, options }] };
  const file = { name: "open.proto", package: "open", messageType: [{ name: "Message" }], service: [service] };
  const found = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] })).getService("open.Open");
  if (!found?.method.call) throw new Error("The method is missing.");
  return found.method.call;
}
