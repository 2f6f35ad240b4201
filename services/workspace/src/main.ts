import { runService } from "@sandgate/kit/process/process";
import { workspaceService } from "./service.ts";

await runService(workspaceService);
