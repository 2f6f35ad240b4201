import { runService } from "@sandgate/kit/process/process";
import { openWorkspaceService, workspaceSettings } from "./service.ts";

await runService({ service: "workspace", open: openWorkspaceService, settings: workspaceSettings });
