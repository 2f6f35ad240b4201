import { describeConformance } from "./conformance.ts";

describeConformance("monitoring", () => import("../conformance/monitoring.test.ts"));
