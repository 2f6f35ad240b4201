import { describeConformance } from "./conformance.ts";

describeConformance("codes", () => import("../conformance/codes.test.ts"));
