import { runService } from "@sandgate/kit/process/process";
import { telemetryService } from "./service.ts";

await runService(telemetryService);
