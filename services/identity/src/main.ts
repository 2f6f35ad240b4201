import { runService } from "@sandgate/kit/process/process";
import { identityProcess } from "./service.ts";

await runService(identityProcess);
