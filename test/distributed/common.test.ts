import { describeConformance } from "./conformance.ts";

describeConformance("common", () => import("../conformance/common.test.ts"));
