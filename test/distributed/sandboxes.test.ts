import { describeConformance } from "./conformance.ts";

describeConformance("sandboxes", () => import("../conformance/sandboxes.test.ts"));
