import type { DescMethod } from "@bufbuild/protobuf";
import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";

const { method: identity } = IdentityService;
const { method: workspace } = WorkspaceService;
const { method: imageRegistry } = ImageRegistryService;
const { method: sandbox } = SandboxService;

/** What a request to a route with this RPC wants to do: the RPCs of all routes that can be refused to somebody. */
const actions = new Map<DescMethod, AuditAction>([
  [identity.signIn, "user.sign_in"],
  [identity.finishSso, "user.sign_in"],
  [identity.changePassword, "user.change_password"],
  [identity.deleteAccount, "user.delete"],
  [identity.getSecondFactor, "second_factor.read"],
  [identity.createSecondFactor, "second_factor.enable"],
  [identity.confirmSecondFactor, "second_factor.enable"],
  [identity.createRecoveryCodes, "second_factor.replace_recovery_codes"],
  [identity.deleteSecondFactor, "second_factor.remove"],
  [identity.deleteUserSecondFactor, "second_factor.remove"],
  [identity.listSessions, "session.list"],
  [identity.endSession, "session.end"],
  [identity.endOtherSessions, "session.end_all"],
  [identity.createApiToken, "api_token.create"],
  [identity.listApiTokens, "api_token.list"],
  [identity.revokeApiToken, "api_token.revoke"],
  [identity.listUsers, "user.list"],
  [identity.setUserDisabled, "user.disable"],
  [identity.deleteUser, "user.delete"],
  [identity.endUserSessions, "session.end_all"],
  [identity.revokeUserApiTokens, "api_token.revoke"],
  [workspace.createWorkspace, "workspace.create"],
  [workspace.listWorkspaces, "workspace.list"],
  [workspace.getWorkspace, "workspace.read"],
  [workspace.updateWorkspace, "workspace.update"],
  [workspace.deleteWorkspace, "workspace.delete"],
  [workspace.addMember, "member.add"],
  [workspace.listMembers, "member.list"],
  [workspace.updateMember, "member.update"],
  [workspace.removeMember, "member.remove"],
  [imageRegistry.createImage, "image.create"],
  [imageRegistry.getImage, "image.read"],
  [imageRegistry.listImages, "image.list"],
  [imageRegistry.updateImage, "image.update"],
  [imageRegistry.deleteImage, "image.delete"],
  [imageRegistry.createRegistry, "registry.create"],
  [imageRegistry.getRegistry, "registry.read"],
  [imageRegistry.listRegistries, "registry.list"],
  [imageRegistry.updateRegistry, "registry.update"],
  [imageRegistry.deleteRegistry, "registry.delete"],
  [sandbox.provisionSandbox, "sandbox.provision"],
  [sandbox.getSandbox, "sandbox.read"],
  [sandbox.listSandboxes, "sandbox.list"],
  [sandbox.waitSandboxes, "sandbox.read"],
  [sandbox.stopSandbox, "sandbox.stop"],
  [sandbox.listAllSandboxes, "sandbox.list"],
  [sandbox.stopAnySandbox, "sandbox.stop"],
  [TelemetryService.method.queryTelemetry, "sandbox.read_logs"],
  [TelemetryService.method.tailTelemetry, "sandbox.read_logs"],
  [AuditService.method.listAuditEntries, "audit_log.read"],
  [AuditService.method.listAllAuditEntries, "audit_log.read"],
]);

/** Reads that are noted because they show what secrets there are. */
const notedReads = new Set<DescMethod>([
  identity.listApiTokens,
  imageRegistry.getRegistry,
  imageRegistry.listRegistries,
]);

/** The word in the audit log for what a route's RPC does; undefined for one that nobody can be refused. */
export function actionOf(rpc: DescMethod): AuditAction | undefined {
  return actions.get(rpc);
}

/** Whether reads by this RPC are noted in the audit log. */
export function isNotedRead(rpc: DescMethod): boolean {
  return notedReads.has(rpc);
}
