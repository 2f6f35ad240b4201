import { runService } from "@sandgate/kit/process/process";
import { openTelemetryService, telemetrySettings } from "./service.ts";

await runService({ service: "telemetry", open: openTelemetryService, settings: telemetrySettings });
