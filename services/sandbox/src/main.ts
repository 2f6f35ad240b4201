import { runService } from "@sandgate/kit/process/process";
import { openSandboxService, sandboxSettings } from "./service.ts";

await runService({ service: "sandbox", open: openSandboxService, settings: sandboxSettings });
