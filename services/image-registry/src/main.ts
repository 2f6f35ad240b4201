import { runService } from "@sandgate/kit/process/process";
import { imageRegistrySettings, openImageRegistryService } from "./service.ts";

await runService({ service: "image-registry", open: openImageRegistryService, settings: imageRegistrySettings });
