import type { RoutePlugin } from "./pipeline/route.ts";
import { adminRoutes } from "./resources/admin/routes.ts";
import { apiTokenRoutes } from "./resources/api-tokens/routes.ts";
import { auditLogRoutes } from "./resources/audit-log/routes.ts";
import { accountRoutes } from "./resources/auth/account-routes.ts";
import { identityRoutes } from "./resources/auth/identity-routes.ts";
import { passwordRoutes } from "./resources/auth/password-routes.ts";
import { sessionRoutes } from "./resources/auth/session-routes.ts";
import { ssoRoutes } from "./resources/auth/sso-routes.ts";
import { fileArchiveRoutes } from "./resources/files/archive-routes.ts";
import { fileContentRoutes } from "./resources/files/content-routes.ts";
import { fileEntryRoutes } from "./resources/files/entry-routes.ts";
import { fileFolderRoutes } from "./resources/files/folder-routes.ts";
import { fileWatchRoutes } from "./resources/files/watch-routes.ts";
import { memberRoutes } from "./resources/members/routes.ts";
import { monitoringRoutes } from "./resources/monitoring/routes.ts";
import { portHttpRoutes } from "./resources/ports/http-routes.ts";
import { listeningRoutes } from "./resources/ports/listening-routes.ts";
import { tcpRoutes } from "./resources/ports/tcp-routes.ts";
import { previewRoutes } from "./resources/previews/routes.ts";
import { attachRoutes } from "./resources/processes/attach-routes.ts";
import { processControlRoutes } from "./resources/processes/control-routes.ts";
import { execRoutes } from "./resources/processes/exec-routes.ts";
import { outputRoutes } from "./resources/processes/output-routes.ts";
import { processRoutes } from "./resources/processes/process-routes.ts";
import { registryRoutes } from "./resources/registries/routes.ts";
import { sandboxImageRoutes } from "./resources/sandbox-images/routes.ts";
import { provisionRoutes } from "./resources/sandboxes/provision-routes.ts";
import { sandboxRoutes } from "./resources/sandboxes/sandbox-routes.ts";
import { secondFactorRoutes } from "./resources/second-factor/routes.ts";
import { workspaceRoutes } from "./resources/workspaces/routes.ts";

/** The routes of all resources, in the order in which the reference shows them. */
export const resourceRoutes: readonly RoutePlugin[] = [
  accountRoutes,
  passwordRoutes,
  sessionRoutes,
  ssoRoutes,
  identityRoutes,
  secondFactorRoutes,
  adminRoutes,
  apiTokenRoutes,
  workspaceRoutes,
  memberRoutes,
  sandboxImageRoutes,
  registryRoutes,
  provisionRoutes,
  sandboxRoutes,
  execRoutes,
  processRoutes,
  processControlRoutes,
  outputRoutes,
  attachRoutes,
  fileContentRoutes,
  fileEntryRoutes,
  fileFolderRoutes,
  fileArchiveRoutes,
  fileWatchRoutes,
  listeningRoutes,
  portHttpRoutes,
  tcpRoutes,
  previewRoutes,
  monitoringRoutes,
  auditLogRoutes,
];
