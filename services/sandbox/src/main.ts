import { runService } from "@sandgate/kit/process/process";
import { sandboxService } from "./service.ts";

await runService(sandboxService);
