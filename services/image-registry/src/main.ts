import { runService } from "@sandgate/kit/process/process";
import { imageRegistryService } from "./service.ts";

await runService(imageRegistryService);
